// random_word in bulk, arranged for vectorization.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <xtrain/core/random.hpp>

namespace xtrain::cpu_kernels {

inline constexpr std::size_t words_at_once = 64;

/// Words of elements first … first + 63, relative to the site's first element.
inline void random_words(const random_site& at, std::uint64_t first, std::array<std::uint32_t, words_at_once>& words) {
  constexpr std::size_t quads = words_at_once / 4 + 1;  // one more: the first element may be inside a quad
  const std::uint64_t element = at.first + first;
  const std::uint64_t quad = element / 4;
  std::array<std::uint32_t, quads> c0, c1, c2, c3;
  for (std::size_t q = 0; q < quads; ++q) {
    c0[q] = static_cast<std::uint32_t>(quad + q);
    c1[q] = static_cast<std::uint32_t>((quad + q) >> 32);
    c2[q] = at.site;
    c3[q] = at.step;
  }
  auto k0 = static_cast<std::uint32_t>(at.seed);
  auto k1 = static_cast<std::uint32_t>(at.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t q = 0; q < quads; ++q) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * c0[q];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * c2[q];
      c0[q] = static_cast<std::uint32_t>(p1 >> 32) ^ c1[q] ^ k0;
      c1[q] = static_cast<std::uint32_t>(p1);
      c2[q] = static_cast<std::uint32_t>(p0 >> 32) ^ c3[q] ^ k1;
      c3[q] = static_cast<std::uint32_t>(p0);
    }
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  std::array<std::uint32_t, 4 * quads> all;
  for (std::size_t q = 0; q < quads; ++q) {
    all[4 * q] = c0[q];
    all[4 * q + 1] = c1[q];
    all[4 * q + 2] = c2[q];
    all[4 * q + 3] = c3[q];
  }
  const std::size_t skip = static_cast<std::size_t>(element % 4);
  for (std::size_t i = 0; i < words_at_once; ++i) words[i] = all[skip + i];
}

}  // namespace xtrain::cpu_kernels
