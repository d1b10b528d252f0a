// All sources of a program must be compiled for equal vector instructions. Header functions have one symbol, and the linker takes any copy: a newer processor's
// copy could run on an older one, and copies of a kernel could disagree on scratch memory. For several processors see levels.hpp.
#pragma once

#include <atomic>
#include <cstring>

#include <xtrain/core/error.hpp>

// instruction sets of kernels, from predefined macros
#ifdef __AVX512BF16__
#define XTRAIN_HAS_AVX512BF16 " avx512bf16"
#else
#define XTRAIN_HAS_AVX512BF16 ""
#endif
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define XTRAIN_HAS_AVX512 " avx512f avx512bw avx512dq avx512vl"
#elif defined(__AVX512F__)
#define XTRAIN_HAS_AVX512 " avx512f"
#else
#define XTRAIN_HAS_AVX512 ""
#endif
#if defined(__AVX2__)
#define XTRAIN_HAS_AVX " avx2"
#elif defined(__AVX__)
#define XTRAIN_HAS_AVX " avx"
#elif defined(__SSE4_1__)
#define XTRAIN_HAS_AVX " sse4.1"
#elif defined(__ARM_FEATURE_SVE)
#define XTRAIN_HAS_AVX " sve"
#else
#define XTRAIN_HAS_AVX " baseline"
#endif
#ifdef __FMA__
#define XTRAIN_HAS_FMA " fma"
#else
#define XTRAIN_HAS_FMA ""
#endif
#ifdef __F16C__
#define XTRAIN_HAS_F16C " f16c"
#else
#define XTRAIN_HAS_F16C ""
#endif
// origin of the kernels: source, library, or levels
#if defined(XTRAIN_CPU_LEVELS)
#define XTRAIN_KERNELS_FROM ", kernels of several levels"
#elif defined(XTRAIN_CPU_KERNELS)
#define XTRAIN_KERNELS_FROM ", kernels from a library"
#else
#define XTRAIN_KERNELS_FROM ""
#endif

namespace xtrain::detail {

/// Instructions of the first source, and of any that differs.
struct compiled_instructions {
  std::atomic<const char*> first{nullptr}, other{nullptr};
};
inline compiled_instructions& instructions_of_sources() {
  static compiled_instructions all;
  return all;
}
inline bool note_instructions(const char* mine) {
  compiled_instructions& all = instructions_of_sources();
  const char* first = nullptr;
  if (!all.first.compare_exchange_strong(first, mine) && std::strcmp(first, mine) != 0) all.other = mine;
  return true;
}

/// throws config_error when the program's sources differ in instructions
inline void require_same_instructions() {
  const compiled_instructions& all = instructions_of_sources();
  const char* const other = all.other;
  require<config_error>(
      other == nullptr,
      "cpu: all sources that include xtrain must be compiled for the same instructions (-march=...) and with the same XTRAIN_CPU_ "
      "definitions; this program has",
      all.first.load(), " and", other == nullptr ? "" : other, "; see device/README.md");
}

#ifndef XTRAIN_KERNELS_APART  // kernel libraries are exempt: only they run their instructions
namespace {
/// Per source.
[[maybe_unused]] const bool instructions_noted =
    note_instructions(XTRAIN_HAS_AVX XTRAIN_HAS_FMA XTRAIN_HAS_F16C XTRAIN_HAS_AVX512 XTRAIN_HAS_AVX512BF16 XTRAIN_KERNELS_FROM);
}  // namespace
#endif

}  // namespace xtrain::detail
