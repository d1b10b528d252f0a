// The dry device stands in for another device: it computes nothing and counts everything. Running a program on it shows
// what the program will need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain {

/// Memory that does not exist. Addresses can be compared, never dereferenced.
template <class Device>
struct dry_memory {
  static constexpr std::string_view name = "dry";
  static constexpr bool host_addressable = false;
};

/// The properties of the device for which a dry run counts.
template <class Device>
struct dry_properties {
  typename Device::properties of_device;
};

/// An opened dry device. Copies share one tally and one record.
template <class Device>
class dry_context {
 public:
  explicit dry_context(typename Device::properties properties) : shared_(std::make_shared<shared>()), properties_{properties} {}
  dry_context() : dry_context(typename Device::context{}.properties()) {}

  [[nodiscard]] void* allocate(std::size_t bytes, memory_role role) const {
    shared_->tally.add(role, bytes);
    return shared_->addresses.next(bytes);
  }
  void release(void*, std::size_t bytes, memory_role role) const { shared_->tally.remove(role, bytes); }
  [[nodiscard]] memory_count memory() const { return shared_->tally.count(); }
  [[nodiscard]] std::size_t memory_limit() const { return ~std::size_t{0}; }
  [[nodiscard]] dry_properties<Device> properties() const { return properties_; }
  [[nodiscard]] dry_record& record() const { return shared_->record; }
  [[nodiscard]] bool is_dry_run() const { return true; }

 private:
  struct shared {
    memory_tally tally;
    dry_record record;
    unreal_addresses addresses;
  };
  std::shared_ptr<shared> shared_;
  dry_properties<Device> properties_;
};

/// Counts the work that is queued.
template <class Device>
class dry_stream {
 public:
  struct event {
    void synchronize() const {}
  };

  explicit dry_stream(const dry_context<Device>& context) : record_(&context.record()), keep_open_(context) {}

  void copy_from_host(void*, const void*, std::size_t bytes) const { record_->bytes_from_host += static_cast<double>(bytes); }
  /// Writes zeros to the host memory.
  void copy_to_host(void* to, const void*, std::size_t bytes) const {
    for (std::size_t i = 0; i < bytes; ++i) static_cast<unsigned char*>(to)[i] = 0;
    record_->bytes_to_host += static_cast<double>(bytes);
  }
  void copy_within(void*, const void*, std::size_t bytes) const { record_->count("copy", 0, 2.0 * static_cast<double>(bytes)); }
  void fill_zero(void*, std::size_t bytes) const { record_->count("fill_zero", 0, static_cast<double>(bytes)); }
  void synchronize() const { ++record_->synchronisations; }
  [[nodiscard]] event record() const { return {}; }
  void wait(event) const {}
  [[nodiscard]] dry_record* counts() const { return record_; }

 private:
  dry_record* record_;
  dry_context<Device> keep_open_;
};

/// Stands in for Device without executing anything.
template <device Device>
struct dry {
  static constexpr std::string_view name = "dry";
  using of_device = Device;
  using memory = dry_memory<Device>;
  using properties = dry_properties<Device>;
  using context = dry_context<Device>;
  using stream = dry_stream<Device>;
};

/// Whether a device counts, and computes nothing.
template <class Device>
inline constexpr bool is_dry = false;
template <class Device>
inline constexpr bool is_dry<dry<Device>> = true;
/// Whether a memory is of such a device.
template <class Memory>
inline constexpr bool is_dry_memory = false;
template <class Device>
inline constexpr bool is_dry_memory<dry_memory<Device>> = true;

namespace detail {

/// The kernel with the operand types of the real device; only its sizes are meaningful.
template <class Device, class Kernel>
[[nodiscard]] auto as_on_device(const Kernel& kernel) {
  using memory = typename Device::memory;
  return kernel::moved_to<memory>(kernel, [](const auto& operand) {
    using element = typename std::remove_cvref_t<decltype(operand)>::element_type;
    return span_of<element, memory>(operand.raw(), operand.size());
  });
}
template <class Device, class Kernel>
using on_device_t = decltype(as_on_device<Device>(std::declval<const Kernel&>()));

}  // namespace detail

template <class Device, class Kernel>
[[nodiscard]] std::size_t scratch_bytes(const dry_properties<Device>& properties, const Kernel& kernel) {
  return scratch_bytes(properties.of_device, detail::as_on_device<Device>(kernel));
}

/// Counts the kernel. Exists only for kernels that the real device has.
template <class Device, class Kernel>
requires runs_kernel<Device, detail::on_device_t<Device, Kernel>>
void run_kernel(dry_stream<Device>& stream, const Kernel& kernel, scratch_span<dry_memory<Device>>) {
  stream.counts()->count(Kernel::name, kernel.operations(), static_cast<double>(kernel::bytes_moved(kernel)));
}

}  // namespace xtrain
