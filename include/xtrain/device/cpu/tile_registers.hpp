// Tile registers (Intel AMX) for bf16 products, used where a program compiled for AVX-512 BF16 finds them.
// [Intel, "Architecture Instruction Set Extensions Programming Reference", chapter 3]
#pragma once

#if defined(__x86_64__) && defined(__linux__) && defined(__AVX512BF16__)
#define XTRAIN_MATRIX_TILES
#define XTRAIN_USES_TILES __attribute__((target("amx-tile,amx-bf16"), noinline))
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <array>
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

/// Makes this thread's tile registers usable. 0 to 3 hold sums of C, 4 and 5 rows of A, 6 and 7 columns of B.
class tile_registers {
 public:
  tile_registers() { configure(); }
  ~tile_registers() { release(); }
  tile_registers(const tile_registers&) = delete;
  tile_registers& operator=(const tile_registers&) = delete;

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
