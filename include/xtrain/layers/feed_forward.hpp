#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/layers/kinds.hpp>
#include <xtrain/layers/parallel_linear.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/recompute.hpp>
#include <xtrain/ops/activation.hpp>

namespace xtrain {

/// Configuration of a feed-forward layer.
struct feed_forward_options {
  std::size_t hidden_size = 0;
  std::size_t intermediate_size = 0;
  bool bias = false;
  std::vector<std::string> up_names{};  // one module; gate and up if gated
  std::string down_name{};
  initial_values initial{};
  initial_values down_initial{};
  bool transposed_in_files = false;
  // mixture of experts: '*' in names is the expert's index
  std::size_t num_experts = 0;
  std::size_t num_experts_per_token = 0;
  std::size_t layer = 0;  // index in the load of experts
  std::string router_name{};
  activation_kind activation = activation_kind::swiglu;  // for a layer type that supports any
};

namespace detail {

/// Passes the kind to a type for any activation.
template <class Activation>
[[nodiscard]] Activation make_activation(const feed_forward_options& o) {
  if constexpr (std::is_constructible_v<Activation, activation_kind>) return Activation(o.activation);
  else return Activation{};
}

}  // namespace detail

/// y = W2 · f(W1 · x). `Activation`: columns of W1 per output, and f's kernels.
template <class Recipe, class Activation>
class feed_forward {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  static constexpr bool recomputes = Recipe::recompute::template drops<activation_outputs>;

  feed_forward(builder<Recipe>& build, const feed_forward_options& o)
      : activation_(detail::make_activation<Activation>(o)), inner_(build.shard().of(o.intermediate_size, "intermediate channels").count),
        up_(build, detail::up_parts(o.up_names, activation_.columns, o.intermediate_size, build.shard()), o.hidden_size,
            {.bias = o.bias, .initial = o.initial, .transposed_in_files = o.transposed_in_files}),
        down_(build, {{o.down_name, o.hidden_size}}, {build.shard().of(o.intermediate_size, "intermediate channels"), o.intermediate_size},
              {.bias = o.bias, .initial = o.down_initial, .transposed_in_files = o.transposed_in_files}) {}

  [[nodiscard]] bool needs_input() const { return up_.needs_input(); }

  /// x [n, hidden_size] read, y [n, hidden_size] written or added to
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y, ops::result write_mode) const {
    const std::size_t n = p.tokens_in_layer(x.shape(0));
    const auto u = p.save(n, activation_.columns * inner_);
    up_.forward(p, x, u);
    const auto scope = p.scope();
    const auto a = saves_activation() ? p.save(n, inner_) : p.temporary(n, inner_);
    activation_.forward(p, u, a);
    down_.forward(p, a, y, write_mode);
  }

  /// dx [n, hidden_size] written or added to
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                matrix_view<compute, memory> dx, ops::result write_mode) const {
    const auto scope = p.scope();
    const std::size_t n = p.tokens_in_layer(x.shape(0));
    matrix_view<compute, memory> a{};
    if (saves_activation()) a = p.pop_saved(n, inner_);
    const auto u = p.pop_saved(n, activation_.columns * inner_);
    if (recomputes && down_.needs_input()) {
      a = p.temporary(n, inner_);
      activation_.forward(p, u, a);
    }
    // forward: y = a · W2ᵀ
    const auto da = p.temporary(n, inner_);
    down_.backward(p, a, dy, da);
    // forward: a = f(u); du overwrites u
    activation_.backward(p, u, da, u);
    // forward: u = x · W1ᵀ
    up_.backward(p, x, u, dx, write_mode);
  }

 private:
  [[nodiscard]] bool saves_activation() const { return !recomputes && down_.needs_input(); }

  [[no_unique_address]] Activation activation_;
  std::size_t inner_;
  column_parallel_linear<Recipe> up_;
  row_parallel_linear<Recipe> down_;
};

/// GELU, tanh approximation. [Hendrycks & Gimpel 2016]
struct gelu_activation {
  static constexpr std::size_t columns = 1;
  template <class Pass, class U, class A>
  static void forward(Pass& p, const U& u, const A& a) {
    ops::gelu_tanh(p, u, a);
  }
  template <class Pass, class U, class DA, class DU>
  static void backward(Pass& p, const U& u, const DA& da, const DU& du) {
    ops::gelu_tanh_backward(p, u, da, du);
  }
};

/// GELU with erf. [Hendrycks & Gimpel 2016]
struct gelu_erf_activation {
  static constexpr std::size_t columns = 1;
  template <class Pass, class U, class A>
  static void forward(Pass& p, const U& u, const A& a) {
    ops::gelu_erf(p, u, a);
  }
  template <class Pass, class U, class DA, class DU>
  static void backward(Pass& p, const U& u, const DA& da, const DU& du) {
    ops::gelu_erf_backward(p, u, da, du);
  }
};

/// SwiGLU: silu(gate) · up, one matmul. [Shazeer 2020]
struct swiglu_activation {
  static constexpr std::size_t columns = 2;
  template <class Pass, class U, class A>
  static void forward(Pass& p, const U& u, const A& a) {
    ops::swiglu(p, u, a);
  }
  template <class Pass, class U, class DA, class DU>
  static void backward(Pass& p, const U& u, const DA& da, const DU& du) {
    ops::swiglu_backward(p, u, da, du);
  }
};

/// GEGLU: gelu(gate) · up, tanh approximation, one matmul. [Shazeer 2020]
struct geglu_activation {
  static constexpr std::size_t columns = 2;
  template <class Pass, class U, class A>
  static void forward(Pass& p, const U& u, const A& a) {
    ops::geglu(p, u, a);
  }
  template <class Pass, class U, class DA, class DU>
  static void backward(Pass& p, const U& u, const DA& da, const DU& du) {
    ops::geglu_backward(p, u, da, du);
  }
};

}  // namespace xtrain
