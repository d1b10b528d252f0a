// Memory whose size cannot be planned: it grows on demand and is kept.
#pragma once

#include <cstddef>

#include <xtrain/device/memory.hpp>

namespace xtrain {

template <class Device>
class growing_memory {
 public:
  using memory = typename Device::memory;

  growing_memory(const typename Device::context& device, memory_role role) : memory_(device, 0, role), role_(role) {}

  /// n elements, in the same memory as last time if that is large enough. Otherwise its contents are lost and an eighth more than
  /// asked for is allocated, because the next request will be slightly different. No work may be using the memory.
  ///   throws  memory_error when the device cannot allocate it
  template <class T>
  [[nodiscard]] device_span<T, memory> at_least(std::size_t n) {
    const std::size_t bytes = n * sizeof(T);
    if (memory_.bytes() < bytes) {
      const auto device = memory_.device();
      memory_ = buffer<Device>(device, 0, role_);  // free the old memory before the new is allocated
      memory_ = buffer<Device>(device, bytes + bytes / 8, role_);
    }
    return memory_.template as<T>().subspan(0, n);
  }

 private:
  buffer<Device> memory_;
  memory_role role_;
};

}  // namespace xtrain
