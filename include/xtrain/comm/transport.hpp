// Bytes between ranks, by threads or MPI. Collectives are written once on top, so all transports give the same bits.
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

/// Its memory must stay unchanged until wait() returns or the message is destroyed.
class message {
 public:
  virtual ~message() = default;
  /// A send's memory may be reused; a receive's data has arrived.
  ///   throws  comm_error when the other rank has stopped, sent another size, or timed out
  virtual void wait() = 0;
};
/// A message in flight.
using pending_message = std::unique_ptr<message>;

/// A rank's endpoint for messages. Threads with separate channels may use it at the same time.
class transport {
 public:
  virtual ~transport() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual std::size_t rank() const = 0;
  [[nodiscard]] virtual std::size_t size() const = 0;

  /// Messages between two ranks on a channel arrive in order. A send may block until its receive is posted: begin what the other rank waits for before
  /// waiting.
  [[nodiscard]] virtual pending_message send(std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes) = 0;
  [[nodiscard]] virtual pending_message receive(std::size_t from, std::uint32_t channel, std::span<std::byte> bytes) = 0;

  /// Native collectives on device memory for these ranks; null: messages go through the host. A group's members ask together, at its first collective on device
  /// memory.
  [[nodiscard]] virtual std::unique_ptr<native_collectives> native([[maybe_unused]] std::span<const std::size_t> members,
                                                                   [[maybe_unused]] std::uint32_t channel) {
    return nullptr;
  }

  /// Where messages of channel 0 go. A transport that sends by another one returns that one's.
  [[nodiscard]] virtual channel_origin channels() const { return {.network = this}; }

  /// Another rank that stopped with an error, and why: "rank 1 has stopped: disk: full". Empty: none known.
  [[nodiscard]] virtual std::string stopped() const { return {}; }

  /// false (dry run): messages are only counted; spans have no memory.
  [[nodiscard]] virtual bool carries() const { return true; }
};

/// A dry run's transport: a rank among any number.
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
