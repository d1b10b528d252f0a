// The encoder: bidirectional attention; predicts masked tokens and labels of sequences.    [Vaswani et al. 2017, section 3.1; Devlin et al. 2019]
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/layers/attention.hpp>
#include <xtrain/layers/attention_mask.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/dropout.hpp>
#include <xtrain/layers/embedding.hpp>
#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/layers/norm.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/family_info.hpp>
#include <xtrain/models/padding_index.hpp>
#include <xtrain/models/recipe_members.hpp>
#include <xtrain/models/transformer.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/embedding.hpp>

namespace xtrain {

/// An encoder's configuration. Zero: the family's default.
struct encoder_config {
  std::size_t vocab_size = 0;
  std::size_t hidden_size = 0;
  std::size_t num_layers = 0;
  std::size_t num_heads = 0;
  std::size_t intermediate_size = 0;        ///< 0: 4 · hidden_size
  std::size_t max_position_embeddings = 0;  ///< in tokens
  std::size_t segments = 2;                 ///< token types per sequence
  std::vector<std::string> labels = {};     ///< class names; empty: the family's
  double norm_epsilon = 1e-12;
  bool tie_word_embeddings = true;  ///< the masked-LM head shares the embedding's weight
  double attention_dropout = 0.0;
  double residual_dropout = 0.0;  ///< also for embeddings
  double label_dropout = 0.0;     ///< before the classifier
  double initializer_range = 0.02;
  std::optional<token> pad_token_id = 0;  ///< its embedding is zero, not trained by inputs; negative: from the vocabulary's end

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

/// Module names in files. Modules of a block: "<blocks><index>.<name>".
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

  void forward(pass<Recipe>& p, const positions& at, matrix_view<compute, memory> x, matrix_view<compute, memory> y) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0), c = x.shape(1);
    const auto attended = p.save(n, c);
    const auto middle = saves_middle() ? p.save(n, c) : p.temporary(n, c);
    const auto fed = p.save(n, c);

    attention_residual_.forward(p, x, attended, [&](auto out, ops::result write_mode) { attention_.forward(p, at, x, out, write_mode); });
    attention_norm_.forward(p, attended, middle);
    feed_forward_residual_.forward(p, middle, fed, [&](auto out, ops::result write_mode) { feed_forward_.forward(p, middle, out, write_mode); });
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
  /// Random sites: 0 to 7 belong to the embedding and the heads.
  static std::uint32_t site(std::size_t index, std::uint32_t offset) { return static_cast<std::uint32_t>(8 * (index + 1)) + offset; }

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

/// dropout(norm(tokens + positions + segments))
template <class Recipe, class Family>
class encoder_embedding {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  encoder_embedding(builder<Recipe>& build, const encoder_config& c)
      : tokens_(build, {.vocab_size = c.vocab_size,
                        .hidden_size = c.hidden_size,
                        .name = Family::names().embedding,
                        .position_name = Family::names().positions,
                        .positions = c.max_position_embeddings,
                        .initial = initial_values::normal(c.initializer_range),
                        .padding_idx = padding_index(c.pad_token_id, c.vocab_size, Family::name)}),
        segments_(build.matrix({{Family::names().segments, c.segments}}, c.hidden_size, initial_values::normal(c.initializer_range))),
        norm_(build, Family::names().embedding_norm, c.hidden_size, c.norm_epsilon), dropout_(c.residual_dropout) {
    build.require_whole_sequences("an encoder");
  }

  void forward(pass<Recipe>& p, matrix_view<compute, memory> x) const {
    const auto sum = p.save(x.shape(0), x.shape(1));
    tokens_.forward(p, sum);
    ops::embedding(p, own_segments(p), p.matrix(segments_), sum, ops::result::is_added);
    norm_.forward(p, sum, x);
    if (drops(p)) p.dropout(x, dropout_, site, x);
    p.save_reference(sum);
  }
  /// d is overwritten
  void backward(pass<Recipe>& p, matrix_view<compute, memory> d) const {
    const auto scope = p.scope();
    const std::size_t n = d.shape(0), c = d.shape(1);
    const auto sum = p.saved_reference(n, c);
    const auto dsum = p.temporary(n, c);
    if (drops(p)) p.dropout(d, dropout_, site, d);
    fill_zero(p.stream, dsum.span());
    norm_.backward(p, sum, d, dsum);
    p.pop_saved(n, c);
    if (const auto ds = p.matrix_gradient(segments_); ds.exists()) ops::embedding_backward(p, own_segments(p), dsum, ds);
    tokens_.backward(p, dsum);
  }
  [[nodiscard]] xtrain::parameter table() const { return tokens_.table(); }

 private:
  static constexpr std::uint32_t site = 0;
  [[nodiscard]] bool drops(const pass<Recipe>& p) const { return dropout_ > 0.0 && p.trains(); }
  [[nodiscard]] static vector_view<const token, memory> own_segments(const pass<Recipe>& p) {
    return p.batch.segments_n.rows(p.first_sequence_parallel_token(), p.sequence_parallel_tokens());
  }

  token_embedding<Recipe> tokens_;
  xtrain::parameter segments_;
  layer_norm<Recipe> norm_;
  double dropout_;
};

/// A family's heads as an encoder's output layer.
template <class Recipe, class Heads>
class encoder_output : public Heads {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  static_assert(
      requires {
        { Heads::ties_embeddings } -> std::convertible_to<bool>;
      },
      "xtrain encoder: the heads must say whether one of them is tied to the embedding table: static constexpr bool ties_embeddings; see models/README.md");

  ///   table  of the embedding, if the masked-LM head is tied
  encoder_output(const typename Recipe::device::context&, typename Recipe::device::stream&, builder<Recipe>& build, const encoder_config& c,
                 xtrain::parameter table)
      : Heads(build, c, table) {}

  /// dx written
  void backward(pass<Recipe>& p, matrix_view<compute, memory> x, matrix_view<compute, memory> dx) const {
    fill_zero(p.stream, dx.span());
    Heads::backward(p, x, dx);
  }
};

/// An encoder's parts: see transformer. The output layer is the family's heads.
template <class Recipe, class Family>
struct encoder_parts {
  using config_type = encoder_config;
  using embedding = encoder_embedding<Recipe, Family>;
  using block = encoder_block<Recipe>;

  using output = encoder_output<Recipe, typename Family::template heads<Recipe>>;

  static config_type completed(config_type sizes) {
    Family::complete(sizes);
    detail::complete_encoder(sizes, Family::name);
    return sizes;
  }
  static bool ties_embeddings(const config_type& c) { return c.tie_word_embeddings && Family::template heads<Recipe>::ties_embeddings; }
  static const char* family_name(const config_type&) { return Family::name; }
  static encoder_names names(const config_type&) { return Family::names(); }
  static std::vector<std::string> adapter_targets(const config_type&) { return Family::adapter_targets(); }
  /// Every token attends to all tokens of its sample.
  static attention_mask mask(const config_type&) { return {.kind = attention_mask::rule::bidirectional}; }
  /// Heads that files may lack.
  static bool initialises(const config_type&, std::string_view name) { return Family::may_be_missing(name); }
  static position_options positions(const config_type&, std::size_t) { return {}; }
};

/// An encoder of a family, which declares heads and names in files. Each loss is averaged over its labels; all are added. loss_n gets losses of masked
/// tokens at their index, and weighted label losses at any index: only the sum counts.
template <class Recipe, class Family>
class encoder : public transformer<model_axes_of<Recipe>, encoder_parts<computation_of<Recipe>, Family>> {
  using base = transformer<model_axes_of<Recipe>, encoder_parts<computation_of<Recipe>, Family>>;
  static_assert(detail::members_are_axes<Recipe>());

 public:
  using recipe = Recipe;
  using typename base::computation;
  static constexpr bool predicts_what_follows = false;
  using family = Family;
  using typename base::accumulate;
  using typename base::config_type;
  using typename base::context_type;
  using typename base::device;
  using typename base::memory;
  using typename base::options;
  using typename base::uninitialised_t;
  template <class Other>
  using with_recipe = encoder<Other, Family>;

  /// Initialized as in the family's paper.
  ///   throws  config_error when sizes are missing or not divisible, memory_error
  explicit encoder(config_type sizes, const context_type& on = context_type{}, const options& settings = options{})
      : base(std::move(sizes), on, settings, detail::layout_alignment_of<Recipe>) {}

  /// Uninitialized, to be loaded next.
  encoder(uninitialised_t tag, config_type sizes, const context_type& on, const options& settings)
      : base(tag, std::move(sizes), on, settings, detail::layout_alignment_of<Recipe>) {}

  [[nodiscard]] static const xtrain::family_info<config_type>& family_info() { return detail::encoder_family_info<Family>; }
  /// config.json must describe this family.
  [[nodiscard]] static const xtrain::family_info<config_type>& family_of(const named_settings&) { return family_info(); }
  /// The embedding and the masked-LM head's parameters have one row per token of the vocabulary.
  [[nodiscard]] static bool has_row_per_token(std::string_view name) { return family_info().has_row_per_token(name); }
  /// The parameter that this tensor copies: files may hold copies of a tied masked-LM head and its bias. Empty: no copy.
  [[nodiscard]] std::string copied_by(std::string_view tensor) const {
    return heads::ties_embeddings ? Family::copied_by(tensor, this->config()) : std::string();
  }

  /// throws data_error when a host batch has segments or labels that the model lacks
  void require_batch(const batch_view& host) const {
    const auto require_below = [](std::span<const token> values, std::size_t limit, const char* what) {
      for (const token value : values)
        require<data_error>(value < 0 || static_cast<std::size_t>(value) < limit, "batch: ", what, " must be below ", limit, "; given ",
                            value);
    };
    require_below(host.segments, this->config().segments, "segments");
    require_below(host.labels, this->config().labels.size(), "labels");
  }

  /// Vocabulary logits of selected tokens, without gradients: row i belongs to token rows_r[i] of the batch.
  ///   logits_rv [selected tokens, vocabulary] written
  void logits(pass<computation>& p, stash<device>& layer_inputs, vector_view<const token, memory> rows_r,
              matrix_view<accumulate, memory> logits_rv) const {
    static_assert(
        requires { typename heads::lm_head_type; },
        "xtrain encoder::logits: the family must have a masked-LM head; it has a classification head: call label_logits; see models/README.md");
    this->with_hidden_states(p, layer_inputs, "logits", [&](const auto& x, const auto& output) {
      const auto scope = p.scope();
      const auto chosen = p.temporary(rows_r.shape(0), x.shape(1));
      ops::embedding(p, rows_r, x, chosen);
      output.lm_head().logits(p, chosen, logits_rv);
    });
  }
  /// Classification logits per sequence.
  ///   logits_bv [sequences, labels] written
  void label_logits(pass<computation>& p, stash<device>& layer_inputs, matrix_view<accumulate, memory> logits_bv) const {
    static_assert(
        requires { typename heads::classifier_type; },
        "xtrain encoder::label_logits: the family must have a classification head; it has a masked-LM head: call logits; see models/README.md");
    this->with_hidden_states(p, layer_inputs, "label_logits",
                             [&](const auto& x, const auto& output) { output.classifier().logits(p, x, logits_bv); });
  }

  ///   throws  file_error, config_error when config.json and weights contradict each other or the family, memory_error
  template <class Self = encoder>
  [[nodiscard]] static Self from_pretrained(const std::string& folder, const context_type& on = context_type{}, const options& settings = options{}) {
    static_assert(
        requires { load_pretrained(pretrained_tag<Self>{}, folder, on, settings); },
        "xtrain from_pretrained: the 'io' component must be included; include <xtrain/io.hpp> and link xtrain::io; see io/README.md");
    return load_pretrained(pretrained_tag<Self>{}, folder, on, settings);
  }

 private:
  using heads = typename Family::template heads<computation>;
};

}  // namespace xtrain
