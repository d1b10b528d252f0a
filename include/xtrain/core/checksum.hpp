#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace xtrain {

/// XXH64, seed 0, as printed by xxhash; against accidental damage, not manipulation. [Collet, "xxHash fast digest algorithm", version 0.1.1]
[[nodiscard]] std::uint64_t checksum(std::string_view bytes);

/// 16 hexadecimal digits.
[[nodiscard]] std::string checksum_text(std::string_view bytes);

/// Checksums of up to 64 equally spaced blocks of 4096 bytes, first and last included: cheap for contents larger than memory.
///   unit  blocks begin at its multiples and hold a whole number of it
[[nodiscard]] std::vector<std::uint64_t> sampled_checksums(std::string_view bytes, std::size_t unit = 1);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/core/checksum_impl.hpp>
#endif
