// Conformance cases: embeddings and rotary positions.
#pragma once

#include <cstddef>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/kernel/embedding.hpp>
#include <xtrain/testing/conformance/case_memory.hpp>

namespace xtrain::testing::detail {

template <class T, class Suite>
void check_embeddings(Suite& suite) {
  for (const auto& size : sizes_of({{1, 1}, {9, 37}, {40, 131}, {2100, 3}})) {  // 2100: a sort in several passes
    const std::size_t n = size.rows, c = size.columns;
    constexpr std::size_t v = 11;  // fewer rows than tokens: rows are used more than once
    for (const bool accumulate : {false, true}) {
      case_memory mem;
      kernel::embedding<host_memory, T> kernel{.n = n, .v = v, .c = c, .scale = n % 2 == 0 ? 1.5 : 1.0, .accumulate = accumulate};
      kernel.index_n = mem.tokens(n, v);
      kernel.table_vc = mem.numbers<T>(v * c);
      kernel.y_nc = mem.numbers<T>(n * c);
      suite.template check_kernel<T>(kernel, 1.0, 1.0);
    }
    const auto backward = [&]<class G>() {
      case_memory mem;
      kernel::embedding_backward<host_memory, T, G> kernel{.n = n, .v = v, .c = c, .first = n == 9 ? 2 : 0, .padding = n == 9 ? 3 : -1};
      kernel.index_n = mem.tokens(n, v);
      kernel.dy_nc = mem.numbers<T>(n * c);
      kernel.dtable_vc = mem.numbers<G>(v * c);
      suite.template check_kernel<T>(kernel, 8.0, 4.0);
    };
    backward.template operator()<T>();
    if constexpr (!std::is_same_v<T, accumulate_t<T>>) backward.template operator()<accumulate_t<T>>();
  }
  for (const std::size_t d : {std::size_t{2}, std::size_t{6}, std::size_t{34}}) {
    for (const bool inverse : {false, true}) {
      constexpr std::size_t n = 7, heads = 3, positions = 20;
      case_memory mem;
      kernel::rotary<host_memory, T> kernel{.n = n,
                                            .heads = heads,
                                            .d = d,
                                            .stride = heads * (d + 2) + 5,
                                            .head_stride = d + 2,
                                            .positions = positions,
                                            .inverse = inverse};
      kernel.position_n = mem.tokens(n, positions);
      kernel.cos_sin_pd = mem.numbers<float>(positions * d);
      kernel.x = mem.numbers<T>((n - 1) * kernel.stride + heads * (d + 2));
      suite.template check_kernel<T>(kernel, 2.0, 1.0);
    }
  }
}

}  // namespace xtrain::testing::detail
