#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include <xtrain/device/kernel/norm.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

namespace detail {

/// A value per row, broadcast over channels.
template <class A>
[[nodiscard]] auto per_row(const array<A, 1>& x_n) {
  return xt::view(x_n, xt::all(), xt::newaxis());
}

}  // namespace detail

template <class T>
void run_kernel(reference_stream&, const kernel::rms_norm<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<8>(k);
  using acc = accumulate_t<T>;
  const auto x_nc = detail::values<acc>(k.x_nc, k.n, k.c);
  const array<acc, 1> weight_c = static_cast<acc>(k.offset) + detail::values<acc>(k.weight_c, k.c);
  const array<acc, 1> rstd_n = acc{1} / xt::sqrt(xt::mean(xt::square(x_nc), {1}) + static_cast<acc>(k.epsilon));
  detail::store<1>(k.rstd_n, rstd_n);
  detail::store<2>(k.y_nc, x_nc * detail::per_row(rstd_n) * weight_c);
}

template <class T, class G>
void run_kernel(reference_stream&, const kernel::rms_norm_backward<host_memory, T, G>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  using acc = accumulate_t<T>;
  const array<acc, 1> weight_c = static_cast<acc>(k.offset) + detail::values<acc>(k.weight_c, k.c);
  const auto rstd_n = detail::values<acc>(k.rstd_n, k.n);
  const auto dy_nc = detail::values<acc>(k.dy_nc, k.n, k.c);
  const array<acc, 2> xhat_nc = detail::values<acc>(k.x_nc, k.n, k.c) * detail::per_row(rstd_n);
  const array<acc, 2> g_nc = dy_nc * weight_c;
  // forward: y = x̂ · weight
  const array<acc, 1> mean_gx_n = xt::mean(g_nc * xhat_nc, {1});
  detail::store_added<2>(k.dx_nc, detail::per_row(rstd_n) * (g_nc - xhat_nc * detail::per_row(mean_gx_n)));
  if (!k.dweight_c.empty()) detail::store_added<1>(k.dweight_c, xt::sum(dy_nc * xhat_nc, {0}));
}

template <class T>
void run_kernel(reference_stream&, const kernel::head_norm<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<10>(k);
  using acc = accumulate_t<T>;
  for (std::size_t i = 0; i < k.n; ++i) {
    const T* x = k.x_nr.raw() + i * k.row();
    T* y = k.y_nr.raw() + i * k.row();
    for (std::size_t head = 0; head < k.h + k.k; ++head, x += k.d, y += k.d) {
      const T* weight = head < k.h ? k.query_d.raw() : k.key_d.raw();
      acc squares{0};
      for (std::size_t j = 0; j < k.d; ++j) squares += static_cast<acc>(x[j]) * static_cast<acc>(x[j]);
      const acc rstd = acc{1} / std::sqrt(squares / static_cast<acc>(k.d) + static_cast<acc>(k.epsilon));
      k.rstd_nh.data()[i * (k.h + k.k) + head] = rstd;
      for (std::size_t j = 0; j < k.d; ++j) y[j] = static_cast<T>(static_cast<acc>(x[j]) * rstd * static_cast<acc>(weight[j]));
    }
    for (std::size_t j = 0; j < k.k * k.d; ++j) y[j] = x[j];  // copies values
  }
}

template <class T, class G>
void run_kernel(reference_stream&, const kernel::head_norm_backward<host_memory, T, G>& k, scratch_span<host_memory>) {
  kernel::check_arity<12>(k);
  using acc = accumulate_t<T>;
  std::vector<acc> dquery(k.d, acc{0}), dkey(k.d, acc{0});
  for (std::size_t i = 0; i < k.n; ++i) {
    const T* x = k.x_nr.raw() + i * k.row();
    const T* dy = k.dy_nr.raw() + i * k.row();
    T* dx = k.dx_nr.raw() + i * k.row();
    for (std::size_t head = 0; head < k.h + k.k; ++head, x += k.d, dy += k.d, dx += k.d) {
      const T* weight = head < k.h ? k.query_d.raw() : k.key_d.raw();
      std::vector<acc>& dweight = head < k.h ? dquery : dkey;
      const acc rstd = k.rstd_nh.data()[i * (k.h + k.k) + head];
      acc gx{0};
      for (std::size_t j = 0; j < k.d; ++j)
        gx += static_cast<acc>(dy[j]) * static_cast<acc>(weight[j]) * static_cast<acc>(x[j]) * rstd;
      for (std::size_t j = 0; j < k.d; ++j) {
        const acc xhat = static_cast<acc>(x[j]) * rstd, d = static_cast<acc>(dy[j]);
        dweight[j] += d * xhat;
        dx[j] = static_cast<T>(rstd * (d * static_cast<acc>(weight[j]) - xhat * gx / static_cast<acc>(k.d)));
      }
    }
    for (std::size_t j = 0; j < k.k * k.d; ++j) dx[j] = dy[j];  // copies values
  }
  if (k.dquery_d.empty()) return;
  for (std::size_t j = 0; j < k.d; ++j) {
    k.dquery_d.data()[j] = static_cast<G>(static_cast<acc>(k.dquery_d.data()[j]) + dquery[j]);
    k.dkey_d.data()[j] = static_cast<G>(static_cast<acc>(k.dkey_d.data()[j]) + dkey[j]);
  }
}

template <class T>
void run_kernel(reference_stream&, const kernel::layer_norm<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<9>(k);
  using acc = accumulate_t<T>;
  const auto x_nc = detail::values<acc>(k.x_nc, k.n, k.c);
  const auto weight_c = detail::values<acc>(k.weight_c, k.c);
  const auto bias_c = detail::values<acc>(k.bias_c, k.c);
  const array<acc, 1> mean_n = xt::mean(x_nc, {1});
  const array<acc, 2> deviation_nc = x_nc - detail::per_row(mean_n);
  const array<acc, 1> rstd_n = acc{1} / xt::sqrt(xt::mean(xt::square(deviation_nc), {1}) + static_cast<acc>(k.epsilon));
  detail::store<1>(k.mean_n, mean_n);
  detail::store<1>(k.rstd_n, rstd_n);
  detail::store<2>(k.y_nc, deviation_nc * detail::per_row(rstd_n) * weight_c + bias_c);
}

template <class T, class G>
void run_kernel(reference_stream&, const kernel::layer_norm_backward<host_memory, T, G>& k, scratch_span<host_memory>) {
  kernel::check_arity<10>(k);
  using acc = accumulate_t<T>;
  const auto weight_c = detail::values<acc>(k.weight_c, k.c);
  const auto mean_n = detail::values<acc>(k.mean_n, k.n);
  const auto rstd_n = detail::values<acc>(k.rstd_n, k.n);
  const auto dy_nc = detail::values<acc>(k.dy_nc, k.n, k.c);
  const array<acc, 2> xhat_nc = (detail::values<acc>(k.x_nc, k.n, k.c) - detail::per_row(mean_n)) * detail::per_row(rstd_n);
  const array<acc, 2> g_nc = dy_nc * weight_c;
  // forward: y = x̂ · weight + bias
  const array<acc, 1> mean_g_n = xt::mean(g_nc, {1});
  const array<acc, 1> mean_gx_n = xt::mean(g_nc * xhat_nc, {1});
  detail::store_added<2>(k.dx_nc, detail::per_row(rstd_n) * (g_nc - detail::per_row(mean_g_n) - xhat_nc * detail::per_row(mean_gx_n)));
  if (!k.dweight_c.empty()) detail::store_added<1>(k.dweight_c, xt::sum(dy_nc * xhat_nc, {0}));
  if (!k.dbias_c.empty()) detail::store_added<1>(k.dbias_c, xt::sum(dy_nc, {0}));
}

}  // namespace xtrain
