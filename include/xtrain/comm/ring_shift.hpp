// Ring exchange: every rank sends an array to the next, during compute.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <xtrain/comm/host_staging.hpp>
#include <xtrain/comm/native_lane.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/device/concepts.hpp>

namespace xtrain {

/// An array to the next rank, and one from the previous.
template <class T, class Memory>
class ring_shift {
 public:
  /// `number`: distinct for shifts of a group in flight together
  explicit ring_shift(std::size_t number = 0) : first_slot_(2 + 2 * number) {}

  /// In stream order. Until finish(), `from` must not be written and `to` not accessed. All ranks begin equal shifts in equal order.
  template <class Stream, class Group>
  void begin(Stream& stream, Group& ranks, device_span<const T, Memory> from, device_span<T, Memory> to) {
    if (auto* const lane = ranks.lane(stream); lane != nullptr) {
      using event = decltype(stream.record());
      natively_ = std::make_shared<event>(lane->begin(stream, [&](native_collectives& native, void* beside) {
        native.send_receive(beside, detail::array_of(from), next(ranks), detail::array_of(to), previous(ranks));
      }));
      return;
    }
    if constexpr (!detail::is_staged<Memory>) {
      stream.synchronize();
      begin_messages(ranks, messages_, {from.raw(), from.size()}, {to.raw(), to.size()});
    } else {
      to_ = to;
      sent_ = ranks.staging().template take<T>(stream, first_slot_, from.size());
      received_ = ranks.staging().template take<T>(stream, first_slot_ + 1, to.size());
      copy_to_host(stream, sent_.values, from);
      in_flight_ = std::make_shared<messages>();
      detail::in_stream_order(
          stream, [&ranks, flight = in_flight_, s = sent_.values, r = received_.values] { begin_messages(ranks, *flight, s, r); }, sent_.memory,
          received_.memory);
    }
  }
  /// Later work finds `to` filled and may write `from`.
  template <class Stream>
  void finish(Stream& stream) {
    if (natively_ != nullptr) {
      stream.wait(*static_cast<decltype(stream.record())*>(natively_.get()));
      return natively_.reset();
    }
    if constexpr (!detail::is_staged<Memory>) {
      messages_.wait();
    } else {
      detail::in_stream_order(stream, [flight = in_flight_] { flight->wait(); }, sent_.memory, received_.memory);
      copy_to_device(stream, to_, std::span<const T>(received_.values));
      detail::hold(stream, received_.memory);
    }
  }

 private:
  struct messages {
    pending_message sends, receives;

    void wait() {
      if (receives) receives->wait();
      if (sends) sends->wait();
      receives.reset();
      sends.reset();
    }
  };
  template <class Group>
  static void begin_messages(Group& ranks, messages& begun, std::span<const T> sent, std::span<T> received) {
    begun.receives = ranks.begin_receive(previous(ranks), received);
    begun.sends = ranks.begin_send(next(ranks), sent);
  }
  template <class Group>
  [[nodiscard]] static std::size_t next(const Group& ranks) {
    return (ranks.rank() + 1) % ranks.size();
  }
  template <class Group>
  [[nodiscard]] static std::size_t previous(const Group& ranks) {
    return (ranks.rank() + ranks.size() - 1) % ranks.size();
  }

  std::size_t first_slot_;
  std::shared_ptr<void> natively_{};  // event: end of native messages
  device_span<T, Memory> to_{};
  detail::staged_span<T> sent_{}, received_{};
  std::shared_ptr<messages> in_flight_{};  // through host memory
  messages messages_{};                    // otherwise; last: destroyed before its memory
};

}  // namespace xtrain
