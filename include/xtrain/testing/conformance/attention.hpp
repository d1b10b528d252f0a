// Conformance cases: attention over entire sequences, with a cache, and over blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/attention_block.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

template <class T, class Suite>
void check_attention(Suite& suite) {
  using acc = accumulate_t<T>;
  static constexpr kernel::step_inputs inputs{.number = 3};
  const std::array<kernel::attention_shape, 9> shapes{{{1, 1, 1, 1, 1},
                                                       {2, 5, 2, 1, 6},
                                                       {1, 67, 4, 2, 16},
                                                       {2, 130, 3, 3, 10},
                                                       {1, 150, 2, 1, 64},
                                                       {1, 200, 1, 1, 16},
                                                       {1, 70, 2, 1, 128},
                                                       {1, 40, 2, 1, 200},
                                                       {1, 35, 1, 1, 256}}};
  for (const kernel::attention_shape& s : shapes) {
    const std::size_t rows = s.b * s.t;
    const auto terms = static_cast<double>(s.t + s.d);
    // 16-bit products may first round the probabilities to 16 bits
    const double rounding = 1.0 + 0.01 * (dtype_traits<T>::unit_roundoff / dtype_traits<acc>::unit_roundoff - 1.0);
    // plain, packed with dropout, window with slopes; the same with ends; with a softcap; keys without queries; any ranges
    for (int variant = 0; variant < 11; ++variant) {
      if (s.d > 64 && variant % 4 != 0) continue;  // wide heads: plain, packed with ends, a window with a softcap
      const bool packed = variant % 3 == 1 && variant < 9, windowed = variant % 3 == 2,
                 padded = variant == 9, any = variant == 10, ends = variant / 3 == 1 || padded || any;
      const double softcap = variant / 3 == 2 ? 1.5 : 0.0;
      case_memory mem;
      const double dropout = packed ? 0.2 : 0.0;
      // 188: a tile of 64 keys is in the windows of all but the last queries of a tile
      const std::size_t window = !windowed ? 0 : s.t == 200 ? 188 : s.t / 4 + 1;
      device_span<float, host_memory> slopes{};
      if (windowed) {
        slopes = mem.fresh<float>(s.h);
        for (std::size_t h = 0; h < s.h; ++h) slopes.raw()[h] = 0.5f / static_cast<float>(h + 1);
      }
      device_span<token, host_memory> start{};
      if (packed) {  // two samples per sequence, split at an odd position
        start = mem.fresh<token>(rows);
        for (std::size_t i = 0; i < rows; ++i) start.raw()[i] = static_cast<token>(i % s.t < s.t / 3 ? 0 : s.t / 3);
      }
      device_span<token, host_memory> end{};
      if (ends) {  // packed: the sample's end, or one position before it; else every query attends to at least half of the sequence
        end = mem.fresh<token>(rows);
        for (std::size_t i = 0; i < rows; ++i) {
          const std::size_t now = i % s.t, sample = packed && now < s.t / 3 ? s.t / 3 : s.t;
          const std::size_t seen = padded ? s.t / 3 + 1 : packed ? (i % 2 == 0 || sample < 2 ? sample : sample - 1) : std::max(now + 1, s.t / 2);
          end.raw()[i] = static_cast<token>(seen);
        }
      }
      if (any) {
        start = mem.tokens(rows, s.t);
        for (std::size_t i = 0; i < rows; ++i) {
          const auto last = static_cast<token>(s.t), number = static_cast<token>(i);
          if (i % s.t < 64) {  // a few keys
            start.raw()[i] = std::clamp(start.raw()[i], token{0}, last - 1);
            end.raw()[i] = std::min(last, start.raw()[i] + 1 + number * 7 % 50);
          } else {  // nearly all, and all for every eighth query
            start.raw()[i] = i % 8 == 0 ? 0 : number * 7 % 9;
            end.raw()[i] = i % 8 == 0 ? last : last - number * 5 % 21;
          }
        }
      }
      kernel::attention<host_memory, T> forward{
          .shape = s, .scale = 0.5, .dropout = dropout, .window = window, .softcap = softcap,
          .random = {.seed = 3, .step = 1, .site = 4, .first = 2}};
      if (packed) forward.inputs_1 = span_of(&inputs, 1);
      forward.slope_h = slopes;
      forward.qkv = mem.numbers<T>(rows * s.row());
      forward.start_bt = start;
      forward.end_bt = end;
      forward.o_bthd = mem.numbers<T>(rows * s.h * s.d);
      forward.lse_bht = mem.numbers<acc>(rows * s.h);
      suite.template check_kernel<T>(forward, terms, 4.0 * rounding);
      kernel::attention_backward<host_memory, T> backward{
          .shape = s, .scale = 0.5, .dropout = dropout, .window = window, .softcap = softcap, .random = forward.random};
      backward.inputs_1 = forward.inputs_1;
      backward.slope_h = slopes;
      backward.qkv = forward.qkv;
      backward.start_bt = forward.start_bt;
      backward.end_bt = forward.end_bt;
      backward.o_bthd = device_span<const T, host_memory>(forward.o_bthd);
      backward.lse_bht = device_span<const acc, host_memory>(forward.lse_bht);
      backward.do_bthd = mem.numbers<T>(rows * s.h * s.d);
      backward.dqkv = mem.numbers<T>(rows * s.row());
      suite.template check_kernel<T>(backward, terms, 8.0 * std::sqrt(static_cast<double>(s.t)) * rounding);
      if (packed || any) continue;
      kernel::cached_attention<host_memory, T> cached{.shape = s, .capacity = s.t + 9, .scale = 0.5, .window = window, .softcap = softcap};
      cached.slope_h = slopes;
      cached.qkv = mem.numbers<T>(rows * s.row());
      const auto length = mem.fresh<token>(s.b);
      for (std::size_t b = 0; b < s.b; ++b) length.raw()[b] = static_cast<token>(4 + 5 * b);
      cached.length_b = length;
      if (ends) {  // counted from the beginning of the cache
        const auto cache_end = mem.fresh<token>(rows);
        for (std::size_t i = 0; i < rows; ++i) cache_end.raw()[i] = end.raw()[i] + length.raw()[i / s.t];
        cached.end_bt = cache_end;
      }
      cached.k_cache = mem.numbers<T>(s.b * s.k * cached.capacity * s.d);
      cached.v_cache = mem.numbers<T>(s.b * s.k * cached.capacity * s.d);
      cached.o_bthd = mem.numbers<T>(rows * s.h * s.d);
      suite.template check_kernel<T>(cached, terms, 4.0 * rounding);
    }
  }
}

/// Blocks of sequences: diagonal, unmasked, partly masked, reduced by a window or packing to a part, or to nothing.
template <class T, class Suite>
void check_attention_blocks(Suite& suite) {
  using acc = accumulate_t<T>;
  static constexpr kernel::step_inputs inputs{.number = 3};
  struct blocks {
    kernel::attention_shape shape;
    kernel::position_block queries, keys;
  };
  const std::array<blocks, 7> all{{{{2, 12, 2, 1, 6}, {5, 0, 4, 5}, {6, 1, 4, 5}},
                                   {{1, 280, 4, 2, 16}, {140, 73, 200, 67}, {130, 0, 0, 130}},
                                   {{2, 300, 3, 3, 10}, {150, 20, 100, 130}, {140, 5, 60, 135}},
                                   {{1, 300, 2, 1, 16}, {70, 0, 200, 70}, {40, 0, 0, 40}},
                                   {{1, 400, 2, 1, 64}, {160, 0, 240, 150}, {170, 10, 90, 155}},
                                   {{1, 150, 2, 1, 128}, {75, 3, 70, 66}, {80, 5, 4, 70}},
                                   {{1, 100, 1, 1, 200}, {50, 0, 50, 40}, {50, 5, 5, 42}}}};
  for (const auto& [s, queries, keys] : all) {
    const double terms = static_cast<double>(keys.count + s.d);
    const double rounding = 1.0 + 0.01 * (dtype_traits<T>::unit_roundoff / dtype_traits<acc>::unit_roundoff - 1.0);
    for (int variant = s.d > 64 ? 3 : 0; variant < 5; ++variant) {  // plain, packed with dropout, window with slopes, ends; window with a softcap
      case_memory mem;
      kernel::attention_block<host_memory, T> forward{.shape = s,
                                                      .queries = queries,
                                                      .keys = keys,
                                                      .begins = queries.first == keys.first && variant % 2 == 0,
                                                      .scale = 0.5,
                                                      .dropout = variant == 1 ? 0.2 : 0.0,
                                                      .window = variant == 2 || variant == 4 ? s.t / 3 : 0,
                                                      .softcap = variant == 4 ? 1.5 : 0.0,
                                                      .random = {.seed = 3, .step = 1, .site = 4, .first = 2}};
      if (variant == 1) forward.inputs_1 = span_of(&inputs, 1);
      if (variant == 1 || variant == 3) {
        const auto bounds = mem.fresh<token>(s.b * s.t);
        for (std::size_t i = 0; i < bounds.size(); ++i) {
          const std::size_t now = i % s.t, sample = now < s.t / 2 ? 0 : s.t / 2;
          bounds.raw()[i] = static_cast<token>(variant == 1 ? sample : std::max(now + 1, s.t / 2));
        }
        (variant == 1 ? forward.start_bt : forward.end_bt) = device_span<const token, host_memory>(bounds);
      }
      if (variant == 2) {
        const auto slopes = mem.fresh<float>(s.h);
        for (std::size_t h = 0; h < s.h; ++h) slopes.raw()[h] = 0.5f / static_cast<float>(h + 1);
        forward.slope_h = slopes;
      }
      forward.qkv = mem.numbers<T>(s.b * queries.own * s.row());
      forward.kv = mem.numbers<T>(s.b * keys.own * 2 * s.k * s.d);
      forward.o_bthd = mem.numbers<acc>(s.b * queries.own * s.h * s.d);
      forward.lse_bht = mem.numbers<acc>(s.b * queries.own * s.h, 3.0, 6.0);
      suite.template check_kernel<T>(forward, terms, 8.0 * rounding);  // lse up to log(exp(6) + keys)
      kernel::attention_block_backward<host_memory, T> backward{.shape = s,
                                                                .queries = queries,
                                                                .keys = keys,
                                                                .scale = 0.5,
                                                                .dropout = forward.dropout,
                                                                .window = forward.window,
                                                                .softcap = forward.softcap,
                                                                .random = forward.random};
      backward.inputs_1 = forward.inputs_1;
      backward.qkv = forward.qkv;
      backward.kv = forward.kv;
      backward.start_bt = forward.start_bt;
      backward.end_bt = forward.end_bt;
      backward.slope_h = forward.slope_h;
      backward.o_bthd = mem.numbers<T>(s.b * queries.own * s.h * s.d);
      backward.lse_bht = mem.numbers<acc>(s.b * queries.own * s.h, 4.0, 7.0);
      backward.do_bthd = mem.numbers<T>(s.b * queries.own * s.h * s.d);
      backward.dq_bthd = mem.numbers<acc>(s.b * queries.own * s.h * s.d);
      backward.dkv = mem.numbers<acc>(s.b * keys.own * 2 * s.k * s.d);
      suite.template check_kernel<T>(backward, terms, 2.0 * std::sqrt(static_cast<double>(s.t)) * rounding);
    }
  }
}

}  // namespace xtrain::testing::detail
