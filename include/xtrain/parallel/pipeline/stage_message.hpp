// A matrix in flight from one stage to another.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/device/dry/dry.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

/// One message at a time, begun where the action list says and waited for where it is needed. Until then its memory must stay unchanged.
/// Where the host cannot access device memory, a host copy is sent.
template <class Device, class T>
class stage_message {
 public:
  using stream = typename Device::stream;
  using memory = typename Device::memory;

  void send(stream& on, group& between, std::size_t to, device_span<const T, memory> values) {
    if constexpr (!directly) {
      host_.resize(values.size());
      copy_to_host(on, std::span<T>(host_), values);
    }
    on.synchronize();
    begun_ = between.begin_send(to, directly ? std::span<const T>(values.raw(), values.size()) : std::span<const T>(host_));
  }
  void receive(stream& on, group& between, std::size_t from, device_span<T, memory> values) {
    if constexpr (directly) {
      on.synchronize();  // previous users of the memory are done
      begun_ = between.begin_receive(from, std::span<T>(values.raw(), values.size()));
    } else {
      host_.resize(values.size());
      begun_ = between.begin_receive(from, std::span<T>(host_));
      received_ = values;
    }
  }
  /// Afterwards the sent memory may be overwritten, and received values are available to what is queued on the stream next.
  void wait([[maybe_unused]] stream& on) {
    if (begun_) begun_->wait();
    begun_.reset();
    if constexpr (!directly) {
      if (received_.empty()) return;
      copy_to_device(on, received_, std::span<const T>(host_));
      on.synchronize();
      received_ = {};
    }
  }

 private:
  static constexpr bool directly = clause::memory_is_host_addressable<memory> || is_dry_memory<memory>;

  std::vector<T> host_;
  device_span<T, memory> received_{};
  pending_message begun_;  // last: destroyed before its buffer
};

}  // namespace xtrain
