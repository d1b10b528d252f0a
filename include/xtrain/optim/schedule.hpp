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
enum class schedule : std::uint8_t { constant, linear, cosine };

[[nodiscard]] constexpr std::string_view name_of(schedule shape) {
  return shape == schedule::constant ? "constant" : shape == schedule::linear ? "linear" : "cosine";
}

/// throws config_error when `name` is not a schedule
[[nodiscard]] inline schedule schedule_named(std::string_view name) {
  for (const schedule known : {schedule::constant, schedule::linear, schedule::cosine})
    if (name == name_of(known)) return known;
  fail<config_error>("schedule: must be constant, linear or cosine; given '", name, "'");
}

/// The learning rate of every step of a run.
class learning_rate_schedule {
 public:
  /// Rises linearly to `peak` in `warmup` steps (the first step is peak / warmup), then follows `shape` down to
  /// `floor` · peak (the minimum learning rate) at the last of `total` steps.      [cosine: Loshchilov & Hutter 2017, eq. 5]
  ///   throws  config_error when an argument is out of range
  learning_rate_schedule(schedule shape, double peak, std::size_t warmup, std::size_t total, double floor)
      : shape_(shape), peak_(peak), floor_(floor), warmup_(warmup), total_(std::max<std::size_t>(total, 1)) {
    require<config_error>(std::isfinite(peak) && peak >= 0.0, "learning_rate: must be a number that is not negative; given ", peak);
    require<config_error>(floor >= 0.0 && floor <= 1.0, "schedule floor: must be a share of the learning rate in [0, 1]; given ", floor);
  }

  /// `step` counts from 0.
  [[nodiscard]] double at(std::size_t step) const {
    if (step < warmup_) return peak_ * static_cast<double>(step + 1) / static_cast<double>(warmup_);
    if (shape_ == schedule::constant) return peak_;
    // decay starts at the end of the warmup and ends at the last step
    const double way = static_cast<double>(total_ > warmup_ + 1 ? total_ - warmup_ - 1 : 1);
    const double gone = std::min(1.0, static_cast<double>(step - warmup_) / way);
    const double left = shape_ == schedule::linear ? 1.0 - gone : 0.5 * (1.0 + std::cos(3.14159265358979323846 * gone));
    return peak_ * (floor_ + (1.0 - floor_) * left);
  }

 private:
  schedule shape_;
  double peak_, floor_;
  std::size_t warmup_, total_;
};

}  // namespace xtrain
