#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <xtrain/core/dtype.hpp>

using namespace xtrain;

namespace {

/// The nearest number of T, found by exhaustive search, independent of the conversion.
template <class T>
T nearest_by_search(double value) {
  T best = T::from_bits(0);
  double best_error = std::numeric_limits<double>::infinity();
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T candidate = T::from_bits(static_cast<std::uint16_t>(bits));
    const double number = static_cast<double>(static_cast<float>(candidate));
    if (!std::isfinite(number)) continue;
    const double error = std::abs(number - value);
    const bool closer = error < best_error;
    const bool even_tie = error == best_error && (bits & 1U) == 0 && std::signbit(number) == std::signbit(value);
    if (!closer && !even_tie) continue;
    best = candidate;
    best_error = error;
  }
  return best;
}

template <class T>
void check_against_search(double value) {
  CAPTURE(value);
  CHECK(T(value).bits == nearest_by_search<T>(value).bits);
}

}  // namespace

TEST_CASE_TEMPLATE("every 16-bit pattern survives the way to float and back", T, bf16, fp16) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const T value = T::from_bits(static_cast<std::uint16_t>(bits));
    const auto wide = static_cast<float>(value);
    if (std::isnan(wide)) {
      CHECK(std::isnan(static_cast<float>(T(wide))));
      continue;
    }
    REQUIRE(T(wide).bits == value.bits);
  }
}

TEST_CASE("conversion rounds to nearest, ties to even, subnormals included") {
  for (const double value : {1.0, 1.00390625, 1.01171875, -1.00390625, 3.14159265, 65504.0, 1e-3, 6.1e-5, 6.0e-8, 3.1e-8, 2.98e-8,
                             1.5 * 0x1p-24, 0.5 * 0x1p-24, 65519.9})
    check_against_search<fp16>(value);
  for (const double value : {1.0, 1.00390625, 1.01171875, -1.01171875, 3.14159265, 1e38, 1e-38, 9.2e-41, 4.6e-41, 1e-45})
    check_against_search<bf16>(value);
}

TEST_CASE("a double is rounded once, not first to float") {
  // halfway between two bf16 numbers except for a bit that float cannot hold
  CHECK(bf16(1.00390625 + 0x1p-40).bits == bf16(1.0078125f).bits);
  CHECK(bf16(1.00390625).bits == bf16(1.0f).bits);
  CHECK(fp16(1.00048828125 + 0x1p-40).bits == fp16(1.0009765625f).bits);
  CHECK(fp16(1.00048828125).bits == fp16(1.0f).bits);
}

TEST_CASE("infinities, NaN and overflow are kept apart") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isinf(static_cast<float>(bf16(infinity))));
  CHECK(static_cast<float>(bf16(-infinity)) < 0);
  CHECK(std::isnan(static_cast<float>(bf16(nan))));
  // a NaN whose payload lies in the truncated bits must not become an infinity
  CHECK(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(0x7f800001U)))));
  CHECK(std::isnan(static_cast<float>(fp16(std::bit_cast<float>(0x7f800001U)))));
  CHECK(std::isinf(static_cast<float>(bf16(3.4e38f))));
  CHECK(std::isinf(static_cast<float>(fp16(65520.0f))));
  CHECK(static_cast<float>(fp16(65519.0f)) == 65504.0f);
  CHECK(std::signbit(static_cast<float>(bf16(-0.0f))));
  CHECK(std::signbit(static_cast<float>(fp16(-0.0f))));
}

TEST_CASE_TEMPLATE("stochastic rounding goes to a neighbour, up as often as the value is near it", T, bf16, fp16) {
  for (const float value : {1.001f, -1.001f, 0.37f, 6.2e-5f, 3.3e-7f}) {
    CAPTURE(value);
    double sum = 0;
    constexpr std::uint32_t draws = 1 << 16;
    float low = std::numeric_limits<float>::infinity(), high = -low;
    for (std::uint32_t word = 0; word < draws; ++word) {
      const auto rounded = static_cast<float>(rounded_stochastically<T>(value, word));
      low = std::min(low, rounded);
      high = std::max(high, rounded);
      sum += static_cast<double>(rounded);
    }
    CHECK(low <= value);
    CHECK(high >= value);
    // the mean over all 2^16 words is the value, up to 2^-16 of the neighbors' distance
    CHECK(std::abs(sum / draws - static_cast<double>(value)) <= static_cast<double>(high - low) * 0x1p-15);
  }
  CHECK(std::isnan(static_cast<float>(rounded_stochastically<T>(std::numeric_limits<float>::quiet_NaN(), 0xffffU))));
  CHECK(std::isinf(static_cast<float>(rounded_stochastically<T>(std::numeric_limits<float>::infinity(), 0xffffU))));
}
