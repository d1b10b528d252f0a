// What a run needs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/train/concepts.hpp>

namespace xtrain {

/// A dry run of one step, without allocation.
///   throws  config_error when sizes and settings contradict each other
template <trainer_with_dry_run Trainer>
[[nodiscard]] dry_run plan(const typename Trainer::model_type::config_type& sizes, const typename Trainer::model_type::options& options,
                             const typename Trainer::config& settings, const typename Trainer::device::properties& properties) {
  return Trainer::run_dry(sizes, options, settings, properties);
}

/// Memory of a second model (reference_model, teacher_model, reward_scorer); dry_run::set_beside adds it to a run's plan.
template <second_model_with_dry_run Second>
[[nodiscard]] planned_memory plan(const typename Second::model_type::config_type& sizes, const typename Second::model_type::options& options,
                                  const typename Second::config& settings, const typename Second::device::properties& properties) {
  return Second::run_dry(sizes, options, settings, properties);
}

/// A table of parameters, memory by role, operations by kernel.
[[nodiscard]] inline std::string plan_text(const dry_run& plan) {
  const auto padded = [](std::string text, std::size_t width) {
    text.resize(std::max(text.size(), width), ' ');
    return text;
  };
  std::string text =
      concat("parameters     ", plan.parameters, " (", count_text(static_cast<double>(plan.parameters)), "), trainable ", plan.trained, "\n");
  text += "memory\n";
  const auto add_roles = [&](const planned_memory& memory, const char* indent) {
    for (std::size_t r = 0; r < memory_roles; ++r)
      if (const auto role = static_cast<memory_role>(r); memory.bytes[r] > 0)
        text += concat(indent, padded(std::string(name_of(role)), 13), bytes_text(memory.bytes[r]),
                       !memory.in_files.has(role) ? "\n" : memory.is_on_host ? " on the host\n" : " in a file\n");
  };
  add_roles(plan, "  ");
  for (const planned_beside& one : plan.beside) {
    if (one.memory.total() + one.memory.total_in_files() == 0) continue;
    text += concat("  ", one.name, "\n");
    add_roles(one.memory, "    ");
  }
  text += concat("  total        ", bytes_text(plan.total()), "\n");
  if (plan.total_in_files() > 0) text += concat(plan.is_on_host ? "  offloaded    " : "  in files     ", bytes_text(plan.total_in_files()), "\n");
  if (plan.total_host() > 0) text += concat("  host         ", bytes_text(plan.total_host()), "\n");
  text += concat("a step of ", plan.num_tokens, " tokens\n");
  text += concat("  operations   ", count_text(plan.record.operations()), "FLOP in ", plan.record.runs(), " kernels\n");
  for (const kernel_count& kernel : plan.record.kernels)
    if (kernel.operations > 0.001 * plan.record.operations())
      text += concat("    ", padded(std::string(kernel.name), 34), padded(concat(kernel.runs, " x"), 9), count_text(kernel.operations),
                     "FLOP\n");
  if (const traffic all = plan.sent.total(); all.messages > 0) {
    text += concat("  sent         ", bytes_text(all.bytes), " in ", all.messages, " messages\n");
    for (std::size_t r = 0; r < traffic_roles; ++r)
      if (const traffic& one = plan.sent.sent[r]; one.messages > 0)
        text += concat("    ", padded(std::string(name_of(static_cast<traffic_role>(r))), 34), padded(concat(one.messages, " x"), 9),
                       bytes_text(one.bytes), "\n");
  }
  return text;
}

/// throws memory_error, with the plan, above `limit` bytes
inline void require_fit(const dry_run& plan, std::size_t limit) {
  require<memory_error>(plan.total() <= limit, "memory: the run must fit ", bytes_text(limit), "; it needs ", bytes_text(plan.total()),
                        ":\n", plan_text(plan), "Lower micro_batch_size or seq_length, or choose another precision, recompute or adapter policy");
}

}  // namespace xtrain
