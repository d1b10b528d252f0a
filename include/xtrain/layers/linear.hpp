// y = x · Wᵀ + b + adapter. Sharded: parallel_linear.hpp.
#pragma once

#include <cstddef>
#include <vector>

#include <xtrain/core/hooks.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/matmul.hpp>

namespace xtrain {

template <class Recipe>
class column_parallel_linear;
template <class Recipe>
class row_parallel_linear;

/// One weight matrix and matmul, of one or more modules in files. Replicated, without communication.
template <class Recipe>
class linear {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  struct options {
    bool bias = false;
    initial_values initial = initial_values::normal(0.02);
    bool transposed_in_files = false;
    region where = region::sequence_parallel;  ///< tensor_parallel: ranks have all tokens of x also under sequence parallelism
  };

  ///   throws  config_error when the parts or the inputs are sharded
  linear(builder<Recipe>& build, const std::vector<module_part>& parts, const input_part& inputs, const options& settings)
      : weight_(build.matrix(parts, inputs, settings.initial, settings.transposed_in_files, matrix_use::linear_weight, settings.where)) {
    if (settings.where == region::sequence_parallel) require_whole(parts, inputs);
    if (settings.bias) bias_ = build.vector(parts, "bias", 0.0, settings.where);
    adapter_.declare(build, parts, inputs);
    trains_ = build.parameters().trains(weight_);
  }

  /// The backward reads x; checked by callers that recompute or drop x.
  [[nodiscard]] bool needs_input() const { return trains_ || adapter_.needs_input(); }
  /// The adapter has dropout on x.
  [[nodiscard]] bool drops_input() const {
    if constexpr (has_hook<typename Recipe::adapter, hook::drops_input>) return adapter_.drops_input();
    else return false;
  }

  /// Can be confined to rows that only the device knows (execution::confined); declared by the adapter.
  [[nodiscard]] bool works_on_rows() const {
    if constexpr (has_hook<typename Recipe::adapter, hook::works_on_rows>) return adapter_.works_on_rows();
    else return false;
  }

  /// Only the product with the weight: no bias, and the adapter declares adds_nothing.
  [[nodiscard]] bool is_product() const {
    if constexpr (has_hook<typename Recipe::adapter, hook::adds_nothing>) return adapter_.adds_nothing() && !bias_.exists();
    else return false;
  }

  /// x [n, in] read, y [n, out] written or added to
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y,
               ops::result write_mode = ops::result::replaces) const {
    multiply(p, x, y, write_mode, p.vector(bias_));
  }

  /// dx [n, in] written or added to; gradients of trainable parameters added to
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                matrix_view<compute, memory> dx, ops::result write_mode = ops::result::replaces) const {
    const auto scope = p.scope();
    if constexpr (replaces_operands) {
      if (adapter_.quantizes(p)) {
        quantized_backward(p, x, dy, dx, write_mode);
        return adapter_.backward(p, x, dy, dx);
      }
    }
    // forward: y = x · Wᵀ + b
    p.add_weight_gradient(weight_, dy, x);
    if (const auto db = p.vector_gradient(bias_); db.exists()) ops::bias_backward(p, dy, db);
    with_weight(p, [&](auto weight) { ops::linear_backward_input(p, dy, weight, dx, write_mode); });
    // forward: y += adapter(x)
    adapter_.backward(p, x, dy, dx);
  }

  [[nodiscard]] parameter weight() const { return weight_; }

 private:
  friend class row_parallel_linear<Recipe>;
  using adapter_type = typename Recipe::adapter::template on_linear<Recipe>;
  /// The adapter decides the operands: on_linear has quantizes, quantized_input, quantized_weight, input_backward, weight_backward; quantized_outputs if only
  /// for some modules.
  static constexpr bool replaces_operands = has_hook<typename Recipe::adapter, hook::quantizes>;

  /// This layer does not reduce over ranks.
  static void require_whole(const std::vector<module_part>& parts, const input_part& inputs) {
    for (const module_part& part : parts)
      require<config_error>(part.whole_outputs == 0 && inputs.whole == 0, "linear: '", part.name, "' must be whole on every rank; to shard outputs use "
                            "column_parallel_linear, to shard inputs row_parallel_linear");
  }

  void multiply(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y, ops::result write_mode,
                vector_view<const compute, memory> bias) const {
    const auto scope = p.scope();
    if constexpr (replaces_operands) {
      if (adapter_.quantizes(p)) {
        const auto x_rounded = adapter_.quantized_input(p, x);
        with_weight(p, [&](auto weight) {
          for_each_range(y.shape(1), [&](std::size_t first, std::size_t count, bool rounds) {
            const auto range_scope = p.scope();
            const auto w = weight.rows(first, count);
            ops::linear(p, rounds ? x_rounded : x, rounds ? adapter_.quantized_weight(p, w) : w, bias.exists() ? bias.rows(first, count) : bias,
                        y.columns(first, count), write_mode);
          });
        });
        return add_adapter(p, x, y);
      }
    }
    with_weight(p, [&](auto weight) { ops::linear(p, x, weight, bias, y, write_mode); });
    add_adapter(p, x, y);
  }

  /// Saved activations of an adapter would be popped by surrounding layers.
  void add_adapter(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y) const {
    if (p.internal.without_adapter) return;
    const std::size_t saved = p.saved.entries();
    adapter_.forward(p, x, y);
    require<config_error>(p.saved.entries() == saved, "adapter '", Recipe::adapter::name,
                          "': forward() of on_linear must not save activations; backward() is given x and must compute them again; saved were ",
                          p.saved.entries() - saved, ". See adapt/README.md");
  }

  void quantized_backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy, matrix_view<compute, memory> dx,
                          ops::result write_mode) const {
    // forward: y = Q(x) · Q(W)ᵀ + b
    if (trains_) {
      const auto scope = p.scope();
      p.add_weight_gradient(weight_, dy, adapter_.quantized_input(p, x));
    }
    if (const auto db = p.vector_gradient(bias_); db.exists()) ops::bias_backward(p, dy, db);
    with_weight(p, [&](auto weight) {
      if (const auto dw = p.matrix_gradient(weight_); dw.exists()) adapter_.weight_backward(p, weight, dw);
      const auto through = [&](bool rounded, auto to, ops::result to_how) {
        for_each_range(dy.shape(1), [&](std::size_t first, std::size_t count, bool rounds) {
          if (rounds != rounded) return;
          const auto scope = p.scope();
          const auto w = weight.rows(first, count);
          ops::linear_backward_input(p, dy.columns(first, count), rounds ? adapter_.quantized_weight(p, w) : w, to, to_how);
          to_how = ops::result::is_added;
        });
      };
      adapter_.input_backward(p, x, dx, write_mode, [&](auto to, ops::result to_how) { through(true, to, to_how); });
      through(false, dx, ops::result::is_added);
    });
  }

  /// work(first, count, rounds) for ranges of outputs: `rounds` if operands are rounded.
  template <class Work>
  void for_each_range(std::size_t outputs, Work&& work) const {
    if constexpr (has_hook<typename Recipe::adapter, hook::quantized_outputs>) {
      for (const auto& range : adapter_.quantized_outputs()) work(range.first, range.count, range.rounds);
    } else {
      work(std::size_t{0}, outputs, true);
    }
  }

  /// The weight, dequantized during `work`.
  template <class Work>
  void with_weight(pass<Recipe>& p, Work&& work) const {
    const auto scope = p.scope();
    work(p.weight(weight_));
  }

  parameter weight_;
  parameter bias_;
  bool trains_ = true;
  adapter_type adapter_;
};

}  // namespace xtrain
