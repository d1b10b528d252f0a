// Messages of device memory by native collectives on a second stream, overlapping with compute.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <xtrain/comm/native_collectives.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain::detail {

template <class T, class Memory>
[[nodiscard]] device_array array_of(device_span<T, Memory> values) {
  return {values.raw(), values.size(), dtype_traits<T>::name};
}
template <class T, class Memory>
[[nodiscard]] device_array array_of(device_span<const T, Memory> values) {
  return {const_cast<T*>(values.raw()), values.size(), dtype_traits<T>::name};
}

/// A second stream can be opened on this stream's device.
template <class Stream>
concept opens_beside = requires(const Stream& stream) { Stream(stream.device()); };

/// Native calls on a second stream.
template <class Stream>
class native_lane {
 public:
  using event = decltype(std::declval<Stream&>().record());

  native_lane(std::shared_ptr<native_collectives> calls, const Stream& beside) : calls_(std::move(calls)), own_(beside.device()) {}
  native_lane(const native_lane&) = delete;
  native_lane& operator=(const native_lane&) = delete;
  ~native_lane() {
    try {
      own_.synchronize();
    } catch (...) {  // the main stream has waited for the event and reports it
    }
  }

  /// Queues call(native collectives, address of the stream) after the main stream's present work.
  template <class Call>
  [[nodiscard]] event begin(Stream& main, Call&& call) {
    own_.wait(main.record());
    call(*calls_, static_cast<void*>(&own_));
    return own_.record();
  }

 private:
  std::shared_ptr<native_collectives> calls_;
  Stream own_;
};

}  // namespace xtrain::detail
