// The matrix products of training through OpenBLAS, which supports only fp32.
//
//   products_openblas [all|forward|input|weight|lora] [both|fp32] [THREADS...]
#include <cblas.h>

#include <cstdio>
#include <exception>

#include "../processors.hpp"
#include "products.hpp"

namespace {

using products::product;

void time_product(std::size_t threads, const product& p, double peak) {
  const products::operands<float> x(p);
  openblas_set_num_threads(static_cast<int>(threads));
  products::require_threads(threads, static_cast<std::size_t>(openblas_get_num_threads()));
  const auto size = [](std::size_t n) { return static_cast<blasint>(n); };
  const auto run = [&] {
    cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans, p.transpose_b ? CblasTrans : CblasNoTrans, size(p.m), size(p.n),
                size(p.k), 1.0f, x.a.data(), size(p.transpose_a ? p.m : p.k), x.b.data(), size(p.transpose_b ? p.k : p.n),
                p.accumulate ? 1.0f : 0.0f, x.c.data(), size(p.n));
  };
  run();
  products::require_right(p, x);
  products::print<float>("openblas", threads, p, products::median_time(run), peak);
}

}  // namespace

int main(int argc, char** argv) try {
  const processors_report processors;
  const products::choice chosen = products::read_choice(argc, argv);
  std::fprintf(stderr, "OpenBLAS takes its kernels for %s\n", openblas_get_corename());
  if (chosen.fp32) products::time_all<float>(chosen, time_product);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "products_openblas: %s\n", problem.what());
  return 1;
}
