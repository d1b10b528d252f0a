// Attention of a block of queries on a block of keys, for context parallelism; results of key blocks are merged.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::kernel {

/// A contiguous block of positions of every sequence, in a matrix with `own` positions per sequence.
struct position_block {
  std::size_t own = 0;    // positions per sequence in the matrix
  std::size_t at = 0;     // the block's first position among them
  std::size_t first = 0;  // its position in the entire sequence
  std::size_t count = 0;

  [[nodiscard]] constexpr std::size_t end() const { return first + count; }
  /// Matrix row of the block's position i.
  [[nodiscard]] constexpr std::size_t row_of(std::size_t batch_row, std::size_t i) const { return batch_row * own + at + i; }
  /// With one element per head and position.
  [[nodiscard]] constexpr std::size_t row_of(std::size_t batch_row, std::size_t heads, std::size_t head, std::size_t i) const {
    return row_of(batch_row * heads + head, i);
  }
  friend constexpr bool operator==(const position_block&, const position_block&) = default;
};

/// (query, key) pairs with key not after query.
[[nodiscard]] constexpr double causal_pairs(const position_block& queries, const position_block& keys) {
  const std::size_t none = keys.first > queries.first ? keys.first - queries.first : 0;  // queries before the first key
  if (none >= queries.count) return 0.0;
  const std::size_t least = queries.first + none + 1 - keys.first;  // keys of the first query with keys
  const auto seeing = static_cast<double>(queries.count - none), most = static_cast<double>(keys.count);
  if (least >= keys.count) return seeing * most;
  const auto growing = static_cast<double>(std::min(queries.count - none, keys.count - least));  // each with one more key
  return growing * (static_cast<double>(least) + (growing - 1.0) / 2.0) + (seeing - growing) * most;
}

/// p_ij of `attention` over this block's keys. With a_i = Σ_j exp(score_ij), merges into o and lse of earlier blocks:
///   lse' = log(exp(lse) + a),  o' = (exp(lse) o + Σ_j exp(score_ij) v_j) / exp(lse')
///                                                              [Liu et al. 2023, section 3; Dao et al. 2022, section 3.1]
///   shape      t: entire sequence length; start_bt, end_bt and dropout elements as in `attention`
///   inputs_1   read      as in `attention`
///   qkv        read      [b·queries.own, row], rows of the query block
///   kv         read      [b·keys.own, 2k·d]: k key heads, k value heads, rows of the key block
///   begins     first block: o and lse are written
///   o_bthd     updated   [b·queries.own, h·d], in accumulate, rows of the query block; 0 without keys so far
///   lse_bht    updated   [b, h, queries.own]; −infinity without keys so far
template <class Memory, class T>
struct attention_block {
  static constexpr std::string_view name = "attention_block";
  template <class M>
  using on = attention_block<M, T>;

  attention_shape shape{};
  position_block queries{}, keys{};
  bool begins = false;
  double scale = 1.0;
  double dropout = 0.0;
  std::size_t window = 0;
  double softcap = 0.0;
  random_site random{};
  read<step_inputs, Memory> inputs_1{};
  read<T, Memory> qkv{}, kv{};
  read<token, Memory> start_bt{}, end_bt{};
  read<float, Memory> slope_h{};
  updated<accumulate_t<T>, Memory> o_bthd{}, lse_bht{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.shape, s.queries, s.keys, s.begins, s.scale, s.dropout, s.window, s.softcap, s.random, s.inputs_1, s.qkv, s.kv, s.start_bt, s.end_bt, s.slope_h,
             s.o_bthd, s.lse_bht);
  }
  [[nodiscard]] constexpr double operations() const {  // two products
    const double pairs = end_bt.empty() ? causal_pairs(queries, keys) : static_cast<double>(queries.count * keys.count);
    return 4.0 * static_cast<double>(shape.b * shape.h * shape.d) * pairs;
  }
};

/// A key block's part of the gradients, for final o and lse.
///   inputs_1, qkv, kv, start_bt, end_bt, slope_h    read, as in the forward
///   o_bthd, do_bthd   read      [b·queries.own, h·d]
///   lse_bht           read      [b, h, queries.own]
///   dq_bthd           updated   [b·queries.own, h·d], in accumulate: rows of the query block added to
///   dkv               updated   [b·keys.own, 2k·d], in accumulate: rows of the key block added to
template <class Memory, class T>
struct attention_block_backward {
  static constexpr std::string_view name = "attention_block_backward";
  template <class M>
  using on = attention_block_backward<M, T>;

  attention_shape shape{};
  position_block queries{}, keys{};
  double scale = 1.0;
  double dropout = 0.0;
  std::size_t window = 0;
  double softcap = 0.0;
  random_site random{};
  read<step_inputs, Memory> inputs_1{};
  read<T, Memory> qkv{}, kv{};
  read<token, Memory> start_bt{}, end_bt{};
  read<float, Memory> slope_h{};
  read<T, Memory> o_bthd{};
  read<accumulate_t<T>, Memory> lse_bht{};
  read<T, Memory> do_bthd{};
  updated<accumulate_t<T>, Memory> dq_bthd{}, dkv{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return f(s.shape, s.queries, s.keys, s.scale, s.dropout, s.window, s.softcap, s.random, s.inputs_1, s.qkv, s.kv, s.start_bt, s.end_bt, s.slope_h, s.o_bthd,
             s.lse_bht, s.do_bthd, s.dq_bthd, s.dkv);
  }
  [[nodiscard]] constexpr double operations() const {  // five products
    const double pairs = end_bt.empty() ? causal_pairs(queries, keys) : static_cast<double>(queries.count * keys.count);
    return 10.0 * static_cast<double>(shape.b * shape.h * shape.d) * pairs;
  }
};

}  // namespace xtrain::kernel
