// The decoder of all language models: embedding, blocks, norm, head. A family declares its layers and names in files.
#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/layers/attention.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/embedding.hpp>
#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/layers/head.hpp>
#include <xtrain/layers/norm.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/score_head.hpp>
#include <xtrain/models/compiled_models.hpp>
#include <xtrain/models/config.hpp>
#include <xtrain/models/decoder_block.hpp>
#include <xtrain/models/decoder_family.hpp>
#include <xtrain/models/kept_settings.hpp>
#include <xtrain/models/load_balance.hpp>
#include <xtrain/models/padding_index.hpp>
#include <xtrain/models/recipe_members.hpp>
#include <xtrain/models/transformer.hpp>
#include <xtrain/ops/embedding.hpp>
#ifdef XTRAIN_LIBRARY
#include <xtrain/models/any_block.hpp>
#endif

namespace xtrain {

namespace detail {

/// A block's feed-forward layer: dense by default.
template <class Family, class Recipe>
struct feed_forward_of {
  using type = feed_forward<Recipe, typename Family::activation>;
};
template <class Family, class Recipe>
requires names_feed_forward<Family>
struct feed_forward_of<Family, Recipe> {
  using type = typename Family::template feed_forward_layer<Recipe>;
};

/// A block's type: pre-norm by default.
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

/// T with recipe From replaced by To in every template argument.
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

}  // namespace detail

/// A decoder's embeddings, normalized if the family requires it.
template <class Recipe, class Norm>
class decoder_embedding {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  decoder_embedding(builder<Recipe>& build, const decoder_config& c) : decoder_embedding(build, c, c.family->names()) {}

  void forward(pass<Recipe>& p, matrix_view<compute, memory> x) const;
  /// d is overwritten
  void backward(pass<Recipe>& p, matrix_view<compute, memory> d) const;
  [[nodiscard]] xtrain::parameter table() const { return tokens_.table(); }

 private:
  decoder_embedding(builder<Recipe>& build, const decoder_config& c, const decoder_names& names);

  token_embedding<Recipe> tokens_;
  std::optional<Norm> norm_;
};

template <class Recipe, class Norm>
decoder_embedding<Recipe, Norm>::decoder_embedding(builder<Recipe>& build, const decoder_config& c, const decoder_names& names)
    : tokens_(build, {.vocab_size = c.vocab_size,
                      .hidden_size = c.hidden_size,
                      .name = names.embedding,
                      .position_name = names.positions,
                      .positions = c.max_position_embeddings,
                      .dropout = c.embedding_dropout,
                      .site = 0,
                      .initial = initial_values::normal(c.initializer_range),
                      .padding_idx = c.family->has_padding_index ? padding_index(c.pad_token_id, c.vocab_size, c.family->name) : -1,
                      .scale = c.family->scaled_embedding ? std::sqrt(static_cast<double>(c.hidden_size)) : 1.0}) {
  if (c.family->embedding_norm) norm_.emplace(detail::make_norm<Norm>(build, names.embedding_norm, c));
}

template <class Recipe, class Norm>
void decoder_embedding<Recipe, Norm>::forward(pass<Recipe>& p, matrix_view<compute, memory> x) const {
  if (!norm_) return tokens_.forward(p, x);
  const auto raw = p.save(x.shape(0), x.shape(1));
  tokens_.forward(p, raw);
  norm_->forward(p, raw, x);
  p.save_reference(raw);
}

template <class Recipe, class Norm>
void decoder_embedding<Recipe, Norm>::backward(pass<Recipe>& p, matrix_view<compute, memory> d) const {
  if (!norm_) return tokens_.backward(p, d);
  const auto scope = p.scope();
  const auto raw = p.saved_reference(d.shape(0), d.shape(1));
  const auto draw = p.temporary(d.shape(0), d.shape(1));
  fill_zero(p.stream, draw.span());
  norm_->backward(p, raw, d, draw);
  p.pop_saved(d.shape(0), d.shape(1));
  tokens_.backward(p, draw);
}

/// The final norm and the head of a decoder.
template <class Recipe, class Norm>
class decoder_output {
 public:
  using device = typename Recipe::device;
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using accumulate = accumulate_t<compute>;

  ///   table  of the embedding, if tied
  decoder_output(const typename device::context& context, typename device::stream& stream, builder<Recipe>& build, const decoder_config& c,
                 xtrain::parameter table);

  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, vector_view<accumulate, memory> loss_n) const;
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> dx) const;
  /// logits [n, vocabulary] written
  void logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<accumulate, memory> logits_nv) const;

 private:
  using head_type = std::conditional_t<scores_sequences<Recipe>, score_head<Recipe>, language_head<Recipe>>;

  static head_type make_head(const typename device::context& context, typename device::stream& stream, builder<Recipe>& build, const decoder_config& c,
                             xtrain::parameter table) {
    const initial_values initial = initial_values::normal(c.initializer_range);
    if constexpr (scores_sequences<Recipe>) {
      require<config_error>(!sequence_classification_architecture(c.family->architecture).empty(), c.family->name,
                            ": with a score head the family must have a model for sequence classification in transformers; beside '", c.family->architecture,
                            "' there is none");
      return head_type(build, c.hidden_size, initial);
    } else {
      xtrain::parameter weight = table;
      typename head_type::adapter_type adapter;
      if constexpr (has_hook<typename Recipe::adapter, hook::adapts_table>)
        require<config_error>(!table.exists() || !build.adapter().adapts_table(c.family->names().head), "lora: '", c.family->names().head,
                              "' must have a weight of its own to be adapted; it is tied to '", c.family->names().embedding,
                              "' (tie_word_embeddings is true)");
      if (!table.exists()) {
        const module_part part = build.vocabulary_part(c.family->names().head, c.vocab_size);
        weight = build.matrix({part}, c.hidden_size, initial);
        adapter.declare(build, part, input_part{c.hidden_size});
        require<config_error>(!adapter.exists() || !c.normalized_head, c.family->name, ": a head with normalized weights must not have an adapter; '",
                              part.name, "' is a target");
      }
      return head_type(context, stream, weight, c.hidden_size,
                       {.normalized = c.normalized_head,
                        .z_loss = c.z_loss,
                        .softcap = c.final_logit_softcapping,
                        .shard = build.shard(),
                        .vocab_size = c.vocab_size,
                        .adapter = adapter});
    }
  }

  Norm norm_;
  head_type head_;
};

template <class Recipe, class Norm>
decoder_output<Recipe, Norm>::decoder_output(const typename device::context& context, typename device::stream& stream, builder<Recipe>& build,
                                             const decoder_config& c, xtrain::parameter table)
    : norm_(detail::make_norm<Norm>(build, c.family->names().final_norm, c)), head_(make_head(context, stream, build, c, table)) {}

template <class Recipe, class Norm>
void decoder_output<Recipe, Norm>::forward(pass<Recipe>& p, matrix_view<const compute, memory> x, vector_view<accumulate, memory> loss_n) const {
  const auto scope = p.scope();
  const auto y = p.temporary(x.shape(0), x.shape(1));
  norm_.forward(p, x, y);
  head_.forward(p, y, loss_n);
}

template <class Recipe, class Norm>
void decoder_output<Recipe, Norm>::backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> dx) const {
  const auto dy = head_.backward(p, x.shape(0), x.shape(1));
  fill_zero(p.stream, dx.span());
  norm_.backward(p, x, dy, dx);
}

template <class Recipe, class Norm>
void decoder_output<Recipe, Norm>::logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<accumulate, memory> logits_nv) const {
  const auto scope = p.scope();
  const auto y = p.temporary(x.shape(0), x.shape(1));
  norm_.recompute(p, x, y);
  head_.logits(p, y, logits_nv);
}

/// A decoder's parts: see transformer.
template <class Recipe, class Block>
struct decoder_parts {
  using config_type = decoder_config;
  using embedding = decoder_embedding<Recipe, typename Block::norm>;
  using block = Block;
  using output = decoder_output<Recipe, typename Block::norm>;

  static config_type completed(config_type sizes) {
    require<config_error>(sizes.family != nullptr, "decoder: the config must name its family (decoder_config::family); it names none");
    sizes.family->complete(sizes);
    detail::complete_decoder(sizes, sizes.family->name);
    require<config_error>(sizes.family->has_layer_types || sizes.windowed_layers.empty(), sizes.family->name,
                          ": windowed_layers must not be given, because a config.json of this family has no layer_types");
    require<config_error>(sizes.family->has_softcaps ||
                              (sizes.query_pre_attn_scalar == 0.0 && sizes.attn_logit_softcapping == 0.0 && sizes.final_logit_softcapping == 0.0),
                          sizes.family->name, ": query_pre_attn_scalar, attn_logit_softcapping and final_logit_softcapping must be 0, because this family "
                          "has none; given ", sizes.query_pre_attn_scalar, ", ", sizes.attn_logit_softcapping, " and ", sizes.final_logit_softcapping);
    detail::require_kept(sizes);
    return sizes;
  }
  static bool ties_embeddings(const config_type& c) { return c.tie_word_embeddings && !scores_sequences<Recipe>; }
  static const char* family_name(const config_type& c) { return c.family->name; }
  static decoder_names names(const config_type& c) { return c.family->names(); }
  static std::vector<std::string> adapter_targets(const config_type& c) { return c.family->adapter_targets(); }
  static attention_mask mask(const config_type& c) { return c.family->mask(c); }
  static bool initialises(const config_type&, std::string_view name) { return scores_sequences<Recipe> && name == "score.weight"; }
  ///   first    position of a sequence's first token
  ///   throws   config_error when learned positions do not start at 0
  static position_options positions(const config_type& c, std::size_t first) {
    require<config_error>(first == 0 || c.family->names().positions.empty(), c.family->name, ": positions must start at 0, because each has its own "
                          "embedding; with the adapter they start at ", first);
    return {.max_position_embeddings = c.max_position_embeddings,
            .num_heads = c.num_heads,
            .head_dim = c.head_dim,
            .rotary_dim = c.rotary_dim,
            .rope_theta = c.rope_theta,
            .scaling = c.rope_scaling,
            .alibi = c.alibi,
            .first = first,
            .kind = c.family->positions};
  }
  static bool has_experts(const config_type& c) { return c.family->has_experts; }
  static bool balances_load(const config_type& c) { return c.family->has_experts && c.balances_experts; }
  static typename load_balance<Recipe>::sizes balance_sizes(const config_type& c) {
    return {.layers = c.num_layers,
            .experts = c.num_experts,
            .choices = c.num_experts_per_token,
            .vocab_size = c.vocab_size,
            .coefficient = c.router_aux_loss_coef};
  }
};

/// A decoder with blocks of one type, the same type for every family made of these layers.
///   Recipe   model_axes
///   Block    of the recipe's computation
template <class Recipe, class Block>
class basic_decoder : public transformer<Recipe, decoder_parts<computation_of<Recipe>, Block>> {
  using parts = decoder_parts<computation_of<Recipe>, Block>;
  using base = transformer<Recipe, parts>;

 public:
  using typename base::computation;
  using typename base::accumulate;
  using typename base::compute;
  using typename base::config_type;
  using typename base::context_type;
  using typename base::device;
  using typename base::memory;
  using typename base::options;
  using typename base::uninitialised_t;
  template <class Other>
  using with_recipe = basic_decoder<model_axes_of<Other>, typename detail::with_other_recipe<Block, computation, computation_of<Other>>::type>;

  /// Initialized as in the family's paper.
  ///   throws  config_error when sizes are missing or not divisible, memory_error
  explicit basic_decoder(config_type sizes, const context_type& on = context_type{}, const options& settings = options{}, std::size_t alignment = 1)
      : base(std::move(sizes), on, settings, alignment) {}

  /// Uninitialized, to be loaded next.
  basic_decoder(uninitialised_t tag, config_type sizes, const context_type& on, const options& settings, std::size_t alignment = 1)
      : base(tag, std::move(sizes), on, settings, alignment) {}

  [[nodiscard]] const decoder_family_info& family_info() const { return *this->config().family; }

  /// The embedding and an untied head have one row per token of the vocabulary.
  [[nodiscard]] bool has_row_per_token(std::string_view name) const { return family_info().has_row_per_token(name); }

  /// A reward model has a score head in place of logits.
  static constexpr bool has_score_head = scores_sequences<Recipe>;
  /// For config.json's `architectures`.
  [[nodiscard]] std::string architecture() const {
    return has_score_head ? sequence_classification_architecture(family_info().architecture) : family_info().architecture;
  }
  /// A reward model's score head may be missing in files (newly initialized), and the language model's head is then ignored.
  [[nodiscard]] static bool may_be_missing(std::string_view parameter) { return scores_sequences<Recipe> && parameter == "score.weight"; }
  [[nodiscard]] bool may_be_ignored(std::string_view tensor) const {
    return scores_sequences<Recipe> && tensor == family_info().head_name() + ".weight";
  }
  /// The parameter that this tensor copies: files may hold a copy of a tied head. Empty: no copy.
  [[nodiscard]] std::string copied_by(std::string_view tensor) const {
    const bool is_head = tensor == family_info().head_name() + ".weight";
    return is_head && parts::ties_embeddings(this->config()) ? family_info().embedding_name() + ".weight" : std::string();
  }

  /// Logits of selected tokens, without gradients: row i belongs to token rows_r[i] of the batch.
  ///   logits_rv [selected tokens, vocabulary] written
  void logits(pass<computation>& p, stash<device>& layer_inputs, vector_view<const token, memory> rows_r,
              matrix_view<accumulate, memory> logits_rv) const;
  /// Logits from the hidden states after all layers, for a pipeline's last stage.
  ///   x [n, hidden_size] read
  void logits_of(pass<computation>& p, matrix_view<const compute, memory> x, vector_view<const token, memory> rows_r,
                 matrix_view<accumulate, memory> logits_rv) const {
    this->with_output(p, [&](const auto& output) { logits_of(p, x, output, rows_r, logits_rv); });
  }

  /// On this rank.
  [[nodiscard]] std::size_t kv_heads() const { return this->blocks().empty() ? this->config().num_kv_heads : this->blocks().front().kv_heads(); }
  /// Shape of a key/value cache for `rows` sequences of up to `capacity` tokens.
  [[nodiscard]] shape_of_rank<2> cache_shape(std::size_t layers, std::size_t rows, std::size_t capacity) const {
    return {layers * rows * kv_heads(), capacity * this->config().head_dim};
  }

 private:
  template <class Output>
  static void logits_of(pass<computation>& p, matrix_view<const compute, memory> x, const Output& output, vector_view<const token, memory> rows_r,
                        matrix_view<accumulate, memory> logits_rv) {
    const auto scope = p.scope();
    const auto chosen = p.temporary(rows_r.shape(0), x.shape(1));
    ops::embedding(p, rows_r, x, chosen);
    output.logits(p, chosen, logits_rv);
  }
};

template <class Recipe, class Block>
void basic_decoder<Recipe, Block>::logits(pass<computation>& p, stash<device>& layer_inputs, vector_view<const token, memory> rows_r,
            matrix_view<accumulate, memory> logits_rv) const {
  static_assert(!scores_sequences<Recipe>,
                "xtrain logits: the model must predict tokens; with the objective 'reward' it has a score head; see objective/README.md");
  this->with_hidden_states(p, layer_inputs, "logits", [&](const auto& x, const auto& output) { logits_of(p, x, output, rows_r, logits_rv); });
}

/// basic_decoder with the recipe that trains it.
///   Block   of the recipe's computation
template <class Recipe, class Block>
class recipe_decoder : public basic_decoder<model_axes_of<Recipe>, Block> {
  using base = basic_decoder<model_axes_of<Recipe>, Block>;

 public:
  using recipe = Recipe;
  using computed_model = base;
  using typename base::config_type;
  using typename base::context_type;
  using typename base::options;
  using typename base::uninitialised_t;
  template <class Other>
  using with_recipe = recipe_decoder<Other, typename detail::with_other_recipe<Block, computation_of<Recipe>, computation_of<Other>>::type>;

  explicit recipe_decoder(config_type sizes, const context_type& on = context_type{}, const options& settings = options{})
      : base(std::move(sizes), on, settings, detail::layout_alignment_of<Recipe>) {}
  recipe_decoder(uninitialised_t tag, config_type sizes, const context_type& on, const options& settings)
      : base(tag, std::move(sizes), on, settings, detail::layout_alignment_of<Recipe>) {}
};

namespace detail {

template <class Recipe, class Family>
struct decoder_base_of {
  using type = recipe_decoder<Recipe, typename block_of<computation_of<Recipe>, Family>::type>;
};
#ifdef XTRAIN_LIBRARY
/// Compiled by the library, for every family made of its layers.
template <class Recipe, class Family>
requires(has_compiled_models<Recipe> && info_of<Family>.has_known_layers())
struct decoder_base_of<Recipe, Family> {
  using type = recipe_decoder<compiled_recipe<Recipe>, any_block<computation_of<Recipe>>>;
};
#endif
template <class Recipe, class Family>
using decoder_base = typename decoder_base_of<Recipe, Family>::type;

}  // namespace detail

#ifdef XTRAIN_LIBRARY
inline namespace with_library {  // the models differ: parts compiled with and without the library must not link
#endif

/// A language model of a family known at compile time.
template <class Recipe, class Family>
class decoder : public detail::decoder_base<Recipe, Family> {
  using base = detail::decoder_base<Recipe, Family>;
  static_assert(detail::members_are_axes<Recipe>());  // the trainer's model knows the axes only

 public:
  using family = Family;
  /// One type for all families made of the same layers; trainers and generators are compiled for it.
  using shared_model = base;
  using typename base::config_type;
  using typename base::context_type;
  using typename base::options;
  using typename base::uninitialised_t;
  template <class Other>
  using with_recipe = decoder<Other, Family>;

  /// Initialized as in the family's paper.
  ///   throws  config_error when sizes are missing, not divisible or another family's; memory_error
  explicit decoder(config_type sizes, const context_type& on = context_type{}, const options& settings = options{})
      : base(of_family(std::move(sizes)), on, settings) {}
  decoder(uninitialised_t tag, config_type sizes, const context_type& on, const options& settings) : base(tag, of_family(std::move(sizes)), on, settings) {}

  /// config.json must describe this family.
  [[nodiscard]] static const decoder_family_info& family_of(const named_settings&) { return info_of<Family>; }

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

#ifdef XTRAIN_LIBRARY
}  // namespace with_library
#endif

}  // namespace xtrain
