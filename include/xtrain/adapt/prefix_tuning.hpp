// Prefix tuning: every layer's attention sees keys and values in front of each row that no token made, and these are trained.
//       [Li & Liang 2021, "Prefix-tuning"; Liu et al. 2022, "P-tuning v2"]
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/adapt/concepts.hpp>
#include <xtrain/adapt/none.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/number.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/tensor/parameters.hpp>
#include <xtrain/tensor/tensor.hpp>

namespace xtrain {

/// What `prefix_tuning` is told.
struct prefix_config {
  std::size_t length = 20;            ///< places in front of every row
  bool counts_in_positions = true;    ///< the first token stands behind the prefix, as PEFT has it; false: at 0, as ChatGLM has it

  friend bool operator==(const prefix_config&, const prefix_config&) = default;

  /// How many places are in front of a row's first token, and at which position it stands.
  [[nodiscard]] std::size_t tokens_before() const { return length; }
  [[nodiscard]] std::size_t positions_before() const { return counts_in_positions ? length : 0; }

  /// No module of the base model is trained.
  [[nodiscard]] bool trains(const std::string&) const { return false; }
  void choose_targets(const std::vector<std::string>&) const {}
  template <class Store>
  void finish(const Store&) const {}
};

/// Keys and values of `length` places per layer. They are not turned by positions. Base weights carry no gradients and no optimizer
/// state. Departure from the papers: no network makes the prefix from a smaller one; what such a network made can be read.
struct prefix_tuning {
  static constexpr std::string_view name = "prefix_tuning";
  static constexpr bool freezes_weights = true;
  static constexpr std::string_view module = "prefix_encoder.";
  static constexpr std::size_t most_places = 1 << 16;

  using config = prefix_config;

  [[nodiscard]] static bool is_own(std::string_view parameter) { return parameter.starts_with(module); }
  /// Of a layer [length, 2·kv]: keys, then values.
  [[nodiscard]] static std::string parameter_of(std::size_t layer) { return concat(module, layer, ".weight"); }

  /// Nothing is added to a linear layer.
  template <class Recipe>
  using on_linear = no_adapter::on_linear<Recipe>;

  /// The prefix of one layer's attention. Rows of t places become rows of length + t; queries stand only behind the prefix.
  template <class Recipe>
  class on_attention {
   public:
    using device = typename Recipe::device;

    /// throws config_error when the prefix has no place, or more than there can be
    template <class Builder>
    on_attention(Builder& build, std::size_t layer, std::size_t heads, std::size_t kv_heads, std::size_t head_dim)
        : length_(checked(build.adapter().length)), d_(head_dim),
          prefix_(build.parameters().declare(
              {.name = parameter_of(layer), .shape = {length_, 2 * kv_heads * head_dim}, .initial = initial_values::normal(1.0)})),
          head_n_(build.parameters().device(), {length_ * (heads + 2 * kv_heads)}, memory_role::weights) {
      build.require_whole_layers("prefix tuning");
      build.require_whole_rows("prefix tuning");
      std::vector<token> host;
      host.reserve(head_n_.size());
      for (std::size_t i = 0; i < length_; ++i)
        for (std::size_t head = 0; head < heads + 2 * kv_heads; ++head)
          host.push_back(head < heads ? token{-1} : static_cast<token>(i * 2 * kv_heads + head - heads));
      typename device::stream stream(build.parameters().device());
      copy_to_device(stream, head_n_.span(), host);
      stream.synchronize();
    }

    /// How many places are in front of the row's first token.
    [[nodiscard]] std::size_t length() const { return length_; }

    /// Rows of qkv [b·t, row] behind the prefix: seen [b·(length + t), row] written.
    template <class Pass, class X, class Y>
    void forward(Pass& p, const X& qkv, const Y& seen) const {
      const auto table = p.matrix(prefix_);
      for (std::size_t r = 0; r < p.batch.b; ++r)
        ops::embedding(p, head_n_.view(), by_heads(table), by_heads(seen.rows(r * (length_ + p.batch.t), length_)));
      copy_behind(p, qkv, seen);
    }
    /// dqkv written, the prefix's gradient added to.
    template <class Pass, class DY, class DX>
    void backward(Pass& p, const DY& dseen, const DX& dqkv) const {
      // forward: seen = prefix, qkv
      take_behind(p, dseen, dqkv);
      const auto d = p.matrix_gradient(prefix_);
      if (!d.exists()) return;
      for (std::size_t r = 0; r < p.batch.b; ++r)
        ops::embedding_backward(p, head_n_.view(), by_heads(dseen.rows(r * (length_ + p.batch.t), length_)), by_heads(d));
    }

    /// What stands behind each row's prefix.
    template <class Pass, class X, class Y>
    void take_behind(Pass& p, const X& seen, const Y& own) const {
      const std::size_t t = p.batch.t;
      for (std::size_t r = 0; r < p.batch.b; ++r) ops::copy(p, seen.rows(r * (length_ + t) + length_, t), own.rows(r * t, t));
    }
    /// The same put back; the prefix's places stay as they are.
    template <class Pass, class X, class Y>
    void copy_behind(Pass& p, const X& own, const Y& seen) const {
      const std::size_t t = p.batch.t;
      for (std::size_t r = 0; r < p.batch.b; ++r) ops::copy(p, own.rows(r * t, t), seen.rows(r * (length_ + t) + length_, t));
    }

   private:
    template <class Matrix>
    [[nodiscard]] Matrix by_heads(const Matrix& x) const {
      return x.template reshaped<2>({x.size() / d_, d_});
    }

    static std::size_t checked(std::size_t length) {
      require<config_error>(length > 0 && length <= most_places, "prefix_tuning: length must be 1 to ", most_places, "; given ", length);
      return length;
    }

    std::size_t length_, d_;
    parameter prefix_;                 // as a table: a row per place and key or value head
    tensor<token, 1, device> head_n_;  // which of these each head of the prefix's qkv is; queries are none and zero
  };
};

static_assert(adapter<prefix_tuning>);

}  // namespace xtrain
