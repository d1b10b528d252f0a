// A device whose memory the host cannot access and whose stream works as late as possible: missing copies or synchronizations fail, without an accelerator. It
// counts the host's waits.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/kernel/launch_record.hpp>

namespace xtrain::testing {

/// Memory of a different type than the device's, which the host cannot reach.
template <class Device>
struct isolated_memory {
  static constexpr std::string_view name = "isolated";
  static constexpr bool host_addressable = false;
};

/// The host's waits for a device, and its queued work.
struct host_waits {
  std::size_t synchronizations = 0;  ///< of streams: the host waits for all queued work
  std::size_t event_waits = 0;       ///< of the host for an event
  std::size_t drains = 0;            ///< waits of either kind that leave the stream without work
  std::size_t blocking_copies = 0;   ///< from or to host memory that is not pinned
  std::size_t launches = 0;          ///< kernels, copies and fills queued
  std::size_t host_functions = 0;    ///< queued on streams
  std::size_t replays = 0;           ///< of captured work: each is one launch, not counted above
  double kernel_seconds = 0;         ///< spent by the device in kernels

  [[nodiscard]] host_waits since(const host_waits& before) const {
    return {synchronizations - before.synchronizations,
            event_waits - before.event_waits,
            drains - before.drains,
            blocking_copies - before.blocking_copies,
            launches - before.launches,
            host_functions - before.host_functions,
            replays - before.replays,
            kernel_seconds - before.kernel_seconds};
  }
};

/// Kernels that were prepared before they were captured.
struct kernel_preparation {
  std::size_t prepared = 0;
  std::size_t again = 0;  ///< of these, with an already prepared shape
  std::size_t captured = 0;
  std::size_t unprepared = 0;  ///< of these, with an unprepared shape
};

/// When an isolated device does its work.
struct isolated_timing {
  bool is_late = true;                      ///< only when waited for; otherwise as soon as possible
  std::chrono::microseconds launch{0};
  std::chrono::microseconds kernel{0};      ///< device time of a kernel, in addition to computing
};

namespace detail {

/// Shared by the streams of one isolated device: counts, and the pinned host memory.
class isolated_host {
 public:
  explicit isolated_host(const isolated_timing& timing) : timing_(timing) {}

  [[nodiscard]] const isolated_timing& timing() const { return timing_; }
  std::atomic<std::size_t> synchronizations{0}, event_waits{0}, drains{0}, blocking_copies{0}, launches{0}, host_functions{0}, replays{0};
  std::atomic<std::int64_t> kernel_nanoseconds{0};

  void pin(const void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    pinned_[static_cast<const std::byte*>(memory)] = bytes;
  }
  void unpin(const void* memory) {
    const std::lock_guard lock(mutex_);
    pinned_.erase(static_cast<const std::byte*>(memory));
  }
  [[nodiscard]] bool is_pinned(const void* host, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* const first = static_cast<const std::byte*>(host);
    const auto after = pinned_.upper_bound(first);
    return after != pinned_.begin() && std::prev(after)->first + std::prev(after)->second >= first + bytes;
  }
  void count_copy(const void* host, std::size_t bytes) {
    ++launches;
    if (!is_pinned(host, bytes)) ++blocking_copies;
  }
  void note_prepared(kernel::launch_record what) {
    const std::lock_guard lock(mutex_);
    ++preparation_.prepared;
    if (is_known(what)) ++preparation_.again;
    else known_.push_back(std::move(what));
  }
  void count_captured(const kernel::launch_record& what) {
    const std::lock_guard lock(mutex_);
    ++preparation_.captured;
    if (!is_known(what)) ++preparation_.unprepared;
  }
  [[nodiscard]] kernel_preparation prepared() {
    const std::lock_guard lock(mutex_);
    return preparation_;
  }

 private:
  [[nodiscard]] bool is_known(const kernel::launch_record& what) const {
    return std::any_of(known_.begin(), known_.end(), [&](const kernel::launch_record& one) { return one.same_shape(what); });
  }

  isolated_timing timing_;
  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> pinned_;
  std::vector<kernel::launch_record> known_;
  kernel_preparation preparation_{};
};

/// A queue of work and the thread that executes it in order, only when waited for. As on a GPU, after a host function throws, later work runs, but not later
/// host functions.
class late_worker {
 public:
  enum class kind : std::uint8_t {
    work,           ///< if it throws, nothing else is done
    host_function,  ///< if it throws, the failure is marked, and later host functions do not run
    wait            ///< for another stream, whose failure this one inherits
  };

  /// failure: set to 1 when a host function has thrown
  late_worker(bool is_late, std::shared_ptr<double> failure) : is_late_(is_late), failure_(std::move(failure)), thread_([this] { run(); }) {}
  ~late_worker() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  late_worker(const late_worker&) = delete;
  late_worker& operator=(const late_worker&) = delete;

  /// Returns the number of the item: finish(number) waits for it.
  std::size_t queue(kind of, std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    items_.push_back({of, std::move(work)});
    ++queued_;
    if (!is_late_) want(queued_);
    return queued_;
  }
  [[nodiscard]] std::size_t queued() {
    const std::lock_guard lock(mutex_);
    return queued_;
  }
  /// Starts queued work without a waiter.
  void begin() {
    const std::lock_guard lock(mutex_);
    want(queued_);
  }
  [[nodiscard]] const double* failure() const { return failure_.get(); }
  ///   throws  the first exception of this item, or of an earlier one
  void finish(std::size_t number) {
    std::unique_lock lock(mutex_);
    want(number);
    const auto mine = awaited_.insert(number);
    finished_.wait(lock, [&] { return done_ >= number; });
    awaited_.erase(mine);
    if (problem_ && number >= first_problem_) std::rethrow_exception(problem_);
  }

 private:
  struct item {
    kind of;
    std::function<void()> work;
  };
  void want(std::size_t number) {
    if (number <= wanted_) return;
    wanted_ = number;
    changed_.notify_all();
  }
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || (done_ < wanted_ && !items_.empty()); });
      if (stopping_) return;
      item one = std::move(items_.front());
      items_.pop_front();
      const bool runs = !is_broken_ && (!problem_ || one.of != kind::host_function);
      lock.unlock();
      std::exception_ptr problem;
      try {
        if (runs) one.work();
      } catch (...) {
        problem = std::current_exception();
        if (one.of != kind::work) *failure_ = 1.0;
      }
      one.work = {};
      lock.lock();
      ++done_;
      if (problem && one.of == kind::work) is_broken_ = true;
      if (problem && !problem_) {
        problem_ = problem;
        first_problem_ = done_;
      }
      if (!awaited_.empty() && done_ >= *awaited_.begin()) finished_.notify_all();  // wake only when the awaited item is done
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_, finished_;
  std::deque<item> items_;
  std::multiset<std::size_t> awaited_;
  std::size_t queued_ = 0, wanted_ = 0, done_ = 0, first_problem_ = 0;
  std::exception_ptr problem_;
  bool stopping_ = false, is_broken_ = false, is_late_;
  std::shared_ptr<double> failure_;
  std::thread thread_;
};

}  // namespace detail

/// The device's properties.
template <class Device>
struct isolated_properties {
  typename Device::properties of_device;
};

/// The device's memory is the host's, even if its type is not addressable by host code.
template <class Device>
concept in_host_memory = host_addressable<Device> || (device<Device> && requires { requires Device::memory::lies_on_host; });

/// Wraps `Device`, which must be in host memory, and makes its memory inaccessible to host code. Fresh memory is filled with NaN.
template <in_host_memory Device>
struct isolated {
  static constexpr std::string_view name = "isolated";
  using memory = isolated_memory<Device>;
  using properties = isolated_properties<Device>;

  class context : public Device::context {
   public:
    explicit context(const typename Device::context& inner, const isolated_timing& timing = {})
        : Device::context(inner), host_(std::make_shared<detail::isolated_host>(timing)) {}
    context() : context(typename Device::context{}) {}
    [[nodiscard]] static context for_dry_run(const isolated::properties& like) requires clause::device_has_dry_run<Device> {
      return context(Device::context::for_dry_run(like.of_device));
    }
    [[nodiscard]] void* allocate(std::size_t bytes, memory_role role) const {
      void* fresh = Device::context::allocate(bytes, role);
      if (!xtrain::is_dry_run(static_cast<const typename Device::context&>(*this))) std::memset(fresh, 0xff, bytes);
      return fresh;
    }
    [[nodiscard]] isolated::properties properties() const { return {Device::context::properties()}; }
    [[nodiscard]] void* allocate_pinned(std::size_t bytes) const {
      void* const memory = ::operator new(bytes);
      host_->pin(memory, bytes);
      return memory;
    }
    void release_pinned(void* memory) const {
      host_->unpin(memory);
      ::operator delete(memory);
    }
    /// The host's waits so far, on all streams of this device.
    [[nodiscard]] host_waits waits() const {
      return {host_->synchronizations, host_->event_waits, host_->drains, host_->blocking_copies, host_->launches, host_->host_functions,
              host_->replays, 1e-9 * static_cast<double>(host_->kernel_nanoseconds)};
    }
    [[nodiscard]] kernel_preparation prepared() const { return host_->prepared(); }
    [[nodiscard]] const std::shared_ptr<detail::isolated_host>& host() const { return host_; }

   private:
    std::shared_ptr<detail::isolated_host> host_;
  };

  class stream {
   public:
    class event {
     public:
      event(std::shared_ptr<detail::isolated_host> host, std::shared_ptr<detail::late_worker> worker, std::size_t number)
          : host_(std::move(host)), worker_(std::move(worker)), number_(number) {}
      void synchronize() const {
        ++host_->event_waits;
        if (number_ >= worker_->queued()) ++host_->drains;
        worker_->finish(number_);
      }

     private:
      friend class stream;
      std::shared_ptr<detail::isolated_host> host_;
      std::shared_ptr<detail::late_worker> worker_;
      std::size_t number_;
    };
    /// Captured work with its launches.
    class graph {
     public:
      [[nodiscard]] std::size_t size() const { return items_.size(); }
      [[nodiscard]] std::string difference(const graph& other) const {
        for (std::size_t i = 0; i < std::min(size(), other.size()); ++i)
          if (!(items_[i].what == other.items_[i].what))
            return concat("launch ", i + 1, " of ", size(), " is ", items_[i].what.name(), " and ", other.items_[i].what.name(),
                           items_[i].what.name() == other.items_[i].what.name() ? ", with other settings or operands" : "");
        if (size() != other.size()) return concat("there are ", size(), " and ", other.size(), " launches");
        return {};
      }

     private:
      friend class stream;
      struct item {
        kernel::launch_record what;
        std::function<void(typename Device::stream&)> work;
      };
      std::vector<item> items_{};
    };

    explicit stream(const context& device)
        : device_(device), host_(device.host()), inner_(std::make_shared<typename Device::stream>(static_cast<const typename Device::context&>(device))),
          worker_(std::make_shared<detail::late_worker>(host_->timing().is_late, failure_of(device))) {}
    ~stream() {
      if (!worker_) return;
      try {
        worker_->finish(worker_->queued());
      } catch (...) {  // synchronize() reports it
      }
    }
    stream(stream&&) = default;
    stream& operator=(stream&&) = default;

    /// The record of a dry run, which computes nothing.
    [[nodiscard]] dry_record* counts() const { return counts_of(*inner_); }

    void begin_capture() { capturing_.emplace(); }
    [[nodiscard]] graph end_capture() {
      graph captured = std::move(capturing_.value());
      capturing_.reset();
      return captured;
    }
    void cancel_capture() { capturing_.reset(); }
    void replay(const graph& captured) {
      ++host_->replays;
      if (const auto time = host_->timing().launch; time.count() > 0) busy_wait(time);
      for (const typename graph::item& one : captured.items_) queue(one.work);
    }

    void copy_from_host(void* to, const void* from, std::size_t bytes) {
      if (capturing_) return capture_copy("copy_from_host", to, from, bytes, from, [=](auto& inner) { inner.copy_from_host(to, from, bytes); });
      host_->count_copy(from, bytes);
      queue([=](auto& inner) { inner.copy_from_host(to, from, bytes); });
    }
    void copy_to_host(void* to, const void* from, std::size_t bytes) {
      if (capturing_) return capture_copy("copy_to_host", to, from, bytes, to, [=](auto& inner) { inner.copy_to_host(to, from, bytes); });
      host_->count_copy(to, bytes);
      queue([=](auto& inner) { inner.copy_to_host(to, from, bytes); });
    }
    void copy_within(void* to, const void* from, std::size_t bytes) {
      if (capturing_) return capture(memory_work{"copy_within", to, from, bytes}, [=](auto& inner) { inner.copy_within(to, from, bytes); });
      ++host_->launches;
      queue([=](auto& inner) { inner.copy_within(to, from, bytes); });
    }
    void fill_zero(void* to, std::size_t bytes) {
      if (capturing_) return capture(memory_work{"fill_zero", to, nullptr, bytes}, [=](auto& inner) { inner.fill_zero(to, bytes); });
      ++host_->launches;
      queue([=](auto& inner) { inner.fill_zero(to, bytes); });
    }
    void synchronize() {
      if (counts() != nullptr) return inner_->synchronize();
      refuse_in_capture("the host waited for the stream");
      ++host_->synchronizations;
      ++host_->drains;
      worker_->finish(worker_->queued());
    }
    /// Starts queued work: another rank may wait for it.
    void begin() { worker_->begin(); }
    [[nodiscard]] const context& device() const { return device_; }
    [[nodiscard]] event record() { return {host_, worker_, worker_->queued()}; }
    void wait(const event& other) {
      refuse_in_capture("the stream waited for an event");
      queue([worker = other.worker_, number = other.number_](auto&) { worker->finish(number); }, kind::wait);
    }
    /// Runs f() on the host in stream order. It may block without delaying other streams. If it throws, later work runs, but not host functions.
    template <class Function>
    void queue_host_function(Function f) {
      refuse_in_capture("a host function was queued");
      ++host_->host_functions;
      queue([f = std::move(f)](auto&) { f(); }, kind::host_function);
    }
    /// Records the kernel: captured kernels should have been prepared.
    template <class Kernel>
    void prepare(const Kernel& kernel) {
      refuse_in_capture("a kernel was prepared");
      host_->note_prepared(kernel::launch_record(kernel));
    }
    /// Pinned: 1 after a host function has failed.
    [[nodiscard]] const double* host_failure() const { return worker_->failure(); }

    using kind = detail::late_worker::kind;
    void queue(std::function<void(typename Device::stream&)> work, kind of = kind::work) {
      if (counts() != nullptr) return work(*inner_);
      worker_->queue(of, [inner = inner_, work = std::move(work)] { work(*inner); });
    }
    /// Queues a kernel.
    ///   inside   the kernel with operands in the wrapped device's memory
    template <class Kernel, class Inside>
    void launch(const Kernel& kernel, const Inside& inside, device_span<std::byte, typename Device::memory> scratch) {
      const kernel_work work{host_, kernel::copy_of(inside), run<Inside>, scratch};
      if (capturing_) {
        capturing_->items_.push_back({kernel::launch_record(kernel), work});
        return host_->count_captured(capturing_->items_.back().what);
      }
      queue_kernel(work);
    }

   private:
    /// A type-erased kernel: tests launch hundreds of types, and a closure of each would be compiled.
    struct kernel_work {
      std::shared_ptr<detail::isolated_host> host;
      std::shared_ptr<const void> kernel;
      void (*run)(const void*, typename Device::stream&, device_span<std::byte, typename Device::memory>);
      device_span<std::byte, typename Device::memory> scratch;

      void operator()(typename Device::stream& inner) const {
        const auto begin = std::chrono::steady_clock::now();
        run(kernel.get(), inner, scratch);
        if (const auto time = host->timing().kernel; time.count() > 0) std::this_thread::sleep_for(time);
        host->kernel_nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
      }
    };
    template <class Inside>
    static void run(const void* kernel, typename Device::stream& inner, device_span<std::byte, typename Device::memory> scratch) {
      run_kernel(inner, *static_cast<const Inside*>(kernel), scratch);
    }
    void queue_kernel(const kernel_work& work) {
      ++host_->launches;
      if (const auto time = host_->timing().launch; time.count() > 0) busy_wait(time);
      queue(work);
    }

    [[nodiscard]] static std::shared_ptr<double> failure_of(const context& device) {
      double* const flag = static_cast<double*>(device.allocate_pinned(sizeof(double)));
      *flag = 0;
      return {flag, [device](double* memory) { device.release_pinned(memory); }};
    }

    /// Queued work except kernels.
    struct memory_work {
      std::string_view what;
      void* to;
      const void* from;
      std::size_t bytes;
      friend bool operator==(const memory_work&, const memory_work&) = default;
    };
    template <class Work>
    void capture(const memory_work& what, Work work) {
      capturing_->items_.push_back({kernel::launch_record(what.what, what), std::move(work)});
    }
    template <class Work>
    void capture_copy(std::string_view what, void* to, const void* from, std::size_t bytes, const void* host, Work work) {
      if (!host_->is_pinned(host, bytes)) refuse_in_capture("a copy from or to host memory that is not pinned");
      capture(memory_work{what, to, from, bytes}, std::move(work));
    }
    void refuse_in_capture(const char* why) {
      if (!capturing_) return;
      capturing_.reset();
      throw config_error(concat("isolated: captured work must be such that it can be replayed; ", why));
    }
    static void busy_wait(std::chrono::microseconds time) {
      const auto until = std::chrono::steady_clock::now() + time;
      while (std::chrono::steady_clock::now() < until) {
      }
    }

    context device_;
    std::shared_ptr<detail::isolated_host> host_;
    std::shared_ptr<typename Device::stream> inner_;
    std::shared_ptr<detail::late_worker> worker_;
    std::optional<graph> capturing_{};
  };

  /// The kernel with operands in the wrapped device's memory.
  template <class Kernel>
  [[nodiscard]] static auto inside(const Kernel& kernel) {
    return kernel::moved_to<typename Device::memory>(kernel, [](const auto& operand) {
      using element = typename std::remove_cvref_t<decltype(operand)>::element_type;
      return span_of<element, typename Device::memory>(operand.raw(), operand.size());
    });
  }
};

template <class Device, class Kernel>
[[nodiscard]] std::size_t scratch_bytes(const isolated_properties<Device>& properties, const Kernel& kernel) {
  return scratch_bytes(properties.of_device, isolated<Device>::inside(kernel));
}

/// Queues the kernel. Exists for kernels of the wrapped device on isolated memory, and for streams derived from the isolated one (as with_host_fallback's).
template <class Device, class Stream, class Kernel>
requires std::is_base_of_v<typename isolated<Device>::stream, Stream> &&
    std::is_same_v<Kernel, typename Kernel::template on<isolated_memory<Device>>> &&
    runs_kernel<Device, decltype(isolated<Device>::inside(std::declval<const Kernel&>()))>
void run_kernel(Stream& stream, const Kernel& kernel, scratch_span<isolated_memory<Device>> scratch) {
  stream.launch(kernel, isolated<Device>::inside(kernel), span_of<std::byte, typename Device::memory>(scratch.raw(), scratch.size()));
}

}  // namespace xtrain::testing
