// Definitions of layout_bounds.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/library.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/parallel/pipeline.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/plan/layout_bounds.hpp>
#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/predict.hpp>
#include <xtrain/plan/run_layout.hpp>
#include <xtrain/train/concepts.hpp>

namespace xtrain::detail {

inline void add_kernels(dry_record& to, const dry_record& one, const dry_record& two, std::size_t times) {
  for (const kernel_count& kernel : two.kernels) {
    const kernel_count before = one.of(kernel.name);
    auto found = std::find_if(to.kernels.begin(), to.kernels.end(), [&](const kernel_count& other) { return other.name == kernel.name; });
    if (found == to.kernels.end()) found = to.kernels.insert(found, {.name = kernel.name});
    found->runs += (kernel.runs - before.runs) * times;
    found->operations += (kernel.operations - before.operations) * static_cast<double>(times);
    found->bytes += (kernel.bytes - before.bytes) * static_cast<double>(times);
  }
}

XTRAIN_INLINE dry_run micro_batch_of(dry_run one, const dry_run& two) {
  dry_record record = one.update;
  add_kernels(record, one.record, two.record, 1);
  one.record = std::move(record);
  for (std::size_t r = 0; r < traffic_roles; ++r) one.sent.sent[r] = two.sent.sent[r].since(one.sent.sent[r]);
  return one;
}

XTRAIN_INLINE dry_run with_more_layers(dry_run base, const dry_run& one, const dry_run& two, std::size_t more) {
  if (more == 0) return base;
  for (std::size_t r = 0; r < memory_roles; ++r) base.bytes[r] += (std::max(two.bytes[r], one.bytes[r]) - one.bytes[r]) * more;
  add_kernels(base.record, one.record, two.record, more);
  add_kernels(base.update, one.update, two.update, more);
  for (std::size_t r = 0; r < traffic_roles; ++r) base.sent.sent[r] += two.sent.sent[r].since(one.sent.sent[r]).times(more);
  base.parameters += (two.parameters - one.parameters) * more;
  return base;
}

XTRAIN_INLINE bool layers_are_alike(const dry_run& one, const dry_run& two, const dry_run& all, std::size_t layers) {
  const dry_run expected = with_more_layers(one, one, two, layers - 1);
  if (expected.bytes != all.bytes || expected.parameters != all.parameters || expected.record.kernels.size() != all.record.kernels.size()) return false;
  return std::all_of(all.record.kernels.begin(), all.record.kernels.end(), [&](const kernel_count& kernel) {
    const kernel_count found = expected.record.of(kernel.name);
    const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-9 * std::max(a, b); };  // sums in another order
    return found.runs == kernel.runs && near(found.operations, kernel.operations) && near(found.bytes, kernel.bytes);
  });
}

/// Of a rank with `slots` micro-batches in flight.
[[nodiscard]] inline std::size_t least_bytes(dry_run rank, const run_layout& layout, std::size_t slots) {
  const std::size_t alike = layout.mesh.data_parallel_size * layout.mesh.context_parallel_size;
  const auto shared = [&](memory_role role, std::size_t from_stage) {
    if (layout.zero_stage >= from_stage) rank.bytes[static_cast<std::size_t>(role)] /= alike;
  };
  shared(memory_role::optimizer, 1);
  shared(memory_role::gradients, 2);
  shared(memory_role::weights, 3);
  rank.bytes[static_cast<std::size_t>(memory_role::stash)] *= slots;
  return rank.total();
}

[[nodiscard]] inline bool is_in_order(const run_layout& layout) { return layout.chunks == 1 && layout.schedule == one_forward_one_backward::make; }

/// Time of all forwards and backwards.
///   spent   of the first, a middle (if any) and the last pipeline rank
[[nodiscard]] inline double least_seconds(const std::vector<rank_seconds>& spent, const run_layout& layout) {
  const std::size_t p = layout.mesh.pipeline_parallel_size, m = layout.micro_batches;
  const auto work = [&](std::size_t rank) {
    const rank_seconds& of = rank == 0 ? spent.front() : rank + 1 == p ? spent.back() : spent[1];
    return (of.passes + of.layers) / static_cast<double>(m);
  };
  const double message = 2 * (spent.front().message + spent.front().message_latency);
  double most = 0, before = 0, behind = 0;  // of earlier and later ranks, per micro-batch
  for (std::size_t rank = 1; rank < p; ++rank) behind += work(rank) + message;
  for (std::size_t rank = 0; rank < p; ++rank) {
    const double own = work(rank);
    double seconds = static_cast<double>(m) * own;
    if (is_in_order(layout)) {
      seconds += before;
      if (const std::size_t k = p - 1 - rank; m >= k + 2) {
        const double forwards = static_cast<double>(k) * own * layout.forward_share, backwards = static_cast<double>(k) * own - forwards;
        seconds += std::max(0.0, behind - forwards) + std::max(0.0, behind - backwards);
      }
    }
    most = std::max(most, seconds);
    before += own + message;
    if (rank + 1 < p) behind -= work(rank + 1) + message;
  }
  return most;
}

XTRAIN_INLINE layout_bound bound_of(const layer_samples& samples, const run_layout& layout, std::size_t layers, const machine& on, std::string_view dtype) {
  const std::size_t p = layout.mesh.pipeline_parallel_size;
  std::vector<dry_run> ranks;
  if (p == 1) {
    ranks.push_back(with_more_layers(samples.whole, samples.whole, samples.whole_two, layers - 1));
  } else {
    const std::vector<std::size_t> split = equal_layers(layers, p * layout.chunks);
    const auto more_of = [&](std::size_t rank) {
      std::size_t all = 0;
      for (std::size_t chunk = 0; chunk < layout.chunks; ++chunk) all += split[chunk * p + rank];
      return all - 1;
    };
    ranks.push_back(with_more_layers(samples.first, samples.first, samples.first_two, more_of(0)));
    if (p > 2) ranks.push_back(with_more_layers({}, samples.first, samples.first_two, more_of(1) + 1));
    ranks.push_back(with_more_layers(samples.last, samples.first, samples.first_two, more_of(p - 1)));
  }
  layout_bound bound;
  const std::size_t in_flight = layout.chunks == 1 ? 1 : 0;  // with several chunks a micro-batch in flight holds one: not counted
  bound.bytes = std::max(least_bytes(ranks.front(), layout, is_in_order(layout) ? std::min(p, layout.micro_batches) : in_flight),
                         least_bytes(ranks.back(), layout, in_flight));
  std::vector<rank_seconds> spent;
  double update = 0;
  for (const dry_run& rank : ranks) {
    spent.emplace_back(rank, 1, layout, on, dtype);
    if (layout.zero_stage == 0) update = std::max(update, spent.back().update);
  }
  bound.seconds = (least_seconds(spent, layout) + update) * (1 - 1e-9);  // a prediction sums in another order
  return bound;
}

}  // namespace xtrain::detail
