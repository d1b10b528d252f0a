// Python's random samples, for the few-shot examples of other evaluation programs.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>

namespace xtrain {

/// random.Random(seed).sample(range(n), k) of CPython 3.11 and later; seeds up to 32 bits.
///                                                                          [Matsumoto & Nishimura 1998, MT19937, init_by_array]
class python_random {
 public:
  explicit python_random(std::uint32_t seed) {
    state_[0] = 19650218U;
    for (std::uint32_t i = 1; i < length; ++i) state_[i] = 1812433253U * (state_[i - 1] ^ (state_[i - 1] >> 30U)) + i;
    std::uint32_t i = 1;
    const auto next = [&] {
      if (++i < length) return;
      state_[0] = state_[length - 1];
      i = 1;
    };
    for (std::uint32_t k = 0; k < length; ++k) {  // key of one word
      state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30U)) * 1664525U)) + seed;
      next();
    }
    for (std::uint32_t k = 1; k < length; ++k) {
      state_[i] = (state_[i] ^ ((state_[i - 1] ^ (state_[i - 1] >> 30U)) * 1566083941U)) - i;
      next();
    }
    state_[0] = 0x80000000U;
  }

  /// k different numbers below n, in order of drawing.
  ///   throws  config_error when k > n or n >= 2^32 − 1
  [[nodiscard]] std::vector<std::size_t> sample(std::size_t n, std::size_t k) {
    require<config_error>(k <= n && n < 0xFFFFFFFFU, "few-shot examples: there must be at least as many as are drawn; there are ", n, ", drawn ", k);
    std::size_t set_size = 21;
    if (k > 5) set_size += std::size_t{1} << (2 * static_cast<std::size_t>(std::ceil(std::log(static_cast<double>(3 * k)) / std::log(4.0))));
    std::vector<std::size_t> drawn;
    if (n <= set_size) {
      std::vector<std::size_t> pool(n);
      for (std::size_t i = 0; i < n; ++i) pool[i] = i;
      for (std::size_t i = 0; i < k; ++i) {
        const std::size_t j = below(n - i);
        drawn.push_back(pool[j]);
        pool[j] = pool[n - i - 1];
      }
      return drawn;
    }
    std::vector<bool> taken(n);
    while (drawn.size() < k) {
      const std::size_t j = below(n);
      if (taken[j]) continue;
      taken[j] = true;
      drawn.push_back(j);
    }
    return drawn;
  }

 private:
  static constexpr std::uint32_t length = 624;

  [[nodiscard]] std::size_t below(std::size_t n) {
    const auto bits = static_cast<std::uint32_t>(std::bit_width(n));
    std::size_t value = n;
    while (value >= n) value = next_word() >> (32U - bits);
    return value;
  }
  [[nodiscard]] std::uint32_t next_word() {
    if (at_ == length) {
      for (std::uint32_t i = 0; i < length; ++i) {
        const std::uint32_t y = (state_[i] & 0x80000000U) | (state_[(i + 1) % length] & 0x7FFFFFFFU);
        state_[i] = state_[(i + 397) % length] ^ (y >> 1U) ^ ((y & 1U) != 0 ? 0x9908B0DFU : 0U);
      }
      at_ = 0;
    }
    std::uint32_t y = state_[at_++];
    y ^= y >> 11U;
    y ^= (y << 7U) & 0x9D2C5680U;
    y ^= (y << 15U) & 0xEFC60000U;
    return y ^ (y >> 18U);
  }

  std::array<std::uint32_t, length> state_{};
  std::uint32_t at_ = length;
};

}  // namespace xtrain
