// A tensor in a file, for readers of all formats.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/io/block_dtypes.hpp>

namespace xtrain {

static_assert(std::endian::native == std::endian::little,
              "xtrain io: files are little-endian and are mapped as they are; this machine is not; see io/README.md");

/// Beginning of a file that Git LFS has not fetched.
inline constexpr std::string_view git_lfs_pointer = "version https://git-lfs.github.com/spec/";

/// A dtype in files.
struct stored_dtype {
  std::string_view name;
  std::size_t bits;
};

/// safetensors' dtypes. xtrain computes with F64, F32, F16, BF16 and only validates others.
inline constexpr std::array<stored_dtype, 22> stored_dtypes{
    {{"BOOL", 8}, {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
     {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},   {"I32", 32},    {"U32", 32},    {"F32", 32},        {"F64", 64},
     {"I64", 64}, {"U64", 64}, {"C64", 64}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}}};

/// Bits per element; 0: unknown.
[[nodiscard]] constexpr std::size_t bits_of(std::string_view dtype) {
  for (const stored_dtype& known : stored_dtypes)
    if (known.name == dtype) return known.bits;
  return 0;
}

/// A type's name in safetensors files.
template <class T>
requires dtype<T> || std::same_as<T, std::uint8_t>
[[nodiscard]] constexpr std::string_view safetensors_dtype_of() {
  if constexpr (std::is_same_v<T, std::uint8_t>) return "U8";
  else if constexpr (std::is_same_v<T, float>) return "F32";
  else if constexpr (std::is_same_v<T, double>) return "F64";
  else if constexpr (std::is_same_v<T, bf16>) return "BF16";
  else return "F16";
}

/// Can be loaded as weights.
[[nodiscard]] inline bool is_floating(std::string_view dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16" || dtype == "F64" || find_block_dtype(dtype) != nullptr;
}

/// Size and stride in elements.
struct file_dim {
  std::size_t size, stride;
  friend bool operator==(const file_dim&, const file_dim&) = default;
};

/// Name, dtype, shape and bytes.
struct file_tensor {
  std::string name{};
  std::string dtype{};  // safetensors' name, "F32"; or a block_dtype's, with blocks along the file's rows
  std::vector<std::size_t> shape{};
  std::span<const std::byte> bytes{};
  /// Empty: row-major, contiguous. Else dims, outermost first, that traverse elements in the order of `shape`: a transposed [3, 2] is {3, 1}, {2, 3}. May
  /// have more dims than `shape`: a dim with interleaved halves is two.
  std::vector<file_dim> layout{};

  [[nodiscard]] std::size_t size() const {
    std::size_t product = 1;
    for (const std::size_t dim : shape) product *= dim;
    return product;
  }
};

namespace detail {

/// use(where, count, stride) for runs in `first` … `first` + `all` − 1; `where`: element index from the first byte.
template <class Use>
void for_each_run(const file_tensor& tensor, std::size_t first, std::size_t all, Use&& use) {
  if (all == 0) return;
  if (tensor.layout.empty()) return use(first, all, std::size_t{1});
  const std::vector<file_dim>& dims = tensor.layout;
  std::vector<std::size_t> at(dims.size());
  std::size_t where = 0, rest = first;
  for (std::size_t d = dims.size(); d-- > 0;) {
    at[d] = rest % dims[d].size;
    rest /= dims[d].size;
    where += at[d] * dims[d].stride;
  }
  const file_dim inner = dims.back();
  while (true) {
    const std::size_t count = std::min(all, inner.size - at.back());
    use(where, count, inner.stride);
    all -= count;
    if (all == 0) return;
    where -= at.back() * inner.stride;
    at.back() = 0;
    for (std::size_t d = dims.size() - 1; d-- > 0;) {  // carry
      where += dims[d].stride;
      if (++at[d] < dims[d].size) break;
      where -= dims[d].size * dims[d].stride;
      at[d] = 0;
    }
  }
}

/// Divides every block.
inline constexpr std::size_t numbers_at_once = 32;

/// A length known to the compiler, separate from the source: vector instructions.
template <dtype T>
void convert_some(const float* from, T* to) {
  std::array<T, numbers_at_once> converted;
  for (std::size_t i = 0; i < numbers_at_once; ++i) converted[i] = static_cast<T>(from[i]);
  std::copy(converted.begin(), converted.end(), to);
}

/// Elements of blocks, converted. Keeps the last decoded block per place in the innermost dim: neighbours in the next dim are often in it.
template <dtype T>
void read_blocks(const file_tensor& from, const block_dtype& type, std::size_t first, std::span<T> to) {
  struct slot {
    std::size_t block = static_cast<std::size_t>(-1);
    std::array<float, longest_block> numbers;
  };
  std::vector<slot> slots(1);
  const auto decoded = [&](slot& kept, std::size_t block) -> const std::array<float, longest_block>& {
    if (block != kept.block) {
      type.decode(from.bytes.data() + block * type.bytes, kept.numbers.data());
      kept.block = block;
    }
    return kept.numbers;
  };
  T* next = to.data();
  for_each_run(from, first, to.size(), [&](std::size_t where, std::size_t count, std::size_t stride) {
    if (stride != 1) {
      if (slots.size() < count) slots.resize(count);
      for (std::size_t i = 0; i < count; ++i, where += stride) *next++ = static_cast<T>(decoded(slots[i], where / type.numbers)[where % type.numbers]);
      return;
    }
    while (count > 0) {
      if (where % type.numbers == 0 && count >= type.numbers) {
        const std::byte* block = from.bytes.data() + where / type.numbers * type.bytes;
        if constexpr (std::is_same_v<T, float>) {
          type.decode(block, next);
        } else {
          type.decode(block, slots[0].numbers.data());
          slots[0].block = where / type.numbers;
          for (std::size_t i = 0; i < type.numbers; i += numbers_at_once) convert_some(slots[0].numbers.data() + i, next + i);
        }
        next += type.numbers;
        where += type.numbers;
        count -= type.numbers;
        continue;
      }
      const std::size_t begin = where % type.numbers, of_block = std::min(count, type.numbers - begin);
      const float* numbers = decoded(slots[0], where / type.numbers).data() + begin;
      for (std::size_t i = 0; i < of_block; ++i) next[i] = static_cast<T>(numbers[i]);
      next += of_block;
      where += of_block;
      count -= of_block;
    }
  });
}

}  // namespace detail

/// Elements first … first + to.size() − 1, rounded to nearest.
///   throws  file_error for a dtype other than F64, F32, F16, BF16, block_dtypes
template <dtype T>
void read_numbers(const file_tensor& from, std::size_t first, std::span<T> to) {
  const auto convert = [&]<class F>(F) {
    T* next = to.data();
    detail::for_each_run(from, first, to.size(), [&](std::size_t where, std::size_t count, std::size_t stride) {
      const std::byte* source = from.bytes.data() + where * sizeof(F);
      if (std::is_same_v<F, T> && stride == 1) {
        std::memcpy(static_cast<void*>(next), source, count * sizeof(F));
      } else {
        for (std::size_t i = 0; i < count; ++i) {
          F value;
          std::memcpy(&value, source + i * stride * sizeof(F), sizeof(F));
          if constexpr (std::is_same_v<F, T>) next[i] = value;
          else next[i] = static_cast<T>(static_cast<accumulate_t<F>>(value));
        }
      }
      next += count;
    });
  };
  if (from.dtype == "F32") return convert(float{});
  if (from.dtype == "BF16") return convert(bf16{});
  if (from.dtype == "F16") return convert(fp16{});
  if (from.dtype == "F64") return convert(double{});
  if (const block_dtype* type = find_block_dtype(from.dtype)) return detail::read_blocks(from, *type, first, to);
  fail<file_error>("tensor '", from.name, "': must be F64, F32, F16 or BF16 to be loaded, or blocks of GGUF; it is ", from.dtype);
}

/// Elements from `first` on, unconverted, of any safetensors dtype; `to` holds entire elements.
///   throws  file_error for another dtype
inline void read_elements(const file_tensor& from, std::size_t first, std::span<std::byte> to) {
  const std::size_t bits = bits_of(from.dtype);
  require<file_error>(bits != 0, "tensor '", from.name, "': must have elements of its own to be copied; it has blocks of ", from.dtype);
  if (from.layout.empty()) {
    if (!to.empty()) std::memcpy(to.data(), from.bytes.data() + first * bits / 8, to.size());
    return;
  }
  const std::size_t width = bits / 8;  // dtypes below a byte have no layout
  std::byte* next = to.data();
  detail::for_each_run(from, first, to.size() / width, [&](std::size_t where, std::size_t count, std::size_t stride) {
    for (std::size_t i = 0; i < count; ++i, next += width) std::memcpy(next, from.bytes.data() + (where + i * stride) * width, width);
  });
}

namespace detail {

/// Rounded to a dtype.
[[nodiscard]] inline double rounded_to(std::string_view dtype, double x) {
  if (dtype == "BF16") return static_cast<double>(static_cast<float>(bf16(static_cast<float>(x))));
  if (dtype == "F16") return static_cast<double>(static_cast<float>(fp16(static_cast<float>(x))));
  return dtype == "F32" ? static_cast<double>(static_cast<float>(x)) : x;
}

}  // namespace detail

/// Equal shapes and bits; of different dtypes, each rounded to the other's.
///   throws  file_error when dtypes differ and one cannot be loaded as weights
[[nodiscard]] inline bool same_values(const file_tensor& a, const file_tensor& b) {
  if (a.shape != b.shape) return false;
  if (a.dtype == b.dtype && a.layout == b.layout && a.bytes.data() == b.bytes.data()) return true;
  const bool same_dtype = a.dtype == b.dtype && bits_of(a.dtype) != 0;  // equal numbers may have different blocks
  if (same_dtype && a.layout.empty() && b.layout.empty())
    return a.bytes.size() == b.bytes.size() && (a.bytes.empty() || std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0);
  constexpr std::size_t at_once = std::size_t{1} << 16;
  const std::size_t width = same_dtype ? bits_of(a.dtype) / 8 : sizeof(double);
  std::vector<std::byte> from_a(at_once * width), from_b(at_once * width);
  std::vector<double> numbers(at_once);
  for (std::size_t first = 0; first < a.size(); first += at_once) {
    const std::size_t count = std::min(at_once, a.size() - first);
    const auto read = [&](const file_tensor& from, std::vector<std::byte>& to) {
      if (same_dtype) return read_elements(from, first, std::span(to).first(count * width));
      read_numbers(from, first, std::span(numbers).first(count));
      for (double& x : std::span(numbers).first(count)) x = detail::rounded_to(a.dtype, detail::rounded_to(b.dtype, x));
      std::memcpy(to.data(), numbers.data(), count * width);
    };
    read(a, from_a);
    read(b, from_b);
    if (std::memcmp(from_a.data(), from_b.data(), count * width) != 0) return false;
  }
  return true;
}

}  // namespace xtrain
