// Conformance cases: losses with unsharded and sharded vocabulary.
#pragma once

#include <array>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/loss.hpp>
#include <xtrain/device/kernel/split_loss.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

/// Weights of both signs and 0.
template <class A>
device_span<A, host_memory> some_weights(case_memory& mem, std::size_t n) {
  const auto all = mem.numbers<A>(n, -2.0, 2.0);
  all.raw()[n / 2] = A{0};
  return all;
}

/// A vocabulary sharded across three ranks; the second checks its shard.
template <class T, class Suite>
void check_divided_losses(Suite& suite) {
  using acc = accumulate_t<T>;
  constexpr std::size_t ranks = 3;
  for (const auto& [n, v] : {std::pair<std::size_t, std::size_t>{1, 1}, {7, 19}, {130, 67}, {5, 3000}}) {
    case_memory mem;
    kernel::softmax_part<host_memory, acc> part{.n = n, .v = v, .first = static_cast<token>(v)};
    const auto logits = mem.numbers<acc>(n * v, -8.0, 8.0);
    for (std::size_t i = 0; i < n; i += 3) logits.raw()[i * v] = acc{8};
    part.logits_nv = logits;
    part.target_n = mem.tokens(n, ranks * v);
    part.parts_pn = mem.numbers<acc>(3 * n);
    const double of_softmax = std::max(2.0, static_cast<double>(v) / 16.0);  // Σ exp(l − largest) of logits uniform in an interval of 16
    suite.template check_kernel<T>(part, static_cast<double>(v), of_softmax);
    part.parts = 4;
    part.parts_pn = mem.numbers<acc>(4 * n);
    suite.template check_kernel<T>(part, static_cast<double>(v), 8.0 * std::sqrt(static_cast<double>(v)));
    // from these logits; in every second row other ranks have the largest: sums are positive
    const auto parts_of = [&, rows = n, width = v](std::size_t parts) {
      const auto all = mem.numbers<acc>(ranks * parts * rows, 8.0, 9.0);
      for (std::size_t i = 0; i < rows; i += 2) {
        all.raw()[i] = all.raw()[2 * parts * rows + i] = acc{7};
        all.raw()[parts * rows + i] = *std::max_element(logits.raw() + i * width, logits.raw() + (i + 1) * width);
      }
      return all;
    };
    for (const bool with_gradient : {false, true}) {
      kernel::softmax_of_parts<host_memory, acc, T> whole{
          .n = n, .v = v, .rank = 1, .ranks = ranks, .vocab_size = ranks * v, .first = static_cast<token>(v), .gradient_scale = 0.125};
      whole.parts_rpn = parts_of(3);
      whole.target_n = part.target_n;
      whole.logits_nv = part.logits_nv;
      whole.loss_n = mem.numbers<acc>(n);
      if (with_gradient) whole.dlogits_nv = mem.numbers<T>(n * v);
      suite.template check_kernel<T>(whole, 8.0 * ranks, 32.0);
      whole.z_loss = 0.01;
      suite.template check_kernel<T>(whole, 8.0 * ranks, 32.0);
      whole.token_weight_n = some_weights<acc>(mem, n);
      suite.template check_kernel<T>(whole, 8.0 * ranks, 64.0);
      whole.label_smoothing = 0.1;
      whole.parts_rpn = parts_of(4);
      suite.template check_kernel<T>(whole, 8.0 * ranks, 64.0);
      whole.log_z_loss = 0.02;
      suite.template check_kernel<T>(whole, 8.0 * ranks, 64.0);
      whole.z_loss = whole.label_smoothing = 0.0;
      whole.parts_rpn = parts_of(3);
      suite.template check_kernel<T>(whole, 8.0 * ranks, 64.0);
    }
  }
}

template <class T, class Suite>
void check_losses(Suite& suite) {
  using acc = accumulate_t<T>;
  struct size {
    std::size_t n, c, v;
  };
  const std::array<size, 5> loss_sizes{{{1, 1, 2}, {7, 5, 19}, {360, 16, 67}, {9, 40, 130}, {5, 3, 9000}}};
  for (const size& s : loss_sizes) {
    const std::size_t n = s.n, c = s.c, v = s.v;
    // loss only, with a frozen weight, with everything; the same with a bias
    const auto check = [&]<class G>(int mode, bool weighted, double label_smoothing, double log_z_loss = 0.0, double softcap = 0.0) {
      case_memory mem;
      kernel::linear_cross_entropy<host_memory, T, G> kernel{.n = n,
                                                             .c = c,
                                                             .v = v,
                                                             .with_gradient = mode % 3 > 0,
                                                             .gradient_scale = 0.125,
                                                             .z_loss = mode == 1 ? 0.01 : 0.0,
                                                             .label_smoothing = label_smoothing,
                                                             .log_z_loss = log_z_loss,
                                                             .softcap = softcap};
      kernel.x_nc = mem.numbers<T>(n * c);
      kernel.weight_vc = mem.numbers<T>(v * c);
      kernel.target_n = mem.tokens(n, v);
      if (weighted) kernel.token_weight_n = some_weights<acc>(mem, n);
      kernel.loss_n = mem.numbers<acc>(n);
      if (kernel.with_gradient) kernel.dx_nc = mem.numbers<T>(n * c);
      if (mode % 3 == 2) kernel.dweight_vc = mem.numbers<G>(v * c);
      if (mode >= 3) kernel.bias_v = mem.numbers<T>(v);
      if (mode == 5) kernel.dbias_v = mem.numbers<G>(v);
      // a logit that is off by one rounding may round its gradient to a neighbor in T
      const double gradient_rounding = dtype_traits<T>::unit_roundoff / dtype_traits<acc>::unit_roundoff;
      suite.template check_kernel<T>(kernel, static_cast<double>(c + v + n), std::sqrt(static_cast<double>(c)) + 2.0 + 0.01 * (gradient_rounding - 1.0));
    };
    for (int mode = 0; mode < 6; ++mode) check.template operator()<T>(mode, false, 0.0);
    for (int mode = 0; mode < 3; ++mode) {
      check.template operator()<T>(mode, true, 0.0);
      check.template operator()<T>(mode, mode == 1, 0.1);
      check.template operator()<T>(mode, mode == 1, mode == 2 ? 0.1 : 0.0, 0.02);
      check.template operator()<T>(mode, false, mode == 1 ? 0.1 : 0.0, mode == 2 ? 0.02 : 0.0, 0.7);
    }
    if constexpr (!std::is_same_v<T, acc>)
      for (const int mode : {2, 5}) check.template operator()<acc>(mode, mode == 5, mode == 5 ? 0.1 : 0.0);
  }
  check_divided_losses<T>(suite);
}

}  // namespace xtrain::testing::detail
