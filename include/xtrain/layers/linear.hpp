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
    bool adds_up = true;  // over ranks; false: whoever uses the layer does, and gives it all places
  };

  linear(builder<Recipe>& build, const std::vector<module_part>& parts, const input_part& inputs, const options& settings)
      : divided_(settings.divided), adds_up_(settings.adds_up),
        weight_(build.matrix(parts, inputs, settings.initial, settings.transposed_in_files, matrix_use::linear_weight)) {
    if (settings.bias) bias_ = build.vector(parts, "bias", 0.0);
    adapter_.declare(build, parts, inputs);
    trains_ = build.parameters().trains(weight_);
  }

  /// The backward reads x: a caller that recomputes or drops x asks before.
  [[nodiscard]] bool needs_input() const { return trains_ || adapter_.needs_input(); }
  /// The adapter drops some of x at random.
  [[nodiscard]] bool drops_input() const {
    if constexpr (requires { adapter_.drops_input(); }) return adapter_.drops_input();
    else return false;
  }

  /// x [n, in] read, y [n, out] written or added to. Where ranks divide what lies between layers, whichever of x and y lies there has
  /// this rank's places only.
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y,
               ops::result how = ops::result::replaces) const {
    const auto scope = p.scope();
    if (divided_ == split::by_outputs) return multiply(p, adds_up_ ? p.all_places(x) : x, y, how, p.vector(bias_));
    // of a sum over ranks, what was there before and the bias must be counted once
    const bool first = p.parallel.tensor().rank() == 0;
    const auto bias = first ? p.vector(bias_) : p.vector(parameter{});
    if (!adds_up_) return multiply(p, x, y, how, bias);
    if (p.divides_between_layers) {
      const auto part = p.temporary(x.shape(0), y.shape(1));
      multiply(p, x, part, ops::result::replaces, bias);
      return p.sum_to_own_places(part, y, how);
    }
    multiply(p, x, y, first ? how : ops::result::replaces, bias);
    p.parallel.tensor().all_reduce(p.stream, y.span(), reduction::sum);
  }

  /// dx [n, in] written or added to; gradients of what is trained added to
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                matrix_view<compute, memory> dx, ops::result how = ops::result::replaces) const {
    const auto scope = p.scope();
    if (!adds_up_) return multiply_backward(p, x, dy, dx, how);
    if (divided_ == split::by_inputs) return multiply_backward(p, x, p.all_places(dy), dx, how);
    if (p.divides_between_layers) {
      const auto part = p.temporary(dy.shape(0), dx.shape(1));
      multiply_backward(p, needs_input() ? p.all_places(x) : part, dy, part, ops::result::replaces);
      return p.sum_to_own_places(part, dx, how);
    }
    multiply_backward(p, x, dy, dx, p.parallel.tensor().rank() == 0 ? how : ops::result::replaces);
    p.parallel.tensor().all_reduce(p.stream, dx.span(), reduction::sum);
  }

  [[nodiscard]] parameter weight() const { return weight_; }

 private:
  /// What this rank's part of the matrix makes of x, all of whose places are there.
  void multiply(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y, ops::result how,
                vector_view<const compute, memory> bias) const {
    with_weight(p, [&](auto weight) { ops::linear(p, x, weight, bias, y, how); });
    adapter_.forward(p, x, y);
  }
  void multiply_backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                         matrix_view<compute, memory> dx, ops::result how) const {
    // forward: y = x · Wᵀ + b
    p.add_weight_gradient(weight_, dy, x);
    if (const auto db = p.vector_gradient(bias_); db.exists()) ops::bias_backward(p, dy, db);
    with_weight(p, [&](auto weight) { ops::linear_backward_input(p, dy, weight, dx, how); });
    // forward: y += adapter(x)
    adapter_.backward(p, x, dy, dx);
  }

  /// A quantised weight has values only as long as the work takes.
  template <class Work>
  void with_weight(pass<Recipe>& p, Work&& work) const {
    const auto scope = p.scope();
    work(p.weight(weight_));
  }

  split divided_;
  bool adds_up_;
  parameter weight_;
  parameter bias_;
  bool trains_ = true;
  typename Recipe::adapter::template on_linear<Recipe> adapter_;
};

}  // namespace xtrain
