// Adds latency and a bandwidth limit to any transport: shows the benefit of overlap on one machine.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include <xtrain/comm/transport.hpp>
#include <xtrain/core/random.hpp>

namespace xtrain::testing {

/// Latency and bandwidth of a network.
struct slow_network {
  std::chrono::duration<double> latency{0};  ///< of every message
  double bytes_per_second = 0;               ///< send bandwidth of a rank; 0: unlimited
  std::chrono::duration<double> jitter{0};   ///< maximum additional random delay, determined by the seed
  std::uint64_t seed = 0;
};

/// A message is sent after its transfer time. A rank's messages are sent one after the other; messages of a channel arrive in order.
class slow_transport final : public transport {
 public:
  slow_transport(std::shared_ptr<transport> of, const slow_network& how) : of_(std::move(of)), how_(how) {}

  [[nodiscard]] std::string_view name() const override { return "slow"; }
  [[nodiscard]] std::size_t rank() const override { return of_->rank(); }
  [[nodiscard]] std::size_t size() const override { return of_->size(); }
  [[nodiscard]] bool carries() const override { return of_->carries(); }
  [[nodiscard]] channel_origin channels() const override { return of_->channels(); }
  /// Passes the bytes on at their arrival time.
  [[nodiscard]] pending_message send(std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes) override {
    const auto [when, turn] = arrival(to, channel, bytes.size());
    return std::make_unique<late>(*of_, to, channel, bytes, when, turn);
  }
  [[nodiscard]] pending_message receive(std::size_t from, std::uint32_t channel, std::span<std::byte> bytes) override {
    return of_->receive(from, channel, bytes);
  }

 private:
  using clock = std::chrono::steady_clock;

  struct channel_order {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t given = 0, begun = 0;
  };
  struct turn_in_order {
    std::shared_ptr<channel_order> order;
    std::uint64_t number = 0;
  };
  struct due {
    clock::time_point when;
    turn_in_order turn;
  };

  /// Sends in a separate thread, so that the sender can compute during the latency.
  class late final : public message {
   public:
    late(transport& over, std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes, clock::time_point when, turn_in_order turn)
        : begun_([&over, to, channel, bytes, when, turn, this] {
            std::this_thread::sleep_until(when);
            try {
              if (const pending_message sent = in_order(turn, [&] { return over.send(to, channel, bytes); })) sent->wait();
            } catch (...) {
              problem_ = std::current_exception();
            }
          }) {}
    ~late() override {
      if (begun_.joinable()) begun_.join();
    }
    late(const late&) = delete;
    late& operator=(const late&) = delete;
    void wait() override {
      if (begun_.joinable()) begun_.join();
      if (problem_) std::rethrow_exception(problem_);
    }

   private:
    template <class Begin>
    static pending_message in_order(const turn_in_order& turn, Begin&& begin) {
      std::unique_lock lock(turn.order->mutex);
      turn.order->changed.wait(lock, [&] { return turn.order->begun == turn.number; });
      ++turn.order->begun;
      turn.order->changed.notify_all();
      return begin();  // the next message waits for the lock
    }

    std::exception_ptr problem_;
    std::thread begun_;
  };

  [[nodiscard]] due arrival(std::size_t to, std::uint32_t channel, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto random = uniform_open(random_word({.seed = how_.seed, .step = static_cast<std::uint32_t>(rank()), .site = 0, .first = 0}, sent_++));
    std::chrono::duration<double> takes(how_.bytes_per_second > 0 ? static_cast<double>(bytes) / how_.bytes_per_second : 0.0);
    const auto as_ticks = [](std::chrono::duration<double> d) { return std::chrono::duration_cast<clock::duration>(d); };
    free_at_ = std::max(free_at_, clock::now()) + as_ticks(takes);
    std::shared_ptr<channel_order>& order = orders_[{to, channel}];
    if (!order) order = std::make_shared<channel_order>();
    return {free_at_ + as_ticks(how_.latency + how_.jitter * static_cast<double>(random)), {order, order->given++}};
  }

  std::shared_ptr<transport> of_;
  slow_network how_;
  std::mutex mutex_;
  std::map<std::pair<std::size_t, std::uint32_t>, std::shared_ptr<channel_order>> orders_;
  clock::time_point free_at_{};
  std::uint64_t sent_ = 0;
};

}  // namespace xtrain::testing
