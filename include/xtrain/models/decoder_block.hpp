// A decoder's block: attention and a feed-forward layer, each with norm and residual connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/layers/attention.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/dropout.hpp>
#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/recompute.hpp>
#include <xtrain/models/config.hpp>
#include <xtrain/models/decoder_family.hpp>
#include <xtrain/ops/elementwise.hpp>

namespace xtrain {

namespace detail {

template <class Norm, class Recipe>
[[nodiscard]] Norm make_norm(builder<Recipe>& build, const std::string& name, const decoder_config& c) {
  if constexpr (std::is_constructible_v<Norm, builder<Recipe>&, const std::string&, std::size_t, double, norm_kind, bool>)
    return Norm(build, name, c.hidden_size, c.norm_epsilon, c.family->norm, c.family->zero_centered_norm);
  else if constexpr (std::is_same_v<Norm, rms_norm<Recipe>>) return Norm(build, name, c.hidden_size, c.norm_epsilon, c.family->zero_centered_norm);
  else return Norm(build, name, c.hidden_size, c.norm_epsilon);
}

/// Norm of a branch's output, before the residual connection, if the family names it (sandwich LayerNorm).   [Ding et al. 2021, "CogView", section 2.4]
template <class Recipe, class Norm>
class branch_norm {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  branch_norm(builder<Recipe>& build, const std::string& name, const decoder_config& c) {
    if (!name.empty()) norm_.emplace(make_norm<Norm>(build, name, c));
  }

  /// y written or added to: norm(branch); branch(out, how) computes the branch.
  template <class Branch>
  void forward(pass<Recipe>& p, matrix_view<compute, memory> y, ops::result write_mode, Branch&& branch) const {
    if (!norm_) return branch(y, write_mode);
    const auto raw = p.save(y.shape(0), y.shape(1));
    branch(raw, ops::result::replaces);
    if (write_mode == ops::result::replaces) {
      norm_->forward(p, raw, y);
    } else {
      const auto scope = p.scope();
      const auto normed = p.temporary(y.shape(0), y.shape(1));
      norm_->forward(p, raw, normed);
      ops::add(p, normed, y);
    }
    p.save_reference(raw);
  }
  /// dy read; branch_backward(dbranch)
  template <class BranchBackward>
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> dy, BranchBackward&& branch_backward) const {
    if (!norm_) return branch_backward(dy);
    const auto scope = p.scope();
    const auto raw = p.saved_reference(dy.shape(0), dy.shape(1));
    const auto draw = p.temporary(dy.shape(0), dy.shape(1));
    fill_zero(p.stream, draw.span());
    // forward: out = norm(branch)
    norm_->backward(p, raw, dy, draw);
    branch_backward(matrix_view<const compute, memory>(draw));
    p.pop_saved(dy.shape(0), dy.shape(1));
  }

 private:
  std::optional<Norm> norm_;
};

}  // namespace detail

/// A pre-norm block:  y = m + feed_forward(norm(m)),  m = x + attention(norm(x)). If the family names output norms, both branches are normalized too.
///                                                     [Radford et al. 2019; Touvron et al. 2023; Gemma team 2024, "Gemma 2", section 2]
template <class Recipe, class Norm, class Positions, class FeedForward>
class decoder_block {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using norm = Norm;
  using positions = Positions;
  using feed_forward_type = FeedForward;
  static constexpr bool recomputes_norms = Recipe::recompute::template drops<norm_outputs>;

  decoder_block(builder<Recipe>& build, const decoder_config& c, const decoder_names& names, std::size_t index)
      : attention_norm_(detail::make_norm<Norm>(build, full(names, index, names.attention_norm), c)),
        attention_(build, attention_settings(c, names, index)), attention_output_norm_(build, optional_name(names, index, names.attention_output_norm), c),
        attention_residual_(c.residual_dropout, site(index, 1)),
        feed_forward_norm_(detail::make_norm<Norm>(build, full(names, index, names.feed_forward_norm), c)),
        feed_forward_(build, feed_forward_settings(c, names, index)),
        feed_forward_output_norm_(build, optional_name(names, index, names.feed_forward_output_norm), c),
        feed_forward_residual_(c.residual_dropout, site(index, 2)) {}

  [[nodiscard]] std::size_t kv_heads() const { return attention_.kv_heads(); }

  void forward(pass<Recipe>& p, const positions& at, matrix_view<compute, memory> x, matrix_view<compute, memory> y) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0), c = x.shape(1);
    const bool saves_attention_input = !recomputes_norms && attention_.needs_input();
    const bool saves_feed_forward_input = !recomputes_norms && feed_forward_.needs_input();
    const auto attention_input = saves_attention_input ? p.save(n, c) : p.temporary(n, c);
    const auto middle = p.save(n, c);
    const auto feed_forward_input = saves_feed_forward_input ? p.save(n, c) : p.temporary(n, c);

    attention_norm_.forward(p, x, attention_input);
    const auto attention = [&](auto out, ops::result write_mode) { attention_.forward(p, at, attention_input, out, write_mode); };
    attention_residual_.forward(p, x, middle, [&](auto out, ops::result write_mode) { attention_output_norm_.forward(p, out, write_mode, attention); });
    feed_forward_norm_.forward(p, middle, feed_forward_input);
    const auto feed_forward = [&](auto out, ops::result write_mode) { feed_forward_.forward(p, feed_forward_input, out, write_mode); };
    feed_forward_residual_.forward(p, middle, y, [&](auto out, ops::result write_mode) {
      feed_forward_output_norm_.forward(p, out, write_mode, feed_forward);
    });

    p.save_reference(attention_input);
    p.save_reference(middle);
    p.save_reference(feed_forward_input);
  }

  /// d [n, hidden_size]: dy on entry, dx on return
  void backward(pass<Recipe>& p, const positions& at, matrix_view<const compute, memory> x, matrix_view<compute, memory> d) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0), c = x.shape(1);
    auto feed_forward_input = p.saved_reference(n, c);
    const auto middle = p.saved_reference(n, c);
    auto attention_input = p.saved_reference(n, c);
    const auto dinput = p.temporary(n, c);
    if (recomputes_norms) {
      feed_forward_input = attention_input = p.temporary(n, c);  // used in turn
      if (feed_forward_.needs_input()) feed_forward_norm_.recompute(p, middle, feed_forward_input);
    }

    // forward: y = middle + feed_forward(norm(middle))
    const auto feed_forward = [&](auto dbranch) { feed_forward_.backward(p, feed_forward_input, dbranch, dinput, ops::result::replaces); };
    feed_forward_residual_.backward(p, d, [&](auto dbranch) { feed_forward_output_norm_.backward(p, dbranch, feed_forward); });
    feed_forward_norm_.backward(p, middle, dinput, d);
    // forward: middle = x + attention(norm(x))
    if (recomputes_norms && attention_.needs_input()) attention_norm_.recompute(p, x, attention_input);
    const auto attention = [&](auto dbranch) { attention_.backward(p, at, attention_input, dbranch, dinput, ops::result::replaces); };
    attention_residual_.backward(p, d, [&](auto dbranch) { attention_output_norm_.backward(p, dbranch, attention); });
    attention_norm_.backward(p, x, dinput, d);

    if (!recomputes_norms && feed_forward_.needs_input()) p.pop_saved(n, c);
    p.pop_saved(n, c);
    if (!recomputes_norms && attention_.needs_input()) p.pop_saved(n, c);
  }

 protected:  // for blocks of the same modules in another order
  Norm attention_norm_;
  causal_attention<Recipe, positions> attention_;
  detail::branch_norm<Recipe, Norm> attention_output_norm_;
  residual<Recipe> attention_residual_;
  Norm feed_forward_norm_;
  feed_forward_type feed_forward_;
  detail::branch_norm<Recipe, Norm> feed_forward_output_norm_;
  residual<Recipe> feed_forward_residual_;

 private:
  static std::string full(const decoder_names& names, std::size_t index, const std::string& name) {
    return concat(names.blocks, index, ".", name);
  }
  static std::string optional_name(const decoder_names& names, std::size_t index, const std::string& name) {
    return name.empty() ? std::string{} : full(names, index, name);
  }
  static std::vector<std::string> full(const decoder_names& names, std::size_t index, const std::vector<std::string>& all) {
    std::vector<std::string> whole;
    for (const std::string& name : all) whole.push_back(full(names, index, name));
    return whole;
  }
  /// Random sites: 0 to 7 belong to the embedding.
  static std::uint32_t site(std::size_t index, std::uint32_t offset) { return static_cast<std::uint32_t>(8 * (index + 1)) + offset; }

  static attention_options attention_settings(const decoder_config& c, const decoder_names& names, std::size_t index) {
    return {.hidden_size = c.hidden_size,
            .num_heads = c.num_heads,
            .num_kv_heads = c.num_kv_heads,
            .head_dim = c.head_dim,
            .bias = c.attention_bias,
            .output_bias = c.output_bias,
            .dropout = c.attention_dropout,
            .site = site(index, 0),
            .layer = index,
            .sliding_window = c.window_of(index),
            .query_pre_attn_scalar = c.query_pre_attn_scalar,
            .softcap = c.attn_logit_softcapping,
            .qkv_names = full(names, index, names.qkv),
            .qkv_order = c.family->qkv_order(c),
            .output_name = full(names, index, names.attention_output),
            .query_norm_name = optional_name(names, index, names.query_norm),
            .key_norm_name = optional_name(names, index, names.key_norm),
            .norm_epsilon = c.norm_epsilon,
            .initial = initial_values::normal(c.initializer_range),
            .output_initial = c.family->residual_initial(c),
            .transposed_in_files = c.family->transposed_in_files};
  }
  static feed_forward_options feed_forward_settings(const decoder_config& c, const decoder_names& names, std::size_t index) {
    return {.hidden_size = c.hidden_size,
            .intermediate_size = c.intermediate_size,
            .bias = c.feed_forward_bias,
            .up_names = full(names, index, names.up),
            .down_name = full(names, index, names.down),
            .initial = initial_values::normal(c.initializer_range),
            .down_initial = c.family->residual_initial(c),
            .transposed_in_files = c.family->transposed_in_files,
            .num_experts = c.num_experts,
            .num_experts_per_token = c.num_experts_per_token,
            .layer = index,
            .router_name = names.router.empty() ? std::string{} : full(names, index, names.router),
            .activation = c.family->activation};
  }
};

}  // namespace xtrain
