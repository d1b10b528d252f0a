// Integers with a scale per row: quantization and dequantization as in ChatGLM-6B's quantization.py.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/ops/row_integers.hpp>
#include <xtrain/tensor/arena.hpp>
#include "golden.hpp"

using namespace xtrain;

namespace {

template <class T>
std::vector<T> made_by_kernel(const row_integers_array& numbers, std::size_t columns, std::size_t bits) {
  const cpu::context on;
  cpu::stream stream(on);
  arena<cpu> workspace(on, 0, memory_role::workspace);
  execution<cpu> where{stream, workspace, on.properties()};
  auto copy = numbers;
  const std::size_t rows = copy.scale_r.size();
  const row_integers_view<host_memory> view{
      .rows = rows, .columns = columns, .bits = bits, .code = span_of(std::span(copy.code)), .scale_r = span_of(std::span(copy.scale_r))};
  std::vector<T> y(rows * columns);
  ops::dequantize(where, view, vector_view<T, host_memory>(span_of(std::span(y)), {y.size()}));
  stream.synchronize();
  return y;
}

template <class T>
void check(const safetensors_file& expected, std::size_t columns, std::size_t bits) {
  CAPTURE(columns);
  CAPTURE(bits);
  const auto values = [&](const std::string& name) {
    const file_tensor& tensor = *expected.find(concat(columns, ".", name));
    std::vector<float> all(tensor.size());
    read_numbers<float>(tensor, 0, all);
    return all;
  };
  std::vector<T> w;
  for (const float value : values("w")) w.push_back(static_cast<T>(value));
  const row_integers_array made = row_integers::quantize<T>(std::span<const T>(w), columns, bits, "w");
  const std::string name = concat(bits, ".");
  CHECK(made.scale_r == values(name + "scale"));
  const std::vector<float> integers = values(name + "integers"), means = values(name + "made");
  std::vector<T> host(w.size());
  row_integers::dequantize<T>(made, columns, bits, host);
  const std::vector<T> there = made_by_kernel<T>(made, columns, bits);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const std::uint8_t* const row = made.code.data() + i / columns * row_integers::row_bytes(columns, bits);
    wrong += static_cast<float>(row_integers::integer_at(row, i % columns, bits)) != integers[i] ? 1U : 0U;
    wrong += static_cast<float>(host[i]) != means[i] ? 1U : 0U;
    wrong += static_cast<float>(there[i]) != means[i] ? 1U : 0U;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("integers, scales and what they stand for are those of ChatGLM-6B's code, bit for bit") {
  const safetensors_file expected(golden::folder("row_integers") + "/expected.safetensors");
  for (const std::size_t columns : {33U, 64U})
    for (const std::size_t bits : {4U, 8U}) {
      check<fp16>(expected, columns, bits);
      check<float>(expected, columns, bits);
      check<double>(expected, columns, bits);
    }
}

TEST_CASE("integers stay in their range where the scale is rounded to a subnormal number") {
  const std::vector<float> w{10 * 0x1p-24f, -10 * 0x1p-24f, 0, 0x1p-24f};
  const row_integers_array made = row_integers::quantize<float>(std::span<const float>(w), 4, 4, "w");
  CHECK(made.scale_r == std::vector<float>{0x1p-24f});
  CHECK(row_integers::integer_at(made.code.data(), 0, 4) == 7);
  CHECK(row_integers::integer_at(made.code.data(), 1, 4) == -7);
}

TEST_CASE("values that fp16 cannot have are refused") {
  for (const float value : {70000.0f, std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    const std::vector<float> w{1, 2, value, 4};
    CHECK_THROWS_WITH_AS((void)row_integers::quantize<float>(std::span<const float>(w), 2, 8, "dense.weight"),
                         "parameter 'dense.weight': must be finite in fp16 to be stored in 8 bits", config_error);
  }
}
