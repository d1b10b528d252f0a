// Finds the fastest distributions of a model over devices. Every mesh that divides them is a layout: it is planned with a dry run, and its step time
// predicted; or left out, where a bound shows that it does not fit, or that others are faster (layout_bounds.hpp).
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
  std::function<bool(const run_layout&)> wanted{};             ///< layouts to search; empty: all
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

/// What a search knows of a strategy.
struct strategy_axes {
  bool has_stages = false, has_sequence_parallel = false, has_expert_parallel = false, ring = false;
  std::size_t shards = 0;  // as in mesh_settings
  pipeline_schedule (*schedule)(std::size_t, std::size_t, std::vector<std::size_t>) = nullptr;
};

/// A model under one strategy.
class strategy_to_search {
 public:
  explicit strategy_to_search(const strategy_axes& of) : axes(of) {}
  virtual ~strategy_to_search() = default;

  [[nodiscard]] virtual run_layout layout(const mesh_settings& s) const = 0;
  /// throws  config_error when heads, layers or micro-batches are not divisible this way
  [[nodiscard]] virtual found_plan plan(std::size_t limit, const mesh_settings& s, const std::shared_ptr<schedule_cache>& cache) const = 0;
  /// A micro-batch through a model with `layers` layers: see layer_samples.
  [[nodiscard]] virtual dry_run sample(const mesh_settings& s, std::size_t layers, std::size_t stage) const = 0;

  const strategy_axes axes;
};

/// A model in a search.
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
    // settings say something of every layer
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

/// One layout, and what is known of it.
struct searched_layout {
  std::size_t model = 0, strategy = 0, sample = 0;
  mesh_settings settings{};
  run_layout layout{};
  layout_bound bound{};
};

}  // namespace detail

/// Columns of search_text that it has also where no line needs them.
struct search_columns {
  bool context = false, expert = false;
};

/// A search over the layouts of one or several models: the same model with and without recomputation, or with different strategies.
class layout_search {
 public:
  ///   threads  that plan; null: the process-wide pool
  ///   throws   config_error when the machine makes no sense
  explicit layout_search(machine on, std::shared_ptr<executor> threads = nullptr);

  /// Adds the layouts of a model. Model sets family, precision, optimizer, recomputation and adapter; its own strategy is ignored.
  ///   properties   of the device in the dry run: its scratch memory is what is counted
  ///   throws       config_error when sizes or settings make no sense
  template <class Model, class Strategies = usual_strategies>
  void add(const typename Model::config_type& sizes, const search_settings& settings, const typename Model::device::properties& properties) {
    require_settings(settings);
    (void)on_.peak(dtype_traits<typename Model::recipe::precision::compute>::name);
    const std::size_t context = settings.seq_length == 0 ? sizes.max_position_embeddings : settings.seq_length;
    models_.push_back(detail::describe_model<Model>(sizes, context, properties));
    add_each<Model>(Strategies{}, sizes, settings, properties);
  }

  /// Layouts that divide devices and sequences; some may turn out not to divide heads or layers.
  [[nodiscard]] std::size_t layouts() const { return layouts_.size(); }

  /// The fastest `most` layouts that fit, fastest first; of equally fast ones, those added first. The result does not depend on the number of threads.
  ///   most      0: all. Otherwise, layouts that bounds show not to be among them are not planned; the result is the same
  ///   watcher   is told of the progress; may be null
  [[nodiscard]] std::vector<found_plan> run(std::size_t most = 0, search_observer* watcher = nullptr);
  /// The layout that needs least memory, whether it fits or not; none if no layout divides the model.
  [[nodiscard]] std::optional<found_plan> least_memory(search_observer* watcher = nullptr);

  /// Columns for the axes of all layouts that may fit, so that tables of one search have the same columns, however many lines they have.
  [[nodiscard]] search_columns columns() const;

  /// Plans every layout, and calls visit(layout, bound, plan): for tests. There is no plan of a layout that does not divide the model.
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
    std::size_t whole = 0, stages = 0;  // strategies that make them, counted from 1; 0: none
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
  /// Adds the layouts of the last strategy, unless those from `first` on have them, or those that are not wanted.
  void add_layouts(const search_settings& settings, std::size_t first, std::vector<detail::searched_layout>& unwanted);
  void add_layout(const mesh_settings& s, const search_settings& settings, std::size_t first, std::vector<detail::searched_layout>& unwanted);
  /// Weights, gradients and optimizer state only: the mean over the ranks, which is never more than what a dry run finds.
  [[nodiscard]] bool weights_fit(const detail::searched_layout& one) const;
  void count_samples(progress* told);
  /// none: it does not divide the model. Its memory only, if this is more than `limit`.
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

/// All plans that fit, fastest first: every layout is planned. See layout_search::add for the arguments.
///   most   as in layout_search::run
template <class Model, class Strategies = usual_strategies>
[[nodiscard]] std::vector<found_plan> search_plans(const typename Model::config_type& sizes, const search_settings& settings, const machine& on,
                                                   const typename Model::device::properties& properties, std::size_t most = 0) {
  layout_search search(on);
  search.add<Model, Strategies>(sizes, settings, properties);
  return search.run(most);
}

/// The first `most` plans as a table. "8+s": eight tensor-parallel ranks with sequence parallelism. "4+r": four context-parallel ranks
/// with ring attention.
[[nodiscard]] std::string search_text(const std::vector<found_plan>& found, std::size_t most = 10, const search_columns& columns = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/plan/search_impl.hpp>
#endif
