// A device whose memory the host cannot access and whose stream works as late as possible. Code that lacks a copy or a
// synchronization fails on it, without an accelerator.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include <xtrain/device/concepts.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain::testing {

template <class Device>
struct isolated_memory {
  static constexpr std::string_view name = "isolated";
  static constexpr bool host_addressable = false;
};

namespace detail {

/// A queue of work and the thread that executes it, in order, and only when somebody waits for it.
class late_worker {
 public:
  late_worker() : thread_([this] { work(); }) {}
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
  std::size_t queue(std::function<void()> item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    return ++queued_;
  }
  [[nodiscard]] std::size_t queued() {
    const std::lock_guard lock(mutex_);
    return queued_;
  }
  void finish(std::size_t number) {
    std::unique_lock lock(mutex_);
    wanted_ = std::max(wanted_, number);
    changed_.notify_all();
    changed_.wait(lock, [&] { return done_ >= number; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || (done_ < wanted_ && !items_.empty()); });
      if (stopping_) return;
      const std::function<void()> item = std::move(items_.front());
      items_.pop_front();
      lock.unlock();
      item();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> items_;
  std::size_t queued_ = 0, wanted_ = 0, done_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace detail

template <class Device>
struct isolated_properties {
  typename Device::properties of_device;
};

/// `Device`, which must be in host memory, with that memory made inaccessible to host code. Fresh memory is filled with NaN.
template <host_addressable Device>
struct isolated {
  static constexpr std::string_view name = "isolated";
  using memory = isolated_memory<Device>;
  using properties = isolated_properties<Device>;

  class context : public Device::context {
   public:
    explicit context(const typename Device::context& inner) : Device::context(inner) {}
    context() = default;
    [[nodiscard]] void* allocate(std::size_t bytes, memory_role role) const {
      void* fresh = Device::context::allocate(bytes, role);
      std::memset(fresh, 0xff, bytes);
      return fresh;
    }
    [[nodiscard]] isolated::properties properties() const { return {Device::context::properties()}; }
  };

  class stream {
   public:
    class event {
     public:
      event(std::shared_ptr<detail::late_worker> worker, std::size_t number) : worker_(std::move(worker)), number_(number) {}
      void synchronize() const { worker_->finish(number_); }

     private:
      std::shared_ptr<detail::late_worker> worker_;
      std::size_t number_;
    };
    explicit stream(const context& device)
        : inner_(std::make_shared<typename Device::stream>(static_cast<const typename Device::context&>(device))),
          worker_(std::make_shared<detail::late_worker>()) {}
    ~stream() {
      if (worker_) synchronize();
    }
    stream(stream&&) = default;
    stream& operator=(stream&&) = default;

    void copy_from_host(void* to, const void* from, std::size_t bytes) {
      queue([=](auto& inner) { inner.copy_from_host(to, from, bytes); });
    }
    void copy_to_host(void* to, const void* from, std::size_t bytes) {
      queue([=](auto& inner) { inner.copy_to_host(to, from, bytes); });
    }
    void copy_within(void* to, const void* from, std::size_t bytes) {
      queue([=](auto& inner) { inner.copy_within(to, from, bytes); });
    }
    void fill_zero(void* to, std::size_t bytes) {
      queue([=](auto& inner) { inner.fill_zero(to, bytes); });
    }
    void synchronize() { worker_->finish(worker_->queued()); }
    [[nodiscard]] event record() { return {worker_, worker_->queued()}; }
    void wait(const event& other) {
      queue([=](auto&) { other.synchronize(); });
    }

    template <class Work>
    void queue(Work work) {
      worker_->queue([inner = inner_, work = std::move(work)] { work(*inner); });
    }

   private:
    std::shared_ptr<typename Device::stream> inner_;
    std::shared_ptr<detail::late_worker> worker_;
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

/// Queues the kernel. Exists for the kernels of the wrapped device, on isolated memory, and for streams
/// that derive from the isolated one (with_host_fallback's does).
template <class Device, class Stream, class Kernel>
requires std::is_base_of_v<typename isolated<Device>::stream, Stream> &&
    std::is_same_v<Kernel, typename Kernel::template on<isolated_memory<Device>>> &&
    runs_kernel<Device, decltype(isolated<Device>::inside(std::declval<const Kernel&>()))>
void run_kernel(Stream& stream, const Kernel& kernel, scratch_span<isolated_memory<Device>> scratch) {
  stream.queue([inside = isolated<Device>::inside(kernel), scratch](auto& inner) {
    run_kernel(inner, inside, span_of<std::byte, typename Device::memory>(scratch.raw(), scratch.size()));
  });
}

}  // namespace xtrain::testing
