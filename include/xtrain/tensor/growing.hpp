// Memory whose size cannot be planned: it grows on demand and is kept.
#pragma once

#include <cstddef>

#include <xtrain/device/memory.hpp>

namespace xtrain {

/// Memory whose size cannot be planned: it grows on demand.
template <class Device>
class growing_memory {
 public:
  using memory = typename Device::memory;

  growing_memory(const typename Device::context& device, memory_role role) : memory_(device, 0, role), role_(role) {}

  /// n elements, in the same memory as last time if that is large enough. Otherwise its contents are lost and new memory is allocated. No
  /// work may be using the memory then.
  ///   has_spare  an eighth more than asked for is allocated, because the next request will be slightly different
  ///   throws     memory_error when the device cannot allocate it
  template <class T>
  [[nodiscard]] device_span<T, memory> at_least(std::size_t n, bool has_spare = true) {
    const std::size_t bytes = n * sizeof(T);
    if (!has_room<T>(n)) {
      const auto device = memory_.device();
      memory_ = buffer<Device>(device, 0, role_);  // free the old memory before the new is allocated
      memory_ = buffer<Device>(device, bytes + (has_spare ? bytes / 8 : 0), role_);
    }
    return memory_.template as<T>().subspan(0, n);
  }
  /// Whether there is memory for n elements.
  template <class T>
  [[nodiscard]] bool has_room(std::size_t n) const {
    return memory_.bytes() >= n * sizeof(T);
  }

 private:
  buffer<Device> memory_;
  memory_role role_;
};

}  // namespace xtrain
