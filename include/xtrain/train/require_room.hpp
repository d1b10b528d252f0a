#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/device/host.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/train/concepts.hpp>

namespace xtrain::detail {

/// Sequences of one step, and of the next, which are prefetched.
[[nodiscard]] inline double bytes_of_batches(std::size_t micro_batch_size, std::size_t gradient_accumulation_steps, std::size_t seq_length) {
  const double micro_batches = static_cast<double>(gradient_accumulation_steps),
               num_tokens = static_cast<double>(micro_batch_size) * static_cast<double>(seq_length);
  return 2.0 * micro_batches * (4.0 * static_cast<double>(sizeof(token)) * num_tokens + static_cast<double>(sizeof(host_batch) + sizeof(batch_view)));
}

/// Checked before a plan can be made; require_room() adds everything else.
///   throws  memory_error
inline void require_host_room(std::size_t micro_batch_size, std::size_t gradient_accumulation_steps, std::size_t seq_length) {
  const double bytes = bytes_of_batches(micro_batch_size, gradient_accumulation_steps, seq_length);
  constexpr double never_much = 1 << 26;
  if (bytes < never_much) return;
  const std::size_t available = host_memory_available();
  require<memory_error>(bytes <= static_cast<double>(available), "memory: the global batch must fit the host's ", bytes_text(available),
                        "; micro_batch_size ", micro_batch_size, " x gradient_accumulation_steps ", gradient_accumulation_steps,
                        " sequences of ", seq_length, " tokens need ", count_text(bytes), "B");
}

/// Checks that the whole run fits, device and host.
///   on       the model's context; weights are allocated already
///   throws   memory_error, with the sizes
template <class Device>
void require_room(const dry_run& plan, const typename Device::context& on) {
  const std::size_t limit = on.memory_limit();
  const std::size_t used = on.memory().total_now;
  const std::size_t there = plan.in_files.has(memory_role::weights) ? 0 : plan.of(memory_role::weights);
  const std::size_t more = plan.total() - there;
  if (used <= limit && more <= limit - used) {
    // with a ulimit: measured when the device was opened, before allocations
    const std::size_t here = clause::memory_is_host_addressable<typename Device::memory> ? limit : 0;
    return require_host_fit<Device>(plan, used > there ? used - there : 0, std::max(host_memory_available(), here));
  }
  std::string roles;
  for (std::size_t r = 0; r < memory_roles; ++r)
    if (plan.bytes[r] > 0 && !plan.in_files.has(static_cast<memory_role>(r)))
      roles += concat(roles.empty() ? "" : ", ", name_of(static_cast<memory_role>(r)), " ", bytes_text(plan.bytes[r]));
  fail<memory_error>("memory: the run must fit ", bytes_text(limit), "; it needs ", bytes_text(plan.total()), " (", roles, "), and ",
                     bytes_text(used),
                     " are in use now. Lower micro_batch_size or seq_length, or choose another precision, recompute or adapter policy");
}

}  // namespace xtrain::detail
