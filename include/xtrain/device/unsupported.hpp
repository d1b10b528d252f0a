// What a device lacks, before a run: kernels of the library's list, and optional members. Nothing is opened and nothing runs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/text.hpp>
#include <xtrain/device/capture.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/kernel/kernel_list.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/device/prepared_kernels.hpp>

namespace xtrain {

/// By dtypes: "attention<float>", "in_rows<matmul<float, float>>".
struct unsupported_kernels {
  std::size_t known = 0;                    ///< kernels that were asked for: the library's list
  std::vector<std::string> missing{};       ///< the device cannot run them
  std::vector<std::string> fall_back{};     ///< with_host_fallback runs them on the host
  std::vector<std::string> members{};       ///< optional members that the device lacks, with what happens without them
};

namespace detail {

/// "kernel::in_rows<kernel::matmul<memory, bf16, float>, memory>" as in_rows<matmul<bf16, float>>
[[nodiscard]] inline std::string kernel_text(std::string_view type) {
  std::string text(type);
  for (const std::string_view word : {"kernel::", "memory, ", ", memory", "<memory>"})
    for (std::size_t at = 0; (at = text.find(word)) != std::string::npos;) text.erase(at, word.size());
  return text;
}

template <class Device, class Kernel>
void add_unsupported(unsupported_kernels& to, const char* type) {
  ++to.known;
  if constexpr (!runs_kernel<Device, Kernel>) {
    to.missing.push_back(kernel_text(type));
  } else if constexpr (requires { typename Device::stream::device_stream; }) {
    using own = typename Device::stream::device_stream;
    if constexpr (!requires(own& stream, const Kernel& kernel, scratch_span<typename Device::memory> scratch) { run_kernel(stream, kernel, scratch); })
      to.fall_back.push_back(kernel_text(type));
  }
}

}  // namespace detail

/// The dtypes are fp32, bf16 and fp16.
template <device Device>
[[nodiscard]] unsupported_kernels find_unsupported() {
  using memory = typename Device::memory;
  unsupported_kernels all;
#define XTRAIN_ASK(...) detail::add_unsupported<Device, __VA_ARGS__>(all, #__VA_ARGS__);
  XTRAIN_KERNEL_LIST(XTRAIN_ASK, memory)
  XTRAIN_ASK(kernel::sum<memory, float>)
  XTRAIN_ASK(kernel::sum<memory, bf16>)
  XTRAIN_ASK(kernel::sum<memory, fp16>)
  XTRAIN_ASK(kernel::adam_corrections<memory>)
  XTRAIN_ASK(kernel::step_gradient_scale<memory>)
  XTRAIN_ASK(kernel::update_step_scalars<memory>)
  XTRAIN_ASK(kernel::in_rows<kernel::matmul<memory, float, float>, memory>)
  XTRAIN_ASK(kernel::in_rows<kernel::matmul<memory, bf16, bf16>, memory>)
  XTRAIN_ASK(kernel::in_rows<kernel::matmul<memory, fp16, fp16>, memory>)
#undef XTRAIN_ASK
  const auto member = [&](bool there, const char* text) {
    if (!there) all.members.emplace_back(text);
  };
  if constexpr (!clause::memory_is_host_addressable<memory>) {
    member(clause::device_has_pinned_memory<Device>, "pinned memory: batches and results are in ordinary memory, and the host waits for copies");
    member(clause::device_runs_host_functions<Device>, "queue_host_function: collectives make the host wait");
    member(clause::device_marks_host_failures<Device>, "host_failure: a step whose messages failed may be half applied; load the last checkpoint");
    member(clause::device_prepares_kernels<Device>, "prepare: what a first launch needs happens in a capture");
  }
  member(clause::device_captures_work<Device>, "begin_capture: capture_steps is refused");
  member(clause::device_has_dry_run<Device>, "for_dry_run: the trainer compiles the model a second time");
  return all;
}

/// As a printable text: a line for the kernels, one for each that the device lacks or leaves to the host, and one for each member.
template <device Device>
[[nodiscard]] std::string describe_unsupported() {
  const unsupported_kernels all = find_unsupported<Device>();
  std::string text;
  const auto add = [&](const std::vector<std::string>& which, const auto&... what) {
    text += concat(Device::name, what..., which.empty() ? "\n" : ":\n");
    for (const std::string& one : which) text += concat("  ", one, "\n");
  };
  add(all.missing, " runs ", all.known - all.missing.size(), " of ", all.known, " kernels",
      all.missing.empty() ? "" : "; a model that needs one of these does not compile, unless the device is with_host_fallback of this one");
  if (!all.fall_back.empty()) add(all.fall_back, " leaves ", all.fall_back.size(), " kernels to the host");
  if (!all.members.empty()) add(all.members, " lacks optional members");
  if constexpr (requires { Device::limits; }) text += concat(Device::name, " has limits:\n", Device::limits);  // which depend on the one that is opened
  return text;
}

}  // namespace xtrain
