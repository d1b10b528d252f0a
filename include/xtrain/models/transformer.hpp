// The stack of all models: embedding, blocks of one type, output layer with the loss; run block by block under every parallel strategy.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <xtrain/adapt/concepts.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/thread_use.hpp>
#include <xtrain/device/stream_drain.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/positions.hpp>
#include <xtrain/layers/recompute.hpp>
#include <xtrain/layers/sequence_parallel.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/models/load_balance.hpp>
#include <xtrain/models/model_options.hpp>
#include <xtrain/models/named_parameter.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/parameters.hpp>

namespace xtrain {

namespace detail {

template <class Recipe>
inline constexpr std::size_t layout_alignment_of = 1;
template <class Recipe>
requires has_hook<typename Recipe::optimizer, hook::layout_alignment>
inline constexpr std::size_t layout_alignment_of<Recipe> = Recipe::optimizer::layout_alignment;

/// The block may have a mixture of experts.
template <class Block>
inline constexpr bool block_has_experts = requires { requires Block::feed_forward_type::has_experts; };

}  // namespace detail

/// A model on the recipe's device, in the recipe's precision. `Parts` declares:
///   config_type              with vocab_size, hidden_size, num_layers
///   embedding                (builder, config): forward(p, x), backward(p, d), table()
///   block                    (builder, config, names, index): forward(p, positions, x, y), backward(p, positions, x, d)
///   output                   (context, stream, builder, config, table): forward(p, x, loss_n), backward(p, x, d)
/// and static functions of a config:
///   completed(config)        with defaults, or throws; names(config): module names in files, for the blocks
///   positions(config, first) position_options for block::positions; mask(config): the attention mask
///   ties_embeddings(config)  the output is given the embedding's table; initialises(config, parameter): heads that files may lack
///   family_name(config), adapter_targets(config)
/// and, if block::feed_forward_type::has_experts: has_experts(config), balances_load(config), balance_sizes(config).
/// A model derives from it, with constructors, `recipe` and `with_recipe` (see recipe_decoder, encoder).
///   Recipe   model_axes: recipes that differ in name, optimizer or objective share the code
template <class Recipe, class Parts>
class transformer {
 public:
  using recipe = Recipe;
  using computation = computation_of<Recipe>;  ///< names layers and passes
  using config_type = typename Parts::config_type;
  using options = model_options<typename Recipe::adapter, typename Recipe::parallel, typename Recipe::offload>;
  using device = typename Recipe::device;
  using context_type = typename device::context;
  using stream_type = typename device::stream;
  using memory = typename device::memory;
  using precision = typename Recipe::precision;
  using compute = typename precision::compute;
  using accumulate = accumulate_t<compute>;
  using store = parameter_store<device, precision>;
  using parallel_state = typename Recipe::parallel::template state<device>;
  using layer_state = typename pass<computation>::parallel_state;

  static_assert(xtrain::device<device>, "xtrain recipe: 'device' must be a device; see device/README.md for what a device has");
  static_assert(xtrain::precision<precision>,
                "xtrain recipe: 'precision' must be a precision policy; see precision/README.md for its members and clauses");
  static_assert(
      xtrain::recompute_policy<typename Recipe::recompute>,
      "xtrain recipe: 'recompute' must be a recompute policy (recompute_none, recompute_full, recompute_selective<...>); see layers/README.md");
  static_assert(xtrain::adapter<typename Recipe::adapter>,
                "xtrain recipe: 'adapter' must be an adapter policy (no_adapter, freeze, lora, qlora, qat, qat_lora, prefix_tuning); one of your own has hooks "
                "(xtrain::hooks<> if it has no optional members); see adapt/README.md");
  static_assert(detail::adapter_hooks_are_members<typename Recipe::adapter, computation, pass<computation>, store, typename device::stream>());
  static_assert(
      device_computes<device, compute>,
      "xtrain recipe: the device must multiply matrices of the precision's compute type; it has no matmul kernel for it; choose another precision, "
      "wrap the device as with_host_fallback<Device>, or, where the cpu's kernels are compiled apart, include <xtrain/device/cpu/kernels.hpp>; see "
      "device/README.md");

  struct uninitialised_t {};

  /// Before weights are loaded: initializes the adapter and heads that files may lack; zeroes the rest.
  void initialise_adapter();

  /// Call after weights change from outside: initial values of some adapters depend on them.
  void on_weights_loaded();

  [[nodiscard]] const config_type& config() const { return config_; }
  [[nodiscard]] const options& settings() const { return options_; }
  [[nodiscard]] const context_type& context() const {
    require_content();
    return context_;
  }
  /// All of the model's operations run on it.
  [[nodiscard]] stream_type& stream() const {
    require_content();
    return *stream_;
  }
  [[nodiscard]] store& parameters() {
    require_content();
    return *parameters_;
  }
  [[nodiscard]] const store& parameters() const {
    require_content();
    return *parameters_;
  }
  [[nodiscard]] parallel_state& parallel() const {
    require_content();
    return *parallel_;
  }
  /// The parallel state as passes see it.
  [[nodiscard]] layer_state& layer_parallel() const {
    if constexpr (std::is_same_v<layer_state, parallel_state>) return parallel();
    else return unsharded_;
  }
  /// Tells references whether this model still exists.
  [[nodiscard]] const detail::lifetime& lifetime() const { return lifetime_; }
  /// Refuses two threads at once.
  [[nodiscard]] const detail::thread_use& use() const { return use_; }

  ///   throws  config_error when no parameter has that name in files, shape_error when its rank is not N
  template <std::size_t N>
  [[nodiscard]] tensor_view<compute, N, memory> parameter(std::string_view name) const {
    return named_parameter<N>(*parameters_, name);
  }

  [[nodiscard]] attention_mask mask() const { return Parts::mask(config_); }
  /// What a model says of its own parameters and of tensors in files, in addition to its family: nothing, unless it has members of these names.
  [[nodiscard]] static bool may_be_missing(std::string_view) { return false; }
  [[nodiscard]] static bool may_be_ignored(std::string_view) { return false; }
  /// The parameter that a tensor in files must be a copy of, where both are one parameter of the model; empty: none.
  [[nodiscard]] static std::string copied_by(std::string_view) { return {}; }
  /// Length of the adapter's prefix before every sequence; a cache needs room for it.
  [[nodiscard]] std::size_t tokens_before() const {
    if constexpr (has_hook<typename Recipe::adapter, hook::on_attention>) return options_.adapter.tokens_before();
    else return 0;
  }

  /// Counted as parallel hooks do: 0 is the embedding, then the layers, then the output.
  [[nodiscard]] std::size_t parameter_blocks() const { return config_.num_layers + 2; }

  /// loss_n gets each token's loss. layer_inputs holds layer inputs and outputs (checkpointed activations); pass::saved holds what blocks save
  /// for the backward pass.
  void forward(pass<computation>& p, stash<device>& layer_inputs, vector_view<accumulate, memory> loss_n) const;

  /// Adds to gradients. last_of_step: a block's gradients are complete after this pass.
  void backward(pass<computation>& p, stash<device>& layer_inputs, bool last_of_step) const;

  [[nodiscard]] bool balances_load() const {
    if constexpr (has_experts) return Parts::balances_load(config_);
    else return false;
  }
  /// Experts per layer, for messages between pipeline stages.
  [[nodiscard]] std::size_t balanced_experts() const {
    if constexpr (has_experts) return Parts::balance_sizes(config_).experts;
    else return 0;
  }
  /// Before forward_blocks. Each block writes its layer's load; the output adds the balance loss and needs the loads of all layers, also of other pipeline
  /// stages. backward_blocks needs the resulting gradient of the experts' probabilities.
  void begin_load(pass<computation>& p) const;

  /// Forward pass of a range of blocks, for pipeline stages. Returns the hidden state after the last layer of the range.
  ///   x [n, hidden_size]  read; written if the embedding is in the range. While training, unchanged until the backward pass is done
  ///   loss_n              written if the output layer is in the range
  matrix_view<compute, memory> forward_blocks(pass<computation>& p, stash<device>& layer_inputs, const block_range& range,
                                              matrix_view<compute, memory> x, vector_view<accumulate, memory> loss_n) const;

  /// Backward pass of the same range.
  ///   d [n, hidden_size]  in: gradient of the returned hidden state (not read with the output layer); out: gradient of x. Without the output layer it
  ///                       may be the memory of the returned hidden state
  void backward_blocks(pass<computation>& p, stash<device>& layer_inputs, const block_range& range, matrix_view<compute, memory> d,
                       bool last_of_step) const;

  /// Backward in two parts: nothing of this block is deferred. Sharded gradients of a block are reduced together, and gradients of embeddings, heads and
  /// experts are too large to store.
  [[nodiscard]] bool makes_gradients_at_once(std::size_t block) const {
    return parameters_->sharding().gradients && (with_experts() || block == 0 || block == config_.num_layers + 1);
  }

 protected:
  using block_type = typename Parts::block;
  using positions = typename block_type::positions;
  using output_type = typename Parts::output;
  static constexpr bool has_experts = detail::block_has_experts<block_type>;

  /// Uninitialized.
  ///   alignment   of parameters in the flat store, in elements
  transformer(uninitialised_t, config_type sizes, const context_type& on, const options& settings, std::size_t alignment = 1);
  transformer(config_type sizes, const context_type& on, const options& settings, std::size_t alignment = 1);

  /// The hidden state after all layers, without gradients: work(x, output layer), x [n, hidden_size].
  template <class Work>
  void with_hidden_states(pass<computation>& p, stash<device>& layer_inputs, const char* who, Work&& work) const {
    parameters().require_blocks_here(who);
    const auto x = hidden(p, layer_inputs, all_blocks(), push_layer_input(p, layer_inputs));
    around_block(p, config_.num_layers + 1, forward_visit(p), [&] { work(x, output_); });
    forget(p, layer_inputs);
  }
  /// After a stage's blocks: work(output layer).
  template <class Work>
  void with_output(pass<computation>& p, Work&& work) const {
    around_block(p, config_.num_layers + 1, forward_visit(p), [&] { work(output_); });
  }
  [[nodiscard]] const std::vector<block_type>& blocks() const { return blocks_; }

 private:
  void require_content() const {
    require<error>(parameters_ != nullptr, "model: must not be used after it was moved from; use the model that it was moved to");
  }
  [[nodiscard]] bool with_experts() const {
    if constexpr (has_experts) return Parts::has_experts(config_);
    else return false;
  }
  [[nodiscard]] std::size_t first_position() const {
    if constexpr (has_hook<typename Recipe::adapter, hook::on_attention>) return options_.adapter.positions_before();
    else return 0;
  }
  static tensor_shard shard_of(const parallel_state& parallel) {
    if constexpr (has_tensor_parallel<Recipe>) return parallel.layers();
    else return {};
  }
  tensor_shard experts_of(const parallel_state& parallel) const {
    static_assert(has_experts || !has_expert_parallel<Recipe>,
                  "xtrain recipe: 'parallel' must not be expert-parallel, because the model has no experts; choose data_parallel, zero<Stage> or "
                  "tensor_parallel; see parallel/README.md");
    if constexpr (has_expert_parallel<Recipe>) {
      require<config_error>(with_experts() || parallel.expert_shard().ranks == 1, Parts::family_name(config_),
                            ": there must be experts for the ranks of expert parallelism (", parallel.expert_shard().ranks, "); this family has none");
      return parallel.expert_shard();
    } else {
      return {};
    }
  }
  static options with_targets(options settings, const config_type& sizes) {
    settings.adapter.choose_targets(Parts::adapter_targets(sizes));
    return settings;
  }
  std::vector<block_type> make_blocks();
  output_type make_output();

  /// Under expert or pipeline parallelism: declares all parameters (every rank knows all names), allocates this rank's and a tied embedding.
  void keep_own_blocks();

  template <class Work>
  void around_block(pass<computation>& p, std::size_t block, block_visit visit, Work&& work) const {
    parallel_->block_begins(p.stream, *parameters_, block, visit);
    prefetch_next(block, visit);
    work();
    parallel_->block_ends(p.stream, *parameters_, block, visit);
  }
  /// Weights offloaded to files: reads the next block's during this block.
  void prefetch_next(std::size_t block, block_visit visit) const;
  [[nodiscard]] static block_visit forward_visit(const pass<computation>& p) { return p.trains() ? block_visit::forward : block_visit::evaluation; }

  [[nodiscard]] block_range all_blocks() const { return {0, config_.num_layers + 2}; }
  // layers of a range, counted from 0
  [[nodiscard]] std::size_t first_layer(const block_range& range) const { return range.first == 0 ? 0 : range.first - 1; }
  [[nodiscard]] std::size_t last_layer(const block_range& range) const { return std::min(range.last - 1, config_.num_layers); }
  [[nodiscard]] matrix_view<compute, memory> push_layer_input(const pass<computation>& p, stash<device>& layer_inputs) const {
    const std::size_t n = p.sequence_parallel_tokens(), c = config_.hidden_size;
    return {layer_inputs.template push<compute>(n * c), {n, c}};
  }

  /// Embedding and layers of a range; returns the last layer's output. layer_inputs: each layer's output, and the address of its input.
  matrix_view<compute, memory> hidden(pass<computation>& p, stash<device>& layer_inputs, const block_range& range,
                                      matrix_view<compute, memory> x) const;
  void end_load(pass<computation>& p) const {
    if constexpr (has_experts) load_balance<computation>::end(p, Parts::balance_sizes(config_));
  }

  static void forget(pass<computation>& p, stash<device>& layer_inputs) {
    p.saved.drop(0);
    layer_inputs.drop(0);
  }

  config_type config_;
  options options_;
  context_type context_;
  detail::owned_stream<stream_type> stream_;
  std::unique_ptr<store> parameters_;
  std::unique_ptr<parallel_state> parallel_;
  [[no_unique_address]] mutable std::conditional_t<std::is_same_v<layer_state, parallel_state>, std::monostate, layer_state> unsharded_{};
  std::unique_ptr<builder<computation>> build_;
  std::unique_ptr<positions> positions_;
  typename Parts::embedding embedding_;
  std::vector<block_type> blocks_;
  output_type output_;
  detail::lifetime lifetime_;
  detail::thread_use use_;
  detail::stream_drain<stream_type> drain_;  // last: queued work ends before its memory is freed
};

// Out of class: xtrain_add_library compiles the instantiation.

template <class Recipe, class Parts>
transformer<Recipe, Parts>::transformer(uninitialised_t, config_type sizes, const context_type& on, const options& settings, std::size_t alignment)
    : config_(Parts::completed(std::move(sizes))), options_(with_targets(settings, config_)), context_(with_offload<Recipe>(on, settings)),
      stream_(std::make_unique<stream_type>(context_)), parameters_(std::make_unique<store>(context_)),
      parallel_(std::make_unique<parallel_state>(settings.parallel)),
      build_(std::make_unique<builder<computation>>(*parameters_, options_.adapter, shard_of(*parallel_), experts_of(*parallel_),
                                               context_shard_of(*parallel_), &options_.blocks)),
      positions_(std::make_unique<positions>(context_, *stream_, Parts::positions(config_, first_position()))), embedding_(*build_, config_),
      blocks_(make_blocks()), output_(make_output()), drain_(*stream_) {
  options_.adapter.finish(*parameters_);
  if (Parts::ties_embeddings(config_)) parameters_->reads_from(config_.num_layers + 1, 0);
  keep_own_blocks();
  shard_spec sharding = parallel_->sharding();
  sharding.alignment = alignment;
  parameters_->allocate(sharding);
  build_.reset();
}

template <class Recipe, class Parts>
transformer<Recipe, Parts>::transformer(config_type sizes, const context_type& on, const options& settings, std::size_t alignment)
    : transformer(uninitialised_t{}, std::move(sizes), on, settings, alignment) {
  parameters_->initialise(*stream_, options_.seed, [](std::string_view) { return true; });
  on_weights_loaded();
}

template <class Recipe, class Parts>
void transformer<Recipe, Parts>::initialise_adapter() {
  parameters_->initialise(*stream_, options_.seed,
                          [&](std::string_view name) { return Recipe::adapter::is_own(name) || Parts::initialises(config_, name); });
}

template <class Recipe, class Parts>
void transformer<Recipe, Parts>::on_weights_loaded() {
  parameters_->note_change();
  if constexpr (has_hook<typename Recipe::adapter, hook::on_weights_loaded>) Recipe::adapter::on_weights_loaded(*parameters_, *stream_);
}

template <class Recipe, class Parts>
void transformer<Recipe, Parts>::forward(pass<computation>& p, stash<device>& layer_inputs, vector_view<accumulate, memory> loss_n) const {
  parameters().require_blocks_here("forward");
  begin_sequence_parallel(p);
  begin_load(p);
  forward_blocks(p, layer_inputs, all_blocks(), push_layer_input(p, layer_inputs), loss_n);
  if (!p.trains()) forget(p, layer_inputs);
}

template <class Recipe, class Parts>
void transformer<Recipe, Parts>::backward(pass<computation>& p, stash<device>& layer_inputs, bool last_of_step) const {
  const auto scope = p.scope();
  const std::size_t n = p.sequence_parallel_tokens(), c = config_.hidden_size;
  backward_blocks(p, layer_inputs, all_blocks(), p.temporary(n, c), last_of_step);
  layer_inputs.template pop<compute>(n * c);
  end_load(p);
  if (last_of_step) parallel_->finish_gradients(p.stream, *parameters_);
}

template <class Recipe, class Parts>
void transformer<Recipe, Parts>::begin_load(pass<computation>& p) const {
  if constexpr (has_experts) {
    if (p.trains() && balances_load()) load_balance<computation>::begin(p, Parts::balance_sizes(config_));
  }
}

template <class Recipe, class Parts>
auto transformer<Recipe, Parts>::forward_blocks(pass<computation>& p, stash<device>& layer_inputs, const block_range& range, matrix_view<compute, memory> x,
                                               vector_view<accumulate, memory> loss_n) const -> matrix_view<compute, memory> {
  const auto y = hidden(p, layer_inputs, range, x);
  if (range.has(config_.num_layers + 1))
    around_block(p, config_.num_layers + 1, forward_visit(p), [&] {
      if (p.trains()) layer_inputs.push_reference(y.span());
      output_.forward(p, y, loss_n);
      if constexpr (has_experts) load_balance<computation>::add(p, Parts::balance_sizes(config_), loss_n);
    });
  return y;
}

template <class Recipe, class Parts>
void transformer<Recipe, Parts>::backward_blocks(pass<computation>& p, stash<device>& layer_inputs, const block_range& range, matrix_view<compute, memory> d,
                                                 bool last_of_step) const {
  const std::size_t n = p.sequence_parallel_tokens(), c = config_.hidden_size;
  const auto back = [&](std::size_t block, auto&& work) {
    const auto deferred = std::exchange(p.internal.deferred, makes_gradients_at_once(block) ? nullptr : p.internal.deferred);
    const bool whole = p.internal.deferred == nullptr;  // otherwise the second part reports them
    around_block(p, block, whole ? block_visit::backward : block_visit::backward_input, work);
    if (whole) parallel_->gradients_ready(p.stream, *parameters_, block, last_of_step);
    p.internal.deferred = deferred;
  };
  if (range.has(config_.num_layers + 1)) {
    back(config_.num_layers + 1, [&] {
      const matrix_view<compute, memory> x{layer_inputs.template pop_reference<compute>(n * c), {n, c}};
      output_.backward(p, x, d);
    });
  }
  for (std::size_t i = last_layer(range); i-- > first_layer(range);) {
    const matrix_view<compute, memory> y{layer_inputs.template pop<compute>(n * c), {n, c}};
    const matrix_view<compute, memory> x{layer_inputs.template pop_reference<compute>(n * c), {n, c}};
    back(i + 1, [&] {
      if constexpr (Recipe::recompute::drops_blocks) {
        const auto inner = p.scope();
        blocks_[i].forward(p, *positions_, x, p.temporary(n, c));
      }
      blocks_[i].backward(p, *positions_, x, d);
    });
  }
  if (range.has(0)) back(0, [&] { embedding_.backward(p, d); });
}

template <class Recipe, class Parts>
auto transformer<Recipe, Parts>::make_blocks() -> std::vector<block_type> {
  const auto names = Parts::names(config_);
  std::vector<block_type> blocks;
  blocks.reserve(config_.num_layers);
  for (std::size_t i = 0; i < config_.num_layers; ++i) {
    parameters_->begin_block(i + 1);
    blocks.emplace_back(*build_, config_, names, i);
  }
  return blocks;
}

template <class Recipe, class Parts>
auto transformer<Recipe, Parts>::make_output() -> output_type {
  parameters_->begin_block(config_.num_layers + 1);
  return output_type(context_, *stream_, *build_, config_, Parts::ties_embeddings(config_) ? embedding_.table() : xtrain::parameter{});
}

template <class Recipe, class Parts>
void transformer<Recipe, Parts>::keep_own_blocks() {
  if constexpr (has_expert_parallel<Recipe>)
    if (const tensor_shard experts = parallel_->expert_shard(); experts.is_sharded()) parameters_->keep_owned_by(experts.rank);
  if constexpr (clause::strategy_divides_blocks<parallel_state>) {
    parallel_->assign_blocks(config_.num_layers, Parts::ties_embeddings(config_) ? embedding_.table() : xtrain::parameter{});
    if (!parallel_->holds_all()) parameters_->keep([&](const auto& e) { return parallel_->holds(e); });
  }
}

template <class Recipe, class Parts>
void transformer<Recipe, Parts>::prefetch_next(std::size_t block, block_visit visit) const {
  if constexpr (Recipe::offload::roles.has(memory_role::weights) && !keeps_on_host<typename Recipe::offload> && !is_dry<device>) {
    const bool back = goes_back(visit);
    if (back ? block == 0 : block + 1 == parameter_blocks()) return;
    for (const bool frozen : {false, true}) {
      const auto values = parameters_->block_values(back ? block - 1 : block + 1, frozen).whole;
      if (!values.empty()) context_.will_read(values.raw(), values.bytes());
    }
  }
}

template <class Recipe, class Parts>
auto transformer<Recipe, Parts>::hidden(pass<computation>& p, stash<device>& layer_inputs, const block_range& range, matrix_view<compute, memory> x) const
    -> matrix_view<compute, memory> {
  const std::size_t first = first_layer(range), last = last_layer(range);
  // without a backward pass, two buffers alternate
  auto other = p.trains() || first == last ? x : push_layer_input(p, layer_inputs);
  if (range.has(0)) around_block(p, 0, forward_visit(p), [&] { embedding_.forward(p, x); });
  for (std::size_t i = first; i < last; ++i) {
    if (p.trains()) layer_inputs.push_reference(x.span());
    const auto y = p.trains() ? push_layer_input(p, layer_inputs) : other;
    const std::size_t before = p.saved.entries();
    around_block(p, i + 1, forward_visit(p), [&] { blocks_[i].forward(p, *positions_, x, y); });
    if (Recipe::recompute::drops_blocks || !p.trains()) p.saved.drop(before);
    other = x;
    x = y;
  }
  return x;
}

}  // namespace xtrain
