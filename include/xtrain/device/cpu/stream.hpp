// The cpu's stream: splits kernels into parts for an executor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include <xtrain/device/host.hpp>
#include <xtrain/device/host_threads.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#ifdef XTRAIN_CPU_LEVELS
#include <xtrain/device/cpu/levels.hpp>
#elif defined(XTRAIN_CPU_KERNELS)
#include <xtrain/device/cpu/compiled_once.hpp>
#endif

namespace xtrain {

/// Determines kernels' scratch memory.
struct cpu_properties {
  std::size_t threads = 1;
};

class cpu_stream : public host_stream {
 public:
  cpu_stream(std::shared_ptr<executor> executor, std::size_t threads) : executor_(std::move(executor)), threads_(threads) {}
  template <class Context>
  requires requires(const Context& device) { device.executor(); }
  explicit cpu_stream(const Context& device) : host_stream(device), executor_(device.executor()), threads_(device.properties().threads) {}

  [[nodiscard]] std::size_t threads() const { return threads_; }
  [[nodiscard]] cpu_properties properties() const { return {threads_}; }

  /// task(part, worker) for every part; `worker` is below threads().
  template <class Task>
  void parallel(std::size_t parts, Task&& task) const {
    executor_->run(parts, threads_, task);
  }

  /// task(begin, end) for ranges covering [0, n), beginning at multiples of `grain`, independent of the number of threads: a range's sum is always the same.
  template <class Task>
  void parallel_ranges(std::size_t n, std::size_t grain, Task&& task) const {
    const std::size_t parts = (n + grain - 1) / grain;
    const auto part = [&](std::size_t p, std::size_t) { task(p * grain, std::min(n, (p + 1) * grain)); };
    executor_->run(parts, threads_, part);
  }

  void copy_within(void* to, const void* from, std::size_t bytes) const {
    if (copy_is_counted(bytes)) return;
    parallel_ranges(bytes, bytes_per_part, [&](std::size_t begin, std::size_t end) {
      std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, end - begin);
    });
  }
  void fill_zero(void* to, std::size_t bytes) const {
    if (zeros_are_counted(bytes)) return;
    parallel_ranges(bytes, bytes_per_part,
                    [&](std::size_t begin, std::size_t end) { std::memset(static_cast<char*>(to) + begin, 0, end - begin); });
  }

 private:
  static constexpr std::size_t bytes_per_part = std::size_t{1} << 19;

  std::shared_ptr<executor> executor_;
  std::size_t threads_;
};

namespace cpu_kernels {

/// Overloads of run_native are this device's kernels, compiled for the flags' instructions.
template <class Kernel>
concept compiled_here = requires(cpu_stream& stream, const Kernel& kernel, scratch_span<host_memory> scratch) { run_native(stream, kernel, scratch); };
/// Kernels of levels.hpp or compiled_once.hpp.
#if defined(XTRAIN_CPU_LEVELS) || defined(XTRAIN_CPU_KERNELS)
template <class Kernel>
concept compiled_apart = listed<Kernel>;
#else
template <class Kernel>
concept compiled_apart = false;
#endif

}  // namespace cpu_kernels

template <class Kernel>
requires cpu_kernels::compiled_apart<Kernel> || cpu_kernels::compiled_here<Kernel>
void run_kernel(cpu_stream& stream, const Kernel& kernel, scratch_span<host_memory> scratch) {
#ifdef XTRAIN_CPU_LEVELS
  if constexpr (cpu_kernels::compiled_apart<Kernel>) return cpu_levels::functions_of<Kernel>().run(stream, kernel, scratch);
#elif defined(XTRAIN_CPU_KERNELS)
  if constexpr (cpu_kernels::compiled_apart<Kernel>) return cpu_kernels::compiled_once<Kernel>::run(stream, kernel, scratch);
#endif
  if constexpr (!cpu_kernels::compiled_apart<Kernel>) run_native(stream, kernel, scratch);
}

/// Scratch memory of a kernel compiled here, called by separately compiled kernels: run_kernel and scratch_bytes differ there.
template <class Kernel>
[[nodiscard]] std::size_t scratch_bytes_here(const cpu_properties& cpu, const Kernel& kernel) {
  if constexpr (requires { native_scratch_bytes(cpu, kernel); }) return native_scratch_bytes(cpu, kernel);
  else return 0;
}

template <class Kernel>
[[nodiscard]] std::size_t scratch_bytes(const cpu_properties& cpu, const Kernel& kernel) {
#ifdef XTRAIN_CPU_LEVELS
  if constexpr (cpu_kernels::compiled_apart<Kernel>) return cpu_levels::functions_of<Kernel>().scratch_bytes(cpu, kernel);
#elif defined(XTRAIN_CPU_KERNELS)
  if constexpr (cpu_kernels::compiled_apart<Kernel>) return cpu_kernels::compiled_once<Kernel>::scratch_bytes(cpu, kernel);
#endif
  if constexpr (!cpu_kernels::compiled_apart<Kernel>) return scratch_bytes_here(cpu, kernel);
}

/// Rows are known at this time.
template <class Kernel>
void run_native(cpu_stream& stream, const kernel::in_rows<Kernel, host_memory>& k, scratch_span<host_memory> scratch) {
  const auto first = static_cast<std::size_t>(k.range_2.raw()[0]), count = static_cast<std::size_t>(k.range_2.raw()[1]);
  if (count > 0 || kernel::writes_without_rows(k.whole)) run_kernel(stream, k.whole.rows(first, count, k.total), scratch);
}
template <class Kernel>
[[nodiscard]] std::size_t native_scratch_bytes(const cpu_properties& cpu, const kernel::in_rows<Kernel, host_memory>& k) {
  return scratch_bytes(cpu, k.whole);
}

}  // namespace xtrain
