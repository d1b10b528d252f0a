// Training's matrix products with the cpu device's kernel, against the processor's peak.
//
//   products [all|forward|input|weight|lora] [both|fp32|bf16] [THREADS...]
#include <cstdio>
#include <exception>

#include <xtrain/device/cpu/cpu.hpp>

#include "peers/products.hpp"
#include "processors.hpp"

namespace {

using products::product;

template <class T>
void time_product(std::size_t threads, const product& p, double peak) {
  const products::operands<T> x(p);
  const xtrain::cpu::context device({.threads = threads});
  products::require_threads(threads, device.properties().threads);
  xtrain::cpu::stream stream(device);
  xtrain::kernel::matmul<xtrain::host_memory, T, T> kernel{.m = p.m,
                                                           .n = p.n,
                                                           .k = p.k,
                                                           .lda = p.transpose_a ? p.m : p.k,
                                                           .ldb = p.transpose_b ? p.k : p.n,
                                                           .ldc = p.n,
                                                           .transpose_a = p.transpose_a,
                                                           .transpose_b = p.transpose_b,
                                                           .accumulate = p.accumulate};
  kernel.a = xtrain::span_of(static_cast<const T*>(x.a.data()), x.a.size());
  kernel.b = xtrain::span_of(static_cast<const T*>(x.b.data()), x.b.size());
  kernel.c = xtrain::span_of(x.c.data(), x.c.size());
  const products::array<std::byte> scratch(scratch_bytes(device.properties(), kernel));
  const auto run = [&] {
    run_kernel(stream, kernel, xtrain::span_of(scratch.data(), scratch.size()));
    stream.synchronize();
  };
  run();
  products::require_right(p, x);
  products::print<T>("xtrain", threads, p, products::median_time(run), peak);
}

}  // namespace

int main(int argc, char** argv) try {
  const processors_report processors;
  const products::choice chosen = products::read_choice(argc, argv);
  if (chosen.fp32) products::time_all<float>(chosen, time_product<float>);
  if (chosen.bf16) products::time_all<xtrain::bf16>(chosen, time_product<xtrain::bf16>);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "products: %s\n", problem.what());
  return 1;
}
