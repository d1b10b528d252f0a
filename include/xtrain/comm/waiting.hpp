// How long a thread has waited for other ranks: for their messages, or for the background thread that exchanges them.
#pragma once

#include <chrono>

namespace xtrain {

/// Of the calling thread, since it started. A rank's main thread is the one that trains.
[[nodiscard]] inline std::chrono::steady_clock::duration& time_waited() {
  thread_local std::chrono::steady_clock::duration waited{};
  return waited;
}

namespace detail {

/// RAII: the time between construction and destruction counts as waiting.
class waiting_for_ranks {
 public:
  waiting_for_ranks() = default;
  ~waiting_for_ranks() { time_waited() += std::chrono::steady_clock::now() - began_; }
  waiting_for_ranks(const waiting_for_ranks&) = delete;
  waiting_for_ranks& operator=(const waiting_for_ranks&) = delete;

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

}  // namespace detail

}  // namespace xtrain
