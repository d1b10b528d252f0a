// Host memory that a device copies from and to without making the host wait (page-locked, pinned).
#pragma once

#include <concepts>
#include <cstddef>
#include <new>
#include <span>
#include <utility>

#include <xtrain/device/concepts.hpp>

namespace xtrain {

namespace clause {

/// Optional: context.allocate_pinned(bytes) gives host memory for asynchronous copies. Without it, any host memory will do.
template <class D>
concept device_has_pinned_memory = requires(const typename D::context& opened, std::size_t bytes, void* memory) {
  { opened.allocate_pinned(bytes) } -> std::same_as<void*>;
  opened.release_pinned(memory);
};

/// Optional: stream.queue_host_function(f) runs f() on the host in the order of the stream, without holding up other streams. Required of devices
/// whose memory the host cannot access, to communicate without making the host wait. f() may throw: no host function that is queued on the stream after it
/// is run then (it is destroyed in its turn), and every later synchronize() of the stream or of its later events throws that. Kernels and copies may run.
template <class D>
concept device_runs_host_functions = requires(typename D::stream& stream, void (*f)()) {
  stream.queue_host_function(f);
};

/// Optional, required of devices that go on with kernels and copies after a host function has thrown: stream.host_failure() is pinned memory, 0 until a
/// host function of this stream, or of a stream whose event it has waited for, has thrown; then 1, before anything that was queued after it runs. It is
/// copied to the device before a step's scalars are computed: weights and optimizer state then stay as they are.
template <class D>
concept device_marks_host_failures = requires(const typename D::stream& stream) {
  { stream.host_failure() } -> std::same_as<const double*>;
};

}  // namespace clause

/// Owned. Move-only; keeps the device open while it exists.
template <class Device>
class pinned_memory {
 public:
  /// throws memory_error when the system has no such memory
  pinned_memory(const typename Device::context& device, std::size_t bytes) : device_(device), raw_(bytes == 0 ? nullptr : allocate(bytes)), bytes_(bytes) {}
  pinned_memory(pinned_memory&& from) noexcept
      : device_(from.device_), raw_(std::exchange(from.raw_, nullptr)), bytes_(std::exchange(from.bytes_, 0)) {}
  pinned_memory& operator=(pinned_memory&& from) noexcept {
    std::swap(device_, from.device_);
    std::swap(raw_, from.raw_);
    std::swap(bytes_, from.bytes_);
    return *this;
  }
  ~pinned_memory() {
    if (raw_ == nullptr) return;
    if constexpr (clause::device_has_pinned_memory<Device>) device_.release_pinned(raw_);
    else ::operator delete(raw_);
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  template <class T>
  [[nodiscard]] std::span<T> as() const {
    return {static_cast<T*>(raw_), bytes_ / sizeof(T)};
  }

 private:
  [[nodiscard]] void* allocate(std::size_t bytes) const {
    if constexpr (clause::device_has_pinned_memory<Device>) return device_.allocate_pinned(bytes);
    else return ::operator new(bytes);
  }

  typename Device::context device_;
  void* raw_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace xtrain
