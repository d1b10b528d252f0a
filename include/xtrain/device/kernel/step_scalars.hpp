// A step's scalars on the device (loss, gradient norm, clipping, loss scale, skipping): the host queues a step before it knows them.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/core/random.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// What the host knows before a step, in device memory: replayed steps queue equal work.
struct step_inputs {
  double learning_rate = 0;
  double targets = 1;  ///< of all micro-batches and ranks: denominator of the mean loss
  double number = 0;   ///< of the step: added to `step` of random numbers
};

/// For optimizer kernels; written by update_step_scalars.
struct step_scalars {
  double learning_rate = 0;
  double gradient_scale = 1;  ///< factor on gradients: clipping / loss scale
  double update = 1;          ///< number of this update, from 1: for bias corrections
  double applies = 1;         ///< 0: skipped; weights and optimizer state are unchanged
  double number = 0;          ///< of the step, if in step_inputs: added to `step` of random numbers
};

/// A kernel's random numbers: its settings' step plus the number in device memory, if any. On host memory.
template <class Kernel>
[[nodiscard]] constexpr random_site random_of(const Kernel& kernel) {
  random_site at = kernel.random;
  const auto add = [&](const auto& scalars_1) {
    if (!scalars_1.empty()) at.step += static_cast<std::uint32_t>(scalars_1.raw()->number);
  };
  if constexpr (requires { kernel.inputs_1; }) add(kernel.inputs_1);
  else add(kernel.scalars_1);
  return at;
}

/// Device state between steps.
struct step_state {
  double loss_scale = 1;
  double good_steps = 0;      ///< consecutive, without overflow at this scale
  double overflows_left = 0;  ///< until the scale halves
  double updates = 0;         ///< steps that changed weights
};

/// Numbers besides the loss that an objective may report.
inline constexpr std::size_t max_statistics = 4;

/// What the host learns of a step later.
struct step_report {
  double loss = 0;           ///< mean over targets
  double gradient_norm = 0;  ///< before clipping, without the loss scale
  double loss_scale = 1;     ///< of this step
  double is_skipped = 0;     ///< 1: loss or gradient norm was not finite
  double is_overflow = 0;    ///< 1: skipped, and the loss scale may still be lowered
  std::array<double, max_statistics> statistics{};  ///< of the objective, mean over losses
  step_state after{};
};

/// Dynamic loss scaling: halves on overflow, doubles after enough good steps.
///                                                                             [Micikevicius et al. 2018, section 3.2]
struct loss_scale_rule {
  bool is_used = false;
  double growth_window = 1000;  ///< good steps before doubling
  double hysteresis = 2;        ///< overflows before halving; doubling resets the count
  double min_scale = 1;

  friend bool operator==(const loss_scale_rule&, const loss_scale_rule&) = default;
  constexpr void good_step(step_state& state) const {
    if (!is_used) return;
    state.good_steps += 1;
    if (state.good_steps < growth_window) return;
    state.good_steps = 0;
    state.overflows_left = hysteresis;
    state.loss_scale *= 2;
  }
  constexpr void overflow(step_state& state) const {
    state.good_steps = 0;
    if (state.overflows_left > 0) state.overflows_left -= 1;
    if (state.overflows_left == 0) state.loss_scale = state.loss_scale / 2 > min_scale ? state.loss_scale / 2 : min_scale;
  }
};

/// sum_1 += Σ x, in double, in an order that depends on n alone
template <class Memory, class T>
struct sum {
  static constexpr std::string_view name = "sum";
  template <class M>
  using on = sum<M, T>;

  std::size_t n = 0;
  read<T, Memory> x_n{};
  updated<double, Memory> sum_1{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.x_n, s.sum_1);
  }
  [[nodiscard]] constexpr double operations() const { return static_cast<double>(n); }
};

/// gradient_scale_1 = loss_scale / targets, or 0 without targets: factor on each loss's gradient
template <class Memory>
struct step_gradient_scale {
  static constexpr std::string_view name = "step_gradient_scale";
  template <class M>
  using on = step_gradient_scale<M>;

  read<step_inputs, Memory> inputs_1{};
  read<step_state, Memory> state_1{};
  written<double, Memory> gradient_scale_1{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.inputs_1, s.state_1, s.gradient_scale_1);
  }
  [[nodiscard]] constexpr double operations() const { return 0.0; }

  /// For devices that run it on one thread.
  [[nodiscard]] static constexpr double compute(const step_inputs& inputs, const step_state& state) {
    return (inputs.targets > 0 ? 1.0 / inputs.targets : 0.0) * state.loss_scale;
  }
};

/// An optimizer step's scalars, from sums:
///   loss = loss_sum / targets, or 0 without targets,   norm = sqrt(squares) / loss_scale
///   clip = min(1, max_grad_norm / (norm + 1e-6)), or 1 if max_grad_norm is 0,   gradient_scale = clip / loss_scale
/// A step with non-finite loss or norm, or with failed messages, does not apply; with finite loss and a scale above the minimum, the former is an overflow.
///   loss_1, squares_1   read      Σ of losses; Σ of squared gradients of loss · loss scale
///   statistics_s        read      Σ of other numbers over the same losses, at most max_statistics; may be empty
///   inputs_1            read      learning rate, targets, step number; empty: the kernel's
///   state_1             updated   loss scale and number of updates
///   scalars_1           written   for optimizer kernels
///   report_1            written   for the host
///   host_failure_1      read      not 0: a host function has failed; may be empty
template <class Memory>
struct update_step_scalars {
  static constexpr std::string_view name = "update_step_scalars";
  template <class M>
  using on = update_step_scalars<M>;

  double learning_rate = 0;
  double targets = 1;
  double max_grad_norm = 0;
  loss_scale_rule rule{};
  read<double, Memory> loss_1{}, squares_1{}, statistics_s{};
  read<step_inputs, Memory> inputs_1{};
  updated<step_state, Memory> state_1{};
  written<step_scalars, Memory> scalars_1{};
  written<step_report, Memory> report_1{};
  read<double, Memory> host_failure_1{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.learning_rate, s.targets, s.max_grad_norm, s.rule, s.loss_1, s.squares_1, s.statistics_s, s.inputs_1, s.state_1, s.scalars_1,
             s.report_1, s.host_failure_1);
  }
  [[nodiscard]] constexpr double operations() const { return 0.0; }

  /// For devices that run it on one thread.
  ///   inputs   null: the kernel's
  constexpr void compute(double loss_sum, double squares, const double* statistics, const step_inputs* inputs, step_state& state, step_scalars& scalars,
               step_report& report) const {
    const step_inputs known = inputs != nullptr ? *inputs : step_inputs{learning_rate, targets, 0};
    for (std::size_t i = 0; i < max_statistics; ++i)
      report.statistics[i] = i < statistics_s.size() && known.targets > 0 ? statistics[i] / known.targets : 0.0;
    report.loss = known.targets > 0 ? loss_sum / known.targets : 0.0;
    report.gradient_norm = std::sqrt(squares) / state.loss_scale;
    report.loss_scale = state.loss_scale;
    const bool failed = !host_failure_1.empty() && *host_failure_1.raw() != 0;
    const bool applies = !failed && std::isfinite(report.loss) && std::isfinite(report.gradient_norm);
    const bool overflow = !applies && !failed && rule.is_used && std::isfinite(report.loss) && state.loss_scale > rule.min_scale;
    report.is_skipped = applies ? 0 : 1;
    report.is_overflow = overflow ? 1 : 0;
    const double clip = max_grad_norm > 0 ? std::fmin(1.0, max_grad_norm / (report.gradient_norm + 1e-6)) : 1.0;
    scalars = {known.learning_rate, applies ? clip / state.loss_scale : 0.0, state.updates + 1, applies ? 1.0 : 0.0, known.number};
    if (applies) {
      state.updates += 1;
      rule.good_step(state);
    } else if (overflow) {
      rule.overflow(state);
    }
    report.after = state;
  }
};

}  // namespace xtrain::kernel
