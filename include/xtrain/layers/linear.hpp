// y = x · Wᵀ + b, and whatever an adapter adds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/matmul.hpp>

namespace xtrain {

/// Which side of a matrix ranks that share a layer divide among them. By outputs: each rank makes some columns of y, and dx
/// must be summed over ranks. By inputs: each rank adds to all of y, which must be summed.  [Shoeybi et al. 2019, section 3]
enum class split : std::uint8_t { by_outputs, by_inputs };

/// One matrix, used as one matmul, made of one or more modules that files know by name.
template <class Recipe>
class linear {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  struct options {
    bool bias = false;
    initial_values initial = initial_values::normal(0.02);
    bool transposed_in_files = false;
    split divided = split::by_outputs;
  };

  linear(builder<Recipe>& build, const std::vector<module_part>& parts, const input_part& inputs, const options& settings)
      : divided_(settings.divided),
        weight_(build.matrix(parts, inputs, settings.initial, settings.transposed_in_files, matrix_use::linear_weight)) {
    if (settings.bias) bias_ = build.vector(parts, "bias", 0.0);
    adapter_.declare(build, parts, inputs);
    trains_ = build.parameters().trains(weight_);
  }

  /// The backward reads x: a caller that recomputes or drops x asks before.
  [[nodiscard]] bool needs_input() const { return trains_ || adapter_.needs_input(); }

  /// x [n, in] read, y [n, out] written or added to
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y,
               ops::result how = ops::result::replaces) const {
    const bool summed = divided_ == split::by_inputs;
    const bool first = p.parallel.tensor().rank() == 0;
    // of a sum over ranks, what was there before and the bias must be counted once
    const auto bias = !summed || first ? p.vector(bias_) : p.vector(parameter{});
    with_weight(p, [&](auto weight) { ops::linear(p, x, weight, bias, y, summed && !first ? ops::result::replaces : how); });
    adapter_.forward(p, x, y);
    if (summed) p.parallel.tensor().all_reduce(p.stream, y.span(), reduction::sum);
  }

  /// dx [n, in] written or added to; gradients of what is trained added to
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                matrix_view<compute, memory> dx, ops::result how = ops::result::replaces) const {
    const bool summed = divided_ == split::by_outputs;
    // forward: y = x · Wᵀ + b
    if (const auto dw = p.matrix_gradient(weight_); dw.exists()) ops::linear_backward_weight(p, dy, x, dw);
    if (const auto db = p.vector_gradient(bias_); db.exists()) ops::bias_backward(p, dy, db);
    const auto how_first = summed && p.parallel.tensor().rank() != 0 ? ops::result::replaces : how;
    with_weight(p, [&](auto weight) { ops::linear_backward_input(p, dy, weight, dx, how_first); });
    // forward: y += adapter(x)
    adapter_.backward(p, x, dy, dx);
    if (summed) p.parallel.tensor().all_reduce(p.stream, dx.span(), reduction::sum);
  }

  [[nodiscard]] parameter weight() const { return weight_; }

 private:
  /// A quantised weight has values only as long as the work takes.
  template <class Work>
  void with_weight(pass<Recipe>& p, Work&& work) const {
    const auto scope = p.scope();
    work(p.weight(weight_));
  }

  split divided_;
  parameter weight_;
  parameter bias_;
  bool trains_ = true;
  typename Recipe::adapter::template on_linear<Recipe> adapter_;
};

}  // namespace xtrain
