#pragma once

#include <cstddef>
#include <string>

#include <xtrain/layers/builder.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/norm.hpp>

namespace xtrain {

/// Root-mean-square normalization, scaled per channel. [Zhang & Sennrich 2019]
/// Saves a value per row. zero_centered: scale 1 + weight, weights start at 0.
template <class Recipe>
class rms_norm {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  rms_norm(builder<Recipe>& build, const std::string& name, std::size_t channels, double epsilon, bool zero_centered = false)
      : epsilon_(epsilon), offset_(zero_centered ? 1.0 : 0.0), weight_(build.vector({{name, channels}}, "weight", 1.0 - offset_)) {}

  /// x [n, c] read, y [n, c] written
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y) const {
    ops::rms_norm(p, x, p.vector(weight_), epsilon_, y, p.save_sums(x.shape(0)), offset_);
  }

  /// y without saving anything.
  void recompute(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y) const {
    const auto scope = p.scope();
    ops::rms_norm(p, x, p.vector(weight_), epsilon_, y, {p.workspace.template take<accumulate_t<compute>>(x.shape(0)), {x.shape(0)}}, offset_);
  }

  /// dx [n, c] added to: it holds the residual stream's gradient
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                matrix_view<compute, memory> dx) const {
    const auto rstd_n = p.pop_saved_sums(x.shape(0));
    ops::rms_norm_backward(p, x, p.vector(weight_), rstd_n, dy, dx, p.vector_gradient(weight_), offset_);
  }

 private:
  double epsilon_, offset_;
  parameter weight_;
};

/// For families without the norm.
struct no_norm {
  template <class Builder>
  no_norm(Builder&, const std::string&, std::size_t, double) {}
};

/// Layer normalization, scaled and shifted per channel. [Ba, Kiros & Hinton 2016]
/// Saves two values per row.
template <class Recipe>
class layer_norm {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  layer_norm(builder<Recipe>& build, const std::string& name, std::size_t channels, double epsilon)
      : epsilon_(epsilon), weight_(build.vector({{name, channels}}, "weight", 1.0)),
        bias_(build.vector({{name, channels}}, "bias", 0.0)) {}

  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y) const {
    const auto mean_n = p.save_sums(x.shape(0));
    const auto rstd_n = p.save_sums(x.shape(0));
    ops::layer_norm(p, x, p.vector(weight_), p.vector(bias_), epsilon_, y, mean_n, rstd_n);
  }

  void recompute(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y) const {
    const auto scope = p.scope();
    const std::size_t n = x.shape(0);
    const auto sums = [&] { return vector_view<accumulate_t<compute>, memory>(p.workspace.template take<accumulate_t<compute>>(n), {n}); };
    const auto mean_n = sums();
    ops::layer_norm(p, x, p.vector(weight_), p.vector(bias_), epsilon_, y, mean_n, sums());
  }

  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                matrix_view<compute, memory> dx) const {
    const auto rstd_n = p.pop_saved_sums(x.shape(0));
    const auto mean_n = p.pop_saved_sums(x.shape(0));
    ops::layer_norm_backward(p, x, p.vector(weight_), mean_n, rstd_n, dy, dx, p.vector_gradient(weight_), p.vector_gradient(bias_));
  }

 private:
  double epsilon_;
  parameter weight_;
  parameter bias_;
};

}  // namespace xtrain
