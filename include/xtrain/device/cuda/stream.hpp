// The queue of work on an NVIDIA GPU, with events, captured work, and host functions in its order.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/cuda/context.hpp>
#include <xtrain/device/cuda/products.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/kernel/launch_record.hpp>
#include <xtrain/device/stream_problem.hpp>

namespace xtrain {

namespace detail {

template <class Kernel>
inline constexpr bool names_bf16 = false;
template <template <class...> class Kernel, class... Arguments>
inline constexpr bool names_bf16<Kernel<Arguments...>> = ((std::is_same_v<Arguments, bf16> || names_bf16<Arguments>) || ...);

/// throws  config_error if no GPU of the architecture computes in the kernel's dtype
template <class Kernel>
void require_dtypes_of(int architecture) {
  constexpr int mtt_s80 = 21;
  if constexpr (names_bf16<Kernel>)
    require<config_error>(architecture != mtt_s80, "musa: ", Kernel::name, " in bf16 needs mp_22 or newer; this GPU is mp_21 (MTT S80): use fp16_mixed or ",
                          "fp32");
}

/// An event of the runtime, returned to the context after its last use.
[[nodiscard]] inline std::shared_ptr<void> shared_event(const std::shared_ptr<cuda_state>& state) {
  return {state->take_event(), [state](void* event) { state->return_event(event); }};
}

/// Runs host functions in the order of one stream, on a separate thread: the stream records an event and waits until a word in pinned memory reaches the
/// function's number; the thread waits for the event, runs the function, and writes the number. Other streams continue, and functions may call the runtime:
/// cudaLaunchHostFunc promises neither.
class cuda_host_functions {
 public:
  cuda_host_functions(std::shared_ptr<cuda_state> state, std::shared_ptr<stream_problem> problem) : state_(std::move(state)), problem_(std::move(problem)) {
    done_ = static_cast<std::uint32_t*>(state_->allocate_pinned(sizeof(std::uint32_t)));
    std::memset(done_, 0, sizeof *done_);
    try {
      state_->check(state_->runtime().device_address(&done_on_gpu_, done_), "cudaHostGetDevicePointer");
      thread_ = std::thread([this] { work(); });
    } catch (...) {
      state_->release_pinned(done_);
      throw;
    }
  }
  /// All functions have run, or the stream cannot reach them.
  ~cuda_host_functions() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
    state_->release_pinned(done_);
  }
  cuda_host_functions(const cuda_host_functions&) = delete;
  cuda_host_functions& operator=(const cuda_host_functions&) = delete;

  void queue(cuda_queue_handle stream, std::function<void()> function, std::uint32_t number) {
    const cuda_runtime& runtime = state_->runtime();
    std::shared_ptr<void> event = shared_event(state_);
    state_->check(runtime.record_event(event.get(), stream), "cudaEventRecord");
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back({std::move(event), std::move(function), number});
    }
    changed_.notify_all();
    state_->check(runtime.wait_value(stream, done_on_gpu_, number), "cuStreamWaitValue32");
  }

 private:
  struct job {
    std::shared_ptr<void> event;
    std::function<void()> function;
    std::uint32_t number = 0;
  };
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job now = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      try {
        state_->enter();
        state_->check(state_->runtime().synchronize_event(now.event.get()), "cudaEventSynchronize");
        if (!problem_->before(now.number - 1)) now.function();
      } catch (...) {
        problem_->set(std::current_exception(), now.number);
      }
      const std::uint32_t number = now.number;
      now = {};  // release the function's captures before the stream continues
      std::atomic_ref<std::uint32_t>(*done_).store(number, std::memory_order_release);
      lock.lock();
    }
  }

  std::shared_ptr<cuda_state> state_;
  std::shared_ptr<stream_problem> problem_;
  std::uint32_t* done_ = nullptr;
  void* done_on_gpu_ = nullptr;
  std::mutex mutex_{};
  std::condition_variable changed_{};
  std::deque<job> jobs_{};
  bool stopping_ = false;
  std::thread thread_{};
};

}  // namespace detail

/// Work is done in order, without waiting for other streams. After a host function has thrown, no later function runs and nothing more is queued; the next
/// synchronize() of the stream, of its later events, and of streams that wait for these rethrows. Earlier GPU work still runs.
class cuda_stream {
 public:
  class event {
   public:
    void synchronize() const {
      if (!raw_) return;
      state_->enter();
      state_->check(state_->runtime().synchronize_event(raw_.get()), "cudaEventSynchronize");
      if (const std::exception_ptr problem = problem_->before(functions_)) std::rethrow_exception(problem);
    }
    /// Whether the GPU has reached it, or failed. The host does not wait.
    [[nodiscard]] bool is_done() const {
      if (!raw_) return true;
      const cuda_runtime& runtime = state_->runtime();
      if (runtime.set_device(state_->ordinal()) != cuda_status::success) return true;
      if (runtime.query_event(raw_.get()) != cuda_status::not_ready) return true;
      (void)runtime.last_error();
      return false;
    }
    /// For record_outside_work(): that work has failed, as if a host function had thrown this.
    void fail(std::exception_ptr problem) const {
      if (problem_) problem_->set(std::move(problem), functions_);
    }

   private:
    friend class cuda_stream;
    std::shared_ptr<detail::cuda_state> state_{};
    std::shared_ptr<void> raw_{};
    std::shared_ptr<detail::stream_problem> problem_{};
    std::uint32_t functions_ = 0;
    bool may_be_told_ = false;
  };

  /// Captured work with its launches. Instantiated at its first replay.
  class graph {
   public:
    [[nodiscard]] std::size_t size() const { return records_.size(); }
    [[nodiscard]] std::string difference(const graph& other) const { return kernel::difference_of(records_, other.records_); }

   private:
    friend class cuda_stream;
    struct handles {
      std::shared_ptr<detail::cuda_state> state;
      void *captured = nullptr, *executable = nullptr;
      std::shared_ptr<void> replayed{};  // event after the last replay
      explicit handles(std::shared_ptr<detail::cuda_state> of) : state(std::move(of)) {}
      handles(const handles&) = delete;
      handles& operator=(const handles&) = delete;
      ~handles() {
        const cuda_runtime& runtime = state->runtime();
        (void)runtime.set_device(state->ordinal());
        if (replayed) (void)runtime.synchronize_event(replayed.get());
        if (executable != nullptr) (void)runtime.destroy_executable(executable);
        if (captured != nullptr) (void)runtime.destroy_graph(captured);
      }
    };
    std::vector<kernel::launch_record> records_{};
    std::shared_ptr<handles> handles_{};
  };

  explicit cuda_stream(const cuda_context& device)
      : device_(device), state_(device.state()), problem_(std::make_shared<detail::stream_problem>(mark_of(device.state()))) {
    if (state_->is_dry_run()) return;
    state_->enter();
    state_->check(state_->runtime().create_stream(&raw_), "cudaStreamCreateWithFlags");
  }
  cuda_stream(cuda_stream&& from) noexcept
      : device_(from.device_), state_(from.state_), problem_(from.problem_), raw_(std::exchange(from.raw_, nullptr)), functions_(from.functions_),
        may_be_told_(from.may_be_told_), host_functions_(std::move(from.host_functions_)), capturing_(std::move(from.capturing_)) {}
  cuda_stream& operator=(cuda_stream&& from) noexcept {
    if (this == &from) return *this;
    close();
    device_ = from.device_;
    state_ = from.state_;
    problem_ = from.problem_;
    raw_ = std::exchange(from.raw_, nullptr);
    functions_ = from.functions_;
    may_be_told_ = from.may_be_told_;
    host_functions_ = std::move(from.host_functions_);
    capturing_ = std::move(from.capturing_);
    return *this;
  }
  ~cuda_stream() { close(); }

  [[nodiscard]] const cuda_context& device() const { return device_; }
  [[nodiscard]] cuda_properties properties() const { return device_.properties(); }
  /// The runtime's handle. `difference` does not see work queued on it directly.
  [[nodiscard]] cuda_queue_handle raw() const { return raw_; }
  /// The record of a dry run; null on a working stream.
  [[nodiscard]] dry_record* counts() const { return state_->is_dry_run() ? &state_->record() : nullptr; }

  void copy_from_host(void* to, const void* from, std::size_t bytes) {
    if (dry_record* const record = counts()) return void(record->bytes_from_host += static_cast<double>(bytes));
    copy("copy_from_host", to, from, bytes, from);
  }
  /// In a dry run it writes zeros.
  void copy_to_host(void* to, const void* from, std::size_t bytes) {
    if (dry_record* const record = counts()) {
      record->bytes_to_host += static_cast<double>(bytes);
      if (bytes != 0) std::memset(to, 0, bytes);
      return;
    }
    copy("copy_to_host", to, from, bytes, to);
  }
  void copy_within(void* to, const void* from, std::size_t bytes) {
    if (dry_record* const record = counts()) return record->count("copy", 0, 2.0 * static_cast<double>(bytes));
    copy("copy_within", to, from, bytes, nullptr);
  }
  void fill_zero(void* to, std::size_t bytes) {
    if (dry_record* const record = counts()) return record->count("fill_zero", 0, static_cast<double>(bytes));
    if (bytes == 0 || !begin_work()) return;
    if (capturing_) capturing_->records_.emplace_back("fill_zero", memory_work{to, nullptr, bytes});
    check(state_->runtime().fill_zero(to, bytes, raw_), "cudaMemsetAsync");
  }

  void synchronize() {
    if (dry_record* const record = counts()) return void(++record->synchronisations);
    refuse_in_capture("the host waited for the stream");
    enter();
    check(state_->runtime().synchronize_stream(raw_), "cudaStreamSynchronize");
    if (const std::exception_ptr problem = problem_->before(functions_)) std::rethrow_exception(problem);
  }
  [[nodiscard]] event record() {
    event now;
    if (counts() != nullptr) return now;
    refuse_in_capture("an event was recorded");
    enter();
    now.state_ = state_;
    now.raw_ = detail::shared_event(state_);
    now.problem_ = problem_;
    now.functions_ = functions_;
    now.may_be_told_ = may_be_told_;
    check(state_->runtime().record_event(now.raw_.get(), raw_), "cudaEventRecord");
    return now;
  }
  void wait(const event& other) {
    if (counts() != nullptr || !other.raw_) return;
    refuse_in_capture("the stream waited for an event");
    if (!begin_work()) return;
    problem_->follow(other.problem_, other.functions_);
    may_be_told_ = may_be_told_ || other.may_be_told_;
    check(state_->runtime().wait_event(raw_, other.raw_.get()), "cudaStreamWaitEvent");
  }
  /// Runs f() on the host in the order of the stream, on a thread of the stream. It may block and use the device; other streams continue.
  template <class Function>
  void queue_host_function(Function f) {
    if (counts() != nullptr) return f();
    refuse_in_capture("a host function was queued");
    if (!begin_work()) return;
    const std::uint32_t number = functions_ + 1;
    may_be_told_ = true;
    if (state_->runtime().wait_value == nullptr) {  // the driver's streams cannot wait for memory: the host waits for them
      check(state_->runtime().synchronize_stream(raw_), "cudaStreamSynchronize");
      functions_ = number;
      try {
        f();
      } catch (...) {
        problem_->set(std::current_exception(), number);
      }
      return;
    }
    if (!host_functions_) host_functions_ = std::make_unique<detail::cuda_host_functions>(state_, problem_);
    functions_ = number;
    host_functions_->queue(raw_, std::function<void()>(std::move(f)), number);
  }

  /// Pinned: 1 after a host function of this stream, or of a stream that it has waited for, has thrown. Later GPU work finds the 1.
  [[nodiscard]] const double* host_failure() const { return problem_->failure(); }

  /// Another library queues work on raw() next.
  ///   returns  false if it must not
  [[nodiscard]] bool begin_outside_work() {
    if (counts() != nullptr) return false;
    refuse_in_capture("another library queued work");
    return begin_work();
  }
  /// The end of that work; its owner reports failures to the event.
  [[nodiscard]] event record_outside_work() {
    ++functions_;
    may_be_told_ = true;
    return record();
  }

  void begin_capture() {
    require<config_error>(counts() == nullptr && !capturing_, vendor().device, ": a capture must begin on a stream that has none, and not in a dry run");
    require<config_error>(state_->why_no_graphs().empty(), vendor().device, ": the runtime must be able to capture and replay work, for capture_steps; ",
                          state_->why_no_graphs());
    enter();
    check(state_->runtime().begin_capture(raw_), "cudaStreamBeginCapture");
    capturing_ = graph{};
  }
  [[nodiscard]] graph end_capture() {
    require<config_error>(capturing_.has_value(), vendor().device, ": a capture must have begun before it ends");
    graph captured = std::move(*capturing_);
    capturing_.reset();
    captured.handles_ = std::make_shared<graph::handles>(state_);
    (void)state_->runtime().set_device(state_->ordinal());
    check(state_->runtime().end_capture(raw_, &captured.handles_->captured), "cudaStreamEndCapture");
    return captured;
  }
  void cancel_capture() {
    if (!capturing_) return;
    capturing_.reset();
    void* captured = nullptr;
    (void)state_->runtime().set_device(state_->ordinal());
    if (state_->runtime().end_capture(raw_, &captured) != cuda_status::success) (void)state_->runtime().last_error();
    if (captured != nullptr) (void)state_->runtime().destroy_graph(captured);
  }
  void replay(const graph& captured) {
    refuse_in_capture("captured work was replayed");
    if (!begin_work() || !captured.handles_) return;
    graph::handles& with = *captured.handles_;
    if (with.executable == nullptr) check(state_->runtime().instantiate(&with.executable, with.captured), "cudaGraphInstantiate");
    std::shared_ptr<void> end = with.replayed ? with.replayed : detail::shared_event(state_);
    check(state_->runtime().launch_graph(with.executable, raw_), "cudaGraphLaunch");
    check(state_->runtime().record_event(end.get(), raw_), "cudaEventRecord");
    with.replayed = std::move(end);
  }

  /// A kernel of the library follows, in one or several launches on this stream.
  ///   returns  false if it must not be launched
  template <class Kernel>
  [[nodiscard]] bool begin_kernel(const Kernel& kernel) {
    detail::require_dtypes_of<Kernel>(state_->properties().architecture);
    if (dry_record* const record = counts()) {
      record->count(Kernel::name, kernel.operations(), static_cast<double>(kernel::bytes_moved(kernel)));
      return false;
    }
    if (!begin_work()) return false;
    if (capturing_) capturing_->records_.emplace_back(kernel);
    last_kernel_ = Kernel::name;
    return true;
  }
  void launch(const cuda_launch& what) {
    if (is_preparing_) return check(state_->runtime().load_kernel(what), "cudaFuncGetAttributes");
    check(state_->runtime().launch(what, raw_), "cudaLaunchKernel");
  }
  /// Loads a kernel's code before its launch is captured. Defined in cuda.hpp.
  template <class Kernel>
  void prepare(const Kernel& kernel);
  /// Scratch memory for products of the next kernel.
  void set_workspace(cuda_workspace workspace) { workspace_ = workspace; }
  /// Queues the product by the GPU's library.
  ///   returns  false: launch our kernel
  [[nodiscard]] bool multiply(const cuda_product& product) {
    cuda_products* const by = state_->products();
    return by != nullptr && by->multiply(*this, product, workspace_, is_preparing_);
  }
  /// As multiply(), for attention.
  [[nodiscard]] bool attend(const cuda_attention& attention) {
    cuda_attentions* const by = state_->attentions();
    return by != nullptr && by->attend(*this, attention, workspace_, is_preparing_);
  }
  [[nodiscard]] bool is_capturing() const { return capturing_.has_value(); }
  [[nodiscard]] std::string_view last_kernel() const { return last_kernel_; }

 private:
  [[nodiscard]] static std::shared_ptr<double> mark_of(const std::shared_ptr<detail::cuda_state>& state) {
    return {static_cast<double*>(state->allocate_pinned(sizeof(double))), [state](double* mark) { state->release_pinned(mark); }};
  }
  struct memory_work {
    void* to;
    const void* from;
    std::size_t bytes;
    friend bool operator==(const memory_work&, const memory_work&) = default;
  };

  [[nodiscard]] const gpu_vendor& vendor() const { return state_->vendor(); }
  void enter() { check(state_->runtime().set_device(state_->ordinal()), "cudaSetDevice"); }
  /// False if a host function of this stream, or of a followed stream, has thrown: nothing more is queued.
  [[nodiscard]] bool begin_work() {
    enter();
    return !may_be_told_ || !problem_->before(functions_);
  }
  ///   host  the side of the copy in host memory; null: neither
  void copy(std::string_view name, void* to, const void* from, std::size_t bytes, const void* host) {
    if (capturing_ && host != nullptr && bytes != 0 && !state_->is_pinned(host, bytes))
      refuse_in_capture("a copy from or to host memory that is not pinned");
    if (bytes == 0 || !begin_work()) return;
    if (capturing_) capturing_->records_.emplace_back(name, memory_work{to, from, bytes});
    check(state_->runtime().copy(to, from, bytes, raw_), "cudaMemcpyAsync");
  }
  void refuse_in_capture(const char* why) {
    if (!capturing_) return;
    cancel_capture();
    throw config_error(concat(vendor().device, ": captured work must be such that it can be replayed; ", why));
  }
  void check(int status, std::string_view call) {
    if (status == cuda_status::success) [[likely]] return;
    cancel_capture();
    const bool is_earlier = status >= cuda_status::illegal_address && status < 800 && call != "cudaLaunchKernel";
    const std::string after = is_earlier ? concat(call, ", after kernels of which the last was ", last_kernel_.empty() ? "none" : last_kernel_, ",") : "";
    state_->check(status, is_earlier ? after : call, call == "cudaLaunchKernel" ? last_kernel_ : std::string_view{});
  }
  void close() noexcept {
    if (raw_ == nullptr) return;
    cancel_capture();
    const cuda_runtime& runtime = state_->runtime();
    (void)runtime.set_device(state_->ordinal());
    (void)runtime.synchronize_stream(raw_);  // waiters for the result report errors
    host_functions_.reset();
    problem_->settle();
    (void)runtime.destroy_stream(std::exchange(raw_, nullptr));
  }

  cuda_context device_;
  std::shared_ptr<detail::cuda_state> state_;
  std::shared_ptr<detail::stream_problem> problem_;
  cuda_queue_handle raw_ = nullptr;
  std::uint32_t functions_ = 0;  // host functions queued
  bool may_be_told_ = false;     // a host function of this or a followed stream may have thrown
  std::unique_ptr<detail::cuda_host_functions> host_functions_{};
  std::optional<graph> capturing_{};
  std::string_view last_kernel_{};
  bool is_preparing_ = false;
  cuda_workspace workspace_{};
};

/// A stream as the kernels of device/simt/ see it.
class cuda_launcher {
 public:
  static constexpr bool launches_simt = true;
  struct properties {
    static constexpr bool is_simt = true;
  };
  explicit cuda_launcher(cuda_stream& stream) : stream_(&stream) {}
  [[nodiscard]] cuda_stream& stream() const { return *stream_; }
  /// Defined where kernels are compiled: in host_launch.hpp, or, for nvcc, launch.cuh.
  template <class Kernel>
  void launch(const Kernel& kernel, simt::grid_size grid);

 private:
  cuda_stream* stream_;
};

}  // namespace xtrain
