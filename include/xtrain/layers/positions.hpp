// How a model knows where a token stands: a learned vector per place, added to the embedding, a rotation of queries and keys, or
// scores that fall with distance.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/rope.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/tensor/tensor.hpp>

namespace xtrain {

/// Attention that does not look at positions itself: they are in the embedding.
template <class Recipe>
class no_positions {
 public:
  using device = typename Recipe::device;
  no_positions(const typename device::context&, typename device::stream&, const position_options&) {}

  template <class Matrix>
  void turn(pass<Recipe>&, std::size_t, const Matrix&, ops::turn) const {}
  [[nodiscard]] vector_view<const float, typename device::memory> slopes() const { return {}; }
};

/// Rotary position embedding, half-rotated: element i of the turned part of a head turns with element i + rotated/2.
///                                                                         [Su et al. 2021]
template <class Recipe>
class rotary_positions {
 public:
  using device = typename Recipe::device;

  rotary_positions(const typename device::context& context, typename device::stream& stream, const position_options& o)
      : head_dim_(o.head_dim), cos_sin_pd_(context, {o.context, o.turned()}, memory_role::weights) {
    const std::vector<float> table = rope_table(o);  // until the copy is made
    copy_to_device(stream, cos_sin_pd_.span(), table);
    stream.synchronize();
  }

  /// Turns the first `heads` heads of every row by the row's position.
  template <class Matrix>
  void turn(pass<Recipe>& p, std::size_t heads, const Matrix& x, ops::turn direction) const {
    ops::rotary(p, p.batch.positions_n, cos_sin_pd_.view(), heads, head_dim_, x, direction);
  }
  [[nodiscard]] vector_view<const float, typename device::memory> slopes() const { return {}; }

 private:
  std::size_t head_dim_;
  tensor<float, 2, device> cos_sin_pd_;
};

/// Attention with linear biases: a key's score falls with its distance, in each head by a slope of its own.  [Press et al. 2022]
template <class Recipe>
class alibi_positions {
 public:
  using device = typename Recipe::device;

  alibi_positions(const typename device::context& context, typename device::stream& stream, const position_options& o)
      : slope_h_(context, {o.heads}, memory_role::weights) {
    const std::vector<float> slopes = alibi_slopes(o.heads);  // until the copy is made
    copy_to_device(stream, slope_h_.span(), slopes);
    stream.synchronize();
  }

  template <class Matrix>
  void turn(pass<Recipe>&, std::size_t, const Matrix&, ops::turn) const {}
  [[nodiscard]] vector_view<const float, typename device::memory> slopes() const { return slope_h_.view(); }

 private:
  tensor<float, 1, device> slope_h_;
};

/// One or the other, as a model's sizes say.
template <class Recipe>
class rotary_or_alibi_positions {
 public:
  using device = typename Recipe::device;

  rotary_or_alibi_positions(const typename device::context& context, typename device::stream& stream, const position_options& o) {
    if (o.linear_biases) alibi_.emplace(context, stream, o);
    else rotary_.emplace(context, stream, o);
  }

  template <class Matrix>
  void turn(pass<Recipe>& p, std::size_t heads, const Matrix& x, ops::turn direction) const {
    if (rotary_) rotary_->turn(p, heads, x, direction);
  }
  [[nodiscard]] vector_view<const float, typename device::memory> slopes() const {
    return alibi_ ? alibi_->slopes() : vector_view<const float, typename device::memory>{};
  }

 private:
  std::optional<rotary_positions<Recipe>> rotary_;
  std::optional<alibi_positions<Recipe>> alibi_;
};

}  // namespace xtrain
