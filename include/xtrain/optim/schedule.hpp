// Learning rate schedules.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/core/error.hpp>

namespace xtrain {

/// The shape of the lr schedule after the warmup.
enum class lr_schedule_kind : std::uint8_t { constant, linear, cosine };

[[nodiscard]] constexpr std::string_view name_of(lr_schedule_kind shape) {
  return shape == lr_schedule_kind::constant ? "constant" : shape == lr_schedule_kind::linear ? "linear" : "cosine";
}

/// throws config_error when `name` is not a schedule
[[nodiscard]] inline lr_schedule_kind lr_schedule_named(std::string_view name) {
  for (const lr_schedule_kind known : {lr_schedule_kind::constant, lr_schedule_kind::linear, lr_schedule_kind::cosine})
    if (name == name_of(known)) return known;
  fail<config_error>("lr_schedule: must be constant, linear or cosine; given '", name, "'");
}

/// The learning rate of every step of a run.
class learning_rate_schedule {
 public:
  /// Rises linearly to `peak` in `warmup` steps (the first step is peak / warmup), then follows `shape` down to
  /// `min_lr_ratio` · peak at the last of `total` steps.      [cosine: Loshchilov & Hutter 2017, eq. 5]
  ///   throws  config_error when an argument is out of range
  learning_rate_schedule(lr_schedule_kind shape, double peak, std::size_t warmup, std::size_t total, double min_lr_ratio)
      : shape_(shape), peak_(peak), min_lr_ratio_(min_lr_ratio), warmup_(warmup), total_(std::max<std::size_t>(total, 1)) {
    require<config_error>(std::isfinite(peak) && peak >= 0.0, "learning_rate: must be a number that is not negative; given ", peak);
    require<config_error>(min_lr_ratio >= 0.0 && min_lr_ratio <= 1.0, "min_lr_ratio: must be in [0, 1]; given ", min_lr_ratio);
  }

  /// `step` counts from 0.
  [[nodiscard]] double at(std::size_t step) const {
    if (step < warmup_) return peak_ * static_cast<double>(step + 1) / static_cast<double>(warmup_);
    if (shape_ == lr_schedule_kind::constant) return peak_;
    // decay starts at the end of the warmup and ends at the last step
    const double way = static_cast<double>(total_ > warmup_ + 1 ? total_ - warmup_ - 1 : 1);
    const double gone = std::min(1.0, static_cast<double>(step - warmup_) / way);
    const double left = shape_ == lr_schedule_kind::linear ? 1.0 - gone : 0.5 * (1.0 + std::cos(3.14159265358979323846 * gone));
    return peak_ * (min_lr_ratio_ + (1.0 - min_lr_ratio_) * left);
  }

 private:
  lr_schedule_kind shape_;
  double peak_, min_lr_ratio_;
  std::size_t warmup_, total_;
};

}  // namespace xtrain
