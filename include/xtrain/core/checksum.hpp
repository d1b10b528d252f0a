// A checksum of bytes. It detects accidental damage and does not protect against deliberate manipulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace xtrain {

/// XXH64 with seed 0, as the xxhash programs print it.                  [Collet, "xxHash fast digest algorithm", version 0.1.1]
[[nodiscard]] std::uint64_t checksum(std::string_view bytes);

/// 16 hexadecimal digits.
[[nodiscard]] std::string checksum_text(std::string_view bytes);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/core/checksum_impl.hpp>
#endif
