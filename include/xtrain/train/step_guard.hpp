// The guard against bad steps. A step whose loss or gradients are not finite changes no weights: with loss scaling it may be an overflow,
// which lowers the scale; otherwise it is a bad step, and a run ends after too many in a row.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/optim/loss_scale.hpp>
#include <xtrain/train/training_progress.hpp>

namespace xtrain::detail {

/// The loss scale, and the counts of good, skipped and bad steps in a run's progress.
class step_guard {
 public:
  /// scales_loss: of the precision.
  ///   throws  config_error when a setting of the loss scale is out of range
  step_guard(const dynamic_loss_scale::config& settings, bool scales_loss, std::size_t max_bad_steps)
      : scale_(settings), scales_loss_(scales_loss), max_bad_steps_(max_bad_steps) {}

  [[nodiscard]] double loss_scale() const { return scales_loss_ ? scale_.scale() : 1.0; }
  [[nodiscard]] dynamic_loss_scale::memory save() const { return scale_.save(); }
  void restore(const dynamic_loss_scale::memory& saved) { scale_.restore(saved); }

  /// A step has changed weights.
  void count_good(training_progress& progress) {
    if (scales_loss_) scale_.fitted();
    ++progress.updates;
    progress.bad_in_a_row = 0;
  }
  /// A step is skipped. Returns whether it was an overflow of gradients, which loss scaling expects occasionally.
  [[nodiscard]] bool count_skipped(training_progress& progress, double loss) {
    const bool overflow = scales_loss_ && std::isfinite(loss) && !scale_.at_min_scale();
    if (overflow) scale_.overflowed();
    else ++progress.bad_in_a_row;
    ++progress.skipped;
    return overflow;
  }
  [[nodiscard]] static std::string overflow_text(double loss_scale) { return concat("gradients overflow at loss scale ", loss_scale); }

  /// throws non_finite_error after too many bad steps in a row; `reason`: what was not finite in the last
  void require_good_steps(const training_progress& progress, std::string_view reason) const {
    require<non_finite_error>(progress.bad_in_a_row < max_bad_steps_, "training: loss and gradients must be finite; ", progress.bad_in_a_row,
                              " steps in a row were not, the last is step ", progress.step + 1, ": ", reason,
                              ". The weights are as they were before; the last checkpoint is whole");
  }

 private:
  dynamic_loss_scale scale_;
  bool scales_loss_;
  std::size_t max_bad_steps_;
};

}  // namespace xtrain::detail
