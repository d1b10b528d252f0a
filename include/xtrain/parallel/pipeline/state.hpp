#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/part.hpp>
#include <xtrain/comm/self.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/parallel/pipeline/schedule_cache.hpp>
#include <xtrain/parallel/pipeline/stages.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// Pipeline parallelism over the ranks of a run. Rank i has position i / (data · tensor · context) in its pipeline: neighbors in a pipeline communicate least,
/// so they are far apart.
struct pipeline_ranks {
  std::shared_ptr<transport> ranks{};            ///< null: one rank
  std::size_t data_parallel_size = 1;            ///< pipelines with the same weights and different sequences
  std::size_t tensor_parallel_size = 1;          ///< ranks per stage
  std::size_t context_parallel_size = 1;
  std::size_t expert_parallel_size = 1;          ///< adjacent among the ranks with the same shard of a stage's layers
  std::size_t shards = 0;                        ///< ranks per sharded copy (zero<Stage>); 0: all
  double expert_capacity = 0;                    ///< as in rank_layout
  bool expert_waits = false;                     ///< as in rank_layout
  std::size_t chunks = 1;                        ///< stages on each rank
  std::vector<std::size_t> stage_layers{};       ///< of each stage in order; empty: as equal as possible
  std::vector<std::size_t> micro_batch_sizes{};  ///< sequences of each micro-batch, if they differ
  std::shared_ptr<schedule_cache> cache{};       ///< for planning many ranks; null: each rank checks its schedule
};

namespace detail {

template <class Device, class Beside>
class pipeline_state {
 public:
  using stream_type = typename Device::stream;
  using beside_state = typename Beside::template state<Device>;
  static constexpr bool has_sequence_parallel = has_sequence_parallel_of<beside_state>;

  /// throws  config_error when ranks are not a multiple of data x tensor x context
  explicit pipeline_state(const pipeline_ranks& config) : pipeline_state(config, network_of(config)) {}

  // ---- members of every strategy ----

  [[nodiscard]] auto& data() { return beside_.data(); }
  [[nodiscard]] auto& tensor() { return beside_.tensor(); }
  [[nodiscard]] group& world() { return world_; }
  [[nodiscard]] tensor_shard layers() const requires requires(const beside_state& beside) { beside.layers(); } { return beside_.layers(); }
  [[nodiscard]] auto& context() requires requires(beside_state& beside) { beside.context(); } { return beside_.context(); }
  [[nodiscard]] auto sequence_shard() const requires requires(const beside_state& beside) { beside.sequence_shard(); } { return beside_.sequence_shard(); }
  [[nodiscard]] auto& experts() requires requires(beside_state& beside) { beside.experts(); } { return beside_.experts(); }
  [[nodiscard]] tensor_shard expert_shard() const requires requires(const beside_state& beside) { beside.expert_shard(); } { return beside_.expert_shard(); }
  template <class... Where>
  [[nodiscard]] auto& kept_rows(const Where&... where) { return beside_.kept_rows(where...); }
  template <class Context>
  [[nodiscard]] auto& temporary_rows(const Context& device) { return beside_.temporary_rows(device); }
  template <class... Sizes>
  [[nodiscard]] auto most_rows(const Sizes&... sizes) const { return beside_.most_rows(sizes...); }
  template <class... Where>
  [[nodiscard]] auto& queued_exchange(const Where&... where) { return beside_.queued_exchange(where...); }
  [[nodiscard]] shard_spec sharding() const { return beside_.sharding(); }

  template <class Store>
  void block_begins(stream_type& stream, Store& store, std::size_t block, block_visit visit) {
    beside_.block_begins(stream, store, block, visit);
  }
  template <class Store>
  void block_ends(stream_type& stream, Store& store, std::size_t block, block_visit visit) {
    beside_.block_ends(stream, store, block, visit);
  }
  template <class Store>
  void gradients_ready(stream_type& stream, Store& store, std::size_t block, bool last_of_step) {
    if (block == 0 && holds_table()) return;  // the head's part of the gradient is missing
    if (beside_.world().size() > 1) beside_.gradients_ready(stream, store, block, last_of_step);
  }
  template <class Store>
  void finish_gradients(stream_type& stream, Store& store) {
    if (holds_table()) {
      const auto gradient = store.gradient(table_);
      if (!gradient.empty()) ends_->all_reduce(stream, gradient, reduction::sum);
      if (beside_.world().size() > 1) beside_.gradients_ready(stream, store, 0, true);
    }
    beside_.finish_gradients(stream, store);
  }

  void reduce_losses(stream_type& stream, device_span<double, typename Device::memory> sums) {
    if (depth() > 1) numbers_.all_reduce(stream, sums, reduction::sum);
    beside_.reduce_losses(stream, sums);
  }
  /// Over all stages' gradients. A tied head's table is on two stages and counts once.
  template <class Store, class Squares, class Sum>
  void gradient_squares(stream_type& stream, Store& store, Squares&& squares, Sum sum_1) {
    const auto copy = store.sharding().gradients ? store.stored_gradients(0) : store.block_gradients(0).whole;
    const bool skips = holds_table() && position() != 0 && !copy.empty();
    const auto once = [&]<class Span>(std::span<const Span> all, Sum of_this_rank) {
      std::vector<Span> own(all.begin(), all.end());
      for (Span& span : own) {
        if (!skips || span.raw() < copy.raw() || span.raw() >= copy.raw() + copy.size()) continue;
        const std::size_t counted = std::min(span.size(), static_cast<std::size_t>(copy.raw() + copy.size() - span.raw()));
        span = span.subspan(counted, span.size() - counted);
      }
      std::erase_if(own, [](const Span& span) { return span.empty(); });
      squares(std::span<const Span>(own), of_this_rank);
    };
    beside_.gradient_squares(stream, store, once, sum_1);
    if (depth() > 1) numbers_.all_reduce(stream, sum_1, reduction::sum);
  }
  template <class Store>
  void weights_changed(stream_type& stream, Store& store) {
    beside_.weights_changed(stream, store);
  }

  /// Gathers a parameter's values on rank 0, from the rank of the first pipeline that has it.
  template <class Store, class Entry, class Span, class T>
  void collect(stream_type& stream, const Store& store, const Entry& entry, Span array, std::span<T> whole,
               std::optional<std::size_t> at = std::nullopt) {
    if (position() == rank_of_block(entry.block)) beside_.collect(stream, store, entry, array, whole, at);
    pass_to_first(entry, whole);
  }
  template <class Store, class Entry, class Span, class T>
  void collect_state(stream_type& stream, const Store& store, const Entry& entry, std::size_t first, Span own, std::span<T> whole) {
    if (position() == rank_of_block(entry.block)) beside_.collect_state(stream, store, entry, first, own, whole);
    pass_to_first(entry, whole);
  }
  template <class Entry>
  [[nodiscard]] bool writes_state(const Entry& entry, bool is_sharded) const {
    return position() == rank_of_block(entry.block) && beside_.writes_state(entry, is_sharded);
  }
  template <class Store, class Entry, class Span>
  void gather_pieces(stream_type& stream, const Store& store, const Entry& entry, Span array) {
    beside_.gather_pieces(stream, store, entry, array);
  }
  template <class Store, class Entry, class Span>
  void sum_pieces(stream_type& stream, const Store& store, const Entry& entry, Span array) {
    beside_.sum_pieces(stream, store, entry, array);
  }
  template <class Entry, class Span>
  void sum_tensor_shards(stream_type& stream, const Entry& entry, Span array) {
    beside_.sum_tensor_shards(stream, entry, array);
  }

  /// The first rank owns a table that is on two ranks.
  template <class Store, class Entry>
  [[nodiscard]] stored_range kept(const Store& store, const Entry& entry, std::size_t array_size) const {
    return position() == rank_of_block(entry.block) ? beside_.kept(store, entry, array_size) : stored_range{};
  }

  // ---- used by models ----

  /// Called by a model with its layers, before it allocates.
  ///   tied_table   the embedding table, if the head is tied to it
  ///   throws       config_error when stages and layers do not match
  void assign_blocks(std::size_t layers, parameter tied_table) {
    stages_ = stage_blocks(layers, depth() * chunks_given_, layers_given_);
    if (depth() == 1) stages_ = {{0, layers + 2}};  // one rank has a single stage
    if (depth() > 1) table_ = tied_table;
  }
  [[nodiscard]] bool holds_all() const { return depth() == 1; }
  template <class Entry>
  [[nodiscard]] bool holds(const Entry& entry) const {
    return rank_of_block(entry.block) == position() || (holds_table() && entry.group == table_.first());
  }

  // ---- used by the runner ----

  [[nodiscard]] std::size_t depth() const { return between_.size(); }
  [[nodiscard]] std::size_t position() const { return between_.rank(); }
  [[nodiscard]] std::size_t chunks() const { return stages_.size() / depth(); }
  [[nodiscard]] const block_range& blocks_of(std::size_t chunk) const { return stages_[chunk * depth() + position()]; }
  [[nodiscard]] bool is_first(std::size_t chunk) const { return blocks_of(chunk).first == 0; }
  [[nodiscard]] bool is_last(std::size_t chunk) const { return chunk + 1 == chunks() && position() + 1 == depth(); }
  [[nodiscard]] group& between() { return between_; }
  [[nodiscard]] const std::shared_ptr<schedule_cache>& cache() const { return cache_; }
  void add_up(std::span<double> sums) {
    if (depth() > 1) numbers_.all_reduce(sums, reduction::sum);
  }
  /// Sequences of each micro-batch of a step.
  ///   throws  config_error when configured sizes do not match in number or sum
  [[nodiscard]] std::vector<std::size_t> micro_batch_sizes(std::size_t batch, std::size_t accumulate) const {
    if (micro_batch_sizes_.empty()) return std::vector<std::size_t>(accumulate, batch);
    std::size_t sum = 0;
    for (const std::size_t rows : micro_batch_sizes_) {
      require<config_error>(rows > 0 && rows <= batch * accumulate - sum, "pipeline: micro-batch sizes must be given for ", accumulate,
                            " micro-batches of ", batch * accumulate, " sequences together, at least one each; given ", rows, " after ", sum);
      sum += rows;
    }
    require<config_error>(micro_batch_sizes_.size() == accumulate && sum == batch * accumulate, "pipeline: micro-batch sizes must be given for ", accumulate,
                          " micro-batches (gradient_accumulation_steps) of ", batch * accumulate,
                          " sequences together (micro_batch_size x gradient_accumulation_steps); given ", micro_batch_sizes_.size(), " with ", sum);
    return micro_batch_sizes_;
  }

  void steps_are_queued(std::size_t count) {
    beside_.steps_are_queued(count);
  }
  /// What this rank has sent between stages and in the strategy `Beside`.
  ///   throws  config_error while steps are queued
  template <class Visit>
  void visit_traffic(Visit&& visit) const {
    beside_.visit_traffic(visit);
    visit(traffic_role::pipeline_parallel, between_.sent());
    if (ends_) visit(traffic_role::tied_table, ends_->sent());
    for (const group* one : {&numbers_, &world_}) visit(traffic_role::scalars, one->sent());
  }

 private:
  /// Sends a gathered parameter from its owner in the first pipeline to rank 0.
  template <class Entry, class T>
  void pass_to_first(const Entry& entry, std::span<T> whole) {
    const std::size_t owner = rank_of_block(entry.block);
    if (owner == 0 || beside_.world().rank() != 0) return;
    if (position() == owner) numbers_.send(0, std::span<const T>(whole));
    else if (position() == 0) numbers_.receive(owner, whole);
  }
  /// A tied head's table is on the first rank and on the last.
  [[nodiscard]] bool holds_table() const { return table_.exists() && (position() == 0 || position() + 1 == depth()); }

  pipeline_state(const pipeline_ranks& config, const std::shared_ptr<transport>& network)
      : chunks_given_(config.chunks), layers_given_(config.stage_layers), micro_batch_sizes_(config.micro_batch_sizes), cache_(config.cache),
        beside_(beside_of(config, network)), world_(network, 0), between_(network, pipeline_members(config, network), 1),
        numbers_(network, pipeline_members(config, network), 2) {
    if (position() != 0 && position() + 1 != depth()) return;
    const std::vector<std::size_t> members = pipeline_members(config, network);
    if (depth() > 1) ends_.emplace(network, std::vector<std::size_t>{members.front(), members.back()}, 3);
  }

  static std::shared_ptr<transport> network_of(const pipeline_ranks& config) {
    const std::size_t ranks = config.ranks ? config.ranks->size() : 1;
    // prevents overflow of the product
    const bool small = std::max({config.data_parallel_size, config.tensor_parallel_size, config.context_parallel_size}) <= ranks;
    const std::size_t beside = ranks_beside(config);
    require<config_error>(small && beside > 0 && ranks % beside == 0,
                          "pipeline: ranks must be a multiple of data x tensor x context; given ", ranks,
                          " ranks, data ", config.data_parallel_size, ", tensor ", config.tensor_parallel_size, " and context ", config.context_parallel_size);
    constexpr std::size_t max_chunks = 4096;  // maximum layers of a model
    require<config_error>(config.chunks > 0 && config.chunks <= max_chunks, "pipeline: a rank must have between 1 and ", max_chunks,
                          " stages; given chunks ", config.chunks);
    return config.ranks ? config.ranks : one_rank();
  }
  static std::size_t ranks_beside(const pipeline_ranks& config) {
    return config.data_parallel_size * config.tensor_parallel_size * config.context_parallel_size;
  }
  static std::vector<std::size_t> pipeline_members(const pipeline_ranks& config, const std::shared_ptr<transport>& network) {
    std::vector<std::size_t> members;
    const std::size_t beside = ranks_beside(config);
    for (std::size_t rank = network->rank() % beside; rank < network->size(); rank += beside) members.push_back(rank);
    return members;
  }
  static typename Beside::config beside_of(const pipeline_ranks& config, const std::shared_ptr<transport>& network) {
    std::vector<std::size_t> members;
    const std::size_t beside = ranks_beside(config);
    for (std::size_t i = 0; i < beside; ++i) members.push_back(network->rank() / beside * beside + i);
    return {.ranks = std::make_shared<transport_part>(network, std::move(members), 8), .tensor_parallel_size = config.tensor_parallel_size,
            .context_parallel_size = config.context_parallel_size, .shards = config.shards, .expert_parallel_size = config.expert_parallel_size,
            .expert_capacity = config.expert_capacity, .expert_waits = config.expert_waits};
  }

  [[nodiscard]] std::size_t rank_of_block(std::size_t block) const {
    for (std::size_t s = 0; s < stages_.size(); ++s)
      if (stages_[s].has(block)) return s % depth();
    return depth();
  }

  std::size_t chunks_given_;
  std::vector<std::size_t> layers_given_, micro_batch_sizes_;
  std::shared_ptr<schedule_cache> cache_;
  std::vector<block_range> stages_;
  parameter table_;  // empty: the head is not tied
  beside_state beside_;
  group world_, between_, numbers_;
  std::optional<group> ends_;  // first and last rank
};

}  // namespace detail

}  // namespace xtrain
