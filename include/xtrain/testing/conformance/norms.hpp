// Conformance cases: norms, forward and backward.
#pragma once

#include <cmath>
#include <cstddef>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/norm.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

template <class T, class Suite>
void check_norms(Suite& suite) {
  using acc = accumulate_t<T>;
  for (const auto& size : sizes_of({{1, 1}, {3, 37}, {33, 130}, {21, 64}, {9, 264}, {3, 1032}, {260, 37}, {2056, 8}})) {
    // the last: more rows than a device may have blocks
    const std::size_t n = size.rows, c = size.columns;
    const auto terms = static_cast<double>(c);
    {
      case_memory mem;
      kernel::rms_norm<host_memory, T> kernel{.n = n, .c = c, .epsilon = 1e-5, .offset = n == 3 ? 1.0 : 0.0};
      kernel.x_nc = mem.numbers<T>(n * c);
      kernel.weight_c = mem.numbers<T>(c);
      kernel.y_nc = mem.numbers<T>(n * c);
      kernel.rstd_n = mem.numbers<acc>(n);
      suite.template check_kernel<T>(kernel, terms, 4.0);
    }
    {
      case_memory mem;
      kernel::layer_norm<host_memory, T> kernel{.n = n, .c = c, .epsilon = 1e-5};
      kernel.x_nc = mem.numbers<T>(n * c, -0.5, 2.0);
      kernel.weight_c = mem.numbers<T>(c);
      kernel.bias_c = mem.numbers<T>(c);
      kernel.y_nc = mem.numbers<T>(n * c);
      kernel.mean_n = mem.numbers<acc>(n);
      kernel.rstd_n = mem.numbers<acc>(n);
      // one channel has no variance: rstd is 1/sqrt(epsilon), which also multiplies rounding errors
      suite.template check_kernel<T>(kernel, terms, c == 1 ? 400.0 : 8.0);
    }
    const std::size_t h = n == 21 ? 9 : 3, kv = 2, row = (h + 2 * kv) * c;  // heads of c elements
    {
      case_memory mem;
      kernel::head_norm<host_memory, T> kernel{.n = n, .h = h, .k = kv, .d = c, .epsilon = 1e-5};
      kernel.x_nr = mem.numbers<T>(n * row);
      kernel.query_d = mem.numbers<T>(c);
      kernel.key_d = mem.numbers<T>(c);
      kernel.y_nr = mem.numbers<T>(n * row);
      kernel.rstd_nh = mem.numbers<acc>(n * (h + kv));
      suite.template check_kernel<T>(kernel, terms, 4.0);
    }
    const auto backward = [&]<class G>(bool frozen) {
      {
        case_memory mem;
        kernel::rms_norm_backward<host_memory, T, G> kernel{.n = n, .c = c, .offset = n == 3 ? 1.0 : 0.0};
        kernel.x_nc = mem.numbers<T>(n * c);
        kernel.weight_c = mem.numbers<T>(c);
        kernel.rstd_n = mem.numbers<acc>(n, 0.5, 2.0);
        kernel.dy_nc = mem.numbers<T>(n * c);
        kernel.dx_nc = mem.numbers<T>(n * c);
        if (!frozen) kernel.dweight_c = mem.numbers<G>(c);
        suite.template check_kernel<T>(kernel, terms + static_cast<double>(n), 8.0 + std::sqrt(static_cast<double>(n)));
      }
      {
        case_memory mem;
        kernel::head_norm_backward<host_memory, T, G> kernel{.n = n, .h = h, .k = kv, .d = c};
        kernel.x_nr = mem.numbers<T>(n * row);
        kernel.query_d = mem.numbers<T>(c);
        kernel.key_d = mem.numbers<T>(c);
        kernel.rstd_nh = mem.numbers<acc>(n * (h + kv), 0.5, 2.0);
        kernel.dy_nr = mem.numbers<T>(n * row);
        kernel.dx_nr = mem.numbers<T>(n * row);
        if (!frozen) {
          kernel.dquery_d = mem.numbers<G>(c);
          kernel.dkey_d = mem.numbers<G>(c);
        }
        const double rows = static_cast<double>(n * h);
        suite.template check_kernel<T>(kernel, terms + rows, 8.0 + std::sqrt(rows));
        kernel.dx_nr = mem.copy(kernel.dy_nr);  // in place
        kernel.dy_nr = kernel.dx_nr;
        suite.template check_kernel<T>(kernel, terms + rows, 8.0 + std::sqrt(rows));
      }
      {
        case_memory mem;
        kernel::layer_norm_backward<host_memory, T, G> kernel{.n = n, .c = c};
        kernel.x_nc = mem.numbers<T>(n * c);
        kernel.weight_c = mem.numbers<T>(c);
        kernel.mean_n = mem.numbers<acc>(n, -0.1, 0.1);
        kernel.rstd_n = mem.numbers<acc>(n, 0.5, 2.0);
        kernel.dy_nc = mem.numbers<T>(n * c);
        kernel.dx_nc = mem.numbers<T>(n * c);
        if (!frozen) {
          kernel.dweight_c = mem.numbers<G>(c);
          kernel.dbias_c = mem.numbers<G>(c);
        }
        suite.template check_kernel<T>(kernel, terms + static_cast<double>(n), 8.0 + std::sqrt(static_cast<double>(n)));
      }
    };
    backward.template operator()<T>(false);
    backward.template operator()<T>(true);
    if constexpr (!std::is_same_v<T, acc>) backward.template operator()<acc>(false);
  }
}

}  // namespace xtrain::testing::detail
