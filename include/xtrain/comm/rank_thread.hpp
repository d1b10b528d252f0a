// Number of ranks that run_ranks started, on their threads.
#pragma once

#include <cstddef>

namespace xtrain::detail {

/// 1 on other threads.
inline thread_local std::size_t ranks_of_thread = 1;

/// Marks its thread as a rank.
class rank_thread {
 public:
  explicit rank_thread(std::size_t ranks) : before_(ranks_of_thread) { ranks_of_thread = ranks; }
  ~rank_thread() { ranks_of_thread = before_; }
  rank_thread(const rank_thread&) = delete;
  rank_thread& operator=(const rank_thread&) = delete;

 private:
  std::size_t before_;
};

}  // namespace xtrain::detail
