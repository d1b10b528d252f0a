#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <xtrain/device/kernel/attention_block.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

namespace detail {

/// A query of a head, and scores of the block's visible keys.
template <class T, class Kernel>
struct block_query {
  using acc = accumulate_t<T>;
  const Kernel& kernel;
  std::size_t b, h, i;
  std::size_t position = 0, from = 0, to = 0;  // the query; its keys in the block
  std::vector<acc> score{};
  std::vector<acc> slope{};  // derivative of the softcap; 1 without

  block_query(const Kernel& k, std::size_t row, std::size_t head, std::size_t query) : kernel(k), b(row), h(head), i(query) {
    const kernel::position_block& keys = k.keys;
    position = k.queries.first + i;
    const std::size_t of_row = b * k.shape.t + position;
    const std::size_t sample = k.start_bt.empty() ? 0 : static_cast<std::size_t>(k.start_bt.data()[of_row]);
    const auto in_block = [&](std::size_t seen) { return std::clamp(seen, keys.first, keys.end()) - keys.first; };
    from = in_block(kernel::first_seen(sample, k.window, position));
    to = in_block(k.end_bt.empty() ? position + 1 : static_cast<std::size_t>(k.end_bt.data()[of_row]));
    for (std::size_t j = from; j < to; ++j) {
      acc sum{0};
      for (std::size_t c = 0; c < k.shape.d; ++c) sum += static_cast<acc>(q()[c]) * static_cast<acc>(key(j)[c]);
      sum *= static_cast<acc>(k.scale);
      slope.push_back(acc{1});
      if (k.softcap != 0.0) {
        const acc capped = std::tanh(sum / static_cast<acc>(k.softcap));
        sum = static_cast<acc>(k.softcap) * capped;
        slope.back() = acc{1} - capped * capped;
      }
      if (!k.slope_h.empty())
        sum -= static_cast<acc>(k.slope_h.data()[h]) * (static_cast<acc>(position) - static_cast<acc>(keys.first + j));
      score.push_back(sum);
    }
  }

  [[nodiscard]] std::size_t row() const { return kernel.queries.row_of(b, i); }
  [[nodiscard]] std::size_t of_head() const { return kernel.queries.row_of(b, kernel.shape.h, h, i); }
  [[nodiscard]] std::size_t group() const { return h / (kernel.shape.h / kernel.shape.k); }
  /// Offset of key j in kv or its gradient; values follow all keys.
  [[nodiscard]] std::size_t key_at(std::size_t j) const {
    return (kernel.keys.row_of(b, j) * 2 * kernel.shape.k + group()) * kernel.shape.d;
  }
  [[nodiscard]] std::size_t value_at(std::size_t j) const { return key_at(j) + kernel.shape.k * kernel.shape.d; }
  [[nodiscard]] const T* q() const { return kernel.qkv.raw() + row() * kernel.shape.row() + h * kernel.shape.d; }
  [[nodiscard]] const T* key(std::size_t j) const { return kernel.kv.raw() + key_at(j); }
  [[nodiscard]] const T* value(std::size_t j) const { return kernel.kv.raw() + value_at(j); }
  [[nodiscard]] acc score_of(std::size_t j) const { return score[j - from]; }

  /// 0, or 1 / (1 − dropout): element j of the query's attention row.
  [[nodiscard]] acc kept(std::size_t j) const {
    if (kernel.dropout <= 0.0) return acc{1};
    if (kernel.dropout >= 1.0) return acc{0};
    const kernel::attention_shape& s = kernel.shape;
    const std::uint64_t element = (s.head_of_all(kernel.random.first + b, h) * s.t + position) * s.t + kernel.keys.first + j;
    random_site site = kernel::random_of(kernel);
    site.first = 0;
    return random_word(site, element) >= dropout_threshold(kernel.dropout) ? static_cast<acc>(1.0 / (1.0 - kernel.dropout)) : acc{0};
  }
};

/// work(query) for all queries, heads, sequences.
template <class T, class Kernel, class Work>
void for_each_block_query(const Kernel& k, Work&& work) {
  for (std::size_t b = 0; b < k.shape.b; ++b)
    for (std::size_t h = 0; h < k.shape.h; ++h)
      for (std::size_t i = 0; i < k.queries.count; ++i) work(block_query<T, Kernel>(k, b, h, i));
}

}  // namespace detail

template <class T>
void run_kernel(reference_stream&, const kernel::attention_block<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<17>(k);
  using acc = accumulate_t<T>;
  const std::size_t d = k.shape.d;
  detail::for_each_block_query<T>(k, [&](const auto& query) {
    acc& lse = k.lse_bht.raw()[query.of_head()];
    acc* const o = k.o_bthd.raw() + (query.row() * k.shape.h + query.h) * d;
    if (k.begins) {
      lse = -std::numeric_limits<acc>::infinity();
      std::fill_n(o, d, acc{0});
    }
    if (query.from >= query.to) return;
    const acc largest = std::max(lse, *std::max_element(query.score.begin(), query.score.end()));
    acc sum = std::exp(lse - largest);
    for (std::size_t c = 0; c < d; ++c) o[c] *= sum;
    for (std::size_t j = query.from; j < query.to; ++j) {
      const acc p = std::exp(query.score_of(j) - largest);
      sum += p;
      for (std::size_t c = 0; c < d; ++c) o[c] += p * query.kept(j) * static_cast<acc>(query.value(j)[c]);
    }
    for (std::size_t c = 0; c < d; ++c) o[c] /= sum;
    lse = largest + std::log(sum);
  });
}

template <class T>
void run_kernel(reference_stream&, const kernel::attention_block_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<19>(k);
  using acc = accumulate_t<T>;
  const std::size_t d = k.shape.d;
  detail::for_each_block_query<T>(k, [&](const auto& query) {
    const std::size_t at = (query.row() * k.shape.h + query.h) * d;
    const T *const o = k.o_bthd.raw() + at, *const d_o = k.do_bthd.raw() + at;
    acc delta{0};
    for (std::size_t c = 0; c < d; ++c) delta += static_cast<acc>(d_o[c]) * static_cast<acc>(o[c]);
    for (std::size_t j = query.from; j < query.to; ++j) {
      const acc p = std::exp(query.score_of(j) - k.lse_bht.raw()[query.of_head()]), kept = query.kept(j);
      // forward: o = (p · kept) v
      acc dp{0};
      for (std::size_t c = 0; c < d; ++c) {
        dp += static_cast<acc>(d_o[c]) * static_cast<acc>(query.value(j)[c]);
        k.dkv.raw()[query.value_at(j) + c] += p * kept * static_cast<acc>(d_o[c]);
      }
      // forward: p = softmax(s), s = scale · q kᵀ, or softcap · tanh(scale · q kᵀ / softcap)
      const acc ds = static_cast<acc>(k.scale) * p * (kept * dp - delta) * query.slope[j - query.from];
      for (std::size_t c = 0; c < d; ++c) {
        k.dq_bthd.raw()[at + c] += ds * static_cast<acc>(query.key(j)[c]);
        k.dkv.raw()[query.key_at(j) + c] += ds * static_cast<acc>(query.q()[c]);
      }
    }
  });
}

}  // namespace xtrain
