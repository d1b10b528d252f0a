// The kernels that are composed of CANN's operators. Others run on the host.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <xtrain/device/npu/host_kernels.hpp>
#include <xtrain/device/npu/kernels/activation.hpp>
#include <xtrain/device/npu/kernels/attention.hpp>
#include <xtrain/device/npu/kernels/elementwise.hpp>
#include <xtrain/device/npu/kernels/embedding.hpp>
#include <xtrain/device/npu/kernels/experts.hpp>
#include <xtrain/device/npu/kernels/loss.hpp>
#include <xtrain/device/npu/kernels/matmul.hpp>
#include <xtrain/device/npu/kernels/norm.hpp>
#include <xtrain/device/npu/kernels/optimizer.hpp>
#include <xtrain/device/npu/kernels/quantized.hpp>
#include <xtrain/device/npu/kernels/sampling.hpp>
#include <xtrain/device/npu/kernels/split_loss.hpp>
#include <xtrain/device/npu/stream.hpp>

namespace xtrain {

namespace npu_kernels {

/// Kernels that have a composition.
template <class Kernel>
concept composed = requires(npu_sequence& sequence, const Kernel& kernel) { compose(sequence, kernel); };

[[nodiscard]] inline npu_operator_rules rules_of(const npu_properties& device) {
  return {device.generation == npu_generation::first ? npu_chip::first : npu_chip::second, device.cann, device.operators};
}

/// The same without fused operators.
[[nodiscard]] inline npu_operator_rules elementary(npu_operator_rules rules) {
  rules.settings.is_fused = false;
  return rules;
}
/// Whether the table and the chip have all operators of a kernel.
template <class Kernel>
[[nodiscard]] bool has_all(const npu_operators& operators, const Kernel& kernel, const npu_operator_rules& rules) {
  npu_sequence counted(rules, &operators);
  compose(counted, kernel);
  return counted.missing().empty();
}
/// The rules by which a kernel is composed: of elementary operators where a fused one is missing. None: the host must run it though there is a composition,
/// because of what it asks for, of the chip, or of operators that are missing.
template <class Kernel>
[[nodiscard]] std::optional<npu_operator_rules> rules_for(const npu_stream& stream, const Kernel& kernel) {
  if (!stream.has_operators()) return std::nullopt;
  if constexpr (requires { must_run_on_host(kernel); })
    if (must_run_on_host(kernel)) return std::nullopt;
  const npu_operator_rules rules = rules_of(stream.properties());
  if (stream.operators().is_complete() && rules.chip != npu_chip::first) return rules;
  if (has_all(stream.operators(), kernel, rules)) return rules;
  if (rules.has_fused() && has_all(stream.operators(), kernel, elementary(rules))) return elementary(rules);
  return std::nullopt;
}

}  // namespace npu_kernels

template <std::same_as<npu_stream> Stream, class Kernel>
requires npu_kernel_runs_on_host<Kernel> && npu_kernels::composed<Kernel>
void run_kernel(Stream& stream, const Kernel& kernel, scratch_span<npu_memory> scratch) {
  if (!stream.begin_kernel(kernel)) return;
  const std::optional<npu_operator_rules> rules = npu_kernels::rules_for(stream, kernel);
  if (!rules) return stream.run_on_host(kernel);
  npu_sequence sequence(stream.operators(), *rules, stream.queue(), Kernel::name, reinterpret_cast<std::uintptr_t>(scratch.raw()), scratch.size());
  npu_kernels::compose(sequence, kernel);
}

template <class Kernel>
requires npu_kernel_runs_on_host<Kernel> && npu_kernels::composed<Kernel>
[[nodiscard]] std::size_t scratch_bytes(const npu_properties& device, const Kernel& kernel) {
  const npu_operator_rules rules = npu_kernels::rules_of(device);
  const auto peak = [&](const npu_operator_rules& with) {
    npu_sequence counted(with);
    npu_kernels::compose(counted, kernel);
    return counted.peak();
  };
  // which operators there are is not known in a plan
  return rules.has_fused() ? std::max(peak(rules), peak(npu_kernels::elementary(rules))) : peak(rules);
}

}  // namespace xtrain
