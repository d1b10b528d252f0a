// Memory is planned for the largest size: fewer rows must not need more scratch memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include <xtrain/device/cpu/cpu.hpp>

using namespace xtrain;

namespace {

/// The least number of rows, up to `most`, that needs less scratch memory than a smaller number; 0: none.
template <class Kernel>
std::size_t first_that_needs_less(Kernel kernel, std::size_t Kernel::*rows, std::size_t most, std::size_t threads) {
  std::size_t largest = 0;
  for (std::size_t n = 1; n <= most; ++n) {
    kernel.*rows = n;
    const std::size_t bytes = scratch_bytes(cpu_properties{threads}, kernel);
    if (bytes < largest) return n;
    largest = bytes;
  }
  return 0;
}

template <class T, class C>
void check_products() {
  using matmul = kernel::matmul<host_memory, T, C>;
  struct size {
    std::size_t outputs, inputs;
  };
  for (const size& layer : {size{24, 32}, size{200, 1100}, size{4096, 700}, size{96, 30000}}) {
    for (const std::size_t threads : {std::size_t{1}, std::size_t{2}, std::size_t{16}}) {
      const std::size_t outputs = layer.outputs, inputs = layer.inputs;
      CAPTURE(outputs);
      CAPTURE(inputs);
      CAPTURE(threads);
      // the three products of a linear layer over n rows
      CHECK(first_that_needs_less(matmul{.n = outputs, .k = inputs, .transpose_b = true}, &matmul::m, 5000, threads) == 0);
      CHECK(first_that_needs_less(matmul{.n = inputs, .k = outputs}, &matmul::m, 5000, threads) == 0);
      CHECK(first_that_needs_less(matmul{.m = outputs, .n = inputs, .transpose_a = true}, &matmul::k, 5000, threads) == 0);
    }
  }
}

template <class T>
void check_losses() {
  using loss = kernel::linear_cross_entropy<host_memory, T>;
  for (const std::size_t v : {std::size_t{257}, std::size_t{50257}, std::size_t{250880}}) {
    CAPTURE(v);
    for (const bool with_gradient : {false, true})
      CHECK(first_that_needs_less(loss{.c = 64, .v = v, .with_gradient = with_gradient}, &loss::n, 2000, 2) == 0);
  }
}

}  // namespace

TEST_CASE("the products of a linear layer do not need more scratch memory for fewer rows") {
  check_products<float, float>();
  check_products<bf16, bf16>();
  check_products<bf16, float>();
}

TEST_CASE("the head's loss does not need more scratch memory for fewer rows") {
  check_losses<float>();
  check_losses<bf16>();
}

TEST_CASE("attention does not need more scratch memory for shorter rows") {
  std::size_t forward = 0, backward = 0, cached = 0, blocks = 0, blocks_backward = 0;
  for (std::size_t t = 1; t <= 3000; ++t) {
    const kernel::attention_shape shape{.b = 2, .t = t, .h = 4, .k = 2, .d = 24};
    const cpu_properties on{2};
    const auto not_less = [&](std::size_t& largest, std::size_t bytes) {
      if (bytes < largest) FAIL_CHECK("a row of ", t, " positions needs ", bytes, " bytes, a shorter one ", largest);
      largest = bytes;
    };
    not_less(forward, scratch_bytes(on, kernel::attention<host_memory, float>{.shape = shape}));
    not_less(backward, scratch_bytes(on, kernel::attention_backward<host_memory, float>{.shape = shape}));
    not_less(cached, scratch_bytes(on, kernel::cached_attention<host_memory, float>{.shape = shape, .capacity = 4000}));
    const kernel::position_block positions{t, 0, 0, t};
    not_less(blocks, scratch_bytes(on, kernel::attention_block<host_memory, float>{.shape = shape, .queries = positions, .keys = positions}));
    not_less(blocks_backward, scratch_bytes(on, kernel::attention_block_backward<host_memory, float>{.shape = shape, .queries = positions, .keys = positions}));
  }
}

TEST_CASE("properties derived from a device's own give kernels the same scratch memory") {
  struct derived : cpu_properties {};
  const kernel::matmul<host_memory, float, float> product{.m = 300, .n = 200, .k = 100};
  CHECK(scratch_bytes(cpu_properties{2}, product) > 0);
  CHECK(scratch_bytes(derived{{2}}, product) == scratch_bytes(cpu_properties{2}, product));
}
