// Finds the fastest distributions of a model. Every mesh that divides the devices is a layout: planned by a dry run, with predicted step time; or left out
// where a bound shows that it does not fit or is slower (layout_bounds.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/host_threads.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/parallel/expert.hpp>
#include <xtrain/parallel/pipeline.hpp>
#include <xtrain/parallel/pipeline/schedule_cache.hpp>
#include <xtrain/parallel/schedule/schedule.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/plan/layout_bounds.hpp>
#include <xtrain/plan/machine.hpp>
#include <xtrain/plan/mesh_plan.hpp>
#include <xtrain/plan/run_layout.hpp>
#include <xtrain/plan/search_progress.hpp>
#include <xtrain/train/concepts.hpp>

namespace xtrain {

/// The search space for `devices` devices.
struct search_settings {
  std::size_t devices = 1;
  std::size_t global_batch_size = 1;                           ///< sequences per step, all devices
  std::size_t seq_length = 0;                                  ///< in tokens; 0: max_position_embeddings
  std::vector<std::size_t> micro_batch_sizes{1, 2, 4, 8};      ///< per data-parallel rank
  std::vector<std::size_t> tensor_parallel_sizes{1, 2, 4, 8};  ///< values above a node's size are skipped
  std::vector<std::size_t> context_parallel_sizes{1};
  std::vector<std::size_t> expert_parallel_sizes{1, 2, 4, 8};  ///< for strategies with this axis
  std::vector<std::size_t> pipeline_parallel_sizes{};          ///< numbers of stages; empty: every divisor of the devices
  std::vector<std::size_t> chunks{1};                          ///< stages per rank
  std::function<bool(const run_layout&)> wanted{};             ///< layouts to search; empty: all
};

/// Strategies to try.
template <class... Strategy>
struct strategies {};
/// Without sharding over ranks with equal weights (zero<Stage>: data_parallel). No extra compilation.
template <class Strategy>
struct undivided {};
/// Data, tensor, context and pipeline parallelism, with and without sharded optimizer; without stages also sharded gradients and weights; sequence
/// parallelism.
using usual_strategies =
    strategies<undivided<pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, context_parallel>>>,
               pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, context_parallel>>,
               parallel<zero<2>, tensor_parallel, context_parallel>, parallel<zero<3>, tensor_parallel, context_parallel>,
               pipeline<one_forward_one_backward, parallel<zero<1>, sequence_parallel>>>;
/// Ring attention, for long sequences.
using ring_strategies = strategies<undivided<pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, ring_context_parallel>>>,
                                   pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, ring_context_parallel>>,
                                   parallel<zero<3>, tensor_parallel, ring_context_parallel>>;
/// For mixtures of experts.
using expert_strategies = strategies<pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, context_parallel, expert_parallel>>,
                                     parallel<zero<3>, tensor_parallel, context_parallel, expert_parallel>>;

namespace detail {

struct strategy_axes {
  bool has_stages = false, has_sequence_parallel = false, has_expert_parallel = false, ring = false;
  std::size_t shards = 0;  // as in mesh_settings
  pipeline_schedule (*schedule)(std::size_t, std::size_t, std::vector<std::size_t>) = nullptr;
};

class strategy_to_search {
 public:
  explicit strategy_to_search(const strategy_axes& of) : axes(of) {}
  virtual ~strategy_to_search() = default;

  [[nodiscard]] virtual run_layout layout(const mesh_settings& s) const = 0;
  /// throws  config_error when heads, layers or micro-batches are not divisible
  [[nodiscard]] virtual found_plan plan(std::size_t limit, const mesh_settings& s, const std::shared_ptr<schedule_cache>& cache) const = 0;
  /// A micro-batch with `layers` layers: see layer_samples.
  [[nodiscard]] virtual dry_run sample(const mesh_settings& s, std::size_t layers, std::size_t stage) const = 0;

  const strategy_axes axes;
};

struct model_to_search {
  std::size_t layers = 0, max_position_embeddings = 0;
  model_needs needs{};
  bool has_like_layers = false;
  std::string_view dtype{};  // of products
};

template <class Model, class Strategy>
class searched_strategy final : public strategy_to_search {
 public:
  using config_type = typename Model::config_type;
  using properties = typename Model::device::properties;

  searched_strategy(const strategy_axes& of, const config_type& sizes, const model_needs& needs, const machine& on, const properties& of_device)
      : strategy_to_search(of), sizes_(sizes), needs_(needs), on_(on), properties_(of_device) {}

  [[nodiscard]] run_layout layout(const mesh_settings& s) const override { return layout_on_mesh<Model, Strategy>(sizes_, s); }
  [[nodiscard]] found_plan plan(std::size_t limit, const mesh_settings& s, const std::shared_ptr<schedule_cache>& cache) const override {
    return plan_mesh_within<Model, Strategy>(limit, needs_, sizes_, s, on_, properties_, cache);
  }
  [[nodiscard]] dry_run sample(const mesh_settings& s, std::size_t layers, std::size_t stage) const override {
    config_type few = sizes_;
    few.num_layers = layers;
    const auto run_dry = [&](std::size_t micro_batches) { return run_dry_on_mesh<Model, Strategy>(few, s, stage, micro_batches, properties_, nullptr); };
    return micro_batch_of(run_dry(1), run_dry(2));
  }

 private:
  config_type sizes_;
  model_needs needs_;
  machine on_;
  properties properties_;
};

template <class Model>
[[nodiscard]] model_to_search describe_model(const typename Model::config_type& sizes, std::size_t context,
                                             const typename Model::device::properties& properties) {
  const auto with_layers = [&](std::size_t layers) {
    typename Model::config_type some = sizes;
    some.num_layers = layers;
    return run_dry_on_one<Model>(some, context, properties);
  };
  const dry_run all = run_dry_on_one<Model>(sizes, context, properties);
  model_to_search model{.layers = sizes.num_layers,
                        .max_position_embeddings = sizes.max_position_embeddings,
                        .needs = needs_of(all),
                        .dtype = dtype_traits<typename Model::recipe::precision::compute>::name};
  try {
    model.has_like_layers = sizes.num_layers == 1 || layers_are_alike(with_layers(1), with_layers(2), all, sizes.num_layers);
  } catch (const config_error&) {
    // settings per layer
  }
  return model;
}

template <class Strategy>
struct strategy_in_list {
  using type = Strategy;
  static constexpr std::size_t shards = 0;
};
template <class Strategy>
struct strategy_in_list<undivided<Strategy>> {
  using type = Strategy;
  static constexpr std::size_t shards = 1;
};

struct searched_layout {
  std::size_t model = 0, strategy = 0, sample = 0;
  mesh_settings settings{};
  run_layout layout{};
  layout_bound bound{};
};

}  // namespace detail

/// Optional columns of search_text.
struct search_columns {
  bool context = false, expert = false;
};

/// A search over layouts of one or more models: with and without recomputation, or with different strategies.
class layout_search {
 public:
  ///   threads  for planning; null: the process-wide pool
  ///   throws   config_error for an invalid machine
  explicit layout_search(machine on, std::shared_ptr<executor> threads = nullptr);

  /// Adds a model's layouts. Model sets family, precision, optimizer, recomputation and adapter; its strategy is ignored.
  ///   properties   of the dry-run device, for scratch memory
  ///   throws       config_error for invalid sizes or settings
  template <class Model, class Strategies = usual_strategies>
  void add(const typename Model::config_type& sizes, const search_settings& settings, const typename Model::device::properties& properties) {
    require_settings(settings);
    (void)on_.peak(dtype_traits<typename Model::recipe::precision::compute>::name);
    const std::size_t context = settings.seq_length == 0 ? sizes.max_position_embeddings : settings.seq_length;
    models_.push_back(detail::describe_model<Model>(sizes, context, properties));
    add_each<Model>(Strategies{}, sizes, settings, properties);
  }

  /// Layouts that divide devices and sequences; heads or layers may still not divide.
  [[nodiscard]] std::size_t layouts() const { return layouts_.size(); }

  /// The fastest `most` layouts that fit, fastest first, then in order of addition; independent of the number of threads.
  ///   most      0: all. Otherwise bounds leave out slower layouts, with the same result
  ///   watcher   is told the progress; may be null
  [[nodiscard]] std::vector<found_plan> run(std::size_t most = 0, search_observer* watcher = nullptr);
  /// The layout with least memory, even if it does not fit; none: no layout divides the model.
  [[nodiscard]] std::optional<found_plan> least_memory(search_observer* watcher = nullptr);

  /// Columns for all layouts that may fit: all tables of a search are alike.
  [[nodiscard]] search_columns columns() const;

  /// For tests: plans every layout; visit(layout, bound, plan), without a plan where the model does not divide.
  template <class Visit>
  void for_each_bound(Visit&& visit) {
    count_samples(nullptr);
    for (const detail::searched_layout& one : layouts_) visit(one.layout, one.bound, plan(one, ~std::size_t{0}));
  }

 private:
  class progress;
  struct caches_of_threads;
  using samples_key = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, std::size_t, bool, bool>;
  struct shared_samples {
    samples_key key;
    std::size_t whole = 0, stages = 0;  // strategies that make them, from 1; 0: none
    mesh_settings settings{};
  };

  static void require_settings(const search_settings& settings);

  template <class Model, class... Strategy>
  void add_each(strategies<Strategy...>, const typename Model::config_type& sizes, const search_settings& settings,
                const typename Model::device::properties& properties) {
    const std::size_t first = layouts_.size();
    std::vector<detail::searched_layout> unwanted;
    (add_one<Model, typename detail::strategy_in_list<Strategy>::type>(detail::strategy_in_list<Strategy>::shards, sizes, settings, properties, first,
                                                                       unwanted),
     ...);
  }
  template <class Model, class Strategy>
  void add_one(std::size_t shards, const typename Model::config_type& sizes, const search_settings& settings,
               const typename Model::device::properties& properties, std::size_t first, std::vector<detail::searched_layout>& unwanted) {
    using recipe = typename detail::model_on_mesh<Model, Strategy>::recipe;
    const detail::strategy_axes axes{.has_stages = detail::has_stages<Strategy>,
                                     .has_sequence_parallel = detail::has_sequence_parallel<Strategy>(),
                                     .has_expert_parallel = detail::strategy_spreads_experts<Strategy>,
                                     .ring = has_ring_attention<recipe>,
                                     .shards = shards,
                                     .schedule = detail::schedule_of<Strategy>::make};
    strategies_.push_back(std::make_unique<detail::searched_strategy<Model, Strategy>>(axes, sizes, models_.back().needs, on_, properties));
    add_layouts(settings, first, unwanted);
  }
  /// Adds the last strategy's layouts, except unwanted ones and repetitions from `first` on.
  void add_layouts(const search_settings& settings, std::size_t first, std::vector<detail::searched_layout>& unwanted);
  void add_layout(const mesh_settings& s, const search_settings& settings, std::size_t first, std::vector<detail::searched_layout>& unwanted);
  /// Mean of weights, gradients and optimizer state over the ranks: at most what a dry run finds.
  [[nodiscard]] bool weights_fit(const detail::searched_layout& one) const;
  void count_samples(progress* told);
  /// none: the model does not divide. Above `limit` bytes: memory only.
  [[nodiscard]] std::optional<found_plan> plan(const detail::searched_layout& one, std::size_t limit,
                                               const std::shared_ptr<schedule_cache>& cache = nullptr) const;

  machine on_;
  std::shared_ptr<executor> threads_;
  std::vector<detail::model_to_search> models_{};
  std::vector<std::unique_ptr<detail::strategy_to_search>> strategies_{};
  std::vector<detail::searched_layout> layouts_{};
  std::vector<shared_samples> samples_{};
  bool has_bounds_ = false;
};

/// Plans every layout; those that fit, fastest first. Arguments: layout_search::add.
///   most   as in layout_search::run
template <class Model, class Strategies = usual_strategies>
[[nodiscard]] std::vector<found_plan> search_plans(const typename Model::config_type& sizes, const search_settings& settings, const machine& on,
                                                   const typename Model::device::properties& properties, std::size_t most = 0) {
  layout_search search(on);
  search.add<Model, Strategies>(sizes, settings, properties);
  return search.run(most);
}

/// A table of the first `most` plans. "8+s": eight tensor-parallel ranks with sequence parallelism; "4+r": four context-parallel ranks with ring attention.
[[nodiscard]] std::string search_text(const std::vector<found_plan>& found, std::size_t most = 10, const search_columns& columns = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/plan/search_impl.hpp>
#endif
