// Prefix tuning: trained keys and values of virtual tokens before each sequence, in every layer's attention.
//       [Li & Liang 2021, "Prefix-tuning"; Liu et al. 2022, "P-tuning v2"]
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/adapt/concepts.hpp>
#include <xtrain/adapt/none.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/ops/activation.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/tensor/parameters.hpp>
#include <xtrain/tensor/tensor.hpp>

namespace xtrain {

/// Settings of `prefix_tuning`.
struct prefix_config {
  std::size_t length = 20;          ///< virtual tokens per sequence
  std::size_t projection = 0;       ///< inner size of a network that computes the prefix from a smaller embedding; 0: none
  bool counts_in_positions = true;  ///< tokens' positions start after the prefix (PEFT); false: at 0 (ChatGLM)
  /// 4 or 8: linear weights in blocks are integers with a scale per row, as ChatGLM-6B's model.quantize(bits); 0: unchanged.
  std::size_t weight_bits = 0;

  /// Compared settings are in the prefix's folder.
  template <class Self, class Visit>
  static constexpr void members(Self& c, Visit&& visit) {
    visit({.name = "length", .range = setting_range::positive, .unit = "tokens", .help = "virtual tokens before every sequence", .compared = false}, c.length);
    visit({.name = "projection", .help = "inner size of a network that computes the prefix; 0: none", .compared = false}, c.projection);
    visit({.name = "counts_in_positions", .help = "positions of tokens start after the prefix", .compared = false}, c.counts_in_positions);
    visit({.name = "weight_bits", .help = "4 or 8: bits of weights of linear layers in the blocks; 0: as they are", .compared = false}, c.weight_bits);
  }

  friend bool operator==(const prefix_config&, const prefix_config&) = default;

  /// Virtual tokens before a sequence, and the position of its first token.
  [[nodiscard]] std::size_t tokens_before() const { return length; }
  [[nodiscard]] std::size_t positions_before() const { return counts_in_positions ? length : 0; }

  /// Base modules are not trained.
  [[nodiscard]] bool trains(const std::string&) const { return false; }
  void choose_targets(const std::vector<std::string>&) const {}
  template <class Store>
  void finish(const Store&) const {}
};

/// Keys and values of `length` virtual tokens per layer, without rotary embedding. Base weights have no gradients and no optimizer state. With a projection:
/// W2 · tanh(W1 · e + b1) + b2 with shared e [length, kv], W2 and b2 per layer; each layer recomputes the inner part.
struct prefix_tuning {
  static constexpr std::string_view name = "prefix_tuning";
  using hooks = xtrain::hooks<hook::quantizes_weights, hook::weight_bits, hook::on_attention, hook::works_on_rows, hook::adds_nothing>;
  static constexpr bool freezes_weights = true;
  static constexpr std::string_view module = "prefix_encoder.";
  static constexpr std::size_t max_num_tokens = 1 << 16;

  using config = prefix_config;

  [[nodiscard]] static bool is_own(std::string_view parameter) { return parameter.starts_with(module); }
  /// Per layer: [length, 2·kv], keys then values; with a projection [2·kv, projection], and "bias" [2·kv].
  [[nodiscard]] static std::string parameter_of(std::size_t layer, std::string_view kind = "weight") {
    return concat(module, layer, ".", kind);
  }
  /// The shared part of a projection: e, W1 [projection, kv] and b1.
  [[nodiscard]] static std::string embedding() { return concat(module, "embedding.weight"); }
  [[nodiscard]] static std::string inner(std::string_view kind) { return concat(module, "inner.", kind); }

  template <class Recipe>
  using on_linear = no_adapter::on_linear<Recipe>;

  /// A layer's prefix. Sequences of length t become length + t; only positions after the prefix have queries.
  template <class Recipe>
  class on_attention {
   public:
    using device = typename Recipe::device;
    using compute = typename Recipe::precision::compute;
    using matrix = matrix_view<compute, typename device::memory>;
    using in_matrix = matrix_view<const compute, typename device::memory>;

    /// throws config_error when the prefix length is 0 or too large
    template <class Builder>
    on_attention(Builder& build, std::size_t layer, std::size_t heads, std::size_t kv_heads, std::size_t head_dim)
        : length_(checked(build.adapter())), d_(head_dim), columns_(2 * kv_heads * head_dim), projection_(build.adapter().projection),
          head_n_(build.parameters().device(), {length_ * (heads + 2 * kv_heads)}, memory_role::weights) {
      build.require_whole_layers("prefix tuning");
      build.require_whole_sequences("prefix tuning");
      declare(build.parameters(), layer);
      std::vector<token> host;
      host.reserve(head_n_.size());
      for (std::size_t i = 0; i < length_; ++i)
        for (std::size_t head = 0; head < heads + 2 * kv_heads; ++head)
          host.push_back(head < heads ? token{-1} : static_cast<token>(i * 2 * kv_heads + head - heads));
      typename device::stream stream(build.parameters().device());
      copy_to_device(stream, head_n_.span(), host);
      stream.synchronize();
    }

    [[nodiscard]] std::size_t length() const { return length_; }

    /// Appends qkv [b·t, row] to the prefix: seen [b·(length + t), row] written.
    template <class Pass>
    void forward(Pass& p, in_matrix qkv, matrix seen) const {
      const auto scope = p.scope();
      const in_matrix prefix = projection_ == 0 ? p.matrix(prefix_) : in_matrix(projected(p, inner_part(p)));
      for (std::size_t r = 0; r < p.batch.b; ++r)
        ops::embedding(p, head_n_.view(), by_heads(prefix), by_heads(seen.rows(r * (length_ + p.batch.t), length_)));
      copy_behind(p, qkv, seen);
    }
    /// dqkv written; gradients of prefix or projection added to.
    template <class Pass>
    void backward(Pass& p, in_matrix dseen, matrix dqkv) const {
      // forward: seen = prefix, qkv
      take_behind(p, dseen, dqkv);
      if (projection_ == 0) {
        if (const auto d = p.matrix_gradient(prefix_); d.exists()) add_gradient(p, dseen, d);
        return;
      }
      const auto scope = p.scope();
      const matrix d = p.temporary(length_, columns_);
      fill_zero(p.stream, d.span());
      add_gradient(p, dseen, d);
      projection_backward(p, d);
    }

    /// Copies what follows each prefix.
    template <class Pass>
    void take_behind(Pass& p, in_matrix seen, matrix own) const {
      const std::size_t t = p.batch.t;
      for (std::size_t r = 0; r < p.batch.b; ++r) ops::copy(p, seen.rows(r * (length_ + t) + length_, t), own.rows(r * t, t));
    }
    /// The inverse; prefix positions are unchanged.
    template <class Pass>
    void copy_behind(Pass& p, in_matrix own, matrix seen) const {
      const std::size_t t = p.batch.t;
      for (std::size_t r = 0; r < p.batch.b; ++r) ops::copy(p, own.rows(r * t, t), seen.rows(r * (length_ + t) + length_, t));
    }

   private:
    static std::size_t checked(const prefix_config& c) {
      require<config_error>(c.weight_bits == 0 || c.weight_bits == 4 || c.weight_bits == 8, "prefix_tuning: weight_bits must be 0, 4 or 8; given ",
                            c.weight_bits);
      require<config_error>(c.length > 0 && c.length <= max_num_tokens, "prefix_tuning: length must be 1 to ", max_num_tokens, "; given ",
                            c.length);
      return c.length;
    }

    template <class Store>
    void declare(Store& store, std::size_t layer) {
      const auto uniform = [](std::size_t inputs) { return initial_values::uniform(1.0 / std::sqrt(static_cast<double>(inputs))); };
      if (projection_ == 0) {
        prefix_ = store.declare({.name = parameter_of(layer), .shape = {length_, columns_}, .initial = initial_values::normal(1.0)});
        return;
      }
      const std::size_t kv = columns_ / 2, block = store.blocks() - 1;
      if (store.find(embedding()) == nullptr) {  // stored with the embedding block
        store.begin_block(0);
        store.declare({.name = embedding(), .shape = {length_, kv}, .initial = initial_values::normal(1.0)});
        store.declare({.name = inner("weight"), .shape = {projection_, kv}, .initial = uniform(kv)});
        store.declare({.name = inner("bias"), .shape = {projection_}, .initial = uniform(kv)});
        store.begin_block(block);
      }
      if (block != 0) store.reads_from(block, 0);
      embedding_ = store.handle_of(embedding());
      inner_weight_ = store.handle_of(inner("weight"));
      inner_bias_ = store.handle_of(inner("bias"));
      weight_ = store.declare({.name = parameter_of(layer), .shape = {columns_, projection_}, .initial = uniform(projection_)});
      bias_ = store.declare({.name = parameter_of(layer, "bias"), .shape = {columns_}, .initial = uniform(projection_)});
    }

    template <class Matrix>
    [[nodiscard]] Matrix by_heads(const Matrix& x) const {
      return x.template reshaped<2>({x.size() / d_, d_});
    }
    /// d added to
    template <class Pass, class D>
    void add_gradient(Pass& p, in_matrix dseen, const D& d) const {
      for (std::size_t r = 0; r < p.batch.b; ++r)
        ops::embedding_backward(p, head_n_.view(), by_heads(dseen.rows(r * (length_ + p.batch.t), length_)), by_heads(d));
    }

    /// tanh(W1 · e + b1), [length, projection]
    template <class Pass>
    [[nodiscard]] matrix inner_part(Pass& p) const {
      require<config_error>(!p.parameters.value(embedding_).empty(),
                            "prefix_tuning: all layers must be on this rank if the prefix has a projection, because they share it. Train the prefix without "
                            "a projection");
      const matrix u = p.temporary(length_, projection_);
      ops::linear(p, p.matrix(embedding_), p.matrix(inner_weight_), p.vector(inner_bias_), u);
      ops::tanh(p, u, u);
      return u;
    }
    template <class Pass>
    [[nodiscard]] matrix projected(Pass& p, in_matrix u) const {
      const matrix prefix = p.temporary(length_, columns_);
      ops::linear(p, u, p.matrix(weight_), p.vector(bias_), prefix);
      return prefix;
    }
    template <class Pass>
    void projection_backward(Pass& p, in_matrix d) const {
      const matrix u = inner_part(p), du = p.temporary(length_, projection_);
      // forward: prefix = u · W2ᵀ + b2
      if (const auto dw = p.matrix_gradient(weight_); dw.exists()) ops::linear_backward_weight(p, d, in_matrix(u), dw);
      if (const auto db = p.vector_gradient(bias_); db.exists()) ops::bias_backward(p, d, db);
      ops::linear_backward_input(p, d, p.matrix(weight_), du);
      // forward: u = tanh(e · W1ᵀ + b1)
      ops::tanh_backward(p, u, du, du);
      if (const auto dw = p.matrix_gradient(inner_weight_); dw.exists()) ops::linear_backward_weight(p, du, p.matrix(embedding_), dw);
      if (const auto db = p.vector_gradient(inner_bias_); db.exists()) ops::bias_backward(p, in_matrix(du), db);
      const auto de = p.matrix_gradient(embedding_);
      if (!de.exists()) return;
      const matrix dx = p.temporary(length_, columns_ / 2);
      ops::linear_backward_input(p, in_matrix(du), p.matrix(inner_weight_), dx);
      // for any gradient dtype: the sum over one row
      ops::bias_backward(p, dx.template reshaped<2>({1, dx.size()}), de.template reshaped<1>({dx.size()}));
    }

    std::size_t length_, d_, columns_, projection_;
    parameter prefix_{};                                                         // a table: a row per virtual token and key or value head
    parameter embedding_{}, inner_weight_{}, inner_bias_{}, weight_{}, bias_{};  // with a projection
    tensor<token, 1, device> head_n_;  // prefix row per head of qkv; queries have none and are zero
  };
};

static_assert(adapter<prefix_tuning>);

}  // namespace xtrain
