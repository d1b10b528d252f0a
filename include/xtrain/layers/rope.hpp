// Tables of rotary embeddings and slopes of ALiBi, computed on the host.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <xtrain/layers/kinds.hpp>

namespace xtrain {

/// Scaling of RoPE to longer sequences.
struct rope_scaling_config {
  enum class rule : std::uint8_t {
    none,
    linear,  ///< frequencies / factor [Chen et al. 2023]
    llama3   ///< low frequencies / factor, high ones unchanged, interpolated between [Llama team 2024]
  };
  rule kind = rule::none;
  double factor = 1.0;
  double low_frequency_factor = 1.0;  ///< llama3: low are wavelengths above original_context / this
  double high_frequency_factor = 4.0;
  std::size_t original_context = 0;

  friend bool operator==(const rope_scaling_config&, const rope_scaling_config&) = default;

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

/// Configuration of positions.
struct position_options {
  std::size_t max_position_embeddings = 0;
  std::size_t num_heads = 0;
  std::size_t head_dim = 0;
  std::size_t rotary_dim = 0;  // rotated elements from the first; 0: all
  double rope_theta = 10000.0;
  rope_scaling_config scaling{};
  bool alibi = false;                          // ALiBi, not RoPE, in families with both
  std::size_t first = 0;                       // position of the first token
  position_kind kind = position_kind::rotary;  // for a layer type that supports any

  [[nodiscard]] std::size_t turned() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
};

/// Per position from `first` on: rotated/2 cosines, then as many sines; [max_position_embeddings, rotated]. Angles position · rope_theta^(−2i/rotated) in
/// fp32, as models are trained: the rounding counts at large positions. [Su et al. 2021, eq. 34]
[[nodiscard]] inline std::vector<float> rope_table(const position_options& o) {
  const std::size_t rotated = o.turned(), half = rotated / 2;
  std::vector<float> table(o.max_position_embeddings * rotated);
  for (std::size_t i = 0; i < half; ++i) {
    const double plain = 1.0 / std::pow(o.rope_theta, 2.0 * static_cast<double>(i) / static_cast<double>(rotated));
    const auto frequency = static_cast<float>(o.scaling.scaled(plain));
    for (std::size_t at = 0; at < o.max_position_embeddings; ++at) {
      const float angle = static_cast<float>(o.first + at) * frequency;
      table[at * rotated + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      table[at * rotated + half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
  return table;
}

/// 2^(−8i/h), i = 1 … h, for a power of two h; else the slopes of the next lower power, then every second slope of the next higher. [Press et al. 2022, section
/// 3 and its code]
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
