// Threads of the cpu device: an executor runs the parts of a kernel. The default is a thread pool that
// the whole process shares; a host program can supply its own.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

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

/// Runs the parts of a kernel and returns when all are done. Implement it to run xtrain on a program's own threads.
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

/// Processors this process may use: the size of its affinity mask, or its control groups' quota if that is less.
[[nodiscard]] inline std::size_t usable_processors() {
  if (const char* asked = std::getenv("XTRAIN_THREADS")) {
    const long threads = std::strtol(asked, nullptr, 10);
    if (threads > 0) return static_cast<std::size_t>(threads);
  }
  std::size_t processors = std::thread::hardware_concurrency();
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof(mask), &mask) == 0) processors = static_cast<std::size_t>(CPU_COUNT(&mask));
  processors = std::min(processors, control_group_processors());
  return processors == 0 ? 1 : processors;
}

/// Moves the calling thread to the processor that is `index` after `first` among those it may use; unless pinned, it can migrate
/// later. A new thread starts on its creator's processor, and some systems take a tenth of a second to move it to
/// an idle one.
inline void begin_on_processor(std::size_t index, int first) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  const auto count = static_cast<std::size_t>(CPU_COUNT(&allowed));
  int processor = first < 0 || first >= CPU_SETSIZE || !CPU_ISSET(first, &allowed) ? 0 : first;
  for (std::size_t passed = 0; passed < index % count || !CPU_ISSET(processor, &allowed);) {
    processor = (processor + 1) % CPU_SETSIZE;
    if (CPU_ISSET(processor, &allowed)) passed += 1;
  }
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(processor, &only);
  ::sched_setaffinity(0, sizeof(only), &only);
  const char* const pinned = std::getenv("XTRAIN_PIN_THREADS");
  if (pinned == nullptr || *pinned != '1') ::sched_setaffinity(0, sizeof(allowed), &allowed);
}

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

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

/// A pool of persistent threads. Parts are handed out one at a time, so a slow thread takes fewer, and a descheduled thread
/// takes none: the caller waits only for parts that have begun. While one caller uses the pool, another caller's parts run only on
/// its own thread: programs with several models do not oversubscribe the machine.
class thread_pool final : public executor {
 public:
  /// Has fewer threads if the system does not start as many; see threads().
  explicit thread_pool(std::size_t threads = detail::usable_processors()) {
    const int here = ::sched_getcpu();
    workers_.reserve(threads);
    try {
      for (std::size_t worker = 1; worker < threads; ++worker)
        workers_.emplace_back([this, worker, here] {
          detail::begin_on_processor(worker, here);
          work(worker);
        });
    } catch (const std::system_error&) {  // continue with those that started
    }
  }
  ~thread_pool() override {
    stopping_.store(true, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;

  [[nodiscard]] std::size_t threads() const override { return workers_.size() + 1; }

  void run(std::size_t parts, std::size_t threads, parallel_task task) override {
    if (parts <= 1 || threads <= 1 || workers_.empty() || busy_.exchange(true, std::memory_order_acquire)) {
      for (std::size_t part = 0; part < parts; ++part) task(part, 0);
      return;
    }
    job_ = {&task, parts, threads};
    next_part_.store(0, std::memory_order_relaxed);
    gate_.store(open, std::memory_order_release);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    take_parts(0);
    // late arrivals find the gate closed; workers inside still have a part to finish
    std::uint32_t inside = gate_.fetch_and(~open, std::memory_order_acq_rel) & ~open;
    while (inside != 0) inside = detail::wait_for_change(gate_, inside);
    const std::exception_ptr problem = std::exchange(problem_, nullptr);
    busy_.store(false, std::memory_order_release);
    if (problem) std::rethrow_exception(problem);
  }

  /// The pool that every context uses unless it is given another executor.
  [[nodiscard]] static std::shared_ptr<thread_pool> shared() {
    static const std::shared_ptr<thread_pool> pool = std::make_shared<thread_pool>();
    return pool;
  }

 private:
  struct job {
    const parallel_task* task = nullptr;
    std::size_t parts = 0;
    std::size_t threads = 0;
  };

  void take_parts(std::size_t worker) noexcept {
    try {
      for (std::size_t part = next_part_.fetch_add(1, std::memory_order_relaxed); part < job_.parts;
           part = next_part_.fetch_add(1, std::memory_order_relaxed))
        (*job_.task)(part, worker);
    } catch (...) {
      next_part_.store(job_.parts, std::memory_order_relaxed);  // no further parts are handed out
      const std::lock_guard hold(problem_guard_);
      if (!problem_) problem_ = std::current_exception();
    }
  }

  /// Enters the gate while a job is running. The job's data may be read only inside.
  bool enter() {
    std::uint32_t seen = gate_.load(std::memory_order_relaxed);
    while ((seen & open) != 0)
      if (gate_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
    return false;
  }
  void leave() {
    if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_one();
  }

  void work(std::size_t worker) {
    std::uint32_t seen = 0;
    while (true) {
      seen = detail::wait_for_change(generation_, seen);
      if (stopping_.load(std::memory_order_relaxed)) return;
      if (!enter()) continue;
      if (worker < job_.threads) take_parts(worker);
      leave();
    }
  }

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
