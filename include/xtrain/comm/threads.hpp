// Ranks as threads of one process, without launcher or sockets: the default on a machine, and the basis of tests of parallel strategies.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/comm/waiting.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/header_inline.hpp>

namespace xtrain {

/// Settings of thread ranks.
struct thread_ranks_options {
  /// A rank that waits longer for another stops and names it.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

namespace detail {

/// Matches sends with receives in the receiver's mailbox; the second of both copies the bytes directly.
class thread_world {
 public:
  thread_world(std::size_t size, const thread_ranks_options& options) : options_(options), boxes_(size), gone_(size) {}

  [[nodiscard]] std::size_t size() const { return boxes_.size(); }

  struct message {
    std::span<const std::byte> from{};
    std::span<std::byte> to{};
    bool is_send = false;
    enum class state : std::uint8_t { waiting, copying, done } now = state::waiting;
    std::string problem{};
  };
  struct address {
    std::size_t from = 0, to = 0;
    std::uint32_t channel = 0;
  };

  std::shared_ptr<message> post(const address& where, message fresh);

  /// `waits`: this rank; `other`: the rank it waits for
  void wait(const address& where, const std::shared_ptr<message>& mine, std::size_t waits, std::size_t other);

  void take_back(const address& where, const std::shared_ptr<message>& mine);

  /// The stopped rank, and why; empty: none.
  [[nodiscard]] std::string stopped();

  /// The rank stops communicating.
  void leave(std::size_t rank, std::string reason);

 private:
  struct slot {
    std::deque<std::shared_ptr<message>> messages;  // all sends, or all receives
  };
  struct mailbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::pair<std::size_t, std::uint32_t>, slot> slots;  // by sender and channel
  };

  [[nodiscard]] std::string reason_of(std::size_t rank);
  [[nodiscard]] bool gone(std::size_t rank) { return !reason_of(rank).empty(); }

  static void take_back(mailbox& box, const address& where, const std::shared_ptr<message>& mine);

  thread_ranks_options options_;
  std::deque<mailbox> boxes_;
  std::mutex gone_mutex_;
  std::vector<std::string> gone_;
  std::string stopped_{};  // the first
};

class thread_message final : public message {
 public:
  thread_message(std::shared_ptr<thread_world> world, thread_world::address where, std::size_t waits, std::size_t other,
                 thread_world::message fresh)
      : world_(std::move(world)), where_(where), waits_(waits), other_(other), message_(world_->post(where, std::move(fresh))) {}
  XTRAIN_HEADER_INLINE ~thread_message() override;
  thread_message(const thread_message&) = delete;
  thread_message& operator=(const thread_message&) = delete;

  XTRAIN_HEADER_INLINE void wait() override;

 private:
  std::shared_ptr<thread_world> world_;
  thread_world::address where_;
  std::size_t waits_, other_;
  std::shared_ptr<thread_world::message> message_;
  bool waited_ = false;
};

class thread_transport final : public transport {
 public:
  thread_transport(std::shared_ptr<thread_world> world, std::size_t rank) : world_(std::move(world)), rank_(rank) {}

  [[nodiscard]] std::string_view name() const override { return "threads"; }
  [[nodiscard]] std::size_t rank() const override { return rank_; }
  [[nodiscard]] std::size_t size() const override { return world_->size(); }
  [[nodiscard]] XTRAIN_HEADER_INLINE pending_message send(std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes) override;
  [[nodiscard]] XTRAIN_HEADER_INLINE pending_message receive(std::size_t from, std::uint32_t channel, std::span<std::byte> bytes) override;
  [[nodiscard]] std::string stopped() const override { return world_->stopped(); }

 private:
  std::shared_ptr<thread_world> world_;
  std::size_t rank_;
};

}  // namespace detail

/// A run of one rank.
[[nodiscard]] std::shared_ptr<transport> one_rank();

/// Runs `rank(transport)` on `ranks` threads, the ranks of a run; returns when all have. When one throws, others stop at their next wait for it, and its
/// exception is rethrown.
///   throws  config_error for 0 ranks, comm_error when the system cannot start all threads (then none has run)
void run_ranks(std::size_t ranks, const std::function<void(std::shared_ptr<transport>)>& rank, const thread_ranks_options& options = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/comm/threads_impl.hpp>
#endif
