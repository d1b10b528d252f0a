// Optimizer steps in fp32. Scalars are read from device memory: the host does not know them yet.
#pragma once

#include <cmath>
#include <cstddef>

#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/device/npu/kernels/composed.hpp>

namespace xtrain::npu_kernels {

/// Places of the members of step_scalars.
namespace scalar_place {
inline constexpr std::size_t learning_rate = 0, gradient_scale = 1, update = 2, applies = 3;
}

/// factor · a number in device memory: multiplied in double, rounded to fp32.
[[nodiscard]] inline npu_view scaled_number(npu_sequence& s, const npu_view& number_1, double factor) {
  const npu_view scaled = s.fresh(npu_type::fp64, {1}), rounded = s.fresh(npu_type::fp32, {1});
  s.run(npu_op::muls, number_1, npu_scalar{factor, npu_type::fp64}, scaled);
  s.run(npu_op::cast, scaled, npu_type::fp32, rounded);
  return rounded;
}
[[nodiscard]] inline npu_view rounded_number(npu_sequence& s, const npu_view& number_1) {
  const npu_view rounded = s.fresh(npu_type::fp32, {1});
  s.run(npu_op::cast, number_1, npu_type::fp32, rounded);
  return rounded;
}

/// What the optimizers' formulas have in common, without element types.
struct step_task {
  double learning_rate_factor = 1, weight_decay = 0;
  npu_view learning_rate_1{}, gradient_scale_1{}, applies_1{}, gradient_n{}, master_n{}, parameter_n{};  ///< master_n without elements: not given

  /// Of some elements.
  [[nodiscard]] step_task part(std::size_t first, std::size_t count) const {
    step_task some = *this;
    for (npu_view* const all : {&some.gradient_n, &some.master_n, &some.parameter_n})
      if (all->elements() != 0) *all = all->slice(0, first, count);
    return some;
  }
};
/// Copies of a part's elements that a step has at the same time, workspaces included.
inline constexpr std::size_t copies_of_step = 8;
template <class Kernel>
[[nodiscard]] step_task step_task_of(const Kernel& k) {
  return {.learning_rate_factor = k.learning_rate_factor,
          .weight_decay = k.weight_decay,
          .learning_rate_1 = number_of(k.scalars_1, scalar_place::learning_rate),
          .gradient_scale_1 = number_of(k.scalars_1, scalar_place::gradient_scale),
          .applies_1 = number_of(k.scalars_1, scalar_place::applies),
          .gradient_n = view_of(k.gradient_n, {k.n}),
          .master_n = view_of(k.master_n, {k.master_n.size()}),
          .parameter_n = view_of(k.parameter_n, {k.n})};
}

/// A step of an optimizer: the scaled gradient, the decayed weights, and results where the step applies.
class optimizer_step {
 public:
  optimizer_step(npu_sequence& s, const step_task& task) : s_(&s), task_(&task), applies_1_(s.fresh(npu_type::boolean, {1})) {
    s.run(npu_op::not_equal, rounded_number(s, task.applies_1), npu_scalar{0}, applies_1_);
  }
  [[nodiscard]] npu_view scaled_gradient() const {
    const npu_view g_n = wide_copy(*s_, task_->gradient_n);
    s_->run(npu_op::inplace_mul, g_n, rounded_number(*s_, task_->gradient_scale_1));
    return g_n;
  }
  /// A copy of the weights after decay.
  [[nodiscard]] npu_view decayed_weights() const {
    const npu_view w_n = wide_copy(*s_, weights());
    if (task_->weight_decay == 0.0) return w_n;
    const npu_view rate_1 = scaled_number(*s_, task_->learning_rate_1, task_->learning_rate_factor * task_->weight_decay);
    s_->run(npu_op::inplace_addcmul, w_n, weights(), rate_1, npu_scalar{-1});
    return w_n;
  }
  [[nodiscard]] npu_view rate() const { return scaled_number(*s_, task_->learning_rate_1, task_->learning_rate_factor); }
  /// state = value, rounded, if the step applies.
  void set(const npu_view& state_n, const npu_view& value_n) const {
    const npu_sequence::scope here(*s_);
    npu_view rounded_n = value_n;
    if (state_n.type != npu_type::fp32) {
      rounded_n = s_->fresh_like(state_n, state_n.type);
      store(*s_, value_n, rounded_n);
    }
    const npu_view chosen_n = s_->fresh_like(state_n, state_n.type);
    s_->run(npu_op::where, applies_1_, rounded_n, state_n, chosen_n);
    store(*s_, chosen_n, state_n);
  }
  void set_weights(const npu_view& w_n) const {
    if (task_->master_n.elements() != 0) set(task_->master_n, w_n);
    set(task_->parameter_n, w_n);
  }

 private:
  [[nodiscard]] const npu_view& weights() const { return task_->master_n.elements() != 0 ? task_->master_n : task_->parameter_n; }
  npu_sequence* s_;
  const step_task* task_;
  npu_view applies_1_;
};

/// m = beta · m + (1 − beta) · g, a copy; of squares: v = beta · v + (1 − beta) · g · g
[[nodiscard]] inline npu_view moment(npu_sequence& s, const npu_view& state_n, const npu_view& g_n, double beta, bool of_squares) {
  const npu_view m_n = wide_copy(s, state_n);
  s.run(npu_op::inplace_muls, m_n, npu_scalar{beta});
  if (of_squares) s.run(npu_op::inplace_addcmul, m_n, g_n, g_n, npu_scalar{1.0 - beta});
  else s.run(npu_op::inplace_add, m_n, g_n, npu_scalar{1.0 - beta});
  return m_n;
}

inline void adamw_step(npu_sequence& s, const step_task& task, double beta1, double beta2, double epsilon, const npu_view& correction_2, const npu_view& m_n,
                       const npu_view& v_n) {
  const optimizer_step step(s, task);
  const npu_view g_n = step.scaled_gradient(), m = moment(s, m_n, g_n, beta1, false), v = moment(s, v_n, g_n, beta2, true), w_n = step.decayed_weights();
  step.set(m_n, m);
  step.set(v_n, v);
  const auto corrected = [&](const npu_view& x, std::size_t which) {
    s.run(npu_op::inplace_mul, x, rounded_number(s, correction_2.slice(0, which, 1)));
  };
  corrected(m, 0);
  corrected(v, 1);
  s.run(npu_op::inplace_sqrt, v);
  add_number(s, v, epsilon);
  s.run(npu_op::inplace_mul, m, step.rate());
  s.run(npu_op::inplace_addcdiv, w_n, m, v, npu_scalar{-1});
  step.set_weights(w_n);
}

inline void sgd_step(npu_sequence& s, const step_task& task, double momentum, const npu_view* velocity_n) {
  const optimizer_step step(s, task);
  npu_view change_n = step.scaled_gradient();
  const npu_view w_n = step.decayed_weights();
  if (velocity_n != nullptr) {
    const npu_view velocity = wide_copy(s, *velocity_n);
    s.run(npu_op::inplace_muls, velocity, npu_scalar{momentum});
    add_to(s, change_n, velocity);
    change_n = velocity;
    step.set(*velocity_n, velocity);
  }
  s.run(npu_op::inplace_addcmul, w_n, change_n, step.rate(), npu_scalar{-1});
  step.set_weights(w_n);
}

inline void lion_step(npu_sequence& s, const step_task& task, double beta1, double beta2, const npu_view& m_n) {
  const optimizer_step step(s, task);
  const npu_view g_n = step.scaled_gradient(), u_n = moment(s, m_n, g_n, beta1, false), w_n = step.decayed_weights();
  const auto those = [&](const auto& op) {
    const npu_view which = s.fresh_like(u_n, npu_type::boolean), number = s.fresh_like(u_n);
    s.run(op, u_n, npu_scalar{0}, which);
    s.run(npu_op::cast, which, npu_type::fp32, number);
    return number;
  };
  const npu_view sign_n = those(npu_op::greater_than);
  s.run(npu_op::inplace_sub, sign_n, those(npu_op::less_than), npu_scalar{1});
  s.run(npu_op::inplace_addcmul, w_n, sign_n, step.rate(), npu_scalar{-1});
  step.set(m_n, moment(s, m_n, g_n, beta2, false));
  step.set_weights(w_n);
}

/// CANN has no stochastic rounding, and no operator that draws our random numbers.
template <class Memory, class P, class G, class M, class S>
[[nodiscard]] constexpr bool must_run_on_host(const kernel::adamw<Memory, P, G, M, S>& k) {
  return k.stochastic;
}
template <class Memory, class P, class G, class M, class S>
[[nodiscard]] constexpr bool must_run_on_host(const kernel::sgd<Memory, P, G, M, S>& k) {
  return k.stochastic;
}
template <class Memory, class P, class G, class M, class S>
[[nodiscard]] constexpr bool must_run_on_host(const kernel::lion<Memory, P, G, M, S>& k) {
  return k.stochastic;
}

template <class P, class G, class M, class S>
inline constexpr bool are_numbers = is_number<P>&& is_number<G>&& is_number<M>&& is_number<S>;

template <class Memory, class P, class G, class M, class S>
requires are_numbers<P, G, M, S>
void compose(npu_sequence& s, const kernel::adamw<Memory, P, G, M, S>& k) {
  kernel::check_arity<15>(k);
  for_each_part_of(s, k.n, copies_of_step, [&](std::size_t first, std::size_t count) {
    adamw_step(s, step_task_of(k).part(first, count), k.beta1, k.beta2, k.epsilon, view_of(k.correction_2, {2}),
               view_of(k.m_n, {k.n}).slice(0, first, count), view_of(k.v_n, {k.n}).slice(0, first, count));
  });
}
template <class Memory, class P, class G, class M, class S>
requires are_numbers<P, G, M, S>
void compose(npu_sequence& s, const kernel::sgd<Memory, P, G, M, S>& k) {
  kernel::check_arity<11>(k);
  for_each_part_of(s, k.n, copies_of_step, [&](std::size_t first, std::size_t count) {
    const npu_view velocity_n = view_of(k.velocity_n, {k.n}).slice(0, first, count);
    sgd_step(s, step_task_of(k).part(first, count), k.momentum, k.velocity_n.empty() ? nullptr : &velocity_n);
  });
}
template <class Memory, class P, class G, class M, class S>
requires are_numbers<P, G, M, S>
void compose(npu_sequence& s, const kernel::lion<Memory, P, G, M, S>& k) {
  kernel::check_arity<12>(k);
  for_each_part_of(s, k.n, copies_of_step, [&](std::size_t first, std::size_t count) {
    lion_step(s, step_task_of(k).part(first, count), k.beta1, k.beta2, view_of(k.m_n, {k.n}).slice(0, first, count));
  });
}

}  // namespace xtrain::npu_kernels
