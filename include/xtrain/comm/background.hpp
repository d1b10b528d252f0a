// A thread for communication during compute; work runs in FIFO order.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include <xtrain/comm/waiting.hpp>

namespace xtrain {

/// Runs queued work in order.
class background {
 public:
  background() = default;
  ~background();
  background(const background&) = delete;
  background& operator=(const background&) = delete;

  /// After a failure, later work does not run.
  void begin(std::function<void()> work);

  /// Number of queued items: finish(begun()) waits for all.
  [[nodiscard]] std::size_t begun();
  /// Waits for the first `count` items.
  ///   throws  errors of work
  void finish(std::size_t count);
  void finish() { finish(begun()); }

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::size_t begun_ = 0, done_ = 0;
  std::exception_ptr problem_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/comm/background_impl.hpp>
#endif
