// Settings as a list without the config's type: code that uses them is compiled once.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/kind_names.hpp>
#include <xtrain/core/setting.hpp>

namespace xtrain {

/// other: neither recorded nor read. config: nested.
enum class setting_type : std::uint8_t { flag, whole, integer, number, named, text, other, config };

/// The type's member counts.
struct setting_value {
  bool flag = false;
  std::uint64_t whole = 0;
  std::int64_t integer = 0;
  double number = 0;
  std::string_view text{};  ///< of named and text
};

/// Functions of a member's type; `i`: index in a list.
struct setting_access {
  setting_type type = setting_type::other;
  setting_value (*get)(const void* member, std::size_t i) = nullptr;
  /// false: invalid value
  bool (*set)(void* member, std::size_t i, const setting_value& value) = nullptr;
  std::string_view (*name)(std::size_t i) = nullptr;  ///< of kind `i` of named; empty after the last
};

namespace detail {

template <class T>
[[nodiscard]] constexpr setting_type setting_type_of() {
  if constexpr (std::is_same_v<T, bool>) return setting_type::flag;
  else if constexpr (kind_with_names<T>) return setting_type::named;
  else if constexpr (std::is_enum_v<T> || std::unsigned_integral<T>) return setting_type::whole;
  else if constexpr (std::integral<T>) return setting_type::integer;
  else if constexpr (std::floating_point<T>) return setting_type::number;
  else if constexpr (std::is_same_v<T, std::string>) return setting_type::text;
  else return setting_type::other;
}

template <class T>
[[nodiscard]] setting_value value_of_setting(const void* member, std::size_t i) {
  const T& value = static_cast<const T*>(member)[i];
  setting_value given;
  if constexpr (std::is_same_v<T, bool>) given.flag = value;
  else if constexpr (kind_with_names<T>) given.text = name_of_kind(value);
  else if constexpr (std::is_enum_v<T> || std::unsigned_integral<T>) given.whole = static_cast<std::uint64_t>(value);
  else if constexpr (std::integral<T>) given.integer = static_cast<std::int64_t>(value);
  else if constexpr (std::floating_point<T>) given.number = static_cast<double>(value);
  else given.text = value;
  return given;
}
template <class T>
[[nodiscard]] bool set_setting(void* member, std::size_t i, const setting_value& given) {
  T& value = static_cast<T*>(member)[i];
  if constexpr (std::is_same_v<T, bool>) {
    value = given.flag;
  } else if constexpr (kind_with_names<T>) {
    for (const auto& [name, kind] : kind_names<T>::all)
      if (name == given.text) return value = kind, true;
    return false;
  } else if constexpr (std::is_enum_v<T>) {
    if (given.whole > static_cast<std::uint64_t>(std::numeric_limits<std::underlying_type_t<T>>::max())) return false;
    value = static_cast<T>(given.whole);
  } else if constexpr (std::unsigned_integral<T>) {
    if (given.whole > std::numeric_limits<T>::max()) return false;
    value = static_cast<T>(given.whole);
  } else if constexpr (std::integral<T>) {
    if (given.integer < std::numeric_limits<T>::min() || given.integer > std::numeric_limits<T>::max()) return false;
    value = static_cast<T>(given.integer);
  } else if constexpr (std::floating_point<T>) {
    value = static_cast<T>(given.number);
  } else {
    value = given.text;
  }
  return true;
}
template <class T>
[[nodiscard]] std::string_view setting_kind_name(std::size_t i) {
  if constexpr (kind_with_names<T>) return i < kind_names<T>::all.size() ? kind_names<T>::all[i].first : std::string_view();
  else return {};
}
template <class T>
[[nodiscard]] constexpr setting_access access_to_setting() {
  if constexpr (setting_type_of<T>() == setting_type::other) return {};
  else return {setting_type_of<T>(), value_of_setting<T>, set_setting<T>, setting_kind_name<T>};
}
inline constexpr setting_access config_within{.type = setting_type::config};

}  // namespace detail

/// A setting and its place in a config.
struct setting_entry {
  setting about{};
  setting_access access{};
  void* member = nullptr;
  std::size_t values = 1;
  bool is_list = false;
  std::vector<setting_entry> inner{};  ///< of a nested config

  [[nodiscard]] setting_type type() const { return access.type; }
  [[nodiscard]] setting_value get(std::size_t i = 0) const { return access.get(member, i); }
  [[nodiscard]] bool set(const setting_value& value, std::size_t i = 0) const { return access.set(member, i, value); }
  [[nodiscard]] std::string_view full_name() const { return about.full_name.empty() ? about.name : about.full_name; }
};

namespace detail {

template <class T>
inline constexpr bool is_setting_list = false;
template <class T, std::size_t N>
inline constexpr bool is_setting_list<std::array<T, N>> = true;

class setting_collector {
 public:
  std::vector<setting_entry> entries{};

  void operator()(const setting& about, bool& member) { add<bool>(about, &member); }
  void operator()(const setting& about, double& member) { add<double>(about, &member); }
  void operator()(const setting& about, std::size_t& member) { add<std::size_t>(about, &member); }
  template <class T>
  void operator()(const setting& about, T& member) {
    if constexpr (describes_settings<T>) {
      setting_collector within;
      T::members(member, within);
      entries.push_back({.about = about, .access = config_within, .member = &member, .inner = std::move(within.entries)});
    } else if constexpr (is_setting_list<T>) {
      entries.push_back({about, access_to_setting<typename T::value_type>(), member.data(), member.size(), true});
    } else {
      add<T>(about, &member);
    }
  }

 private:
  template <class T>
  void add(const setting& about, void* member) {
    entries.push_back({about, access_to_setting<T>(), member});
  }
};

struct any_member {
  template <class T>
  operator T() const;  // NOLINT: members of any type
};
/// Members of an aggregate with base classes.
template <class Config, class... Members>
[[nodiscard]] consteval std::size_t count_members() {
  if constexpr (requires { Config{Members{}..., any_member{}}; }) return count_members<Config, Members..., any_member>();
  else return sizeof...(Members);
}

struct setting_counter {
  std::size_t& count;
  template <class Member>
  constexpr void operator()(const setting&, Member&) const {
    ++count;
  }
};
template <class Config>
inline Config described_example{};  // never read
template <class Config>
[[nodiscard]] consteval std::size_t count_described() {
  std::size_t count = 0;
  Config::members(described_example<Config>, setting_counter{count});
  return count;
}

/// A base class of the config, with at least N described members.
template <class Config, std::size_t N>
struct base_that_describes {
  template <class T>
  requires(!std::is_same_v<T, Config> && std::is_base_of_v<T, Config> && describes_settings<T> && count_described<T>() >= N)
  operator T() const;  // NOLINT: a base class of any type
};
/// Minimum of described members if all are; a first base class's count individually.
template <class Config, std::size_t N = 1>
[[nodiscard]] consteval std::size_t count_to_describe() {
  if constexpr (requires { Config{base_that_describes<Config, N>{}}; }) return count_to_describe<Config, N + 1>();
  else return count_members<Config>() + (N > 1 ? N - 2 : 0);
}

}  // namespace detail

/// The config must outlive the list.
template <class Config>
[[nodiscard]] std::vector<setting_entry> list_settings([[maybe_unused]] Config& c) {
  if constexpr (describes_settings<Config>) {
    static_assert(!std::is_aggregate_v<Config> || detail::count_described<Config>() >= detail::count_to_describe<Config>(),
                  "xtrain settings: members() must visit every member of the config; one is left out; see train/README.md");
    detail::setting_collector all;
    Config::members(c, all);
    return std::move(all.entries);
  } else {
    static_assert(std::is_empty_v<Config>, "xtrain settings: a config must describe its members, so that checkpoints have them; give it "
                                           "members(Self&, Visit&&); see train/README.md");
    return {};
  }
}

}  // namespace xtrain
