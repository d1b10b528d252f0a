// The cpu device's stream: a kernel is cut into parts and given to an executor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include <xtrain/device/cpu/threads.hpp>
#include <xtrain/device/host.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain {

/// What the scratch memory of cpu kernels depends on.
struct cpu_properties {
  std::size_t threads = 1;
};

class cpu_stream : public host_stream {
 public:
  cpu_stream(std::shared_ptr<executor> executor, std::size_t threads) : executor_(std::move(executor)), threads_(threads) {}
  template <class Context>
  requires requires(const Context& device) { device.executor(); }
  explicit cpu_stream(const Context& device) : cpu_stream(device.executor(), device.properties().threads) {}

  [[nodiscard]] std::size_t threads() const { return threads_; }
  [[nodiscard]] cpu_properties properties() const { return {threads_}; }

  /// task(part, worker) for every part; `worker` is below threads().
  template <class Task>
  void parallel(std::size_t parts, Task&& task) const {
    executor_->run(parts, threads_, task);
  }

  /// task(begin, end) for ranges that together are [0, n). Ranges are multiples of `grain` long and are cut the same way
  /// whatever the number of threads is, so that a sum per range is always the same sum.
  template <class Task>
  void parallel_ranges(std::size_t n, std::size_t grain, Task&& task) const {
    const std::size_t parts = (n + grain - 1) / grain;
    const auto part = [&](std::size_t p, std::size_t) { task(p * grain, std::min(n, (p + 1) * grain)); };
    executor_->run(parts, threads_, part);
  }

  void fill_zero(void* to, std::size_t bytes) const {
    parallel_ranges(bytes, std::size_t{1} << 20,
                    [&](std::size_t begin, std::size_t end) { std::memset(static_cast<char*>(to) + begin, 0, end - begin); });
  }

 private:
  std::shared_ptr<executor> executor_;
  std::size_t threads_;
};

}  // namespace xtrain
