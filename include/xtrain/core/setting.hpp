// Description of a setting. A config describes its members once, for checkpoints, run descriptions and flags.
#pragma once

#include <cstdint>
#include <string_view>

namespace xtrain {

/// Range of a number; share: 0 to 1.
enum class setting_range : std::uint8_t { any, non_negative, positive, share, share_below_one };

/// NaN is in no range.
[[nodiscard]] constexpr bool is_in_range(setting_range range, double value) {
  switch (range) {
    case setting_range::non_negative: return value >= 0;
    case setting_range::positive: return value > 0;
    case setting_range::share: return value >= 0 && value <= 1;
    case setting_range::share_below_one: return value >= 0 && value < 1;
    default: return value == value;  // a number
  }
}

/// A config's member. Configs call visit(setting, member) for all members in order of declaration:
///
///   template <class Self, class Visit>
///   static constexpr void members(Self& c, Visit&& visit) {
///     visit({.name = "momentum", .range = setting_range::share_below_one, .help = "decay of the mean of gradients"}, c.momentum);
///   }
struct setting {
  std::string_view name{};       ///< of the member and in run descriptions
  /// In checkpoints and flags, among all configs; empty: `name`. Equal full names in a config are recorded as a list. A config as member: prefix of its full
  /// names; empty: `name` and an underscore.
  std::string_view full_name{};
  std::string_view earlier{};  ///< also read, from earlier run descriptions
  std::string_view part{};     ///< object of the run description that has it; a config of a part has no prefix
  setting_range range = setting_range::any;
  std::string_view unit{};
  std::string_view help{};
  bool compared = true;  ///< in checkpoints, and compared on resume; false: changes no result, or is recorded elsewhere
  bool is_flag = true;   ///< has a flag; false: set by the program
};

namespace detail {

struct any_setting_visitor {
  template <class Member>
  constexpr void operator()(const setting&, Member&) const {}
};

}  // namespace detail

/// Describes its members.
template <class Config>
concept describes_settings = requires(Config& c) { Config::members(c, detail::any_setting_visitor{}); };

}  // namespace xtrain
