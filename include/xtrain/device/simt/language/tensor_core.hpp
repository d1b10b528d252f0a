// Products of 16 × 16 by 16 × 8 by a warp, sums in fp32, and copies that feed them. Kernels address operands in shared memory and results by row and column;
// the layout assigns lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <xtrain/device/simt/language/block.hpp>
#include <xtrain/device/simt/language/numbers.hpp>

namespace xtrain::simt {

/// PTX ISA, "Matrix fragments for mma.m16n8k16". Element e of an operand: half e % 2 of register e / 2.
struct nvidia_layout {
  static constexpr bool has_ldmatrix = true;
  static constexpr int row_slots = 2;  ///< rows of C per lane
  static constexpr int row_lanes = 4;  ///< lanes per row of C; they differ in their lowest bits
  XTRAIN_SIMT_FN static constexpr int a_row(int lane, int e) { return lane / 4 + e / 2 % 2 * 8; }
  XTRAIN_SIMT_FN static constexpr int a_column(int lane, int e) { return lane % 4 * 2 + e % 2 + e / 4 * 8; }
  XTRAIN_SIMT_FN static constexpr int b_row(int lane, int e) { return lane % 4 * 2 + e % 2 + e / 2 * 8; }
  XTRAIN_SIMT_FN static constexpr int b_column(int lane, int) { return lane / 4; }
  XTRAIN_SIMT_FN static constexpr int c_row(int lane, int e) { return lane / 4 + e / 2 * 8; }
  XTRAIN_SIMT_FN static constexpr int c_column(int lane, int e) { return lane % 4 * 2 + e % 2; }
  XTRAIN_SIMT_FN static constexpr int row_slot(int e) { return e / 2; }
};

/// MUSA's mp_31, as in its public templates for __musa_wmma_m16n8k16_mma: registers 1 and 2 of A are exchanged, a lane holds a column of C.
struct mp_31_layout {
  static constexpr bool has_ldmatrix = false;
  static constexpr int row_slots = 4;
  static constexpr int row_lanes = 8;
  XTRAIN_SIMT_FN static constexpr int a_row(int lane, int e) { return lane / 4 + e / 4 * 8; }
  XTRAIN_SIMT_FN static constexpr int a_column(int lane, int e) { return lane % 4 * 2 + e % 2 + e / 2 % 2 * 8; }
  XTRAIN_SIMT_FN static constexpr int b_row(int lane, int e) { return lane % 4 * 2 + e % 2 + e / 2 * 8; }
  XTRAIN_SIMT_FN static constexpr int b_column(int lane, int) { return lane / 4; }
  XTRAIN_SIMT_FN static constexpr int c_row(int lane, int e) { return lane / 8 + 4 * e; }
  XTRAIN_SIMT_FN static constexpr int c_column(int lane, int) { return lane % 8; }
  XTRAIN_SIMT_FN static constexpr int row_slot(int e) { return e; }
};

/// A GPU whose tensor cores this library does not use: lanes multiply, in NVIDIA's layout.
struct lanes_layout : nvidia_layout {
  static constexpr bool has_ldmatrix = false;
};

/// On the host: mp_31's layout if XTRAIN_SIMT_MP_31 is defined, products by lanes if XTRAIN_SIMT_LANES is.
#if defined(XTRAIN_SIMT_MP_31)
using tensor_layout = mp_31_layout;
#elif defined(XTRAIN_SIMT_LANES) || (XTRAIN_SIMT_GPU && !XTRAIN_SIMT_PTX)
using tensor_layout = lanes_layout;
#else
using tensor_layout = nvidia_layout;
#endif

/// 16 × 16 numbers of T over a warp. Lanes multiply fp32 themselves: tensor cores would round it.
template <class T>
struct fragment_a {
  std::conditional_t<is_16_bits<T>, std::uint32_t, float> r[is_16_bits<T> ? 4 : 8];
};
/// 16 × 8 numbers.
template <class T>
struct fragment_b {
  std::conditional_t<is_16_bits<T>, std::uint32_t, float> r[is_16_bits<T> ? 2 : 4];
};
/// 16 × 8 sums.
struct fragment_c {
  float r[4];
};

/// Of this lane's element e.
XTRAIN_SIMT_FN int c_row(int e) { return tensor_layout::c_row(lane(), e); }
XTRAIN_SIMT_FN int c_column(int e) { return tensor_layout::c_column(lane(), e); }

XTRAIN_SIMT_FN void set_zero(fragment_c& c) {
  XTRAIN_SIMT_UNROLL
  for (int e = 0; e < 4; ++e) c.r[e] = 0;
}

/// Reduces a row slot's values over the lanes of a row of C, in a fixed order.
template <class Combine>
XTRAIN_SIMT_FN float over_row_lanes(float value, Combine combine) {
  XTRAIN_SIMT_UNROLL
  for (int mask = 1; mask < tensor_layout::row_lanes; mask *= 2) value = combine(value, shuffle_xor(value, mask));
  return value;
}

#if !XTRAIN_SIMT_GPU
namespace host {

/// As a float.
template <class T, class Fragment>
[[nodiscard]] float element_of(const Fragment& fragment, int e) {
  if constexpr (is_16_bits<T>) return static_cast<float>(T::from_bits(static_cast<std::uint16_t>(fragment.r[e / 2] >> 16 * (e % 2))));
  else return fragment.r[e];
}

template <class T>
struct product_operands {
  fragment_a<T> a;
  fragment_b<T> b;
  fragment_c c;
};
/// c + a · b of the entire warp.
template <class T>
void multiply_all(const product_operands<T>* const* in, fragment_c* const* out) {
  using layout = tensor_layout;
  float a[16][16], b[16][8], c[16][8];
  for (int l = 0; l < 32; ++l) {
    for (int e = 0; e < 8; ++e) a[layout::a_row(l, e)][layout::a_column(l, e)] = element_of<T>(in[l]->a, e);
    for (int e = 0; e < 4; ++e) b[layout::b_row(l, e)][layout::b_column(l, e)] = element_of<T>(in[l]->b, e);
    for (int e = 0; e < 4; ++e) c[layout::c_row(l, e)][layout::c_column(l, e)] = in[l]->c.r[e];
  }
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < 8; ++j) c[i][j] += a[i][k] * b[k][j];
  for (int l = 0; l < 32; ++l)
    for (int e = 0; e < 4; ++e) out[l]->r[e] = c[layout::c_row(l, e)][layout::c_column(l, e)];
  const hidden_from_tsan hidden;
  ++running->counts.matrix_products;
}

struct four_words {
  std::uint32_t r[4];
};
/// ldmatrix: lane l gives the address of row l % 8 of matrix l / 8, and gets of matrix r pair lane % 4 of row (transposed: column) lane / 4.
template <bool Transposed>
void load_all(const void* const* const* in, four_words* const* out) {
  std::uint64_t conflicts = 0;
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t rows[8][8];
    unsigned banks = 0;
    for (int row = 0; row < 8; ++row) {
      const void* from = *in[matrix * 8 + row];
      if (reinterpret_cast<std::uintptr_t>(from) % 16 != 0) running->raise("ldmatrix of a row that is not aligned to 16 bytes");
      for (int e = 0; e < 8; ++e) rows[row][e] = static_cast<const std::uint16_t*>(from)[e];
      const unsigned bank = 1U << (reinterpret_cast<std::uintptr_t>(from) / 16 % 8);
      conflicts += (banks & bank) != 0 ? 1 : 0;
      banks |= bank;
    }
    for (int l = 0; l < 32; ++l) {
      const int i = l / 4, j = 2 * (l % 4);
      const std::uint16_t low = Transposed ? rows[j][i] : rows[i][j], high = Transposed ? rows[j + 1][i] : rows[i][j + 1];
      out[l]->r[matrix] = static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
    }
  }
  const hidden_from_tsan hidden;
  ++running->counts.matrix_loads;
  running->counts.bank_conflicts += conflicts;
}

inline void arrive(const pending_copy& copy) {
  for (int e = 0; e < 8; ++e)
    static_cast<std::uint16_t*>(copy.to)[e] = 2 * e < copy.valid ? static_cast<const std::uint16_t*>(copy.from)[e] : std::uint16_t{0};
}
/// All but the last groups of this thread's copies arrive.
inline void wait_for_groups(std::size_t groups_left, const site& where) {
  fiber& me = running->self();
  if (me.groups.size() <= groups_left) return;
  const std::size_t end = me.groups[me.groups.size() - groups_left - 1];
  if (end != 0 && running->errs(mistake::copy_not_waited_for, where)) return;
  for (std::size_t i = 0; i < end; ++i) arrive(me.copies[i]);
  me.copies.erase(me.copies.begin(), me.copies.begin() + static_cast<std::ptrdiff_t>(end));
  me.groups.erase(me.groups.begin(), me.groups.end() - static_cast<std::ptrdiff_t>(groups_left));
  for (std::size_t& group : me.groups) group -= end;
}

}  // namespace host
#endif

/// c += a · b, by the lanes themselves: each gets the row and the columns of its results from lanes that hold them.
template <class T>
XTRAIN_SIMT_FN void multiply_by_lanes(fragment_c& c, const fragment_a<T>& a, const fragment_b<T>& b XTRAIN_SIMT_SITE) {
  constexpr bool is_nvidia = std::is_base_of_v<nvidia_layout, tensor_layout>;
  // depends on T: evaluated only where called
  static_assert(sizeof(T) != 0 && (is_nvidia || std::is_same_v<tensor_layout, mp_31_layout>), "simt: products by lanes are not written for this GPU's layout");
  constexpr int words = is_16_bits<T> ? 1 : 2, numbers = 2 / words;  // neighbours along the sum are in one word, or in two
  // the first of four lanes that hold the row, and the column, of the first result
  const int row = is_nvidia ? lane() / 4 * 4 : lane() / 8 * 4, column = is_nvidia ? lane() % 4 * 8 : lane() % 8 * 4;
  const auto from = [&](auto word, int of) {
#if XTRAIN_SIMT_GPU
    return shuffle(word, of);
#else
    return shuffle(word, of, where);
#endif
  };
  const auto number_of = [](auto word, [[maybe_unused]] int i) {
    if constexpr (is_16_bits<T>) return widen(T::from_bits(static_cast<std::uint16_t>(word >> 16 * i)));
    else return word;
  };
  XTRAIN_SIMT_UNROLL
  for (int half = 0; half < 2; ++half) {
    XTRAIN_SIMT_UNROLL_BY(is_16_bits<T> ? 1 : 4)  // 16-bit numbers: keeps the code short
    for (int of = 0; of < 4; ++of) {
      XTRAIN_SIMT_UNROLL
      for (int w = 0; w < words; ++w) {
        if constexpr (!is_nvidia) {  // results are rows v * 4 further, of one column
          const auto b_0 = from(b.r[half * words + w], column + of);
          XTRAIN_SIMT_UNROLL
          for (int v = 0; v < 4; ++v) {
            const auto a_v = from(a.r[(v / 2 * 2 + half) * words + w], row + v % 2 * 16 + of);
            XTRAIN_SIMT_UNROLL
            for (int i = 0; i < numbers; ++i) c.r[v] += number_of(a_v, i) * number_of(b_0, i);
          }
          continue;
        }
        const auto a_0 = from(a.r[half * 2 * words + w], row + of), a_1 = from(a.r[(half * 2 + 1) * words + w], row + of);
        const auto b_0 = from(b.r[half * words + w], column + of), b_1 = from(b.r[half * words + w], column + 4 + of);
        XTRAIN_SIMT_UNROLL
        for (int i = 0; i < numbers; ++i) {
          c.r[0] += number_of(a_0, i) * number_of(b_0, i);
          c.r[1] += number_of(a_0, i) * number_of(b_1, i);
          c.r[2] += number_of(a_1, i) * number_of(b_0, i);
          c.r[3] += number_of(a_1, i) * number_of(b_1, i);
        }
      }
    }
  }
}

/// c += a · b
template <class T>
XTRAIN_SIMT_FN void multiply(fragment_c& c, const fragment_a<T>& a, const fragment_b<T>& b XTRAIN_SIMT_SITE) {
  static_assert(sizeof(T) != 0 && warp_width == 32, "simt: products of a warp need 32 lanes, a part of a wider warp");
#if !XTRAIN_SIMT_GPU
  // as on a GPU whose tensor cores multiply 16-bit numbers only
  if constexpr (std::is_same_v<tensor_layout, lanes_layout> || (std::is_same_v<tensor_layout, mp_31_layout> && !is_16_bits<T>))
    return multiply_by_lanes<T>(c, a, b, where);
  host::product_operands<T> operands{a, b, c};
  if (host::running->errs(host::mistake::wrong_fragment, where)) std::swap(operands.a.r[1], operands.a.r[2]);
  c = host::running->together<fragment_c>(operands, where, &host::multiply_all<T>);
#elif XTRAIN_SIMT_PTX
  if constexpr (std::is_same_v<T, bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.r[0]), "+f"(c.r[1]), "+f"(c.r[2]), "+f"(c.r[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
  else if constexpr (std::is_same_v<T, fp16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.r[0]), "+f"(c.r[1]), "+f"(c.r[2]), "+f"(c.r[3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]));
  else multiply_by_lanes<T>(c, a, b);
#else
  multiply_by_lanes<T>(c, a, b);
#endif
}

/// Operands are loaded as matrices instead of by element.
template <class T>
inline constexpr bool loads_matrices = is_16_bits<T>&& tensor_layout::has_ldmatrix;

/// Four 8 × 8 matrices of 16-bit numbers in shared memory; `row`: this lane's address.
template <bool Transposed>
XTRAIN_SIMT_FN void load_matrices([[maybe_unused]] std::uint32_t (&r)[4], [[maybe_unused]] const void* row XTRAIN_SIMT_SITE) {
#if XTRAIN_SIMT_PTX
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (Transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
#elif !XTRAIN_SIMT_GPU
  const auto all = host::running->together<host::four_words>(row, where, &host::load_all<Transposed>);
  for (int i = 0; i < 4; ++i) r[i] = all.r[i];
  if (host::running->errs(host::mistake::wrong_fragment, where)) std::swap(r[1], r[2]);
#endif
}

/// Sets element e of an operand.
template <class T, class Fragment>
XTRAIN_SIMT_FN void set_element(Fragment& fragment, int e, T value) {
  if constexpr (!is_16_bits<T>) fragment.r[e] = value;
  else if (e % 2 == 0) fragment.r[e / 2] = value.bits;
  else fragment.r[e / 2] |= static_cast<std::uint32_t>(value.bits) << 16;
}

/// A from 16 × 16 numbers in shared memory, rows `stride` apart; Transposed: of the transpose.
template <class T, bool Transposed = false>
XTRAIN_SIMT_FN fragment_a<T> load_a(const T* tile, int stride XTRAIN_SIMT_SITE) {
  fragment_a<T> a;
  if constexpr (loads_matrices<T>) {
    const int l = lane();
    const T* const row = Transposed ? tile + (l / 16 * 8 + l % 8) * stride + l / 8 % 2 * 8 : tile + l % 16 * stride + l / 16 * 8;
#if XTRAIN_SIMT_GPU
    load_matrices<Transposed>(a.r, row);
#else
    load_matrices<Transposed>(a.r, row, where);
#endif
  } else {
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < 8; ++e) {
      const int i = tensor_layout::a_row(lane(), e), k = tensor_layout::a_column(lane(), e);
      set_element<T>(a, e, Transposed ? tile[k * stride + i] : tile[i * stride + k]);
    }
  }
  return a;
}

/// Two neighbours B, 16 × 16 numbers. Transposed: of the transpose, whose rows are contiguous along the sum.
template <class T, bool Transposed>
XTRAIN_SIMT_FN void load_b_pair(fragment_b<T>& left, fragment_b<T>& right, const T* tile, int stride XTRAIN_SIMT_SITE) {
  if constexpr (loads_matrices<T>) {
    const int l = lane();
    const T* const row = Transposed ? tile + (l / 16 * 8 + l % 8) * stride + l / 8 % 2 * 8 : tile + l % 16 * stride + l / 16 * 8;
    std::uint32_t r[4];
#if XTRAIN_SIMT_GPU
    load_matrices<!Transposed>(r, row);
#else
    load_matrices<!Transposed>(r, row, where);
#endif
    left.r[0] = r[0], left.r[1] = r[1], right.r[0] = r[2], right.r[1] = r[3];
  } else {
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < 4; ++e) {
      const int k = tensor_layout::b_row(lane(), e), j = tensor_layout::b_column(lane(), e);
      set_element<T>(left, e, Transposed ? tile[j * stride + k] : tile[k * stride + j]);
      set_element<T>(right, e, Transposed ? tile[(j + 8) * stride + k] : tile[k * stride + j + 8]);
    }
  }
}

/// Two neighbouring results as operand A, rounded to T.
template <class T>
XTRAIN_SIMT_FN fragment_a<T> operand_of(const fragment_c& left, const fragment_c& right XTRAIN_SIMT_SITE) {
  fragment_a<T> a;
  if constexpr (std::is_base_of_v<nvidia_layout, tensor_layout>) {
    if constexpr (is_16_bits<T>) {
      a.r[0] = packed<T>(left.r[0], left.r[1]);
      a.r[1] = packed<T>(left.r[2], left.r[3]);
      a.r[2] = packed<T>(right.r[0], right.r[1]);
      a.r[3] = packed<T>(right.r[2], right.r[3]);
    } else {
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < 4; ++e) a.r[e] = left.r[e], a.r[e + 4] = right.r[e];
    }
  } else {
    // element (i, k) is in the lane of column k % 8 and row i % 4, register i / 4: one of two per e, as is the lane's row
    XTRAIN_SIMT_UNROLL
    for (int e = 0; e < 8; ++e) {
      const int i = tensor_layout::a_row(lane(), e), k = tensor_layout::a_column(lane(), e), from = i % 4 * 8 + k % 8;
      const fragment_c& half = e / 2 % 2 == 0 ? left : right;
#if XTRAIN_SIMT_GPU
      const float low = shuffle(half.r[e / 4 * 2], from), high = shuffle(half.r[e / 4 * 2 + 1], from);
#else
      const float low = shuffle(half.r[e / 4 * 2], from, where), high = shuffle(half.r[e / 4 * 2 + 1], from, where);
#endif
      set_element<T>(a, e, rounded<T>(i / 4 % 2 == 0 ? low : high));
    }
  }
  return a;
}

// ---- asynchronous copies ----

/// Begins a copy of 16 bytes to shared memory; bytes from `valid` on become zero.
XTRAIN_SIMT_FN void copy_async(void* to, const void* from, int valid) {
#if XTRAIN_SIMT_PTX
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(valid) : "memory");
#elif XTRAIN_SIMT_GPU
  auto* const words = static_cast<std::uint16_t*>(to);
  XTRAIN_SIMT_UNROLL
  for (int e = 0; e < 8; ++e) words[e] = 2 * e < valid ? static_cast<const std::uint16_t*>(from)[e] : std::uint16_t{0};
#else
  host::runner& all = *host::running;
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0)
    all.raise("an asynchronous copy whose addresses are not aligned to 16 bytes");
  const host::pending_copy copy{to, from, valid};
  for (int e = 0; e < 8; ++e) static_cast<std::uint16_t*>(to)[e] = 0xffff;  // NaN until it arrives
  if (all.draw() % 2 == 0) host::arrive(copy);                              // at once, or only when awaited
  const host::hidden_from_tsan hidden;
  all.self().copies.push_back(copy);
  ++all.counts.async_copies;
#endif
}
/// Groups this thread's copies since the last call.
XTRAIN_SIMT_FN void commit_copies() {
#if XTRAIN_SIMT_PTX
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif !XTRAIN_SIMT_GPU
  host::fiber& me = host::running->self();
  me.groups.push_back(me.copies.size());
#endif
}
/// Waits for all but the last Left groups of this thread's copies; a later sync() covers other threads'.
template <int Left>
XTRAIN_SIMT_FN void wait_for_copies(XTRAIN_SIMT_PLACE) {
#if XTRAIN_SIMT_PTX
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
#elif !XTRAIN_SIMT_GPU
  host::wait_for_groups(Left, where);
#endif
}

/// Begins a copy of a tile of Rows × Columns numbers to shared memory, rows Stride apart there; zeros beyond the matrix.
///   from            first number; rows from_stride apart
///   rows, columns   of the matrix from there on; may be fewer than the tile's, or negative
///   aligned         16 bytes may be copied at once; otherwise this thread copies synchronously
template <class T, int Rows, int Columns, int Stride, int Threads>
XTRAIN_SIMT_FN void copy_tile(T* to, const T* from, std::size_t from_stride, int rows, int columns, bool aligned) {
  constexpr int width = wide<T>, pieces = Columns / width;
  static_assert(Columns % width == 0 && Rows * pieces % Threads == 0);
  XTRAIN_SIMT_UNROLL_BY(Rows * pieces / Threads < 8 ? Rows * pieces / Threads : 8)
  for (int q = 0; q < Rows * pieces / Threads; ++q) {
    const int piece = q * Threads + thread(), i = piece / pieces, j = piece % pieces * width;
    const int left = i < rows ? columns - j : 0, valid = left < 0 ? 0 : left > width ? width : left;
    const T* const there = valid > 0 ? from + static_cast<std::size_t>(i) * from_stride + static_cast<std::size_t>(j) : from;
    T* const here = to + i * Stride + j;
    if (aligned) {
      copy_async(here, there, valid * static_cast<int>(sizeof(T)));
    } else {
      XTRAIN_SIMT_UNROLL
      for (int e = 0; e < width; ++e) here[e] = e < valid ? there[e] : rounded<T>(0.0f);
    }
  }
}

}  // namespace xtrain::simt
