// Cases of the conformance suite: losses, with a whole and with a sharded vocabulary.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/loss.hpp>
#include <xtrain/device/kernel/split_loss.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

/// A vocabulary sharded across three ranks, of which the second checks its shard.
template <class T, class Suite>
void check_divided_losses(Suite& suite) {
  using acc = accumulate_t<T>;
  constexpr std::size_t ranks = 3;
  for (const auto& [n, v] : {std::pair<std::size_t, std::size_t>{1, 1}, {7, 19}, {130, 67}, {5, 3000}}) {
    case_memory mem;
    kernel::softmax_part<host_memory, acc> part{.n = n, .v = v, .first = static_cast<token>(v)};
    part.logits_nv = mem.numbers<acc>(n * v, -8.0, 8.0);
    part.target_n = mem.tokens(n, ranks * v);
    part.parts_3n = mem.numbers<acc>(3 * n);
    suite.template check_kernel<T>(part, static_cast<double>(v), 2.0);
    for (const bool with_gradient : {false, true}) {
      kernel::softmax_of_parts<host_memory, acc, T> whole{
          .n = n, .v = v, .ranks = ranks, .vocab_size = ranks * v, .first = static_cast<token>(v), .gradient_scale = 0.125};
      whole.parts_r3n = mem.numbers<acc>(ranks * 3 * n, 8.0, 9.0);  // sums are positive
      whole.target_n = part.target_n;
      whole.logits_nv = part.logits_nv;
      whole.loss_n = mem.numbers<acc>(n);
      if (with_gradient) whole.dlogits_nv = mem.numbers<T>(n * v);
      suite.template check_kernel<T>(whole, 8.0 * ranks, 32.0);
      whole.z_loss = 0.01;
      suite.template check_kernel<T>(whole, 8.0 * ranks, 32.0);
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
    const auto check = [&]<class G>(int mode) {  // loss only, with a frozen weight, with everything; the same with a bias
      case_memory mem;
      kernel::linear_cross_entropy<host_memory, T, G> kernel{
          .n = n, .c = c, .v = v, .with_gradient = mode % 3 > 0, .gradient_scale = 0.125, .z_loss = mode == 1 ? 0.01 : 0.0};
      kernel.x_nc = mem.numbers<T>(n * c);
      kernel.weight_vc = mem.numbers<T>(v * c);
      kernel.target_n = mem.tokens(n, v);
      kernel.loss_n = mem.numbers<acc>(n);
      if (kernel.with_gradient) kernel.dx_nc = mem.numbers<T>(n * c);
      if (mode % 3 == 2) kernel.dweight_vc = mem.numbers<G>(v * c);
      if (mode >= 3) kernel.bias_v = mem.numbers<T>(v);
      if (mode == 5) kernel.dbias_v = mem.numbers<G>(v);
      // a logit that is off by one rounding may round its gradient to a neighbor in T
      const double gradient_rounding = dtype_traits<T>::unit_roundoff / dtype_traits<acc>::unit_roundoff;
      suite.template check_kernel<T>(kernel, static_cast<double>(c + v + n), std::sqrt(static_cast<double>(c)) + 2.0 + 0.01 * (gradient_rounding - 1.0));
    };
    for (int mode = 0; mode < 6; ++mode) check.template operator()<T>(mode);
    if constexpr (!std::is_same_v<T, acc>)
      for (const int mode : {2, 5}) check.template operator()<acc>(mode);
  }
  check_divided_losses<T>(suite);
}

}  // namespace xtrain::testing::detail
