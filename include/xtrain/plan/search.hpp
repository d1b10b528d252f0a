// Finds the fastest distribution of a model over devices: every mesh that fits is planned with a dry run, and its step time predicted.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/number.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/parallel/expert.hpp>
#include <xtrain/parallel/pipeline.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/mesh_plan.hpp>
#include <xtrain/plan/run_layout.hpp>

namespace xtrain {

/// What to search: how `devices` devices train a global batch of `rows` sequences of length `context`.
struct search_settings {
  std::size_t devices = 1;
  std::size_t rows = 1;                            ///< global batch: sequences of a step, on all devices together
  std::size_t context = 0;                         ///< sequence length; 0: the model's
  std::vector<std::size_t> batches{1, 2, 4, 8};    ///< micro-batch sizes to try
  std::vector<std::size_t> tensors{1, 2, 4, 8};    ///< tensor-parallel sizes to try; those larger than a node are skipped
  std::vector<std::size_t> contexts{1};            ///< context-parallel sizes to try
  std::vector<std::size_t> experts{1, 2, 4, 8};    ///< expert-parallel sizes to try, by strategies that have this axis
  std::vector<std::size_t> pipelines{};            ///< numbers of stages to try; empty: every divisor of the devices
  std::vector<std::size_t> chunks{1};              ///< numbers of stages per rank to try
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

  plan_search(const typename Model::config& sizes, const search_settings& settings, const machine& on, const properties& of_device)
      : sizes_(&sizes), settings_(settings), on_(&on), properties_(&of_device) {
    require_machine(on);
    require<config_error>(settings.devices > 0 && settings.rows > 0, "search: devices and rows must be at least 1; given ", settings.devices, " and ",
                          settings.rows);
    require_mesh({.mesh = {.data = settings.devices}, .rows = settings.devices}, on);
    (void)on.peak(number_traits<typename precision::compute>::name);
    if (settings_.context == 0) settings_.context = sizes.context;
    std::sort(settings_.batches.begin(), settings_.batches.end());
    needs_ = needs_of<Model>(sizes, settings_.context, of_device);
  }

  /// Plans every mesh that this strategy allows on the devices, and keeps those that fit.
  ///   shards   as in mesh_settings
  template <class Strategy>
  void search(std::size_t shards = 0) {
    for_each_mesh<Strategy>([&](const mesh_sizes& mesh) {
      const std::size_t others = mesh.data * mesh.expert;
      if (settings_.rows % others != 0 || !weights_fit(mesh, shards == 1 ? 0 : zero_stage_of<Strategy>)) return;
      for (const std::size_t chunks : settings_.chunks)
        for (const std::size_t batch : settings_.batches) {
          const mesh_settings one{.mesh = mesh, .shards = shards, .chunks = chunks, .rows = settings_.rows, .batch = batch, .context = settings_.context};
          if (batch > 0 && chunks > 0 && settings_.rows / others % batch == 0 && (chunks == 1 || mesh.pipeline > 1))
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
    for (const std::size_t tensor : settings_.tensors) {
      if (tensor > 1 ? tensor > on_->devices_per_node : divides_between_layers<Strategy>()) continue;
      for (const std::size_t context : divides_between_layers<Strategy>() ? one : settings_.contexts)
        for (const std::size_t expert : strategy_spreads_experts<Strategy> ? settings_.experts : one)
          for (std::size_t pipeline = 1; pipeline <= (has_stages<Strategy> ? std::min(settings_.devices, sizes_->layers) : 1); ++pipeline) {
            const std::size_t beside = tensor * context * expert * pipeline;
            if (beside == 0 || settings_.devices % beside != 0 || !is_tried<Strategy>(pipeline)) continue;
            visit({.data = settings_.devices / beside, .tensor = tensor, .pipeline = pipeline, .context = context, .expert = expert});
          }
    }
  }
  template <class Strategy>
  [[nodiscard]] bool is_tried(std::size_t pipeline) const {
    const auto& wanted = settings_.pipelines;
    return !has_stages<Strategy> || wanted.empty() || std::find(wanted.begin(), wanted.end(), pipeline) != wanted.end();
  }

  /// When no other rank has the same weights, strategies that differ only in what such ranks shard are the same.
  template <class Strategy>
  [[nodiscard]] bool is_there(const mesh_settings& s) const {
    return s.mesh.data * s.mesh.context == 1 && std::any_of(found_.begin(), found_.end(), [&](const found_plan& one) {
             const run_layout& at = one.layout;
             return at.mesh == s.mesh && at.chunks == s.chunks && one.batch == s.batch && at.between_layers == divides_between_layers<Strategy>() &&
                    (s.mesh.pipeline == 1 || at.schedule == schedule_of<Strategy>::make);
           });
  }

  /// Weights, gradients and optimizer state only: the mean over the ranks, which is never more than what a dry run finds.
  [[nodiscard]] bool weights_fit(const mesh_sizes& mesh, std::size_t stage) const {
    const auto alike = static_cast<double>(mesh.data * mesh.context), held = static_cast<double>(mesh.tensor * mesh.pipeline * mesh.expert);
    const double bytes = needs_.weights / (stage >= 3 ? alike : 1) + needs_.gradients / (stage >= 2 ? alike : 1) + needs_.optimizer / (stage >= 1 ? alike : 1);
    return bytes / held <= static_cast<double>(on_->memory);
  }

  /// False: it does not fit, and larger micro-batches would not either.
  template <class Strategy>
  [[nodiscard]] bool try_one(const mesh_settings& one) {
    try {
      found_plan found = plan_mesh_within<Model, Strategy>(on_->memory, needs_, *sizes_, one, *on_, *properties_, shelf_);
      if (found.bytes > on_->memory) return false;
      found_.push_back(found);
    } catch (const config_error&) {
      // heads, layers or micro-batches are not divisible this way
    }
    return true;
  }

  const typename Model::config* sizes_;
  search_settings settings_;
  const machine* on_;
  const properties* properties_;
  model_needs needs_;
  std::shared_ptr<schedule_shelf> shelf_ = std::make_shared<schedule_shelf>();
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
[[nodiscard]] std::vector<found_plan> search_plans(const typename Model::config& sizes, const search_settings& settings, const machine& on,
                                                   const typename Model::device::properties& properties) {
  detail::plan_search<Model> search(sizes, settings, on, properties);
  detail::search_each(search, Strategies{});
  return search.take();
}

/// The first `most` plans as a table. "8+s": eight tensor-parallel ranks with sequence parallelism. "4+r": four context-parallel ranks
/// with ring attention.
[[nodiscard]] inline std::string search_text(const std::vector<found_plan>& found, std::size_t most = 10) {
  if (found.empty()) return "nothing fits\n";
  const auto cell = [](std::string text, std::size_t width) {
    text.insert(0, width - std::min(width, text.size()), ' ');
    return text;
  };
  const auto any = [&](auto&& is) { return std::any_of(found.begin(), found.end(), [&](const found_plan& one) { return is(one.layout); }); };
  const bool context = any([](const run_layout& at) { return at.mesh.context > 1; }), expert = any([](const run_layout& at) { return at.mesh.expert > 1; });
  std::string text = concat("  data tensor", context ? " context" : "", expert ? " expert" : "",
                            " stages chunks  zero recompute  rows     x      memory      step  bubble        sent messages  tokens/s  of peak\n");
  for (std::size_t i = 0; i < std::min(most, found.size()); ++i) {
    const found_plan& one = found[i];
    const run_layout& at = one.layout;
    const traffic sent = one.sent.total();
    text += concat(cell(concat(at.mesh.data), 6), cell(concat(at.mesh.tensor, at.between_layers ? "+s" : ""), 7),
                   context ? cell(concat(at.mesh.context, at.ring ? "+r" : ""), 8) : std::string(), expert ? cell(concat(at.mesh.expert), 7) : std::string(),
                   cell(concat(at.mesh.pipeline), 7), cell(concat(at.chunks), 7),
                   cell(concat(at.zero_stage), 6), cell(std::string(one.recompute), 10), cell(concat(one.batch), 6), cell(concat(at.micro_batches), 6),
                   cell(bytes_text(one.bytes), 12), cell(concat(fixed(one.time.seconds, 2), " s"), 10),
                   cell(concat(fixed(100 * one.time.bubble / one.time.seconds, 1), " %"), 8), cell(bytes_text(sent.bytes), 12), cell(concat(sent.messages), 9),
                   cell(fixed(one.tokens_per_second, 0), 10), cell(concat(fixed(100 * one.share_of_peak, 1), " %"), 9), "\n");
  }
  return text;
}

}  // namespace xtrain
