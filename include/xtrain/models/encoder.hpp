// The encoder: bidirectional attention; predicts masked tokens, and labels of sequences.
//                                                                          [Vaswani et al. 2017, section 3.1; Devlin et al. 2019]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/adapt/concepts.hpp>
#include <xtrain/layers/attention.hpp>
#include <xtrain/layers/attention_mask.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/dropout.hpp>
#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/layers/head.hpp>
#include <xtrain/layers/norm.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/models/family_info.hpp>
#include <xtrain/models/model_options.hpp>
#include <xtrain/models/named_parameter.hpp>
#include <xtrain/models/padding_index.hpp>
#include <xtrain/ops/elementwise.hpp>

namespace xtrain {

/// The configuration of an encoder. Zero means the family's default.
struct encoder_config {
  std::size_t vocab_size = 0;
  std::size_t hidden_size = 0;
  std::size_t num_layers = 0;
  std::size_t num_heads = 0;
  std::size_t intermediate_size = 0;        ///< 0: 4 · hidden_size
  std::size_t max_position_embeddings = 0;  ///< maximum sequence length, in tokens
  std::size_t segments = 2;                 ///< segments (token types) that a sequence may have
  std::vector<std::string> labels = {};     ///< names of the classes of a sequence; none: the family's
  double norm_epsilon = 1e-12;
  bool tie_word_embeddings = true;  ///< the masked-LM head's weight is the embedding's
  double attention_dropout = 0.0;
  double residual_dropout = 0.0;  ///< and of embeddings
  double label_dropout = 0.0;     ///< before the classifier
  double initializer_range = 0.02;
  std::optional<token> pad_token_id = 0;  ///< its embedding is zero and not trained by inputs; negative counts from the vocabulary's end

  friend bool operator==(const encoder_config&, const encoder_config&) = default;
};

namespace detail {

/// Fills in defaults and checks the config.
///   throws  config_error
inline void complete_encoder(encoder_config& c, const char* family) {
  if (c.intermediate_size == 0) c.intermediate_size = 4 * c.hidden_size;
  constexpr std::size_t limit = std::size_t{1} << 31, max_layers = 4096;
  const std::pair<std::size_t, const char*> sizes[] = {{c.vocab_size, "vocab_size"},
                                                       {c.hidden_size, "hidden_size"},
                                                       {c.num_layers, "num_layers"},
                                                       {c.num_heads, "num_heads"},
                                                       {c.max_position_embeddings, "max_position_embeddings"},
                                                       {c.segments, "segments"}};
  for (const auto& [size, what] : sizes)
    require<config_error>(size > 0 && size < limit, family, ": ", what, " must be given, and below 2^31; given ", size);
  require<config_error>(c.intermediate_size < limit, family, ": intermediate_size must be below 2^31; given ", c.intermediate_size);
  require<config_error>(c.hidden_size % c.num_heads == 0, family, ": hidden_size (", c.hidden_size, ") must be divisible by num_heads (", c.num_heads, ")");
  require<config_error>(c.num_layers <= max_layers, family, ": num_layers must be at most ", max_layers, "; given ", c.num_layers);
  for (const double p : {c.attention_dropout, c.residual_dropout, c.label_dropout})
    require<config_error>(p >= 0.0 && p < 1.0, family, ": dropout must be in [0, 1); given ", p);
  require<config_error>(c.norm_epsilon > 0.0, family, ": norm_epsilon must be positive; given ", c.norm_epsilon);
}

}  // namespace detail

namespace detail {

template <class Family>
inline constexpr family_info<encoder_config> encoder_family_info = make_family_info<Family, encoder_config>();

}  // namespace detail

/// How files name an encoder's modules. Modules of a block are named "<blocks><index>.<name>".
struct encoder_names {
  std::string embedding{}, positions{}, segments{}, embedding_norm{};
  std::string blocks{};
  std::vector<std::string> qkv{};
  std::string attention_output{}, attention_norm{};
  std::string up{}, down{}, feed_forward_norm{};
};

/// A post-norm block:  y = norm(m + feed_forward(m)),  m = norm(x + attention(x))       [Vaswani et al. 2017, section 3.1]
template <class Recipe>
class encoder_block {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using positions = no_positions<Recipe>;  // positions are in the embedding
  static constexpr bool recomputes_norms = Recipe::recompute::template drops<norm_outputs>;

  encoder_block(builder<Recipe>& build, const encoder_config& c, const encoder_names& names, std::size_t index)
      : attention_(build, attention_settings(c, names, index)), attention_residual_(c.residual_dropout, site(index, 1)),
        attention_norm_(build, full(names, index, names.attention_norm), c.hidden_size, c.norm_epsilon),
        feed_forward_(build, feed_forward_settings(c, names, index)), feed_forward_residual_(c.residual_dropout, site(index, 2)),
        feed_forward_norm_(build, full(names, index, names.feed_forward_norm), c.hidden_size, c.norm_epsilon) {}

  /// x [n, hidden_size] read, y [n, hidden_size] written
  void forward(pass<Recipe>& p, const positions& at, matrix_view<compute, memory> x, matrix_view<compute, memory> y) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0), c = x.shape(1);
    const auto attended = p.save(n, c);
    const auto middle = saves_middle() ? p.save(n, c) : p.temporary(n, c);
    const auto fed = p.save(n, c);

    attention_residual_.forward(p, x, attended, [&](auto out, ops::result how) { attention_.forward(p, at, x, out, how); });
    attention_norm_.forward(p, attended, middle);
    feed_forward_residual_.forward(p, middle, fed, [&](auto out, ops::result how) { feed_forward_.forward(p, middle, out, how); });
    feed_forward_norm_.forward(p, fed, y);

    p.save_reference(attended);
    p.save_reference(middle);
    p.save_reference(fed);
  }

  /// d [n, hidden_size]: dy on entry, dx on return
  void backward(pass<Recipe>& p, const positions& at, matrix_view<const compute, memory> x, matrix_view<compute, memory> d) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0), c = x.shape(1);
    const auto fed = p.saved_reference(n, c);
    auto middle = p.saved_reference(n, c);
    const auto attended = p.saved_reference(n, c);
    const auto dsum = p.temporary(n, c);

    // forward: y = norm(fed)
    fill_zero(p.stream, dsum.span());
    feed_forward_norm_.backward(p, fed, d, dsum);
    // forward: fed = middle + feed_forward(middle)
    if (recomputes_norms) {
      middle = p.temporary(n, c);
      if (feed_forward_.needs_input()) attention_norm_.recompute(p, attended, middle);
    }
    feed_forward_residual_.backward(p, dsum, [&](auto dbranch) { feed_forward_.backward(p, middle, dbranch, d, ops::result::replaces); });
    ops::add(p, dsum, d);
    // forward: middle = norm(attended)
    fill_zero(p.stream, dsum.span());
    attention_norm_.backward(p, attended, d, dsum);
    // forward: attended = x + attention(x)
    attention_residual_.backward(p, dsum, [&](auto dbranch) { attention_.backward(p, at, x, dbranch, d, ops::result::replaces); });
    ops::add(p, dsum, d);

    p.pop_saved(n, c);
    if (saves_middle()) p.pop_saved(n, c);
    p.pop_saved(n, c);
  }

 private:
  [[nodiscard]] bool saves_middle() const { return !recomputes_norms && feed_forward_.needs_input(); }

  static std::string full(const encoder_names& names, std::size_t index, const std::string& name) {
    return concat(names.blocks, index, ".", name);
  }
  /// Random sites: 0 to 7 are the embedding's and the heads'.
  static std::uint32_t site(std::size_t index, std::uint32_t place) { return static_cast<std::uint32_t>(8 * (index + 1)) + place; }

  static attention_options attention_settings(const encoder_config& c, const encoder_names& names, std::size_t index) {
    std::vector<std::string> qkv;
    for (const std::string& name : names.qkv) qkv.push_back(full(names, index, name));
    return {.hidden_size = c.hidden_size,
            .num_heads = c.num_heads,
            .num_kv_heads = c.num_heads,
            .head_dim = c.hidden_size / c.num_heads,
            .bias = true,
            .output_bias = true,
            .dropout = c.attention_dropout,
            .site = site(index, 0),
            .layer = index,
            .qkv_names = std::move(qkv),
            .output_name = full(names, index, names.attention_output),
            .initial = initial_values::normal(c.initializer_range),
            .output_initial = initial_values::normal(c.initializer_range)};
  }
  static feed_forward_options feed_forward_settings(const encoder_config& c, const encoder_names& names, std::size_t index) {
    return {.hidden_size = c.hidden_size,
            .intermediate_size = c.intermediate_size,
            .bias = true,
            .up_names = {full(names, index, names.up)},
            .down_name = full(names, index, names.down),
            .initial = initial_values::normal(c.initializer_range),
            .down_initial = initial_values::normal(c.initializer_range)};
  }

  causal_attention<Recipe, positions> attention_;
  residual<Recipe> attention_residual_;
  layer_norm<Recipe> attention_norm_;
  feed_forward<Recipe, gelu_erf_activation> feed_forward_;
  residual<Recipe> feed_forward_residual_;
  layer_norm<Recipe> feed_forward_norm_;
};

/// An encoder of a family, on the recipe's device, in the recipe's precision. The family declares names in files and
/// heads; each loss is averaged over its labels, and all are added.
template <class Recipe, class Family>
class encoder {
 public:
  /// It is bidirectional.
  static constexpr bool predicts_what_follows = false;
  using recipe = Recipe;
  using family = Family;
  using config_type = encoder_config;
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
  template <class Other>
  using with_recipe = encoder<Other, Family>;

  static_assert(!requires { typename Recipe::parallel::template runner<encoder>; },
                "xtrain encoder: it cannot be a pipeline: 'parallel' must be single, data_parallel or zero<N>; see parallel/README.md");

  /// Initialized as in the family's paper.
  ///   throws  config_error when sizes are missing or not divisible, memory_error when the weights do not fit
  explicit encoder(config_type sizes, const context_type& on = context_type{}, const options& settings = options{})
      : encoder(uninitialised_t{}, std::move(sizes), on, settings) {
    parameters_->initialise(*stream_, settings.seed, [](std::string_view) { return true; });
    on_weights_loaded();
  }

  /// With uninitialized weights, to be loaded next.
  struct uninitialised_t {};
  encoder(uninitialised_t, config_type sizes, const context_type& on, const options& settings)
      : config_(completed(std::move(sizes))), options_(with_targets(settings)), context_(with_offload<Recipe>(on, settings)),
        stream_(std::make_unique<stream_type>(context_)), parameters_(std::make_unique<store>(context_)),
        parallel_(std::make_unique<parallel_state>(settings.parallel)),
        build_(std::make_unique<builder<Recipe>>(*parameters_, options_.adapter, tensor_shard{}, tensor_shard{},
                                                 context_shard_of(*parallel_))),
        positions_(std::make_unique<positions>(context_, *stream_, position_options{})), embedding_(*build_, embedding_settings(config_)),
        segments_(build_->matrix({{Family::names().segments, config_.segments}}, config_.hidden_size, initial())),
        embedding_norm_(*build_, Family::names().embedding_norm, config_.hidden_size, config_.norm_epsilon), blocks_(make_blocks()),
        heads_(make_heads()) {
    static_assert(!has_expert_parallel<Recipe>, "xtrain recipe: 'parallel' must not be expert-parallel, because the model has no experts; choose data_parallel "
                                            "or zero<Stage>; see parallel/README.md");
    if constexpr (has_tensor_parallel<Recipe>)
      require<config_error>(!parallel_->layers().is_sharded(), "tensor: ", Family::name,
                            ": an encoder's layers cannot be sharded among tensor-parallel ranks; given ", parallel_->layers().ranks, " ranks");
    build_->require_whole_rows("an encoder");
    options_.adapter.finish(*parameters_);
    if (config_.tie_word_embeddings) parameters_->reads_from(config_.num_layers + 1, 0);
    parameters_->allocate(parallel_->sharding());
    build_.reset();
  }

  /// For a model whose weights are loaded next: initializes the adapter and heads that files may lack, sets everything else to zero.
  void initialise_adapter() {
    parameters_->initialise(*stream_, options_.seed,
                            [](std::string_view name) { return Recipe::adapter::is_own(name) || Family::may_be_missing(name); });
  }

  /// To be called after the weights were changed from outside: for adapters whose initial values depend on the weights.
  void on_weights_loaded() {
    if constexpr (requires { Recipe::adapter::on_weights_loaded(*parameters_, *stream_); })
      Recipe::adapter::on_weights_loaded(*parameters_, *stream_);
  }

  [[nodiscard]] const config_type& config() const { return config_; }
  [[nodiscard]] const options& settings() const { return options_; }
  [[nodiscard]] const context_type& context() const { return context_; }
  [[nodiscard]] stream_type& stream() const { return *stream_; }
  [[nodiscard]] store& parameters() { return *parameters_; }
  [[nodiscard]] const store& parameters() const { return *parameters_; }
  [[nodiscard]] parallel_state& parallel() const { return *parallel_; }
  [[nodiscard]] static const xtrain::family_info<config_type>& family_info() { return detail::encoder_family_info<Family>; }
  /// The family that a config.json must describe.
  [[nodiscard]] static const xtrain::family_info<config_type>& family_of(const named_settings&) { return family_info(); }
  /// Whether a parameter has one row per token of the vocabulary: the embedding, and the masked-LM head's own parameters.
  [[nodiscard]] static bool has_row_per_token(std::string_view name) { return family_info().has_row_per_token(name); }

  /// Every token attends to its whole sample.
  [[nodiscard]] attention_mask mask() const { return {.kind = attention_mask::rule::bidirectional}; }

  /// A parameter by its name in files.
  ///   throws  config_error when no parameter has that name, shape_error when it has another rank
  template <std::size_t N>
  [[nodiscard]] tensor_view<compute, N, memory> parameter(std::string_view name) const {
    return named_parameter<N>(*parameters_, name);
  }

  /// Number of blocks, as parallel hooks and reductions count them: the embedding is 0, then the encoder blocks, then the heads.
  [[nodiscard]] std::size_t parameter_blocks() const { return config_.num_layers + 2; }

  /// throws data_error when a batch on the host has segments or labels that the model does not have
  template <class HostBatch>
  void require_rows(const HostBatch& host) const {
    const auto require_below = [](std::span<const token> values, std::size_t limit, const char* what) {
      for (const token value : values)
        require<data_error>(value < 0 || static_cast<std::size_t>(value) < limit, "batch: ", what, " must be below ", limit, "; given ",
                            value);
    };
    require_below(detail::segments_of(host), config_.segments, "segments");
    require_below(detail::labels_of(host), config_.labels.size(), "labels");
  }

  /// The forward pass; see decoder::forward. loss_n gets the losses of masked tokens at their indices, and the weighted losses of labels at
  /// any index, since only its sum is used.
  void forward(pass<Recipe>& p, stash<device>& layer_inputs, vector_view<accumulate, memory> loss_n) const {
    const auto x = hidden(p, layer_inputs);
    around_block(p, config_.num_layers + 1, forward_visit(p), [&] { heads_.forward(p, x, loss_n); });
    if (!p.trains()) forget(p, layer_inputs);
  }

  /// The backward pass; gradients are added to.
  void backward(pass<Recipe>& p, stash<device>& layer_inputs, bool last_of_step) const {
    const auto scope = p.scope();
    const std::size_t n = p.batch.n(), c = config_.hidden_size;
    const auto d = p.temporary(n, c);
    const auto done = [&](std::size_t block) {
      p.parallel.gradients_ready(p.stream, *parameters_, block, last_of_step);
    };
    around_block(p, config_.num_layers + 1, block_visit::backward, [&] {
      fill_zero(p.stream, d.span());
      const matrix_view<compute, memory> x{layer_inputs.template pop_reference<compute>(n * c), {n, c}};
      heads_.backward(p, x, d);
    });
    done(config_.num_layers + 1);
    for (std::size_t i = config_.num_layers; i-- > 0;) {
      layer_inputs.template pop<compute>(n * c);
      const matrix_view<compute, memory> x{layer_inputs.template pop_reference<compute>(n * c), {n, c}};
      around_block(p, i + 1, block_visit::backward, [&] {
        if constexpr (Recipe::recompute::drops_blocks) {
          const auto inner = p.scope();
          blocks_[i].forward(p, *positions_, x, p.temporary(n, c));
        }
        blocks_[i].backward(p, *positions_, x, d);
      });
      done(i + 1);
    }
    around_block(p, 0, block_visit::backward, [&] { embed_backward(p, d); });
    layer_inputs.template pop<compute>(n * c);
    done(0);
    if (last_of_step) p.parallel.finish_gradients(p.stream, *parameters_);
  }

  /// Vocabulary logits of selected tokens, without gradients: row i of the logits is that of token places_r[i] of the batch.
  ///   logits_rv [selected tokens, vocabulary] written
  void logits(pass<Recipe>& p, stash<device>& layer_inputs, vector_view<const token, memory> places_r,
              matrix_view<accumulate, memory> logits_rv) const {
    static_assert(
        requires { typename heads::word_head; },
        "xtrain encoder::logits: the family must have a masked-LM head; it has a classification head: call label_logits; see models/README.md");
    const auto x = hidden(p, layer_inputs);
    around_block(p, config_.num_layers + 1, forward_visit(p), [&] {
      const auto scope = p.scope();
      const auto chosen = p.temporary(places_r.shape(0), config_.hidden_size);
      ops::embedding(p, places_r, x, chosen);
      heads_.words().logits(p, chosen, logits_rv);
    });
    forget(p, layer_inputs);
  }
  /// Classification logits of every sequence.
  ///   logits_bv [sequences, labels] written
  void label_logits(pass<Recipe>& p, stash<device>& layer_inputs, matrix_view<accumulate, memory> logits_bv) const {
    static_assert(
        requires { typename heads::label_head; },
        "xtrain encoder::label_logits: the family must have a classification head; it has a masked-LM head: call logits; see models/README.md");
    const auto x = hidden(p, layer_inputs);
    around_block(p, config_.num_layers + 1, forward_visit(p), [&] { heads_.rows().logits(p, x, logits_bv); });
    forget(p, layer_inputs);
  }

  /// Reads a Hugging Face folder; see io/pretrained.hpp.
  ///   throws  file_error, config_error when config.json and weights contradict each other or the family, memory_error
  template <class Self = encoder>
  [[nodiscard]] static Self from_pretrained(const std::string& folder, const context_type& on = context_type{}, const options& settings = options{}) {
    static_assert(
        requires { load_pretrained(pretrained_tag<Self>{}, folder, on, settings); },
        "xtrain from_pretrained: the 'io' component must be included; include <xtrain/io.hpp> and link xtrain::io; see io/README.md");
    return load_pretrained(pretrained_tag<Self>{}, folder, on, settings);
  }

 private:
  using positions = typename encoder_block<Recipe>::positions;
  using heads = typename Family::template heads<Recipe>;
  static constexpr std::uint32_t embedding_site = 0;

  static options with_targets(options settings) {
    settings.adapter.choose_targets(Family::adapter_targets());
    return settings;
  }
  static config_type completed(config_type sizes) {
    Family::complete(sizes);
    detail::complete_encoder(sizes, Family::name);
    return sizes;
  }
  [[nodiscard]] initial_values initial() const { return initial_values::normal(config_.initializer_range); }
  static typename token_embedding<Recipe>::options embedding_settings(const config_type& c) {
    return {.vocab_size = c.vocab_size,
            .hidden_size = c.hidden_size,
            .name = Family::names().embedding,
            .position_name = Family::names().positions,
            .positions = c.max_position_embeddings,
            .initial = initial_values::normal(c.initializer_range),
            .padding_idx = padding_index(c.pad_token_id, c.vocab_size, Family::name)};
  }
  std::vector<encoder_block<Recipe>> make_blocks() {
    std::vector<encoder_block<Recipe>> blocks;
    blocks.reserve(config_.num_layers);
    for (std::size_t i = 0; i < config_.num_layers; ++i) {
      parameters_->begin_block(i + 1);
      blocks.emplace_back(*build_, config_, Family::names(), i);
    }
    return blocks;
  }
  heads make_heads() {
    parameters_->begin_block(config_.num_layers + 1);
    return heads(*build_, config_, config_.tie_word_embeddings ? embedding_.table() : xtrain::parameter{});
  }

  template <class Work>
  void around_block(pass<Recipe>& p, std::size_t block, block_visit visit, Work&& work) const {
    p.parallel.block_begins(p.stream, *parameters_, block, visit);
    work();
    p.parallel.block_ends(p.stream, *parameters_, block, visit);
  }
  [[nodiscard]] static block_visit forward_visit(const pass<Recipe>& p) { return p.trains() ? block_visit::forward : block_visit::evaluation; }

  /// Embedding and blocks; returns the last block's output. `layer_inputs` holds, per block, its output and the address of its input.
  matrix_view<compute, memory> hidden(pass<Recipe>& p, stash<device>& layer_inputs) const {
    const std::size_t n = p.batch.n(), c = config_.hidden_size;
    const auto boundary = [&] { return matrix_view<compute, memory>{layer_inputs.template push<compute>(n * c), {n, c}}; };
    auto x = boundary();
    auto other = p.trains() ? x : boundary();  // without a backward pass, two buffers alternate
    around_block(p, 0, forward_visit(p), [&] { embed(p, x); });
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (p.trains()) layer_inputs.push_reference(x.span());
      const auto y = p.trains() ? boundary() : other;
      const std::size_t before = p.saved.entries();
      around_block(p, i + 1, forward_visit(p), [&] { blocks_[i].forward(p, *positions_, x, y); });
      if (Recipe::recompute::drops_blocks || !p.trains()) p.saved.drop(before);
      other = x;
      x = y;
    }
    if (p.trains()) layer_inputs.push_reference(x.span());
    return x;
  }
  /// x [n, hidden_size] written: dropout(norm(tokens + positions + segments))
  void embed(pass<Recipe>& p, matrix_view<compute, memory> x) const {
    const auto sum = p.save(x.shape(0), x.shape(1));
    embedding_.forward(p, sum);
    ops::embedding(p, p.batch.segments_n, p.matrix(segments_), sum, ops::result::is_added);
    embedding_norm_.forward(p, sum, x);
    if (drops(p)) ops::dropout(p, x, config_.residual_dropout, dropped(p), x);
    p.save_reference(sum);
  }
  /// d [n, hidden_size] is overwritten
  void embed_backward(pass<Recipe>& p, matrix_view<compute, memory> d) const {
    const auto scope = p.scope();
    const std::size_t n = d.shape(0), c = d.shape(1);
    const auto sum = p.saved_reference(n, c);
    const auto dsum = p.temporary(n, c);
    if (drops(p)) ops::dropout(p, d, config_.residual_dropout, dropped(p), d);
    fill_zero(p.stream, dsum.span());
    embedding_norm_.backward(p, sum, d, dsum);
    p.pop_saved(n, c);
    if (const auto ds = p.matrix_gradient(segments_); ds.exists()) ops::embedding_backward(p, p.batch.segments_n, dsum, ds);
    embedding_.backward(p, dsum);
  }
  [[nodiscard]] bool drops(const pass<Recipe>& p) const { return config_.residual_dropout > 0.0 && p.trains(); }
  [[nodiscard]] random_site dropped(const pass<Recipe>& p) const { return p.random_at(embedding_site, p.batch.t * config_.hidden_size); }

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
  xtrain::parameter segments_;
  layer_norm<Recipe> embedding_norm_;
  std::vector<encoder_block<Recipe>> blocks_;
  heads heads_;
};

}  // namespace xtrain
