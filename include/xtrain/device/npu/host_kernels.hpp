// Kernels that no operator of the NPU computes: the host runs them in the order of the stream, on copies in pinned memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/kernel/kernel.hpp>
#include <xtrain/device/npu/stream.hpp>

namespace xtrain {

namespace detail {

/// Of one stream. Its memory is used again by each kernel: the stream's order keeps them apart.
class npu_host_kernels {
 public:
  explicit npu_host_kernels(std::shared_ptr<npu_state> state) : state_(std::move(state)), stream_(host_) {}
  ~npu_host_kernels() {
    if (memory_ != nullptr) state_->release_pinned(memory_);
  }
  npu_host_kernels(const npu_host_kernels&) = delete;
  npu_host_kernels& operator=(const npu_host_kernels&) = delete;

  [[nodiscard]] cpu_properties properties() const { return host_.properties(); }
  [[nodiscard]] bool has(std::size_t bytes) const { return bytes <= bytes_; }
  /// What is queued no longer uses the memory.
  void grow(std::size_t bytes) {
    if (memory_ != nullptr) state_->release_pinned(memory_);
    memory_ = nullptr;
    bytes_ = 0;
    memory_ = static_cast<std::byte*>(state_->allocate_pinned(std::max<std::size_t>(bytes, std::size_t{1} << 16)));
    bytes_ = std::max<std::size_t>(bytes, std::size_t{1} << 16);
  }
  [[nodiscard]] std::byte* at(std::size_t offset) const { return memory_ + offset; }
  template <class Kernel>
  void run(const Kernel& kernel, scratch_span<host_memory> scratch) {
    const auto begin = std::chrono::steady_clock::now();
    run_kernel(stream_, kernel, scratch);
    state_->count_host_run(Kernel::name, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }

 private:
  std::shared_ptr<npu_state> state_;
  cpu::context host_{};
  cpu::stream stream_;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The kernel with operands in host memory.
template <class Kernel, class Place>
[[nodiscard]] auto on_host_memory(const Kernel& kernel, Place&& place) {
  return kernel::moved_to<host_memory>(kernel, [&](const auto& operand) {
    using value = std::remove_const_t<typename std::remove_cvref_t<decltype(operand)>::element_type>;
    if (operand.empty()) return device_span<value, host_memory>{};
    return span_of<value, host_memory>(reinterpret_cast<value*>(place(operand.bytes())), operand.size());
  });
}

}  // namespace detail

/// Whether the host can run it.
template <class Kernel>
concept npu_kernel_runs_on_host = runs_kernel<cpu, typename Kernel::template on<host_memory>>;

template <class Kernel>
void npu_stream::run_on_host(const Kernel& kernel) {
  if (!host_kernels_) host_kernels_ = std::make_shared<detail::npu_host_kernels>(state_);
  detail::npu_host_kernels& host = *host_kernels_;
  const auto rounded = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  std::vector<std::size_t> offsets;
  std::size_t all = 0;
  const auto without_place = detail::on_host_memory(kernel, [&](std::size_t bytes) {
    offsets.push_back(all);
    all += rounded(bytes);
    return reinterpret_cast<std::byte*>(std::uintptr_t{4096});  // sizes alone matter
  });
  const std::size_t scratch = scratch_bytes(host.properties(), without_place);
  if (!host.has(all + scratch)) {
    synchronize();
    host.grow(all + scratch);
  }
  std::size_t next = 0;
  const auto on_host = detail::on_host_memory(kernel, [&](std::size_t) { return host.at(offsets[next++]); });
  next = 0;
  kernel::for_each_operand(kernel, [&](const auto& operand) {
    if (!operand.empty()) copy_to_host(host.at(offsets[next++]), operand.raw(), operand.bytes());
  });
  queue_host_function([runner = host_kernels_, on_host, with = span_of<std::byte, host_memory>(host.at(all), scratch)] { runner->run(on_host, with); });
  next = 0;
  kernel::for_each_operand(kernel, [&](const auto& operand) {
    if (operand.empty()) return;
    const std::byte* const copy = host.at(offsets[next++]);
    if constexpr (std::remove_cvref_t<decltype(operand)>::access != kernel::role::read) copy_from_host(operand.raw(), copy, operand.bytes());
  });
}

}  // namespace xtrain
