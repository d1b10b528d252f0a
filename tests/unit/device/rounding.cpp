// Vector code rounds like scalar code, with any instruction set.
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <xtrain/core/random.hpp>
#include <xtrain/device/cpu/cpu.hpp>

using namespace xtrain;

TEST_CASE("vectors are rounded to bf16 as single numbers are: subnormal, infinite and no numbers included") {
  // every sign, exponent and upper fraction bits; lower bits around the midpoint between two bf16
  constexpr std::array<std::uint32_t, 6> lower{0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff};
  std::vector<float> x;
  for (const std::uint32_t low : lower)
    for (std::uint32_t high = 0; high < 0x10000; ++high) x.push_back(std::bit_cast<float>(high << 16 | low));
  // and vectors in which one element is subnormal
  for (std::uint32_t i = 0; i < 64; ++i) x.push_back(i % 16 == 5 ? std::bit_cast<float>(0x00012345U + i) : 1.0f + 0.001f * static_cast<float>(i));
  std::vector<bf16> y(x.size());
  cpu::stream stream{cpu::context()};
  run_kernel(stream,
             kernel::cast<host_memory, float, bf16>{
                 .n = x.size(), .x_n = span_of(std::span<const float>(x)), .y_n = span_of(std::span<bf16>(y))},
             {});
  std::size_t different = 0;
  for (std::size_t i = 0; i < x.size(); ++i) different += y[i].bits != bf16(x[i]).bits ? 1 : 0;
  CHECK(different == 0);
}

#if !defined(XTRAIN_CPU_LEVELS) && !defined(XTRAIN_CPU_KERNELS)
TEST_CASE("the lanes of a vector are summed by halving, to the bit") {
  using batch = simd::batch<float, simd::native>;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    std::array<float, batch::size> lanes;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      const std::uint32_t word = random_word({.seed = i}, lane);
      lanes[lane] = std::ldexp(uniform_open(word) - 0.5f, static_cast<int>(word % 16));
    }
    const float sum = simd::sum(batch::load_unaligned(lanes.data()));
    for (std::size_t half = lanes.size() / 2; half > 0; half /= 2)
      for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    REQUIRE(std::bit_cast<std::uint32_t>(sum) == std::bit_cast<std::uint32_t>(lanes[0]));
  }
}
#endif
