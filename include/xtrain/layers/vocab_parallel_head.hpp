// Logits over a vocabulary and their cross-entropy; tensor-parallel ranks may shard the vocabulary.
//                                                                            [Shoeybi et al. 2019, "Megatron-LM", section 3]
#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/sequence_parallel.hpp>
#include <xtrain/ops/loss.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/ops/split_loss.hpp>

namespace xtrain {

/// logits = x · weightᵀ (+ bias), and their cross-entropy. While training, the forward also computes the gradients: logits exist once,
/// in chunks, and are never saved. Includes all communication: of x under sequence parallelism, of the softmax, and of dx.
template <class Recipe>
class vocab_parallel_head {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using device = typename Recipe::device;
  using accumulate = accumulate_t<compute>;
  using gradient_type = typename pass<Recipe>::gradient_type;

  struct options {
    tensor_shard shard{};        ///< of the vocabulary
    std::size_t vocab_size = 0;  ///< of all ranks
    parameter bias{};            ///< [vocabulary], sharded as the weight; none: no bias
    double z_loss = 0.0;
  };
  ///   weight   [vocabulary, hidden_size], sharded as builder::vocabulary_part says
  vocab_parallel_head(parameter weight, const options& o)
      : shard_(o.shard), vocabulary_(o.vocab_size), weight_(weight), bias_(o.bias), z_loss_(o.z_loss) {}

  [[nodiscard]] parameter weight() const { return weight_; }

  /// x [n, hidden_size] read; loss_n written, natural logarithm, 0 where there is no target; z_loss is added when training, not when
  /// evaluating. While training: saves dx, adds to the gradients of weight and bias.
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, vector_view<accumulate, memory> loss_n) const {
    forward_with(p, x, p.matrix(weight_), p.trains() ? p.matrix_gradient(weight_) : matrix_view<gradient_type, memory>{}, loss_n);
  }
  /// The same with values computed from the weight in its stead.
  ///   dweight   added to, or none
  void forward_with(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> weight,
                    matrix_view<gradient_type, memory> dweight, vector_view<accumulate, memory> loss_n) const {
    const auto scope = p.scope();
    if constexpr (has_tensor_parallel<Recipe>) {
      if (shard_.is_sharded()) return forward_sharded(p, x, weight, dweight, loss_n);
    }
    if (!p.trains()) return ops::linear_cross_entropy(p, x, weight, p.batch.targets_n, loss_n, p.vector(bias_));
    ops::linear_cross_entropy_with_gradient(p, x, weight, p.batch.targets_n, p.gradient_scale, loss_n, p.save(x.shape(0), x.shape(1)), dweight, z_loss_,
                                            p.vector(bias_), p.vector_gradient(bias_));
  }

  /// dx [n, hidden_size], as computed by the forward
  [[nodiscard]] matrix_view<const compute, memory> backward(pass<Recipe>& p, std::size_t n, std::size_t width) const {
    return p.pop_saved(n, width);
  }

  /// logits [n, vocabulary] written, in the accumulate dtype, on every rank
  void logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<accumulate, memory> logits_nv) const {
    logits_with(p, x, p.matrix(weight_), logits_nv);
  }
  void logits_with(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> weight,
                   matrix_view<accumulate, memory> logits_nv) const {
    const auto scope = p.scope();
    if constexpr (has_tensor_parallel<Recipe>) {
      if (shard_.is_sharded()) return logits_sharded(p, x, weight, logits_nv);
    }
    ops::linear(p, x, weight, p.vector(bias_), logits_nv);
  }

 private:

  /// Vocabulary-parallel cross-entropy, a chunk of tokens at a time: ranks exchange three values per token, never
  /// logits.                                                              [Shoeybi et al. 2019, section 3]
  void forward_sharded(pass<Recipe>& p, matrix_view<const compute, memory> own_x, matrix_view<const compute, memory> weight,
                       matrix_view<gradient_type, memory> dweight, vector_view<accumulate, memory> loss_n) const {
    const matrix_view<const compute, memory> x = gather_from_sequence_parallel_region(p, own_x);
    const auto bias = p.vector(bias_);
    const std::size_t n = x.shape(0), c = x.shape(1), v = weight.shape(0), first = shard_.up_to(vocabulary_).begin;
    // every chunk reads and writes the whole weight gradient, which is slow for chunks of few tokens
    const std::size_t at_once = std::min(n, std::max<std::size_t>(512, (std::size_t{1} << 20) / v));
    const auto own_dx = p.trains() ? p.save(own_x.shape(0), c) : matrix_view<compute, memory>{};
    const auto dx = p.trains() && p.internal.has_sequence_parallel ? p.temporary(n, c) : own_dx;
    const auto dbias = p.trains() ? p.vector_gradient(bias_) : vector_view<gradient_type, memory>{};
    const auto sums = [&](std::size_t rows, std::size_t columns) {
      return matrix_view<accumulate, memory>{p.workspace.template take<accumulate>(rows * columns), {rows, columns}};
    };
    for (std::size_t begin = 0; begin < n; begin += at_once) {
      const auto scope = p.scope();
      const std::size_t rows = std::min(at_once, n - begin);
      const auto x_rows = x.rows(begin, rows);
      const auto targets = p.batch.targets_n.rows(begin, rows);
      const auto logits = sums(rows, v), parts = sums(3 * shard_.ranks, rows);
      ops::linear(p, x_rows, weight, bias, logits);
      const auto own = parts.rows(3 * shard_.rank, 3);
      ops::softmax_part<device, accumulate>(p, logits, targets, first, own);
      p.internal.parallel.tensor().all_gather(p.stream, device_span<const accumulate, memory>(own.span()), parts.span());
      const auto dlogits = p.trains() ? p.temporary(rows, v) : matrix_view<compute, memory>{};
      ops::softmax_of_parts<device, accumulate, compute>(p, logits, targets, first, vocabulary_, shard_.rank, parts, p.gradient_scale,
                                                         p.trains() ? z_loss_ : 0.0, loss_n.rows(begin, rows), dlogits);
      if (!p.trains()) continue;
      ops::linear_backward_input(p, dlogits, weight, dx.rows(begin, rows));
      if (dweight.exists()) ops::linear_backward_weight(p, dlogits, x_rows, dweight);
      if (dbias.exists()) ops::bias_backward(p, dlogits, dbias);
    }
    if (!p.trains()) return;
    if (p.internal.has_sequence_parallel) reduce_scatter_to_sequence_parallel_region(p, dx, own_dx, ops::result::replaces);
    else p.internal.parallel.tensor().all_reduce(p.stream, dx.span(), reduction::sum);
  }
  void logits_sharded(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> weight,
                      matrix_view<accumulate, memory> logits_nv) const {
    const std::size_t n = x.shape(0), v = weight.shape(0), first = shard_.up_to(vocabulary_).begin;
    const matrix_view<accumulate, memory> own{p.workspace.template take<accumulate>(n * v), {n, v}};
    ops::linear(p, x, weight, p.vector(bias_), own);
    for (std::size_t i = 0; i < n; ++i) {
      const auto row = logits_nv.rows(i, 1).span();
      copy_within(p.stream, row.subspan(first, v), device_span<const accumulate, memory>(own.rows(i, 1).span()));
      p.internal.parallel.tensor().share_ranges(p.stream, row);
    }
  }

  tensor_shard shard_;
  std::size_t vocabulary_;
  parameter weight_, bias_;
  double z_loss_;
};

}  // namespace xtrain
