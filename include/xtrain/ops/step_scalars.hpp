#pragma once

#include <type_traits>

#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/ops/launch.hpp>

namespace xtrain::ops {

/// sum_1 += Σ x, in double
template <class Device, class X, class M>
void sum(execution<Device>& on, device_span<X, M> x, device_span<double, M> sum_1) {
  launch(on, kernel::sum<M, std::remove_const_t<X>>{.n = x.size(), .x_n = x, .sum_1 = sum_1});
}

/// See kernel::update_step_scalars.
template <class Device, class M>
void update_step_scalars(execution<Device>& on, const kernel::update_step_scalars<M>& step) {
  require<shape_error>(step.loss_1.size() == 1 && step.squares_1.size() == 1 && step.state_1.size() == 1 && step.scalars_1.size() == 1 &&
                           step.report_1.size() == 1 && step.inputs_1.size() <= 1 && step.host_failure_1.size() <= 1 &&
                           step.statistics_s.size() <= kernel::max_statistics,
                       "update_step_scalars: every operand must have one element, and statistics at most ", kernel::max_statistics);
  launch(on, step);
}

/// gradient_scale_1 = loss_scale / targets
template <class Device, class M>
void step_gradient_scale(execution<Device>& on, const kernel::step_gradient_scale<M>& step) {
  require<shape_error>(step.inputs_1.size() == 1 && step.state_1.size() == 1 && step.gradient_scale_1.size() == 1,
                       "step_gradient_scale: every operand must have one element");
  launch(on, step);
}

}  // namespace xtrain::ops
