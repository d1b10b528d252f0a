#pragma once

#include <xtrain/device/kernel/norm.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

namespace detail {

/// One value per row, to be broadcast over the row's channels.
template <class A>
[[nodiscard]] auto per_row(const array<A, 1>& x_n) {
  return xt::view(x_n, xt::all(), xt::newaxis());
}

}  // namespace detail

template <class T>
void run_kernel(reference_stream&, const kernel::rms_norm<host_memory, T>& k, scratch_span<host_memory>) {
  using acc = accumulate_t<T>;
  const auto x_nc = detail::values<acc>(k.x_nc, k.n, k.c);
  const auto weight_c = detail::values<acc>(k.weight_c, k.c);
  const array<acc, 1> rstd_n = acc{1} / xt::sqrt(xt::mean(xt::square(x_nc), {1}) + static_cast<acc>(k.epsilon));
  detail::store<1>(k.rstd_n, rstd_n);
  detail::store<2>(k.y_nc, x_nc * detail::per_row(rstd_n) * weight_c);
}

template <class T, class G>
void run_kernel(reference_stream&, const kernel::rms_norm_backward<host_memory, T, G>& k, scratch_span<host_memory>) {
  using acc = accumulate_t<T>;
  const auto weight_c = detail::values<acc>(k.weight_c, k.c);
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
void run_kernel(reference_stream&, const kernel::layer_norm<host_memory, T>& k, scratch_span<host_memory>) {
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
