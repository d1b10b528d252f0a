// Conformance cases: objectives over pairs of sequences, and distillation.
#pragma once

#include <cstddef>
#include <limits>
#include <utility>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/distillation.hpp>
#include <xtrain/device/kernel/grpo.hpp>
#include <xtrain/device/kernel/preference.hpp>
#include <xtrain/device/kernel/value_loss.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

template <class T, class Suite>
void check_preferences(Suite& suite) {
  using acc = accumulate_t<T>;
  // computed in double even if T is narrower
  const double in_double = dtype_traits<double>::unit_roundoff / dtype_traits<acc>::unit_roundoff;
  for (const auto& [pairs, t] : {std::pair<std::size_t, std::size_t>{1, 1}, {3, 37}, {9, 530}}) {
    case_memory mem;
    const std::size_t b = 2 * pairs, n = b * t, v = 19;
    kernel::sequence_sums<host_memory, acc> sums{.b = b, .t = t, .v = v};
    sums.loss_n = mem.numbers<acc>(n, 0.0, 9.0);  // also without a target
    sums.target_n = mem.tokens(n, v);
    sums.logp_b = mem.fresh<double>(b);
    sums.count_b = mem.fresh<double>(b);
    suite.template check_kernel<T>(sums, static_cast<double>(t), in_double * 9.0 * static_cast<double>(t));

    using kind = kernel::preference_kind;
    for (const kind one : {kind::sigmoid, kind::robust, kind::hinge, kind::ipo, kind::odds_ratio}) {
      for (int variant = 0; variant < 4; ++variant) {  // plain; averaged; without a reference or statistics; large differences
        kernel::preference_loss<host_memory> loss{.pairs = pairs, .kind = one, .beta = variant == 3 ? 20.0 : 0.3};
        if (one == kind::sigmoid || one == kind::robust) loss.label_smoothing = variant == 1 ? 0.2 : 0.0;
        if (one != kind::ipo && one != kind::odds_ratio) loss.margin = variant == 2 ? 0.4 : 0.0;
        loss.average_log_probs = loss.average_rewards = variant == 1;
        if (variant == 1) loss.nll_weight = 0.6;
        if (variant == 2) loss.center = 0.05;
        loss.logp_b = mem.numbers<double>(b, -30.0, -1.0);
        const auto counts = mem.numbers<double>(b, 1.0, 50.0);
        counts.raw()[0] = 0.0;  // a sequence without a target
        if (pairs > 1) counts.raw()[2] = counts.raw()[3] = 0.0;  // a pair of padding
        loss.count_b = counts;
        if (variant != 2 && one != kind::odds_ratio) loss.reference_b = mem.numbers<double>(b, -30.0, -1.0);
        loss.loss_p = mem.fresh<double>(pairs);
        loss.dlogp_b = mem.fresh<double>(b);
        if (variant != 2) loss.statistics_4p = mem.fresh<double>(4 * pairs);
        suite.template check_kernel<T>(loss, 10.0, in_double * 3600.0);  // (Δ − 1 / (2 beta))² of Δ up to 60
      }
    }

    for (int variant = 0; variant < 4; ++variant) {  // plain; weighted; without an estimate or statistics; large differences
      kernel::kto_loss<host_memory> loss{.answers = pairs, .beta = variant == 3 ? 20.0 : 0.3, .estimates_kl = variant != 2};
      if (variant == 1) loss.desirable_weight = 1.3;
      if (variant == 1) loss.undesirable_weight = 0.7;
      loss.logp_b = mem.numbers<double>(b, -20.0, -1.0);
      const auto counts = mem.numbers<double>(b, 1.0, 50.0);
      if (pairs > 1) counts.raw()[2] = counts.raw()[5] = 0.0;  // padding, and an answer without an estimate
      loss.count_b = counts;
      if (variant != 2) loss.reference_b = mem.numbers<double>(b, -30.0, -1.0);
      loss.label_b = mem.tokens(b, 2);
      loss.loss_e = mem.fresh<double>(pairs);
      loss.dlogp_b = mem.fresh<double>(b);
      if (variant != 2) loss.statistics_4e = mem.fresh<double>(4 * pairs);
      suite.template check_kernel<T>(loss, 10.0, in_double * 600.0);  // beta · r of up to 30
    }

    for (const bool has_factor : {false, true}) {
      kernel::score_gradients<host_memory, T> gradients{.b = b, .gradient_scale = 0.125};
      if (has_factor) gradients.gradient_factor_1 = mem.numbers<double>(1, 1.0, 4.0);
      gradients.dscore_b = mem.numbers<double>(b);
      gradients.dlogit_b = mem.numbers<T>(b);
      suite.template check_kernel<T>(gradients, 0.0, 0.0);
    }

    for (const std::size_t losses : {pairs, b}) {
      kernel::sequence_weights<host_memory, acc> weights{.b = b, .t = t, .v = v, .losses = losses};
      weights.target_n = sums.target_n;
      weights.dlogp_b = mem.numbers<double>(b);
      weights.token_weight_n = mem.numbers<acc>(n);
      suite.template check_kernel<T>(weights, 0.0, 0.0);
      weights.loss_g = mem.numbers<double>(losses);
      weights.loss_n = mem.numbers<acc>(n);
      suite.template check_kernel<T>(weights, 0.0, 0.0);
      weights.target_n = {};
      weights.dlogp_b = {};
      weights.token_weight_n = {};
      suite.template check_kernel<T>(weights, 0.0, 0.0);
      weights.losses = 0;  // another rank has the losses
      weights.loss_g = {};
      suite.template check_kernel<T>(weights, 0.0, 0.0);
    }
  }
}

template <class T, class Suite>
void check_grpo(Suite& suite) {
  using acc = accumulate_t<T>;
  const double in_double = dtype_traits<double>::unit_roundoff / dtype_traits<acc>::unit_roundoff;
  using kind = kernel::grpo_kind;
  for (const auto& [b, t] : {std::pair<std::size_t, std::size_t>{1, 1}, {3, 37}, {8, 530}})
    for (const kind one : {kind::grpo, kind::dapo, kind::dr_grpo})
      for (int variant = 0; variant < 4; ++variant) {  // clipped; with a reference and a ratio per sequence; without old; without weights
        case_memory mem;
        const std::size_t n = b * t, v = 19;
        kernel::grpo_loss<host_memory, acc> loss{.b = b, .t = t, .v = v, .kind = one};
        loss.epsilon_high = 0.3;
        loss.max_completion_length = 40.0;
        loss.loss_n = mem.numbers<acc>(n, 0.0, 3.0);
        const auto targets = mem.tokens(n, v);
        if (b > 1)
          for (std::size_t j = 0; j < t; ++j) targets.raw()[t + j] = -1;  // a sequence of padding
        loss.target_n = targets;
        const auto advantages = mem.numbers<double>(b, -2.0, 2.0);
        if (b > 1) advantages.raw()[2] = 0.0;
        loss.advantage_b = advantages;
        if (variant != 2) loss.old_n = mem.numbers<acc>(n, -3.0, 0.0);
        loss.sequence_ratio = variant == 1;
        if (variant == 1 || variant == 2) {
          loss.beta = 0.3;
          loss.reference_n = mem.numbers<acc>(n, -3.0, 0.0);
        }
        loss.loss_b = mem.fresh<double>(b);
        loss.statistics_3b = mem.fresh<double>(3 * b);
        if (variant != 3) loss.weight_n = mem.numbers<acc>(n);
        // ratios and divergences up to e^3, summed over the tokens of a sequence in double
        suite.template check_kernel<T>(loss, static_cast<double>(t), in_double * 60.0 * static_cast<double>(t));
      }
}

template <class T, class Suite>
void check_value_loss(Suite& suite) {
  const double in_double = dtype_traits<double>::unit_roundoff / dtype_traits<accumulate_t<T>>::unit_roundoff;
  for (const std::size_t n : {std::size_t{1}, std::size_t{37}, std::size_t{530}}) {
    case_memory mem;
    kernel::value_loss<host_memory> loss{.n = n, .epsilon = 0.3};
    loss.value_n = mem.numbers<double>(n, -2.0, 2.0);
    loss.old_n = mem.numbers<double>(n, -2.0, 2.0);
    loss.return_n = mem.numbers<double>(n, -2.0, 2.0);
    const auto tokens = mem.tokens(n, n);
    if (n > 1) tokens.raw()[n / 2] = -1;
    loss.token_n = tokens;
    loss.loss_n = mem.fresh<double>(n);
    loss.dvalue_n = mem.fresh<double>(n);
    loss.is_clipped_n = mem.fresh<double>(n);
    suite.template check_kernel<T>(loss, 3.0, in_double * 16.0);  // squares of differences up to 4
  }
}

/// A vocabulary sharded across three ranks; the second checks its shard.
template <class T, class Suite>
void check_distillation(Suite& suite) {
  using acc = accumulate_t<T>;
  constexpr std::size_t ranks = 3;
  struct size {
    std::size_t n, v, top;
  };
  for (const size& s : {size{1, 1, 1}, size{7, 19, 5}, size{130, 67, 8}, size{5, 3000, 64}}) {
    const std::size_t n = s.n, v = s.v, top = s.top;
    case_memory mem;
    const auto logits = [&] { return mem.numbers<acc>(n * v, -8.0, 8.0); };
    const auto weights = [&] {
      const auto all = mem.numbers<acc>(n);
      all.raw()[n / 2] = acc{0};
      return all;
    };
    const auto terms = static_cast<double>(v);
    for (const auto kind : {kernel::divergence_kind::forward, kernel::divergence_kind::reverse}) {
      kernel::distillation_part<host_memory, acc> part{.n = n, .v = v, .kind = kind, .temperature = 1.5};
      part.student_nv = logits();
      const auto teacher = logits();
      if (v > 1 && kind == kernel::divergence_kind::forward) teacher.raw()[v / 2] = -std::numeric_limits<acc>::infinity();  // masked
      part.teacher_nv = teacher;
      part.parts_5n = mem.numbers<acc>(5 * n);
      suite.template check_kernel<T>(part, terms, 64.0 + terms);  // sums of `terms` values around 1
      for (const bool accumulate : {false, true}) {
        for (const bool with_gradient : {false, true}) {
          kernel::distillation_of_parts<host_memory, acc, T> whole{.n = n,
                                                                   .v = v,
                                                                   .ranks = ranks,
                                                                   .vocab_size = ranks * v,
                                                                   .kind = kind,
                                                                   .temperature = 1.5,
                                                                   .factor = accumulate ? 0.5 : 1.0,
                                                                   .gradient_scale = 0.125,
                                                                   .accumulate = accumulate};
          whole.parts_r5n = mem.numbers<acc>(ranks * 5 * n, 6.0, 7.0);  // sums are positive, and no logit is far above the largest
          whole.target_n = mem.tokens(n, ranks * v);
          if (accumulate) whole.token_weight_n = weights();
          whole.student_nv = part.student_nv;
          whole.teacher_nv = part.teacher_nv;
          whole.loss_n = mem.numbers<acc>(n);
          if (with_gradient) whole.dstudent_nv = mem.numbers<T>(n * v);
          suite.template check_kernel<T>(whole, 8.0 * ranks, 16.0);
        }
      }
    }
    kernel::topk_distillation_part<host_memory, acc> part{.n = n, .v = v, .top = top, .first = static_cast<token>(v), .temperature = 0.8};
    part.student_nv = logits();
    const auto ids = mem.tokens(n * top, ranks * v);
    for (std::size_t i = 0; i < n; ++i)  // all different in a row, some without a token
      for (std::size_t e = 0; e < top; ++e)
        ids.raw()[i * top + e] = e == 3 ? token{-1} : static_cast<token>((i * 5 + e * 61) % (ranks * v));
    part.id_nk = ids;
    part.teacher_nk = mem.numbers<acc>(n * top, -9.0, -1.5);
    part.parts_3n = mem.numbers<acc>(3 * n);
    suite.template check_kernel<T>(part, terms + static_cast<double>(top), 64.0);
    for (int variant = 0; variant < 4; ++variant) {  // only the loss; with a gradient; renormalized; added
      kernel::topk_distillation_of_parts<host_memory, acc, T> whole{.n = n,
                                                                    .v = v,
                                                                    .top = top,
                                                                    .ranks = ranks,
                                                                    .vocab_size = ranks * v,
                                                                    .first = static_cast<token>(v),
                                                                    .temperature = 0.8,
                                                                    .factor = variant == 3 ? 0.5 : 1.0,
                                                                    .gradient_scale = 0.125,
                                                                    .renormalize = variant == 2,
                                                                    .accumulate = variant == 3};
      whole.parts_r3n = mem.numbers<acc>(ranks * 3 * n, 9.0, 10.0);
      whole.target_n = mem.tokens(n, ranks * v);
      if (variant >= 2) whole.token_weight_n = weights();
      whole.student_nv = part.student_nv;
      whole.id_nk = part.id_nk;
      whole.teacher_nk = part.teacher_nk;
      whole.loss_n = mem.numbers<acc>(n);
      if (variant != 0) whole.dstudent_nv = mem.numbers<T>(n * v);
      suite.template check_kernel<T>(whole, 8.0 * ranks + static_cast<double>(top), 16.0);
    }
  }
}

}  // namespace xtrain::testing::detail
