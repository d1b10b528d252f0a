// 16-bit numbers and random words, by GPU instructions where they exist.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/simt/language/target.hpp>

namespace xtrain::simt {

template <class T>
inline constexpr bool is_16_bits = std::is_same_v<T, bf16> || std::is_same_v<T, fp16>;
/// Computed in fp32 on a GPU.
template <class T>
inline constexpr bool up_to_float = is_16_bits<T> || std::is_same_v<T, float>;

template <class T>
XTRAIN_SIMT_FN float widen(T value) {
#if XTRAIN_SIMT_PTX
  if constexpr (std::is_same_v<T, fp16>) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
  }
#endif
  return static_cast<float>(value);
}

/// To nearest, ties to even.
template <class T>
XTRAIN_SIMT_FN T rounded(float value) {
#if XTRAIN_SIMT_PTX
  if constexpr (is_16_bits<T>) {
    unsigned short bits;
    if constexpr (std::is_same_v<T, bf16>) asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    else asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return T::from_bits(bits);
  }
#endif
  return static_cast<T>(value);
}

/// Two rounded numbers, the first in the lower half.
template <class T>
XTRAIN_SIMT_FN std::uint32_t packed(float low, float high) {
#if XTRAIN_SIMT_PTX
  std::uint32_t word;
  if constexpr (std::is_same_v<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
#else
  return static_cast<std::uint32_t>(T(low).bits) | static_cast<std::uint32_t>(T(high).bits) << 16;
#endif
}

XTRAIN_SIMT_FN float exp2(float x) {
#if XTRAIN_SIMT_PTX
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return ::exp2f(x);
#endif
}
XTRAIN_SIMT_FN float exp(float x) { return ::expf(x); }
XTRAIN_SIMT_FN float log(float x) { return ::logf(x); }
XTRAIN_SIMT_FN float tanh(float x) { return ::tanhf(x); }
XTRAIN_SIMT_FN float erf(float x) { return ::erff(x); }
XTRAIN_SIMT_FN float sqrt(float x) { return ::sqrtf(x); }

/// An element's word of its quad, without a run-time index, which would use local memory.
XTRAIN_SIMT_FN std::uint32_t word_of_quad(const std::array<std::uint32_t, 4>& words, std::uint64_t element) {
  const std::uint32_t low = element % 2 == 0 ? words[0] : words[1], high = element % 2 == 0 ? words[2] : words[3];
  return element % 4 < 2 ? low : high;
}
/// xtrain::random_word
XTRAIN_SIMT_FN std::uint32_t random_word_of(const random_site& at, std::uint64_t i) {
  const std::uint64_t element = at.first + i;
  return word_of_quad(random_quad(at, element / 4), element);
}
/// xtrain::random_word of successive elements: neighbours share a quad, drawn once.
class random_words {
 public:
  XTRAIN_SIMT_FN explicit random_words(const random_site& at) : at_(at) {}
  XTRAIN_SIMT_FN std::uint32_t of(std::uint64_t i) {
    const std::uint64_t element = at_.first + i;
    if (element / 4 != quad_) {
      quad_ = element / 4;
      words_ = random_quad(at_, quad_);
    }
    return word_of_quad(words_, element);
  }

 private:
  random_site at_;
  std::uint64_t quad_ = ~std::uint64_t{0};  // before the first quad
  std::array<std::uint32_t, 4> words_{};
};

/// To nearest, or stochastically by `word`.
template <class To>
XTRAIN_SIMT_FN To stored(float value, bool stochastic, std::uint32_t word) {
  return stochastic ? rounded_stochastically<To>(value, word) : rounded<To>(value);
}

}  // namespace xtrain::simt
