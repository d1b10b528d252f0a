// The transport of bytes between ranks, implemented by threads of one process and by MPI. Collectives are written once on top of it, so
// they reduce in the same order, and give the same bits, over every transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <xtrain/comm/channel_origin.hpp>
#include <xtrain/comm/native_collectives.hpp>

namespace xtrain {

/// A message that has been begun. Its memory must stay unchanged until wait() returns or the message is destroyed.
class message {
 public:
  virtual ~message() = default;
  /// For a send, returns when its memory may be reused; for a receive, when the data has arrived.
  ///   throws  comm_error when the other rank has stopped, sent another size, or timed out
  virtual void wait() = 0;
};
/// A message that is on its way.
using pending_message = std::unique_ptr<message>;

/// One rank's endpoint for messages to and from all ranks of a run. Safe to use from several threads, each with its own channels.
class transport {
 public:
  virtual ~transport() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual std::size_t rank() const = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;

  /// Messages from one rank to another on one channel arrive in the order in which they were sent. A send may block until its receive is
  /// posted: begin what the other rank waits for before waiting yourself.
  [[nodiscard]] virtual pending_message send(std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual pending_message receive(std::size_t from, std::uint32_t channel, std::span<std::byte> bytes) = 0;

  /// Collectives on device memory for these ranks, by the accelerator's own library; null: messages go by way of the host. A group asks at its first
  /// collective on device memory: all its members do so at the same point.
  [[nodiscard]] virtual std::unique_ptr<native_collectives> native([[maybe_unused]] std::span<const std::size_t> members,
                                                                   [[maybe_unused]] std::uint32_t channel) {
    return nullptr;
  }

  /// Where messages of channel 0 go. A transport that sends by another one returns that one's.
  [[nodiscard]] virtual channel_origin channels() const { return {.network = this}; }

  /// Which other rank of the run has stopped with an error, and why, as far as this rank knows: "rank 1 has stopped: disk: full". Empty: none.
  [[nodiscard]] virtual std::string stopped() const { return {}; }

  /// false: messages are counted but nothing arrives (a dry run); spans have sizes but no memory.
  [[nodiscard]] virtual bool carries() const { return true; }
};

/// The transport of a dry run: any number of ranks, of which this is one.
class dry_transport final : public transport {
 public:
  dry_transport(std::size_t rank, std::size_t size) : rank_(rank), size_(size) {}

  [[nodiscard]] std::string_view name() const override { return "dry"; }
  [[nodiscard]] std::size_t rank() const override { return rank_; }
  [[nodiscard]] std::size_t size() const override { return size_; }
  [[nodiscard]] pending_message send(std::size_t, std::uint32_t, std::span<const std::byte>) override { return nullptr; }
  [[nodiscard]] pending_message receive(std::size_t, std::uint32_t, std::span<std::byte>) override { return nullptr; }
  [[nodiscard]] bool carries() const override { return false; }

 private:
  std::size_t rank_, size_;
};

}  // namespace xtrain
