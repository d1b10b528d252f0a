// Hooks around every block for ranks with the same weights: reduces gradients and gathers sharded weights on a side stream. zero.hpp has the strategies.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/self.hpp>
#include <xtrain/comm/side_stream.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/pinned_pipe.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/parallel/rank_layout.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain::detail {

enum class zero_stage : std::uint8_t { replicated, optimizer_state, gradients, parameters };

struct begun_work {
  std::size_t until = 0;  // side-stream items that must be done
  bool adds = false;      // add the result to this rank's stored gradients
  bool is_open = false;   // the block's window has unreduced gradients
};

template <class Device, zero_stage Stage, sharded_axes Axes>
class zero_state {
 public:
  using stream_type = typename Device::stream;
  static constexpr bool has_sequence_parallel = Axes.sequence;
  static constexpr bool shards_optimizer = Stage >= zero_stage::optimizer_state;
  static constexpr bool shards_gradients = Stage >= zero_stage::gradients;
  static constexpr bool shards_values = Stage >= zero_stage::parameters;

  /// throws config_error when the ranks are not a multiple of the axis sizes
  explicit zero_state(const rank_layout& config) : zero_state(network_of(config), rank_axes(config, Axes)) {}
  /// Other ranks may still wait for this rank's shard of the weights.
  ~zero_state() { behind_.drain(); }
  zero_state(const zero_state&) = delete;
  zero_state& operator=(const zero_state&) = delete;

  [[nodiscard]] group& data() { return data_; }
  [[nodiscard]] group& world() { return world_; }
  [[nodiscard]] auto& tensor() {
    if constexpr (Axes.tensor) return tensor_;
    else return self_;
  }
  [[nodiscard]] tensor_shard layers() const requires (Axes.tensor) { return {tensor_.rank(), tensor_.size(), has_sequence_parallel}; }
  [[nodiscard]] group& context() requires (Axes.context) { return context_; }
  [[nodiscard]] auto sequence_shard() const requires (Axes.context) {
    return std::conditional_t<Axes.ring, ring_shard, context_shard>{context_.rank(), context_.size()};
  }
  [[nodiscard]] group& experts() requires (Axes.expert) { return experts_; }
  [[nodiscard]] tensor_shard expert_shard() const requires (Axes.expert) { return {experts_.rank(), experts_.size()}; }
  [[nodiscard]] shard_spec sharding() const {
    return {.parts = shards_optimizer ? shards_.size() : 1,
            .part = shards_optimizer ? shards_.rank() : 0,
            .gradients = shards_gradients && shards_.size() > 1,
            .values = shards_values && shards_.size() > 1};
  }

  template <class Store>
  void block_begins(stream_type& stream, Store& store, std::size_t block, block_visit visit) {
    if (visit == block_visit::backward_weight) return open_window(stream, store, block);
    if (store.sharding().values) {
      std::size_t until = fetch(stream, store, block);
      store.for_each_read_by(block, [&](std::size_t other) { until = std::max(until, fetch(stream, store, other)); });
      // prefetch the next block during this one's compute
      const std::size_t last = store.blocks() - 1;
      if (goes_back(visit) ? block > 0 : block < last) fetch(stream, store, goes_back(visit) ? block - 1 : block + 1);
      behind_.wait(stream, until);
    } else {
      await_weights(stream, block);
      store.for_each_read_by(block, [&](std::size_t other) { await_weights(stream, other); });
    }
    if (visit == block_visit::evaluation || visit == block_visit::backward_input) return;
    // gradients are written in the backward pass; the head writes them in the forward pass, for several micro-batches in flight
    if (visit == block_visit::forward && block != store.blocks() - 1) return;
    open_window(stream, store, block);
    store.for_each_read_by(block, [&](std::size_t other) { open_window(stream, store, other); });
  }
  template <class Store>
  void block_ends(stream_type&, Store&, std::size_t, block_visit) {}

  template <class Store>
  void gradients_ready(stream_type& stream, Store& store, std::size_t block, bool last_of_step) {
    const auto gradients = store.block_gradients(block);
    if (gradients.whole.empty() || (!store.sharding().gradients && !last_of_step)) return;
    if constexpr (Axes.tensor || Axes.expert) add_up_parts(stream, store, block);
    using dtype = typename Store::gradient_type;
    using const_span = device_span<const dtype, typename Device::memory>;
    later(stream, store, [this, gradients](stream_type& on) {
      if constexpr (shards_optimizer) {
        shards_.reduce_scatter(on, const_span(gradients.whole), gradients.part, reduction::sum);
        replicas_.all_reduce(on, gradients.part, reduction::sum);
      } else {
        gradients_.all_reduce(on, gradients.whole, reduction::sum);
      }
    });
    pending(block) = {behind_.begun(), store.sharding().gradients, false};
  }

  template <class Store>
  void finish_gradients(stream_type& stream, Store& store) {
    // in the order of the reductions: results are added while later reductions run
    for (std::size_t block = store.blocks(); block-- > 0;) settle(stream, store, block);
    behind_.wait(stream, behind_.begun());
  }

  /// Sums losses in device memory over all ranks with losses.
  void reduce_losses(stream_type& stream, device_span<double, typename Device::memory> sums) {
    if constexpr (Axes.context) context_.all_reduce(stream, sums, reduction::sum);
    losses_.all_reduce(stream, sums, reduction::sum);
  }

  /// The sum of squares over all ranks' gradients, in device memory. squares(spans, sum_1) queues it for this rank's spans.
  template <class Store, class Squares, class Sum>
  void gradient_squares(stream_type& stream, Store& store, Squares&& squares, Sum sum_1) {
    using gradients = decltype(store.gradients());
    const std::vector<gradients> own = counted_gradients(store);
    squares(std::span<const gradients>(own), sum_1);
    if constexpr (shards_optimizer) host_.all_reduce(stream, sum_1, reduction::sum);
    if constexpr (Axes.tensor) tensor_.all_reduce(stream, sum_1, reduction::sum);
    if constexpr (Axes.expert) owners_.all_reduce(stream, sum_1, reduction::sum);
  }

  /// Called after every rank has stepped or loaded its shard. Gathers block after block, overlapped with compute of earlier blocks.
  template <class Store>
  void weights_changed(stream_type& stream, Store& store) {
    there_.assign(store.blocks(), false);
    if (!shards_optimizer || store.sharding().parts == 1 || store.sharding().values) return;
    arriving_.resize(store.blocks());
    for (std::size_t block = 0; block < store.blocks(); ++block) {
      gather(stream, store, block, false);
      arriving_[block] = behind_.begun();
    }
    store.when_read([this, &stream](std::size_t block) { await_weights(stream, block); });
  }

  /// In place: every data-parallel rank gets all elements of a parameter's (tensor-parallel) shard. `array` has the shard's size; this rank's piece is filled.
  template <class Store, class Entry, class T>
  void gather_pieces(stream_type& stream, const Store& store, const Entry& entry, device_span<T, typename Device::memory> array) {
    if (store.sharding().parts == 1) return;
    const auto own = store.piece_of(entry);
    own_pieces_.clear();
    their_pieces_.clear();
    for (std::size_t rank = 0; rank < pieces_.size(); ++rank) {
      if (own.count != 0) own_pieces_.push_back({rank, own.first, own.count});
      if (const auto theirs = store.piece_of(entry, rank); theirs.count != 0) their_pieces_.push_back({rank, theirs.first, theirs.count});
    }
    pieces_.exchange(stream, device_span<const T, typename Device::memory>(array), std::span<const message_part>(own_pieces_), array,
                     std::span<const message_part>(their_pieces_), 1);
  }
  /// Sums over the data-parallel ranks with other pieces of a parameter's (tensor-parallel) shard.
  template <class Store, class Entry, class T>
  void sum_pieces(stream_type& stream, const Store& store, const Entry&, device_span<T, typename Device::memory> array) {
    if (store.sharding().parts > 1) pieces_.all_reduce(stream, array, reduction::sum);
  }
  /// Sums over tensor-parallel ranks with different shards of a parameter; equal shards count once.
  template <class Entry, class T>
  void sum_tensor_shards(stream_type& stream, const Entry& entry, device_span<T, typename Device::memory> array) {
    if (!entry.spec.cut.exists() || tensor_shards_.size() == 1) return;
    if (tensor_shards_.rank() % copies_of(entry) != 0) fill_zero(stream, array);
    tensor_shards_.all_reduce(stream, array, reduction::sum);
  }

  /// Gathers a parameter's values on the first rank, from an array sharded like the weights or the optimizer state; `at`: the parameter's index in an optimizer
  /// array.
  template <class Store, class Entry, class T, class Number>
  void collect(stream_type& stream, const Store& store, const Entry& entry, device_span<T, typename Device::memory> array,
               std::span<Number> whole, std::optional<std::size_t> at = std::nullopt) {
    const std::size_t owner = entry.spec.owner.value_or(0);
    if (owners_.rank() == owner) collect_layer(stream, store, entry, array, whole, at);
    if (owner == 0 || tensor_.rank() != 0 || gradients_.rank() != 0) return;
    if (owners_.rank() == owner) owners_.send(0, std::span<const Number>(whole));
    else if (owners_.rank() == 0) owners_.receive(owner, whole);
  }

  /// Gathers a parameter's optimizer array of any shape on the first rank; this rank has elements first … first + own.size() - 1.
  template <class Store, class Entry, class T, class Number>
  void collect_state(stream_type& stream, const Store& store, const Entry& entry, std::size_t first, device_span<T, typename Device::memory> own,
                     std::span<Number> whole) {
    const std::size_t owner = entry.spec.owner.value_or(0);
    if (owners_.rank() == owner && tensor_.rank() == 0) collect_ranges(stream, store, first, own, whole);
    if (owner == 0 || tensor_.rank() != 0 || gradients_.rank() != 0) return;
    if (owners_.rank() == owner) owners_.send(0, std::span<const Number>(whole));
    else if (owners_.rank() == 0) owners_.receive(owner, whole);
  }
  /// Whether this rank writes its elements of a parameter's optimizer array to files: one writer among all ranks with the parameter, or (`is_sharded`) with
  /// the same data-parallel shard.
  template <class Entry>
  [[nodiscard]] bool writes_state(const Entry& entry, bool is_sharded) const {
    const group& same = is_sharded && shards_optimizer ? replicas_ : gradients_;
    return entry.is_here && tensor_.rank() == 0 && same.rank() == 0 && (entry.spec.owner || owners_.rank() == 0);
  }

  /// Values of a parameter in an array of `array_size` elements, sharded like the weights or the optimizer state.
  template <class Store, class Entry>
  [[nodiscard]] stored_range kept(const Store& store, const Entry& entry, std::size_t array_size) const {
    if (!entry.is_here) return {};
    const bool pieces = store.sharding().parts > 1 && array_size != store.total();
    const auto own = store.piece_of(entry);
    const group& same = pieces ? replicas_ : gradients_;
    const std::size_t neighbours = copies_of(entry), holders = entry.spec.owner ? 1 : owners_.size(), copies = neighbours * holders * same.size();
    const std::size_t copy = (tensor_.rank() % neighbours * holders + owners_.rank() % holders) * same.size() + same.rank();
    return pieces ? stored_range{own.first, own.kept, own.count, copies, copy}
                  : stored_range{0, entry.offset, entry.size(), copies, copy};
  }

  void steps_are_queued(std::size_t count) { queued_ = count; }
  /// What this rank has sent, gathers in flight included.
  ///   throws  config_error while steps are queued: the stream counts their messages
  template <class Visit>
  void visit_traffic(Visit&& visit) const {
    require<config_error>(queued_ == 0, "visit_traffic: must not be called while steps are queued; call finish_step() for each; queued are ", queued_);
    behind_.finish();
    for (const group* one : {&gradients_, &shards_, &replicas_}) visit(traffic_role::gradients, one->sent());
    visit(traffic_role::partial_sums, spread_.sent());
    visit(traffic_role::weights, weights_.sent());
    visit(traffic_role::tensor_parallel, tensor_.sent());
    visit(traffic_role::context_parallel, context_.sent());
    visit(traffic_role::expert_parallel, experts_.sent());
    for (const auto& [copies, ranks] : copies_) visit(traffic_role::partial_sums, ranks.sent());
    for (const group* one : {&pieces_, &tensor_shards_}) visit(traffic_role::optimizer, one->sent());
    for (const group* one : {&data_, &host_, &losses_, &owners_, &world_}) visit(traffic_role::scalars, one->sent());
  }

 private:
  static std::shared_ptr<transport> network_of(const rank_layout& config) { return config.ranks ? config.ranks : one_rank(); }
  // main and side stream have separate channels
  zero_state(const std::shared_ptr<transport>& network, const rank_axes& at)
      : world_(network, 0), data_(network, at.data(network->rank()), 1), host_(network, at.shard(network->rank()), 2),
        tensor_(network, at.layers(network->rank()), 3), context_(network, at.rows(network->rank()), 8),
        experts_(network, at.expert_owners(network->rank()), 9), losses_(network, at.data(network->rank()), 14),
        owners_(network, at.expert_owners(network->rank()), 10),
        pieces_(network, at.shard(network->rank()), 12), tensor_shards_(network, at.layers(network->rank()), 13),
        gradients_(network, at.alike(network->rank()), 4), shards_(network, at.shard(network->rank()), 5),
        replicas_(network, at.same_shard(network->rank()), 6), weights_(network, at.shard(network->rank()), 7),
        spread_(network, at.expert_owners(network->rank()), 11) {}

  /// Gathers on the first tensor-parallel rank, among ranks with the same experts.
  template <class Store, class Entry, class T, class Number>
  void collect_layer(stream_type& stream, const Store& store, const Entry& entry, device_span<T, typename Device::memory> array,
                     std::span<Number> whole, std::optional<std::size_t> at) {
    if (!entry.spec.cut.exists() || tensor_.size() == 1) {
      if (tensor_.rank() == 0) collect_pieces(stream, store, entry, array, whole, at);
      return;
    }
    std::vector<Number> part(entry.size());
    collect_pieces(stream, store, entry, array, std::span<Number>(part), at);
    if (gradients_.rank() != 0) return;
    std::vector<std::uint64_t> ranges;
    entry.spec.for_each_range([&](std::size_t, std::size_t first, std::size_t count) { ranges.insert(ranges.end(), {first, count}); });
    std::array<std::uint64_t, 2> sizes{ranges.size(), part.size()};
    if (tensor_.rank() != 0) {
      tensor_.send(0, std::span<const std::uint64_t>(sizes));
      tensor_.send(0, std::span<const std::uint64_t>(ranges));
      return tensor_.send(0, std::span<const Number>(part));
    }
    for (std::size_t rank = 0; rank < tensor_.size(); ++rank) {
      if (rank != 0) {
        tensor_.receive(rank, std::span<std::uint64_t>(sizes));
        ranges.resize(sizes[0]);
        part.resize(sizes[1]);
        tensor_.receive(rank, std::span<std::uint64_t>(ranges));
        tensor_.receive(rank, std::span<Number>(part));
      }
      auto from = part.begin();
      for (std::size_t i = 0; i < ranges.size(); i += 2) {
        std::copy_n(from, ranges[i + 1], whole.begin() + static_cast<std::ptrdiff_t>(ranges[i]));
        from += static_cast<std::ptrdiff_t>(ranges[i + 1]);
      }
    }
  }

  /// Gathers a tensor-parallel shard from all ranks with pieces of it (optimizer arrays, or sharded weights).
  template <class Store, class Entry, class T, class Number>
  void collect_pieces(stream_type& stream, const Store& store, const Entry& entry, device_span<T, typename Device::memory> array,
                      std::span<Number> whole, std::optional<std::size_t> at) {
    const bool cut = store.sharding().parts > 1 && (at || array.size() != store.total());
    if (!cut) {
      return copy_in_pieces<Device>(store.device(), stream, whole, array.subspan(at.value_or(entry.offset), entry.size()));
    }
    const auto mine = store.piece_of(entry);
    const std::span<Number> own = whole.subspan(mine.first, mine.count);
    copy_in_pieces<Device>(store.device(), stream, own, array.subspan(at.value_or(mine.kept), mine.count));
    if (host_.rank() != 0) {
      if (!own.empty()) host_.send(0, std::span<const Number>(own));
      return;
    }
    for (std::size_t part = 1; part < host_.size(); ++part)
      if (const auto theirs = store.piece_of(entry, part); theirs.count != 0) host_.receive(part, whole.subspan(theirs.first, theirs.count));
  }

  template <class Store, class T, class Number>
  void collect_ranges(stream_type& stream, const Store& store, std::size_t first, device_span<T, typename Device::memory> own, std::span<Number> whole) {
    copy_in_pieces<Device>(store.device(), stream, whole.subspan(first, own.size()), own);
    if (!shards_optimizer || host_.size() == 1) return;
    std::array<std::uint64_t, 2> range{first, own.size()};
    if (host_.rank() != 0) {
      host_.send(0, std::span<const std::uint64_t>(range));
      if (range[1] != 0) host_.send(0, std::span<const Number>(whole.subspan(range[0], range[1])));
      return;
    }
    for (std::size_t part = 1; part < host_.size(); ++part) {
      host_.receive(part, std::span<std::uint64_t>(range));
      if (range[1] != 0) host_.receive(part, whole.subspan(range[0], range[1]));
    }
  }

  template <class Entry>
  [[nodiscard]] std::size_t copies_of(const Entry& entry) const {
    return entry.spec.copies == 0 ? tensor_.size() : entry.spec.copies;
  }
  /// Sums partial gradients of replicated parameters: over some tensor-parallel ranks, and over expert-parallel ranks for non-expert parameters.
  template <class Store>
  void add_up_parts(stream_type& stream, Store& store, std::size_t block) {
    for (const auto& entry : store.entries()) {
      if (entry.block != block || !entry.spec.trainable || !entry.is_here) continue;
      const std::size_t copies = entry.spec.gradients_are_parts ? copies_of(entry) : 1;
      const bool is_spread = !entry.spec.owner && spread_.size() > 1;
      if (copies == 1 && !is_spread) continue;
      later(stream, store, [this, copies, is_spread, gradient = store.gradient(entry)](stream_type& on) {
        if (copies > 1) group_of_copies(copies).all_reduce(on, gradient, reduction::sum);
        if (is_spread) spread_.all_reduce(on, gradient, reduction::sum);
      });
    }
  }
  [[nodiscard]] group& group_of_copies(std::size_t copies) {
    const auto found = copies_.find(copies);
    if (found != copies_.end()) return found->second;
    const std::size_t rank = tensor_.network()->rank();
    const auto channel = static_cast<std::uint32_t>(64 + copies);
    return copies_.try_emplace(copies, tensor_.network(), every(rank / copies * copies, 1, copies), channel).first->second;
  }
  /// The gradients that this rank contributes to the norm: replicated ones are counted once.
  template <class Store, class Gradients = decltype(std::declval<Store&>().gradients())>
  [[nodiscard]] std::vector<Gradients> counted_gradients(Store& store) const {
    std::vector<Gradients> own;
    if ((Axes.tensor || Axes.expert) && (tensor_.size() > 1 || owners_.size() > 1)) {
      for (const auto& entry : store.entries()) {
        const bool is_first = tensor_.rank() % copies_of(entry) == 0 && (entry.spec.owner || owners_.rank() == 0);
        if (!entry.spec.trainable || !is_first) continue;
        const auto piece = store.piece_of(entry);
        if (piece.count == 0) continue;
        own.push_back(store.gradients().subspan(store.sharding().gradients ? piece.kept : entry.offset + piece.first, piece.count));
      }
    } else if (shards_optimizer && shards_.size() > 1) {
      for (std::size_t block = 0; block < store.blocks(); ++block) {
        const auto part = store.sharding().gradients ? store.stored_gradients(block) : store.block_gradients(block).part;
        if (!part.empty()) own.push_back(part);
      }
    } else {
      own.push_back(store.gradients());
    }
    return own;
  }

  /// Queues work(stream) on the side stream, after the main stream's present work; a dry run runs it at once. A single rank queues it on the main stream: the
  /// step may be captured.
  template <class Store, class Work>
  void later(stream_type& stream, Store& store, Work work) {
    if (world_.size() == 1) return work(stream);
    behind_.begin(store.device(), stream, std::move(work));
  }
  begun_work& pending(std::size_t block) {
    if (pending_.size() <= block) pending_.resize(block + 1);
    return pending_[block];
  }

  template <class Store>
  void settle(stream_type& stream, Store& store, std::size_t block) {
    begun_work& work = pending(block);
    behind_.wait(stream, work.until);
    if (std::exchange(work.adds, false)) {
      const auto kept = store.stored_gradients(block);
      using dtype = typename Store::gradient_type;
      using memory = typename Device::memory;
      const typename Device::properties properties = store.device().properties();
      if (!for_adding_) {
        std::size_t bytes = 0;
        for (std::size_t one = 0; one < store.blocks(); ++one)
          bytes = std::max(bytes, scratch_bytes(properties, kernel::add<memory, dtype>{.n = store.stored_gradients(one).size()}));
        bytes = (bytes + arena<Device>::alignment - 1) / arena<Device>::alignment * arena<Device>::alignment;
        for_adding_.emplace(store.device(), bytes, memory_role::workspace);
        if (is_dry_run(store.device()) && bytes != 0) planned_for_adding_.emplace(store.device(), bytes, memory_role::workspace);
      }
      execution<Device> on{stream, *for_adding_, properties};
      ops::add(on, vector_view<const dtype, memory>(store.block_gradients(block).part, {kept.size()}),
               vector_view<dtype, memory>(kept, {kept.size()}));
    }
  }
  template <class Store>
  void open_window(stream_type& stream, Store& store, std::size_t block) {
    if (!store.sharding().gradients) return;
    if (std::exchange(pending(block).is_open, true)) return;
    for (std::size_t other = 0; other < store.blocks(); ++other)
      if (store.share_window(block, other)) settle(stream, store, other);
    fill_zero(stream, store.block_gradients(block).whole);
  }

  /// The stream waits until a block's weights have been gathered after the optimizer step.
  void await_weights(stream_type& stream, std::size_t block) {
    if (block < arriving_.size() && arriving_[block] != 0) behind_.wait(stream, std::exchange(arriving_[block], 0));
  }

  template <class Store>
  void gather(stream_type& stream, Store& store, std::size_t block, bool frozen) {
    const auto values = store.block_values(block, frozen);
    if (values.whole.empty()) return;
    using const_span = device_span<const typename Store::parameter_type, typename Device::memory>;
    later(stream, store, [this, values](stream_type& on) { weights_.all_gather(on, const_span(values.part), values.whole); });
  }
  /// Returns the items to wait for.
  template <class Store>
  std::size_t fetch(stream_type& stream, Store& store, std::size_t block) {
    there_.resize(store.blocks());
    fetched_.resize(store.blocks());
    if (there_[block]) return fetched_[block];
    if (store.block_values(block, false).whole.empty() && store.block_values(block, true).whole.empty()) return 0;
    for (std::size_t other = 0; other < store.blocks(); ++other)
      if (store.share_window(block, other)) there_[other] = false;
    gather(stream, store, block, false);
    gather(stream, store, block, true);
    there_[block] = true;
    return fetched_[block] = behind_.begun();
  }

  self self_;
  // used by the training thread; equal members: experts_ and owners_, host_ and pieces_, tensor_ and tensor_shards_
  group world_, data_, host_, tensor_, context_, experts_, losses_, owners_, pieces_, tensor_shards_;
  group gradients_, shards_, replicas_, weights_, spread_;              // for the side stream
  std::map<std::size_t, group> copies_;                                 // for the side stream
  std::vector<message_part> own_pieces_, their_pieces_;
  std::optional<arena<Device>> for_adding_;            // scratch memory of sums
  std::optional<buffer<Device>> planned_for_adding_;  // for a dry run, where arenas have no size
  std::vector<begun_work> pending_;
  std::vector<bool> there_;               // blocks whose weights are in their windows, or in flight
  std::vector<std::size_t> fetched_;      // by block: items to wait for
  std::vector<std::size_t> arriving_;     // by block: items of the gather after a step; 0: none
  std::size_t queued_ = 0;
  mutable side_stream<Device> behind_;    // last: destroyed before what its work uses
};

}  // namespace xtrain::detail
