// Both ends of a language model: embedding, and logits with their loss.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/ops/loss.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/ops/norm.hpp>
#include <xtrain/ops/split_loss.hpp>
#include <xtrain/tensor/tensor.hpp>

namespace xtrain {

/// What an adapter adds to an embedding table: nothing if it has no on_table.
template <class Recipe>
struct table_adapter {
  struct type {
    template <class Builder>
    void declare(Builder&, const std::string&, std::size_t, std::size_t) {}
    template <class Pass, class Indices, class Y>
    void forward(Pass&, const Indices&, const Y&) const {}
    template <class Pass, class Indices, class DY>
    void backward(Pass&, const Indices&, const DY&, token = -1) const {}
  };
};
template <class Recipe>
requires requires { typename Recipe::adapter::template on_table<Recipe>; }
struct table_adapter<Recipe> {
  using type = typename Recipe::adapter::template on_table<Recipe>;
};

/// y = dropout(token embedding (+ position embedding)), plus what an adapter adds to either.
template <class Recipe>
class token_embedding {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  struct options {
    std::size_t vocab_size = 0;
    std::size_t hidden_size = 0;
    std::string name{};
    std::string position_name{};  // empty: no learned position embeddings
    std::size_t positions = 0;
    double dropout = 0.0;
    std::uint32_t site = 0;
    initial_values initial{};
    token padding_idx = -1;  ///< torch.nn.Embedding's padding_idx: row initialized to zeros and no gradient from here; negative: none
  };

  token_embedding(builder<Recipe>& build, const options& o)
      : dropout_(o.dropout), site_(o.site), padding_(o.padding_idx), shard_(build.shard()), first_(shard_.up_to(o.vocab_size).begin),
        tokens_(build.matrix({build.vocabulary_part(o.name, o.vocab_size)}, o.hidden_size, initial_of(o))) {
    token_adapter_.declare(build, o.name, o.vocab_size, o.hidden_size);
    if (o.position_name.empty()) return;
    positions_ = build.matrix({{o.position_name, o.positions}}, o.hidden_size, o.initial);
    position_adapter_.declare(build, o.position_name, o.positions, o.hidden_size);
  }

  /// y [n, hidden_size] written; under sequence parallelism, of this rank's tokens
  void forward(pass<Recipe>& p, matrix_view<compute, memory> y) const {
    look_up(p, y);
    token_adapter_.forward(p, p.batch.tokens_n, y);
    if (positions_.exists()) {
      ops::embedding(p, own_positions(p), p.matrix(positions_), y, ops::result::is_added);
      position_adapter_.forward(p, p.batch.positions_n, y);
    }
    if (drops(p)) p.dropout(y, dropout_, site_, y);
  }

  /// dy [n, hidden_size] is overwritten
  void backward(pass<Recipe>& p, matrix_view<compute, memory> dy) const {
    if (drops(p)) p.dropout(dy, dropout_, site_, dy);
    if (const auto d = p.matrix_gradient(tokens_); d.exists()) {
      const auto scope = p.scope();
      ops::embedding_backward(p, p.batch.tokens_n, p.gather_sequence(dy), d, first_, padding_);
    }
    token_adapter_.backward(p, p.batch.tokens_n, dy, padding_);
    if (!positions_.exists()) return;
    if (const auto d = p.matrix_gradient(positions_); d.exists()) ops::embedding_backward(p, own_positions(p), dy, d);
    position_adapter_.backward(p, p.batch.positions_n, dy);
  }

  /// The embedding table, for tied embeddings.
  [[nodiscard]] parameter table() const { return tokens_; }

 private:
  [[nodiscard]] static initial_values initial_of(const options& o) {
    if (o.padding_idx < 0) return o.initial;
    const auto row = static_cast<std::size_t>(o.padding_idx);
    return o.initial.with_zeros(row * o.hidden_size, (row + 1) * o.hidden_size);
  }
  [[nodiscard]] bool drops(const pass<Recipe>& p) const { return dropout_ > 0.0 && p.trains(); }
  [[nodiscard]] static vector_view<const token, memory> own_positions(const pass<Recipe>& p) {
    return p.batch.positions_n.rows(p.first_sequence_parallel_token(), p.sequence_parallel_tokens());
  }
  /// If the table is sharded, one rank has the token's row.
  void look_up(pass<Recipe>& p, matrix_view<compute, memory> y) const {
    if (p.has_sequence_parallel) {
      const auto scope = p.scope();
      const auto all = p.temporary(p.batch.n(), y.shape(1));
      ops::embedding(p, p.batch.tokens_n, p.matrix(tokens_), all, ops::result::replaces, first_);
      return p.reduce_scatter_sequence(all, y, ops::result::replaces);
    }
    ops::embedding(p, p.batch.tokens_n, p.matrix(tokens_), y, ops::result::replaces, first_);
    if constexpr (has_tensor_parallel<Recipe>) {
      if (shard_.is_sharded()) p.parallel.tensor().all_reduce(p.stream, y.span(), reduction::sum);
    }
  }

  double dropout_;
  std::uint32_t site_;
  token padding_;
  tensor_shard shard_;
  std::size_t first_;  // first token of this rank's shard of the table
  parameter tokens_;
  parameter positions_;
  typename table_adapter<Recipe>::type token_adapter_, position_adapter_;
};

/// logits = x · weightᵀ, and their cross-entropy. While training, the forward also computes the gradients: logits exist once,
/// in chunks, and are never saved. If `normalized`, every pass divides each row of the weight by its L2 norm first; the
/// weight itself is not changed.                                              [Yang et al. 2023, section 3.4, NormHead]
template <class Recipe>
class language_head {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using device = typename Recipe::device;
  using sums = vector_view<accumulate_t<compute>, memory>;

  struct options {
    bool normalized = false;
    double z_loss = 0.0;
    tensor_shard shard{};        ///< of the vocabulary
    std::size_t vocab_size = 0;  ///< of all ranks
  };
  /// throws config_error if a head that is normalized or has a z-loss would be sharded
  language_head(const typename device::context& context, typename device::stream& stream, parameter weight, std::size_t width,
                const options& o)
      : shard_(o.shard), vocabulary_(o.vocab_size), normalized_(o.normalized), z_loss_(o.z_loss), weight_(weight),
        scale_c_(context, {o.normalized ? width : 0}, memory_role::weights) {
    require<config_error>(!shard_.is_sharded() || (!normalized_ && z_loss_ == 0.0), "tensor: a head that is normalized or has a z-loss cannot be ",
                          "sharded among tensor-parallel ranks");
    if (!normalized_) return;
    const std::vector<compute> scale(width, static_cast<compute>(1.0 / std::sqrt(static_cast<double>(width))));  // alive until copied
    copy_to_device(stream, scale_c_.span(), scale);
    stream.synchronize();
  }

  /// loss_n written, natural logarithm, 0 where there is no target; z_loss is added when training, not when evaluating.
  /// While training: saves dx, adds to the weight's gradient.
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, sums loss_n) const {
    const auto scope = p.scope();
    if constexpr (has_tensor_parallel<Recipe>) {
      if (shard_.is_sharded()) return forward_divided(p, x, loss_n);
    }
    if (!p.trains()) return ops::linear_cross_entropy(p, x, used_weight(p), p.batch.targets_n, loss_n);
    const auto dx = p.save(x.shape(0), x.shape(1));
    const auto dweight = p.matrix_gradient(weight_);
    if (normalized_ && dweight.exists()) return forward_normalized(p, x, dx, dweight, loss_n);
    ops::linear_cross_entropy_with_gradient(p, x, used_weight(p), p.batch.targets_n, p.gradient_scale, loss_n, dx, dweight, z_loss_);
  }

  /// dx, as computed by the forward
  [[nodiscard]] matrix_view<const compute, memory> backward(pass<Recipe>& p, std::size_t n, std::size_t width) const {
    return p.pop_saved(n, width);
  }

  /// logits [n, vocabulary] written, in the accumulate dtype
  void logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<accumulate_t<compute>, memory> logits_nv) const {
    const auto scope = p.scope();
    if constexpr (has_tensor_parallel<Recipe>) {
      if (shard_.is_sharded()) return logits_divided(p, x, logits_nv);
    }
    ops::linear(p, x, used_weight(p), {}, logits_nv);
  }

 private:
  using gradient_type = typename pass<Recipe>::gradient_type;
  using accumulate_dtype = accumulate_t<compute>;

  /// Vocabulary-parallel cross-entropy, a chunk of tokens at a time: ranks exchange three values per token, never
  /// logits.                                                              [Shoeybi et al. 2019, section 3]
  void forward_divided(pass<Recipe>& p, matrix_view<const compute, memory> own_x, sums loss_n) const {
    const matrix_view<const compute, memory> weight = p.matrix(weight_), x = p.gather_sequence(own_x);
    const std::size_t n = x.shape(0), c = x.shape(1), v = weight.shape(0), first = shard_.up_to(vocabulary_).begin;
    // every chunk reads and writes the whole weight gradient, which is slow for chunks of few tokens
    const std::size_t at_once = std::min(n, std::max<std::size_t>(512, (std::size_t{1} << 20) / v));
    const auto own_dx = p.trains() ? p.save(own_x.shape(0), c) : matrix_view<compute, memory>{};
    const auto dx = p.trains() && p.has_sequence_parallel ? p.temporary(n, c) : own_dx;
    const auto dweight = p.trains() ? p.matrix_gradient(weight_) : matrix_view<gradient_type, memory>{};
    const auto numbers = [&](std::size_t rows, std::size_t columns) {
      return matrix_view<accumulate_dtype, memory>{p.workspace.template take<accumulate_dtype>(rows * columns), {rows, columns}};
    };
    for (std::size_t begin = 0; begin < n; begin += at_once) {
      const auto scope = p.scope();
      const std::size_t rows = std::min(at_once, n - begin);
      const auto x_rows = x.rows(begin, rows);
      const auto targets = p.batch.targets_n.rows(begin, rows);
      const auto logits = numbers(rows, v), parts = numbers(3 * shard_.ranks, rows);
      ops::linear(p, x_rows, weight, {}, logits);
      const auto own = parts.rows(3 * shard_.rank, 3);
      ops::softmax_part<device, accumulate_dtype>(p, logits, targets, first, own);
      p.parallel.tensor().all_gather(p.stream, device_span<const accumulate_dtype, memory>(own.span()), parts.span());
      const auto dlogits = p.trains() ? p.temporary(rows, v) : matrix_view<compute, memory>{};
      ops::softmax_of_parts<device, accumulate_dtype, compute>(p, logits, targets, first, vocabulary_, parts, p.gradient_scale,
                                                         loss_n.rows(begin, rows), dlogits);
      if (!p.trains()) continue;
      ops::linear_backward_input(p, dlogits, weight, dx.rows(begin, rows));
      if (dweight.exists()) ops::linear_backward_weight(p, dlogits, x_rows, dweight);
    }
    if (!p.trains()) return;
    if (p.has_sequence_parallel) p.reduce_scatter_sequence(dx, own_dx, ops::result::replaces);
    else p.parallel.tensor().all_reduce(p.stream, dx.span(), reduction::sum);
  }
  void logits_divided(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<accumulate_dtype, memory> logits_nv) const {
    const matrix_view<const compute, memory> weight = p.matrix(weight_);
    const std::size_t n = x.shape(0), v = weight.shape(0), first = shard_.up_to(vocabulary_).begin;
    const matrix_view<accumulate_dtype, memory> own{p.workspace.template take<accumulate_dtype>(n * v), {n, v}};
    ops::linear(p, x, weight, {}, own);
    for (std::size_t i = 0; i < n; ++i) {
      const auto row = logits_nv.rows(i, 1).span();
      copy_within(p.stream, row.subspan(first, v), device_span<const accumulate_dtype, memory>(own.rows(i, 1).span()));
      p.parallel.tensor().share_ranges(p.stream, row);
    }
  }

  /// The weight with every row normalized to length 1: w / |w| is w / rms(w) · 1/√c.
  struct unit_rows {
    matrix_view<compute, memory> weight;
    vector_view<accumulate_t<compute>, memory> rstd_v;
  };
  [[nodiscard]] vector_view<const compute, memory> scale() const { return scale_c_.view(); }
  static constexpr double epsilon = 1e-24;  // added to the mean square: rows of zeros stay zeros
  [[nodiscard]] unit_rows normalize(pass<Recipe>& p) const {
    const auto weight = p.matrix(weight_);
    const std::size_t v = weight.shape(0), c = weight.shape(1);
    const unit_rows rows{p.temporary(v, c), {p.workspace.template take<accumulate_t<compute>>(v), {v}}};
    ops::rms_norm(p, weight, scale(), epsilon, rows.weight, rows.rstd_v);
    return rows;
  }
  [[nodiscard]] matrix_view<const compute, memory> used_weight(pass<Recipe>& p) const {
    if (!normalized_) return p.matrix(weight_);
    return normalize(p).weight;
  }
  void forward_normalized(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> dx,
                          matrix_view<gradient_type, memory> dweight, sums loss_n) const {
    const unit_rows rows = normalize(p);
    const std::size_t v = dweight.shape(0), c = dweight.shape(1);
    const auto numbers = [&](std::size_t n) { return matrix_view<gradient_type, memory>{p.workspace.template take<gradient_type>(n * c), {n, c}}; };
    const auto drows = numbers(v);
    fill_zero(p.stream, drows.span());
    ops::linear_cross_entropy_with_gradient(p, x, matrix_view<const compute, memory>(rows.weight), p.batch.targets_n, p.gradient_scale,
                                            loss_n, dx, drows, z_loss_);
    const matrix_view<const compute, memory> weight = p.matrix(weight_);
    const vector_view<const accumulate_t<compute>, memory> rstd = rows.rstd_v;
    const matrix_view<const gradient_type, memory> dy = drows;
    if constexpr (std::is_same_v<gradient_type, compute>) {
      ops::rms_norm_backward(p, weight, scale(), rstd, dy, dweight, vector_view<gradient_type, memory>{});
    } else {  // some rows of the weight at a time, in the gradient dtype
      const vector_view<gradient_type, memory> wide_scale{p.workspace.template take<gradient_type>(c), {c}};
      ops::cast(p, scale().span(), wide_scale.span());
      const std::size_t at_once = std::min(v, std::max<std::size_t>(16, (std::size_t{1} << 20) / c));
      for (std::size_t begin = 0; begin < v; begin += at_once) {
        const auto scope = p.scope();
        const std::size_t n = std::min(at_once, v - begin);
        const auto wide = numbers(n);
        ops::cast(p, weight.rows(begin, n).span(), wide.span());
        ops::rms_norm_backward(p, matrix_view<const gradient_type, memory>(wide), vector_view<const gradient_type, memory>(wide_scale), rstd.rows(begin, n),
                               dy.rows(begin, n), dweight.rows(begin, n), vector_view<gradient_type, memory>{});
      }
    }
  }

  tensor_shard shard_;
  std::size_t vocabulary_;
  bool normalized_;
  double z_loss_;
  parameter weight_;
  tensor<compute, 1, device> scale_c_;
};

}  // namespace xtrain
