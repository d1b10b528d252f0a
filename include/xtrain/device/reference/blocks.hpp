#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/device/kernel/blocks.hpp>
#include <xtrain/device/reference/stream.hpp>

namespace xtrain {

template <class T>
void run_kernel(reference_stream&, const kernel::dequantize_blocks<host_memory, T>& k, scratch_span<host_memory>) {
  kernel::check_arity<4>(k);
  const block_formats::description& of = block_formats::of(k.format);
  for (std::size_t i = 0; i < k.n; ++i) {
    const std::uint8_t* const block = k.code.raw() + i / of.numbers * of.bytes;
    const auto r = static_cast<std::uint32_t>(i % of.numbers / block_formats::run_numbers), j = static_cast<std::uint32_t>(i % block_formats::run_numbers);
    const block_formats::run run = block_formats::run_of(k.format, r);
    const block_formats::scaling scaling = block_formats::scaling_of(k.format, block, r, block_formats::scaling_of_block(k.format, block));
    const std::int32_t code = block_formats::code_at(run, block, j);
    const std::int32_t number = block_formats::has_table(k.format) ? block_formats::table_of(k.format).value[code] : code + run.lowest;
    k.y_n.raw()[i] = static_cast<T>(scaling.scale * static_cast<float>(number) + scaling.offset);
  }
}

}  // namespace xtrain
