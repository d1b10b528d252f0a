#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/sequence_parallel.hpp>
#include <xtrain/ops/activation.hpp>
#include <xtrain/ops/distillation.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/loss.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/ops/split_loss.hpp>

namespace xtrain {

namespace detail {

/// What an adapter adds to logits; usually nothing.
template <class Recipe>
struct no_head_adapter {
  template <class Builder, class Part, class Inputs>
  void declare(Builder&, const Part&, const Inputs&) {}
  [[nodiscard]] static constexpr bool exists() { return false; }
};
template <class Recipe>
inline constexpr bool adapts_heads = has_hook<typename Recipe::adapter, hook::on_head>;
template <class Recipe>
struct head_adapter_of {
  using type = no_head_adapter<Recipe>;
};
template <class Recipe>
requires adapts_heads<Recipe>
struct head_adapter_of<Recipe> {
  using type = typename Recipe::adapter::template on_head<Recipe>;
};

}  // namespace detail

/// logits = x · weightᵀ (+ bias + adapter), or softcap · tanh(logits / softcap), and cross-entropy; the vocabulary may be sharded. While training, the forward
/// also computes gradients: logits exist in chunks and are never saved. Communicates x under sequence parallelism, softmax parts, and dx.
/// [Shoeybi et al. 2019, "Megatron-LM", section 3]
template <class Recipe>
class vocab_parallel_head {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  using device = typename Recipe::device;
  using accumulate = accumulate_t<compute>;
  using gradient_type = typename pass<Recipe>::gradient_type;
  using adapter_type = typename detail::head_adapter_of<Recipe>::type;

  struct options {
    tensor_shard shard{};        ///< of the vocabulary
    std::size_t vocab_size = 0;  ///< of all ranks
    parameter bias{};            ///< [vocabulary], sharded as the weight; may be empty
    double z_loss = 0.0;
    double softcap = 0.0;        ///< bound of logits; 0: none
    adapter_type adapter{};      ///< declared
  };
  ///  weight   [vocabulary, hidden_size], sharded by builder::vocabulary_part
  vocab_parallel_head(parameter weight, const options& o)
      : shard_(o.shard), vocabulary_(o.vocab_size), weight_(weight), bias_(o.bias), z_loss_(o.z_loss), softcap_(o.softcap), adapter_(o.adapter) {}

  [[nodiscard]] parameter weight() const { return weight_; }

  /// x [n, hidden_size] read; loss_n written, natural logarithm, 0 without a target; z_loss only when training. While training: saves dx, adds to gradients of
  /// weight and bias.
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, vector_view<accumulate, memory> loss_n) const {
    forward_with(p, x, p.matrix(weight_), p.trains() ? p.matrix_gradient(weight_) : matrix_view<gradient_type, memory>{}, loss_n);
  }
  /// With values computed from the weight.
  ///   dweight  added to; may be empty
  void forward_with(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> weight,
                    matrix_view<gradient_type, memory> dweight, vector_view<accumulate, memory> loss_n) const {
    if (p.internal.objective != nullptr) return p.internal.objective->compute(p, head_pass<Recipe>(*this, x, weight, dweight), loss_n);
    const auto dx = p.trains() ? p.save(x.shape(0), x.shape(1)) : matrix_view<compute, memory>{};
    const auto scope = p.scope();
    cross_entropy(p, {.x = x, .weight = weight, .dweight = dweight, .dx = dx, .token_weight_n = token_weights(p), .loss = p.internal.loss,
                      .z_loss = p.trains() ? z_loss_ : 0.0},
                  loss_n);
  }

  /// dx [n, hidden_size], from the forward
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
    adapted_logits(p, x, weight, logits_nv);
  }

 private:
  friend class head_pass<Recipe>;

  /// This pass adds an adapter's logits.
  [[nodiscard]] bool adapts(const pass<Recipe>& p) const { return adapter_.exists() && !p.internal.without_adapter; }

  /// this rank's logits
  ///   t  the adapter's projection of x; may be empty
  void own_logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> weight,
                  matrix_view<accumulate, memory> logits, matrix_view<const compute, memory> t = {}) const {
    ops::linear(p, x, weight, p.vector(bias_), logits);
    if constexpr (detail::adapts_heads<Recipe>)
      if (t.exists()) adapter_.forward(p, t, logits);
    if (softcap_ != 0.0) ops::softcap(p, logits, softcap_, logits);
  }
  /// With the adapter, if this pass has it.
  void adapted_logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> weight,
                      matrix_view<accumulate, memory> logits) const {
    if constexpr (detail::adapts_heads<Recipe>) {
      if (adapts(p)) {
        const auto scope = p.scope();
        return own_logits(p, x, weight, logits, adapter_.project(p, x));
      }
    }
    own_logits(p, x, weight, logits);
  }
  /// dlogits becomes the gradient before the softcap
  void softcap_backward(pass<Recipe>& p, matrix_view<const accumulate, memory> logits, matrix_view<compute, memory> dlogits) const {
    if (softcap_ != 0.0) ops::softcap_backward(p, logits, softcap_, dlogits);
  }

  /// Of cross-entropy.
  struct operands {
    matrix_view<const compute, memory> x{}, weight{};
    matrix_view<gradient_type, memory> dweight{};  // empty: frozen
    matrix_view<compute, memory> dx{};             // empty: no gradients
    vector_view<const accumulate, memory> token_weight_n{};
    token_loss loss{};
    double z_loss = 0.0;
  };

  /// Token weights in the accumulate dtype.
  [[nodiscard]] static vector_view<const accumulate, memory> token_weights(pass<Recipe>& p) {
    if constexpr (std::is_same_v<accumulate, float>) {
      return p.batch.weights_n;
    } else {
      const std::size_t n = p.batch.n();
      if (!p.batch.weights_n.exists()) {
        if (counts_of(p.stream) != nullptr) (void)p.workspace.template take<accumulate>(n);  // a dry run has none, a step may have some
        return {};
      }
      const vector_view<accumulate, memory> wide{p.workspace.template take<accumulate>(n), {n}};
      ops::cast(p, p.batch.weights_n.span(), wide.span());
      return wide;
    }
  }

  [[nodiscard]] static std::size_t tokens_at_once(std::size_t n, std::size_t v) {
    return std::min(n, std::max<std::size_t>(512, (std::size_t{1} << 20) / v));
  }

  void cross_entropy(pass<Recipe>& p, const operands& o, vector_view<accumulate, memory> loss_n) const {
    if constexpr (has_tensor_parallel<Recipe>) {
      if (shard_.is_sharded()) return cross_entropy_sharded(p, o, loss_n);
    }
    if constexpr (detail::adapts_heads<Recipe>)
      if (adapts(p)) return cross_entropy_adapted(p, o, loss_n);
    if (!o.dx.exists())
      return ops::linear_cross_entropy(p, o.x, o.weight, p.batch.targets_n, loss_n, p.vector(bias_), o.token_weight_n, o.loss.label_smoothing,
                                       o.loss.log_z_loss, softcap_);
    ops::linear_cross_entropy_with_gradient(p, o.x, o.weight, p.batch.targets_n, p.gradient_scale, loss_n, o.dx, o.dweight, o.z_loss, p.vector(bias_),
                                            p.vector_gradient(bias_), o.token_weight_n, o.loss.label_smoothing, o.loss.log_z_loss, softcap_);
  }
  /// The adapter's projection of all tokens, and its gradient; may be empty.
  struct projected {
    matrix_view<const compute, memory> t{};
    matrix_view<compute, memory> dt{};
  };

  /// Cross-entropy of logits with an adapter.
  void cross_entropy_adapted(pass<Recipe>& p, const operands& o, vector_view<accumulate, memory> loss_n) const {
    const auto scope = p.scope();
    projected adapted{.t = adapter_.project(p, o.x)};
    if (o.dx.exists()) adapted.dt = p.temporary(o.x.shape(0), adapted.t.shape(1));
    cross_entropy_in_chunks(p, o, loss_n, adapted);
    if (o.dx.exists()) adapter_.project_backward(p, o.x, adapted.dt, o.dx);
  }
  /// Ranks exchange three or four values per token, never logits.
  void cross_entropy_sharded(pass<Recipe>& p, const operands& o, vector_view<accumulate, memory> loss_n) const {
    operands all = o;  // tokens of all ranks
    all.x = gather_from_sequence_parallel_region(p, o.x);
    if (o.dx.exists() && p.internal.has_sequence_parallel) all.dx = p.temporary(all.x.shape(0), all.x.shape(1));
    cross_entropy_in_chunks(p, all, loss_n);
    if (!o.dx.exists()) return;
    if (p.internal.has_sequence_parallel) reduce_scatter_to_sequence_parallel_region(p, all.dx, o.dx, ops::result::replaces);
    else p.internal.parallel.tensor().all_reduce(p.stream, o.dx.span(), reduction::sum);
  }
  /// Logits exist for one chunk of tokens at a time.
  void cross_entropy_in_chunks(pass<Recipe>& p, const operands& o, vector_view<accumulate, memory> loss_n, const projected& adapted = {}) const {
    const bool trains = o.dx.exists();
    const std::size_t n = o.x.shape(0), v = o.weight.shape(0), first = shard_.up_to(vocabulary_).begin;
    const std::size_t each = kernel::softmax_parts(o.loss.label_smoothing);
    const std::size_t at_once = tokens_at_once(n, v);
    const auto dbias = trains ? p.vector_gradient(bias_) : vector_view<gradient_type, memory>{};
    const auto sums = [&](std::size_t rows, std::size_t columns) {
      return matrix_view<accumulate, memory>{p.workspace.template take<accumulate>(rows * columns), {rows, columns}};
    };
    for (std::size_t begin = 0; begin < n; begin += at_once) {
      const auto scope = p.scope();
      const std::size_t rows = std::min(at_once, n - begin);
      const auto x_rows = o.x.rows(begin, rows);
      const auto targets = p.batch.targets_n.rows(begin, rows);
      const auto t_rows = adapted.t.exists() ? adapted.t.rows(begin, rows) : matrix_view<const compute, memory>{};
      const auto logits = sums(rows, v), parts = sums(each * shard_.ranks, rows);
      own_logits(p, x_rows, o.weight, logits, t_rows);
      const auto own = parts.rows(each * shard_.rank, each);
      ops::softmax_part<device, accumulate>(p, logits, targets, first, own);
      if constexpr (has_tensor_parallel<Recipe>)
        if (shard_.is_sharded()) p.internal.parallel.tensor().all_gather(p.stream, device_span<const accumulate, memory>(own.span()), parts.span());
      const auto dlogits = trains ? p.temporary(rows, v) : matrix_view<compute, memory>{};
      const auto token_weight = o.token_weight_n.exists() ? o.token_weight_n.rows(begin, rows) : vector_view<const accumulate, memory>{};
      ops::softmax_of_parts<device, accumulate, compute>(p, logits, targets, first, vocabulary_, shard_.rank, parts, p.gradient_scale, o.z_loss,
                                                         loss_n.rows(begin, rows), dlogits, token_weight, o.loss.label_smoothing, o.loss.log_z_loss);
      if (!trains) continue;
      softcap_backward(p, logits, dlogits);
      ops::linear_backward_input(p, dlogits, o.weight, o.dx.rows(begin, rows));
      if (o.dweight.exists()) ops::linear_backward_weight(p, dlogits, x_rows, o.dweight);
      if (dbias.exists()) ops::bias_backward(p, dlogits, dbias);
      if constexpr (detail::adapts_heads<Recipe>)
        if (adapted.t.exists()) adapter_.backward(p, t_rows, dlogits, adapted.dt.rows(begin, rows));
    }
  }
  void logits_sharded(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> weight,
                      matrix_view<accumulate, memory> logits_nv) const {
    const std::size_t n = x.shape(0), v = weight.shape(0), first = shard_.up_to(vocabulary_).begin;
    const matrix_view<accumulate, memory> own{p.workspace.template take<accumulate>(n * v), {n, v}};
    own_logits(p, x, weight, own);
    for (std::size_t i = 0; i < n; ++i) {
      const auto row = logits_nv.rows(i, 1).span();
      copy_within(p.stream, row.subspan(first, v), device_span<const accumulate, memory>(own.rows(i, 1).span()));
      p.internal.parallel.tensor().share_ranges(p.stream, row);
    }
  }

  tensor_shard shard_;
  std::size_t vocabulary_;
  parameter weight_, bias_;
  double z_loss_, softcap_;
  adapter_type adapter_;
};

/// One pass through a head, for an objective.
template <class Recipe>
class head_pass {
 public:
  using head_type = vocab_parallel_head<Recipe>;
  using compute = typename head_type::compute;
  using accumulate = typename head_type::accumulate;
  using memory = typename head_type::memory;
  using sums = vector_view<accumulate, memory>;

  /// x [n or this rank's tokens, hidden_size]; weight [vocabulary, hidden_size]; dweight added to, may be empty
  head_pass(const head_type& head, matrix_view<const compute, memory> x, matrix_view<const compute, memory> weight,
            matrix_view<typename head_type::gradient_type, memory> dweight)
      : head_(&head), x_(x), weight_(weight), dweight_(dweight) {}

  [[nodiscard]] std::size_t vocab_size() const { return head_->vocabulary_; }

  /// The head on hidden states divided by a temperature, in the caller's scope. Gradients are of the divided hidden states.
  ///   throws  config_error for bounded logits or a bias
  [[nodiscard]] head_pass with_temperature(pass<Recipe>& p, double temperature) const {
    if (temperature == 1.0) return *this;
    require<config_error>(head_->softcap_ == 0.0 && !p.vector(head_->bias_).exists(),
                          "temperature: must be 1 for a model whose logits are bounded (softcap) or have a bias; given ", temperature);
    const auto x = p.temporary(x_.shape(0), x_.shape(1));
    fill_zero(p.stream, x.span());
    ops::add(p, x_, x, 1.0 / temperature);
    return head_pass(*head_, x, weight_, dweight_);
  }
  /// loss_n = −log p(target), 0 without a target. No gradients.
  void cross_entropy(pass<Recipe>& p, sums loss_n) const {
    const auto scope = p.scope();
    head_->cross_entropy(p, {.x = x_, .weight = weight_}, loss_n);
  }
  /// Final hidden states of all tokens, in the caller's scope.
  [[nodiscard]] matrix_view<const compute, memory> hidden_states(pass<Recipe>& p) const { return gather_from_sequence_parallel_region(p, x_); }
  /// This rank's shard of weight and bias.
  [[nodiscard]] matrix_view<const compute, memory> weight() const { return weight_; }
  [[nodiscard]] vector_view<const compute, memory> bias(pass<Recipe>& p) const { return p.vector(head_->bias_); }
  /// Logits of hidden states.
  ///   x [n, hidden_size] read, logits_nv [n, vocabulary or this rank's shard] written
  void logits(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<accumulate, memory> logits_nv) const {
    head_->adapted_logits(p, x, weight_, logits_nv);
  }
  [[nodiscard]] double softcap() const { return head_->softcap_; }
  /// weight() and bias() determine the logits: the weight is the parameter, and no adapter adds to logits.
  [[nodiscard]] bool has_own_weight(pass<Recipe>& p) const { return p.matrix(head_->weight_).data().raw() == weight_.data().raw() && !head_->adapts(p); }
  /// Tokens, of n, with logits at the same time. Each chunk reads and writes the weight gradient: small chunks are slow.
  [[nodiscard]] std::size_t tokens_at_once(std::size_t n) const { return head_type::tokens_at_once(n, weight_.shape(0)); }
  /// Gradient of x, returned by the head's backward; call before other saves of the pass.
  [[nodiscard]] matrix_view<compute, memory> save_input_gradient(pass<Recipe>& p) const { return p.save(x_.shape(0), x_.shape(1)); }
  /// Gradients of Σ token_weight · −log p(target), times p.gradient_scale; once per pass.
  ///   token_weight_n   of any sign
  ///   loss_n           written: token_weight · −log p(target)
  ///   dx               from save_input_gradient, written
  void gradient(pass<Recipe>& p, vector_view<const accumulate, memory> token_weight_n, sums loss_n,
                matrix_view<compute, memory> dx) const {
    const auto scope = p.scope();
    head_->cross_entropy(p, {.x = x_, .weight = weight_, .dweight = dweight_, .dx = dx, .token_weight_n = token_weight_n}, loss_n);
  }

  /// A teacher's stored log-probabilities; empty: it gives logits.
  struct stored_log_probs {
    matrix_view<const token, memory> id_nk{};
    matrix_view<const accumulate, memory> log_prob_nk{};
  };
  /// cross_entropy_ratio · cross-entropy + divergence from a teacher; while training, gradients. Works in chunks of tokens, over vocabulary shards.
  ///   settings          divergence, with its factor
  ///   teacher_logits(first token, logits_nv)   writes this rank's shard
  ///   loss_n            written
  ///   dx                from save_input_gradient, written; none: no gradients
  template <class TeacherLogits>
  void distil(pass<Recipe>& p, ops::distillation_settings settings, double cross_entropy_ratio, TeacherLogits&& teacher_logits,
              const stored_log_probs& stored, sums loss_n, matrix_view<compute, memory> dx) const;

 private:
  const head_type* head_;
  matrix_view<const compute, memory> x_, weight_;
  matrix_view<typename head_type::gradient_type, memory> dweight_;
};

template <class Recipe>
template <class TeacherLogits>
void head_pass<Recipe>::distil(pass<Recipe>& p, ops::distillation_settings settings, double cross_entropy_ratio, TeacherLogits&& teacher_logits,
                               const stored_log_probs& stored, sums loss_n, matrix_view<compute, memory> own_dx) const {
  using gradient_type = typename head_type::gradient_type;
  using device = typename head_type::device;
  require<config_error>(!head_->adapts(p), "distillation: the head must not have an adapter; choose other target modules");
  const auto scope = p.scope();
  const tensor_shard& shard = head_->shard_;
  const bool is_sharded = has_tensor_parallel<Recipe> && shard.is_sharded(), trains = own_dx.exists();
  const auto x = hidden_states(p);
  const auto token_weights = head_type::token_weights(p);
  const std::size_t n = x.shape(0), c = x.shape(1), v = weight_.shape(0), first = is_sharded ? shard.up_to(head_->vocabulary_).begin : 0;
  const std::size_t ranks = is_sharded ? shard.ranks : 1, rank = is_sharded ? shard.rank : 0, at_once = tokens_at_once(n);
  const auto dx = trains && p.internal.has_sequence_parallel ? p.temporary(n, c) : own_dx;
  const auto dbias = trains ? p.vector_gradient(head_->bias_) : vector_view<gradient_type, memory>{};
  const auto values = [&](std::size_t rows, std::size_t columns) {
    return matrix_view<accumulate, memory>{p.workspace.template take<accumulate>(rows * columns), {rows, columns}};
  };
  /// this rank's `each` values per token become all ranks'
  const auto of_all_ranks = [&](std::size_t each, std::size_t rows, auto&& write_own) {
    const auto parts = values(each * ranks, rows);
    const auto own = parts.rows(each * rank, each);
    write_own(own);
    if constexpr (has_tensor_parallel<Recipe>)
      if (is_sharded) p.internal.parallel.tensor().all_gather(p.stream, device_span<const accumulate, memory>(own.span()), parts.span());
    return parts;
  };
  for (std::size_t begin = 0; begin < n; begin += at_once) {
    const auto chunk = p.scope();
    const std::size_t rows = std::min(at_once, n - begin);
    const auto x_rows = x.rows(begin, rows);
    const auto targets = p.batch.targets_n.rows(begin, rows);
    const auto token_weight = token_weights.exists() ? token_weights.rows(begin, rows) : vector_view<const accumulate, memory>{};
    const auto loss = loss_n.rows(begin, rows);
    const auto logits = values(rows, v);
    const auto dlogits = trains ? p.temporary(rows, v) : matrix_view<compute, memory>{};
    this->logits(p, x_rows, logits);
    settings.accumulate = cross_entropy_ratio > 0;
    if (settings.accumulate) {
      const auto parts = of_all_ranks(kernel::softmax_parts(0.0), rows,
                                      [&](auto own) { ops::softmax_part<device, accumulate>(p, logits, targets, first, own); });
      const auto cross_entropy = values(1, rows).template reshaped<1>({rows});
      ops::softmax_of_parts<device, accumulate, compute>(p, logits, targets, first, head_->vocabulary_, rank, parts,
                                                         p.gradient_scale * cross_entropy_ratio,
                                                         trains ? head_->z_loss_ : 0.0, cross_entropy, dlogits, token_weight);
      fill_zero(p.stream, loss.span());
      ops::add(p, cross_entropy, loss, cross_entropy_ratio);
    }
    if (stored.id_nk.exists()) {
      const auto ids = stored.id_nk.rows(begin, rows);
      const auto log_probs = stored.log_prob_nk.rows(begin, rows);
      const auto parts = of_all_ranks(
          3, rows, [&](auto own) { ops::topk_distillation_part<device, accumulate>(p, settings, logits, ids, log_probs, first, own); });
      ops::topk_distillation_of_parts<device, accumulate, compute>(p, settings, logits, ids, log_probs, targets, first, head_->vocabulary_, parts,
                                                                   p.gradient_scale, loss, dlogits, token_weight);
    } else {
      const auto teacher = values(rows, v);
      teacher_logits(begin, teacher);
      const auto parts =
          of_all_ranks(5, rows, [&](auto own) { ops::distillation_part<device, accumulate>(p, settings, logits, teacher, own); });
      ops::distillation_of_parts<device, accumulate, compute>(p, settings, logits, teacher, targets, head_->vocabulary_, parts, p.gradient_scale,
                                                              loss, dlogits, token_weight);
    }
    if (!trains) continue;
    head_->softcap_backward(p, logits, dlogits);
    ops::linear_backward_input(p, dlogits, weight_, dx.rows(begin, rows));
    if (dweight_.exists()) ops::linear_backward_weight(p, dlogits, x_rows, dweight_);
    if (dbias.exists()) ops::bias_backward(p, dlogits, dbias);
  }
  if (!trains) return;
  if constexpr (has_tensor_parallel<Recipe>) {
    if (!is_sharded) return;
    if (p.internal.has_sequence_parallel) reduce_scatter_to_sequence_parallel_region(p, dx, own_dx, ops::result::replaces);
    else p.internal.parallel.tensor().all_reduce(p.stream, dx.span(), reduction::sum);
  }
}

}  // namespace xtrain
