// The queue of work on an Ascend NPU, its events, and functions of the host in its order.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/npu/context.hpp>
#include <xtrain/device/stream_problem.hpp>

namespace xtrain {

namespace detail {

class npu_host_kernels;  // host_kernels.hpp

/// How often a waiting thread looks whether another library has failed.
inline constexpr std::int32_t npu_poll_milliseconds = 50;

/// An event of the runtime, which goes back to the context's when nobody refers to it.
[[nodiscard]] inline std::shared_ptr<void> shared_npu_event(const std::shared_ptr<npu_state>& state) {
  return {state->take_event(), [state](void* event) { state->return_event(event); }};
}

/// Runs functions of the host in the order of one stream, on a thread of their own that is subscribed to the stream: the stream waits for each, other
/// streams go on.
class npu_host_functions {
 public:
  npu_host_functions(std::shared_ptr<npu_state> state, void* stream, std::shared_ptr<stream_problem> problem)
      : state_(std::move(state)), stream_(stream), problem_(std::move(problem)) {
    thread_ = std::thread([this] { work(); });
    id_ = static_cast<std::uint64_t>(thread_.native_handle());
    const int status = state_->runtime().subscribe_thread(id_, stream_);
    if (status != npu_status::success) {
      stop();
      state_->check(status, "aclrtSubscribeReport");
    }
  }
  /// All functions have run, or the stream cannot reach them.
  ~npu_host_functions() {
    stop();
    (void)state_->runtime().unsubscribe_thread(id_, stream_);
  }
  npu_host_functions(const npu_host_functions&) = delete;
  npu_host_functions& operator=(const npu_host_functions&) = delete;

  void queue(std::function<void()> function, std::uint32_t number) {
    job* queued = nullptr;
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::make_unique<job>(job{this, std::move(function), number}));
      queued = jobs_.back().get();
    }
    const int status = state_->runtime().queue_callback(&npu_host_functions::run, queued, npu_option::blocks_stream, stream_);
    if (status == npu_status::success) return;
    {
      const std::lock_guard lock(mutex_);
      jobs_.pop_back();
    }
    state_->check(status, "aclrtLaunchCallback");
  }

 private:
  struct job {
    npu_host_functions* of;
    std::function<void()> function;
    std::uint32_t number = 0;
  };
  /// Called by the runtime, in the subscribed thread, in order.
  static void run(void* argument) noexcept {
    job& now = *static_cast<job*>(argument);
    npu_host_functions& all = *now.of;
    try {
      if (!all.problem_->before(now.number - 1)) now.function();
    } catch (...) {
      all.problem_->set(std::current_exception(), now.number);
    }
    std::unique_ptr<job> done;  // what it holds is released before the stream goes on
    const std::lock_guard lock(all.mutex_);
    done = std::move(all.jobs_.front());
    all.jobs_.pop_front();
  }
  void work() {
    (void)state_->runtime().set_device(state_->ordinal());
    while (!stopping_.load()) {
      const auto begin = std::chrono::steady_clock::now();
      const int status = state_->runtime().run_callbacks(10);
      // not subscribed yet, or the runtime has failed
      if (status != npu_status::success && std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(1))
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  void stop() {
    stopping_.store(true);
    thread_.join();
  }

  std::shared_ptr<npu_state> state_;
  void* stream_;
  std::shared_ptr<stream_problem> problem_;
  std::mutex mutex_{};
  std::deque<std::unique_ptr<job>> jobs_{};
  std::atomic<bool> stopping_{false};
  std::thread thread_{};
  std::uint64_t id_ = 0;
};

}  // namespace detail

/// Work is queued and done in order; it does not wait for other streams. After a host function has thrown, no later one runs, nothing more is queued, and the
/// next synchronize() of the stream, of its later events, and of streams that wait for these throws that; what was queued before on the NPU still runs.
class npu_stream {
 public:
  /// Copyable.
  class event {
   public:
    /// The host waits.
    void synchronize() const {
      if (!raw_) return;
      state_->enter();
      const npu_runtime& runtime = state_->runtime();
      int status = npu_status::event_timeout;
      if (may_be_told_ && runtime.synchronize_event_for != nullptr)
        while (status == npu_status::event_timeout && !problem_->before(functions_))
          status = runtime.synchronize_event_for(raw_.get(), detail::npu_poll_milliseconds);
      else status = runtime.synchronize_event(raw_.get());
      const std::exception_ptr problem = problem_->before(functions_);
      if (status != npu_status::event_timeout || !problem) state_->check(status, "aclrtSynchronizeEvent");
      if (problem) std::rethrow_exception(problem);
    }
    /// Whether the NPU has reached it. Where the runtime refuses the question for such events, the host waits for 1 ms instead.
    ///   throws  npu_error when the NPU does not say: the work before it may be done, or not
    [[nodiscard]] bool is_done() const {
      if (!raw_) return true;
      state_->enter();
      const npu_runtime& runtime = state_->runtime();
      if (!state_->refuses_questions()) {
        std::int32_t is_reached = 0;
        const int status = runtime.query_event(raw_.get(), &is_reached);
        if (!npu_status::is_refusal(status) || runtime.synchronize_event_for == nullptr) {
          state_->check(status, "aclrtQueryEventStatus");
          return is_reached != 0;
        }
        state_->note_refused_question();
      }
      const int status = runtime.synchronize_event_for(raw_.get(), 1);
      if (status == npu_status::event_timeout || status == npu_status::stream_timeout) return false;
      state_->check(status, "aclrtSynchronizeEventWithTimeout");
      return true;
    }
    /// Of record_outside_work(): that work has failed. The effect is that of a host function that throws this.
    void fail(std::exception_ptr problem) const {
      if (problem_) problem_->set(std::move(problem), functions_);
    }

   private:
    friend class npu_stream;
    std::shared_ptr<detail::npu_state> state_{};
    std::shared_ptr<void> raw_{};
    std::shared_ptr<detail::stream_problem> problem_{};
    std::uint32_t functions_ = 0;
    bool may_be_told_ = false;
  };

  explicit npu_stream(const npu_context& device)
      : device_(device), state_(device.state()), problem_(std::make_shared<detail::stream_problem>(mark_of(state_))) {
    if (state_->is_dry_run()) return;
    state_->enter();
    const npu_runtime& runtime = state_->runtime();
    state_->check(runtime.create_stream(&raw_), "aclrtCreateStream");
    if (runtime.set_failure_mode == nullptr) return;
    const int status = runtime.set_failure_mode(raw_, npu_option::stop_on_failure);  // by default a stream goes on after a task that failed
    if (status == npu_status::success) return;
    (void)runtime.destroy_stream(std::exchange(raw_, nullptr));
    state_->check(status, "aclrtSetStreamFailureMode");
  }
  npu_stream(npu_stream&& from) noexcept
      : device_(from.device_), state_(from.state_), problem_(from.problem_), raw_(std::exchange(from.raw_, nullptr)), functions_(from.functions_),
        may_be_told_(from.may_be_told_), host_functions_(std::move(from.host_functions_)), host_kernels_(std::move(from.host_kernels_)),
        last_kernel_(from.last_kernel_) {}
  npu_stream& operator=(npu_stream&& from) noexcept {
    if (this == &from) return *this;
    close();
    device_ = from.device_;
    state_ = from.state_;
    problem_ = from.problem_;
    raw_ = std::exchange(from.raw_, nullptr);
    functions_ = from.functions_;
    may_be_told_ = from.may_be_told_;
    host_functions_ = std::move(from.host_functions_);
    host_kernels_ = std::move(from.host_kernels_);
    last_kernel_ = from.last_kernel_;
    return *this;
  }
  ~npu_stream() { close(); }

  [[nodiscard]] const npu_context& device() const { return device_; }
  [[nodiscard]] npu_properties properties() const { return device_.properties(); }
  /// AscendCL's handle.
  [[nodiscard]] void* queue() const { return raw_; }
  /// The table that the context was opened with.
  [[nodiscard]] bool has_operators() const { return state_->operators() != nullptr; }
  [[nodiscard]] const npu_operators& operators() const { return *state_->operators(); }
  /// The record of a dry run; null on a stream that does the work.
  [[nodiscard]] dry_record* counts() const { return state_->is_dry_run() ? &state_->record() : nullptr; }

  void copy_from_host(void* to, const void* from, std::size_t bytes) {
    if (dry_record* const record = counts()) return void(record->bytes_from_host += static_cast<double>(bytes));
    copy(to, from, bytes, npu_copy::to_device);
  }
  /// In a dry run it writes zeros.
  void copy_to_host(void* to, const void* from, std::size_t bytes) {
    if (dry_record* const record = counts()) {
      record->bytes_to_host += static_cast<double>(bytes);
      if (bytes != 0) std::memset(to, 0, bytes);
      return;
    }
    copy(to, from, bytes, npu_copy::to_host);
  }
  void copy_within(void* to, const void* from, std::size_t bytes) {
    if (dry_record* const record = counts()) return record->count("copy", 0, 2.0 * static_cast<double>(bytes));
    copy(to, from, bytes, npu_copy::within);
  }
  void fill_zero(void* to, std::size_t bytes) {
    if (dry_record* const record = counts()) return record->count("fill_zero", 0, static_cast<double>(bytes));
    if (bytes == 0 || !begin_work()) return;
    check(state_->runtime().fill(to, bytes, 0, bytes, raw_), "aclrtMemsetAsync");
  }

  void synchronize() {
    if (dry_record* const record = counts()) return void(++record->synchronisations);
    state_->enter();
    const int status = wait_for_all();
    const std::exception_ptr problem = problem_->before(functions_);
    if (status != npu_status::stream_timeout || !problem) check(status, "aclrtSynchronizeStream");
    if (problem) std::rethrow_exception(problem);
  }
  [[nodiscard]] event record() {
    event now;
    if (counts() != nullptr) return now;
    state_->enter();
    now.state_ = state_;
    now.raw_ = detail::shared_npu_event(state_);
    now.problem_ = problem_;
    now.functions_ = functions_;
    now.may_be_told_ = may_be_told_;
    check(state_->runtime().record_event(now.raw_.get(), raw_), "aclrtRecordEvent");
    return now;
  }
  void wait(const event& other) {
    if (counts() != nullptr || !other.raw_ || !begin_work()) return;
    problem_->follow(other.problem_, other.functions_);
    may_be_told_ = may_be_told_ || other.may_be_told_;
    check(state_->runtime().wait_event(raw_, other.raw_.get()), "aclrtStreamWaitEvent");
  }
  /// Runs f() on the host, in the order of the stream, on a thread of the stream. It may block; other streams go on. It must not call AscendCL.
  template <class Function>
  void queue_host_function(Function f) {
    if (counts() != nullptr) return f();
    if (!begin_work()) return;
    const std::uint32_t number = functions_ + 1;
    may_be_told_ = true;
    if (!state_->runtime().has_callbacks()) {  // the host waits for the stream
      check(state_->runtime().synchronize_stream(raw_), "aclrtSynchronizeStream");
      functions_ = number;
      try {
        f();
      } catch (...) {
        problem_->set(std::current_exception(), number);
      }
      return;
    }
    if (!host_functions_) host_functions_ = std::make_unique<detail::npu_host_functions>(state_, raw_, problem_);
    host_functions_->queue(std::function<void()>(std::move(f)), number);
    functions_ = number;
  }

  /// Pinned: 1 after a host function of this stream, or of one that it has waited for, has thrown. What the NPU does after it finds the 1.
  [[nodiscard]] const double* host_failure() const { return problem_->failure(); }

  /// Another library queues work on queue() next.
  ///   returns  false if it must not
  [[nodiscard]] bool begin_outside_work() { return counts() == nullptr && begin_work(); }
  /// The end of that work, for the one who finds out whether it fails.
  [[nodiscard]] event record_outside_work() {
    ++functions_;
    may_be_told_ = true;
    return record();
  }

  /// A kernel of the library is launched next, by one or several operators on queue().
  ///   returns  false if it must not be launched
  template <class Kernel>
  [[nodiscard]] bool begin_kernel(const Kernel& kernel) {
    if (dry_record* const record = counts()) {
      record->count(Kernel::name, kernel.operations(), static_cast<double>(kernel::bytes_moved(kernel)));
      return false;
    }
    if (!begin_work()) return false;
    last_kernel_ = Kernel::name;
    return true;
  }
  /// Has the host run a kernel, after begin_kernel, in the order of the stream; it is counted by name. Defined in host_kernels.hpp.
  template <class Kernel>
  void run_on_host(const Kernel& kernel);
  /// The kernel of the library that was launched last.
  [[nodiscard]] std::string_view last_kernel() const { return last_kernel_; }

 private:
  [[nodiscard]] static std::shared_ptr<double> mark_of(const std::shared_ptr<detail::npu_state>& state) {
    return {static_cast<double*>(state->allocate_pinned(sizeof(double))), [state](double* mark) { state->release_pinned(mark); }};
  }
  /// False if a host function of this stream has thrown, or of one that it follows: nothing more is queued.
  [[nodiscard]] bool begin_work() {
    state_->enter();
    return !may_be_told_ || !problem_->before(functions_);
  }
  void copy(void* to, const void* from, std::size_t bytes, int kind) {
    if (bytes == 0 || !begin_work()) return;
    check(state_->runtime().copy(to, bytes, from, bytes, kind, raw_), "aclrtMemcpyAsync");
  }
  /// An error of the device is of work that was queued earlier.
  void check(int status, std::string_view call) {
    if (status == npu_status::success) [[likely]] return;
    const std::string after = status >= 500000 ? concat(call, ", after kernels of which the last was ", last_kernel_.empty() ? "none" : last_kernel_, ",") : "";
    state_->check(status, after.empty() ? call : after);
  }
  /// Waits until all is done, or until another library has failed to do its part: then the rest is discarded.
  ///   returns  the status; of the latter stream_timeout
  [[nodiscard]] int wait_for_all() noexcept {
    const npu_runtime& runtime = state_->runtime();
    if (!may_be_told_ || runtime.synchronize_stream_for == nullptr || runtime.abort_stream == nullptr) return runtime.synchronize_stream(raw_);
    for (;;) {
      const int status = runtime.synchronize_stream_for(raw_, detail::npu_poll_milliseconds);
      if (status != npu_status::stream_timeout || !problem_->before(functions_)) {
        if (status != npu_status::stream_timeout) return status;
        continue;
      }
      (void)runtime.abort_stream(raw_);
      return status;
    }
  }
  void close() noexcept {
    if (raw_ == nullptr) return;
    const npu_runtime& runtime = state_->runtime();
    (void)runtime.set_device(state_->ordinal());
    (void)wait_for_all();  // who waits for the result reports what it throws
    host_functions_.reset();
    problem_->settle();
    (void)runtime.destroy_stream(std::exchange(raw_, nullptr));
    host_kernels_.reset();
  }

  npu_context device_;
  std::shared_ptr<detail::npu_state> state_;
  std::shared_ptr<detail::stream_problem> problem_;
  void* raw_ = nullptr;
  std::uint32_t functions_ = 0;  // host functions queued
  bool may_be_told_ = false;     // that a host function threw, of this stream or of one that it follows
  std::unique_ptr<detail::npu_host_functions> host_functions_{};
  std::shared_ptr<detail::npu_host_kernels> host_kernels_{};
  std::string_view last_kernel_{};
};

}  // namespace xtrain
