// The only header that names xsimd, with what it lacks: 16-bit loads and stores, partial vectors, fused multiply-add everywhere. The architecture is a template
// argument: code for different flags has different symbols and can be linked together.
#pragma once

#if !__has_include(<xsimd/xsimd.hpp>)
#error "xtrain: xsimd 8.1 or newer must be found; link xtrain::xtrain (Debian and Ubuntu: libxsimd-dev)"
#endif

#if defined(__x86_64__) || defined(_M_X64)
// g++ 12 warns about deliberately undefined registers in its intrinsics.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <xsimd/xsimd.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include <xtrain/core/dtype.hpp>

// g++ spills an accumulator array if a loop over it is not unrolled.
#ifdef __CUDACC__  // its front end warns of unknown pragmas
#define XTRAIN_UNROLL
#define XTRAIN_UNROLL_4
#else
#define XTRAIN_UNROLL _Pragma("GCC unroll 64")
#define XTRAIN_UNROLL_4 _Pragma("GCC unroll 4")
#endif
#define XTRAIN_ALWAYS_INLINE inline __attribute__((always_inline))
#define XTRAIN_LAMBDA_INLINE __attribute__((always_inline))

namespace xtrain::simd {

/// By compiler flags.
using native = xsimd::default_arch;

/// A register of A.
template <class A, class Arch>
using batch = xsimd::batch<A, Arch>;

template <class A, class Arch>
inline constexpr std::size_t width = batch<A, Arch>::size;

template <class Arch>
inline constexpr bool is_avx512 = std::is_base_of_v<xsimd::avx512f, Arch>;
template <class Arch>
inline constexpr bool is_avx2 = std::is_base_of_v<xsimd::avx2, Arch>;
template <class Arch>
inline constexpr bool is_sse = std::is_base_of_v<xsimd::sse2, Arch>;
template <class Arch>
inline constexpr bool is_neon64 = std::is_base_of_v<xsimd::neon64, Arch>;

/// For a kernel's accumulators.
template <class Arch>
inline constexpr std::size_t registers = is_avx512<Arch> || is_neon64<Arch> ? 32 : 16;

/// 128-bit architecture of Arch's family, supported everywhere.
template <class Arch>
using quad_arch = std::conditional_t<is_neon64<Arch>, xsimd::neon64, xsimd::sse2>;


/// a·b + c, rounded once with FMA.
template <class A, class Arch>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<A, Arch> multiply_add(const xsimd::batch<A, Arch>& a, const xsimd::batch<A, Arch>& b,
                                                               const xsimd::batch<A, Arch>& c) {
#ifdef __AVX512F__
  if constexpr (is_avx512<Arch> && std::is_same_v<A, float>) return _mm512_fmadd_ps(a, b, c);
  if constexpr (is_avx512<Arch> && std::is_same_v<A, double>) return _mm512_fmadd_pd(a, b, c);
#endif
  return xsimd::fma(a, b, c);
}

/// Two bf16, the first in the lower half: operands of pair products (AVX-512 BF16).
struct bf16_pair {
  std::uint32_t bits;
};

#ifdef __AVX512BF16__
template <class Arch>
inline constexpr bool multiplies_pairs = is_avx512<Arch>;
#else
template <class Arch>
inline constexpr bool multiplies_pairs = false;
#endif

/// "avx2", "avx512bw with bf16 products"
[[nodiscard]] inline std::string instructions() {
  return std::string(native::name()) + (multiplies_pairs<native> ? " with bf16 products" : "");
}

/// sum + a₀·b₀ + a₁·b₁ per lane, a and b being bits of pairs. The processor treats subnormal bf16 as zero.
template <class Arch>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<float, Arch> multiply_add_pairs(const xsimd::batch<float, Arch>& a,
                                                                         const xsimd::batch<float, Arch>& b,
                                                                         const xsimd::batch<float, Arch>& sum) {
  static_assert(multiplies_pairs<Arch>);
#ifdef __AVX512BF16__
  const __m512 a_bits = a;
  const __m512 b_bits = b;
  return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(a_bits), (__m512bh)_mm512_castps_si512(b_bits));
#else
  return sum + a * b;
#endif
}

namespace detail {

template <class Arch, class T>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<float, Arch> widened_in_turn(const T* from) {
  std::array<float, width<float, Arch>> lanes;
  for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = from[i];
  return xsimd::batch<float, Arch>::load_unaligned(lanes.data());
}

/// `width` 16-bit values as floats, with a loop where no instructions fit.
template <class Arch>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<float, Arch> widened(const bf16* from) {
#ifdef __AVX512F__
  if constexpr (is_avx512<Arch>) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
#endif
#ifdef __AVX2__
  if constexpr (is_avx2<Arch>) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
#endif
#ifdef __SSE2__
  if constexpr (is_sse<Arch>) {
    const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), bits));
  }
#endif
#ifdef __aarch64__
  if constexpr (is_neon64<Arch>) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(from)), 16));
  }
#endif
  return widened_in_turn<Arch>(from);
}

template <class Arch>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<float, Arch> widened(const fp16* from) {
#ifdef __AVX512F__
  if constexpr (is_avx512<Arch>) return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#endif
#if defined(__AVX2__) && defined(__F16C__)
  if constexpr (is_avx2<Arch>) return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
#endif
#ifdef __aarch64__
  if constexpr (is_neon64<Arch>) return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const std::uint16_t*>(from))));
#endif
#ifdef __F16C__
  if constexpr (is_sse<Arch>) return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
#endif
  return widened_in_turn<Arch>(from);
}

// for the fallback of hardware rounding
#if defined(__AVX512BF16__) && defined(__AVX512DQ__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define XTRAIN_ROUNDS_TO_BF16
[[nodiscard]] XTRAIN_ALWAYS_INLINE bool any_subnormal(__m512 x) { return _mm512_fpclass_ps_mask(x, 0x20) != 0; }
#endif

/// To nearest, ties to even, exactly as bf16(float), with NaN and subnormals. Hardware (AVX512-BF16) flushes subnormals: used only without them.
template <class Arch>
XTRAIN_ALWAYS_INLINE void narrow(bf16* to, const xsimd::batch<float, Arch>& x) {
#ifdef __AVX512F__
  if constexpr (is_avx512<Arch>) {
    const __m512 value = x;
#ifdef XTRAIN_ROUNDS_TO_BF16
    // zeros in the output and subnormals in the input: round in software
    const __m256i bits = (__m256i)_mm512_cvtneps_pbh(value);
    if (__builtin_expect(_mm256_testn_epi16_mask(bits, _mm256_set1_epi16(0x7fff)) == 0, 1) || !detail::any_subnormal(value)) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bits);
      return;
    }
#endif
    const __m512i u = _mm512_castps_si512(value);
    const __m512i upper = _mm512_srli_epi32(u, 16);
    const __m512i bias = _mm512_add_epi32(_mm512_set1_epi32(0x7fff), _mm512_and_epi32(upper, _mm512_set1_epi32(1)));
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i rounded = _mm512_mask_or_epi32(_mm512_srli_epi32(_mm512_add_epi32(u, bias), 16), nan, upper, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(rounded));
    return;
  }
#endif
#ifdef __AVX2__
  if constexpr (is_avx2<Arch>) {
    const __m256 value = x;
    const __m256i u = _mm256_castps_si256(value);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(u, _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    // arithmetic shift: the signed pack keeps all 16 bits
    const __m256i rounded = _mm256_srai_epi32(_mm256_blendv_epi8(sum, quiet, nan), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(rounded, rounded), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(packed));
    return;
  }
#endif
#ifdef __SSE2__
  if constexpr (is_sse<Arch>) {
    const __m128 value = x;
    const __m128i u = _mm_castps_si128(value);
    const __m128i odd = _mm_and_si128(_mm_srli_epi32(u, 16), _mm_set1_epi32(1));
    const __m128i sum = _mm_add_epi32(u, _mm_add_epi32(_mm_set1_epi32(0x7fff), odd));
    const __m128i nan = _mm_castps_si128(_mm_cmpunord_ps(value, value));
    const __m128i quiet = _mm_or_si128(u, _mm_set1_epi32(0x400000));
    const __m128i chosen = _mm_or_si128(_mm_and_si128(nan, quiet), _mm_andnot_si128(nan, sum));
    const __m128i rounded = _mm_srai_epi32(chosen, 16);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi32(rounded, rounded));
    return;
  }
#endif
  std::array<float, width<float, Arch>> lanes;
  x.store_unaligned(lanes.data());
  for (std::size_t i = 0; i < lanes.size(); ++i) to[i] = bf16(lanes[i]);
}

template <class Arch>
XTRAIN_ALWAYS_INLINE void narrow(fp16* to, const xsimd::batch<float, Arch>& x) {
#ifdef __AVX512F__
  if constexpr (is_avx512<Arch>) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return;
  }
#endif
#if defined(__AVX2__) && defined(__F16C__)
  if constexpr (is_avx2<Arch>) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return;
  }
#endif
#ifdef __aarch64__
  if constexpr (is_neon64<Arch>) {
    vst1_u16(reinterpret_cast<std::uint16_t*>(to), vreinterpret_u16_f16(vcvt_f16_f32(x)));
    return;
  }
#endif
#ifdef __F16C__
  if constexpr (is_sse<Arch>) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return;
  }
#endif
  std::array<float, width<float, Arch>> lanes;
  x.store_unaligned(lanes.data());
  for (std::size_t i = 0; i < lanes.size(); ++i) to[i] = fp16(lanes[i]);
}

}  // namespace detail

/// `width` elements of T in the accumulate type; unaligned.
template <class Arch, class T>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<accumulate_t<T>, Arch> load(const T* from) {
  if constexpr (std::is_same_v<T, accumulate_t<T>>) {
    return xsimd::batch<T, Arch>::load_unaligned(from);
  } else {
    return detail::widened<Arch>(from);
  }
}

/// Two consecutive vectors.
template <class Arch, class T>
[[nodiscard]] XTRAIN_ALWAYS_INLINE std::array<xsimd::batch<accumulate_t<T>, Arch>, 2> load_two(const T* from) {
#ifdef __AVX512BW__
  if constexpr (is_avx512<Arch> && std::is_same_v<T, bf16>) {
    const __m512i bits = _mm512_loadu_si512(from);
    const __m512i low = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    constexpr __mmask32 upper_halves = 0xaaaaaaaa;
    return {_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(upper_halves, low, bits)),
            _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(upper_halves, high, bits))};
  }
#endif
  return {simd::load<Arch>(from), simd::load<Arch>(from + width<accumulate_t<T>, Arch>)};
}

/// The first `count` elements, zero-padded.
template <class Arch, class T>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<accumulate_t<T>, Arch> load(const T* from, std::size_t count) {
  std::array<T, width<accumulate_t<T>, Arch>> lanes{};
  std::memcpy(lanes.data(), from, count * sizeof(T));
  return simd::load<Arch>(lanes.data());
}

/// Rounds to T and stores `width` elements.
template <class T, class A, class Arch>
XTRAIN_ALWAYS_INLINE void store(T* to, const xsimd::batch<A, Arch>& x) {
  if constexpr (std::is_same_v<T, A>) {
    x.store_unaligned(to);
  } else if constexpr (std::is_same_v<A, float> && sizeof(T) == 2) {
    detail::narrow<Arch>(to, x);
  } else {
    std::array<A, width<A, Arch>> lanes;
    x.store_unaligned(lanes.data());
    for (std::size_t i = 0; i < lanes.size(); ++i) to[i] = static_cast<T>(lanes[i]);
  }
}

template <class T, class A, class Arch>
XTRAIN_ALWAYS_INLINE void store_two(T* to, const xsimd::batch<A, Arch>& x, const xsimd::batch<A, Arch>& y) {
#ifdef XTRAIN_ROUNDS_TO_BF16
  if constexpr (is_avx512<Arch> && std::is_same_v<T, bf16> && std::is_same_v<A, float>) {
    const __m512 first = x, second = y;
    const __m512i bits = (__m512i)_mm512_cvtne2ps_pbh(second, first);
    if (__builtin_expect(_mm512_testn_epi16_mask(bits, _mm512_set1_epi16(0x7fff)) == 0, 1) ||
        !(detail::any_subnormal(first) || detail::any_subnormal(second))) {
      _mm512_storeu_si512(to, bits);
      return;
    }
  }
#endif
  simd::store(to, x);
  simd::store(to + width<A, Arch>, y);
}

/// Rounds to T and stores the first `count` elements.
template <class T, class A, class Arch>
XTRAIN_ALWAYS_INLINE void store(T* to, const xsimd::batch<A, Arch>& x, std::size_t count) {
  std::array<T, width<A, Arch>> lanes;
  simd::store(lanes.data(), x);
  std::memcpy(to, lanes.data(), count * sizeof(T));
}

/// eˣ within two units in the last place: 2ⁿ · eʳ, |r| ≤ ln 2 / 2, minimax polynomial of degree 6. 0 below −104, infinity above 88.73, NaN for NaN. Inlined
/// (xsimd's is not): a softmax does little else.
template <class Arch>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<float, Arch> exp(const xsimd::batch<float, Arch>& x) {
#ifdef __AVX512F__
  if constexpr (is_avx512<Arch>) {
    const __m512 value = x;
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(value, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), value);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r);
    p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
  }
#endif
  return xsimd::exp(x);
}
template <class Arch>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<double, Arch> exp(const xsimd::batch<double, Arch>& x) {
  return xsimd::exp(x);
}

/// Sum of lanes by halving, in an order independent of the compiler.
template <class A, class Arch>
[[nodiscard]] XTRAIN_ALWAYS_INLINE A sum(const xsimd::batch<A, Arch>& x) {
#ifdef __AVX2__  // through memory it would cost a dozen multiply-adds
  [[maybe_unused]] const auto of_eight = [](__m256 eight) {
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  };
  if constexpr (is_avx2<Arch> && std::is_same_v<A, float>) return of_eight(x);
#ifdef __AVX512F__
  if constexpr (is_avx512<Arch> && std::is_same_v<A, float>)
    return of_eight(_mm256_add_ps(_mm512_castps512_ps256(x), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1))));
#endif
#endif
  std::array<A, width<A, Arch>> lanes;
  x.store_unaligned(lanes.data());
  XTRAIN_UNROLL for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
    XTRAIN_UNROLL for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

template <class A, class Arch>
[[nodiscard]] XTRAIN_ALWAYS_INLINE A largest(const xsimd::batch<A, Arch>& x) {
  std::array<A, width<A, Arch>> lanes;
  x.store_unaligned(lanes.data());
  XTRAIN_UNROLL for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
    XTRAIN_UNROLL for (std::size_t i = 0; i < half; ++i) lanes[i] = lanes[i] < lanes[i + half] ? lanes[i + half] : lanes[i];
  }
  return lanes[0];
}

/// Eight pairs from eight bf16 of a row and of the next. Arch has 128 bits.
template <class Arch>
XTRAIN_ALWAYS_INLINE void store_pairs(const bf16* low, const bf16* high, bf16_pair* to) {
  using batch = xsimd::batch<std::uint16_t, Arch>;
  std::array<std::uint16_t, 8> lanes;
  std::memcpy(lanes.data(), low, sizeof(lanes));
  const batch first = batch::load_unaligned(lanes.data());
  std::memcpy(lanes.data(), high, sizeof(lanes));
  const batch second = batch::load_unaligned(lanes.data());
  xsimd::zip_lo(first, second).store_unaligned(lanes.data());
  std::memcpy(to, lanes.data(), sizeof(lanes));
  xsimd::zip_hi(first, second).store_unaligned(lanes.data());
  std::memcpy(to + 4, lanes.data(), sizeof(lanes));
}

#ifdef __AVX512F__
/// Transposes 16 lines of 16 units.
XTRAIN_ALWAYS_INLINE void transpose_lines(__m512i (&x)[16]) {
  __m512i y[16];
  XTRAIN_UNROLL for (int i = 0; i < 16; i += 2) {
    y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
    y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
  }
  XTRAIN_UNROLL for (int i = 0; i < 16; i += 4) {
    x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
    x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
    x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
    x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
  }
  // 128-bit lane l of x[4q + c] holds units 4l + c of lines 4q to 4q + 3
  XTRAIN_UNROLL for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x88), high01 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xdd);
    const __m512i low23 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x88), high23 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xdd);
    y[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    y[8 + c] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    y[4 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    y[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
  XTRAIN_UNROLL for (int i = 0; i < 16; ++i) x[i] = y[i];
}
#endif

/// Pairs, as bits, from bf16 of a row and of the next.
template <class Arch>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<float, Arch> load_pairs(const bf16* low, const bf16* high) {
  static_assert(multiplies_pairs<Arch>);
#ifdef __AVX512BF16__
  const __m512i first = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low)));
  const __m512i both = _mm512_inserti64x4(first, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(high)), 1);
  const __m512i side_by_side = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3,
                                                18, 2, 17, 1, 16, 0);
  return _mm512_castsi512_ps(_mm512_permutexvar_epi16(side_by_side, both));
#else
  return xsimd::batch<float, Arch>(low->bits + high->bits);
#endif
}

/// Elements of packed panels: values, or bf16 pairs as bits.
template <class Arch, class U>
[[nodiscard]] XTRAIN_ALWAYS_INLINE auto load_units(const U* from) {
  if constexpr (std::is_same_v<U, bf16_pair>) {
#ifdef __AVX512F__
    // not through an array: compilers preferring 256-bit vectors copy halves, and the load waits for both stores
    if constexpr (is_avx512<Arch>) return xsimd::batch<float, Arch>(_mm512_castsi512_ps(_mm512_loadu_si512(from)));
#endif
    std::array<float, width<float, Arch>> bits;
    std::memcpy(bits.data(), from, sizeof(bits));
    return xsimd::batch<float, Arch>::load_unaligned(bits.data());
  } else {
    return xsimd::batch<U, Arch>::load_unaligned(from);
  }
}
/// Broadcasts the unit at `from` to every lane.
template <class U, class Arch, class T>
[[nodiscard]] XTRAIN_ALWAYS_INLINE auto broadcast_unit(const T* from) {
  if constexpr (std::is_same_v<U, bf16_pair>) {
    float bits;
    std::memcpy(&bits, from, sizeof(bits));
    return xsimd::batch<float, Arch>(bits);
  } else {
    return xsimd::batch<U, Arch>(*from);
  }
}
template <class U, class A, class Arch>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<A, Arch> multiply_add_units(const xsimd::batch<A, Arch>& a, const xsimd::batch<A, Arch>& b,
                                                                     const xsimd::batch<A, Arch>& sum) {
  if constexpr (std::is_same_v<U, bf16_pair>) return multiply_add_pairs(a, b, sum);
  else return multiply_add(a, b, sum);
}

/// sum + a · b, a being the unit at `from` in every lane. For single use: a unit for several vectors is cheaper in a register.
template <class U, class T, class A, class Arch>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<A, Arch> multiply_add_unit(const T* from, const xsimd::batch<A, Arch>& b,
                                                                    const xsimd::batch<A, Arch>& sum) {
#if defined(__AVX512BF16__) && defined(__GNUC__) && !defined(__clang__)
  // g++ does not fold a broadcast here; separate broadcasts cost a quarter of the speed
  if constexpr (std::is_same_v<U, bf16_pair>) {
    using any_word [[gnu::may_alias, gnu::aligned(1)]] = std::uint32_t;
    __m512 result = sum;
    const __m512 pairs = b;
    asm("vdpbf16ps {%2%{1to16%}, %1, %0|%0, %1, %2%{1to16%}}" : "+v"(result) : "v"(pairs), "m"(*reinterpret_cast<const any_word*>(from)));
    return result;
  }
#endif
  return multiply_add_units<U>(broadcast_unit<U, Arch>(from), b, sum);
}

/// step(i, count) for i = begin, begin + width, …; count is `width`, a compile-time constant, except in a shorter last step.
template <class A, class Arch, class Step>
XTRAIN_ALWAYS_INLINE void for_each_vector(std::size_t begin, std::size_t end, Step&& step) {
  constexpr std::size_t w = width<A, Arch>;
  std::size_t i = begin;
  for (; i + w <= end; i += w) step(i, std::integral_constant<std::size_t, w>{});
  if (i < end) step(i, end - i);
}

/// For the constant count of for_each_vector.
template <class Arch, class T, std::size_t Count>
[[nodiscard]] XTRAIN_ALWAYS_INLINE xsimd::batch<accumulate_t<T>, Arch> load(const T* from, std::integral_constant<std::size_t, Count>) {
  static_assert(Count == width<accumulate_t<T>, Arch>);
  return simd::load<Arch>(from);
}
template <class T, class A, class Arch, std::size_t Count>
XTRAIN_ALWAYS_INLINE void store(T* to, const xsimd::batch<A, Arch>& x, std::integral_constant<std::size_t, Count>) {
  static_assert(Count == width<A, Arch>);
  simd::store(to, x);
}

}  // namespace xtrain::simd
