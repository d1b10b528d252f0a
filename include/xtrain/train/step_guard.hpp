// Steps whose loss or gradients are not finite change no weights. With loss scaling it may be an overflow, which lowers the scale; otherwise it is a bad
// step, and a run ends after too many in a row. The device decides (kernel::update_step_scalars); this counts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/optim/loss_scale.hpp>
#include <xtrain/train/training_progress.hpp>

namespace xtrain::detail {

class step_guard {
 public:
  explicit step_guard(std::size_t max_bad_steps) : max_bad_steps_(max_bad_steps) {}

  static void count(training_progress& progress, const kernel::step_report& report) {
    if (report.is_skipped == 0) {
      ++progress.updates;
      progress.bad_in_a_row = 0;
    } else {
      ++progress.skipped;
      if (report.is_overflow == 0) ++progress.bad_in_a_row;
    }
    progress.loss_scale = {report.after.loss_scale, static_cast<std::size_t>(report.after.good_steps),
                           static_cast<std::size_t>(report.after.overflows_left)};
  }
  [[nodiscard]] static std::string overflow_text(double loss_scale) { return concat("gradients overflow at loss scale ", loss_scale); }

  /// throws non_finite_error after too many bad steps in a row; `reason`: what was not finite in the last
  void require_good_steps(const training_progress& progress, std::string_view reason) const {
    require<non_finite_error>(progress.bad_in_a_row < max_bad_steps_, "training: loss and gradients must be finite; ", progress.bad_in_a_row,
                              " steps in a row were not, the last is step ", progress.step, ": ", reason,
                              ". These steps have changed no weights; the last checkpoint is whole");
  }

 private:
  std::size_t max_bad_steps_;
};

}  // namespace xtrain::detail
