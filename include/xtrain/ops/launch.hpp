// Launches operations: a checked kernel is given scratch memory and queued on a stream. Every operation throws shape_error unless shapes match.
#pragma once

#include <cstddef>
#include <type_traits>

#include <xtrain/core/error.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/prepared_kernels.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

// Arguments of operations. Dtypes are deduced from outputs; inputs may be const.
/// A vector written on the device.
template <class T, class Device>
using vector = vector_view<T, typename Device::memory>;
/// A matrix written.
template <class T, class Device>
using matrix = matrix_view<T, typename Device::memory>;
/// A vector read.
template <class T, class Device>
using in_vector = std::type_identity_t<vector_view<const T, typename Device::memory>>;
/// A tensor of N dims written.
template <class T, std::size_t N, class Device>
using tensor_of = tensor_view<T, N, typename Device::memory>;
/// A tensor of N dims read.
template <class T, std::size_t N, class Device>
using in_tensor = std::type_identity_t<tensor_view<const T, N, typename Device::memory>>;
/// A matrix read.
template <class T, class Device>
using in_matrix = std::type_identity_t<matrix_view<const T, typename Device::memory>>;

template <class Device, class Kernel>
void launch(execution<Device>& on, const Kernel& kernel);

namespace detail {

/// Runs the kernel on rows that only the device knows.
template <class Device, class Kernel>
void launch_in_rows(execution<Device>& on, const Kernel& kernel) {
  if constexpr (runs_kernel<Device, kernel::in_rows<Kernel, typename Device::memory>>) {
    if (dry_record* const counts = counts_of(on.stream)) {
      const typename arena<Device>::scope scope(on.workspace);
      (void)on.workspace.template take<std::byte>(scratch_bytes(on.properties, kernel));
      note_launch<Device>(*counts, kernel::in_rows<Kernel, typename Device::memory>{kernel, on.confined.total, on.confined.range_2});
      const Kernel some = kernel.rows(0, on.confined.expected, on.confined.total);
      return counts->count(Kernel::name, some.operations(), static_cast<double>(kernel::bytes_moved(some)));
    }
    launch(on, kernel::in_rows<Kernel, typename Device::memory>{kernel, on.confined.total, on.confined.range_2});
  } else {
    fail<config_error>(Device::name, ": must run '", Kernel::name, "' on rows that only the device knows (kernel::in_rows), as experts do");
  }
}

}  // namespace detail

/// Queues the kernel. The next kernel may reuse its scratch memory: a stream executes in order.
template <class Device, class Kernel>
void launch(execution<Device>& on, const Kernel& kernel) {
  static_assert(
      runs_kernel<Device, Kernel>,
      "xtrain device: must run every kernel that the model uses, with the precision's number types; the kernel named in this error is "
      "missing for the device named in it; write it, wrap the device as with_host_fallback<Device>, or, where the cpu's kernels are compiled apart, "
      "include <xtrain/device/cpu/kernels.hpp>; see device/README.md");
  if constexpr (kernel::works_on_rows<Kernel>)
    if (on.confined.exists()) return detail::launch_in_rows(on, kernel);
  const typename arena<Device>::scope scope(on.workspace);
  const auto scratch = on.workspace.template take<std::byte>(scratch_bytes(on.properties, kernel));
  if constexpr (clause::device_has_dry_run<Device>) {
    if (dry_record* const counts = on.stream.counts()) {
      note_launch<Device>(*counts, kernel);
      return counts->count(Kernel::name, kernel.operations(), static_cast<double>(kernel::bytes_moved(kernel)));
    }
  }
  run_kernel(on.stream, kernel, scratch);
}

}  // namespace xtrain::ops
