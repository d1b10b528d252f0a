// Definitions of background.hpp.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include <xtrain/comm/background.hpp>
#include <xtrain/comm/waiting.hpp>
#include <xtrain/core/library.hpp>

namespace xtrain {

XTRAIN_INLINE background::~background() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

XTRAIN_INLINE void background::begin(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    waiting_.push_back(std::move(work));
    ++begun_;
  }
  changed_.notify_all();
}

XTRAIN_INLINE std::size_t background::begun() {
  const std::lock_guard lock(mutex_);
  return begun_;
}

XTRAIN_INLINE void background::finish(std::size_t count) {
  const detail::waiting_for_ranks waits;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= count || problem_; });
  if (problem_) std::rethrow_exception(problem_);
}

XTRAIN_INLINE void background::run() {
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

}  // namespace xtrain
