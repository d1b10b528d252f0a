// RoPE angles and ALiBi slopes, against values of the models' own code.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include <xtrain/layers/rope.hpp>

using namespace xtrain;

namespace {

// transformers 5.23, ROPE_INIT_FUNCTIONS["llama3"]: 32 elements of a head, base 10000, factor 8, low 1, high 4, original context 1024. Wavelengths from the 8th
// on exceed a quarter of the context, from the 10th on the context
const std::vector<double> llama3_frequencies{1,           0.562341332,  0.316227764,    0.177827939,    0.100000001,    0.0562341288,
                                             0.0316227786, 0.01206786,  0.00308676064,  0.000702926656, 0.000395284733, 0.000222284929,
                                             0.000125000006, 7.02926627e-05, 3.95284733e-05, 2.22284925e-05};
// cosines and sines of position 1500 in torch 2.15
const std::vector<double> cosines_1500{-0.1102674,  0.0056035337, -0.99924558, -0.95724797, 0.69925082, -0.89074922, -0.95224816, 0.73320949,
                                       -0.082155496, 0.49375832,  0.82930857,  0.94492614,  0.98247331, 0.99444646,  0.99824268,  0.99944419};
const std::vector<double> sines_1500{-0.99390197, 0.99998432, 0.038836636, 0.28926864, -0.71487641, 0.45449516,  -0.30532524, -0.68000281,
                                     -0.99661952, 0.86959916, 0.55879086,  0.32728359, 0.18640332,  0.10524374, 0.059257977, 0.033336561};

rope_scaling_config llama3() {
  return {.kind = rope_scaling_config::rule::llama3, .factor = 8.0, .low_frequency_factor = 1.0, .high_frequency_factor = 4.0, .original_context = 1024};
}

}  // namespace

TEST_CASE("llama3's scaling is transformers' for every wave: short, long and in between") {
  const rope_scaling_config scaling = llama3();
  for (std::size_t i = 0; i < 16; ++i) {
    CAPTURE(i);
    const double plain = std::pow(10000.0, -2.0 * static_cast<double>(i) / 32.0);
    CHECK(std::abs(scaling.scaled(plain) / llama3_frequencies[i] - 1.0) < 1e-6);  // fp32 in transformers: eight roundings of 2^-24; 9 digits here
  }
  // both ends of the interpolated band
  const double turn = 2.0 * 3.14159265358979323846 / 1024.0;
  CHECK(scaling.scaled(4.0 * turn) == doctest::Approx(4.0 * turn).epsilon(1e-14));
  CHECK(scaling.scaled(turn) == doctest::Approx(turn / 8.0).epsilon(1e-14));
  CHECK(scaling.scaled(2.5 * turn) == doctest::Approx(2.5 * turn * (0.5 + 0.5 / 8.0)).epsilon(1e-14));
}

TEST_CASE("a table of rotary positions is torch's, from its first position on") {
  const std::size_t first = 1498;
  const auto table = rope_table({.max_position_embeddings = 4, .head_dim = 32, .scaling = llama3(), .first = first});
  REQUIRE(table.size() == 4 * 32);
  for (std::size_t i = 0; i < 16; ++i) {
    CAPTURE(i);
    // frequencies two fp32 ulps apart: angles at most 1500 · 2^-22 apart, plus one rounding
    CHECK(std::abs(static_cast<double>(table[2 * 32 + i]) - cosines_1500[i]) < 5e-4);
    CHECK(std::abs(static_cast<double>(table[2 * 32 + 16 + i]) - sines_1500[i]) < 5e-4);
  }
  // partial rotation, no scaling: position 0 does not rotate, position 1 by base^(-2i/6)
  const auto some = rope_table({.max_position_embeddings = 2, .head_dim = 32, .rotary_dim = 6, .rope_theta = 1000.0});
  REQUIRE(some.size() == 2 * 6);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(some[i] == 1.0f);
    CHECK(some[3 + i] == 0.0f);
    const double angle = i == 0 ? 1.0 : i == 1 ? 0.1 : 0.01;
    CHECK(std::abs(static_cast<double>(some[6 + i]) - std::cos(angle)) < 2e-7);
    CHECK(std::abs(static_cast<double>(some[9 + i]) - std::sin(angle)) < 2e-7);
  }
  CHECK(rope_scaling_config{}.scaled(0.25) == 0.25);
  CHECK(rope_scaling_config{.kind = rope_scaling_config::rule::linear, .factor = 4.0}.scaled(0.25) == 0.0625);
}

TEST_CASE("the defaults of positions are those of the papers") {
  CHECK(position_options{}.rope_theta == 10000.0);
  CHECK(position_options{}.first == 0);
  CHECK_FALSE(position_options{}.alibi);
  CHECK(rope_scaling_config{}.factor == 1.0);
  CHECK(rope_scaling_config{}.low_frequency_factor == 1.0);
  CHECK(rope_scaling_config{}.high_frequency_factor == 4.0);
  CHECK(alibi_slopes(6) == std::vector<float>{0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f});
  CHECK(alibi_slopes(4) == std::vector<float>{0.25f, 0.0625f, 0.015625f, 0.00390625f});
  CHECK(alibi_slopes(1) == std::vector<float>{0.00390625f});
}
