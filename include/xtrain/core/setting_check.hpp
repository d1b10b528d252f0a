#pragma once

#include <cmath>
#include <concepts>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>

namespace xtrain {

namespace detail {

[[nodiscard]] inline bool holds_finite(setting_range range, double value) {
  return is_in_range(range, value) && (range != setting_range::non_negative || std::isfinite(value));
}
[[nodiscard]] constexpr const char* range_name(setting_range range, double value) {
  if (is_in_range(range, value)) return "finite";
  switch (range) {
    case setting_range::non_negative: return "non-negative";
    case setting_range::positive: return "positive";
    case setting_range::share: return "in [0, 1]";
    case setting_range::share_below_one: return "in [0, 1)";
    default: return "a number";
  }
}
/// throws config_error if the value is out of range
inline void require_in_range(std::string_view owner, const setting& about, double value) {
  require<config_error>(holds_finite(about.range, value), owner, ": ", about.name, " must be ", range_name(about.range, value), "; given ", value);
}

struct range_check {
  std::string_view owner;

  void operator()(const setting& about, const double& value) const { require_in_range(owner, about, value); }
  template <class Member>
  void operator()(const setting& about, const Member& member) const {
    if constexpr (describes_settings<const Member>) {
      const std::string within = std::string(owner) + ": " + std::string(about.name);
      Member::members(member, range_check{within});
    } else if constexpr (std::floating_point<Member> || (std::integral<Member> && !std::same_as<Member, bool>)) {
      require_in_range(owner, about, static_cast<double>(member));
    }
  }
};

struct own_range_check {
  template <class Member>
  void operator()(const setting& about, const Member& member) const {
    if constexpr (std::floating_point<Member> || (std::integral<Member> && !std::same_as<Member, bool>)) {
      const double value = static_cast<double>(member);
      require<config_error>(holds_finite(about.range, value), about.full_name.empty() ? about.name : about.full_name, ": must be ",
                            range_name(about.range, value), "; given ", value);
    }
  }
};

}  // namespace detail

/// Checks all numbers of a config and its nested configs.
///   owner   begins the message: "adamw: beta1 must be in [0, 1); given 1"
///   throws  config_error; also for infinity where it must be non-negative
template <class Config>
const Config& require_ranges(std::string_view owner, const Config& c) {
  Config::members(c, detail::range_check{owner});
  return c;
}
/// The same without nested configs, by full names: "warmup_ratio: must be in [0, 1]; given 2".
template <class Config>
void require_own_ranges(const Config& c) {
  Config::members(c, detail::own_range_check{});
}

}  // namespace xtrain
