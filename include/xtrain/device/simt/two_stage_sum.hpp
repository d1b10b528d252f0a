// Sum in double, in an order that depends on the number of values alone: at most 1024 parts, then their sum.
#pragma once

#include <cstddef>

#include <xtrain/device/simt/language/sums.hpp>
#include <xtrain/device/simt/launch.hpp>

namespace xtrain::simt {

inline constexpr std::size_t most_sum_parts = 1024;
inline constexpr std::size_t sum_scratch_bytes = most_sum_parts * sizeof(double);

/// term.at(i): a value; term.of<N>(i): sum of N neighbours, in order.
template <class Term, int Width, bool Vectors>
struct sum_parts {
  static constexpr int threads = 256;
  struct shared {
    warp_parts<double, threads> parts;
  };
  Term term;
  double* part;
  std::size_t n, of_block;  // of_block: a multiple of the elements that a block loads at once

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    const std::size_t begin = static_cast<std::size_t>(block_x()) * of_block, end = smaller(begin + of_block, n);
    double sum = 0;
    for (std::size_t i = begin + static_cast<std::size_t>(thread()) * Width; i < end; i += threads * Width) {
      double neighbours = 0;
      bool is_done = false;
      if constexpr (Vectors) {
        is_done = i + Width <= end;
        if (is_done) neighbours = term.template of<Width>(i);
      }
      if (!is_done) {
        for (std::size_t j = i; j < smaller(i + Width, end); ++j) neighbours += term.at(j);
      }
      sum += neighbours;
    }
    sum = block_sum<threads>(sum, s.parts);
    if (thread() == 0) part[block_x()] = sum;
  }
};

struct add_sum_parts {
  static constexpr int threads = 256;
  struct shared {
    warp_parts<double, threads> parts;
  };
  const double* part;
  double* sum;
  int parts;
  bool accumulate;

  XTRAIN_SIMT_FN void operator()(shared& s) const {
    double mine = 0;
    for (int p = thread(); p < parts; p += threads) mine += part[p];
    mine = block_sum<threads>(mine, s.parts);
    if (thread() == 0) *sum = accumulate ? *sum + mine : mine;
  }
};

template <int Width, launches Stream, class Term>
void launch_sum(Stream& stream, const Term& term, std::size_t n, bool vectors, double* sum, bool accumulate, void* scratch) {
  auto* const part = static_cast<double*>(scratch);
  constexpr std::size_t at_once = 256 * Width;
  const std::size_t of_block = std::max<std::size_t>(1, parts_of(parts_of(n, most_sum_parts), at_once)) * at_once;
  const int parts = blocks_of(n, of_block);
  if (parts > 0) {
    choose(Width > 1 && vectors, [&](auto wide) {
      stream.launch(sum_parts < Term, Width, Width != 1 && decltype(wide)::value > {term, part, n, of_block}, {parts, 1, 1});
    });
  }
  stream.launch(add_sum_parts{part, sum, parts, accumulate}, {1, 1, 1});
}

}  // namespace xtrain::simt
