#pragma once

#include <cmath>
#include <concepts>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>

namespace xtrain {

namespace detail {

/// throws config_error if the value is out of range
inline void require_in_range(std::string_view owner, const setting& about, double value) {
  const bool holds = is_in_range(about.range, value) && (about.range != setting_range::non_negative || std::isfinite(value));
  const char* const what = about.range == setting_range::non_negative      ? "non-negative"
                           : about.range == setting_range::positive        ? "positive"
                           : about.range == setting_range::share           ? "in [0, 1]"
                           : about.range == setting_range::share_below_one ? "in [0, 1)"
                                                                           : "a number";
  require<config_error>(holds, owner, ": ", about.name, " must be ", what, "; given ", value);
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

}  // namespace detail

/// Checks all numbers of a config and its nested configs.
///   owner   begins the message: "adamw: beta1 must be in [0, 1); given 1"
///   throws  config_error; also for infinity where it must be non-negative
template <class Config>
const Config& require_ranges(std::string_view owner, const Config& c) {
  Config::members(c, detail::range_check{owner});
  return c;
}

}  // namespace xtrain
