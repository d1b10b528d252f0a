// Frozen weights in GGUF blocks: which parameters, and their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <xtrain/core/hooks.hpp>
#include <xtrain/device/kernel/blocks.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

/// Models with this adapter can store frozen linear weights in blocks.
template <class Adapter>
inline constexpr bool stores_blocks = has_hook<Adapter, hook::stores_blocks>;

/// Frozen linear weights stored in blocks, by name. A fused matrix needs all its parameters listed. Trained weights are never in blocks.
struct weight_blocks {
  std::map<std::string, block_format, std::less<>> formats{};
  std::optional<block_format> otherwise{};  ///< of unlisted weights with rows of entire blocks: for plans

  friend bool operator==(const weight_blocks&, const weight_blocks&) = default;

  [[nodiscard]] bool empty() const { return formats.empty() && !otherwise; }
  /// For a weight with that many columns; none: stored as numbers.
  [[nodiscard]] std::optional<block_format> of(std::string_view name, std::size_t columns) const {
    const auto found = formats.find(name);
    const std::optional<block_format> format = found == formats.end() ? otherwise : found->second;
    return format && columns % block_formats::of(*format).numbers == 0 ? format : std::nullopt;
  }
};

/// n numbers in blocks.
template <class Memory>
struct blocks_view {
  std::size_t n = 0;
  block_format format = block_format::q8_0;
  device_span<std::uint8_t, Memory> code{};
};

namespace block_formats {

/// Inverse on the host, as kernel::dequantize_blocks.
template <class T>
void dequantize(block_format format, std::span<const std::uint8_t> code, std::span<T> x) {
  const description& what = of(format);
  for (std::size_t first = 0; first < x.size(); first += run_numbers) {
    const std::uint8_t* const block = code.data() + first / what.numbers * what.bytes;
    const auto r = static_cast<std::uint32_t>(first % what.numbers / run_numbers);
    const run codes = run_of(format, r);
    const scaling scaled = scaling_of(format, block, r, scaling_of_block(format, block));
    for (std::uint32_t j = 0; j < run_numbers; ++j) {
      const std::int32_t one = code_at(codes, block, j), number = has_table(format) ? table_of(format).value[one] : one + codes.lowest;
      x[first + j] = static_cast<T>(scaled.scale * static_cast<float>(number) + scaled.offset);
    }
  }
}

}  // namespace block_formats

}  // namespace xtrain
