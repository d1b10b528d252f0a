// Tile registers (Intel AMX) for bf16 products, used where a program compiled for AVX-512 BF16 finds them.
// [Intel, "Architecture Instruction Set Extensions Programming Reference", chapter 3]
#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__AVX512BF16__)
#define XTRAIN_MATRIX_TILES
#define XTRAIN_USES_TILES __attribute__((target("amx-tile,amx-bf16"), noinline))
#define XTRAIN_TILE_INSTRUCTION __attribute__((target("amx-tile,amx-bf16"), always_inline)) inline
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include <xtrain/device/cpu/simd.hpp>

namespace xtrain::cpu_kernels {

#ifdef XTRAIN_MATRIX_TILES

/// The processor has tile registers and the operating system, asked once, saves them. XTRAIN_CPU_TILES=0: false.
[[nodiscard]] inline bool has_matrix_tiles() {
  static const bool granted = [] {
    const char* const asked = std::getenv("XTRAIN_CPU_TILES");
    if (asked != nullptr && std::strcmp(asked, "0") == 0) return false;
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned amx_bf16 = 1U << 22, amx_tile = 1U << 24;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & amx_bf16) == 0 || (d & amx_tile) == 0) return false;
    constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return granted;
}

/// Makes this thread's tile registers usable. 0 to 3 hold sums of C, 4 and 5 rows of A, 6 and 7 columns of B: sums 2i + j belong to rows 4 + i, columns 6 + j.
/// Products take their registers as a template argument, so that tests emulate them.
class tile_registers {
 public:
  tile_registers() { configure(); }
  ~tile_registers() { release(); }
  tile_registers(const tile_registers&) = delete;
  tile_registers& operator=(const tile_registers&) = delete;

  // g++ takes a register's number as literal text only
#define XTRAIN_FOR_TILE(INSTRUCTION, ...)                  \
  static_assert(Tile >= 0 && Tile < 8);                    \
  if constexpr (Tile == 0) INSTRUCTION(0, __VA_ARGS__);    \
  if constexpr (Tile == 1) INSTRUCTION(1, __VA_ARGS__);    \
  if constexpr (Tile == 2) INSTRUCTION(2, __VA_ARGS__);    \
  if constexpr (Tile == 3) INSTRUCTION(3, __VA_ARGS__);    \
  if constexpr (Tile == 4) INSTRUCTION(4, __VA_ARGS__);    \
  if constexpr (Tile == 5) INSTRUCTION(5, __VA_ARGS__);    \
  if constexpr (Tile == 6) INSTRUCTION(6, __VA_ARGS__);    \
  if constexpr (Tile == 7) INSTRUCTION(7, __VA_ARGS__)
  /// 16 lines of 64 bytes, `row_bytes` apart.
  template <int Tile>
  XTRAIN_TILE_INSTRUCTION static void load(const void* from, std::size_t row_bytes) {
    XTRAIN_FOR_TILE(_tile_loadd, from, row_bytes);
  }
  template <int Tile>
  XTRAIN_TILE_INSTRUCTION static void store(void* to, std::size_t row_bytes) {
    XTRAIN_FOR_TILE(_tile_stored, to, row_bytes);
  }
#undef XTRAIN_FOR_TILE
  /// Sums of C only.
  template <int Tile>
  XTRAIN_TILE_INSTRUCTION static void zero() {
    static_assert(Tile >= 0 && Tile < 4);
    if constexpr (Tile == 0) _tile_zero(0);
    if constexpr (Tile == 1) _tile_zero(1);
    if constexpr (Tile == 2) _tile_zero(2);
    if constexpr (Tile == 3) _tile_zero(3);
  }
  /// Adds rows 4 + Sum / 2 times columns 6 + Sum % 2 to Sum.
  template <int Sum>
  XTRAIN_TILE_INSTRUCTION static void multiply_add() {
    static_assert(Sum >= 0 && Sum < 4);
    if constexpr (Sum == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (Sum == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (Sum == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (Sum == 3) _tile_dpbf16ps(3, 5, 7);
  }

 private:
  XTRAIN_USES_TILES static void configure() {
    // static: compilers do not know that the instruction reads more than a pointer
    alignas(64) static constexpr struct {
      std::uint8_t palette = 1, start_row = 0;
      std::array<std::uint8_t, 14> reserved{};
      std::array<std::uint16_t, 16> bytes_per_line{64, 64, 64, 64, 64, 64, 64, 64};
      std::array<std::uint8_t, 16> lines{16, 16, 16, 16, 16, 16, 16, 16};
    } shapes;
    _tile_loadconfig(&shapes);
  }
  XTRAIN_USES_TILES static void release() { _tile_release(); }
};

#else

[[nodiscard]] inline bool has_matrix_tiles() { return false; }

#endif

/// "avx2", "avx512bw with bf16 products and tiles"
[[nodiscard]] inline std::string instructions() { return simd::instructions() + (has_matrix_tiles() ? " and tiles" : ""); }

}  // namespace xtrain::cpu_kernels
