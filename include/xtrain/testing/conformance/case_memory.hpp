// Operands of conformance cases.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain::testing::detail {

/// The members of scalars in device memory, which are all double.
template <class Scalars, class Struct>
[[nodiscard]] auto numbers_in(Struct* from, std::size_t n) {
  static_assert(sizeof(Scalars) % sizeof(double) == 0 && alignof(Scalars) == alignof(double) && std::is_trivially_copyable_v<Scalars>);
  using number = std::conditional_t<std::is_const_v<Struct>, const double, double>;
  return std::span<const double>(reinterpret_cast<number*>(from), n * sizeof(Scalars) / sizeof(double));
}

template <class Kernel>
inline constexpr bool is_in_rows = false;
template <class Kernel, class Memory>
inline constexpr bool is_in_rows<kernel::in_rows<Kernel, Memory>> = true;
/// A kernel with its rows in device memory has a separate entry in the report.
template <class Kernel>
[[nodiscard]] std::string name_of_kernel() {
  return concat(Kernel::name, is_in_rows<Kernel> ? " in rows" : "");
}

/// Host memory for a case's operands, filled from a counter: every run checks the same values.
class case_memory {
 public:
  /// Values in [low, high], rounded to T.
  template <class T>
  device_span<T, host_memory> numbers(std::size_t n, double low = -1.0, double high = 1.0) {
    const auto span = fresh<T>(n);
    for (std::size_t i = 0; i < n; ++i)
      span.raw()[i] = static_cast<T>(low + (high - low) * static_cast<double>(uniform_open(random_word(site(), drawn_++))));
    return span;
  }
  /// Every third number is scaled by `factor`: sums are rounded, so that they depend on the order.
  template <class T>
  device_span<T, host_memory> uneven_numbers(std::size_t n, double factor) {
    const auto span = numbers<T>(n);
    for (std::size_t i = 1; i < n; i += 3) span.raw()[i] = static_cast<T>(static_cast<double>(span.raw()[i]) * factor);
    return span;
  }
  /// Scalars of a step; every member is in [low, high].
  template <class Scalars>
  device_span<Scalars, host_memory> scalars(double low, double high) {
    const auto values = numbers<double>(sizeof(Scalars) / sizeof(double), low, high);
    const auto span = fresh<Scalars>(1);
    std::memcpy(static_cast<void*>(span.raw()), values.raw(), sizeof(Scalars));
    return span;
  }
  device_span<std::uint8_t, host_memory> codes(std::size_t n) {
    const auto span = fresh<std::uint8_t>(n);
    for (std::size_t i = 0; i < n; ++i) span.raw()[i] = static_cast<std::uint8_t>(random_word(site(), drawn_++));
    return span;
  }
  /// Tokens in [0, limit); if n > 4, one below and one above the range: rows without a token.
  device_span<token, host_memory> tokens(std::size_t n, std::size_t limit) {
    const auto span = fresh<token>(n);
    for (std::size_t i = 0; i < n; ++i) span.raw()[i] = static_cast<token>(random_word(site(), drawn_++) % limit);
    if (n > 4) {
      span.raw()[1] = -1;
      span.raw()[3] = static_cast<token>(limit);
    }
    return span;
  }
  /// The same values, in writable memory.
  template <class Operand>
  auto copy(const Operand& from) {
    using value = std::remove_const_t<typename Operand::element_type>;
    const auto span = fresh<value>(from.size());
    std::copy_n(from.raw(), from.size(), span.raw());
    return span;
  }
  template <class T>
  device_span<T, host_memory> fresh(std::size_t n) {
    auto& memory = all_.emplace_back(n * sizeof(T) + 64, std::byte{0x3b});  // not 0, a frequent result: unwritten results must be wrong
    return span_of(reinterpret_cast<T*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 63) / 64 * 64), n);
  }

 private:
  static random_site site() { return {.seed = 20240229, .step = 0, .site = 7}; }
  std::deque<std::vector<std::byte>> all_;
  std::uint64_t drawn_ = 0;
};

struct rows_and_columns {
  std::size_t rows, columns;
};
[[nodiscard]] inline std::vector<rows_and_columns> sizes_of(std::initializer_list<rows_and_columns> all) { return all; }

}  // namespace xtrain::testing::detail
