// Optimizer updates: an element per thread and turn; a step's scalars are prepared once per block.
#pragma once

#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/random.hpp>

namespace xtrain {

namespace simt {

/// Double-precision scalars cost more than an update: few blocks, in turns over elements.
inline constexpr int most_optimizer_blocks = 2048;

/// Per step, in fp32; computed in double by one thread.
struct step_of_block {
  float rate = 0, decay = 0, gradient_scale = 0, correction1 = 1, correction2 = 1;
  bool applies = false;
};

/// Weights and their storage.
template <class P, class M>
struct weights {
  M* master;  // null: no master copy
  P* parameter;

  XTRAIN_SIMT_FN float load(std::size_t i) const { return master != nullptr ? widen(master[i]) : widen(parameter[i]); }
  XTRAIN_SIMT_FN void store(std::size_t i, float w, bool stochastic, std::uint32_t word) const {
    if (master != nullptr) master[i] = rounded<M>(w);
    parameter[i] = stored<P>(w, stochastic, word);
  }
};

/// An element's random words: the parameter's, and the state's at the next site.
struct rounding_words {
  random_site random;
  bool stochastic;
  XTRAIN_SIMT_FN std::uint32_t of_parameter(const kernel::step_scalars& scalars, std::size_t i) const {
    return stochastic ? random_word_of(site_of_step(random, &scalars), i) : 0;
  }
  XTRAIN_SIMT_FN std::uint32_t of_state(const kernel::step_scalars& scalars, std::size_t i) const {
    if (!stochastic) return 0;
    random_site next = site_of_step(random, &scalars);
    ++next.site;
    return random_word_of(next, i);
  }
};

/// rule.update(i, step, scalars) changes element i.
template <class Rule>
struct optimizer_launch {
  static constexpr int threads = 256;
  struct shared {
    shared_array<step_of_block, 1> step;
  };
  const kernel::step_scalars* scalars;
  const double* corrections;  // null: no corrections
  double learning_rate_factor, weight_decay;
  std::size_t n;
  Rule rule;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    if (thread() == 0) {
      const double rate = scalars->learning_rate * learning_rate_factor;
      step_of_block step;
      step.rate = static_cast<float>(rate);
      step.decay = static_cast<float>(rate * weight_decay);
      step.gradient_scale = static_cast<float>(scalars->gradient_scale);
      step.applies = scalars->applies != 0;
      if constexpr (Rule::corrects) {
        step.correction1 = static_cast<float>(corrections[0]);
        step.correction2 = static_cast<float>(corrections[1]);
      }
      s.step[0] = step;
    }
    sync();
    const step_of_block step = s.step[0];
    if (!step.applies) return;
    for (std::size_t i = thread_of_grid(threads); i < n; i += static_cast<std::size_t>(blocks_x()) * threads)
      rule.update(i, step, *scalars);
  }
};

template <class P, class G, class M, class S>
struct adamw_rule {
  static constexpr bool corrects = true;
  const G* gradient;
  weights<P, M> w;
  S *m, *v;
  float beta1, beta2, rest1, rest2, epsilon;
  rounding_words words;

  XTRAIN_SIMT_FN void update(std::size_t i, const step_of_block& step, const kernel::step_scalars& scalars) const {
    const float g = widen(gradient[i]) * step.gradient_scale;
    const float m_i = beta1 * widen(m[i]) + rest1 * g, v_i = beta2 * widen(v[i]) + rest2 * g * g;
    float w_i = w.load(i);
    w_i -= step.decay * w_i;
    w_i -= step.rate * (m_i * step.correction1) / (sqrt(v_i * step.correction2) + epsilon);
    const std::uint32_t state_word = words.of_state(scalars, i);
    m[i] = stored<S>(m_i, words.stochastic, state_word);
    v[i] = stored<S>(v_i, words.stochastic, state_word >> 16);
    w.store(i, w_i, words.stochastic, words.of_parameter(scalars, i));
  }
};

template <class P, class G, class M, class S>
struct sgd_rule {
  static constexpr bool corrects = false;
  const G* gradient;
  weights<P, M> w;
  S* velocity;  // null: no momentum
  float momentum;
  rounding_words words;

  XTRAIN_SIMT_FN void update(std::size_t i, const step_of_block& step, const kernel::step_scalars& scalars) const {
    float change = widen(gradient[i]) * step.gradient_scale;
    if (velocity != nullptr) {
      change += momentum * widen(velocity[i]);
      velocity[i] = stored<S>(change, words.stochastic, words.of_state(scalars, i));
    }
    float w_i = w.load(i);
    w_i -= step.decay * w_i;
    w_i -= step.rate * change;
    w.store(i, w_i, words.stochastic, words.of_parameter(scalars, i));
  }
};

template <class P, class G, class M, class S>
struct lion_rule {
  static constexpr bool corrects = false;
  const G* gradient;
  weights<P, M> w;
  S* m;
  float beta1, beta2, rest1, rest2;
  rounding_words words;

  XTRAIN_SIMT_FN void update(std::size_t i, const step_of_block& step, const kernel::step_scalars& scalars) const {
    const float g = widen(gradient[i]) * step.gradient_scale, old = widen(m[i]);
    const float mixed = beta1 * old + rest1 * g, sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : 0.0f;
    float w_i = w.load(i);
    w_i -= step.decay * w_i;
    w_i -= step.rate * sign;
    m[i] = stored<S>(beta2 * old + rest2 * g, words.stochastic, words.of_state(scalars, i));
    w.store(i, w_i, words.stochastic, words.of_parameter(scalars, i));
  }
};

template <launches Stream, class Kernel, class Rule>
void launch_optimizer(Stream& stream, const Kernel& k, const Rule& rule, const double* corrections = nullptr) {
  if (k.n == 0) return;
  stream.launch(optimizer_launch<Rule>{k.scalars_1.raw(), corrections, k.learning_rate_factor, k.weight_decay, k.n, rule},
                {std::min(blocks_of(k.n, 256), most_optimizer_blocks), 1, 1});
}

}  // namespace simt

template <simt::launches S, class Memory, class P, class G, class M, class State>
requires(simt::up_to_float<P>&& simt::up_to_float<M>) void run_kernel(S& stream, const kernel::adamw<Memory, P, G, M, State>& k,
                                                                      scratch_span<Memory>) {
  kernel::check_arity<15>(k);
  using simt::narrowed;
  simt::launch_optimizer(stream, k,
                         simt::adamw_rule<P, G, M, State>{k.gradient_n.raw(),
                                                          {k.master_n.raw(), k.parameter_n.raw()},
                                                          k.m_n.raw(),
                                                          k.v_n.raw(),
                                                          narrowed(k.beta1),
                                                          narrowed(k.beta2),
                                                          narrowed(1.0 - k.beta1),
                                                          narrowed(1.0 - k.beta2),
                                                          narrowed(k.epsilon),
                                                          {k.random, k.stochastic}},
                         k.correction_2.raw());
}
template <simt::launches S, class Memory, class P, class G, class M, class State>
requires(simt::up_to_float<P>&& simt::up_to_float<M>) void run_kernel(S& stream, const kernel::sgd<Memory, P, G, M, State>& k,
                                                                      scratch_span<Memory>) {
  kernel::check_arity<11>(k);
  simt::launch_optimizer(stream, k,
                         simt::sgd_rule<P, G, M, State>{k.gradient_n.raw(),
                                                        {k.master_n.raw(), k.parameter_n.raw()},
                                                        k.velocity_n.raw(),
                                                        simt::narrowed(k.momentum),
                                                        {k.random, k.stochastic}});
}
template <simt::launches S, class Memory, class P, class G, class M, class State>
requires(simt::up_to_float<P>&& simt::up_to_float<M>) void run_kernel(S& stream, const kernel::lion<Memory, P, G, M, State>& k,
                                                                      scratch_span<Memory>) {
  kernel::check_arity<12>(k);
  using simt::narrowed;
  simt::launch_optimizer(stream, k,
                         simt::lion_rule<P, G, M, State>{k.gradient_n.raw(),
                                                         {k.master_n.raw(), k.parameter_n.raw()},
                                                         k.m_n.raw(),
                                                         narrowed(k.beta1),
                                                         narrowed(k.beta2),
                                                         narrowed(1.0 - k.beta1),
                                                         narrowed(1.0 - k.beta2),
                                                         {k.random, k.stochastic}});
}

}  // namespace xtrain
