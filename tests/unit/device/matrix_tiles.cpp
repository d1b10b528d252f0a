// Packed operands, and products of bf16 in tile registers, emulated and where this processor has them: correct elements, equal bits at any position in a tile,
// no writes outside C and scratch memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <xtrain/core/random.hpp>
#include <xtrain/device/cpu/cpu.hpp>

using namespace xtrain;

namespace {

template <class T>
std::uint32_t bits_of(const T& unit) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &unit, sizeof(bits));
  return bits;
}

/// Every unit of a panel of `Full` lanes, and that nothing behind its last line is written.
template <std::size_t Full, class T>
void check_panel(std::size_t lanes, std::size_t depth, std::size_t step, bool lanes_are_contiguous) {
  using unit = cpu_kernels::unit<simd::native, T>;
  const std::size_t row = lanes_are_contiguous ? 1 : depth + 3, column = lanes_are_contiguous ? lanes + 5 : 1;
  std::vector<T> values((lanes + 6) * (depth + 6));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = T(static_cast<float>(random_word({.seed = 7}, i) % 2001) * 1e-3f - 1.0f);
  // the last element of the operand is the last of its memory: reading more is an error for the address sanitizer
  const std::size_t used = lanes == 0 || depth == 0 ? 0 : (lanes - 1) * row + (depth - 1) * column + 1;
  const std::vector<T> exact(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(used));
  const cpu_kernels::strided<T> x{exact.data(), row, column};
  const std::size_t units = cpu_kernels::units_of<unit>(depth), per_unit = cpu_kernels::depth_of_unit<unit>;
  unit mark;
  std::memset(&mark, 0x7f, sizeof(mark));
  std::vector<unit> to(units * step + 64, mark);
  cpu_kernels::pack_panel<simd::native, Full>(x, lanes, depth, to.data(), step);
  std::size_t wrong = 0;
  for (std::size_t p = 0; p < units; ++p) {
    for (std::size_t i = 0; i < step; ++i) {
      const unit right = i < lanes ? cpu_kernels::make_unit<unit>(x.at(i, p * per_unit), x.column, std::min(per_unit, depth - p * per_unit)) : unit{};
      wrong += bits_of(to[p * step + i]) != bits_of(right) ? 1 : 0;
    }
  }
  CAPTURE(lanes);
  CAPTURE(depth);
  CAPTURE(step);
  CAPTURE(lanes_are_contiguous);
  CHECK(wrong == 0);
  CHECK(std::all_of(to.begin() + static_cast<std::ptrdiff_t>(units * step), to.end(), [&](const unit& u) { return bits_of(u) == bits_of(mark); }));
}

template <class T>
void check_panels() {
  for (const bool lanes_are_contiguous : {false, true}) {
    for (const std::size_t depth : {0UL, 1UL, 2UL, 15UL, 16UL, 17UL, 31UL, 32UL, 33UL, 64UL, 95UL}) {
      for (std::size_t lanes = 1; lanes <= 14; ++lanes) check_panel<14, T>(lanes, depth, lanes, lanes_are_contiguous);
      for (std::size_t lanes = 1; lanes <= 32; ++lanes) check_panel<32, T>(lanes, depth, lanes <= 16 ? 16 : 32, lanes_are_contiguous);
      for (const std::size_t lanes : {5UL, 24UL, 28UL, 40UL}) check_panel<40, T>(lanes, depth, 40, lanes_are_contiguous);
      check_panel<28, T>(28, depth, 28, lanes_are_contiguous);
    }
  }
}

}  // namespace

TEST_CASE("packed panels: every element in its place, zeros in other lanes, and nothing written behind the last line") {
  check_panels<float>();
  check_panels<bf16>();
}

#ifdef XTRAIN_MATRIX_TILES

namespace {

/// Tile registers in memory, with the instructions' operation. [Intel, "Architecture Instruction Set Extensions Programming Reference", TDPBF16PS]
class emulated_registers {
 public:
  emulated_registers() {
    if (configured) throw std::logic_error("tile registers are configured twice");
    configured = true;
    for (auto& tile : tiles) tile.fill(0x7fff7fffU);  // NaN
  }
  ~emulated_registers() { configured = false; }
  emulated_registers(const emulated_registers&) = delete;
  emulated_registers& operator=(const emulated_registers&) = delete;

  template <int Tile>
  static void load(const void* from, std::size_t row_bytes) {
    require_configured();
    for (std::size_t i = 0; i < 16; ++i) std::memcpy(&tiles[Tile][i * 16], static_cast<const std::byte*>(from) + i * row_bytes, 64);
  }
  template <int Tile>
  static void store(void* to, std::size_t row_bytes) {
    require_configured();
    for (std::size_t i = 0; i < 16; ++i) std::memcpy(static_cast<std::byte*>(to) + i * row_bytes, &tiles[Tile][i * 16], 64);
  }
  template <int Tile>
  static void zero() {
    require_configured();
    tiles[Tile].fill(0);
  }
  template <int Sum>
  static void multiply_add() {
    require_configured();
    const auto &rows = tiles[4 + Sum / 2], &columns = tiles[6 + Sum % 2];
    for (std::size_t i = 0; i < 16; ++i) {
      std::array<float, 16> first{}, second{};  // sums of pairs' first and second products
      for (std::size_t p = 0; p < 16; ++p) {
        const std::uint32_t pair = rows[i * 16 + p];
        const float a0 = std::bit_cast<float>(pair << 16), a1 = std::bit_cast<float>(pair & 0xffff0000U);
        for (std::size_t j = 0; j < 16; ++j) {
          first[j] += a0 * std::bit_cast<float>(columns[p * 16 + j] << 16);
          second[j] += a1 * std::bit_cast<float>(columns[p * 16 + j] & 0xffff0000U);
        }
      }
      for (std::size_t j = 0; j < 16; ++j) {
        std::uint32_t& sum = tiles[Sum][i * 16 + j];
        sum = std::bit_cast<std::uint32_t>(std::bit_cast<float>(sum) + (first[j] + second[j]));
      }
    }
  }

 private:
  static void require_configured() {
    if (!configured) throw std::logic_error("a tile instruction without configured registers");
  }
  static thread_local bool configured;
  static thread_local std::array<std::array<std::uint32_t, 256>, 8> tiles;
};
thread_local bool emulated_registers::configured = false;
thread_local std::array<std::array<std::uint32_t, 256>, 8> emulated_registers::tiles{};

struct shape {
  std::size_t m, n, k;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;
};

std::vector<bf16> numbers(std::size_t count, std::uint64_t seed) {
  std::vector<bf16> all;
  all.reserve(count + 4096);  // not null where it is empty: kernels add offsets
  all.resize(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = bf16(static_cast<float>(random_word({.seed = seed}, i) % 2001) * 1e-3f - 1.0f);
  return all;
}

/// op(A) · op(B) by tile registers alone; marks behind C and scratch memory must stay.
template <class Registers, class C>
std::vector<C> product(const shape& s, const std::vector<bf16>& a, const std::vector<bf16>& b, const std::vector<bf16>& bias, std::size_t threads,
                       std::size_t rows, std::size_t first_row = 0, std::size_t first_column = 0) {
  const cpu::context device({.threads = threads});
  const cpu::stream stream(device);
  const std::size_t columns = s.n - first_column, ldc = columns + 3;
  std::vector<C> c(rows * ldc + 64, C(0.5f));
  kernel::matmul<host_memory, bf16, C> kernel{.m = rows,
                                              .n = columns,
                                              .k = s.k,
                                              .lda = s.transpose_a ? s.m : s.k,
                                              .ldb = s.transpose_b ? s.k : s.n,
                                              .ldc = ldc,
                                              .transpose_a = s.transpose_a,
                                              .transpose_b = s.transpose_b,
                                              .accumulate = s.accumulate,
                                              .alpha = 0.5};
  const std::size_t from_a = s.transpose_a ? first_row : first_row * s.k, from_b = s.transpose_b ? first_column * s.k : first_column;
  kernel.a = span_of(a.data() + from_a, a.size() - from_a);
  kernel.b = span_of(b.data() + from_b, b.size() - from_b);
  kernel.c = span_of(c.data(), c.size());
  if (s.bias) kernel.bias_n = span_of(bias.data() + first_column, columns);
  const std::size_t bytes = cpu_kernels::tile_product<C, Registers>::bytes(kernel, stream.threads());
  std::vector<std::byte> scratch(bytes + 256, std::byte{0x7f});  // NaN where nothing is packed
  auto* const aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
  cpu_kernels::tile_product<C, Registers>(stream, kernel, aligned).run();
  CHECK(std::all_of(aligned + bytes, aligned + bytes + 64, [](std::byte x) { return x == std::byte{0x7f}; }));
  for (std::size_t i = 0; i < rows; ++i)
    CHECK(std::all_of(c.begin() + static_cast<std::ptrdiff_t>(i * ldc + columns), c.begin() + static_cast<std::ptrdiff_t>((i + 1) * ldc),
                      [](C x) { return static_cast<float>(x) == 0.5f; }));
  return c;
}

template <class Registers, class C>
void check(const shape& s) {
  CAPTURE(s.m);
  CAPTURE(s.n);
  CAPTURE(s.k);
  CAPTURE(s.transpose_a);
  CAPTURE(s.transpose_b);
  const std::vector<bf16> a = numbers(s.m * s.k, 1), b = numbers(s.k * s.n, 2), bias = numbers(s.n, 3);
  const std::vector<C> c = product<Registers, C>(s, a, b, bias, 1, s.m);
  const std::size_t ldc = s.n + 3;
  double worst = 0;
  for (std::size_t i = 0; i < s.m; ++i) {
    for (std::size_t j = 0; j < s.n; ++j) {
      double sum = 0, size = 0;
      for (std::size_t p = 0; p < s.k; ++p) {
        const double term = static_cast<double>(static_cast<float>(a[s.transpose_a ? p * s.m + i : i * s.k + p])) *
                            static_cast<double>(static_cast<float>(b[s.transpose_b ? j * s.k + p : p * s.n + j]));
        sum += term;
        size += std::abs(term);
      }
      const double right = 0.5 * sum + (s.bias ? static_cast<double>(static_cast<float>(bias[j])) : 0.0) + (s.accumulate ? 0.5 : 0.0);
      const double rounding = std::is_same_v<C, bf16> ? std::abs(right) / 256 : 0.0;
      worst = std::max(worst, (std::abs(static_cast<double>(static_cast<float>(c[i * ldc + j])) - right) - rounding) / (size + 1));
    }
  }
  CHECK(worst < 1e-6);

  // equal bits with more threads, and at another position in a tile
  const std::vector<C> threads = product<Registers, C>(s, a, b, bias, 2, s.m);
  CHECK(std::memcmp(threads.data(), c.data(), c.size() * sizeof(C)) == 0);
  const std::size_t row = s.m / 3, column = s.n / 5, rows = s.m - row - s.m / 7;
  const std::vector<C> part = product<Registers, C>(s, a, b, bias, 1, rows, row, column);
  bool same = true;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = column; j < s.n; ++j)
      same = same && std::memcmp(&part[i * (s.n - column + 3) + j - column], &c[(row + i) * ldc + j], sizeof(C)) == 0;
  CHECK(same);
}

}  // namespace

TEST_CASE_TEMPLATE("products in tile registers: right, the same bits anywhere, and nothing else is written", registers, emulated_registers,
                   cpu_kernels::tile_registers) {
  if (std::is_same_v<registers, cpu_kernels::tile_registers> && !cpu_kernels::has_matrix_tiles()) {
    MESSAGE("emulated only: this processor has no tile registers");
    return;
  }
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      check<registers, bf16>({0, 40, 40, transpose_a, transpose_b});  // experts without tokens
      check<registers, float>({40, 0, 40, transpose_a, transpose_b});
      check<registers, float>({40, 40, 0, transpose_a, transpose_b, true});
      check<registers, bf16>({1, 1, 1, transpose_a, transpose_b});
      check<registers, bf16>({9, 17, 31, transpose_a, transpose_b, true, true});
      check<registers, float>({32, 32, 32, transpose_a, transpose_b, true});
      check<registers, bf16>({49, 100, 65, transpose_a, transpose_b, false, true});
      check<registers, float>({250, 170, 777, transpose_a, transpose_b, true, true});  // several blocks of the depth, and of rows
      check<registers, bf16>({250, 300, 1600, transpose_a, transpose_b, true, true});
    }
  }
  check<registers, bf16>({1100, 40, 40, false, true});  // more rows than are packed at once
  check<registers, float>({1100, 40, 40, true, false, true});
}

TEST_CASE("products in tile registers: every number of rows, columns and depth around the sizes of one and two tiles") {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const std::size_t m : {1UL, 15UL, 16UL, 17UL, 31UL, 32UL, 33UL, 48UL})
        for (const std::size_t n : {1UL, 15UL, 16UL, 17UL, 31UL, 32UL, 33UL, 48UL})
          for (const std::size_t k : {1UL, 2UL, 31UL, 32UL, 33UL, 63UL, 65UL}) {
            check<emulated_registers, bf16>({m, n, k, transpose_a, transpose_b, (m + n) % 2 == 0, k % 2 == 0});
            if (cpu_kernels::has_matrix_tiles()) check<cpu_kernels::tile_registers, float>({m, n, k, transpose_a, transpose_b, (m + n) % 2 == 0, k % 2 == 0});
          }
}

#else

TEST_CASE("products in tile registers") { MESSAGE("skipped: not compiled for AVX-512 with bf16 products, on x86-64 Linux"); }

#endif
