// Loss scaling keeps gradients in the range of a narrow exponent.             [Micikevicius et al. 2018, section 3.2]
#pragma once

#include <cstddef>

#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>

namespace xtrain {

/// The scale halves when gradients overflow and doubles after enough steps without overflow, on the device, without the host: rule in
/// kernel::loss_scale_rule, state in kernel::step_state.
struct dynamic_loss_scale {
  struct config {
    double start = 65536.0;
    std::size_t growth_window = 1000;  ///< consecutive good steps before the scale doubles
    std::size_t hysteresis = 2;        ///< overflows before the scale halves; doubling resets the count
    double min_scale = 1.0;

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "start", .full_name = "initial_loss_scale", .earlier = "initial", .range = setting_range::positive,
             .help = "the first scale", .compared = false}, c.start);
      visit({.name = "growth_window", .full_name = "loss_scale_growth_window", .earlier = "window", .range = setting_range::positive, .unit = "steps",
             .help = "good steps before the scale doubles"}, c.growth_window);
      visit({.name = "hysteresis", .full_name = "loss_scale_hysteresis", .range = setting_range::positive,
             .help = "overflows before the scale halves"}, c.hysteresis);
      visit({.name = "min_scale", .full_name = "min_loss_scale", .earlier = "min", .range = setting_range::positive,
             .help = "the minimum scale"}, c.min_scale);
    }
  };

  /// throws config_error when a setting is out of range
  [[nodiscard]] static kernel::loss_scale_rule rule(const config& settings, bool is_used) {
    require<config_error>(settings.min_scale > 0.0 && settings.start >= settings.min_scale,
                          "loss scale: the initial scale must be at least the minimum, and the minimum above 0; initial ", settings.start, ", minimum ",
                          settings.min_scale);
    require<config_error>(settings.growth_window > 0 && settings.hysteresis > 0,
                          "loss scale: growth_window and hysteresis must be positive; given ", settings.growth_window, " and ",
                          settings.hysteresis);
    return {.is_used = is_used,
            .growth_window = static_cast<double>(settings.growth_window),
            .hysteresis = static_cast<double>(settings.hysteresis),
            .min_scale = settings.min_scale};
  }

  /// State of a checkpoint.
  struct memory {
    double scale = 0;
    std::size_t good = 0;
    std::size_t overflows_left = 0;
  };
  [[nodiscard]] static memory initial(const config& settings) { return {settings.start, 0, settings.hysteresis}; }
};

}  // namespace xtrain
