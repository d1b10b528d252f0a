// A kernel is a value: sizes, settings, and memory that it reads, writes or adds to. So generic code can run it (a device), count it (`dry`), queue it (a
// stream),
// move it to the host and back (`with_host_fallback`), or check it against the reference (conformance suite).
//
// A device runs a kernel through an overload found by argument-dependent lookup:
//
//     void run_kernel(acme::stream&, const xtrain::kernel::rms_norm<acme::memory, float>&, scratch_span<acme::memory>);
//
// and states needed scratch memory as a function of sizes:
//
//     std::size_t scratch_bytes(const acme::properties&, const xtrain::kernel::rms_norm<acme::memory, float>&);
//
// It must not grow when n shrinks: a step's memory is planned for the largest n, and batches and experts may have fewer rows.
//
// Letters in operand names:
//   b batch, t time, c channels, h heads, k key/value heads, d head dim, f feed-forward, v vocabulary, l layers,
//   e experts, r rank of an adapter, n flat count of rows
#pragma once

#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>
#include <utility>

#include <xtrain/core/dtype.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

namespace kernel {

/// Use of an operand; `updated`: added to, or changed in place.
enum class role { read, written, updated };

/// A kernel's memory; empty: an optional operand that is not given.
template <class T, class Memory, role Role>
class operand : public device_span<T, Memory> {
 public:
  static constexpr role access = Role;
  constexpr operand() = default;
  constexpr operand(device_span<T, Memory> span) : device_span<T, Memory>(span) {}
  constexpr operand(device_span<std::remove_const_t<T>, Memory> span) requires std::is_const_v<T> : device_span<T, Memory>(span) {}
};

/// Read only.
template <class T, class Memory>
using read = operand<const T, Memory, role::read>;
/// Written only.
template <class T, class Memory>
using written = operand<T, Memory, role::written>;
/// Read and written.
template <class T, class Memory>
using updated = operand<T, Memory, role::updated>;

/// A scalar for queued kernels: a value, times a factor in device memory if given.
template <class Memory>
struct scalar {
  double value = 1.0;
  device_span<const double, Memory> factor_1{};

  constexpr scalar(double known = 1.0, device_span<const double, Memory> factor = {}) : value(known), factor_1(factor) {}
  [[nodiscard]] friend constexpr scalar operator*(const scalar& x, double by) { return {x.value * by, x.factor_1}; }
};
/// For such a gradient_scale, on host memory.
template <class Kernel>
[[nodiscard]] constexpr double gradient_scale_of(const Kernel& kernel) {
  return kernel.gradient_factor_1.empty() ? kernel.gradient_scale : kernel.gradient_scale * kernel.gradient_factor_1.raw()[0];
}

/// The field is an operand.
template <class Field>
inline constexpr bool is_operand = false;
template <class T, class Memory, role Role>
inline constexpr bool is_operand<operand<T, Memory, Role>> = true;

/// Calls visit(operand) for every operand, in order.
template <class Kernel, class Visit>
constexpr void for_each_operand(Kernel& kernel, Visit&& visit) {
  const auto one = [&](auto& field) {
    if constexpr (is_operand<std::remove_cvref_t<decltype(field)>>) visit(field);
  };
  std::remove_const_t<Kernel>::fields(kernel, [&](auto&... all) { (one(all), ...); });
}

/// The kernel on other memory: copies settings; operands become convert(operand), a span over `To`.
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

struct count_fields {
  template <class... Field>
  constexpr auto operator()(const Field&...) const {
    return std::integral_constant<std::size_t, sizeof...(Field)>{};
  }
};
/// Number of fields: settings and operands.
template <class Kernel>
inline constexpr std::size_t arity = decltype(Kernel::fields(std::declval<const Kernel&>(), count_fields{}))::value;

/// First line of a device's function for a kernel: after a new setting, no device compiles until each function has been reviewed.
template <std::size_t Fields, class Kernel>
constexpr void check_arity(const Kernel&) {
  static_assert(arity<Kernel> == Fields, "a kernel has more or fewer fields than this device's function handles");
}

/// Updated operands are read and written.
template <class Field>
[[nodiscard]] constexpr std::size_t bytes_moved_of(const Field& field) {
  if constexpr (is_operand<Field>) return field.bytes() * (Field::access == role::updated ? 2 : 1);
  return 0;
}
/// Minimum traffic in bytes: updated operands count twice. A kernel that does not touch entire operands declares its traffic.
template <class Kernel>
[[nodiscard]] constexpr std::size_t bytes_moved(const Kernel& kernel) {
  if constexpr (requires { kernel.bytes_moved(); }) return kernel.bytes_moved();
  else return Kernel::fields(kernel, [](const auto&... field) { return (bytes_moved_of(field) + ... + std::size_t{0}); });
}

/// The kernel on `count` of `total` rows, if operands have equal elements per row.
///   operands   members with rows; `n` is divided alike
template <class Kernel, class... Operand>
[[nodiscard]] constexpr Kernel on_rows(const Kernel& all, std::size_t first, std::size_t count, std::size_t total, Operand Kernel::*... operands) {
  Kernel some = all;
  const auto width = [&](std::size_t elements) { return total == 0 ? 0 : elements / total; };
  some.n = count * width(all.n);
  ((some.*operands = (all.*operands).subspan(first * width((all.*operands).size()), count * width((all.*operands).size()))), ...);
  return some;
}

/// rows(first, count, total): the kernel on some of its `total` rows.
template <class Kernel>
concept works_on_rows = requires(const Kernel& kernel, std::size_t n) {
  { kernel.rows(n, n, n) } -> std::same_as<Kernel>;
};

/// On no rows, the kernel still writes (zeros, for a sum over rows).
template <class Kernel>
[[nodiscard]] constexpr bool writes_without_rows(const Kernel& kernel) {
  if constexpr (requires { kernel.writes_without_rows(); }) return kernel.writes_without_rows();
  else return false;
}

/// A kernel on rows that only device memory knows at launch.
///   whole     the kernel on all rows
///   range_2   read   first row, number of rows
template <class Kernel, class Memory>
struct in_rows {
  static constexpr std::string_view name = Kernel::name;
  template <class M>
  using on = in_rows<typename Kernel::template on<M>, M>;

  Kernel whole{};
  std::size_t total = 0;
  read<token, Memory> range_2{};

  template <class Self, class F>
  static constexpr decltype(auto) fields(Self& s, F&& f) {
    return Kernel::fields(s.whole, [&](auto&... all) -> decltype(auto) { return f(all..., s.total, s.range_2); });
  }
  [[nodiscard]] constexpr double operations() const { return whole.operations(); }
};

}  // namespace kernel

/// A kernel's temporary memory.
template <class Memory>
using scratch_span = device_span<std::byte, Memory>;

namespace detail {

/// By a conversion, so that an overload for a base class of a device's properties is preferred.
struct any_properties {
  template <class Properties>
  constexpr any_properties(const Properties&) {}
};

}  // namespace detail

/// Default: no scratch memory.
template <class Kernel>
[[nodiscard]] constexpr std::size_t scratch_bytes(detail::any_properties, const Kernel&) {
  return 0;
}

/// The device has this kernel for these dtypes.
template <class Device, class Kernel>
concept runs_kernel = requires(typename Device::stream& stream, const Kernel& kernel, scratch_span<typename Device::memory> scratch) {
  run_kernel(stream, kernel, scratch);
};

}  // namespace xtrain
