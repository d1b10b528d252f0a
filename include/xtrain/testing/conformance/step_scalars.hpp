// Conformance cases: scalars of good steps, skipped steps and overflows.
#pragma once

#include <cstddef>
#include <limits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

template <class T, class Suite>
void check_step_scalars(Suite& suite) {
  constexpr double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  using kernel::step_inputs, kernel::step_report, kernel::step_scalars, kernel::step_state;
  for (const double targets : {0.0, 7.0}) {
    case_memory mem;
    kernel::step_gradient_scale<host_memory> scale{};
    const auto inputs = mem.scalars<step_inputs>(0.5, 8.0);
    inputs.raw()->targets = targets;
    scale.inputs_1 = inputs;
    scale.state_1 = mem.scalars<step_state>(0.5, 8.0);
    scale.gradient_scale_1 = mem.numbers<double>(1);
    suite.template check_kernel<T>(scale, 0.0, 0.0);
  }
  struct sums {
    double loss, squares;
  };
  for (const bool scales : {false, true})
    for (const double max_norm : {0.0, 0.25})
      for (const auto [loss, squares] : {sums{3.5, 90.0}, sums{3.5, infinity}, sums{nan, 90.0}, sums{-infinity, nan}})
        for (const std::size_t statistics : {std::size_t{0}, std::size_t{3}, kernel::max_statistics})
          for (int variant = 0; variant < 5; ++variant) {  // known to the host; in device memory; without targets; at a limit of the loss scale, twice
            case_memory mem;
            kernel::update_step_scalars<host_memory> update{.learning_rate = 0.01, .targets = 5, .max_grad_norm = max_norm};
            update.rule = {.is_used = scales, .growth_window = 4, .hysteresis = 2, .min_scale = variant == 4 ? 64.0 : 1.0};
            const auto loss_1 = mem.fresh<double>(1), squares_1 = mem.fresh<double>(1);
            *loss_1.raw() = loss;
            *squares_1.raw() = squares;
            update.loss_1 = loss_1;
            update.squares_1 = squares_1;
            if (statistics > 0) update.statistics_s = mem.numbers<double>(statistics);
            if (variant > 0) {
              const auto inputs = mem.scalars<step_inputs>(0.5, 8.0);
              if (variant == 2) inputs.raw()->targets = 0;
              update.inputs_1 = inputs;
            }
            update.state_1 = mem.scalars<step_state>(2.0, 30.0);
            // the scale doubles or halves after this step
            if (variant >= 3) update.state_1.raw()->good_steps = 3, update.state_1.raw()->overflows_left = 1, update.state_1.raw()->loss_scale = 64;
            update.scalars_1 = mem.scalars<step_scalars>(0.5, 8.0);
            update.report_1 = mem.scalars<step_report>(0.5, 8.0);
            suite.template check_kernel<T>(update, 0.0, 0.0);
          }
}

}  // namespace xtrain::testing::detail
