// Every rank of a group gives an array to the next one, while others compute.
#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/dry/dry.hpp>

namespace xtrain {

/// One array on its way to the next rank, and the previous rank's on its way here.
template <class T, class Memory>
class ring_shift {
 public:
  /// What the stream was given before is done first. Until finish(), `from` stays as it is, and nobody looks at `to`; the stream may be
  /// given other work. All ranks of the group begin the same shifts in the same order.
  template <class Stream, class Group>
  void begin(Stream& stream, Group& ranks, device_span<const T, Memory> from, device_span<T, Memory> to) {
    to_ = to;
    std::span<const T> sent(from.raw(), from.size());
    std::span<T> received(to.raw(), to.size());
    if constexpr (!directly) {
      sent_.resize(from.size());
      received_.resize(to.size());
      copy_to_host(stream, std::span<T>(sent_), from);
      sent = sent_;
      received = received_;
    }
    stream.synchronize();
    const std::size_t next = (ranks.rank() + 1) % ranks.size(), previous = (ranks.rank() + ranks.size() - 1) % ranks.size();
    receives_ = ranks.begin_receive(previous, received);
    sends_ = ranks.begin_send(next, sent);
  }
  /// `to` is there, and `from` may be written to.
  template <class Stream>
  void finish(Stream& stream) {
    if (receives_) receives_->wait();
    if (sends_) sends_->wait();
    receives_.reset();
    sends_.reset();
    if constexpr (!directly) {
      copy_to_device(stream, to_, std::span<const T>(received_));
      stream.synchronize();
    }
  }

 private:
  /// The host can follow the pointers, or nobody ever will.
  static constexpr bool directly = clause::memory_is_host_addressable<Memory> || is_dry_memory<Memory>;

  device_span<T, Memory> to_{};
  std::vector<T> sent_, received_;
  pending_message sends_, receives_;  // last: they end before the memory they use
};

}  // namespace xtrain
