// Parallel loops on the host. An executor runs the parts of a loop: a kernel of the cpu device, or work on host memory. The default is a
// thread pool that the whole process shares; a program can give the cpu device its own.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include <xtrain/core/header_inline.hpp>
#include <xtrain/device/control_group.hpp>

namespace xtrain {

/// The callable that an executor runs: a non-owning function of (part, worker). Parts may run in any order and concurrently; concurrent
/// parts have different worker numbers, each below the number of threads requested.
class parallel_task {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, parallel_task>) parallel_task(F& function)
      : function_(static_cast<const void*>(&function)),
        call_([](const void* f, std::size_t part, std::size_t worker) { (*static_cast<F*>(const_cast<void*>(f)))(part, worker); }) {}
  void operator()(std::size_t part, std::size_t worker) const { call_(function_, part, worker); }

 private:
  const void* function_;
  void (*call_)(const void*, std::size_t, std::size_t);
};

/// Runs the parts of a loop and returns when all are done. Implement it to run xtrain on a program's own threads.
class executor {
 public:
  virtual ~executor() = default;
  /// Threads that run() can use, including the caller; at least 1.
  [[nodiscard]] virtual std::size_t threads() const = 0;
  /// Calls task(0 … parts−1, worker) on at most `threads` threads. May be called from several threads at once.
  ///   throws  what a part throws; then some parts may not have run, and none is still running
  virtual void run(std::size_t parts, std::size_t threads, parallel_task task) = 0;
};

namespace detail {

/// The calling thread's affinity mask.
[[nodiscard]] cpu_set_t processors_of_thread();
/// The affinity mask that the process had when it was loaded, before OpenMP's library pinned a thread, or was given by keep_to_processors().
[[nodiscard]] cpu_set_t processors_of_process();
/// How many threads a pool on these processors has: their number, or the control groups' quota if that is less; XTRAIN_THREADS overrides both.
[[nodiscard]] std::size_t usable_processors(const cpu_set_t& processors);

/// Lets the calling thread use these processors, and moves it to the one that is `index` after `first`; unless pinned, it can migrate
/// later. A new thread starts on its creator's processor, and some systems take a tenth of a second to move it to
/// an idle one.
void begin_on_processor(std::size_t index, int first, const cpu_set_t& processors);

void relax();

/// Waits until `value` is no longer `old`: spins first, because the next kernel is usually microseconds away, then sleeps.
template <class T>
T wait_for_change(const std::atomic<T>& value, T old) {
  for (int spin = 0; spin < 20000; ++spin) {
    const T seen = value.load(std::memory_order_acquire);
    if (seen != old) return seen;
    relax();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace detail

/// Restricts the process: the calling thread, threads that it starts from now on, and the shared pool, if no context has been opened yet.
/// Returns false where the system refuses.
bool keep_to_processors(const cpu_set_t& processors);

/// A pool of persistent threads. Parts are handed out one at a time, so a slow thread takes fewer, and a descheduled thread
/// takes none: the caller waits only for parts that have begun. While one caller uses the pool, another caller's parts run only on
/// its own thread: programs with several models do not oversubscribe the machine.
class thread_pool final : public executor {
 public:
  /// Threads for the processors that the calling thread may use. Has fewer if the system does not start as many; see threads().
  thread_pool() : thread_pool(detail::usable_processors(detail::processors_of_thread())) {}
  explicit thread_pool(std::size_t threads) : thread_pool(threads, detail::processors_of_thread()) {}
  /// Workers run on these processors, whatever the calling thread is pinned to.
  thread_pool(std::size_t threads, const cpu_set_t& processors);
  XTRAIN_HEADER_INLINE ~thread_pool() override;
  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;

  [[nodiscard]] std::size_t threads() const override { return workers_.size() + 1; }

  XTRAIN_HEADER_INLINE void run(std::size_t parts, std::size_t threads, parallel_task task) override;

  /// The pool that every context uses unless it is given another executor: it has the processors of the process, not those of the thread that
  /// opens the first context.
  [[nodiscard]] static std::shared_ptr<thread_pool> shared();

 private:
  struct job {
    const parallel_task* task = nullptr;
    std::size_t parts = 0;
    std::size_t threads = 0;
  };

  void take_parts(std::size_t worker) noexcept;

  /// Enters the gate while a job is running. The job's data may be read only inside.
  bool enter();
  void leave();

  void work(std::size_t worker);

  std::vector<std::thread> workers_;
  job job_;
  std::atomic<std::size_t> next_part_{0};
  static constexpr std::uint32_t open = std::uint32_t{1} << 31;  // gate is open; lower bits: number of workers inside
  std::atomic<std::uint32_t> gate_{0};
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<bool> busy_{false};
  std::mutex problem_guard_;
  std::exception_ptr problem_;  // the first exception of this job's parts
  std::atomic<bool> stopping_{false};
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/device/host_threads_impl.hpp>
#endif
