// A thread that communicates while the others compute. Work items run in FIFO order.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include <xtrain/comm/waiting.hpp>

namespace xtrain {

class background {
 public:
  background() = default;
  ~background() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  background(const background&) = delete;
  background& operator=(const background&) = delete;

  /// Queues work, which runs after everything queued before it. When one work item fails, those after it do not run.
  void begin(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
      waiting_.push_back(std::move(work));
      ++begun_;
    }
    changed_.notify_all();
  }

  /// How many work items have been queued: finish(begun()) waits for all of them.
  [[nodiscard]] std::size_t begun() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  /// Waits until the first `count` work items are done.
  ///   throws  what a work item threw
  void finish(std::size_t count) {
    const detail::waiting_for_ranks waits;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= count || problem_; });
    if (problem_) std::rethrow_exception(problem_);
  }
  void finish() { finish(begun()); }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || (!waiting_.empty() && !problem_); });
      if (stopping_) return;
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      std::exception_ptr problem;
      try {
        work();
      } catch (...) {
        problem = std::current_exception();
      }
      lock.lock();
      problem_ = problem;
      if (!problem) ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::size_t begun_ = 0, done_ = 0;
  std::exception_ptr problem_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace xtrain
