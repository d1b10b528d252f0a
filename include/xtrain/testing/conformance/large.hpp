// Conformance cases: a step's kernels at model sizes.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/activation.hpp>
#include <xtrain/device/kernel/attention.hpp>
#include <xtrain/device/kernel/elementwise.hpp>
#include <xtrain/device/kernel/embedding.hpp>
#include <xtrain/device/kernel/loss.hpp>
#include <xtrain/device/kernel/matmul.hpp>
#include <xtrain/device/kernel/norm.hpp>
#include <xtrain/device/kernel/optimizer.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing {

/// b sequences, t tokens, c channels, f feed-forward channels, h heads, k key/value heads, d head dim, v vocabulary.
struct model_sizes {
  std::size_t b = 1, t = 0, c = 0, f = 0, h = 0, k = 0, d = 0, v = 0;
};
/// Qwen2.5-1.5B, and GPT-2 124M, whose vocabulary is odd.
inline constexpr std::array<model_sizes, 2> real_models{{{1, 2048, 1536, 8960, 12, 2, 128, 151936}, {2, 1024, 768, 3072, 12, 12, 64, 50257}}};

namespace detail {

template <class T, class Suite>
void check_large(Suite& suite, const model_sizes& s) {
  using acc = accumulate_t<T>;
  const std::size_t n = s.b * s.t;
  const double rounding = 1.0 + 0.01 * (dtype_traits<T>::unit_roundoff / dtype_traits<acc>::unit_roundoff - 1.0);
  const auto root = [](std::size_t terms) { return std::sqrt(static_cast<double>(terms)); };
  const auto terms_of = [](std::size_t terms) { return static_cast<double>(terms); };
  const auto product = [&]<class C>(std::size_t m, std::size_t columns, std::size_t depth, bool ta, bool tb, bool accumulate) {
    case_memory mem;
    kernel::matmul<host_memory, T, C> kernel{.m = m,
                                             .n = columns,
                                             .k = depth,
                                             .lda = ta ? m : depth,
                                             .ldb = tb ? depth : columns,
                                             .ldc = columns,
                                             .transpose_a = ta,
                                             .transpose_b = tb,
                                             .accumulate = accumulate};
    kernel.a = mem.numbers<T>(m * depth);
    kernel.b = mem.numbers<T>(depth * columns);
    kernel.c = mem.numbers<C>(m * columns);
    suite.template check_kernel<T>(kernel, terms_of(depth), root(depth) + 2.0);
  };
  const kernel::attention_shape shape{.b = s.b, .t = s.t, .h = s.h, .k = s.k, .d = s.d};
  for (const auto& [in, out] : sizes_of({{s.c, shape.row()}, {s.c, 2 * s.f}, {s.f, s.c}})) {
    product.template operator()<T>(n, out, in, false, true, false);
    product.template operator()<T>(n, in, out, false, false, false);
    product.template operator()<T>(out, in, n, true, false, true);
  }
  {
    case_memory mem;
    kernel::attention<host_memory, T> forward{.shape = shape, .scale = 1.0 / root(s.d)};
    forward.qkv = mem.numbers<T>(n * shape.row());
    forward.o_bthd = mem.numbers<T>(n * s.h * s.d);
    forward.lse_bht = mem.numbers<acc>(n * s.h);
    const double terms = terms_of(s.t + s.d);
    suite.template check_kernel<T>(forward, terms, std::log(terms_of(s.t)) + 4.0 * rounding);
    kernel::attention_backward<host_memory, T> backward{.shape = shape, .scale = forward.scale};
    backward.qkv = forward.qkv;
    backward.o_bthd = device_span<const T, host_memory>(forward.o_bthd);
    backward.lse_bht = device_span<const acc, host_memory>(forward.lse_bht);
    backward.do_bthd = mem.numbers<T>(n * s.h * s.d);
    backward.dqkv = mem.numbers<T>(n * shape.row());
    suite.template check_kernel<T>(backward, terms, 8.0 * root(s.t) * rounding);
  }
  {
    case_memory mem;
    kernel::rms_norm<host_memory, T> norm{.n = n, .c = s.c, .epsilon = 1e-5};
    norm.x_nc = mem.numbers<T>(n * s.c);
    norm.weight_c = mem.numbers<T>(s.c);
    norm.y_nc = mem.numbers<T>(n * s.c);
    norm.rstd_n = mem.numbers<acc>(n);
    suite.template check_kernel<T>(norm, terms_of(s.c), 4.0);
    kernel::rms_norm_backward<host_memory, T, T> backward{.n = n, .c = s.c};
    backward.x_nc = norm.x_nc;
    backward.weight_c = norm.weight_c;
    backward.rstd_n = device_span<const acc, host_memory>(norm.rstd_n);
    backward.dy_nc = mem.numbers<T>(n * s.c);
    backward.dx_nc = mem.numbers<T>(n * s.c);
    backward.dweight_c = mem.numbers<T>(s.c);
    suite.template check_kernel<T>(backward, terms_of(s.c + n), 8.0 + root(n));
    kernel::swiglu<host_memory, T> gate{.n = n, .f = s.f};
    gate.gate_up_n2f = mem.numbers<T>(n * 2 * s.f, -8.0, 8.0);
    gate.y_nf = mem.numbers<T>(n * s.f);
    suite.template check_kernel<T>(gate, 8.0, 64.0);
  }
  {
    case_memory mem;
    kernel::embedding<host_memory, T> rows{.n = n, .v = s.v, .c = s.c};
    rows.index_n = mem.tokens(n, s.v);
    rows.table_vc = mem.numbers<T>(s.v * s.c);
    rows.y_nc = mem.numbers<T>(n * s.c);
    suite.template check_kernel<T>(rows, 1.0, 1.0);
    kernel::embedding_backward<host_memory, T, T> backward{.n = n, .v = s.v, .c = s.c};
    backward.index_n = rows.index_n;
    backward.dy_nc = mem.numbers<T>(n * s.c);
    backward.dtable_vc = mem.numbers<T>(s.v * s.c);
    suite.template check_kernel<T>(backward, 8.0, 4.0);
    kernel::linear_cross_entropy<host_memory, T, T> head{.n = n, .c = s.c, .v = s.v, .with_gradient = true, .gradient_scale = 1.0 / terms_of(n)};
    head.x_nc = mem.numbers<T>(n * s.c);
    head.weight_vc = mem.numbers<T>(s.v * s.c, -1.0 / root(s.c), 1.0 / root(s.c));
    head.target_n = rows.index_n;
    head.loss_n = mem.numbers<acc>(n);
    head.dx_nc = mem.numbers<T>(n * s.c);
    head.dweight_vc = mem.numbers<T>(s.v * s.c);
    suite.template check_kernel<T>(head, terms_of(s.c + s.v + n), std::log(terms_of(s.v)) + 4.0 * rounding);
    kernel::sum_of_squares<host_memory, T> squares{.n = s.v * s.c};
    squares.x_n = head.weight_vc;
    squares.sum_1 = mem.fresh<double>(1);
    suite.template check_kernel<T>(squares, terms_of(squares.n), terms_of(s.v));
    static constexpr kernel::step_scalars scalars{.learning_rate = 0.01, .gradient_scale = 0.5, .update = 3};
    kernel::adamw<host_memory, T, T, acc, acc> step{
        .n = s.v * s.c, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .weight_decay = 0.1, .scalars_1 = span_of(&scalars, 1)};
    step.correction_2 = mem.numbers<double>(2, 3.0, 30.0);
    step.gradient_n = device_span<const T, host_memory>(head.dweight_vc);
    step.master_n = mem.numbers<acc>(step.n);
    step.parameter_n = mem.numbers<T>(step.n);
    step.m_n = mem.numbers<acc>(step.n);
    step.v_n = mem.numbers<acc>(step.n, 0.1, 1.0);
    suite.template check_kernel<T>(step, 8.0, 2.0);
  }
}

}  // namespace detail

}  // namespace xtrain::testing
