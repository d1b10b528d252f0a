// Frozen weights in the blocks of GGUF files: which parameters are stored so, and their memory.
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

/// Whether models with an adapter policy can store frozen weights of linear layers in blocks.
template <class Adapter>
inline constexpr bool stores_blocks = has_hook<Adapter, hook::stores_blocks>;

/// The frozen weights of linear layers that a model stores in blocks, by name. A matrix that several parameters make together is stored so only if all of them
/// are listed. Trained weights never are.
struct weight_blocks {
  std::map<std::string, block_format, std::less<>> formats{};
  std::optional<block_format> otherwise{};  ///< of weights that are not listed, whose rows are whole blocks: for plans

  friend bool operator==(const weight_blocks&, const weight_blocks&) = default;

  [[nodiscard]] bool empty() const { return formats.empty() && !otherwise; }
  /// The format of a weight with that many columns; none: it is stored as numbers.
  [[nodiscard]] std::optional<block_format> of(std::string_view name, std::size_t columns) const {
    const auto found = formats.find(name);
    const std::optional<block_format> format = found == formats.end() ? otherwise : found->second;
    return format && columns % block_formats::of(*format).numbers == 0 ? format : std::nullopt;
  }
};

/// n numbers in blocks, in Memory.
template <class Memory>
struct blocks_view {
  std::size_t n = 0;
  block_format format = block_format::q8_0;
  device_span<std::uint8_t, Memory> code{};
};

namespace block_formats {

/// What blocks stand for, on the host: what kernel::dequantize_blocks computes.
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
