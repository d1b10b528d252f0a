// A kernel is a plain value: its sizes, its settings, and the memory that it reads, writes or adds to. Because all of that
// is data, generic code can run it (a device), count it (`dry`), queue it (a stream), move it to the host and back
// (`with_host_fallback`) or check it against the reference (the conformance suite).
//
// A device runs a kernel through an overload found by argument-dependent lookup:
//
//     void run_kernel(acme::stream&, const xtrain::kernel::rms_norm<acme::memory, float>&, scratch_span<acme::memory>);
//
// and, where it needs scratch memory, states its size as a function of the sizes alone:
//
//     std::size_t scratch_bytes(const acme::properties&, const xtrain::kernel::rms_norm<acme::memory, float>&);
//
// The size must not grow when n shrinks: a step's memory is planned for the largest n, and batches and experts may have fewer rows.
//
// Legend of the letters in operand names, the same everywhere:
//   b batch, t time, c channels, h heads, k key/value heads, d head dim, f feed-forward, v vocabulary, l layers,
//   e experts, r rank of an adapter, n flat count of rows
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include <xtrain/device/memory.hpp>

namespace xtrain {

namespace kernel {

/// How a kernel uses an operand. `updated` memory is read and written: it is added to, or changed in place.
enum class role { read, written, updated };

/// Memory that a kernel works on. Empty for an optional operand that is not given.
template <class T, class Memory, role Role>
class operand : public device_span<T, Memory> {
 public:
  static constexpr role access = Role;
  constexpr operand() = default;
  constexpr operand(device_span<T, Memory> span) : device_span<T, Memory>(span) {}
  constexpr operand(device_span<std::remove_const_t<T>, Memory> span) requires std::is_const_v<T> : device_span<T, Memory>(span) {}
};

template <class T, class Memory>
using read = operand<const T, Memory, role::read>;
template <class T, class Memory>
using written = operand<T, Memory, role::written>;
template <class T, class Memory>
using updated = operand<T, Memory, role::updated>;

template <class Field>
inline constexpr bool is_operand = false;
template <class T, class Memory, role Role>
inline constexpr bool is_operand<operand<T, Memory, Role>> = true;

/// Calls visit(operand) for every operand of the kernel, in order.
template <class Kernel, class Visit>
constexpr void for_each_operand(Kernel& kernel, Visit&& visit) {
  const auto one = [&](auto& field) {
    if constexpr (is_operand<std::remove_cvref_t<decltype(field)>>) visit(field);
  };
  std::remove_const_t<Kernel>::fields(kernel, [&](auto&... all) { (one(all), ...); });
}

/// The same kernel on other memory: settings are copied, every operand becomes convert(operand), a span over `To`.
template <class To, class Kernel, class Convert>
[[nodiscard]] constexpr auto moved_to(const Kernel& from, Convert&& convert) {
  using target = typename Kernel::template on<To>;
  target to{};
  const auto one = [&](auto& target_field, const auto& field) {
    using field_type = std::remove_cvref_t<decltype(field)>;
    if constexpr (is_operand<field_type>) {
      target_field = convert(field);
    } else {
      target_field = field;
    }
  };
  Kernel::fields(from, [&](const auto&... source) { target::fields(to, [&](auto&... sink) { (one(sink, source), ...); }); });
  return to;
}

/// Minimum memory traffic of the kernel in bytes: read and written operands count once, updated ones twice.
template <class Kernel>
[[nodiscard]] constexpr std::size_t bytes_moved(const Kernel& kernel) {
  std::size_t bytes = 0;
  for_each_operand(kernel, [&](const auto& operand) {
    bytes += operand.bytes() * (std::remove_cvref_t<decltype(operand)>::access == role::updated ? 2 : 1);
  });
  return bytes;
}

}  // namespace kernel

template <class Memory>
using scratch_span = device_span<std::byte, Memory>;

/// Default: a kernel needs no scratch memory.
template <class Properties, class Kernel>
[[nodiscard]] constexpr std::size_t scratch_bytes(const Properties&, const Kernel&) {
  return 0;
}

/// The device has this kernel for these dtypes.
template <class Device, class Kernel>
concept runs_kernel = requires(typename Device::stream& stream, const Kernel& kernel, scratch_span<typename Device::memory> scratch) {
  run_kernel(stream, kernel, scratch);
};

}  // namespace xtrain
