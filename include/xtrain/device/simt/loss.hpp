// Head and loss: logits of a chunk by a product, loss and gradient by a block per row, then the backward's products.
#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/device/kernel/loss.hpp>
#include <xtrain/device/simt/column_sum.hpp>
#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/launch.hpp>
#include <xtrain/device/simt/matmul.hpp>
#include <xtrain/device/simt/softmax_row.hpp>

namespace xtrain {

namespace simt {

/// Settings in fp32.
struct cross_entropy_settings {
  float z_loss, label_smoothing, log_z_loss, softcap;
  double gradient_scale;
  const double* gradient_factor;  // null: 1
};

template <class T, bool WithGradient>
struct cross_entropy_rows {
  static constexpr int threads = 256;
  using shared = softmax_shared<threads>;
  const float* logits;  // [rows, stride], before the softcap
  T* dlogits;           // [rows, stride]
  const token* target;
  const float* token_weight;
  float* loss;
  int v;
  std::size_t stride;
  cross_entropy_settings settings;

  XTRAIN_SIMT_FN float bounded(float x) const { return settings.softcap > 0 ? settings.softcap * tanh(x / settings.softcap) : x; }

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const auto row = static_cast<std::size_t>(block_x());
    const float* const x_v = logits + row * stride;
    T* const d_v = dlogits + row * stride;
    const int label = target[row];
    const float weight = token_weight != nullptr ? token_weight[row] : 1.0f;
    if (label < 0 || label >= v || weight == 0.0f) {
      if (WithGradient)
        for (int j = thread(); j < v; j += threads) d_v[j] = rounded<T>(0.0f);
      if (thread() == 0) loss[row] = 0;
      return;
    }
    float total = 0;
    const softmax_state all = softmax_of_row<threads>(
        v, [&](int j) { return bounded(x_v[j]); }, total, s);
    const float log_sum = all.largest + log(all.sum), smoothing = settings.label_smoothing, of_each = smoothing / static_cast<float>(v);
    if (thread() == 0) {
      const float x = bounded(x_v[label]);
      loss[row] = weight * (log_sum - (1.0f - smoothing) * x - (smoothing > 0 ? of_each * total : 0.0f) +
                            settings.z_loss * all.largest * all.largest + settings.log_z_loss * log_sum * log_sum);
    }
    if constexpr (WithGradient) {
      const double factor =
          settings.gradient_factor != nullptr ? settings.gradient_scale * *settings.gradient_factor : settings.gradient_scale;
      const float scale = static_cast<float>(factor) * weight, of_softmax = 1.0f + 2.0f * settings.log_z_loss * log_sum;
      for (int j = thread(); j < v; j += threads) {
        const float x = bounded(x_v[j]);
        float d = exp(x - log_sum) * of_softmax - of_each;
        if (j == label) d -= 1.0f - smoothing;
        if (j == all.place) d += 2.0f * settings.z_loss * all.largest;
        if (settings.softcap > 0) d *= 1.0f - x / settings.softcap * (x / settings.softcap);
        d_v[j] = rounded<T>(scale * d);
      }
    }
  }
};

/// Elements per chunk of logits: 512 MiB of fp32; less in tests.
inline std::size_t logit_elements = std::size_t{128} << 20;
/// Rows per chunk, in tiles of 128. A chunk reads all weights twice and updates all their gradients: with fewer rows this is slower than products for a
/// vocabulary of 150,000, and dx has fewer tiles than a GPU has processors.
[[nodiscard]] inline std::size_t logit_rows(std::size_t n, std::size_t v) {
  const std::size_t rows = std::max<std::size_t>(logit_elements / std::max<std::size_t>(v, 1) / 128 * 128, 128);
  return std::min(n, rows);
}
/// A multiple of 16 elements aligns rows of any vocabulary.
[[nodiscard]] constexpr std::size_t logit_stride(std::size_t v) { return parts_of(v, 16) * 16; }

/// Begins of the scratch memory's parts.
struct head_scratch {
  std::size_t logits, dlogits, columns, bytes;
};
template <class T>
[[nodiscard]] head_scratch head_scratch_of(std::size_t n, std::size_t v, bool with_gradient) {
  const std::size_t elements = logit_rows(n, v) * logit_stride(v);
  head_scratch at{0, elements * sizeof(float), 0, 0};
  at.columns = at.dlogits + (with_gradient ? elements * sizeof(T) : 0);
  at.columns = parts_of(at.columns, 16) * 16;
  at.bytes = at.columns + (with_gradient ? column_scratch_bytes(v) : 0);
  return at;
}

}  // namespace simt

template <simt::launches S, class M, class T, class G>
requires(simt::up_to_float<T>&& simt::up_to_float<G>) void run_kernel(S& stream, const kernel::linear_cross_entropy<M, T, G>& k,
                                                                      scratch_span<M> scratch) {
  kernel::check_arity<19>(k);
  using simt::narrowed;
  const auto at = simt::head_scratch_of<T>(k.n, k.v, k.with_gradient);
  const std::size_t chunk = simt::logit_rows(k.n, k.v), stride = simt::logit_stride(k.v);
  auto* const logits = reinterpret_cast<float*>(scratch.raw() + at.logits);
  auto* const dlogits = reinterpret_cast<T*>(scratch.raw() + at.dlogits);
  const simt::cross_entropy_settings settings{narrowed(k.z_loss), narrowed(k.label_smoothing), narrowed(k.log_z_loss), narrowed(k.softcap),
                                              k.gradient_scale,   k.gradient_factor_1.raw()};
  const auto span = [](auto* from, std::size_t size) { return span_of<std::remove_pointer_t<decltype(from)>, M>(from, size); };
  for (std::size_t first = 0; first < k.n; first += chunk) {
    const std::size_t rows = std::min(chunk, k.n - first);
    const auto x = k.x_nc.subspan(first * k.c, rows * k.c);
    // logits = x · weightᵀ + bias
    run_kernel(stream,
               kernel::matmul<M, T, float>{.m = rows,
                                           .n = k.v,
                                           .k = k.c,
                                           .lda = k.c,
                                           .ldb = k.c,
                                           .ldc = stride,
                                           .transpose_b = true,
                                           .a = x,
                                           .b = k.weight_vc,
                                           .bias_n = k.bias_v,
                                           .c = span(logits, rows * stride)},
               scratch_span<M>{});
    const float* const weight = k.token_weight_n.empty() ? nullptr : k.token_weight_n.raw() + first;
    simt::choose(k.with_gradient, [&](auto with_gradient) {
      stream.launch(
          simt::cross_entropy_rows<T, decltype(with_gradient)::value>{logits, dlogits, k.target_n.raw() + first, weight,
                                                                      k.loss_n.raw() + first, static_cast<int>(k.v), stride, settings},
          {static_cast<int>(rows), 1, 1});
    });
    if (!k.with_gradient) continue;
    const auto d = span(static_cast<const T*>(dlogits), rows * stride);
    // dx = dlogits · weight
    run_kernel(stream,
               kernel::matmul<M, T, T>{.m = rows,
                                       .n = k.c,
                                       .k = k.v,
                                       .lda = stride,
                                       .ldb = k.c,
                                       .ldc = k.c,
                                       .a = d,
                                       .b = k.weight_vc,
                                       .c = k.dx_nc.subspan(first * k.c, rows * k.c)},
               scratch_span<M>{});
    // dweight += dlogitsᵀ · x
    if (!k.dweight_vc.empty())
      run_kernel(stream,
                 kernel::matmul<M, T, G>{.m = k.v,
                                         .n = k.c,
                                         .k = rows,
                                         .lda = stride,
                                         .ldb = k.c,
                                         .ldc = k.c,
                                         .transpose_a = true,
                                         .accumulate = true,
                                         .a = d,
                                         .b = x,
                                         .c = k.dweight_vc},
                 scratch_span<M>{});
    if (!k.dbias_v.empty())
      run_kernel(stream, kernel::column_sum<M, T, G>{.n = rows, .c = k.v, .stride = stride, .x_nc = d, .sum_c = k.dbias_v},
                 scratch.subspan(at.columns, at.bytes - at.columns));
  }
}
template <simt::of_simt_device P, class M, class T, class G>
requires simt::up_to_float<T>
[[nodiscard]] std::size_t scratch_bytes(const P&, const kernel::linear_cross_entropy<M, T, G>& k) {
  return simt::head_scratch_of<T>(k.n, k.v, k.with_gradient).bytes;
}

}  // namespace xtrain
