#pragma once

#include <cstddef>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/dynamic_code.hpp>
#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/ops/launch.hpp>

namespace xtrain::ops {

namespace detail {

/// throws shape_error unless scalars_1 has one element
template <class Kernel>
void require_step_scalars(const Kernel& step) {
  require<shape_error>(step.scalars_1.size() == 1, Kernel::name, ": scalars_1 must have 1 element; given ", step.scalars_1.size());
}

template <class Kernel>
void require_corrections(const Kernel& step) {
  require<shape_error>(step.correction_2.size() == 2, Kernel::name, ": correction_2 must have 2 elements; given ", step.correction_2.size());
}

}  // namespace detail

/// Corrections that adamw and adamw_8bit read.
template <class Device, class M>
void adam_corrections(execution<Device>& on, const kernel::adam_corrections<M>& step) {
  detail::require_step_scalars(step);
  detail::require_corrections(step);
  launch(on, step);
}

/// A step of AdamW: kernel::adamw.
template <class Device, class M, class P, class G, class W, class S>
void adamw(execution<Device>& on, const kernel::adamw<M, P, G, W, S>& step) {
  const std::size_t n = step.n;
  detail::require_step_scalars(step);
  detail::require_corrections(step);
  require<shape_error>(step.gradient_n.size() == n && step.parameter_n.size() == n && step.m_n.size() == n && step.v_n.size() == n &&
                           (step.master_n.empty() || step.master_n.size() == n),
                       "adamw: gradient, parameter, master, m and v must all have ", n, " elements; given ", step.gradient_n.size(), ", ",
                       step.parameter_n.size(), ", ", step.master_n.size(), ", ", step.m_n.size(), ", ", step.v_n.size());
  launch(on, step);
}

/// A step of SGD: kernel::sgd.
template <class Device, class M, class P, class G, class W, class S>
void sgd(execution<Device>& on, const kernel::sgd<M, P, G, W, S>& step) {
  const std::size_t n = step.n;
  detail::require_step_scalars(step);
  require<shape_error>(step.gradient_n.size() == n && step.parameter_n.size() == n &&
                           (step.master_n.empty() || step.master_n.size() == n) && (step.velocity_n.empty() || step.velocity_n.size() == n),
                       "sgd: gradient, parameter, master and velocity must all have ", n, " elements; given ", step.gradient_n.size(), ", ",
                       step.parameter_n.size(), ", ", step.master_n.size(), ", ", step.velocity_n.size());
  launch(on, step);
}

/// A step of Lion: kernel::lion.
template <class Device, class M, class P, class G, class W, class S>
void lion(execution<Device>& on, const kernel::lion<M, P, G, W, S>& step) {
  const std::size_t n = step.n;
  detail::require_step_scalars(step);
  require<shape_error>(step.gradient_n.size() == n && step.parameter_n.size() == n && step.m_n.size() == n &&
                           (step.master_n.empty() || step.master_n.size() == n),
                       "lion: gradient, parameter, master and m must all have ", n, " elements; given ", step.gradient_n.size(), ", ",
                       step.parameter_n.size(), ", ", step.master_n.size(), ", ", step.m_n.size());
  launch(on, step);
}

/// A step of AdamW with 8-bit moments: kernel::adamw_8bit.
template <class Device, class M, class P, class G, class W>
void adamw_8bit(execution<Device>& on, const kernel::adamw_8bit<M, P, G, W>& step) {
  const std::size_t n = step.n, blocks = dynamic_code::blocks(n);
  detail::require_step_scalars(step);
  detail::require_corrections(step);
  require<shape_error>(step.gradient_n.size() == n && step.parameter_n.size() == n && step.m_code_n.size() == n &&
                           step.v_code_n.size() == n && (step.master_n.empty() || step.master_n.size() == n),
                       "adamw_8bit: gradient, parameter, master, codes of m and codes of v must all have ", n, " elements; given ",
                       step.gradient_n.size(), ", ", step.parameter_n.size(), ", ", step.master_n.size(), ", ", step.m_code_n.size(), ", ",
                       step.v_code_n.size());
  require<shape_error>(step.m_scale_k.size() == blocks && step.v_scale_k.size() == blocks, "adamw_8bit: m_scale_k and v_scale_k must have ",
                       blocks, " elements; given ", step.m_scale_k.size(), " and ", step.v_scale_k.size());
  launch(on, step);
}

}  // namespace xtrain::ops
