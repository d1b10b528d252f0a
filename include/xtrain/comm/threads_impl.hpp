// Definitions of threads.hpp.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/comm/rank_thread.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/comm/waiting.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE std::shared_ptr<thread_world::message> thread_world::post(const address& where, message fresh) {
  auto mine = std::make_shared<message>(std::move(fresh));
  mailbox& box = boxes_[where.to];
  std::unique_lock lock(box.mutex);
  slot& meeting = box.slots[{where.from, where.channel}];
  if (meeting.messages.empty() || meeting.messages.front()->is_send == mine->is_send) {
    meeting.messages.push_back(mine);
    return mine;
  }
  const std::shared_ptr<message> other = meeting.messages.front();
  meeting.messages.pop_front();
  message& send = mine->is_send ? *mine : *other;
  message& receive = mine->is_send ? *other : *mine;
  if (send.from.size() != receive.to.size()) {
    send.problem = receive.problem = concat("rank ", where.from, " sends ", send.from.size(), " bytes, and rank ", where.to, " asks for ",
                                            receive.to.size(), ": ranks must call the same operations in the same order");
  } else if (!send.from.empty()) {
    send.now = receive.now = message::state::copying;
    lock.unlock();
    std::memcpy(receive.to.data(), send.from.data(), send.from.size());
    lock.lock();
  }
  send.now = receive.now = message::state::done;
  box.changed.notify_all();
  return mine;
}

XTRAIN_INLINE void thread_world::wait(const address& where, const std::shared_ptr<message>& mine, std::size_t waits, std::size_t other) {
  mailbox& box = boxes_[where.to];
  std::unique_lock lock(box.mutex);
  const auto until = std::chrono::steady_clock::now() + options_.timeout;
  bool patient = true;
  while (mine->now != message::state::done && (mine->now == message::state::copying || (patient && !gone(other))))
    patient = box.changed.wait_until(lock, until) == std::cv_status::no_timeout || mine->now == message::state::copying;
  if (mine->now == message::state::done) {
    require<comm_error>(mine->problem.empty(), "threads: messages must have the expected length; ", mine->problem);
    return;
  }
  take_back(box, where, mine);
  lock.unlock();
  const std::string reason = reason_of(other);
  const char* what = mine->is_send ? " to receive a message" : " for a message";
  if (!reason.empty()) fail<comm_error>("threads: rank ", waits, " waits for rank ", other, what, ", but that rank ", reason);
  fail<comm_error>("threads: rank ", waits, " has waited ", std::chrono::duration<double>(options_.timeout).count(), " s for rank ", other,
                   what, " on channel ", where.channel, "; it hangs, or is in another operation");
}

XTRAIN_INLINE void thread_world::take_back(const address& where, const std::shared_ptr<message>& mine) {
  mailbox& box = boxes_[where.to];
  std::unique_lock lock(box.mutex);
  box.changed.wait(lock, [&] { return mine->now != message::state::copying; });
  take_back(box, where, mine);
}

XTRAIN_INLINE void thread_world::leave(std::size_t rank, std::string reason) {
  {
    const std::lock_guard lock(gone_mutex_);
    if (stopped_.empty() && reason.starts_with("has stopped")) stopped_ = concat("rank ", rank, " ", reason);
    gone_[rank] = std::move(reason);
  }
  for (mailbox& box : boxes_) {
    { const std::lock_guard lock(box.mutex); }  // no thread is between check and wait
    box.changed.notify_all();
  }
}

XTRAIN_INLINE std::string thread_world::stopped() {
  const std::lock_guard lock(gone_mutex_);
  return stopped_;
}

XTRAIN_INLINE std::string thread_world::reason_of(std::size_t rank) {
  const std::lock_guard lock(gone_mutex_);
  return gone_[rank];
}

XTRAIN_INLINE void thread_world::take_back(mailbox& box, const address& where, const std::shared_ptr<message>& mine) {
  const auto found = box.slots.find({where.from, where.channel});
  if (found != box.slots.end()) std::erase(found->second.messages, mine);
}

XTRAIN_INLINE thread_message::~thread_message() {
  if (!waited_) world_->take_back(where_, message_);
}

XTRAIN_INLINE void thread_message::wait() {
  if (std::exchange(waited_, true)) return;
  const waiting_for_ranks waits;
  world_->wait(where_, message_, waits_, other_);
}

XTRAIN_INLINE pending_message thread_transport::send(std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes) {
  return std::make_unique<thread_message>(world_, thread_world::address{rank_, to, channel}, rank_, to,
                                          thread_world::message{.from = bytes, .is_send = true});
}

XTRAIN_INLINE pending_message thread_transport::receive(std::size_t from, std::uint32_t channel, std::span<std::byte> bytes) {
  return std::make_unique<thread_message>(world_, thread_world::address{from, rank_, channel}, rank_, from,
                                          thread_world::message{.to = bytes, .is_send = false});
}

}  // namespace detail

XTRAIN_INLINE std::shared_ptr<transport> one_rank() {
  return std::make_shared<detail::thread_transport>(std::make_shared<detail::thread_world>(1, thread_ranks_options{}), 0);
}

XTRAIN_INLINE void run_ranks(std::size_t ranks, const std::function<void(std::shared_ptr<transport>)>& rank,
                             const thread_ranks_options& options) {
  require<config_error>(ranks > 0, "run_ranks: there must be at least one rank");
  const auto world = std::make_shared<detail::thread_world>(ranks, options);
  std::mutex mutex;
  std::exception_ptr first;  // the cause; others may follow from it
  enum class start : std::uint8_t { waits, begins, is_called_off };
  std::atomic<start> all{start::waits};
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  const auto run = [&](std::size_t r) {
    std::string reason = "has returned";
    const auto stopped = [&](std::string why) {
      reason = std::move(why);
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    };
    const detail::rank_thread is_rank(ranks);
    try {
      rank(std::make_shared<detail::thread_transport>(world, r));
    } catch (const std::exception& problem) {
      stopped(concat("has stopped: ", problem.what()));
    } catch (...) {
      stopped("has stopped");
    }
    world->leave(r, reason);
  };
  const auto tell = [&](start what) {
    all.store(what, std::memory_order_release);
    all.notify_all();
  };
  std::string not_started;
  try {
    for (std::size_t r = 1; r < ranks; ++r)
      threads.emplace_back([&, r] {
        all.wait(start::waits, std::memory_order_acquire);
        if (all.load(std::memory_order_acquire) == start::begins) run(r);
      });
  } catch (const std::system_error& problem) {
    not_started = problem.what();
  }
  tell(not_started.empty() ? start::begins : start::is_called_off);
  if (not_started.empty()) run(0);
  const std::size_t started = threads.size() + 1;
  for (std::thread& thread : threads) thread.join();
  require<comm_error>(not_started.empty(), "run_ranks: each of ", ranks, " ranks must have a thread; the system started ", started - 1,
                      " beside the caller's, then said: ", not_started);
  if (first) std::rethrow_exception(first);
}

}  // namespace xtrain
