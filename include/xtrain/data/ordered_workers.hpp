// Threads that process batches; results are taken in order.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace xtrain {

namespace detail {

/// One thread gives and takes batches; others run `work`. At most four batches per thread are in flight: giving waits.
template <class Batch>
class ordered_workers {
 public:
  /// `threads` 0: one per processor; fewer if the system refuses; none: the giving thread works.
  ordered_workers(std::size_t threads, std::function<void(Batch&)> work, std::function<void(Batch&)> take)
      : work_(std::move(work)), take_(std::move(take)) {
    if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
    threads_.reserve(threads);
    try {
      for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
    }
    most_ = 4 * std::max<std::size_t>(threads_.size(), 1);
  }
  ~ordered_workers() {
    {
      const std::lock_guard hold(guard_);
      stop_ = true;
    }
    given_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  ordered_workers(const ordered_workers&) = delete;
  ordered_workers& operator=(const ordered_workers&) = delete;

  ///   throws  errors of work() for the first failed batch in order; errors of take()
  void give(Batch batch) {
    {
      const std::lock_guard hold(guard_);
      all_.push_back(std::make_unique<entry>(std::move(batch)));
      to_do_.push_back(all_.back().get());
    }
    if (threads_.empty()) do_one();
    given_.notify_one();
    take_until(most_ - 1);
  }
  void finish() { take_until(0); }

 private:
  struct entry {
    explicit entry(Batch b) : batch(std::move(b)) {}
    Batch batch;
    bool done = false;
    std::exception_ptr problem{};
  };

  /// Takes finished batches; waits until at most `left` are in flight.
  void take_until(std::size_t left) {
    std::unique_lock hold(guard_);
    while (!all_.empty() && (all_.front()->done || all_.size() > left)) {
      done_.wait(hold, [&] { return all_.front()->done; });
      const std::unique_ptr<entry> first = std::move(all_.front());
      all_.pop_front();
      hold.unlock();
      if (first->problem) std::rethrow_exception(first->problem);
      take_(first->batch);
      hold.lock();
    }
  }
  void do_one() {
    entry* const one = [&] {
      const std::lock_guard hold(guard_);
      entry* const first = to_do_.front();
      to_do_.pop_front();
      return first;
    }();
    finish(*one);
  }
  void finish(entry& one) {
    try {
      work_(one.batch);
    } catch (...) {
      one.problem = std::current_exception();
    }
    {
      const std::lock_guard hold(guard_);
      one.done = true;
    }
    done_.notify_one();
  }
  void run() {
    std::unique_lock hold(guard_);
    while (true) {
      given_.wait(hold, [&] { return stop_ || !to_do_.empty(); });
      if (stop_) return;
      entry* const one = to_do_.front();
      to_do_.pop_front();
      hold.unlock();
      finish(*one);
      hold.lock();
    }
  }

  std::function<void(Batch&)> work_, take_;
  std::mutex guard_;
  std::condition_variable given_, done_;
  std::deque<std::unique_ptr<entry>> all_;  // in flight, in order
  std::deque<entry*> to_do_;
  std::size_t most_ = 4;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace detail

}  // namespace xtrain
