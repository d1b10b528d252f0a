// Attention, causal by default, without the time × time matrix.
#pragma once

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>

namespace xtrain::kernel {

/// First position visible to the query at `now`.
[[nodiscard]] constexpr std::size_t first_seen(std::size_t start, std::size_t window, std::size_t now) {
  const std::size_t earliest = window == 0 || window > now ? 0 : now + 1 - window;
  return start > earliest ? start : earliest;
}

/// One past the last position visible to the query at `now`: causal, or end[i] for query i.
[[nodiscard]] constexpr std::size_t end_seen(const token* end, std::size_t i, std::size_t now) {
  return end == nullptr ? now + 1 : static_cast<std::size_t>(end[i]);
}

/// Rows of `qkv` hold h query heads, k key heads, k value heads, of d elements each; query head i uses key/value head i / (h / k).  [Ainslie et al. 2023]
struct attention_shape {
  std::size_t b = 0, t = 0, h = 0, k = 0, d = 0;
  /// Tensor parallelism: heads on all ranks, and on lower ranks. all_heads 0: not sharded.
  std::size_t all_heads = 0, first_head = 0;

  /// A head's index among the heads of all sequences.
  [[nodiscard]] constexpr std::uint64_t head_of_all(std::uint64_t batch_row, std::size_t head) const {
    return batch_row * (all_heads == 0 ? h : all_heads) + first_head + head;
  }

  [[nodiscard]] constexpr std::size_t row() const { return (h + 2 * k) * d; }
  [[nodiscard]] constexpr std::size_t key_offset() const { return h * d; }
  [[nodiscard]] constexpr std::size_t value_offset() const { return (h + k) * d; }
  friend constexpr bool operator==(const attention_shape&, const attention_shape&) = default;
};

/// o_i = Σ_j p_ij v_j,  p_ij = exp(s_ij + slope_h (j − i) − lse_i),  s_ij = scale · q_i·k_j, or softcap · tanh(scale · q_i·k_j / softcap),
/// j from start_i to i (causal) or end_i − 1, and at least i + 1 − window.
///              [Vaswani et al. 2017, eq. 1; slopes: Press et al. 2022; window: Beltagy et al. 2020, section 3.1; softcap: Gemma team 2024,
///              "Gemma 2", section 2]
///   qkv        read      [b·t, row]
///   start_bt   read      first visible position (begin of the sample in a packed sequence); empty: 0
///   end_bt     read      one past the last visible position, at least one per query; empty: causal
///   slope_h    read      ALiBi; empty: no bias
///   window     sliding window in positions, the query's included; 0: none
///   softcap    bound of scores; 0: none
///   o_bthd     written   [b·t, h·d]
///   lse_bht    written   log of the softmax's denominator, for the backward  [Dao et al. 2022, algorithm 1]
///   inputs_1   read      its step number is added to random.step; may be empty
///   dropout    drops p_ij by element ((sequence·h + head)·t + i)·t + j of `random`; sequences from random.first, heads of all ranks
///   rounding   scores and sums in accumulate; p may be rounded to T before the product with v; o rounded once
template <class Memory, class T>
struct attention {
  static constexpr std::string_view name = "attention";
  template <class M>
  using on = attention<M, T>;

  attention_shape shape{};
  double scale = 1.0;
  double dropout = 0.0;
  std::size_t window = 0;
  double softcap = 0.0;
  random_site random{};
  read<step_inputs, Memory> inputs_1{};
  read<T, Memory> qkv{};
  read<token, Memory> start_bt{}, end_bt{};
  read<float, Memory> slope_h{};
  written<T, Memory> o_bthd{};
  written<accumulate_t<T>, Memory> lse_bht{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.shape, s.scale, s.dropout, s.window, s.softcap, s.random, s.inputs_1, s.qkv, s.start_bt, s.end_bt, s.slope_h, s.o_bthd, s.lse_bht);
  }
  [[nodiscard]] constexpr double operations() const {  // two products, triangular or full
    const auto& [b, t, h, k, d, all, first] = shape;
    return 2.0 * static_cast<double>(b * h * d) * static_cast<double>(t) * static_cast<double>(end_bt.empty() ? t + 1 : 2 * t);
  }
};

/// With D_i = Σ do_i · o_i and ds_ij = p_ij (do_i·v_j − D_i), times 1 − (s_ij / softcap)² with a softcap:
///   dq_i = scale Σ_j ds_ij k_j,  dk_j = scale Σ_i ds_ij q_i,  dv_j = Σ_i p_ij do_i       [Dao et al. 2022, section B.2]
///   inputs_1, qkv, start_bt, end_bt, slope_h, o_bthd, lse_bht, do_bthd   read
///   dqkv       written   [b·t, row]
///   rounding   sums in accumulate; p and ds may be rounded to T before products
template <class Memory, class T>
struct attention_backward {
  static constexpr std::string_view name = "attention_backward";
  template <class M>
  using on = attention_backward<M, T>;

  attention_shape shape{};
  double scale = 1.0;
  double dropout = 0.0;
  std::size_t window = 0;
  double softcap = 0.0;
  random_site random{};
  read<step_inputs, Memory> inputs_1{};
  read<T, Memory> qkv{};
  read<token, Memory> start_bt{}, end_bt{};
  read<float, Memory> slope_h{};
  read<T, Memory> o_bthd{};
  read<accumulate_t<T>, Memory> lse_bht{};
  read<T, Memory> do_bthd{};
  written<T, Memory> dqkv{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.shape, s.scale, s.dropout, s.window, s.softcap, s.random, s.inputs_1, s.qkv, s.start_bt, s.end_bt, s.slope_h, s.o_bthd, s.lse_bht, s.do_bthd,
             s.dqkv);
  }
  [[nodiscard]] constexpr double operations() const {  // five products, triangular or full
    const auto& [b, t, h, k, d, all, first] = shape;
    return 5.0 * static_cast<double>(b * h * d) * static_cast<double>(t) * static_cast<double>(end_bt.empty() ? t + 1 : 2 * t);
  }
};

/// Attention of t new tokens per sequence over a key/value cache with these tokens.
///   qkv            read      [b·t, row], rotary embedding applied
///   length_b       read      cached tokens per sequence before this call; length + t must not exceed capacity
///   end_bt         read      one past the last visible cache position; empty: causal
///   k_cache, v_cache   updated   [b, k, capacity, d]: new keys and values go to length … length + t − 1
///   o_bthd         written   [b·t, h·d]; query i sees cache positions 0 … length + i, or 0 … end − 1, or the last `window`
///   rounding       scores and sums in accumulate; p may be rounded to T before the product with v; o rounded once
template <class Memory, class T>
struct cached_attention {
  static constexpr std::string_view name = "cached_attention";
  template <class M>
  using on = cached_attention<M, T>;

  attention_shape shape{};
  std::size_t capacity = 0;
  double scale = 1.0;
  std::size_t window = 0;
  double softcap = 0.0;
  read<T, Memory> qkv{};
  read<token, Memory> length_b{}, end_bt{};
  read<float, Memory> slope_h{};
  updated<T, Memory> k_cache{}, v_cache{};
  written<T, Memory> o_bthd{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.shape, s.capacity, s.scale, s.window, s.softcap, s.qkv, s.length_b, s.end_bt, s.slope_h, s.k_cache, s.v_cache, s.o_bthd);
  }
  [[nodiscard]] constexpr double operations() const {
    const auto& [b, t, h, k, d, all, first] = shape;
    return 4.0 * static_cast<double>(b * h * d) * static_cast<double>(t) * static_cast<double>(capacity);
  }
};

}  // namespace xtrain::kernel
