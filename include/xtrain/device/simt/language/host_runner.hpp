// Runs the dialect's kernels on the host. A block's threads are fibers on one system thread; they switch at barriers and warp instructions, in an order drawn
// from a seed. Undefined behavior of a GPU is a fault: a barrier that some threads do not reach, an element outside a shared array, a copy read before arrival,
// an unaligned vector. The thread sanitizer reports races in shared and device memory, also between blocks: only barriers and warp instructions order accesses.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/device/simt/language/target.hpp>

#ifdef __has_feature
#define XTRAIN_SIMT_HAS(feature) __has_feature(feature)
#else
#define XTRAIN_SIMT_HAS(feature) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || XTRAIN_SIMT_HAS(address_sanitizer)
#define XTRAIN_SIMT_ASAN 1
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define XTRAIN_SIMT_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__) || XTRAIN_SIMT_HAS(thread_sanitizer)
#define XTRAIN_SIMT_TSAN 1
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
}
#define XTRAIN_SIMT_RUNNER __attribute__((no_sanitize("thread"), noinline))
#else
#define XTRAIN_SIMT_TSAN 0
#define XTRAIN_SIMT_RUNNER
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace xtrain::simt {

/// Undefined on a GPU; names block and thread.
struct fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace host {

/// A wait's source line; clang 14 lacks std::source_location.
struct site {
  const char* file = "";
  unsigned line = 0;
  [[nodiscard]] static constexpr site current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line};
  }
  [[nodiscard]] friend bool operator==(const site& x, const site& y) {
    return x.line == y.line && (x.file == y.file || std::strcmp(x.file, y.file) == 0);
  }
};

/// Mistakes planted in kernels, which tests must find.
enum class mistake {
  none,
  missing_barrier,      ///< sync() and sync_warp() return at once
  copy_not_waited_for,  ///< wait_for_copies() returns at once
  wrong_thread,         ///< threads 0 and warp_width have a neighbour's number
  wrong_lane,           ///< a shuffle returns the lane's number
  wrong_block,          ///< block 1 has block 0's number: both write one place
  order_of_blocks,      ///< each block has the next block's number, the last the first's: sums of parts have another order
  wrong_grid,           ///< blocks_x() is one too small
  wrong_fragment        ///< two registers of a fragment are exchanged
};
struct planted_mistake {
  mistake what = mistake::none;
  site where{};  ///< of the instruction
  [[nodiscard]] friend bool operator==(const planted_mistake& x, const planted_mistake& y) { return x.what == y.what && x.where == y.where; }
};

/// Hides the runner's accesses from the thread sanitizer.
class hidden_from_tsan {
 public:
#if XTRAIN_SIMT_TSAN
  hidden_from_tsan() { begin(); }
  ~hidden_from_tsan() { end(); }
  static void begin() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  static void end() {
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  }
#else
  hidden_from_tsan() {}  // not trivial: an unused variable would be a warning
  static void begin() {}
  static void end() {}
#endif
  hidden_from_tsan(const hidden_from_tsan&) = delete;
  hidden_from_tsan& operator=(const hidden_from_tsan&) = delete;
};
/// Operands of an instruction are visible within.
class visible_to_tsan {
 public:
  visible_to_tsan() { hidden_from_tsan::end(); }
  ~visible_to_tsan() { hidden_from_tsan::begin(); }
  visible_to_tsan(const visible_to_tsan&) = delete;
  visible_to_tsan& operator=(const visible_to_tsan&) = delete;
};

inline void tsan_acquire([[maybe_unused]] void* token) {
#if XTRAIN_SIMT_TSAN
  __tsan_acquire(token);
#endif
}
inline void tsan_release([[maybe_unused]] void* token) {
#if XTRAIN_SIMT_TSAN
  __tsan_release(token);
#endif
}

#if defined(__x86_64__)
/// Saves what the System V ABI preserves, switches the stack, returns there.
__attribute__((naked, noinline)) inline void switch_stack(void** /*from: rdi*/, void* /*to: rsi*/) {
  asm volatile(
      "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
#endif

/// An asynchronous copy to shared memory that may not have arrived.
struct pending_copy {
  void* to = nullptr;
  const void* from = nullptr;
  int valid = 0;  // bytes read; the rest of 16 becomes zero
};

struct fiber {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t context{};
#endif
  char* stack = nullptr;
  void* asan_stack = nullptr;
  void* tsan_fiber = nullptr;
  bool is_done = true;
  int next_waiting = -1;  // in its meeting
  std::vector<pending_copy> copies{};
  std::vector<std::size_t> groups{};  // end of each committed group in `copies`
  const void* operand = nullptr;      // of the awaited warp instruction
  void* result = nullptr;
};

/// Where threads of a block or warp wait for each other.
struct meeting {
  int arrived = 0;
  site where{};
  int waiting = -1;  // the last arrival
  char token = 0;  // orders accesses for the thread sanitizer
};

/// Since construction; tests may reset it.
struct instruction_counts {
  std::uint64_t launches = 0, blocks = 0, switches = 0, matrix_products = 0, matrix_loads = 0, bank_conflicts = 0, async_copies = 0;
};

class runner;
inline thread_local runner* running = nullptr;  // while a kernel runs on this system thread

class runner {
 public:
  /// Of this system thread.
  [[nodiscard]] static runner& here() {
    static thread_local runner one;
    return one;
  }

  /// Runs all blocks, in an order drawn from `seed`.
  ///   throws  fault
  template <class Kernel>
  void run(const Kernel& kernel, grid_size grid, std::uint64_t seed);

  [[nodiscard]] int thread() const { return self_; }
  [[nodiscard]] grid_size block() const { return at_; }
  [[nodiscard]] grid_size grid() const { return grid_; }
  [[nodiscard]] fiber& self() { return *all_[self_]; }

  /// For later kernels.
  void plant(const planted_mistake& one) {
    planted_ = one;
    plants_ = one.what != mistake::none;
  }
  /// Collects each place that later kernels reach, once; null: stops.
  void record_places(std::vector<planted_mistake>* places) {
    places_ = places;
    plants_ = places != nullptr;
  }
  /// The mistake is planted here. Call only where it would matter.
  [[nodiscard]] bool errs(mistake what, const site& where) { return plants_ && errs_here({what, where}); }
  /// In a dimension of the grid.
  [[nodiscard]] int block_number(int mine, int all, const site& where) {
    if (mine == 1 && errs(mistake::wrong_block, where)) return 0;
    return all > 2 && errs(mistake::order_of_blocks, where) ? (mine + 1) % all : mine;
  }

  [[noreturn]] void raise(const std::string& problem) const {
    throw fault(concat("simt: block (", at_.x, ", ", at_.y, ", ", at_.z, "), thread ", self_, ": ", problem));
  }
  XTRAIN_SIMT_RUNNER std::uint32_t draw() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return static_cast<std::uint32_t>(random_ >> 32);
  }

  void meet_block(const site& where) {
    meet(block_, threads_, where, [] {});
  }
  void meet_warp(const site& where) {
    meet(warps_[self_ / warp_width], warp_width, where, [] {});
  }

  /// A warp instruction: the last arrival computes all results by op(operands, results).
  template <class Result, class Operand, class Op>
  [[nodiscard]] Result together(const Operand& operand, const site& where, Op op) {
    const int first = self_ / warp_width * warp_width;
    Result result{};
    self().operand = &operand;
    self().result = &result;
    meet(warps_[self_ / warp_width], warp_width, where, [&] {
      const Operand* operands[warp_width];
      Result* results[warp_width];
      for (int lane = 0; lane < warp_width; ++lane) {
        fiber& other = *all_[first + lane];
        operands[lane] = static_cast<const Operand*>(other.operand);
        results[lane] = static_cast<Result*>(other.result);
      }
      op(operands, results);
    });
    return result;
  }

  instruction_counts counts{};

  ~runner() {
    for (const auto& each : fibers_) {
#if XTRAIN_SIMT_TSAN
      __tsan_destroy_fiber(each->tsan_fiber);
#endif
      ::munmap(each->stack - page_bytes, stack_bytes + page_bytes);
    }
  }
  runner(const runner&) = delete;
  runner& operator=(const runner&) = delete;

 private:
  static constexpr std::size_t stack_bytes = std::size_t{128} << 10, page_bytes = 4096;
  // minimum of NVIDIA GPUs from sm_80 on (sm_86, sm_89, sm_120); others have 163 KiB or more
  static constexpr std::size_t most_shared_bytes = 99U << 10, fence_bytes = 1024;
  static constexpr int most_threads = 1024;

  runner() = default;

  XTRAIN_SIMT_RUNNER bool errs_here(const planted_mistake& here) {
    const hidden_from_tsan hidden;
    if (places_ != nullptr) {
      const auto known = std::find(places_->begin(), places_->end(), here);
      if (known == places_->end()) places_->push_back(here);
      else if (known != places_->begin()) std::iter_swap(known, known - 1);  // inner loops are found soon
    }
    return planted_ == here;
  }

  template <class Op>
  XTRAIN_SIMT_RUNNER void meet(meeting& m, int expected, const site& where, Op&& op) {
    const hidden_from_tsan hidden;
    if (failed_) throw fault("abandoned");
    const int mine = self_;
    if (m.arrived == 0) m.where = where;
    else if (!(m.where == where))
      raise(concat("waits at ", where.file, ":", where.line, " while others wait at ", m.where.file, ":", m.where.line));
    tsan_release(&m.token);
    if (++m.arrived == expected) {
      tsan_acquire(&m.token);
      {
        const visible_to_tsan visible;
        op();
      }
      tsan_release(&m.token);
      m.arrived = 0;
      for (int other = m.waiting; other >= 0; other = all_[other]->next_waiting) runnable_[runnable_count_++] = other;
      m.waiting = -1;
      runnable_[runnable_count_++] = mine;
    } else {
      all_[mine]->next_waiting = m.waiting;
      m.waiting = mine;
    }
    if (runnable_count_ == 0) {
      go(*all_[mine], outside_);
    } else {
      pick();
      if (self_ != mine) go(*all_[mine], self());
    }
    self_ = mine;
    tsan_acquire(&m.token);
    if (failed_) throw fault("abandoned");
  }

  XTRAIN_SIMT_RUNNER void go(fiber& from, fiber& to) {
    ++counts.switches;
#if XTRAIN_SIMT_ASAN
    const bool home = &to == &outside_;
    __sanitizer_start_switch_fiber(&from.asan_stack, home ? outside_bottom_ : to.stack, home ? outside_bytes_ : stack_bytes);
#endif
#if XTRAIN_SIMT_TSAN
    __tsan_switch_to_fiber(to.tsan_fiber, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(__x86_64__)
    switch_stack(&from.stack_pointer, to.stack_pointer);
#else
    swapcontext(&from.context, &to.context);
#endif
#if XTRAIN_SIMT_ASAN
    __sanitizer_finish_switch_fiber(from.asan_stack, nullptr, nullptr);
#endif
  }

  /// Draws the next thread. In a fair order a missing barrier between uses of shared memory would have no effect: in half of all blocks the thread freed last
  /// nearly always continues.
  XTRAIN_SIMT_RUNNER void pick() {
    const std::uint32_t drawn = draw(), all = static_cast<std::uint32_t>(runnable_count_);
    const std::uint32_t chosen = is_unfair_ && drawn % 16 != 0 ? all - 1 : (drawn >> 4) % all;
    self_ = runnable_[chosen];
    runnable_[chosen] = runnable_[--runnable_count_];
  }

  XTRAIN_SIMT_RUNNER static void entry() {
    runner& all = *running;
#if XTRAIN_SIMT_ASAN
    const void* bottom = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (all.outside_bottom_ == nullptr) all.outside_bottom_ = bottom, all.outside_bytes_ = bytes;
#endif
    for (;;) all.one_thread();
  }
  /// A thread of a block, begin to end.
  XTRAIN_SIMT_RUNNER void one_thread() {
    tsan_acquire(&begin_token_);
    fiber& me = self();
    me.groups.clear();
    try {
      body_(kernel_, shared_);
      if (!me.copies.empty()) raise("ended with asynchronous copies that it did not wait for");
    } catch (const std::exception& e) {
      const hidden_from_tsan hidden;
      if (!failed_) fail(e.what());
    }
    tsan_release(&end_token_);
    fiber* next = &outside_;
    {
      const hidden_from_tsan hidden;
      me.is_done = true;
      --left_;
      if (runnable_count_ != 0 && !failed_) {
        pick();
        next = &self();
      }
    }
    go(me, *next);
  }

  XTRAIN_SIMT_RUNNER void prepare(int threads) {
    threads_ = threads;
    while (fibers_.size() < static_cast<std::size_t>(threads)) {
      auto fresh = std::make_unique<fiber>();
      void* memory = ::mmap(nullptr, stack_bytes + page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory == MAP_FAILED) throw std::bad_alloc();
      ::mprotect(memory, page_bytes, PROT_NONE);  // guard page: stack overflow is a signal
      fresh->stack = static_cast<char*>(memory) + page_bytes;
#if defined(__x86_64__)
      auto* top = reinterpret_cast<void**>(fresh->stack + stack_bytes);
      *--top = nullptr;  // aligned as after a call
      *--top = reinterpret_cast<void*>(&runner::entry);
      for (int saved = 0; saved < 6; ++saved) *--top = nullptr;
      fresh->stack_pointer = top;
#else
      getcontext(&fresh->context);
      fresh->context.uc_stack.ss_sp = fresh->stack;
      fresh->context.uc_stack.ss_size = stack_bytes;
      fresh->context.uc_link = nullptr;
      makecontext(&fresh->context, &runner::entry, 0);
#endif
#if XTRAIN_SIMT_TSAN
      fresh->tsan_fiber = __tsan_create_fiber(0);
#endif
      all_[fibers_.size()] = fresh.get();
      fibers_.push_back(std::move(fresh));
    }
    forget_meetings();
#if XTRAIN_SIMT_TSAN
    outside_.tsan_fiber = __tsan_get_current_fiber();
#endif
  }

  void forget_meetings() {
    for (meeting& m : warps_) m = meeting{};
    block_ = meeting{};
  }
  void fail(const std::string& problem) {
    problem_ = problem;
    failed_ = true;
  }

  XTRAIN_SIMT_RUNNER void run_block(grid_size at) {
    const hidden_from_tsan hidden;
    at_ = at;
    ++counts.blocks;
    left_ = threads_;
    is_unfair_ = draw() % 2 == 0;
    runnable_count_ = threads_;
    for (int t = 0; t < threads_; ++t) {
      all_[t]->is_done = false;
      runnable_[t] = t;
    }
    tsan_release(&begin_token_);
    pick();
    go(outside_, self());
    if (!failed_ && left_ != 0) {
      fail(concat("simt: block (", at_.x, ", ", at_.y, ", ", at_.z, "): ", left_,
                        " threads wait for others, which have ended or wait elsewhere:"));
      const auto tell = [&](const meeting& m, const char* whose) {
        if (m.arrived != 0) problem_ += concat(" ", m.arrived, " at ", whose, " ", m.where.file, ":", m.where.line, ";");
      };
      tell(block_, "the block's");
      for (const meeting& m : warps_) tell(m, "a warp's");
    }
    if (failed_) abandon();
  }
  /// Ends waiting threads, each on its stack.
  [[noreturn]] XTRAIN_SIMT_RUNNER void abandon() {
    const std::string problem = problem_;
    for (int t = 0; t < threads_; ++t) {
      fiber& each = *all_[t];
      self_ = t;
      runnable_count_ = 0;
      if (!each.is_done) go(outside_, each);
      each.copies.clear();
      each.groups.clear();
    }
    problem_.clear();
    failed_ = false;
    forget_meetings();
    tsan_acquire(&end_token_);
    throw fault(problem);
  }

  // plain arrays: accesses are no calls in unoptimized programs
  std::vector<std::unique_ptr<fiber>> fibers_{};
  fiber* all_[most_threads] = {};
  int runnable_[most_threads] = {};
  int runnable_count_ = 0;
  meeting warps_[most_threads / warp_width] = {};
  meeting block_{};
  bool plants_ = false, failed_ = false, is_unfair_ = false;
  planted_mistake planted_{};
  std::vector<planted_mistake>* places_ = nullptr;
  int threads_ = 0, self_ = -1, left_ = 0;
  grid_size at_{}, grid_{};
  std::uint64_t random_ = 1;
  fiber outside_{};
#if XTRAIN_SIMT_ASAN
  const void* outside_bottom_ = nullptr;
  std::size_t outside_bytes_ = 0;
#endif
  void (*body_)(const void*, void*) = nullptr;
  const void* kernel_ = nullptr;
  void* shared_ = nullptr;
  std::string problem_{};
  char begin_token_ = 0, end_token_ = 0;
};

template <class Kernel>
void runner::run(const Kernel& kernel, grid_size grid, std::uint64_t seed) {
  static_assert(std::is_trivially_copyable_v<Kernel>, "simt: a kernel must be trivially copyable: its members are its arguments");
  static_assert(Kernel::threads % warp_width == 0 && Kernel::threads <= most_threads, "simt: a block must be whole warps, at most 1024 threads");
  static_assert(sizeof(typename Kernel::shared) <= most_shared_bytes + fence_bytes, "simt: a block must share at most 99 KiB");
  if (grid.x < 0 || grid.y < 0 || grid.z < 0 || grid.y > 65535 || grid.z > 65535)
    throw fault(concat("simt: a grid must have at most 65535 blocks in y and z; given ", grid.x, " x ", grid.y, " x ", grid.z));
  running = this;
  ++counts.launches;
  random_ = seed * 0x9E3779B97F4A7C15ULL + 0x1234567;
  if (random_ == 0) random_ = 1;
  grid_ = grid;
  prepare(Kernel::threads);
  const auto gx = static_cast<std::uint64_t>(grid.x), gy = static_cast<std::uint64_t>(grid.y),
             blocks = gx * gy * static_cast<std::uint64_t>(grid.z);
  std::vector<std::uint64_t> order(blocks);
  for (std::uint64_t b = 0; b < blocks; ++b) order[b] = b;
  for (std::uint64_t b = blocks; b > 1; --b) std::swap(order[b - 1], order[draw() % b]);
  body_ = [](const void* k, void* shared) { (*static_cast<const Kernel*>(k))(*static_cast<typename Kernel::shared*>(shared)); };
  kernel_ = &kernel;
  std::vector<std::unique_ptr<typename Kernel::shared>> used;
  for (const std::uint64_t b : order) {
    auto shared = std::make_unique<typename Kernel::shared>();
    shared_ = shared.get();
    run_block({static_cast<int>(b % gx), static_cast<int>(b / gx % gy), static_cast<int>(b / gx / gy)});
#if XTRAIN_SIMT_TSAN
    used.push_back(std::move(shared));  // blocks are unordered: reusing the address would look like a race
#endif
  }
  tsan_acquire(&end_token_);
}

/// A block's shared memory: NaN before the first write, followed by a fence.
template <class T, int N>
class alignas(16) shared_array {
 public:
  shared_array() {
    std::memset(static_cast<void*>(all_), 0xff, sizeof all_);
#if XTRAIN_SIMT_ASAN
    __asan_poison_memory_region(fence_, sizeof fence_);
#endif
  }
  ~shared_array() {
#if XTRAIN_SIMT_ASAN
    __asan_unpoison_memory_region(fence_, sizeof fence_);
#endif
  }
  [[nodiscard]] T& operator[](int i) {
    if (i < 0 || i >= N) running->raise(concat("element ", i, " of a shared array of ", N));
    return all_[i];
  }
  /// Of element i, or of the end.
  [[nodiscard]] T* at(int i) {
    if (i < 0 || i > N) running->raise(concat("address ", i, " of a shared array of ", N));
    return all_ + i;
  }

 private:
  T all_[static_cast<std::size_t>(N)];
  alignas(16) unsigned char fence_[64];
};

}  // namespace host
}  // namespace xtrain::simt
