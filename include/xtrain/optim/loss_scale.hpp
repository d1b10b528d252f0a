// Keeps gradients in the range of a narrow exponent by scaling the loss.             [Micikevicius et al. 2018, section 3.2]
#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/core/error.hpp>

namespace xtrain {

/// The scale halves when gradients overflow and doubles after enough steps without overflow.
class dynamic_loss_scale {
 public:
  struct config {
    double start = 65536.0;
    std::size_t growth_window = 1000;  ///< consecutive good steps before the scale doubles
    std::size_t hysteresis = 2;        ///< overflows before the scale halves; doubling resets the count
    double min_scale = 1.0;            ///< the minimum scale
  };

  /// throws config_error when a setting is out of range
  explicit dynamic_loss_scale(const config& settings) : settings_(settings), scale_(settings.start), overflows_left_(settings.hysteresis) {
    require<config_error>(settings.min_scale > 0.0 && settings.start >= settings.min_scale,
                          "loss scale: the initial scale must be at least the minimum, and the minimum above 0; initial ", settings.start, ", minimum ",
                          settings.min_scale);
    require<config_error>(settings.growth_window > 0 && settings.hysteresis > 0,
                          "loss scale: growth_window and hysteresis must be positive; given ", settings.growth_window, " and ",
                          settings.hysteresis);
  }

  [[nodiscard]] double scale() const { return scale_; }
  [[nodiscard]] bool at_min_scale() const { return scale_ <= settings_.min_scale; }

  void fitted() {
    if (++good_ < settings_.growth_window) return;
    good_ = 0;
    overflows_left_ = settings_.hysteresis;
    scale_ *= 2.0;
  }
  void overflowed() {
    good_ = 0;
    if (overflows_left_ > 0) --overflows_left_;
    if (overflows_left_ == 0) scale_ = std::max(scale_ / 2.0, settings_.min_scale);
  }

  /// The state that a checkpoint must contain.
  struct memory {
    double scale = 0;
    std::size_t good = 0;
    std::size_t overflows_left = 0;
  };
  [[nodiscard]] memory save() const { return {scale_, good_, overflows_left_}; }
  void restore(const memory& saved) {
    scale_ = saved.scale;
    good_ = saved.good;
    overflows_left_ = saved.overflows_left;
  }

 private:
  config settings_;
  double scale_;
  std::size_t good_ = 0;
  std::size_t overflows_left_;
};

}  // namespace xtrain
