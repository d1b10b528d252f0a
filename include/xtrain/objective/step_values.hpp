#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::detail {

/// A step's values on the device, and pinned host memory for two steps.
template <class Device, class T>
class step_values {
 public:
  template <class Context>
  step_values(const Context& on, std::size_t size, bool is_dry)
      : size_(size), on_device_(on, size * sizeof(T), memory_role::batch), staged_(on, is_dry ? 0 : 2 * size * sizeof(T)) {}
  /// Queues the copy of a micro-batch's values; `at`: their index, ascending in a step.
  template <class Stream, class Given>
  void upload(Stream& stream, std::span<const Given> given, std::size_t at) {
    // the previous step may be in flight: alternate halves
    if (at <= last_) half_ = 1 - half_;
    last_ = at;
    const auto staged = staged_.template as<T>().subspan(half_ * size_ + at, given.size());
    std::transform(given.begin(), given.end(), staged.begin(), [](Given value) { return static_cast<T>(value); });
    copy_to_device(stream, on_device_.template as<T>().subspan(at, given.size()), staged);
  }
  [[nodiscard]] vector_view<const T, typename Device::memory> view(std::size_t at, std::size_t n) const {
    return {on_device_.template as<T>().subspan(at, n), {n}};
  }

 private:
  std::size_t size_, half_ = 0, last_ = 0;
  buffer<Device> on_device_;
  pinned_memory<Device> staged_;
};

}  // namespace xtrain::detail
