// Completes a device that lacks kernels: the missing ones run on the host, are counted, and are reported. A new device can
// then train from its first day and shows which kernel to write next.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/kernel/kernel.hpp>

namespace xtrain {

/// Runs of one kernel on the host instead of the device.
struct fallback_count {
  std::string_view kernel;
  std::size_t runs = 0;
  double seconds = 0;  // copies and host computation together
};

/// `Host` runs the kernels that `Device` lacks.
template <device Device, device Host = cpu>
struct with_host_fallback {
  static constexpr std::string_view name = Device::name;
  using memory = typename Device::memory;
  using properties = typename Device::properties;

  class context : public Device::context {
   public:
    explicit context(const typename Device::context& device)
        : Device::context(device), counts_(std::make_shared<std::vector<fallback_count>>()) {}
    context() : context(typename Device::context{}) {}

    /// Kernels that ran on the host, the most expensive first: the order in which to write them for the device.
    [[nodiscard]] std::vector<fallback_count> fallbacks() const {
      std::vector<fallback_count> counts = *counts_;
      std::sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
      return counts;
    }
    /// The same as a printable table; empty when the device ran everything itself.
    [[nodiscard]] std::string report() const {
      std::string text;
      for (const fallback_count& count : fallbacks())
        text += concat("  ", count.kernel, ": ", count.runs, " runs on the host, ", fixed(1e3 * count.seconds, 1), " ms\n");
      return text.empty() ? text : concat(name, " lacks kernels:\n", text);
    }
    void count(std::string_view kernel, double seconds) const {
      for (fallback_count& known : *counts_) {
        if (known.kernel != kernel) continue;
        ++known.runs;
        known.seconds += seconds;
        return;
      }
      counts_->push_back({kernel, 1, seconds});
    }

   private:
    std::shared_ptr<std::vector<fallback_count>> counts_;
  };

  class stream : public Device::stream {
   public:
    using device_stream = typename Device::stream;

    explicit stream(const context& device) : Device::stream(device), device_(device), host_stream_(host_) {}

    template <class Kernel>
    void run_kernel_on_host(const Kernel& kernel) {
      const auto begin = std::chrono::steady_clock::now();
      this->synchronize();
      std::vector<buffer<Host>> copies;
      const auto on_host = kernel::moved_to<typename Host::memory>(kernel, [&](const auto& operand) {
        using operand_type = std::remove_cvref_t<decltype(operand)>;
        using value = std::remove_const_t<typename operand_type::element_type>;
        if (operand.empty()) return device_span<value, typename Host::memory>{};
        const auto& copy = copies.emplace_back(host_, operand.bytes(), memory_role::workspace);
        const auto host = copy.template as<value>();
        this->copy_to_host(host.raw(), operand.raw(), operand.bytes());
        return host;
      });
      this->synchronize();
      const buffer<Host> scratch(host_, scratch_bytes(host_.properties(), on_host), memory_role::workspace);
      run_kernel(host_stream_, on_host, scratch.template as<std::byte>());
      host_stream_.synchronize();
      std::size_t next = 0;
      kernel::for_each_operand(kernel, [&](const auto& operand) {
        if (operand.empty()) return;
        const auto& copy = copies[next++];
        if constexpr (std::remove_cvref_t<decltype(operand)>::access != kernel::role::read)
          this->copy_from_host(operand.raw(), copy.template as<std::byte>().raw(), operand.bytes());
      });
      this->synchronize();
      device_.count(Kernel::name, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }

   private:
    context device_;
    typename Host::context host_{};
    typename Host::stream host_stream_;
  };
};

/// The device's own kernel is preferred; this overload takes all others.
template <class Stream, class Kernel, class Memory>
requires(!requires(typename Stream::device_stream & own, const Kernel& kernel, scratch_span<Memory> scratch) {
  run_kernel(own, kernel, scratch);
}) &&
    requires(Stream& stream, const Kernel& kernel) {
  stream.run_kernel_on_host(kernel);
}
void run_kernel(Stream& stream, const Kernel& kernel, scratch_span<Memory>) { stream.run_kernel_on_host(kernel); }

}  // namespace xtrain
