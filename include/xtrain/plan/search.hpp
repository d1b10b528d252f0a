// Finds the fastest distribution of a model over devices: every mesh that fits is planned with a dry run, and its step time predicted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/parallel/expert.hpp>
#include <xtrain/parallel/pipeline.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/mesh_plan.hpp>
#include <xtrain/plan/run_layout.hpp>

namespace xtrain {

/// What to search: how `devices` devices train `global_batch_size` sequences of `seq_length` tokens per step.
struct search_settings {
  std::size_t devices = 1;
  std::size_t global_batch_size = 1;                           ///< sequences of a step, on all devices together
  std::size_t seq_length = 0;                                  ///< in tokens; 0: the model's max_position_embeddings
  std::vector<std::size_t> micro_batch_sizes{1, 2, 4, 8};      ///< to try, per data-parallel rank
  std::vector<std::size_t> tensor_parallel_sizes{1, 2, 4, 8};  ///< to try; those larger than a node are skipped
  std::vector<std::size_t> context_parallel_sizes{1};          ///< to try
  std::vector<std::size_t> expert_parallel_sizes{1, 2, 4, 8};  ///< to try, by strategies that have this axis
  std::vector<std::size_t> pipeline_parallel_sizes{};          ///< numbers of stages to try; empty: every divisor of the devices
  std::vector<std::size_t> chunks{1};                          ///< numbers of stages per rank to try
};

/// The strategies that a search tries.
template <class... Strategy>
struct strategies {};
/// One of them without sharding over ranks with the same weights: with zero<Stage>, this is data_parallel. It needs no extra compilation.
template <class Strategy>
struct undivided {};
/// Data, tensor, context and pipeline parallelism combined, with and without a sharded optimizer; without stages, also sharded gradients
/// and sharded weights; and sequence parallelism.
using usual_strategies =
    strategies<undivided<pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, context_parallel>>>,
               pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, context_parallel>>,
               parallel<zero<2>, tensor_parallel, context_parallel>, parallel<zero<3>, tensor_parallel, context_parallel>,
               pipeline<one_forward_one_backward, parallel<zero<1>, sequence_parallel>>>;
/// For long sequences: ring attention among the context-parallel ranks.
using ring_strategies = strategies<undivided<pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, ring_context_parallel>>>,
                                   pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, ring_context_parallel>>,
                                   parallel<zero<3>, tensor_parallel, ring_context_parallel>>;
/// For mixtures of experts: expert parallelism combined with tensor and context parallelism.
using expert_strategies = strategies<pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, context_parallel, expert_parallel>>,
                                     parallel<zero<3>, tensor_parallel, context_parallel, expert_parallel>>;

namespace detail {

template <class Model>
class plan_search {
 public:
  using properties = typename Model::device::properties;
  using precision = typename Model::recipe::precision;

  plan_search(const typename Model::config_type& sizes, const search_settings& settings, const machine& on, const properties& of_device)
      : sizes_(&sizes), settings_(settings), on_(&on), properties_(&of_device) {
    require_machine(on);
    require<config_error>(settings.devices > 0 && settings.global_batch_size > 0,
                          "search: devices and global_batch_size must be at least 1; given ", settings.devices, " and ",
                          settings.global_batch_size);
    require_mesh({.mesh = {.data_parallel_size = settings.devices}, .global_batch_size = settings.devices}, on);
    (void)on.peak(dtype_traits<typename precision::compute>::name);
    if (settings_.seq_length == 0) settings_.seq_length = sizes.max_position_embeddings;
    std::sort(settings_.micro_batch_sizes.begin(), settings_.micro_batch_sizes.end());
    needs_ = needs_of<Model>(sizes, settings_.seq_length, of_device);
  }

  /// Plans every mesh that this strategy allows on the devices, and keeps those that fit.
  ///   shards   as in mesh_settings
  template <class Strategy>
  void search(std::size_t shards = 0) {
    for_each_mesh<Strategy>([&](const mesh_sizes& mesh) {
      const std::size_t others = mesh.data_parallel_size * mesh.expert_parallel_size;
      if (settings_.global_batch_size % others != 0 || !weights_fit(mesh, shards == 1 ? 0 : zero_stage_of<Strategy>)) return;
      for (const std::size_t chunks : settings_.chunks)
        for (const std::size_t batch : settings_.micro_batch_sizes) {
          const mesh_settings one{.mesh = mesh,
                                  .shards = shards,
                                  .chunks = chunks,
                                  .global_batch_size = settings_.global_batch_size,
                                  .micro_batch_size = batch,
                                  .seq_length = settings_.seq_length};
          if (batch > 0 && chunks > 0 && settings_.global_batch_size / others % batch == 0 && (chunks == 1 || mesh.pipeline_parallel_size > 1))
            if (!is_there<Strategy>(one) && !try_one<Strategy>(one)) break;
        }
    });
  }

  [[nodiscard]] std::vector<found_plan> take() {
    std::stable_sort(found_.begin(), found_.end(), [](const found_plan& a, const found_plan& b) { return a.time.seconds < b.time.seconds; });
    return std::move(found_);
  }

 private:
  /// Calls visit(mesh) for every mesh of all devices that uses only axes of the strategy.
  template <class Strategy, class Visit>
  void for_each_mesh(Visit&& visit) const {
    static const std::vector<std::size_t> one{1};
    for (const std::size_t tensor : settings_.tensor_parallel_sizes) {
      if (tensor > 1 ? tensor > on_->devices_per_node : has_sequence_parallel<Strategy>()) continue;
      for (const std::size_t context : has_sequence_parallel<Strategy>() ? one : settings_.context_parallel_sizes)
        for (const std::size_t expert : strategy_spreads_experts<Strategy> ? settings_.expert_parallel_sizes : one)
          for (std::size_t pipeline = 1; pipeline <= (has_stages<Strategy> ? std::min(settings_.devices, sizes_->num_layers) : 1); ++pipeline) {
            const std::size_t beside = tensor * context * expert * pipeline;
            if (beside == 0 || settings_.devices % beside != 0 || !is_tried<Strategy>(pipeline)) continue;
            visit({.data_parallel_size = settings_.devices / beside,
                   .tensor_parallel_size = tensor,
                   .pipeline_parallel_size = pipeline,
                   .context_parallel_size = context,
                   .expert_parallel_size = expert});
          }
    }
  }
  template <class Strategy>
  [[nodiscard]] bool is_tried(std::size_t pipeline) const {
    const auto& wanted = settings_.pipeline_parallel_sizes;
    return !has_stages<Strategy> || wanted.empty() || std::find(wanted.begin(), wanted.end(), pipeline) != wanted.end();
  }

  /// When no other rank has the same weights, strategies that differ only in what such ranks shard are the same.
  template <class Strategy>
  [[nodiscard]] bool is_there(const mesh_settings& s) const {
    return s.mesh.data_parallel_size * s.mesh.context_parallel_size == 1 && std::any_of(found_.begin(), found_.end(), [&](const found_plan& one) {
             const run_layout& at = one.layout;
             return at.mesh == s.mesh && at.chunks == s.chunks && one.micro_batch_size == s.micro_batch_size &&
                    at.has_sequence_parallel == has_sequence_parallel<Strategy>() &&
                    (s.mesh.pipeline_parallel_size == 1 || at.schedule == schedule_of<Strategy>::make);
           });
  }

  /// Weights, gradients and optimizer state only: the mean over the ranks, which is never more than what a dry run finds.
  [[nodiscard]] bool weights_fit(const mesh_sizes& mesh, std::size_t stage) const {
    const auto alike = static_cast<double>(mesh.data_parallel_size * mesh.context_parallel_size),
               held = static_cast<double>(mesh.tensor_parallel_size * mesh.pipeline_parallel_size * mesh.expert_parallel_size);
    const double bytes = needs_.weights / (stage >= 3 ? alike : 1) + needs_.gradients / (stage >= 2 ? alike : 1) + needs_.optimizer / (stage >= 1 ? alike : 1);
    return bytes / held <= static_cast<double>(on_->memory);
  }

  /// False: it does not fit, and larger micro-batches would not either.
  template <class Strategy>
  [[nodiscard]] bool try_one(const mesh_settings& one) {
    try {
      found_plan found = plan_mesh_within<Model, Strategy>(on_->memory, needs_, *sizes_, one, *on_, *properties_, cache_);
      if (found.bytes > on_->memory) return false;
      found_.push_back(found);
    } catch (const config_error&) {
      // heads, layers or micro-batches are not divisible this way
    }
    return true;
  }

  const typename Model::config_type* sizes_;
  search_settings settings_;
  const machine* on_;
  const properties* properties_;
  model_needs needs_;
  std::shared_ptr<schedule_cache> cache_ = std::make_shared<schedule_cache>();
  std::vector<found_plan> found_;
};

template <class Strategy>
struct strategy_to_search {
  using type = Strategy;
  static constexpr std::size_t shards = 0;
};
template <class Strategy>
struct strategy_to_search<undivided<Strategy>> {
  using type = Strategy;
  static constexpr std::size_t shards = 1;
};
template <class Search, class... Strategy>
void search_each(Search& search, strategies<Strategy...>) {
  (search.template search<typename strategy_to_search<Strategy>::type>(strategy_to_search<Strategy>::shards), ...);
}

}  // namespace detail

/// All plans that fit, fastest first. Model sets family, precision, optimizer, recomputation and adapter; its own strategy is ignored.
///   properties   of the device in the dry run: its scratch memory is what is counted
///   throws       config_error when sizes or settings make no sense
template <class Model, class Strategies = usual_strategies>
[[nodiscard]] std::vector<found_plan> search_plans(const typename Model::config_type& sizes, const search_settings& settings, const machine& on,
                                                   const typename Model::device::properties& properties) {
  detail::plan_search<Model> search(sizes, settings, on, properties);
  detail::search_each(search, Strategies{});
  return search.take();
}

/// The first `most` plans as a table. "8+s": eight tensor-parallel ranks with sequence parallelism. "4+r": four context-parallel ranks
/// with ring attention.
[[nodiscard]] inline std::string search_text(const std::vector<found_plan>& found, std::size_t most = 10) {
  if (found.empty()) return "no layout fits\n";
  const auto cell = [](std::string text, std::size_t width) {
    text.insert(0, width - std::min(width, text.size()), ' ');
    return text;
  };
  const auto any = [&](auto&& is) { return std::any_of(found.begin(), found.end(), [&](const found_plan& one) { return is(one.layout); }); };
  const bool context = any([](const run_layout&at) { return at.mesh.context_parallel_size > 1; }),
             expert = any([](const run_layout&at) { return at.mesh.expert_parallel_size > 1; });
  std::string text = concat("  data tensor", context ? " context" : "", expert ? " expert" : "",
                            " stages chunks  zero recompute batch     x      memory      step  bubble        sent messages  tokens/s  of peak\n");
  for (std::size_t i = 0; i < std::min(most, found.size()); ++i) {
    const found_plan& one = found[i];
    const run_layout& at = one.layout;
    const traffic sent = one.sent.total();
    text += concat(
        cell(concat(at.mesh.data_parallel_size), 6), cell(concat(at.mesh.tensor_parallel_size, at.has_sequence_parallel ? "+s" : ""), 7),
        context ? cell(concat(at.mesh.context_parallel_size, at.ring ? "+r" : ""), 8) : std::string(),
        expert ? cell(concat(at.mesh.expert_parallel_size), 7) : std::string(), cell(concat(at.mesh.pipeline_parallel_size), 7),
        cell(concat(at.chunks), 7), cell(concat(at.zero_stage), 6), cell(std::string(one.recompute), 10),
        cell(concat(one.micro_batch_size), 6), cell(concat(at.micro_batches), 6), cell(bytes_text(one.bytes), 12),
        cell(concat(fixed(one.time.seconds, 2), " s"), 10), cell(concat(fixed(100 * one.time.bubble / one.time.seconds, 1), " %"), 8),
        cell(bytes_text(sent.bytes), 12), cell(concat(sent.messages), 9), cell(fixed(one.tokens_per_second, 0), 10),
        cell(concat(fixed(100 * one.share_of_peak, 1), " %"), 9), "\n");
  }
  return text;
}

}  // namespace xtrain
