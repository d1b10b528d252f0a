// Knowledge distillation: Kullback-Leibler divergence of student and teacher over the vocabulary, for a chunk of rows of logits. As in vocabulary-parallel
// cross-entropy, every rank reduces its shard to a few values per token; loss and gradient of its logits follow from all ranks' values.
//
// The second kernel of each pair can add to loss and gradient. A mixture with cross-entropy is softmax_of_parts with (1 − mix) as token weights, then
// distillation with `factor` = mix on the same logits, before the head's two products, the expensive part.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// p = softmax(teacher logits / temperature), q = softmax(student logits / temperature)
enum class divergence_kind {
  forward,  ///< KL(p ‖ q) = Σ_j p_j (log p_j − log q_j)    [Hinton et al. 2015, section 2]
  reverse,  ///< KL(q ‖ p) = Σ_j q_j (log q_j − log p_j)    [Gu et al. 2024, "MiniLLM", eq. 1]
};

/// Over a vocabulary shard's logits, l = student / temperature, m = teacher / temperature, L = max_j l_ij, M = max_j m_ij:
///   L,  Σ_j exp(l_ij − L),  M,  Σ_j exp(m_ij − M),  and
///   forward: Σ_j exp(m_ij − M) ((m_ij − M) − (l_ij − L)),   reverse: Σ_j exp(l_ij − L) ((l_ij − L) − (m_ij − M))
///   student_nv, teacher_nv   read, in accumulate
///   parts_5n    written   the five values: n of each
///   exp(...) = 0 makes its term 0 for any difference: logits may be −∞ (masked), but not all of a row
template <class Memory, class A>
struct distillation_part {
  static constexpr std::string_view name = "distillation_part";
  template <class M>
  using on = distillation_part<M, A>;

  std::size_t n = 0, v = 0;
  divergence_kind kind = divergence_kind::forward;
  double temperature = 1.0;
  read<A, Memory> student_nv{}, teacher_nv{};
  written<A, Memory> parts_5n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.v, s.kind, s.temperature, s.student_nv, s.teacher_nv, s.parts_5n);
  }
  [[nodiscard]] constexpr double operations() const { return 12.0 * static_cast<double>(n) * static_cast<double>(v); }
};

/// With p and q over all ranks' vocabulary:
///   loss_i = factor · token_weight_i · KL_i
///   dstudent_ij = gradient_scale · factor · token_weight_i / temperature · (q_ij − p_ij)                          forward
///   dstudent_ij = gradient_scale · factor · token_weight_i / temperature · q_ij (log q_ij − log p_ij − KL_i)      reverse
/// The true divergence: torchtune's ForwardKLLoss omits Σ p log p, which does not depend on the student. Hinton et al. multiply by temperature², so that the
/// gradient does not shrink: use `factor`.
///   factor      on loss and gradient
///   accumulate  adds to loss_n and dstudent_nv
///   parts_r5n   read      of all `ranks` ranks, in rank order
///   target_n    read      outside [0, vocab_size): ignored, no loss, no gradient
///   token_weight_n   read   any sign; empty: 1. Weight 0: the row is ignored for any logits
///   student_nv, teacher_nv   read      this rank's shard, v of vocab_size tokens
///   loss_n      updated   natural logarithm; ignored rows: 0, or unchanged
///   dstudent_nv updated   rounded to T; empty: only the loss
template <class Memory, class A, class T>
struct distillation_of_parts {
  static constexpr std::string_view name = "distillation_of_parts";
  template <class M>
  using on = distillation_of_parts<M, A, T>;

  std::size_t n = 0, v = 0, ranks = 1, vocab_size = 0;
  divergence_kind kind = divergence_kind::forward;
  double temperature = 1.0, factor = 1.0, gradient_scale = 1.0;
  read<double, Memory> gradient_factor_1{};  // factor on gradient_scale; empty: 1
  bool accumulate = false;
  read<A, Memory> parts_r5n{};
  read<token, Memory> target_n{};
  read<A, Memory> token_weight_n{};
  read<A, Memory> student_nv{}, teacher_nv{};
  updated<A, Memory> loss_n{};
  updated<T, Memory> dstudent_nv{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.v, s.ranks, s.vocab_size, s.kind, s.temperature, s.factor, s.gradient_scale, s.gradient_factor_1, s.accumulate,
             s.parts_r5n, s.target_n,
             s.token_weight_n, s.student_nv, s.teacher_nv, s.loss_n, s.dstudent_nv);
  }
  [[nodiscard]] constexpr double operations() const {
    return dstudent_nv.empty() ? 16.0 * static_cast<double>(n * ranks) : 10.0 * static_cast<double>(n) * static_cast<double>(v);
  }
};

/// For a teacher's `top` largest stored log-probabilities: over the student's logits of tokens first … first + v − 1, l = student / temperature,
/// L = max_j l_ij, p_ik = exp(teacher_ik):
///   L,  Σ_j exp(l_ij − L),  Σ_k p_ik l_i,id over stored tokens in this shard
///   student_nv  read, in accumulate
///   id_nk       read      tokens; outside [0, vocabulary): not stored (rows with fewer than `top`)
///   teacher_nk  read      natural logarithms of probabilities at the same temperature
///   parts_3n    written   the three values: n of each
template <class Memory, class A>
struct topk_distillation_part {
  static constexpr std::string_view name = "topk_distillation_part";
  template <class M>
  using on = topk_distillation_part<M, A>;

  std::size_t n = 0, v = 0, top = 0;
  token first = 0;
  double temperature = 1.0;
  read<A, Memory> student_nv{};
  read<token, Memory> id_nk{};
  read<A, Memory> teacher_nk{};
  written<A, Memory> parts_3n{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.v, s.top, s.first, s.temperature, s.student_nv, s.id_nk, s.teacher_nk, s.parts_3n);
  }
  [[nodiscard]] constexpr double operations() const { return 4.0 * static_cast<double>(n) * static_cast<double>(v); }
};

/// Forward divergence over stored tokens, with P_i = Σ_k p_ik, p_ik = exp(teacher_ik), or exp(teacher_ik) / Σ_k exp(teacher_ik) if `renormalize`:
///   loss_i = factor · token_weight_i · Σ_k p_ik (log p_ik − log q_i,id)
///   dstudent_ij = gradient_scale · factor · token_weight_i / temperature · (P_i q_ij − Σ_{k: id_ik = j} p_ik)
/// Without `renormalize` the teacher's other tokens are ignored, and the loss may be negative. Equals PyTorch's
/// `kl_div(log q.gather(ids), teacher, log_target=True)`, summed over stored tokens.
///   factor, accumulate, target_n, token_weight_n, student_nv, loss_n, dstudent_nv   as in distillation_of_parts
///   parts_r3n   read      of all `ranks` ranks, in rank order
///   id_nk, teacher_nk   read      as in topk_distillation_part; ids of a row differ
template <class Memory, class A, class T>
struct topk_distillation_of_parts {
  static constexpr std::string_view name = "topk_distillation_of_parts";
  template <class M>
  using on = topk_distillation_of_parts<M, A, T>;

  std::size_t n = 0, v = 0, top = 0, ranks = 1, vocab_size = 0;
  token first = 0;
  double temperature = 1.0, factor = 1.0, gradient_scale = 1.0;
  read<double, Memory> gradient_factor_1{};  // factor on gradient_scale; empty: 1
  bool renormalize = false, accumulate = false;
  read<A, Memory> parts_r3n{};
  read<token, Memory> target_n{};
  read<A, Memory> token_weight_n{};
  read<A, Memory> student_nv{};
  read<token, Memory> id_nk{};
  read<A, Memory> teacher_nk{};
  updated<A, Memory> loss_n{};
  updated<T, Memory> dstudent_nv{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.n, s.v, s.top, s.ranks, s.vocab_size, s.first, s.temperature, s.factor, s.gradient_scale, s.gradient_factor_1,
             s.renormalize, s.accumulate,
             s.parts_r3n, s.target_n, s.token_weight_n, s.student_nv, s.id_nk, s.teacher_nk, s.loss_n, s.dstudent_nv);
  }
  [[nodiscard]] constexpr double operations() const {
    return 8.0 * static_cast<double>(n * top) + (dstudent_nv.empty() ? 0.0 : 4.0 * static_cast<double>(n) * static_cast<double>(v));
  }
};

}  // namespace xtrain::kernel
