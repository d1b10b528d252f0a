#pragma once

#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/ops/launch.hpp>

namespace xtrain::ops {

/// One step of AdamW over flat memory; kernel::adamw has the formula and describes each operand.
///   throws  shape_error unless all operands have the same number of elements
template <class Device, class M, class P, class G, class W, class S>
void adamw(execution<Device>& on, const kernel::adamw<M, P, G, W, S>& step) {
  const std::size_t n = step.n;
  require<shape_error>(step.gradient_n.size() == n && step.parameter_n.size() == n && step.m_n.size() == n && step.v_n.size() == n &&
                           (step.master_n.empty() || step.master_n.size() == n),
                       "adamw: gradient, parameter, master, m and v must all have ", n, " elements; given ", step.gradient_n.size(), ", ",
                       step.parameter_n.size(), ", ", step.master_n.size(), ", ", step.m_n.size(), ", ", step.v_n.size());
  launch(on, step);
}

/// One step of SGD over flat memory; kernel::sgd has the formula.
template <class Device, class M, class P, class G, class W, class S>
void sgd(execution<Device>& on, const kernel::sgd<M, P, G, W, S>& step) {
  const std::size_t n = step.n;
  require<shape_error>(step.gradient_n.size() == n && step.parameter_n.size() == n &&
                           (step.master_n.empty() || step.master_n.size() == n) && (step.velocity_n.empty() || step.velocity_n.size() == n),
                       "sgd: gradient, parameter, master and velocity must all have ", n, " elements; given ", step.gradient_n.size(), ", ",
                       step.parameter_n.size(), ", ", step.master_n.size(), ", ", step.velocity_n.size());
  launch(on, step);
}

}  // namespace xtrain::ops
