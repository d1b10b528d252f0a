// Definitions of host_threads.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/core/library.hpp>
#include <xtrain/device/control_group.hpp>
#include <xtrain/device/host_threads.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE cpu_set_t processors_of_thread() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof(mask), &mask) != 0)
    for (unsigned processor = 0; processor < std::min<unsigned>(std::thread::hardware_concurrency(), CPU_SETSIZE); ++processor) CPU_SET(processor, &mask);
  return mask;
}

// OpenMP's functions, where the program has its library: libgomp, LLVM's libomp.
int openmp_places() __asm__("omp_get_num_places") __attribute__((weak));
int openmp_processors_of_place(int place) __asm__("omp_get_place_num_procs") __attribute__((weak));
void openmp_processor_ids(int place, int* ids) __asm__("omp_get_place_proc_ids") __attribute__((weak));

/// If OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY is set, libgomp pins the first thread to the first place before static variables are initialized:
/// the process has the processors of all places.
XTRAIN_INLINE cpu_set_t processors_at_start() {
  cpu_set_t mask = processors_of_thread();
  const auto is_set = [](const char* variable) { return std::getenv(variable) != nullptr; };
  if (!(is_set("OMP_PROC_BIND") || is_set("OMP_PLACES") || is_set("GOMP_CPU_AFFINITY"))) return mask;
  if (openmp_places == nullptr || openmp_processors_of_place == nullptr || openmp_processor_ids == nullptr) return mask;
  for (int place = 0; place < openmp_places(); ++place) {
    std::vector<int> ids(static_cast<std::size_t>(std::max(0, openmp_processors_of_place(place))));
    if (!ids.empty()) openmp_processor_ids(place, ids.data());
    for (const int id : ids)
      if (id >= 0 && id < CPU_SETSIZE) CPU_SET(id, &mask);
  }
  return mask;
}

/// A thread may be pinned for a moment when the first context is opened; only OpenMP's library pins one before static variables are initialized.
XTRAIN_INLINE cpu_set_t& process_mask() {
  static cpu_set_t mask = processors_at_start();
  return mask;
}
inline const cpu_set_t& process_mask_at_start = process_mask();

XTRAIN_INLINE cpu_set_t processors_of_process() { return process_mask(); }

XTRAIN_INLINE std::size_t usable_processors(const cpu_set_t& processors) {
  if (const char* asked = std::getenv("XTRAIN_THREADS")) {
    const long threads = std::strtol(asked, nullptr, 10);
    if (threads > 0) return static_cast<std::size_t>(threads);
  }
  return std::max<std::size_t>(1, std::min(static_cast<std::size_t>(CPU_COUNT(&processors)), control_group_processors()));
}

XTRAIN_INLINE void begin_on_processor(std::size_t index, int first, const cpu_set_t& processors) {
  const auto count = static_cast<std::size_t>(CPU_COUNT(&processors));
  if (count == 0) return;
  int processor = first < 0 || first >= CPU_SETSIZE || !CPU_ISSET(first, &processors) ? 0 : first;
  for (std::size_t passed = 0; passed < index % count || !CPU_ISSET(processor, &processors);) {
    processor = (processor + 1) % CPU_SETSIZE;
    if (CPU_ISSET(processor, &processors)) passed += 1;
  }
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(processor, &only);
  ::sched_setaffinity(0, sizeof(only), &only);
  const char* const pinned = std::getenv("XTRAIN_PIN_THREADS");
  if (pinned == nullptr || *pinned != '1') ::sched_setaffinity(0, sizeof(processors), &processors);
}

XTRAIN_INLINE void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace detail

XTRAIN_INLINE bool keep_to_processors(const cpu_set_t& processors) {
  if (::sched_setaffinity(0, sizeof(processors), &processors) != 0) return false;
  detail::process_mask() = processors;
  return true;
}

XTRAIN_INLINE thread_pool::thread_pool(std::size_t threads, const cpu_set_t& processors) {
  const int here = ::sched_getcpu();
  workers_.reserve(threads);
  try {
    for (std::size_t worker = 1; worker < threads; ++worker)
      workers_.emplace_back([this, worker, here, processors] {
        detail::begin_on_processor(worker, here, processors);
        work(worker);
      });
  } catch (const std::system_error&) {  // continue with those that started
  }
}

XTRAIN_INLINE thread_pool::~thread_pool() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

XTRAIN_INLINE void thread_pool::run(std::size_t parts, std::size_t threads, parallel_task task) {
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

XTRAIN_INLINE std::shared_ptr<thread_pool> thread_pool::shared() {
  static const std::shared_ptr<thread_pool> pool =
      std::make_shared<thread_pool>(detail::usable_processors(detail::processors_of_process()), detail::processors_of_process());
  return pool;
}

XTRAIN_INLINE void thread_pool::take_parts(std::size_t worker) noexcept {
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

XTRAIN_INLINE bool thread_pool::enter() {
  std::uint32_t seen = gate_.load(std::memory_order_relaxed);
  while ((seen & open) != 0)
    if (gate_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
  return false;
}

XTRAIN_INLINE void thread_pool::leave() {
  if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_one();
}

XTRAIN_INLINE void thread_pool::work(std::size_t worker) {
  std::uint32_t seen = 0;
  while (true) {
    seen = detail::wait_for_change(generation_, seen);
    if (stopping_.load(std::memory_order_relaxed)) return;
    if (!enter()) continue;
    if (worker < job_.threads) take_parts(worker);
    leave();
  }
}

}  // namespace xtrain
