// Mixture of experts: routing and combination. Each row (token) chooses k of e experts; its copies are in slots sorted by expert, so that an expert's rows form
// a
// matrix. kernel::embedding dispatches rows into slots.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// p = softmax(logits) over all experts; the `choices` largest are chosen, with renormalized weights w_ij = p_ij / Σ_chosen p_i.
///                                                             [Shazeer et al. 2017; Jiang et al. 2024, section 2.1]
///   logits_ne       read      compared without rounding; among equals the first expert
///   probability_ne  written   in accumulate, as the weights
///   choice_nk       written   experts of each row, most probable first, all different
///   weight_nk       written
///   slot_nk         written   slot of each choice; slots are sorted by expert, then row
///   row_s           written   [n · choices], row of each slot
///   count_e         written   slots per expert
///   load_e          written   Σ over rows of probability_ne without padding; empty: neither load_e nor counted_e
///   target_n        read      padding_target marks padding; empty: no padding
///   counted_e       written   slots per expert without padding
template <class Memory, class T>
struct expert_routing {
  static constexpr std::string_view name = "expert_routing";
  template <class M>
  using on = expert_routing<M, T>;

  std::size_t n = 0, experts = 0, choices = 0;
  read<T, Memory> logits_ne{};
  written<accumulate_t<T>, Memory> probability_ne{}, weight_nk{};
  written<token, Memory> choice_nk{}, slot_nk{}, row_s{}, count_e{};
  written<accumulate_t<T>, Memory> load_e{};
  read<token, Memory> target_n{};
  written<token, Memory> counted_e{};

  /// The row counts in load_e and counted_e.
  [[nodiscard]] bool counts(std::size_t row) const { return target_n.empty() || target_n.raw()[row] != padding_target; }

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.experts, s.choices, s.logits_ne, s.probability_ne, s.weight_nk, s.choice_nk, s.slot_nk, s.row_s, s.count_e, s.load_e, s.target_n,
             s.counted_e);
  }
  [[nodiscard]] constexpr double operations() const {
    return 5.0 * static_cast<double>(n) * static_cast<double>(experts) + 2.0 * static_cast<double>(n) * static_cast<double>(choices);
  }
};

/// First row and number of rows per expert.
///   count_e     read
///   range_e2    written   [e, 2]
template <class Memory>
struct expert_ranges {
  static constexpr std::string_view name = "expert_ranges";
  template <class M>
  using on = expert_ranges<M>;

  std::size_t experts = 0;
  read<token, Memory> count_e{};
  written<token, Memory> range_e2{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.experts, s.count_e, s.range_e2);
  }
  [[nodiscard]] constexpr double operations() const { return 0.0; }
};

/// With S = Σ_chosen p:  dp = dprobability + (dw − Σ dw · w) / S where chosen,  dlogits = p · (dp − Σ p · dp)
///   probability_ne, choice_nk, weight_nk, dweight_nk   read
///   dprobability_e   read      of the load-balancing loss, equal for all rows but padding; may be empty
///   dlogits_ne       written   rounded once
///   target_n         read      padding_target marks padding; empty: no padding
template <class Memory, class T>
struct expert_routing_backward {
  static constexpr std::string_view name = "expert_routing_backward";
  template <class M>
  using on = expert_routing_backward<M, T>;

  std::size_t n = 0, experts = 0, choices = 0;
  read<accumulate_t<T>, Memory> probability_ne{}, weight_nk{}, dweight_nk{}, dprobability_e{};
  read<token, Memory> choice_nk{};
  written<T, Memory> dlogits_ne{};
  read<token, Memory> target_n{};

  /// The load-balancing loss has a gradient in this row.
  [[nodiscard]] bool balances(std::size_t row) const {
    return !dprobability_e.empty() && (target_n.empty() || target_n.raw()[row] != padding_target);
  }

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.experts, s.choices, s.probability_ne, s.weight_nk, s.dweight_nk, s.dprobability_e, s.choice_nk, s.dlogits_ne, s.target_n);
  }
  [[nodiscard]] constexpr double operations() const {
    return 5.0 * static_cast<double>(n) * static_cast<double>(experts) + 6.0 * static_cast<double>(n) * static_cast<double>(choices);
  }
};

/// y row i = or += Σ_j weight_ij · x row slot_ij
///   slot_nk     read      in [0, n · choices)
///   weight_nk   read      empty: 1, the backward of dispatching rows into slots
///   x_sc        read      [n · choices, c]
///   y_nc        written, or updated with accumulate; summed in accumulate, rounded once
template <class Memory, class T>
struct expert_combine {
  static constexpr std::string_view name = "expert_combine";
  template <class M>
  using on = expert_combine<M, T>;

  std::size_t n = 0, c = 0, choices = 0;
  bool accumulate = false;
  read<token, Memory> slot_nk{};
  read<accumulate_t<T>, Memory> weight_nk{};
  read<T, Memory> x_sc{};
  updated<T, Memory> y_nc{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.c, s.choices, s.accumulate, s.slot_nk, s.weight_nk, s.x_sc, s.y_nc);
  }
  [[nodiscard]] constexpr double operations() const {
    return 2.0 * static_cast<double>(n) * static_cast<double>(choices) * static_cast<double>(c);
  }
};

/// dx row slot_ij = weight_ij · dy row i,  dweight_ij = dy row i · x row slot_ij
///   slot_nk      read      contains every slot once
///   weight_nk, x_sc, dy_nc   read
///   dx_sc        written   rounded once; may alias x_sc
///   dweight_nk   written   summed in accumulate
template <class Memory, class T>
struct expert_combine_backward {
  static constexpr std::string_view name = "expert_combine_backward";
  template <class M>
  using on = expert_combine_backward<M, T>;

  std::size_t n = 0, c = 0, choices = 0;
  read<token, Memory> slot_nk{};
  read<accumulate_t<T>, Memory> weight_nk{};
  read<T, Memory> x_sc{}, dy_nc{};
  written<T, Memory> dx_sc{};
  written<accumulate_t<T>, Memory> dweight_nk{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.c, s.choices, s.slot_nk, s.weight_nk, s.x_sc, s.dy_nc, s.dx_sc, s.dweight_nk);
  }
  [[nodiscard]] constexpr double operations() const {
    return 3.0 * static_cast<double>(n) * static_cast<double>(choices) * static_cast<double>(c);
  }
};

/// Load-balancing loss over the rows of all layers together: with r counted rows, r = Σ count / choices,
///   balance = e · Σ_e (count_e / r) · (load_e / r)                     [Fedus et al. 2021, equations 4 to 6; Jiang et al. 2024]
/// loss_n += weight · balance per row with a target: the mean over targets contains it once. Counts have no gradient; all probabilities of expert e share
///   dprobability_e = gradient_scale · targets · weight · e · count_e / r².   Without counted rows both are 0.
///   count_le, load_le   read      per layer, counted_e and load_e of expert_routing
///   target_n            read      outside [0, v): no target
///   loss_n              updated
///   dprobability_e      written
template <class Memory, class T>
struct expert_balance {
  static constexpr std::string_view name = "expert_balance";
  template <class M>
  using on = expert_balance<M, T>;

  std::size_t n = 0, v = 0, layers = 0, experts = 0, choices = 1;
  double weight = 0.0, gradient_scale = 1.0;
  read<double, Memory> gradient_factor_1{};  // factor on gradient_scale; empty: 1
  read<token, Memory> count_le{}, target_n{};
  read<accumulate_t<T>, Memory> load_le{};
  updated<accumulate_t<T>, Memory> loss_n{};
  written<accumulate_t<T>, Memory> dprobability_e{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.v, s.layers, s.experts, s.choices, s.weight, s.gradient_scale, s.gradient_factor_1, s.count_le, s.target_n, s.load_le, s.loss_n,
             s.dprobability_e);
  }
  [[nodiscard]] constexpr double operations() const {
    return 2.0 * static_cast<double>(layers) * static_cast<double>(experts) + static_cast<double>(n);
  }
};

}  // namespace xtrain::kernel
