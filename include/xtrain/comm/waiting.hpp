// Time that a thread has waited for other ranks or for its background thread.
#pragma once

#include <chrono>

namespace xtrain {

/// Of the calling thread since its start; a rank trains on its main thread.
[[nodiscard]] inline std::chrono::steady_clock::duration& time_waited() {
  thread_local std::chrono::steady_clock::duration waited{};
  return waited;
}

namespace detail {

/// Counts its lifetime as waiting.
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
