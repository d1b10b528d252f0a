// Conformance cases: kernels on some rows, with the range in device memory.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/activation.hpp>
#include <xtrain/device/kernel/elementwise.hpp>
#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

/// The kernel on no rows (at the beginning and past the end), one, some in the middle, the last, and all.
template <class T, class Kernel, class Suite>
void check_on_rows(Suite& suite, case_memory& mem, const Kernel& whole, std::size_t total, double terms, double magnitude) {
  const std::size_t third = total / 3;
  for (const auto& [first, count] : sizes_of({{0, 0}, {total, 0}, {third, 0}, {0, 1}, {third, third}, {total - third - 1, third + 1}, {0, total}})) {
    kernel::in_rows<Kernel, host_memory> some{.whole = whole, .total = total};
    const auto range = mem.fresh<token>(2);
    range.raw()[0] = static_cast<token>(first);
    range.raw()[1] = static_cast<token>(count);
    some.range_2 = range;
    suite.template check_kernel<T>(some, terms, magnitude);
  }
}

template <class T, class Suite>
void check_rows(Suite& suite) {
  // a width divisible by vectors, and one that is not
  for (const auto& [n, f] : sizes_of({{1, 1}, {7, 5}, {6, 64}, {50, 24}})) {
    case_memory mem;
    const std::size_t total = n, width = f, elements = n * f;
    const auto numbers = [&](std::size_t size) { return mem.numbers<T>(size, -6.0, 6.0); };
    const auto forward = [&](auto kernel) {
      kernel.n = elements;
      kernel.x_n = numbers(elements);
      kernel.y_n = numbers(elements);
      check_on_rows<T>(suite, mem, kernel, total, 8.0, 6.0);
    };
    const auto backward = [&](auto kernel) {
      kernel.n = elements;
      kernel.x_n = numbers(elements);
      kernel.dy_n = mem.numbers<T>(elements);
      kernel.dx_n = numbers(elements);
      check_on_rows<T>(suite, mem, kernel, total, 12.0, 6.0);
      kernel.dx_n = mem.copy(kernel.dy_n);  // in place
      kernel.dy_n = kernel.dx_n;
      check_on_rows<T>(suite, mem, kernel, total, 12.0, 6.0);
    };
    const auto gated = [&](auto kernel) {
      kernel.n = total;
      kernel.f = width;
      kernel.gate_up_n2f = numbers(2 * elements);
      kernel.y_nf = numbers(elements);
      check_on_rows<T>(suite, mem, kernel, total, 8.0, 64.0);
    };
    const auto gated_backward = [&](auto kernel) {
      kernel.n = total;
      kernel.f = width;
      kernel.gate_up_n2f = numbers(2 * elements);
      kernel.dy_nf = mem.numbers<T>(elements);
      kernel.dgate_up_n2f = numbers(2 * elements);
      check_on_rows<T>(suite, mem, kernel, total, 12.0, 64.0);
      kernel.dgate_up_n2f = mem.copy(kernel.gate_up_n2f);  // in place; again on values that earlier ranges have changed
      kernel.gate_up_n2f = kernel.dgate_up_n2f;
      check_on_rows<T>(suite, mem, kernel, total, 12.0, 4096.0);
    };
    forward(kernel::gelu_tanh<host_memory, T>{});
    forward(kernel::gelu_erf<host_memory, T>{});
    backward(kernel::gelu_tanh_backward<host_memory, T>{});
    backward(kernel::gelu_erf_backward<host_memory, T>{});
    gated(kernel::swiglu<host_memory, T>{});
    gated(kernel::geglu<host_memory, T>{});
    gated_backward(kernel::swiglu_backward<host_memory, T>{});
    gated_backward(kernel::geglu_backward<host_memory, T>{});

    static constexpr kernel::step_inputs inputs{.number = 3};
    for (const bool accumulate : {false, true}) {
      kernel::dropout<host_memory, T> drop{
          .n = elements, .probability = 0.25, .accumulate = accumulate, .random = {.seed = 5, .step = 1, .site = 2, .first = 7}};
      drop.x_n = mem.numbers<T>(elements);
      drop.y_n = mem.numbers<T>(elements);
      check_on_rows<T>(suite, mem, drop, total, 1.0, 12.0);
      drop.inputs_1 = span_of(&inputs, 1);
      check_on_rows<T>(suite, mem, drop, total, 1.0, 24.0);
      if (accumulate) continue;
      drop.y_n = mem.copy(drop.x_n);  // in place
      drop.x_n = drop.y_n;
      check_on_rows<T>(suite, mem, drop, total, 1.0, 16.0);
    }
    const auto column_sum = [&]<class G>() {
      const std::size_t stride = width + (total == 50 ? 8 : 3);
      kernel::column_sum<host_memory, T, G> sum{.n = total, .c = width, .stride = stride};
      sum.x_nc = mem.numbers<T>((total - 1) * stride + width);
      sum.sum_c = mem.numbers<G>(width);
      check_on_rows<T>(suite, mem, sum, total, static_cast<double>(total), 4.0 * std::sqrt(static_cast<double>(total)) + 1.0);
    };
    column_sum.template operator()<T>();
    if constexpr (!std::is_same_v<T, accumulate_t<T>>) column_sum.template operator()<accumulate_t<T>>();
  }
  // m, n and k of a layer's products: y = x · wᵀ + b, dx = dy · w, dw += dyᵀ · x; ranges begin and end inside tiles
  struct size {
    std::size_t rows, in, out, gap;
  };
  for (const size& s : {size{1, 3, 5, 0}, size{40, 19, 33, 3}, size{210, 24, 16, 8}}) {
    const std::size_t rows = s.rows, in = s.in, out = s.out, gap = s.gap;
    case_memory mem;
    const auto product = [&]<class C>(bool ta, bool tb, bool accumulate, bool bias) {
      const std::size_t m = ta ? out : rows, n = ta || !tb ? in : out, k = ta ? rows : tb ? in : out;
      kernel::matmul<host_memory, T, C> multiply{.m = m, .n = n, .k = k};
      multiply.lda = (ta ? m : k) + gap;
      multiply.ldb = (tb ? k : n) + gap;
      multiply.ldc = n + gap;
      multiply.transpose_a = ta;
      multiply.transpose_b = tb;
      multiply.accumulate = accumulate;
      multiply.a = mem.numbers<T>(((ta ? k : m) - 1) * multiply.lda + (ta ? m : k));
      multiply.b = mem.numbers<T>(((tb ? n : k) - 1) * multiply.ldb + (tb ? k : n));
      if (bias) multiply.bias_n = mem.numbers<T>(n);
      multiply.c = mem.numbers<C>((m - 1) * multiply.ldc + n);
      check_on_rows<T>(suite, mem, multiply, rows, static_cast<double>(k), 4.0 * std::sqrt(static_cast<double>(k)) + 4.0);
    };
    product.template operator()<T>(false, true, false, true);
    product.template operator()<T>(false, true, true, false);
    product.template operator()<T>(false, false, false, false);
    product.template operator()<T>(false, false, true, false);
    product.template operator()<T>(true, false, true, false);
    product.template operator()<T>(true, false, false, false);  // of no rows: zeros
    if constexpr (!std::is_same_v<T, accumulate_t<T>>) product.template operator()<accumulate_t<T>>(true, false, true, false);
  }
}

}  // namespace xtrain::testing::detail
