// Ranks that train the same weights on other rows: data parallelism, and ZeRO's three ways of not keeping everything on every
// rank.                                     [Rajbhandari et al. 2020, "ZeRO: memory optimizations toward training trillion
//                                            parameter models"; stage 3 with replicas: Zhao et al. 2023, "PyTorch FSDP"]
//
//                       each rank keeps of                         sent per rank and step, of ψ parameters and n ranks
//                       weights  gradients  optimizer state
//     data_parallel     all      all        all                    2 ψ (n−1)/n    gradients, added up and handed back
//     zero<1>           all      all        1/n                    2 ψ (n−1)/n    gradients to who steps them, weights back
//     zero<2>           all      1/n        1/n                    the same, gradients in every micro-batch
//     zero<3>           1/n      1/n        1/n                    3 ψ (n−1)/n    and weights before forward and backward
//
// Everything is exchanged block by block, in the background of the blocks that are computed meanwhile.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/comm/background.hpp>
#include <xtrain/comm/group.hpp>
#include <xtrain/comm/self.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/dry/dry.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/place_share.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/parallel/concepts.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

/// The ranks of a run.
struct rank_layout {
  std::shared_ptr<transport> ranks{};  ///< none: one rank
  /// Ranks that divide every layer among them (`tensor_parallel`): neighbours, who talk most. The others see other rows.
  std::size_t tensor = 1;
  /// Ranks that share rows (`context_parallel`, `ring_context_parallel`): each has some places of every row. The next neighbours.
  std::size_t context = 1;
  /// Of the ranks that have the same weights, how many divide one copy of what they keep (zero<Stage>). 0: all.
  std::size_t shards = 0;
  /// Ranks that spread every layer's experts among them (`expert_parallel`): neighbours among those that have the same part of a layer. They see
  /// other rows, or other places of the same.
  std::size_t expert = 1;
};

namespace detail {

enum class zero_stage : std::uint8_t { replicated, optimizer_state, gradients, parameters };

/// Work that a strategy has begun for a block and that somebody must wait for.
struct begun_work {
  std::size_t until = 0;  // how much of the background's work must be done
  bool adds = false;      // and then what it made is added to the gradients that are kept
  bool is_open = false;   // the block's window takes gradients that nobody has been given yet
};

/// What beside rows ranks divide.
struct divided_axes {
  bool layers = false, between_layers = false, places = false;
  bool ring = false;  // of places: keys and values go round
  bool experts = false;
};

template <class Device, zero_stage Stage, divided_axes Axes>
class zero_state {
 public:
  using stream_type = typename Device::stream;
  static constexpr bool divides_between_layers = Axes.between_layers;
  static constexpr bool slices_optimizer = Stage >= zero_stage::optimizer_state;
  static constexpr bool slices_gradients = Stage >= zero_stage::gradients;
  static constexpr bool slices_values = Stage >= zero_stage::parameters;

  /// throws config_error when the ranks are not a multiple of the axes' sizes
  explicit zero_state(const rank_layout& config) : zero_state(wires_of(config), axes_of(config)) {}
  /// Others may wait for this rank's part of the weights.
  ~zero_state() {
    try {
      await_weights();
    } catch (...) {  // they are gone, and whoever trains with them knows
    }
  }
  zero_state(const zero_state&) = delete;
  zero_state& operator=(const zero_state&) = delete;

  /// Ranks that have the same places of other rows.
  [[nodiscard]] group& data() { return data_; }
  /// All ranks of the run: those that must stop, save and begin together.
  [[nodiscard]] group& everyone() { return everyone_; }
  /// Ranks that have other parts of the same layers.
  [[nodiscard]] auto& tensor() {
    if constexpr (Axes.layers) return tensor_;
    else return self_;
  }
  [[nodiscard]] layer_share layers() const requires (Axes.layers) { return {tensor_.rank(), tensor_.size(), divides_between_layers}; }
  /// Ranks that have other places of the same rows.
  [[nodiscard]] group& context() requires (Axes.places) { return context_; }
  [[nodiscard]] auto places() const requires (Axes.places) {
    return std::conditional_t<Axes.ring, ring_share, place_share>{context_.rank(), context_.size()};
  }
  /// Ranks that have the same part of every layer and hold other experts.
  [[nodiscard]] group& experts() requires (Axes.experts) { return experts_; }
  [[nodiscard]] layer_share expert_share() const requires (Axes.experts) { return {experts_.rank(), experts_.size()}; }
  [[nodiscard]] slicing divided() const {
    return {.parts = slices_optimizer ? shards_.size() : 1,
            .part = slices_optimizer ? shards_.rank() : 0,
            .gradients = slices_gradients && shards_.size() > 1,
            .values = slices_values && shards_.size() > 1};
  }

  template <class Store>
  void block_begins(stream_type& stream, Store& store, std::size_t block, block_visit visit) {
    if (visit == block_visit::backward_weight) return open_window(stream, store, block);
    if (store.divided().values) {
      std::size_t until = fetch(stream, store, block);
      store.for_each_read_by(block, [&](std::size_t other) { until = std::max(until, fetch(stream, store, other)); });
      // the next block comes while this one is computed, if it is this rank's
      const std::size_t last = store.blocks() - 1;
      if (goes_back(visit) ? block > 0 : block < last) fetch(stream, store, goes_back(visit) ? block - 1 : block + 1);
      behind_.finish(until);
    } else {
      await_weights(block);
      store.for_each_read_by(block, [&](std::size_t other) { await_weights(other); });
    }
    if (visit == block_visit::evaluation || visit == block_visit::backward_input) return;
    // gradients are made on the way back, and by the head on the way forth, of micro-batches that are on their way before one is back
    if (visit == block_visit::forward && block != store.blocks() - 1) return;
    open_window(stream, store, block);
    store.for_each_read_by(block, [&](std::size_t other) { open_window(stream, store, other); });
  }
  template <class Store>
  void block_ends(stream_type&, Store&, std::size_t, block_visit) {}

  template <class Store>
  void gradients_ready(stream_type& stream, Store& store, std::size_t block, bool last_of_step) {
    const auto gradients = store.block_gradients(block);
    if (gradients.whole.empty() || (!store.divided().gradients && !last_of_step)) return;
    if constexpr (Axes.layers || Axes.experts) add_up_parts(stream, store, block);
    using number = typename Store::gradient_type;
    using const_span = device_span<const number, typename Device::memory>;
    later(stream, store, [this, gradients](stream_type& on) {
      if constexpr (slices_optimizer) {
        shards_.reduce_scatter(on, const_span(gradients.whole), gradients.part, reduction::sum);
        replicas_.all_reduce(on, gradients.part, reduction::sum);
      } else {
        gradients_.all_reduce(on, gradients.whole, reduction::sum);
      }
    });
    pending(block) = {begun_, store.divided().gradients, false};
  }

  template <class Store>
  void finish_gradients(stream_type& stream, Store& store) {
    for (std::size_t block = 0; block < store.blocks(); ++block) settle(stream, store, block);
    behind_.finish(begun_);
  }

  /// Of the gradients of all ranks together. squares(spans) is the sum of the squares in several spans.
  template <class Store, class Squares>
  [[nodiscard]] double gradient_squares(Store& store, Squares&& squares) {
    using gradients = decltype(store.gradients());
    const std::vector<gradients> own = counted_gradients(store);
    std::array<double, 1> sum{squares(std::span<const gradients>(own))};
    if constexpr (slices_optimizer) host_.all_reduce(std::span<double>(sum), reduction::sum);
    if constexpr (Axes.layers) tensor_.all_reduce(std::span<double>(sum), reduction::sum);
    if constexpr (Axes.experts) holders_.all_reduce(std::span<double>(sum), reduction::sum);
    return sum[0];
  }

  /// Every rank has stepped its part, or loaded it. Blocks come back one after the other, while those before them are computed.
  template <class Store>
  void weights_changed(stream_type& stream, Store& store) {
    there_.assign(store.blocks(), false);
    if (!slices_optimizer || store.divided().parts == 1 || store.divided().values) return;
    arriving_.resize(store.blocks());
    for (std::size_t block = 0; block < store.blocks(); ++block) {
      gather(stream, store, block, false);
      arriving_[block] = begun_;
    }
    store.when_read([this](std::size_t block) { await_weights(block); });
  }

  /// A parameter's numbers, whole, on the first rank, out of an array that is divided like the weights or like the optimizer's state.
  template <class Store, class Entry, class T, class Number>
  void collect(stream_type& stream, const Store& store, const Entry& entry, device_span<T, typename Device::memory> array,
               std::span<Number> whole) {
    const std::size_t holder = entry.spec.holder.value_or(0);
    if (holders_.rank() == holder) collect_layer(stream, store, entry, array, whole);
    if (holder == 0 || tensor_.rank() != 0 || gradients_.rank() != 0) return;
    if (holders_.rank() == holder) holders_.send(0, std::span<const Number>(whole));
    else if (holders_.rank() == 0) holders_.receive(holder, whole);
  }

  /// What this rank keeps of a parameter in an array of that many numbers, which is divided like the weights or like the optimizer's state.
  template <class Store, class Entry>
  [[nodiscard]] kept_numbers kept(const Store& store, const Entry& entry, std::size_t array_size) const {
    if (!entry.is_here) return {};
    const bool pieces = store.divided().parts > 1 && array_size != store.total();
    const auto own = store.piece_of(entry);
    const group& same = pieces ? replicas_ : gradients_;
    const std::size_t neighbours = copies_of(entry), holders = entry.spec.holder ? 1 : holders_.size(), copies = neighbours * holders * same.size();
    const std::size_t copy = (tensor_.rank() % neighbours * holders + holders_.rank() % holders) * same.size() + same.rank();
    return pieces ? kept_numbers{own.first, own.kept, own.count, copies, copy}
                  : kept_numbers{0, entry.offset, entry.size(), copies, copy};
  }

  /// What this rank has sent so far, weights on their way included.
  template <class Visit>
  void visit_traffic(Visit&& visit) const {
    await_weights();
    for (const group* one : {&gradients_, &shards_, &replicas_}) visit(traffic_role::gradients, one->sent());
    visit(traffic_role::parts, spread_.sent());
    visit(traffic_role::weights, weights_.sent());
    visit(traffic_role::layers, tensor_.sent());
    visit(traffic_role::places, context_.sent());
    visit(traffic_role::experts, experts_.sent());
    for (const auto& [copies, ranks] : copies_) visit(traffic_role::parts, ranks.sent());
    for (const group* one : {&data_, &host_, &holders_, &everyone_}) visit(traffic_role::numbers, one->sent());
  }

 private:
  /// A run on the dry device has the same ranks and sends nothing.
  static std::shared_ptr<transport> wires_of(const rank_layout& config) {
    if constexpr (is_dry<Device>) {
      if (config.ranks) return std::make_shared<dry_transport>(config.ranks->rank(), config.ranks->size());
    }
    return config.ranks ? config.ranks : one_rank();
  }
  /// How many ranks each axis has: neighbours divide layers, then come those that share rows, or hold other experts. Whatever they see, ranks with
  /// the same weights are counted together: those that divide one copy, then copies.
  struct axes {
    std::size_t tensor = 1, context = 1, expert = 1, shards = 1, replicas = 1;

    /// Neighbours none of whom has all the weights of another.
    [[nodiscard]] std::size_t different() const { return tensor * expert; }
  };
  static axes axes_of(const rank_layout& config) {
    const std::size_t ranks = config.ranks ? config.ranks->size() : 1;
    require<config_error>(config.tensor > 0 && ranks % config.tensor == 0, "parallel: ranks must be a multiple of tensor; given ", ranks,
                          " ranks and tensor ", config.tensor);
    require<config_error>(Axes.layers || config.tensor == 1, "parallel: tensor must be 1, because the strategy does not divide layers; given ",
                          config.tensor, ". Make it parallel<..., tensor_parallel>");
    require<config_error>(Axes.experts || config.expert == 1, "parallel: expert must be 1, because the strategy does not spread experts; given ", config.expert,
                          ". Make it expert_parallel, or parallel<..., expert_parallel>");
    const std::size_t whole = ranks / config.tensor;  // layers
    require<config_error>(config.context > 0 && whole % config.context == 0, "parallel: ranks must be a multiple of tensor times context; given ",
                          ranks, " ranks, tensor ", config.tensor, " and context ", config.context);
    require<config_error>(Axes.places || config.context == 1, "parallel: context must be 1, because ranks of the strategy do not share rows; given ",
                          config.context, ". Make it parallel<..., context_parallel>");
    require<config_error>(config.expert > 0 && whole % config.expert == 0, "parallel: ranks must be a multiple of tensor times expert; given ", ranks,
                          " ranks, tensor ", config.tensor, " and expert ", config.expert);
    const std::size_t alike = whole / config.expert, shards = config.shards == 0 ? alike : config.shards;
    require<config_error>(shards <= alike && alike % shards == 0, "parallel: ranks that see other rows must be a multiple of shards; given ", alike,
                          " such ranks and ", shards, " shards");
    return {config.tensor, config.context, config.expert, shards, alike / shards};
  }
  /// Ranks first, first + step, …
  static std::vector<std::size_t> every(std::size_t first, std::size_t step, std::size_t count) {
    std::vector<std::size_t> members;
    for (std::size_t i = 0; i < count; ++i) members.push_back(first + i * step);
    return members;
  }
  static std::vector<std::size_t> ranks_alike(std::size_t rank, const axes& at) {
    return every(rank % at.different(), at.different(), at.shards * at.replicas);
  }
  static std::vector<std::size_t> data_ranks(std::size_t rank, const axes& at) {
    const std::size_t together = at.tensor * at.context;
    return every(rank % together, together, at.expert * at.shards * at.replicas / at.context);
  }
  static std::vector<std::size_t> context_ranks(std::size_t rank, const axes& at) {
    const std::size_t together = at.tensor * at.context;
    return every(rank / together * together + rank % at.tensor, at.tensor, at.context);
  }
  static std::vector<std::size_t> expert_ranks(std::size_t rank, const axes& at) {
    return every(rank / at.different() * at.different() + rank % at.tensor, at.tensor, at.expert);
  }
  static std::vector<std::size_t> shard_ranks(std::size_t rank, const axes& at) {
    const std::size_t together = at.different() * at.shards;
    return every(rank / together * together + rank % at.different(), at.different(), at.shards);
  }
  static std::vector<std::size_t> replica_ranks(std::size_t rank, const axes& at) {
    const std::size_t together = at.different() * at.shards;
    return every(rank % together, together, at.replicas);
  }
  // the main thread and the background each have channels of their own
  zero_state(const std::shared_ptr<transport>& wires, const axes& at)
      : everyone_(wires, 0), data_(wires, data_ranks(wires->rank(), at), 1), host_(wires, shard_ranks(wires->rank(), at), 2),
        tensor_(wires, every(wires->rank() / at.tensor * at.tensor, 1, at.tensor), 3), context_(wires, context_ranks(wires->rank(), at), 8),
        experts_(wires, expert_ranks(wires->rank(), at), 9), holders_(wires, expert_ranks(wires->rank(), at), 10),
        gradients_(wires, ranks_alike(wires->rank(), at), 4),
        shards_(wires, shard_ranks(wires->rank(), at), 5), replicas_(wires, replica_ranks(wires->rank(), at), 6),
        weights_(wires, shard_ranks(wires->rank(), at), 7), spread_(wires, expert_ranks(wires->rank(), at), 11) {}

  /// The same among ranks that hold the same experts: on the first of those that divide the layer.
  template <class Store, class Entry, class T, class Number>
  void collect_layer(stream_type& stream, const Store& store, const Entry& entry, device_span<T, typename Device::memory> array,
                     std::span<Number> whole) {
    if (!entry.spec.cut.exists() || tensor_.size() == 1) {
      if (tensor_.rank() == 0) collect_pieces(stream, store, entry, array, whole);
      return;
    }
    // of ranks that divide the layer, the first puts the parts together
    std::vector<Number> part(entry.size());
    collect_pieces(stream, store, entry, array, std::span<Number>(part));
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

  /// A rank's part of the optimizer's arrays, or of the weights where they are divided, from every rank that keeps one.
  template <class Store, class Entry, class T, class Number>
  void collect_pieces(stream_type& stream, const Store& store, const Entry& entry, device_span<T, typename Device::memory> array,
                      std::span<Number> whole) {
    const bool cut = store.divided().parts > 1 && array.size() != store.total();
    if (!cut) {
      copy_to_host(stream, whole, array.subspan(entry.offset, entry.size()));
      return stream.synchronize();
    }
    const auto mine = store.piece_of(entry);
    const std::span<Number> own = whole.subspan(mine.first, mine.count);
    copy_to_host(stream, own, array.subspan(mine.kept, mine.count));
    stream.synchronize();
    if (host_.rank() != 0) {
      if (!own.empty()) host_.send(0, std::span<const Number>(own));
      return;
    }
    for (std::size_t part = 1; part < host_.size(); ++part)
      if (const auto theirs = store.piece_of(entry, part); theirs.count != 0) host_.receive(part, whole.subspan(theirs.first, theirs.count));
  }

  /// How many of the ranks that divide layers have the same numbers of a parameter.
  template <class Entry>
  [[nodiscard]] std::size_t copies_of(const Entry& entry) const {
    return entry.spec.copies == 0 ? tensor_.size() : entry.spec.copies;
  }
  /// Parameters that several of the ranks have, and of whose gradients each of them makes a part: of those that divide a layer, some; of those
  /// that hold other experts, all that is no expert's.
  template <class Store>
  void add_up_parts(stream_type& stream, Store& store, std::size_t block) {
    for (const auto& entry : store.entries()) {
      if (entry.block != block || !entry.spec.trainable || !entry.is_here) continue;
      const std::size_t copies = entry.spec.gradients_are_parts ? copies_of(entry) : 1;
      const bool is_spread = !entry.spec.holder && spread_.size() > 1;
      if (copies == 1 && !is_spread) continue;
      later(stream, store, [this, copies, is_spread, gradient = store.gradient(entry)](stream_type& on) {
        if (copies > 1) group_of_copies(copies).all_reduce(on, gradient, reduction::sum);
        if (is_spread) spread_.all_reduce(on, gradient, reduction::sum);
      });
    }
  }
  /// Used in the background.
  [[nodiscard]] group& group_of_copies(std::size_t copies) {
    const auto found = copies_.find(copies);
    if (found != copies_.end()) return found->second;
    const std::size_t rank = tensor_.wires()->rank();
    const auto channel = static_cast<std::uint32_t>(64 + copies);
    return copies_.try_emplace(copies, tensor_.wires(), every(rank / copies * copies, 1, copies), channel).first->second;
  }
  /// The gradients that this rank adds to the norm: what several ranks have is counted once.
  template <class Store, class Gradients = decltype(std::declval<Store&>().gradients())>
  [[nodiscard]] std::vector<Gradients> counted_gradients(Store& store) const {
    std::vector<Gradients> own;
    if ((Axes.layers || Axes.experts) && (tensor_.size() > 1 || holders_.size() > 1)) {
      for (const auto& entry : store.entries()) {
        const bool is_first = tensor_.rank() % copies_of(entry) == 0 && (entry.spec.holder || holders_.rank() == 0);
        if (!entry.spec.trainable || !is_first) continue;
        const auto piece = store.piece_of(entry);
        if (piece.count == 0) continue;
        own.push_back(store.gradients().subspan(store.divided().gradients ? piece.kept : entry.offset + piece.first, piece.count));
      }
    } else if (slices_optimizer && shards_.size() > 1) {
      for (std::size_t block = 0; block < store.blocks(); ++block) {
        const auto part = store.divided().gradients ? store.kept_gradients(block) : store.block_gradients(block).part;
        if (!part.empty()) own.push_back(part);
      }
    } else {
      own.push_back(store.gradients());
    }
    return own;
  }

  /// Begins work(stream) when the stream has done what it was given so far; a dry device has no later.
  template <class Store, class Work>
  void later(stream_type& stream, Store& store, Work work) {
    if constexpr (is_dry<Device>) {
      work(stream);
    } else {
      if (!own_stream_) own_stream_.emplace(store.device());
      behind_.begin([this, event = stream.record(), work] {
        event.synchronize();
        work(*own_stream_);
        own_stream_->synchronize();
      });
      ++begun_;
    }
  }
  begun_work& pending(std::size_t block) {
    if (pending_.size() <= block) pending_.resize(block + 1);
    return pending_[block];
  }

  /// Waits for a block's gradients; what was reduced is added to what this rank keeps.
  template <class Store>
  void settle(stream_type& stream, Store& store, std::size_t block) {
    begun_work& work = pending(block);
    behind_.finish(work.until);
    if (std::exchange(work.adds, false)) {
      const auto kept = store.kept_gradients(block);
      using number = typename Store::gradient_type;
      using memory = typename Device::memory;
      if (!nothing_) nothing_.emplace(store.device(), 0, memory_role::workspace);
      execution<Device> on{stream, *nothing_, store.device().properties()};
      ops::add(on, vector_view<const number, memory>(store.block_gradients(block).part, {kept.size()}),
               vector_view<number, memory>(kept, {kept.size()}));
    }
  }
  /// A window begins at zero, when what was in it has been given away.
  template <class Store>
  void open_window(stream_type& stream, Store& store, std::size_t block) {
    if (!store.divided().gradients) return;
    if (std::exchange(pending(block).is_open, true)) return;
    for (std::size_t other = 0; other < store.blocks(); ++other)
      if (store.share_window(block, other)) settle(stream, store, other);
    fill_zero(stream, store.block_gradients(block).whole);
  }

  /// Until a block's weights are back from those that stepped them; and all blocks'.
  void await_weights(std::size_t block) const {
    if (block < arriving_.size() && arriving_[block] != 0) behind_.finish(std::exchange(arriving_[block], 0));
  }
  void await_weights() const {
    for (std::size_t block = 0; block < arriving_.size(); ++block) await_weights(block);
  }

  /// Every rank's part of a block's weights to every rank.
  template <class Store>
  void gather(stream_type& stream, Store& store, std::size_t block, bool frozen) {
    const auto values = store.block_values(block, frozen);
    if (values.whole.empty()) return;
    using const_span = device_span<const typename Store::parameter_type, typename Device::memory>;
    later(stream, store, [this, values](stream_type& on) { weights_.all_gather(on, const_span(values.part), values.whole); });
  }
  /// Brings a block's weights into its window, unless they are there or on their way. Returns what to wait for.
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
    return fetched_[block] = begun_;
  }

  self self_;
  group everyone_, data_, host_, tensor_, context_, experts_, holders_;  // used by the thread that trains; the last two have the same members
  group gradients_, shards_, replicas_, weights_, spread_;               // used in the background
  std::map<std::size_t, group> copies_;            // likewise
  std::optional<stream_type> own_stream_;
  std::optional<arena<Device>> nothing_;  // adding needs no memory
  std::vector<begun_work> pending_;       // by block
  std::vector<bool> there_;               // blocks whose weights are in their windows, or on their way
  std::vector<std::size_t> fetched_;      // what to wait for until they are
  mutable std::vector<std::size_t> arriving_;  // by block: what to wait for until its weights are back; 0: nothing
  std::size_t begun_ = 0;
  mutable background behind_;  // last: it ends before what its work uses
};

}  // namespace detail

/// Every rank keeps everything; gradients are added up while the rest of the backward goes on.
struct data_parallel {
  static constexpr std::string_view name = "data";
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  using config = rank_layout;
  template <class Device>
  using state = detail::zero_state<Device, stage, detail::divided_axes{}>;
};

/// Stage 1: optimizer state is divided among ranks. 2: gradients, too. 3: weights, too.
template <int Stage>
struct zero {
  static_assert(Stage >= 1 && Stage <= 3, "xtrain zero<Stage>: stages are 1 (optimizer state), 2 (and gradients), 3 (and weights); see parallel/README.md");
  static constexpr std::string_view name = Stage == 1 ? "zero-1" : Stage == 2 ? "zero-2" : "zero-3";
  static constexpr auto stage = static_cast<detail::zero_stage>(Stage);
  using config = rank_layout;
  template <class Device>
  using state = detail::zero_state<Device, stage, detail::divided_axes{}>;
};

/// Neighbouring ranks divide every layer: heads of attention, channels of feed-forward, tokens of the embedding and the head.
///                                                                         [Shoeybi et al. 2019, "Megatron-LM"]
struct tensor_parallel {
  static constexpr std::string_view name = "tensor";
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  using config = rank_layout;
  template <class Device>
  using state = detail::zero_state<Device, detail::zero_stage::replicated, detail::divided_axes{.layers = true}>;
};

/// The same, and norms, residuals and dropout between layers divided along time: each rank keeps 1/n of what flows from layer to layer.
/// It sends halves of the sums that tensor_parallel makes, at other places, and the input of every first matrix once more on the way back: a fourth
/// more in a layer.                                                        [Korthikanti et al. 2022, section 4.2.2]
struct sequence_parallel {
  static constexpr std::string_view name = "tensor and sequence";
  static constexpr bool divides_between_layers = true;
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  using config = rank_layout;
  template <class Device>
  using state = detail::zero_state<Device, detail::zero_stage::replicated, detail::divided_axes{.layers = true, .between_layers = true}>;
};

/// Neighbouring ranks share rows: each has some places of every row, and for attention all places of some heads.
///                                                                         [Jacobs et al. 2023, "DeepSpeed Ulysses"]
struct context_parallel {
  static constexpr std::string_view name = "context";
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  using config = rank_layout;
  template <class Device>
  using state = detail::zero_state<Device, detail::zero_stage::replicated, detail::divided_axes{.places = true}>;
};

/// The same, but each has two chunks of every row, and for attention all heads of these: keys and values go round among the ranks, who may be
/// more than heads.                                                        [Liu et al. 2023, "Ring attention with blockwise transformers"]
struct ring_context_parallel {
  static constexpr std::string_view name = "ring";
  static constexpr detail::zero_stage stage = detail::zero_stage::replicated;
  using config = rank_layout;
  template <class Device>
  using state = detail::zero_state<Device, detail::zero_stage::replicated, detail::divided_axes{.places = true, .ring = true}>;
};

struct expert_parallel;

namespace detail {

/// The state of ranks that divide these axes; expert.hpp has that of ranks that spread experts.
template <class Device, zero_stage Stage, divided_axes Axes>
struct state_of {
  using type = zero_state<Device, Stage, Axes>;
};

/// "zero-1 x tensor x context"
template <class First, class... Others>
struct names_joined {
  static constexpr std::size_t size = (First::name.size() + ... + (Others::name.size() + 3));
  static constexpr std::array<char, size> letters = [] {
    std::array<char, size> all{};
    std::size_t at = 0;
    const auto put = [&](std::string_view text) {
      for (const char letter : text) all[at++] = letter;
    };
    put(First::name);
    ((put(" x "), put(Others::name)), ...);
    return all;
  }();
};

template <class Axis, class... All>
inline constexpr bool is_among = (std::is_same_v<Axis, All> || ...);

template <class Axis>
inline constexpr bool is_of_rows = is_among<Axis, context_parallel, ring_context_parallel>;

template <class Axis>
inline constexpr bool is_of_layers = is_among<Axis, tensor_parallel, sequence_parallel>;

/// One that divides layers, one that shares rows, one that spreads experts, or some of these.
template <class... Axes>
inline constexpr bool fit_together =
    sizeof...(Axes) > 0 && ((is_of_layers<Axes> || is_of_rows<Axes> || is_among<Axes, expert_parallel>) && ...) &&
    (std::size_t{is_of_layers<Axes>} + ...) <= 1 && (std::size_t{is_of_rows<Axes>} + ...) <= 1 &&
    (std::size_t{is_among<Axes, expert_parallel>} + ...) <= 1;

}  // namespace detail

/// Several strategies at once: parallel<zero<2>, tensor_parallel>, parallel<zero<1>, tensor_parallel, context_parallel>.
template <class Rows, class... Axes>
struct parallel {
  static_assert(requires { Rows::stage; } && detail::fit_together<Axes...>,
                "xtrain parallel<Rows, Axes...>: Rows must be data_parallel or zero<Stage>, Axes must be tensor_parallel or sequence_parallel, "
                "context_parallel or ring_context_parallel, expert_parallel, one of each kind at most; see parallel/README.md");
  static constexpr std::string_view name{detail::names_joined<Rows, Axes...>::letters.data(), detail::names_joined<Rows, Axes...>::size};
  static constexpr detail::zero_stage stage = Rows::stage;
  static constexpr bool divides_between_layers = detail::is_among<sequence_parallel, Axes...>;
  static constexpr bool spreads_experts = detail::is_among<expert_parallel, Axes...>;
  using config = rank_layout;
  template <class Device>
  using state = typename detail::state_of<Device, Rows::stage,
                                          detail::divided_axes{.layers = detail::is_among<tensor_parallel, Axes...> || divides_between_layers,
                                                               .between_layers = divides_between_layers,
                                                               .places = (detail::is_of_rows<Axes> || ...),
                                                               .ring = detail::is_among<ring_context_parallel, Axes...>,
                                                               .experts = spreads_experts}>::type;
};

static_assert(parallel_strategy<data_parallel> && parallel_strategy<zero<3>> && parallel_strategy<parallel<zero<2>, tensor_parallel>> &&
              parallel_strategy<context_parallel> && parallel_strategy<parallel<zero<1>, tensor_parallel, context_parallel>>);

}  // namespace xtrain
