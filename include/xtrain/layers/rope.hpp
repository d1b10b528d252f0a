// The angles of rotary positions, and the slopes of linear biases: plain numbers, no device.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <xtrain/layers/kinds.hpp>

namespace xtrain {

/// How rotary positions are stretched over more tokens than a model was trained on.
struct rope_scaling {
  enum class rule : std::uint8_t {
    none,
    linear,  ///< every frequency divided by the factor                                    [Chen et al. 2023]
    llama3   ///< low frequencies divided, high ones not, in between a mixture             [Llama team 2024]
  };
  rule kind = rule::none;
  double factor = 1.0;
  double low_frequency_factor = 1.0;  ///< llama3: waves longer than original_context / this are low
  double high_frequency_factor = 4.0;
  std::size_t original_context = 0;

  friend bool operator==(const rope_scaling&, const rope_scaling&) = default;

  [[nodiscard]] double scaled(double frequency) const {
    if (kind == rule::none) return frequency;
    if (kind == rule::linear) return frequency / factor;
    const double waves = static_cast<double>(original_context) * frequency / (2.0 * 3.14159265358979323846);
    if (waves > high_frequency_factor) return frequency;
    if (waves < low_frequency_factor) return frequency / factor;
    const double part = (waves - low_frequency_factor) / (high_frequency_factor - low_frequency_factor);
    return (1.0 - part) * frequency / factor + part * frequency;
  }
};

/// What positions are made of.
struct position_options {
  std::size_t context = 0;
  std::size_t heads = 0;
  std::size_t head_dim = 0;
  std::size_t rotated = 0;  // elements of a head that turn, from the first on; 0: all
  double rope_base = 10000.0;
  rope_scaling scaling{};
  bool linear_biases = false;  // instead of a rotation, where a family has both
  std::size_t first = 0;       // position of a row's first token
  position_kind kind = position_kind::rotary;  // for a layer that can be any

  [[nodiscard]] std::size_t turned() const { return rotated == 0 ? head_dim : rotated; }
};

/// Cosines and sines of every position from the first on: [context, rotated], rotated/2 cosines, then as many sines.
/// The angles position · base^(−2i/rotated) are multiplied in fp32, as the models' training code did it: weights expect the
/// rounding of large positions to be the same.                            [Su et al. 2021, eq. 34]
[[nodiscard]] inline std::vector<float> rope_table(const position_options& o) {
  const std::size_t rotated = o.turned(), half = rotated / 2;
  std::vector<float> table(o.context * rotated);
  for (std::size_t i = 0; i < half; ++i) {
    const double plain = 1.0 / std::pow(o.rope_base, 2.0 * static_cast<double>(i) / static_cast<double>(rotated));
    const auto frequency = static_cast<float>(o.scaling.scaled(plain));
    for (std::size_t at = 0; at < o.context; ++at) {
      const float angle = static_cast<float>(o.first + at) * frequency;
      table[at * rotated + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      table[at * rotated + half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
  return table;
}

/// 2^(−8i/h) for i = 1 … h where the number of heads h is a power of two; otherwise those of the power below, and every second
/// one of the power above.                                                  [Press et al. 2022, section 3 and its code]
[[nodiscard]] inline std::vector<float> alibi_slopes(std::size_t heads) {
  std::size_t power = 1;
  while (2 * power <= heads) power *= 2;
  const auto slope = [](std::size_t i, std::size_t of) {
    return static_cast<float>(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(of)));
  };
  std::vector<float> slopes;
  for (std::size_t i = 1; i <= power; ++i) slopes.push_back(slope(i, power));
  for (std::size_t i = 1; slopes.size() < heads; i += 2) slopes.push_back(slope(i, 2 * power));
  return slopes;
}

}  // namespace xtrain
