// NF4: levels match their definition, quantization matches bitsandbytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/ops/nf4.hpp>
#include <xtrain/tensor/arena.hpp>
#include "golden.hpp"

using namespace xtrain;

namespace {

/// Quantile of the standard normal distribution.
double normal_quantile(double probability) {
  double low = -10, high = 10;
  while (high - low > 1e-12) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < probability ? low : high) = middle;
  }
  return low;
}

template <class T>
std::vector<T> made_again(const nf4_array& numbers, std::size_t n) {
  const cpu::context on;
  cpu::stream stream(on);
  arena<cpu> workspace(on, 0, memory_role::workspace);
  execution<cpu> where{stream, workspace, on.properties()};
  auto copy = numbers;
  const nf4_view<host_memory> view{.n = n,
                                   .code_n2 = span_of(std::span(copy.code_n2)),
                                   .scale_k = span_of(std::span(copy.scale_k)),
                                   .outer = span_of(std::span(copy.outer))};
  std::vector<T> y(n);
  ops::dequantize(where, view, vector_view<T, host_memory>(span_of(std::span(y)), {n}));
  stream.synchronize();
  return y;
}

}  // namespace

TEST_CASE("the sixteen levels are quantiles of the normal distribution, evenly spaced in each half, and the largest is one") {
  const double first = (1.0 / 32 + 1.0 / 30) / 2;
  const double largest = -normal_quantile(first);
  for (std::size_t i = 0; i < 8; ++i) {
    // eight quantiles from `first` to one half below zero, nine above; seven and eight are nonzero
    const double below = normal_quantile(first + (0.5 - first) * static_cast<double>(i) / 7.0);
    const double above = -normal_quantile(first + (0.5 - first) * static_cast<double>(i) / 8.0);
    CHECK(static_cast<double>(nf4::levels[i]) == doctest::Approx(below / largest).epsilon(1e-6));
    CHECK(static_cast<double>(nf4::levels[15 - i]) == doctest::Approx(above / largest).epsilon(1e-6));
  }
}

TEST_CASE("levels, codes, scales and numbers are those of bitsandbytes") {
  const safetensors_file expected(golden::folder("nf4") + "/expected.safetensors");
  const auto numbers = [&](const std::string& name) { return golden::numbers(expected, name); };
  const auto levels = numbers("shares"), scale_levels = numbers("scale_shares");
  CHECK(std::equal(levels.begin(), levels.end(), nf4::levels.begin(), nf4::levels.end()));
  REQUIRE(scale_levels.size() == nf4::scale_levels.size());
  // fp32 in bitsandbytes, double here: one or two roundings
  for (std::size_t i = 0; i < 256; ++i) CHECK(nf4::scale_levels[i] == doctest::Approx(scale_levels[i]).epsilon(4e-7));

  for (const std::string name : {"short", "odd", "even"}) {
    CAPTURE(name);
    const auto x = numbers(name + ".x");
    const auto codes = numbers(name + ".codes"), scales = numbers(name + ".scales"), outer = numbers(name + ".outer_scales");
    const nf4_array theirs{{codes.begin(), codes.end()}, {scales.begin(), scales.end()}, {outer.begin(), outer.end()}};
    const auto made = numbers(name + ".made");
    const auto made_here = made_again<float>(theirs, x.size());
    // three roundings of numbers below 10 on each side
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(made[i] - static_cast<double>(made_here[i])) <= 6 * 6e-8 * 10);

    const nf4_array ours = nf4::quantize<double>(x);
    CHECK(ours.code_n2 == theirs.code_n2);
    REQUIRE(ours.outer.size() == theirs.outer.size());
    // the mean is a sum of some hundred numbers, fp32 in bitsandbytes: relative error 2^-24 · sqrt(269)
    for (std::size_t i = 0; i < outer.size(); ++i) CHECK(ours.outer[i] == doctest::Approx(outer[i]).epsilon(1e-6));
    REQUIRE(ours.scale_k.size() == theirs.scale_k.size());
    for (std::size_t b = 0; b < scales.size() && name != "short"; ++b) {  // a single scale minus the mean is zero, so any level fits
      const auto level = [&](const nf4_array& of) { return static_cast<double>(nf4::scale_levels[of.scale_k[b]]); };
      double largest = 0;
      for (std::size_t i = b * 64; i < std::min(x.size(), b * 64 + 64); ++i) largest = std::max(largest, std::abs(x[i]));
      const double wanted = (largest - outer[0]) / outer[1 + b / 256];
      // bitsandbytes rounds values slightly beyond the midpoint as if at it
      CHECK((level(ours) == level(theirs) || std::abs(std::abs(level(ours) - wanted) - std::abs(level(theirs) - wanted)) < 5e-6));
      CHECK(std::abs(level(ours) - wanted) <= std::abs(level(theirs) - wanted) + 1e-6);
    }
  }
}

TEST_CASE("what is made is off by at most half a step of its block and the rounding of its scale, in every number type") {
  std::vector<float> x(64 * 300 + 5);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i * i % 1009)) * (1.0f + static_cast<float>(i / 64 % 7));
  const nf4_array numbers = nf4::quantize<float>(x);
  const auto y = made_again<float>(numbers, x.size());
  for (std::size_t b = 0; b * 64 < x.size(); ++b) {
    float largest = 0;
    for (std::size_t i = b * 64; i < std::min(x.size(), b * 64 + 64); ++i) largest = std::max(largest, std::abs(x[i]));
    // the widest step is 0.304 levels; scales minus their mean are at most 7, off by half their widest step, 0.9 / 128
    const double allowed = 0.304 / 2 * static_cast<double>(largest) + 7 * 0.9 / 128;
    for (std::size_t i = b * 64; i < std::min(x.size(), b * 64 + 64); ++i) CHECK(std::abs(static_cast<double>(x[i] - y[i])) <= allowed);
  }
  const auto narrow = made_again<bf16>(numbers, x.size());
  const auto wide = made_again<double>(numbers, x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    CHECK(static_cast<float>(narrow[i]) == static_cast<float>(static_cast<bf16>(y[i])));
    CHECK(wide[i] == doctest::Approx(static_cast<double>(y[i])).epsilon(1e-6));
  }
}

TEST_CASE("zeros stay zeros, nothing is nothing, and numbers that are not finite do no harm to other matrices") {
  const std::vector<float> zeros(130, 0.0f);
  for (const float y : made_again<float>(nf4::quantize<float>(zeros), zeros.size())) CHECK(y == 0.0f);
  CHECK(nf4::quantize<float>(std::span<const float>()).code_n2.empty());
  std::vector<float> x(200, 1.0f);
  x[70] = std::numeric_limits<float>::infinity();
  x[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(nf4::quantize<float>(x).code_n2.size() == 100);
}
