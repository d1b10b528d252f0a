// The description of a setting. A config describes its members once; checkpoints, run descriptions and flags of programs follow from that.
#pragma once

#include <cstdint>
#include <string_view>

namespace xtrain {

/// Values that a number may have. share: from 0 to 1.
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

/// One member of a config. A config calls visit(setting, member) for every member, in the order of their declaration:
///   template <class Self, class Visit>
///   static constexpr void members(Self& c, Visit&& visit) {
///     visit({.name = "momentum", .range = setting_range::share_below_one, .help = "decay of the mean of gradients"}, c.momentum);
///   }
struct setting {
  std::string_view name{};       ///< of the member, and in a run description
  /// In checkpoints and as a flag, next to settings of other configs; empty: `name`. Settings of one config with the same full name are recorded as a
  /// list. Of a member that is a config itself: what comes before the full names of its settings; empty: `name` and an underscore.
  std::string_view full_name{};
  std::string_view earlier{};  ///< a name in run descriptions of earlier versions, which is read, too
  std::string_view part{};     ///< of the settings of a run: the object of a run description that has it. A config of a part adds nothing to full names
  setting_range range = setting_range::any;
  std::string_view unit{};
  std::string_view help{};
  bool compared = true;  ///< recorded in checkpoints, and compared when a run is resumed; false: it changes no result, or a checkpoint has it elsewhere
  bool is_flag = true;   ///< programs have a flag for it, where they have flags of the config; false: the program sets it itself
};

namespace detail {

struct any_setting_visitor {
  template <class Member>
  constexpr void operator()(const setting&, Member&) const {}
};

}  // namespace detail

/// A config that describes its members.
template <class Config>
concept describes_settings = requires(Config& c) { Config::members(c, detail::any_setting_visitor{}); };

}  // namespace xtrain
