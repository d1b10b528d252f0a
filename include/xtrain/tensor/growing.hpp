// Memory that grows on demand, for sizes that cannot be planned.
#pragma once

#include <cstddef>

#include <xtrain/device/memory.hpp>

namespace xtrain {

/// Memory that grows on demand and is never shrunk.
template <class Device>
class growing_memory {
 public:
  using memory = typename Device::memory;

  growing_memory(const typename Device::context& device, memory_role role) : memory_(device, 0, role), role_(role) {}

  /// n elements. Growing loses the contents and must not happen while work uses the memory.
  ///   has_spare  allocates 1/8 more: the next request may be slightly larger
  ///   throws     memory_error when the device cannot allocate it
  template <class T>
  [[nodiscard]] device_span<T, memory> at_least(std::size_t n, bool has_spare = true) {
    const std::size_t bytes = n * sizeof(T);
    if (!has_room<T>(n)) {
      const auto device = memory_.device();
      memory_ = buffer<Device>(device, 0, role_);  // free before allocating
      memory_ = buffer<Device>(device, bytes + (has_spare ? bytes / 8 : 0), role_);
    }
    return memory_.template as<T>().subspan(0, n);
  }
  template <class T>
  [[nodiscard]] bool has_room(std::size_t n) const {
    return memory_.bytes() >= n * sizeof(T);
  }

 private:
  buffer<Device> memory_;
  memory_role role_;
};

}  // namespace xtrain
