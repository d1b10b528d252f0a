#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/setting_values.hpp>

namespace xtrain {

namespace detail {

[[nodiscard]] inline json json_of(const setting_value& value, setting_type type) {
  switch (type) {
    case setting_type::flag: return value.flag;
    case setting_type::whole: return value.whole;
    case setting_type::integer: return value.integer;
    case setting_type::number: return value.number;
    case setting_type::named:
    case setting_type::text: return std::string(value.text);
    default: return nullptr;
  }
}

inline void write_settings(json_settings& to, const std::vector<setting_entry>& settings, std::string_view axis, written_settings which,
                           const std::string& before) {
  const auto is_written = [&](const setting_entry& one) { return which == written_settings::all || one.about.compared; };
  std::vector<std::string_view> lists;  // full names of several settings
  for (const setting_entry& one : settings) {
    if (!is_written(one) || one.type() == setting_type::other) continue;
    const std::string_view name = one.full_name();
    if (one.type() == setting_type::config || std::find(lists.begin(), lists.end(), name) != lists.end()) continue;
    json values = json::array();
    std::size_t sharing = 0;
    for (const setting_entry& other : settings) {
      if (other.full_name() != name || other.type() == setting_type::config || other.type() == setting_type::other || !is_written(other)) continue;
      ++sharing;
      for (std::size_t i = 0; i < other.values; ++i) values.push_back(json_of(other.get(i), other.type()));
    }
    if (sharing > 1) lists.push_back(name);
    std::string key = concat(before, name);
    if (to.object().contains(key)) key = concat(axis, "_", key);
    require<config_error>(!to.object().contains(key), axis, ": two settings are recorded as '", key, "'; give one of them another full_name");
    if (one.is_list || sharing > 1) to.set(key.c_str(), std::move(values));
    else to.set(key.c_str(), std::move(values[0]));
  }
  for (const setting_entry& one : settings) {  // after this config's settings, which get their full names
    if (one.type() != setting_type::config || !is_written(one)) continue;
    if (one.about.part.empty()) write_settings(to, one.inner, axis, which, concat(before, one.full_name(), one.about.full_name.empty() ? "_" : ""));
    else write_settings(to, one.inner, one.about.part, which, before);
  }
}

}  // namespace detail

XTRAIN_INLINE void write_settings(json_settings& to, const std::vector<setting_entry>& settings, std::string_view axis, written_settings which) {
  detail::write_settings(to, settings, axis, which, "");
}

XTRAIN_INLINE const char* text_of_range(setting_range range, bool is_whole) {
  switch (range) {
    case setting_range::non_negative: return is_whole ? "a non-negative integer" : "a non-negative number";
    case setting_range::positive: return is_whole ? "a positive integer" : "a positive number";
    case setting_range::share: return "a number from 0 to 1";
    case setting_range::share_below_one: return "a number from 0 to below 1";
    default: return is_whole ? "an integer" : "a number";
  }
}

namespace detail {

/// `given` is part of `whole`.
inline void read_setting(const setting_entry& to, std::size_t i, const json& given, const json& whole, const std::string& where) {
  const auto must_be = [&](bool holds, const auto&... what) {
    require<config_error>(holds, where, ".", to.about.name, ": must be ", what..., "; given ", whole.dump(-1, ' ', false, json::error_handler_t::replace));
  };
  setting_value value;
  switch (to.type()) {
    case setting_type::flag:
      must_be(given.is_boolean(), "true or false");
      value.flag = given.get<bool>();
      break;
    case setting_type::whole:
      must_be(given.is_number_unsigned() || (given.is_number_integer() && given.get<std::int64_t>() >= 0), "a non-negative integer");
      value.whole = given.get<std::uint64_t>();
      must_be(is_in_range(to.about.range, static_cast<double>(value.whole)), text_of_range(to.about.range, true));
      break;
    case setting_type::integer:
      must_be(given.is_number_integer(), "an integer");
      must_be(!given.is_number_unsigned() || given.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()),
              "an integer of at most 64 bits with a sign");
      value.integer = given.get<std::int64_t>();
      must_be(is_in_range(to.about.range, static_cast<double>(value.integer)), text_of_range(to.about.range, true));
      break;
    case setting_type::number:
      must_be(given.is_number(), to.is_list ? concat("a list of ", to.values, " numbers") : std::string("a number"));
      value.number = given.get<double>();
      must_be(is_in_range(to.about.range, value.number), text_of_range(to.about.range, false));
      break;
    case setting_type::named:
      must_be(given.is_string(), "a name");
      value.text = given.get_ref<const std::string&>();
      break;
    case setting_type::text:
      must_be(given.is_string(), "a string");
      value.text = given.get_ref<const std::string&>();
      break;
    default: fail<config_error>(where, ".", to.about.name, ": is a setting of a C++ program; it cannot be read");
  }
  if (to.set(value, i)) return;
  require<config_error>(to.type() == setting_type::named, where, ".", to.about.name, ": is too large; given ", whole.dump());
  std::string names;
  for (std::size_t k = 0; !to.access.name(k).empty(); ++k) names += concat(k == 0 ? "" : ", ", to.access.name(k));
  fail<config_error>(where, ".", to.about.name, ": must be one of ", names, "; given '", value.text, "'");
}

}  // namespace detail

XTRAIN_INLINE void read_settings(const std::vector<setting_entry>& settings, const json& given, const std::string& where) {
  require<config_error>(given.is_object(), where, ": must be an object; given ", given.dump(-1, ' ', false, json::error_handler_t::replace));
  std::string names;
  std::size_t found = 0;
  for (const setting_entry& one : settings) {
    if (one.type() == setting_type::other) continue;
    const std::string name(one.about.name), earlier(one.about.earlier);
    names += concat(names.empty() ? "" : ", ", name);
    auto at = given.find(name);
    if (!earlier.empty() && given.contains(earlier)) {
      require<config_error>(at == given.end(), where, ".", earlier, ": is an earlier name of ", name, ", which is given, too");
      at = given.find(earlier);
    }
    if (at == given.end()) continue;
    ++found;
    if (one.type() == setting_type::config) {
      require<config_error>(at->is_object(), where, ".", name, ": must be an object; given ", at->dump(-1, ' ', false, json::error_handler_t::replace));
      read_settings(one.inner, *at, concat(where, ".", name));
    } else if (one.is_list) {
      require<config_error>(at->is_array() && at->size() == one.values, where, ".", name, ": must be a list of ", one.values, " numbers; given ",
                            at->dump(-1, ' ', false, json::error_handler_t::replace));
      for (std::size_t i = 0; i < one.values; ++i) detail::read_setting(one, i, at->at(i), *at, where);
    } else {
      detail::read_setting(one, 0, *at, *at, where);
    }
  }
  if (found == given.size()) return;
  for (const auto& item : given.items()) {
    const std::string& name = item.key();  // clang 14 captures no structured bindings
    const bool known = std::any_of(settings.begin(), settings.end(), [&](const setting_entry& one) {
      return one.type() != setting_type::other && (name == one.about.name || (!one.about.earlier.empty() && name == one.about.earlier));
    });
    require<config_error>(known, where, ".", name, ": there is no such setting; there are ", names.empty() ? "none" : names);
  }
}

XTRAIN_INLINE std::vector<setting_entry> settings_of_part(const std::vector<setting_entry>& settings, std::string_view part) {
  std::vector<setting_entry> some;
  for (const setting_entry& one : settings)
    if (one.about.part == part) some.push_back(one);
  return some;
}

}  // namespace xtrain
