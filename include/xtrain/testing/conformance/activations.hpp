// Conformance cases: activations, forward and backward, also in place.
#pragma once

#include <cstddef>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/activation.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

template <class T, template <class, class> class Forward, template <class, class> class Backward, class Suite>
void check_gelu(Suite& suite, case_memory& mem, std::size_t n) {
  Forward<host_memory, T> forward{.n = n};
  forward.x_n = mem.numbers<T>(n, -6.0, 6.0);
  forward.y_n = mem.numbers<T>(n);
  suite.template check_kernel<T>(forward, 8.0, 6.0);
  Backward<host_memory, T> backward{.n = n};
  backward.x_n = mem.numbers<T>(n, -6.0, 6.0);
  backward.dy_n = mem.numbers<T>(n);
  backward.dx_n = mem.numbers<T>(n);
  suite.template check_kernel<T>(backward, 12.0, 6.0);
  // dx aliases dy, then x
  backward.dx_n = mem.copy(backward.dy_n);
  backward.dy_n = backward.dx_n;
  suite.template check_kernel<T>(backward, 12.0, 6.0);
  backward.dy_n = mem.numbers<T>(n);
  backward.dx_n = mem.copy(backward.x_n);
  backward.x_n = backward.dx_n;
  suite.template check_kernel<T>(backward, 12.0, 6.0);
}

template <class T, class Suite>
void check_activations(Suite& suite) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{37}, std::size_t{20001}}) {
    case_memory mem;
    check_gelu<T, kernel::gelu_tanh, kernel::gelu_tanh_backward>(suite, mem, n);
    check_gelu<T, kernel::gelu_erf, kernel::gelu_erf_backward>(suite, mem, n);
    kernel::tanh<host_memory, T> forward{.n = n};
    forward.x_n = mem.numbers<T>(n, -6.0, 6.0);
    forward.y_n = mem.numbers<T>(n);
    suite.template check_kernel<T>(forward, 8.0, 1.0);
    forward.y_n = mem.copy(forward.x_n);  // in place
    forward.x_n = forward.y_n;
    suite.template check_kernel<T>(forward, 8.0, 1.0);
    kernel::tanh_backward<host_memory, T> backward{.n = n};
    backward.y_n = mem.numbers<T>(n);
    backward.dy_n = mem.numbers<T>(n);
    backward.dx_n = mem.numbers<T>(n);
    suite.template check_kernel<T>(backward, 3.0, 1.0);
    backward.dx_n = mem.copy(backward.dy_n);  // in place
    backward.dy_n = backward.dx_n;
    suite.template check_kernel<T>(backward, 3.0, 1.0);
    kernel::softcap<host_memory, T> capped{.n = n, .cap = 3.0};
    capped.x_n = mem.numbers<T>(n, -9.0, 9.0);
    capped.y_n = mem.numbers<T>(n);
    suite.template check_kernel<T>(capped, 8.0, 3.0);
    capped.y_n = mem.copy(capped.x_n);  // in place
    capped.x_n = capped.y_n;
    suite.template check_kernel<T>(capped, 8.0, 3.0);
    kernel::softcap_backward<host_memory, T> capped_backward{.n = n, .cap = 3.0};
    capped_backward.y_n = mem.numbers<accumulate_t<T>>(n, -3.0, 3.0);
    capped_backward.d_n = mem.numbers<T>(n);
    suite.template check_kernel<T>(capped_backward, 4.0, 1.0);
  }
  const auto gated = [&]<class Forward, class Backward>(Forward forward, Backward backward) {
    for (const auto& [n, f] : sizes_of({{1, 1}, {5, 19}, {9, 130}})) {
      case_memory mem;
      forward.n = backward.n = n;
      forward.f = backward.f = f;
      forward.gate_up_n2f = mem.numbers<T>(n * 2 * f, -8.0, 8.0);
      forward.y_nf = mem.numbers<T>(n * f);
      suite.template check_kernel<T>(forward, 8.0, 64.0);
      backward.gate_up_n2f = mem.numbers<T>(n * 2 * f, -8.0, 8.0);
      backward.dy_nf = mem.numbers<T>(n * f);
      backward.dgate_up_n2f = mem.numbers<T>(n * 2 * f);
      suite.template check_kernel<T>(backward, 12.0, 64.0);
      backward.dgate_up_n2f = mem.copy(backward.gate_up_n2f);  // in place
      backward.gate_up_n2f = backward.dgate_up_n2f;
      suite.template check_kernel<T>(backward, 12.0, 64.0);
    }
  };
  gated(kernel::swiglu<host_memory, T>{}, kernel::swiglu_backward<host_memory, T>{});
  gated(kernel::geglu<host_memory, T>{}, kernel::geglu_backward<host_memory, T>{});
}

}  // namespace xtrain::testing::detail
