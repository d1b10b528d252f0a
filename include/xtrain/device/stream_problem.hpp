// What a host function of a stream threw, for streams that go on with their own work: whoever waits for the stream, or for one that follows it, is told.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace xtrain::detail {

/// Outlives the stream: its events refer to it.
class stream_problem : public std::enable_shared_from_this<stream_problem> {
 public:
  /// mark: pinned memory, which the device reads
  explicit stream_problem(std::shared_ptr<double> mark) : mark_(std::move(mark)) { *mark_ = 0; }
  stream_problem(const stream_problem&) = delete;
  stream_problem& operator=(const stream_problem&) = delete;

  /// Of the host function with that number, counted from 1. The caller lets the device go on afterwards: it finds the mark.
  void set(std::exception_ptr problem, std::uint32_t number) {
    {
      const std::lock_guard lock(mutex_);
      if (problem_) return;
      problem_ = std::move(problem);
      number_ = number;
    }
    mark(number);
  }
  /// What is queued from now on follows that of another stream, of which `functions` host functions were queued.
  void follow(const std::shared_ptr<stream_problem>& other, std::uint32_t functions) {
    if (other.get() == this) return;
    {
      const std::lock_guard lock(mutex_);
      note(followed_, other, functions);
    }
    {
      const std::lock_guard lock(other->mutex_);
      std::erase_if(other->followers_, [](const auto& one) { return one.first.expired(); });
      note(other->followers_, weak_from_this(), functions);
    }
    if (other->before(functions)) mark(0);
  }
  /// Nothing more is queued, and what was queued is done: what became of the streams that it follows is known. They may follow this one.
  void settle() {
    const std::exception_ptr inherited = before(0);
    const std::lock_guard lock(mutex_);
    inherited_ = inherited;
    followed_.clear();
  }
  /// 1 after a host function of this stream, or of one that it follows, has thrown.
  [[nodiscard]] const double* failure() const { return mark_.get(); }
  /// Null unless one of the first `functions` host functions of the stream, or of those that it follows, threw.
  [[nodiscard]] std::exception_ptr before(std::uint32_t functions) const {
    std::vector<const stream_problem*> visited;
    return before(functions, visited);
  }

 private:
  /// Remembers one of several streams, with the latest number.
  template <class Pointer>
  static void note(std::vector<std::pair<Pointer, std::uint32_t>>& all, const Pointer& other, std::uint32_t functions) {
    for (auto& [known, count] : all)
      if (!known.owner_before(other) && !other.owner_before(known)) return void(count = functions);
    all.emplace_back(other, functions);
  }
  /// This stream, and those that wait for something after the host function with that number.
  void mark(std::uint32_t number) {
    if (std::atomic_ref<double>(*mark_).exchange(1.0, std::memory_order_acq_rel) != 0 && number == 0) return;
    std::vector<std::pair<std::weak_ptr<stream_problem>, std::uint32_t>> followers;
    {
      const std::lock_guard lock(mutex_);
      followers = followers_;
    }
    for (const auto& [follower, functions] : followers)
      if (const auto later = number <= functions ? follower.lock() : nullptr) later->mark(0);
  }
  [[nodiscard]] std::exception_ptr before(std::uint32_t functions, std::vector<const stream_problem*>& visited) const {
    for (const stream_problem* const one : visited)
      if (one == this) return nullptr;
    visited.push_back(this);
    std::vector<std::pair<std::shared_ptr<stream_problem>, std::uint32_t>> followed;
    {
      const std::lock_guard lock(mutex_);
      if (problem_ && number_ <= functions) return problem_;
      if (inherited_) return inherited_;
      followed = followed_;
    }
    for (const auto& [other, count] : followed)
      if (const std::exception_ptr problem = other->before(count, visited)) return problem;
    return nullptr;
  }

  std::shared_ptr<double> mark_;
  mutable std::mutex mutex_{};
  std::exception_ptr problem_{}, inherited_{};
  std::uint32_t number_ = 0;
  std::vector<std::pair<std::shared_ptr<stream_problem>, std::uint32_t>> followed_{};
  std::vector<std::pair<std::weak_ptr<stream_problem>, std::uint32_t>> followers_{};
};

}  // namespace xtrain::detail
