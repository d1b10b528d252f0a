// Ring exchange: every rank of a group sends an array to the next rank, overlapped with compute.
#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/dry/dry.hpp>

namespace xtrain {

/// One array in flight to the next rank, and one from the previous rank.
template <class T, class Memory>
class ring_shift {
 public:
  /// Waits for the work queued on the stream before. Until finish(), `from` must not be written and `to` must not be accessed; other work
  /// may be queued on the stream. All ranks of the group must begin the same shifts in the same order.
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
  /// After this, `to` is filled and `from` may be written.
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
  /// The host can dereference the pointers, or (in a dry run) nothing ever does.
  static constexpr bool directly = clause::memory_is_host_addressable<Memory> || is_dry_memory<Memory>;

  device_span<T, Memory> to_{};
  std::vector<T> sent_, received_;
  pending_message sends_, receives_;  // last: destroyed before the buffers they use
};

}  // namespace xtrain
