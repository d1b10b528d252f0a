// The decoder that all language models share: embedding, blocks, norm, head. A family declares which norm, positions and feed-forward layer
// it has, and how files name the modules; no code is copied for a new family.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/adapt/concepts.hpp>
#include <xtrain/layers/attention.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/dropout.hpp>
#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/layers/head.hpp>
#include <xtrain/layers/norm.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/models/config.hpp>
#include <xtrain/models/decoder_block.hpp>
#include <xtrain/models/decoder_family.hpp>
#include <xtrain/models/model_options.hpp>
#include <xtrain/models/named_parameter.hpp>
#include <xtrain/models/padding_index.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/experts.hpp>

namespace xtrain {

namespace detail {

/// A block's feed-forward layer: a dense one, unless the family declares another.
template <class Family, class Recipe>
struct feed_forward_of {
  using type = feed_forward<Recipe, typename Family::activation>;
};
template <class Family, class Recipe>
requires names_feed_forward<Family>
struct feed_forward_of<Family, Recipe> {
  using type = typename Family::template feed_forward_layer<Recipe>;
};

/// A block's type: pre-norm, unless the family declares another.
template <class Recipe, class Family>
struct block_of {
  using type = decoder_block<Recipe, typename Family::template norm<Recipe>, typename Family::template positions<Recipe>,
                             typename feed_forward_of<Family, Recipe>::type>;
};
template <class Recipe, class Family>
requires(block_kind_of<Family>() != block_kind::pre_norm)
struct block_of<Recipe, Family> {
  using type = typename Family::template block<Recipe, typename Family::template norm<Recipe>, typename Family::template positions<Recipe>,
                                               typename feed_forward_of<Family, Recipe>::type>;
};

/// A block type with another recipe: the recipe is replaced wherever it is a template argument.
template <class T, class From, class To>
struct with_other_recipe {
  using type = T;
};
template <class From, class To>
struct with_other_recipe<From, From, To> {
  using type = To;
};
template <template <class...> class Layer, class... Arguments, class From, class To>
requires(!std::is_same_v<Layer<Arguments...>, From>)
struct with_other_recipe<Layer<Arguments...>, From, To> {
  using type = Layer<typename with_other_recipe<Arguments, From, To>::type...>;
};

/// The layer may be a mixture of experts, with a load to balance.
template <class FeedForward>
concept balances_experts = requires {
  FeedForward::has_experts;
};

}  // namespace detail

/// A decoder made of blocks of one type, on the recipe's device, in the recipe's precision: the same type for every family made of
/// these layers. Its config names the family.
template <class Recipe, class Block>
class basic_decoder {
 public:
  using recipe = Recipe;
  using config_type = decoder_config;
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
  /// The same model with another recipe, e.g. on the dry device.
  template <class Other>
  using with_recipe = basic_decoder<Other, typename detail::with_other_recipe<Block, Recipe, Other>::type>;

  static_assert(xtrain::device<device>, "xtrain recipe: 'device' must be a device; see device/README.md for what a device has");
  static_assert(xtrain::precision<precision>,
                "xtrain recipe: 'precision' must be a precision policy; see precision/README.md for its members and clauses");
  static_assert(
      xtrain::recompute_policy<typename Recipe::recompute>,
      "xtrain recipe: 'recompute' must be a recompute policy (recompute_none, recompute_full, recompute_selective<...>); see layers/README.md");
  static_assert(xtrain::adapter<typename Recipe::adapter>,
                "xtrain recipe: 'adapter' must be an adapter policy (no_adapter, freeze, lora, qlora, prefix_tuning); see adapt/README.md");
  static_assert(
      device_computes<device, compute>,
      "xtrain recipe: the device must multiply matrices of the precision's compute type; it has no matmul kernel for it; choose another precision, "
      "or wrap the device as with_host_fallback<Device>; see device/README.md");

  struct uninitialised_t {};

  /// Initialized as in the family's paper.
  ///   throws  config_error when sizes are missing or not divisible, memory_error when the weights do not fit
  explicit basic_decoder(config_type sizes, const context_type& on = context_type{}, const options& settings = options{})
      : basic_decoder(uninitialised_t{}, std::move(sizes), on, settings) {
    parameters_->initialise(*stream_, settings.seed, [](std::string_view) { return true; });
    on_weights_loaded();
  }

  /// With uninitialized weights, to be loaded next.
  basic_decoder(uninitialised_t, config_type sizes, const context_type& on, const options& settings)
      : basic_decoder(completed(std::move(sizes)), on, settings, of_a_family{}) {}

  /// For a model whose weights are loaded next: initializes the adapter, sets everything else to zero.
  void initialise_adapter() {
    parameters_->initialise(*stream_, options_.seed, [](std::string_view name) { return Recipe::adapter::is_own(name); });
  }

  /// To be called after the weights were changed from outside: for adapters whose initial values depend on the weights.
  void on_weights_loaded() {
    if constexpr (requires { Recipe::adapter::on_weights_loaded(*parameters_, *stream_); })
      Recipe::adapter::on_weights_loaded(*parameters_, *stream_);
  }

  [[nodiscard]] const config_type& config() const { return config_; }
  [[nodiscard]] const decoder_family_info& family_info() const { return *config_.family; }
  [[nodiscard]] const options& settings() const { return options_; }
  [[nodiscard]] const context_type& context() const { return context_; }
  /// The stream that all of this model's operations run on.
  [[nodiscard]] stream_type& stream() const { return *stream_; }
  [[nodiscard]] store& parameters() { return *parameters_; }
  [[nodiscard]] const store& parameters() const { return *parameters_; }
  [[nodiscard]] parallel_state& parallel() const { return *parallel_; }

  /// A parameter by its name in files.
  ///   throws  config_error when no parameter has that name, shape_error when it has another rank
  template <std::size_t N>
  [[nodiscard]] tensor_view<compute, N, memory> parameter(std::string_view name) const {
    return named_parameter<N>(*parameters_, name);
  }

  /// Whether a parameter has one row per token of the vocabulary: the embedding, and an untied head.
  [[nodiscard]] bool has_row_per_token(std::string_view name) const { return config_.family->has_row_per_token(name); }

  /// The attention mask of the model's sequences.
  [[nodiscard]] attention_mask mask() const { return config_.family->mask(config_); }

  /// Number of blocks, as parallel hooks and reductions count them: the embedding is 0, then the layers, then the final norm and head.
  [[nodiscard]] std::size_t parameter_blocks() const { return config_.num_layers + 2; }

  /// The forward pass. `layer_inputs` holds layer inputs and outputs (checkpointed activations); pass::saved holds what each block saves.
  /// loss_n gets each token's loss. While training, everything the backward needs is saved.
  void forward(pass<Recipe>& p, stash<device>& layer_inputs, vector_view<accumulate, memory> loss_n) const {
    parameters_->require_blocks_here("forward");
    p.begin_sequence_parallel();
    begin_load(p);
    forward_blocks(p, layer_inputs, all_blocks(), push_layer_input(p, layer_inputs), loss_n);
    if (!p.trains()) forget(p, layer_inputs);
  }

  /// The backward pass; gradients are added to. `last_of_step` tells the parallel strategy that after this pass a block's gradients are
  /// complete.
  void backward(pass<Recipe>& p, stash<device>& layer_inputs, bool last_of_step) const {
    const auto scope = p.scope();
    const std::size_t n = p.sequence_parallel_tokens(), c = config_.hidden_size;
    backward_blocks(p, layer_inputs, all_blocks(), p.temporary(n, c), last_of_step);
    layer_inputs.template pop<compute>(n * c);
    end_load(p);
    if (last_of_step) p.parallel.finish_gradients(p.stream, *parameters_);
  }

  /// Whether training has a load-balancing loss.
  [[nodiscard]] bool balances_load() const {
    return has_experts && config_.family->has_experts && config_.balances_experts;
  }
  /// With a load-balancing loss, the expert load is saved first in the stash, until the backward of all blocks is done. Called before
  /// forward_blocks. Each block writes the load of its own layer; the head adds the balance loss, so there the loads of all layers must be
  /// present, also those from other pipeline stages. The resulting gradient of the experts' probabilities must be present for
  /// backward_blocks.
  void begin_load(pass<Recipe>& p) const {
    if constexpr (has_experts) {
      if (!p.trains() || !balances_load()) return;
      const std::size_t l = config_.num_layers, e = config_.num_experts;
      p.load.count_le = {p.save_tokens(l * e).span(), {l, e}};
      p.load.probability_le = {p.save_sums(l * e).span(), {l, e}};
      p.load.dprobability_e = p.save_sums(e);
    }
  }

  /// The forward pass of a range of blocks, for pipeline stages. Returns the hidden state after the last of these blocks (without the
  /// head).
  ///   x [n, hidden_size]  read: output of the previous block; written if the embedding is in the range. While training it must not change
  ///                       until the backward pass is done
  ///   loss_n              written if the head is in the range
  matrix_view<compute, memory> forward_blocks(pass<Recipe>& p, stash<device>& layer_inputs, const block_range& range,
                                              matrix_view<compute, memory> x, vector_view<accumulate, memory> loss_n) const {
    const auto y = hidden(p, layer_inputs, range, x);
    if (range.has(config_.num_layers + 1))
      around_block(p, config_.num_layers + 1, forward_visit(p), [&] {
        if (p.trains()) layer_inputs.push_reference(y.span());
        const auto scope = p.scope();
        const auto last = p.temporary(y.shape(0), y.shape(1));
        final_norm_.forward(p, y, last);
        head_.forward(p, last, loss_n);
        balance_load(p, loss_n);
      });
    return y;
  }

  /// The backward pass of the same range.
  ///   d [n, hidden_size]  on entry: gradient of the returned hidden state (not read if the head is in the range); on return: gradient of
  ///                       x. May be the memory of the returned hidden state
  void backward_blocks(pass<Recipe>& p, stash<device>& layer_inputs, const block_range& range, matrix_view<compute, memory> d,
                       bool last_of_step) const {
    const std::size_t n = p.sequence_parallel_tokens(), c = config_.hidden_size;
    const auto back = [&](std::size_t block, auto&& work) {
      const auto deferred = std::exchange(p.deferred, makes_gradients_at_once(block) ? nullptr : p.deferred);
      const bool whole = p.deferred == nullptr;  // otherwise the second part reports that gradients are ready
      around_block(p, block, whole ? block_visit::backward : block_visit::backward_input, work);
      if (whole) p.parallel.gradients_ready(p.stream, *parameters_, block, last_of_step);
      p.deferred = deferred;
    };
    if (range.has(config_.num_layers + 1)) {
      back(config_.num_layers + 1, [&] {
        const auto dlast = head_.backward(p, n, c);
        fill_zero(p.stream, d.span());
        const matrix_view<compute, memory> x{layer_inputs.template pop_reference<compute>(n * c), {n, c}};
        final_norm_.backward(p, x, dlast, d);
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
    if (range.has(0)) back(0, [&] { embed_backward(p, d); });
  }

  /// In a backward in two parts: whether nothing of this block is deferred. With sharded gradients, a block's are reduced
  /// together, and those of embeddings, heads and experts are too large to store until the second part.
  [[nodiscard]] bool makes_gradients_at_once(std::size_t block) const {
    return parameters_->sharding().gradients && ((has_experts && config_.family->has_experts) || block == 0 || block == config_.num_layers + 1);
  }

  /// Logits of selected tokens, without gradients: row i of the logits is that of token rows_r[i] of the batch.
  ///   logits_rv [selected tokens, vocabulary] written
  void logits(pass<Recipe>& p, stash<device>& layer_inputs, vector_view<const token, memory> rows_r,
              matrix_view<accumulate, memory> logits_rv) const {
    parameters_->require_blocks_here("logits");
    const auto x = hidden(p, layer_inputs, all_blocks(), push_layer_input(p, layer_inputs));
    around_block(p, config_.num_layers + 1, forward_visit(p), [&] {
      const auto scope = p.scope();
      const std::size_t r = rows_r.shape(0), c = config_.hidden_size;
      const auto chosen = p.temporary(r, c);
      const auto last = p.temporary(r, c);
      ops::embedding(p, rows_r, x, chosen);
      final_norm_.recompute(p, chosen, last);
      head_.logits(p, last, logits_rv);
    });
    forget(p, layer_inputs);
  }

  /// Length of an adapter's prefix in front of every sequence; a cache must have room for it too.
  [[nodiscard]] std::size_t tokens_before() const {
    if constexpr (requires { options_.adapter.tokens_before(); }) return options_.adapter.tokens_before();
    return 0;
  }

  /// The shape of a key/value cache for `rows` sequences of up to `capacity` tokens.
  [[nodiscard]] shape_of_rank<2> cache_shape(std::size_t rows, std::size_t capacity) const {
    const std::size_t kv_heads = blocks_.empty() ? config_.num_kv_heads : blocks_.front().kv_heads();
    return {config_.num_layers * rows * kv_heads, capacity * config_.head_dim};
  }

 private:
  using positions = typename Block::positions;
  using norm = typename Block::norm;
  static constexpr bool has_experts = detail::balances_experts<typename Block::feed_forward_type>;

  struct of_a_family {};
  basic_decoder(const config_type& sizes, const context_type& on, const options& settings, of_a_family)
      : basic_decoder(sizes, on, settings, sizes.family->names()) {}
  basic_decoder(const config_type& sizes, const context_type& on, const options& settings, const decoder_names& names)
      : config_(sizes), options_(with_targets(settings, sizes)), context_(with_offload<Recipe>(on, settings)),
        stream_(std::make_unique<stream_type>(context_)), parameters_(std::make_unique<store>(context_)),
        parallel_(std::make_unique<parallel_state>(settings.parallel)),
        build_(std::make_unique<builder<Recipe>>(*parameters_, options_.adapter, shard_of(*parallel_), experts_of(*parallel_),
                                                 context_shard_of(*parallel_))),
        positions_(std::make_unique<positions>(context_, *stream_,
                                               position_options{.max_position_embeddings = config_.max_position_embeddings,
                                                                .num_heads = config_.num_heads,
                                                                .head_dim = config_.head_dim,
                                                                .rotary_dim = config_.rotary_dim,
                                                                .rope_theta = config_.rope_theta,
                                                                .scaling = config_.rope_scaling,
                                                                .alibi = config_.alibi,
                                                                .first = first_position(),
                                                                .kind = config_.family->positions})),
        embedding_(*build_, embedding_settings(config_, names)), embedding_norm_(make_embedding_norm(names)), blocks_(make_blocks(names)),
        final_norm_(make_final_norm(names)),
        head_(context_, *stream_,
              config_.tie_word_embeddings ? embedding_.table()
                                          : build_->matrix({build_->vocabulary_part(names.head, config_.vocab_size)}, config_.hidden_size,
                                                           initial_values::normal(config_.initializer_range)),
              config_.hidden_size,
              {.normalized = config_.normalized_head,
               .z_loss = config_.z_loss,
               .shard = shard_of(*parallel_),
               .vocab_size = config_.vocab_size}) {
    require<config_error>(names.positions.empty() || first_position() == 0, config_.family->name, ": positions must start at 0, because each has its own "
                          "embedding; with the adapter they start at ", first_position());
    options_.adapter.finish(*parameters_);
    if (config_.tie_word_embeddings) parameters_->reads_from(config_.num_layers + 1, 0);
    keep_own_blocks();
    parameters_->allocate(parallel_->sharding());
    build_.reset();
  }

  [[nodiscard]] std::size_t first_position() const {
    if constexpr (requires { options_.adapter.positions_before(); }) return options_.adapter.positions_before();
    return 0;
  }
  /// This rank's shard of every layer.
  static tensor_shard shard_of(const parallel_state& parallel) {
    if constexpr (has_tensor_parallel<Recipe>) return parallel.layers();
    else return {};
  }
  /// This rank's shard of every layer's experts.
  tensor_shard experts_of(const parallel_state& parallel) const {
    static_assert(has_experts || !has_expert_parallel<Recipe>,
                  "xtrain recipe: 'parallel' must not be expert-parallel, because the model has no experts; choose data_parallel, zero<Stage> or "
                  "tensor_parallel; see parallel/README.md");
    if constexpr (has_expert_parallel<Recipe>) {
      require<config_error>(config_.family->has_experts || parallel.expert_shard().ranks == 1, config_.family->name,
                            ": there must be experts for the ranks of expert parallelism (", parallel.expert_shard().ranks, "); this family has none");
      return parallel.expert_shard();
    } else {
      return {};
    }
  }
  static options with_targets(options settings, const config_type& sizes) {
    settings.adapter.choose_targets(sizes.family->adapter_targets());
    return settings;
  }
  static config_type completed(config_type sizes) {
    require<config_error>(sizes.family != nullptr, "decoder: the config must name its family (decoder_config::family); it names none");
    sizes.family->complete(sizes);
    detail::complete_decoder(sizes, sizes.family->name);
    return sizes;
  }
  static typename token_embedding<Recipe>::options embedding_settings(const config_type& c, const decoder_names& names) {
    return {.vocab_size = c.vocab_size,
            .hidden_size = c.hidden_size,
            .name = names.embedding,
            .position_name = names.positions,
            .positions = c.max_position_embeddings,
            .dropout = c.embedding_dropout,
            .site = 0,
            .initial = initial_values::normal(c.initializer_range),
            .padding_idx = c.family->has_padding_index ? padding_index(c.pad_token_id, c.vocab_size, c.family->name) : -1};
  }
  std::vector<Block> make_blocks(const decoder_names& names) {
    std::vector<Block> blocks;
    blocks.reserve(config_.num_layers);
    for (std::size_t i = 0; i < config_.num_layers; ++i) {
      parameters_->begin_block(i + 1);
      blocks.emplace_back(*build_, config_, names, i);
    }
    return blocks;
  }
  std::optional<norm> make_embedding_norm(const decoder_names& names) {
    if (!config_.family->embedding_norm) return std::nullopt;
    return detail::make_norm<norm>(*build_, names.embedding_norm, config_);
  }
  norm make_final_norm(const decoder_names& names) {
    parameters_->begin_block(config_.num_layers + 1);
    return detail::make_norm<norm>(*build_, names.final_norm, config_);
  }

  /// Under expert or pipeline parallelism, all parameters are declared, so that every rank knows every name; memory is allocated for this
  /// rank's own, and for a tied embedding.
  void keep_own_blocks() {
    if constexpr (has_expert_parallel<Recipe>)
      if (const tensor_shard experts = parallel_->expert_shard(); experts.is_sharded()) parameters_->keep_owned_by(experts.rank);
    if constexpr (requires { parallel_->divide_blocks(config_.num_layers, xtrain::parameter{}); }) {
      parallel_->divide_blocks(config_.num_layers, config_.tie_word_embeddings ? embedding_.table() : xtrain::parameter{});
      if (!parallel_->holds_all()) parameters_->keep([&](const auto& e) { return parallel_->holds(e); });
    }
  }

  template <class Work>
  void around_block(pass<Recipe>& p, std::size_t block, block_visit visit, Work&& work) const {
    p.parallel.block_begins(p.stream, *parameters_, block, visit);
    ask_for_next(block, visit);
    work();
    p.parallel.block_ends(p.stream, *parameters_, block, visit);
  }
  /// With weights offloaded to files, prefetches the next block's while this one is computed.
  void ask_for_next(std::size_t block, block_visit visit) const {
    if constexpr (Recipe::offload::roles.has(memory_role::weights) && !is_dry<device>) {
      const bool back = goes_back(visit);
      if (back ? block == 0 : block + 1 == parameter_blocks()) return;
      for (const bool frozen : {false, true}) {
        const auto values = parameters_->block_values(back ? block - 1 : block + 1, frozen).whole;
        if (!values.empty()) context_.will_read(values.raw(), values.bytes());
      }
    }
  }
  [[nodiscard]] static block_visit forward_visit(const pass<Recipe>& p) { return p.trains() ? block_visit::forward : block_visit::evaluation; }

  [[nodiscard]] block_range all_blocks() const { return {0, config_.num_layers + 2}; }
  // layers of a range, counted from 0
  [[nodiscard]] std::size_t first_layer(const block_range& range) const { return range.first == 0 ? 0 : range.first - 1; }
  [[nodiscard]] std::size_t last_layer(const block_range& range) const { return std::min(range.last - 1, config_.num_layers); }
  [[nodiscard]] matrix_view<compute, memory> push_layer_input(const pass<Recipe>& p, stash<device>& layer_inputs) const {
    const std::size_t n = p.sequence_parallel_tokens(), c = config_.hidden_size;
    return {layer_inputs.template push<compute>(n * c), {n, c}};
  }

  /// Embedding and layers of a range; returns the last layer's output. `layer_inputs` holds, per layer, its output and the address of its
  /// input.
  matrix_view<compute, memory> hidden(pass<Recipe>& p, stash<device>& layer_inputs, const block_range& range,
                                      matrix_view<compute, memory> x) const {
    const std::size_t first = first_layer(range), last = last_layer(range);
    // without a backward pass, two buffers alternate
    auto other = p.trains() || first == last ? x : push_layer_input(p, layer_inputs);
    if (range.has(0)) around_block(p, 0, forward_visit(p), [&] { embed(p, x); });
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
  /// x [n, hidden_size] written
  void embed(pass<Recipe>& p, matrix_view<compute, memory> x) const {
    if (embedding_norm_) {
      const auto raw = p.save(x.shape(0), x.shape(1));
      embedding_.forward(p, raw);
      embedding_norm_->forward(p, raw, x);
      p.save_reference(raw);
    } else {
      embedding_.forward(p, x);
    }
  }
  /// d [n, hidden_size] is overwritten
  void embed_backward(pass<Recipe>& p, matrix_view<compute, memory> d) const {
    if (embedding_norm_) {
      const auto scope = p.scope();
      const auto raw = p.saved_reference(d.shape(0), d.shape(1));
      const auto draw = p.temporary(d.shape(0), d.shape(1));
      fill_zero(p.stream, draw.span());
      embedding_norm_->backward(p, raw, d, draw);
      p.pop_saved(d.shape(0), d.shape(1));
      embedding_.backward(p, draw);
    } else {
      embedding_.backward(p, d);
    }
  }

  /// Adds the load-balancing loss of all layers to each token's loss; its gradient is used in the blocks' backward.
  void balance_load(pass<Recipe>& p, vector_view<accumulate, memory> loss_n) const {
    if constexpr (has_experts) {
      if (!p.load.exists()) return;
      double weight = config_.router_aux_loss_coef;
      if constexpr (has_context_parallel<Recipe>) {
        // counts and probabilities are sums over the context-parallel ranks, in a product of two: divide by the square of their number
        auto& sharing = p.parallel.context();
        sharing.all_reduce(p.stream, p.load.count_le.span(), reduction::sum);
        sharing.all_reduce(p.stream, p.load.probability_le.span(), reduction::sum);
        weight /= static_cast<double>(sharing.size() * sharing.size());
      }
      ops::expert_balance<compute>(p, p.load.count_le, p.load.probability_le, p.batch.targets_n, config_.vocab_size, weight, p.gradient_scale,
                                   loss_n, p.load.dprobability_e);
      // the gradient, too, is a sum over the targets of all these ranks
      if constexpr (has_context_parallel<Recipe>) p.parallel.context().all_reduce(p.stream, p.load.dprobability_e.span(), reduction::sum);
    }
  }
  void end_load(pass<Recipe>& p) const {
    if constexpr (has_experts) {
      if (!p.load.exists()) return;
      const std::size_t l = config_.num_layers, e = config_.num_experts;
      (void)p.pop_saved_sums(e);
      (void)p.pop_saved_sums(l * e);
      (void)p.pop_saved_tokens(l * e);
      p.load = {};
    }
  }

  static void forget(pass<Recipe>& p, stash<device>& layer_inputs) {
    p.saved.drop(0);
    layer_inputs.drop(0);
  }

  config_type config_;
  options options_;
  context_type context_;
  std::unique_ptr<stream_type> stream_;
  std::unique_ptr<store> parameters_;
  std::unique_ptr<parallel_state> parallel_;
  std::unique_ptr<builder<Recipe>> build_;
  std::unique_ptr<positions> positions_;
  token_embedding<Recipe> embedding_;
  std::optional<norm> embedding_norm_;
  std::vector<Block> blocks_;
  norm final_norm_;
  language_head<Recipe> head_;
};

/// A language model of a family that is known at compile time.
template <class Recipe, class Family>
class decoder : public basic_decoder<Recipe, typename detail::block_of<Recipe, Family>::type> {
  using base = basic_decoder<Recipe, typename detail::block_of<Recipe, Family>::type>;

 public:
  using family = Family;
  /// The same type for all families made of the same layers: trainers and generators are compiled for it.
  using shared_model = base;
  using typename base::config_type;
  using typename base::context_type;
  using typename base::options;
  using typename base::uninitialised_t;
  /// The same model with another recipe, e.g. on the dry device.
  template <class Other>
  using with_recipe = decoder<Other, Family>;

  /// Initialized as in the family's paper.
  ///   throws  config_error when sizes are missing or not divisible, or are another family's; memory_error when the weights do not fit
  explicit decoder(config_type sizes, const context_type& on = context_type{}, const options& settings = options{})
      : base(of_family(std::move(sizes)), on, settings) {}
  decoder(uninitialised_t tag, config_type sizes, const context_type& on, const options& settings) : base(tag, of_family(std::move(sizes)), on, settings) {}

  /// The family that a config.json must describe.
  [[nodiscard]] static const decoder_family_info& family_of(const named_settings&) { return info_of<Family>; }

  /// Reads a Hugging Face folder; see io/pretrained.hpp.
  ///   throws  file_error, config_error when config.json and weights contradict each other or the family, memory_error
  template <class Self = decoder>
  [[nodiscard]] static Self from_pretrained(const std::string& folder, const context_type& on = context_type{}, const options& settings = options{}) {
    static_assert(
        requires { load_pretrained(pretrained_tag<Self>{}, folder, on, settings); },
        "xtrain from_pretrained: the 'io' component must be included; include <xtrain/io.hpp> and link xtrain::io; see io/README.md");
    return load_pretrained(pretrained_tag<Self>{}, folder, on, settings);
  }

 private:
  static config_type of_family(config_type sizes) {
    require<config_error>(sizes.family == nullptr || sizes.family == &info_of<Family>, Family::name, ": the config must be of this family; it is of '",
                          sizes.family == nullptr ? "" : sizes.family->name, "'");
    sizes.family = &info_of<Family>;
    return sizes;
  }
};

}  // namespace xtrain
