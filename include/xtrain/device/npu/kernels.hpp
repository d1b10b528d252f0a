// The kernels that are composed of CANN's operators. Others run on the host.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <xtrain/device/npu/host_kernels.hpp>
#include <xtrain/device/npu/kernels/activation.hpp>
#include <xtrain/device/npu/kernels/attention.hpp>
#include <xtrain/device/npu/kernels/elementwise.hpp>
#include <xtrain/device/npu/kernels/embedding.hpp>
#include <xtrain/device/npu/kernels/loss.hpp>
#include <xtrain/device/npu/kernels/matmul.hpp>
#include <xtrain/device/npu/kernels/norm.hpp>
#include <xtrain/device/npu/kernels/optimizer.hpp>
#include <xtrain/device/npu/stream.hpp>

namespace xtrain {

namespace npu_kernels {

/// Kernels that have a composition.
template <class Kernel>
concept composed = requires(npu_sequence& sequence, const Kernel& kernel) { compose(sequence, kernel); };

[[nodiscard]] inline npu_operator_rules rules_of(const npu_properties& device) {
  return {device.generation == npu_generation::first ? npu_chip::first : npu_chip::second, device.cann, device.operators};
}

/// Whether the host must run a kernel though there is a composition: of what it asks for, of the chip, or of operators that are missing.
template <class Kernel>
[[nodiscard]] bool is_for_host(const npu_stream& stream, const Kernel& kernel, const npu_operator_rules& rules) {
  if (!stream.has_operators()) return true;
  if constexpr (requires { must_run_on_host(kernel); })
    if (must_run_on_host(kernel)) return true;
  if (stream.operators().is_complete() && rules.chip != npu_chip::first) return false;
  npu_sequence counted(rules, &stream.operators());
  compose(counted, kernel);
  return !counted.missing().empty();
}

}  // namespace npu_kernels

template <std::same_as<npu_stream> Stream, class Kernel>
requires npu_kernel_runs_on_host<Kernel> && npu_kernels::composed<Kernel>
void run_kernel(Stream& stream, const Kernel& kernel, scratch_span<npu_memory> scratch) {
  if (!stream.begin_kernel(kernel)) return;
  const npu_operator_rules rules = npu_kernels::rules_of(stream.properties());
  if (npu_kernels::is_for_host(stream, kernel, rules)) return stream.run_on_host(kernel);
  npu_sequence sequence(stream.operators(), rules, stream.queue(), Kernel::name, reinterpret_cast<std::uintptr_t>(scratch.raw()), scratch.size());
  npu_kernels::compose(sequence, kernel);
}

template <class Kernel>
requires npu_kernel_runs_on_host<Kernel> && npu_kernels::composed<Kernel>
[[nodiscard]] std::size_t scratch_bytes(const npu_properties& device, const Kernel& kernel) {
  const npu_operator_rules rules = npu_kernels::rules_of(device);
  npu_sequence counted(rules);
  npu_kernels::compose(counted, kernel);
  return counted.peak();
}

}  // namespace xtrain
