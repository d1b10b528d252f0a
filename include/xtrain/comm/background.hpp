// A thread that communicates while the others compute. Work items run in FIFO order.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include <xtrain/comm/waiting.hpp>

namespace xtrain {

/// A thread for work that is queued: it runs in order.
class background {
 public:
  background() = default;
  ~background();
  background(const background&) = delete;
  background& operator=(const background&) = delete;

  /// Queues work, which runs after everything queued before it. When one work item fails, those after it do not run.
  void begin(std::function<void()> work);

  /// How many work items have been queued: finish(begun()) waits for all of them.
  [[nodiscard]] std::size_t begun();
  /// Waits until the first `count` work items are done.
  ///   throws  what a work item threw
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
