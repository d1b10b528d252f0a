// A decoder block with layers chosen at run time: one type for every family made of the library's layers.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <xtrain/layers/experts.hpp>
#include <xtrain/layers/feed_forward.hpp>
#include <xtrain/layers/norm.hpp>
#include <xtrain/layers/positions.hpp>
#include <xtrain/models/decoder_block.hpp>
#include <xtrain/models/normalized_residual_block.hpp>

namespace xtrain {

/// rms_norm or layer_norm.
template <class Recipe>
class any_norm {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;

  any_norm(builder<Recipe>& build, const std::string& name, std::size_t channels, double epsilon, norm_kind kind, bool zero_centered) {
    if (kind == norm_kind::layer) layer_.emplace(build, name, channels, epsilon);
    else rms_.emplace(build, name, channels, epsilon, zero_centered);
  }

  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y) const {
    if (rms_) rms_->forward(p, x, y);
    else layer_->forward(p, x, y);
  }
  /// Computes y without saving anything.
  void recompute(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y) const {
    if (rms_) rms_->recompute(p, x, y);
    else layer_->recompute(p, x, y);
  }
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy,
                matrix_view<compute, memory> dx) const {
    if (rms_) rms_->backward(p, x, dy, dx);
    else layer_->backward(p, x, dy, dx);
  }

 private:
  std::optional<rms_norm<Recipe>> rms_;
  std::optional<layer_norm<Recipe>> layer_;
};

/// Rotary, 2D rotary, ALiBi or no positions; learned positions belong to the embedding.
template <class Recipe>
class any_positions {
 public:
  using device = typename Recipe::device;

  any_positions(const typename device::context& context, typename device::stream& stream, const position_options& o) {
    const bool biases = o.kind == position_kind::alibi || (o.kind == position_kind::rotary_or_alibi && o.alibi);
    if (o.kind == position_kind::rotary_2d) rotary_2d_.emplace(context, stream, o);
    else if (biases) alibi_.emplace(context, stream, o);
    else if (o.kind != position_kind::none) rotary_.emplace(context, stream, o);
  }

  template <class Matrix>
  void turn(pass<Recipe>& p, std::size_t heads, const Matrix& x, ops::turn direction) const {
    if (rotary_) rotary_->turn(p, heads, x, direction);
    else if (rotary_2d_) rotary_2d_->turn(p, heads, x, direction);
  }
  [[nodiscard]] vector_view<const float, typename device::memory> slopes() const {
    return alibi_ ? alibi_->slopes() : vector_view<const float, typename device::memory>{};
  }

 private:
  std::optional<rotary_positions<Recipe>> rotary_;
  std::optional<rotary_positions_2d<Recipe>> rotary_2d_;
  std::optional<alibi_positions<Recipe>> alibi_;
};

/// GELU (tanh or exact), SwiGLU or GEGLU.
class any_activation {
 public:
  explicit any_activation(activation_kind kind)
      : columns(kind == activation_kind::swiglu || kind == activation_kind::geglu ? swiglu_activation::columns : gelu_activation::columns), kind_(kind) {}

  template <class Pass, class U, class A>
  void forward(Pass& p, const U& u, const A& a) const {
    if (kind_ == activation_kind::swiglu) swiglu_activation::forward(p, u, a);
    else if (kind_ == activation_kind::geglu) geglu_activation::forward(p, u, a);
    else if (kind_ == activation_kind::gelu_erf) gelu_erf_activation::forward(p, u, a);
    else gelu_activation::forward(p, u, a);
  }
  template <class Pass, class U, class DA, class DU>
  void backward(Pass& p, const U& u, const DA& da, const DU& du) const {
    if (kind_ == activation_kind::swiglu) swiglu_activation::backward(p, u, da, du);
    else if (kind_ == activation_kind::geglu) geglu_activation::backward(p, u, da, du);
    else if (kind_ == activation_kind::gelu_erf) gelu_erf_activation::backward(p, u, da, du);
    else gelu_activation::backward(p, u, da, du);
  }

  std::size_t columns;  ///< columns of W1 per output

 private:
  activation_kind kind_;
};

/// A feed-forward layer or a mixture of experts.
template <class Recipe>
class any_feed_forward {
 public:
  using compute = typename pass<Recipe>::compute;
  using memory = typename pass<Recipe>::memory;
  static constexpr bool has_experts = true;

  any_feed_forward(builder<Recipe>& build, const feed_forward_options& o) {
    if (o.router_name.empty()) dense_.emplace(build, o);
    else experts_.emplace(build, o);
  }

  [[nodiscard]] bool needs_input() const { return dense_ ? dense_->needs_input() : experts_->needs_input(); }
  void forward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<compute, memory> y, ops::result write_mode) const {
    if (dense_) dense_->forward(p, x, y, write_mode);
    else experts_->forward(p, x, y, write_mode);
  }
  void backward(pass<Recipe>& p, matrix_view<const compute, memory> x, matrix_view<const compute, memory> dy, matrix_view<compute, memory> dx,
                ops::result write_mode) const {
    if (dense_) dense_->backward(p, x, dy, dx, write_mode);
    else experts_->backward(p, x, dy, dx, write_mode);
  }

 private:
  std::optional<feed_forward<Recipe, any_activation>> dense_;
  std::optional<mixture_of_experts<Recipe, any_activation>> experts_;
};

/// Pre-norm block, or block with a normalized residual stream.
template <class Recipe>
class any_block : public normalized_residual_block<Recipe, any_norm<Recipe>, any_positions<Recipe>, any_feed_forward<Recipe>> {
  using normalized = normalized_residual_block<Recipe, any_norm<Recipe>, any_positions<Recipe>, any_feed_forward<Recipe>>;
  using pre_norm = decoder_block<Recipe, any_norm<Recipe>, any_positions<Recipe>, any_feed_forward<Recipe>>;

 public:
  using compute = typename pre_norm::compute;
  using memory = typename pre_norm::memory;
  using positions = typename pre_norm::positions;

  any_block(builder<Recipe>& build, const decoder_config& c, const decoder_names& names, std::size_t index);

  void forward(pass<Recipe>& p, const positions& at, matrix_view<compute, memory> x, matrix_view<compute, memory> y) const;
  /// d [n, hidden_size]: dy on entry, dx on return
  void backward(pass<Recipe>& p, const positions& at, matrix_view<const compute, memory> x, matrix_view<compute, memory> d) const;

 private:
  bool is_normalized_;
};

// Out of class: xtrain_add_library compiles the instantiation.

template <class Recipe>
any_block<Recipe>::any_block(builder<Recipe>& build, const decoder_config& c, const decoder_names& names, std::size_t index)
    : normalized(build, c, names, index), is_normalized_(c.family->block == block_kind::normalized_residual) {}

template <class Recipe>
void any_block<Recipe>::forward(pass<Recipe>& p, const positions& at, matrix_view<compute, memory> x, matrix_view<compute, memory> y) const {
  if (is_normalized_) normalized::forward(p, at, x, y);
  else pre_norm::forward(p, at, x, y);
}

template <class Recipe>
void any_block<Recipe>::backward(pass<Recipe>& p, const positions& at, matrix_view<const compute, memory> x, matrix_view<compute, memory> d) const {
  if (is_normalized_) normalized::backward(p, at, x, d);
  else pre_norm::backward(p, at, x, d);
}

}  // namespace xtrain
