#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <xtrain/layers/attention_heads.hpp>
#include <xtrain/layers/head_exchange.hpp>
#include <xtrain/layers/head_norm.hpp>
#include <xtrain/layers/parallel_linear.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/positions.hpp>
#include <xtrain/layers/recompute.hpp>
#include <xtrain/layers/ring_attention.hpp>
#include <xtrain/ops/attention.hpp>

namespace xtrain {

/// Keys and values that an adapter prepends to every sequence; nothing without on_attention.
template <class Recipe>
struct attention_adapter {
  struct type {
    template <class Builder>
    type(Builder&, std::size_t, std::size_t, std::size_t, std::size_t) {}
    [[nodiscard]] std::size_t length() const { return 0; }
    template <class Pass, class X, class Y>
    void forward(Pass&, const X&, const Y&) const {}
    template <class Pass, class DY, class DX>
    void backward(Pass&, const DY&, const DX&) const {}
    template <class Pass, class X, class Y>
    void take_behind(Pass&, const X&, const Y&) const {}
    template <class Pass, class X, class Y>
    void copy_behind(Pass&, const X&, const Y&) const {}
  };
};
template <class Recipe>
requires has_hook<typename Recipe::adapter, hook::on_attention>
struct attention_adapter<Recipe> {
  using type = typename Recipe::adapter::template on_attention<Recipe>;
};

/// Positions rotates queries and keys, or adds biases that decrease with distance; see positions.hpp.
///                                                                         [Vaswani et al. 2017; Ainslie et al. 2023]
template <class Recipe, class Positions>
class causal_attention {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using recompute = typename Recipe::recompute;

  causal_attention(builder<Recipe>& build, const attention_options& o)
      : all_heads_(o.num_heads), own_(o, build.shard()), d_(o.head_dim), layer_(o.layer), window_(o.sliding_window), softcap_(o.softcap),
        scale_(1.0 / std::sqrt(o.query_pre_attn_scalar != 0.0 ? o.query_pre_attn_scalar : static_cast<double>(o.head_dim))),
        dropout_(o.dropout), site_(o.site),
        qkv_(build, qkv_parts(o, build.shard()), o.hidden_size, {.bias = o.bias, .initial = o.initial, .transposed_in_files = o.transposed_in_files}),
        output_(build, {{o.output_name, o.hidden_size}}, own_.channels(o),
                {.bias = o.output_bias,
                 .initial = o.output_initial,
                 .transposed_in_files = o.transposed_in_files}),
        exchange_(has_ring_attention<Recipe> ? context_shard{} : build.sequence_shard(), own_.heads, own_.kv_heads, o.head_dim), ring_(build.sequence_shard()),
        prefix_(build, o.layer, o.num_heads, o.num_kv_heads, o.head_dim) {
    if (!o.query_norm_name.empty()) head_norm_.emplace(build, o.query_norm_name, o.key_norm_name, o.head_dim, o.norm_epsilon);
  }

  [[nodiscard]] bool needs_input() const { return qkv_.needs_input(); }
  [[nodiscard]] std::size_t kv_heads() const { return own_.kv_heads; }

  /// x [n, hidden_size] read, y [n, hidden_size] written or added to
  void forward(pass<Recipe>& p, const Positions& positions, matrix_view<const compute, memory> x, matrix_view<compute, memory> y,
               ops::result write_mode) const {
    const auto s = shape(p);
    const std::size_t n = s.b * s.t;
    const auto qkv = p.save(n, s.row());
    project(p, positions, x, qkv);
    if (p.internal.cache != nullptr) return attend_cached(p, positions, s, qkv, y, write_mode);
    if constexpr (recompute::template drops<attention_outputs>) {
      const auto scope = p.scope();
      const auto o = p.temporary(n, s.h * d_);
      attend(p, positions, s, qkv, o, temporary_sums(p, s));
      output(p, own_outputs(p, o), y, write_mode);
    } else {
      const auto o = p.save(n, s.h * d_);
      attend(p, positions, s, qkv, o, p.save_sums(s.b * s.h * s.t));
      const auto scope = p.scope();
      output(p, saves_own_outputs(p) ? exchanged(p, o, p.save(p.batch.n(), own_.heads * d_)) : own_outputs(p, o), y, write_mode);
    }
  }

  /// dx [n, hidden_size] written or added to
  void backward(pass<Recipe>& p, const Positions& positions, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                matrix_view<compute, memory> dx, ops::result write_mode) const {
    const auto scope = p.scope();
    const auto s = shape(p);
    const std::size_t n = s.b * s.t;
    if constexpr (recompute::template drops<attention_outputs>) {
      const heads_before_norm raw = pop_heads(p);
      const auto qkv = p.pop_saved(n, s.row());
      const auto o = p.temporary(n, s.h * d_);
      const auto lse = temporary_sums(p, s);
      attend(p, positions, s, qkv, o, lse);
      attend_backward(p, positions, s, raw, qkv, o, lse, own_outputs_again(p, o), x, dy, dx, write_mode);
    } else {
      const auto kept = saves_own_outputs(p) ? p.pop_saved(p.batch.n(), own_.heads * d_) : matrix_view<compute, memory>{};
      const auto lse = p.pop_saved_sums(s.b * s.h * s.t);
      const auto o = p.pop_saved(n, s.h * d_);
      const heads_before_norm raw = pop_heads(p);
      const auto qkv = p.pop_saved(n, s.row());
      attend_backward(p, positions, s, raw, qkv, o, lse, kept.exists() ? kept : own_outputs_again(p, o), x, dy, dx, write_mode);
    }
  }

 private:
  using sums = vector_view<accumulate_t<compute>, memory>;

  /// Prefix tokens to prepend in this pass; 0 if a non-empty cache has them.
  [[nodiscard]] std::size_t before(const pass<Recipe>& p) const {
    return p.internal.cache == nullptr || p.internal.cache->is_empty ? prefix_.length() : 0;
  }
  [[nodiscard]] ops::attention_shape shape(const pass<Recipe>& p) const {
    const std::size_t first = own_.first;
    if (exchange_.is_needed(p))
      return {p.batch.b, p.batch.whole_seq_length(), exchange_.heads(), exchange_.kv_heads(), d_, all_heads_, first + exchange_.first_head()};
    return {p.batch.b, before(p) + p.batch.t, own_.heads, own_.kv_heads, d_, all_heads_, first};
  }
  [[nodiscard]] ops::attention_settings<typename Recipe::device> settings(const pass<Recipe>& p, const Positions& positions,
                                                                          const ops::attention_shape& s) const {
    const double dropout = p.trains() ? dropout_ : 0.0;
    random_site random{};
    if (dropout > 0.0) {  // the kernel indexes elements from the batch's first sequence
      random = p.random;
      random.site = site_;
      random.first = p.batch.first_sequence;
    }
    return {.scale = scale_,
            .dropout = dropout,
            .window = window_,
            .softcap = softcap_,
            .end_bt = p.batch.ends_n,
            .slope_h = own_slopes(positions, s),
            .random = random};
  }
  [[nodiscard]] static vector_view<const float, memory> own_slopes(const Positions& positions, const ops::attention_shape& s) {
    const auto all = positions.slopes();
    return all.exists() ? all.rows(s.first_head, s.h) : all;
  }
  [[nodiscard]] static sums temporary_sums(pass<Recipe>& p, const ops::attention_shape& s) {
    return {p.workspace.template take<accumulate_t<compute>>(s.b * s.h * s.t), {s.b * s.h * s.t}};
  }

  /// Sample starts; none with a prefix.
  [[nodiscard]] vector_view<const token, memory> starts(const pass<Recipe>& p) const {
    return before(p) == 0 ? p.batch.starts_n : vector_view<const token, memory>{};
  }
  /// throws config_error if some token could not attend to the prefix
  static void require_prefix_fits(const pass<Recipe>& p, std::size_t before) {
    require<config_error>(!p.batch.is_packed,
                          "attention: a sequence must hold one sample if an adapter prepends a prefix; this one is packed; do not pack the dataset");
    require<config_error>(!p.batch.ends_n.exists() || p.batch.ends_n.size() == p.batch.b * (before + p.batch.t),
                          "attention: the mask must be causal if an adapter prepends a prefix, or that of ChatGLM-6B; this model's is neither");
  }

  /// qkv [tokens, heads] written, rotated, with the prefix; of unsharded sequences under Ulysses
  void project(pass<Recipe>& p, const Positions& positions, matrix_view<const compute, memory> x, matrix_view<compute, memory> qkv) const {
    const auto scope = p.scope();
    if (before(p) != 0) require_prefix_fits(p, before(p));
    const auto own = before(p) != 0 || exchange_.is_needed(p) ? p.temporary(p.batch.n(), own_row()) : qkv;
    if (head_norm_) {
      const auto raw = p.save(own.shape(0), own_row());
      qkv_.forward(p, x, raw);
      head_norm_->forward(p, own_.heads, own_.kv_heads, raw, own, p.save_sums(own.shape(0) * (own_.heads + own_.kv_heads)));
    } else {
      qkv_.forward(p, x, own);
    }
    positions.turn(p, own_.heads + own_.kv_heads, own, ops::turn::forward);
    if (before(p) != 0) prefix_.forward(p, own, qkv);
    if (exchange_.is_needed(p)) exchange_.to_whole_sequences(p, own, qkv);
  }
  /// Queries, keys and values before head normalization, with saved statistics; empty without it.
  struct heads_before_norm {
    matrix_view<const compute, memory> qkv{};
    sums rstd{};
  };
  [[nodiscard]] heads_before_norm pop_heads(pass<Recipe>& p) const {
    if (!head_norm_) return {};
    const std::size_t n = p.batch.n();
    const auto rstd = p.pop_saved_sums(n * (own_.heads + own_.kv_heads));
    return {p.pop_saved(n, own_row()), rstd};
  }
  [[nodiscard]] std::size_t own_row() const { return (own_.heads + 2 * own_.kv_heads) * d_; }
  void output(pass<Recipe>& p, matrix_view<const compute, memory> own, matrix_view<compute, memory> y, ops::result write_mode) const {
    const auto scope = p.scope();
    output_.forward(p, own, y, write_mode);
  }
  /// Outputs of this rank's tokens, all heads; temporary, or o itself.
  [[nodiscard]] matrix_view<const compute, memory> own_outputs(pass<Recipe>& p, matrix_view<const compute, memory> o) const {
    if (before(p) == 0 && !exchange_.is_needed(p)) return o;
    const auto own = p.temporary(p.batch.n(), own_.heads * d_);
    if (exchange_.is_needed(p)) return exchanged(p, o, own);
    prefix_.take_behind(p, o, own);
    return own;
  }
  /// For the output projection's backward; values are undefined where it does not read them.
  [[nodiscard]] matrix_view<const compute, memory> own_outputs_again(pass<Recipe>& p, matrix_view<const compute, memory> o) const {
    if (exchange_.is_needed(p) && !output_.needs_input()) return p.temporary(p.batch.n(), own_.heads * d_);
    return own_outputs(p, o);
  }
  /// Saved if the backward reads them: exchanged once.
  [[nodiscard]] bool saves_own_outputs(const pass<Recipe>& p) const { return exchange_.is_needed(p) && output_.needs_input(); }
  [[nodiscard]] matrix_view<compute, memory> exchanged(pass<Recipe>& p, matrix_view<const compute, memory> o,
                                                       matrix_view<compute, memory> own) const {
    exchange_.reduce_scatter(p, o, own);
    return own;
  }

  void attend(pass<Recipe>& p, const Positions& positions, const ops::attention_shape& s, matrix_view<const compute, memory> qkv,
              matrix_view<compute, memory> o, sums lse) const {
    if constexpr (has_ring_attention<Recipe>)
      if (ring_.is_needed(p)) return ring_.forward(p, s, settings(p, positions, s), qkv, o, lse);
    ops::attention(p, s, settings(p, positions, s), qkv, starts(p), o, lse);
  }

  void attend_backward(pass<Recipe>& p, const Positions& positions, const ops::attention_shape& s, const heads_before_norm& raw,
                       matrix_view<const compute, memory> qkv,
                       matrix_view<const compute, memory> o, sums lse, matrix_view<const compute, memory> own,
                       matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy, matrix_view<compute, memory> dx,
                       ops::result write_mode) const {
    // forward: y = o · Woᵀ
    const auto d_o = p.temporary(o.shape(0), o.shape(1));
    output_backward(p, own, dy, d_o);
    // forward: o = attention(qkv)
    auto dqkv = p.temporary(qkv.shape(0), qkv.shape(1));
    backward_of_attention(p, positions, s, qkv, o, lse, d_o, dqkv);
    // forward: prefix prepended, or tokens exchanged with other ranks
    if (before(p) != 0 || exchange_.is_needed(p)) {
      const auto dseen = dqkv;
      dqkv = p.temporary(p.batch.n(), own_row());
      if (exchange_.is_needed(p)) exchange_.reduce_scatter(p, dseen, dqkv);
      else prefix_.backward(p, dseen, dqkv);
    }
    positions.turn(p, own_.heads + own_.kv_heads, dqkv, ops::turn::backward);
    if (head_norm_) head_norm_->backward(p, own_.heads, own_.kv_heads, raw.qkv, raw.rstd, dqkv);
    // forward: qkv = x · Wqkvᵀ
    qkv_.backward(p, x, dqkv, dx, write_mode);
  }
  void backward_of_attention(pass<Recipe>& p, const Positions& positions, const ops::attention_shape& s, matrix_view<const compute, memory> qkv,
                          matrix_view<const compute, memory> o, sums lse, matrix_view<const compute, memory> d_o,
                          matrix_view<compute, memory> dqkv) const {
    if constexpr (has_ring_attention<Recipe>)
      if (ring_.is_needed(p)) return ring_.backward(p, s, settings(p, positions, s), qkv, o, lse, d_o, dqkv);
    ops::attention_backward(p, s, settings(p, positions, s), qkv, starts(p), o, lse, d_o, dqkv);
  }
  /// d_o written; 0 at prefix tokens, whose outputs are unused
  void output_backward(pass<Recipe>& p, matrix_view<const compute, memory> own, matrix_view<const compute, memory> dy,
                       matrix_view<compute, memory> d_o) const {
    if (before(p) == 0 && !exchange_.is_needed(p)) return output_.backward(p, own, dy, d_o);
    const auto scope = p.scope();
    const auto down = p.temporary(p.batch.n(), own_.heads * d_);
    output_.backward(p, own, dy, down);
    if (exchange_.is_needed(p)) return exchange_.to_whole_sequences(p, down, d_o);
    fill_zero(p.stream, d_o.span());
    prefix_.copy_behind(p, down, d_o);
  }

  void attend_cached(pass<Recipe>& p, const Positions& positions, const ops::attention_shape& s, matrix_view<const compute, memory> qkv,
                     matrix_view<compute, memory> y, ops::result write_mode) const {
    const auto scope = p.scope();
    const auto o = p.temporary(qkv.shape(0), own_.heads * d_);
    const auto& cache = *p.internal.cache;
    const std::size_t first = cache.first_row(layer_, s.k), rows = s.b * s.k;
    ops::cached_attention(p, s, settings(p, positions, s), qkv, cache.lengths_b, cache.keys.rows(first, rows), cache.values.rows(first, rows), o);
    output(p, own_outputs(p, o), y, write_mode);
  }

  std::size_t all_heads_;
  attention_heads own_;
  std::size_t d_, layer_, window_;
  double softcap_, scale_, dropout_;
  std::uint32_t site_;
  column_parallel_linear<Recipe> qkv_;
  row_parallel_linear<Recipe> output_;
  std::optional<head_norm<Recipe>> head_norm_;
  head_exchange<Recipe> exchange_;
  ring_attention<Recipe> ring_;
  [[no_unique_address]] typename attention_adapter<Recipe>::type prefix_;
};

}  // namespace xtrain
