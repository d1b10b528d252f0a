// A checksum of bytes. It detects accidental damage and does not protect against deliberate manipulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace xtrain {

/// XXH64 with seed 0, as the xxhash programs print it.                  [Collet, "xxHash fast digest algorithm", version 0.1.1]
[[nodiscard]] std::uint64_t checksum(std::string_view bytes);

/// 16 hexadecimal digits.
[[nodiscard]] std::string checksum_text(std::string_view bytes);

/// Checksums of up to 64 blocks of 4096 bytes, at equal distances from the first to the last. A cheap mark of contents that may be larger than memory.
///   unit   blocks begin at a multiple of so many bytes, of which there is a whole number
[[nodiscard]] std::vector<std::uint64_t> sampled_checksums(std::string_view bytes, std::size_t unit = 1);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/core/checksum_impl.hpp>
#endif
