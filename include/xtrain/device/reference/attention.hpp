#pragma once

#include <cmath>
#include <limits>

#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

namespace detail {

/// A head's probabilities p_ij before dropout, and dropout factors.
template <class T>
struct reference_attention_head {
  using acc = accumulate_t<T>;
  array<acc, 2> q_td, k_td, v_td;
  array<acc, 2> p_tt;     // zero where i does not attend to j
  array<acc, 2> kept_tt;  // 0, or 1 / (1 − dropout)
  array<acc, 1> lse_t;
  array<acc, 2> slope_tt{};  // derivative of the softcap; empty: no softcap
};

template <class T, class Kernel>
[[nodiscard]] reference_attention_head<T> attend(const Kernel& k, std::size_t b, std::size_t h) {
  using acc = accumulate_t<T>;
  const kernel::attention_shape& s = k.shape;
  const std::size_t group = h / (s.h / s.k);
  const std::array<std::size_t, 2> square{s.t, s.t};
  const auto part = [&](std::size_t column) {
    return strided_values<acc>(k.qkv.subspan(b * s.t * s.row() + column, (s.t - 1) * s.row() + s.d), s.t, s.d, s.row());
  };
  reference_attention_head<T> head{part(h * s.d),
                                   part(s.key_offset() + group * s.d),
                                   part(s.value_offset() + group * s.d),
                                   xt::zeros<acc>(square),
                                   xt::ones<acc>(square),
                                   xt::zeros<acc>(std::array<std::size_t, 1>{s.t})};
  array<acc, 2> score_tt = static_cast<acc>(k.scale) * product_transposed(head.q_td, head.k_td);
  if (k.softcap != 0.0) {
    const acc cap = static_cast<acc>(k.softcap);
    const array<acc, 2> capped_tt = xt::tanh(score_tt / cap);
    score_tt = cap * capped_tt;
    head.slope_tt = acc{1} - capped_tt * capped_tt;
  }
  const std::uint32_t threshold = dropout_threshold(k.dropout);
  const acc kept = k.dropout < 1.0 ? static_cast<acc>(1.0 / (1.0 - k.dropout)) : acc{0};
  for (std::size_t i = 0; i < s.t; ++i) {
    const std::size_t sample = k.start_bt.empty() ? 0 : static_cast<std::size_t>(k.start_bt.data()[b * s.t + i]);
    const std::size_t start = kernel::first_seen(sample, k.window, i);
    const std::size_t end = kernel::end_seen(k.end_bt.raw(), b * s.t + i, i);
    if (!k.slope_h.empty())
      for (std::size_t j = start; j < end; ++j)
        score_tt(i, j) -= static_cast<acc>(k.slope_h.data()[h]) * (static_cast<acc>(i) - static_cast<acc>(j));
    acc largest = -std::numeric_limits<acc>::infinity();
    for (std::size_t j = start; j < end; ++j) largest = std::max(largest, score_tt(i, j));
    acc sum{0};
    for (std::size_t j = start; j < end; ++j) sum += std::exp(score_tt(i, j) - largest);
    head.lse_t(i) = largest + std::log(sum);
    for (std::size_t j = start; j < end; ++j) {
      head.p_tt(i, j) = std::exp(score_tt(i, j) - head.lse_t(i));
      if (k.dropout > 0.0) {
        const std::uint64_t element = (s.head_of_all(k.random.first + b, h) * s.t + i) * s.t + j;
        random_site site = kernel::random_of(k);
        site.first = 0;
        head.kept_tt(i, j) = random_word(site, element) >= threshold ? kept : acc{0};
      }
    }
  }
  return head;
}

}  // namespace detail

template <class T>
void run_kernel(reference_stream&, const kernel::attention<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<13>(k);
  using acc = accumulate_t<T>;
  const kernel::attention_shape& s = k.shape;
  for (std::size_t b = 0; b < s.b; ++b) {
    for (std::size_t h = 0; h < s.h; ++h) {
      const auto head = detail::attend<T>(k, b, h);
      const array<acc, 2> o_td = detail::product_transposed<acc>(head.p_tt * head.kept_tt, xt::transpose(head.v_td));
      for (std::size_t i = 0; i < s.t; ++i) {
        for (std::size_t j = 0; j < s.d; ++j) k.o_bthd.data()[((b * s.t + i) * s.h + h) * s.d + j] = static_cast<T>(o_td(i, j));
        k.lse_bht.data()[(b * s.h + h) * s.t + i] = head.lse_t(i);
      }
    }
  }
}

template <class T>
void run_kernel(reference_stream&, const kernel::attention_backward<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<15>(k);
  using acc = accumulate_t<T>;
  const kernel::attention_shape& s = k.shape;
  const std::size_t rows = s.b * s.t;
  array<acc, 2> dqkv(std::array<std::size_t, 2>{rows, s.row()});
  dqkv.fill(acc{0});
  for (std::size_t b = 0; b < s.b; ++b) {
    for (std::size_t h = 0; h < s.h; ++h) {
      const std::size_t group = h / (s.h / s.k);
      const auto head = detail::attend<T>(k, b, h);
      const std::size_t first = (b * s.t * s.h + h) * s.d;
      const std::size_t length = (s.t - 1) * s.h * s.d + s.d;
      const auto o_td = detail::strided_values<acc>(k.o_bthd.subspan(first, length), s.t, s.d, s.h * s.d);
      const auto do_td = detail::strided_values<acc>(k.do_bthd.subspan(first, length), s.t, s.d, s.h * s.d);
      // forward: o = (p · kept) v
      const array<acc, 2> dp_tt = detail::product_transposed<acc>(do_td, head.v_td) * head.kept_tt;
      const array<acc, 2> kept_p_tt = head.p_tt * head.kept_tt;
      const array<acc, 2> dv_td = detail::product_transposed<acc>(xt::transpose(kept_p_tt), xt::transpose(do_td));
      // forward: p = softmax(s), s = scale · q kᵀ, or softcap · tanh(scale · q kᵀ / softcap)
      const array<acc, 1> d_t = xt::sum(do_td * o_td, {1});
      array<acc, 2> ds_tt = static_cast<acc>(k.scale) * head.p_tt * (dp_tt - xt::view(d_t, xt::all(), xt::newaxis()));
      if (k.softcap != 0.0) ds_tt *= head.slope_tt;
      const array<acc, 2> dq_td = detail::product_transposed<acc>(ds_tt, xt::transpose(head.k_td));
      const array<acc, 2> dk_td = detail::product_transposed<acc>(xt::transpose(ds_tt), xt::transpose(head.q_td));
      for (std::size_t i = 0; i < s.t; ++i) {
        for (std::size_t j = 0; j < s.d; ++j) {
          dqkv(b * s.t + i, h * s.d + j) += dq_td(i, j);
          dqkv(b * s.t + i, s.key_offset() + group * s.d + j) += dk_td(i, j);
          dqkv(b * s.t + i, s.value_offset() + group * s.d + j) += dv_td(i, j);
        }
      }
    }
  }
  detail::store<2>(k.dqkv, dqkv);
}

template <class T>
void run_kernel(reference_stream&, const kernel::cached_attention<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<12>(k);
  using acc = accumulate_t<T>;
  const kernel::attention_shape& s = k.shape;
  for (std::size_t b = 0; b < s.b; ++b) {
    const auto before = static_cast<std::size_t>(k.length_b.data()[b]);
    for (std::size_t i = 0; i < s.t; ++i) {
      for (std::size_t g = 0; g < s.k; ++g) {
        for (std::size_t j = 0; j < s.d; ++j) {
          const std::size_t row = (b * s.t + i) * s.row() + g * s.d + j;
          const std::size_t index = ((b * s.k + g) * k.capacity + before + i) * s.d + j;
          k.k_cache.data()[index] = k.qkv.data()[row + s.key_offset()];
          k.v_cache.data()[index] = k.qkv.data()[row + s.value_offset()];
        }
      }
    }
    for (std::size_t h = 0; h < s.h; ++h) {
      const std::size_t cache = (b * s.k + h / (s.h / s.k)) * k.capacity * s.d;
      const std::size_t longest = before + s.t;
      const auto k_td = detail::values<acc>(k.k_cache.subspan(cache, longest * s.d), longest, s.d);
      const auto v_td = detail::values<acc>(k.v_cache.subspan(cache, longest * s.d), longest, s.d);
      for (std::size_t i = 0; i < s.t; ++i) {
        const auto q_1d = detail::values<acc>(k.qkv.subspan((b * s.t + i) * s.row() + h * s.d, s.d), std::size_t{1}, s.d);
        const std::size_t now = before + i, first = kernel::first_seen(0, k.window, now);
        const std::size_t end = kernel::end_seen(k.end_bt.raw(), b * s.t + i, now);
        const array<acc, 2> k_seen = xt::view(k_td, xt::range(first, end), xt::all());
        const array<acc, 2> v_seen = xt::view(v_td, xt::range(first, end), xt::all());
        array<acc, 2> score_1t = static_cast<acc>(k.scale) * detail::product_transposed(q_1d, k_seen);
        if (k.softcap != 0.0) score_1t = static_cast<acc>(k.softcap) * xt::tanh(score_1t / static_cast<acc>(k.softcap));
        if (!k.slope_h.empty())
          for (std::size_t j = first; j < end; ++j)
            score_1t(0, j - first) -= static_cast<acc>(k.slope_h.data()[h]) * (static_cast<acc>(now) - static_cast<acc>(j));
        const array<acc, 2> weight_1t = xt::exp(score_1t - xt::amax(score_1t)());
        const array<acc, 2> o_1d = detail::product_transposed<acc>(weight_1t / xt::sum(weight_1t)(), xt::transpose(v_seen));
        detail::store<2>(k.o_bthd.subspan(((b * s.t + i) * s.h + h) * s.d, s.d), o_1d);
      }
    }
  }
}

}  // namespace xtrain
