#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/host_staging.hpp>
#include <xtrain/comm/native_lane.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

/// A matrix between stages: begun where the action list says, waited for where needed; its memory must not change in between. Native messages use a side
/// stream. Otherwise, if the host cannot access device memory, a host copy is sent in the order of the stream; the host does not wait.
template <class Device, class T>
class stage_message {
 public:
  using stream = typename Device::stream;
  using memory = typename Device::memory;

  void send(stream& on, group& between, std::size_t to, device_span<const T, memory> values) {
    if (auto* const lane = between.lane(on, between.rank(), to); lane != nullptr) {
      natively_ = lane->begin(on, [&](native_collectives& native, void* beside) { native.send(beside, detail::array_of(values), 1); });
      return;
    }
    if constexpr (!detail::is_staged<memory>) {
      on.synchronize();
      begun_ = between.begin_send(to, std::span<const T>(values.raw(), values.size()));
    } else {
      host_ = staging_.template take<T>(on, 0, values.size());
      copy_to_host(on, host_.values, values);
      in_flight_ = std::make_shared<pending_message>();
      detail::in_stream_order(
          on, [&between, to, flight = in_flight_, sent = host_.values] { *flight = between.begin_send(to, std::span<const T>(sent)); }, host_.memory);
    }
  }
  void receive(stream& on, group& between, std::size_t from, device_span<T, memory> values) {
    if (auto* const lane = between.lane(on, from, between.rank()); lane != nullptr) {
      natively_ = lane->begin(on, [&](native_collectives& native, void* beside) { native.receive(beside, detail::array_of(values), 0); });
      return;
    }
    if constexpr (!detail::is_staged<memory>) {
      on.synchronize();  // previous users of the memory are done
      begun_ = between.begin_receive(from, std::span<T>(values.raw(), values.size()));
    } else {
      host_ = staging_.template take<T>(on, 0, values.size());
      received_ = values;
      in_flight_ = std::make_shared<pending_message>();
      detail::in_stream_order(
          on, [&between, from, flight = in_flight_, received = host_.values] { *flight = between.begin_receive(from, received); }, host_.memory);
    }
  }
  /// Later work on the stream may overwrite sent memory, and finds received values.
  void wait([[maybe_unused]] stream& on) {
    if (natively_) {
      on.wait(*natively_);
      return natively_.reset();
    }
    if constexpr (!detail::is_staged<memory>) {
      if (begun_) begun_->wait();
      begun_.reset();
    } else {
      if (!in_flight_) return;
      detail::in_stream_order(
          on,
          [flight = in_flight_] {
            if (*flight) (*flight)->wait();
            flight->reset();
          },
          host_.memory);
      in_flight_.reset();
      if (received_.empty()) return;
      copy_to_device(on, received_, std::span<const T>(host_.values));
      detail::hold(on, host_.memory);
      received_ = {};
    }
  }

 private:
  std::optional<decltype(std::declval<stream&>().record())> natively_{};  // the end of a native message
  detail::message_staging staging_;
  detail::staged_span<T> host_{};  // where the host cannot access device memory
  device_span<T, memory> received_{};
  std::shared_ptr<pending_message> in_flight_{};
  pending_message begun_;  // otherwise; last: destroyed before the memory it uses
};

}  // namespace xtrain
