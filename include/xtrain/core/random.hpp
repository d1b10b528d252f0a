// Counter-based random numbers: bits depend on (seed, step, site, element), not on device, parallel layout or recomputation. No state.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace xtrain {

/// A stream of random elements.
///   seed   of the run
///   step   of the optimizer
///   site   the drawing call, such as a block's dropout
///   first  index of the first element in the global batch
struct random_site {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;
  std::uint32_t site = 0;
  std::uint64_t first = 0;

  friend bool operator==(const random_site&, const random_site&) = default;
};

/// Philox-4x32-10: four words for a 128-bit counter and a 64-bit key. [Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"]
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::uint64_t key) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(p1),
               static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return counter;
}

/// Words of elements 4·quad … 4·quad + 3.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> random_quad(const random_site& at, std::uint64_t quad) {
  return philox({static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(quad >> 32), at.site, at.step}, at.seed);
}

/// Word of element `first + i`.
[[nodiscard]] constexpr std::uint32_t random_word(const random_site& at, std::uint64_t i) {
  const std::uint64_t element = at.first + i;
  return random_quad(at, element / 4)[static_cast<std::size_t>(element % 4)];
}

/// Words at or above are kept: P(dropped) = probability, to 2^-32.
[[nodiscard]] constexpr std::uint32_t dropout_threshold(double probability) {
  const double words = probability * 4294967296.0;
  return words >= 4294967295.0 ? 0xffffffffU : static_cast<std::uint32_t>(words);
}

/// To (0, 1], 24 bits.
[[nodiscard]] constexpr float uniform_open(std::uint32_t word) { return (static_cast<float>(word >> 8) + 1.0f) * 0x1p-24f; }

/// Standard normal elements 4·quad … 4·quad + 3 (Box-Muller).
[[nodiscard]] inline std::array<float, 4> normal_quad(const random_site& at, std::uint64_t quad) {
  constexpr double two_pi = 6.283185307179586476925;
  const auto words = random_quad(at, quad);
  std::array<float, 4> normal{};
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    const double radius = std::sqrt(-2.0 * std::log(static_cast<double>(uniform_open(words[pair]))));
    const double angle = two_pi * static_cast<double>(uniform_open(words[pair + 1]));
    normal[pair] = static_cast<float>(radius * std::cos(angle));
    normal[pair + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return normal;
}

/// FNV-1a, 32 bits: site of a tensor's initial values.
[[nodiscard]] constexpr std::uint32_t site_of_name(std::string_view name) {
  std::uint32_t hash = 0x811C9DC5U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193U;
  return hash;
}

/// Element i of the shuffled order of (seed, epoch), computed: a four-round Feistel network over the next power of four, iterated until below `size`.
/// [Black & Rogaway 2002, cycle walking]
class shuffled_order {
 public:
  shuffled_order(std::size_t size, std::uint64_t seed, std::uint32_t epoch) : size_(size), at_{seed, epoch, 0, 0} {
    while ((std::uint64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
  }

  [[nodiscard]] std::size_t operator[](std::size_t i) const {
    std::uint64_t place = i;
    do place = round_trip(place);
    while (place >= size_);
    return static_cast<std::size_t>(place);
  }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  [[nodiscard]] std::uint64_t round_trip(std::uint64_t place) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = place >> half_bits_;
    std::uint64_t right = place & mask;
    for (std::uint32_t round = 0; round < 4; ++round) {
      const auto mixed = philox({static_cast<std::uint32_t>(right), static_cast<std::uint32_t>(right >> 32), round, at_.step}, at_.seed);
      const std::uint64_t next = left ^ (mixed[0] & mask);
      left = right;
      right = next;
    }
    return (left << half_bits_) | right;
  }

  std::size_t size_;
  random_site at_;
  unsigned half_bits_ = 1;
};

}  // namespace xtrain
