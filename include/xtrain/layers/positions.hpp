#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/rope.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/tensor/tensor.hpp>

namespace xtrain {

/// Positions are in the embedding.
template <class Recipe>
class no_positions {
 public:
  using device = typename Recipe::device;
  no_positions(const typename device::context&, typename device::stream&, const position_options&) {}

  template <class Matrix>
  void turn(pass<Recipe>&, std::size_t, const Matrix&, ops::turn) const {}
  [[nodiscard]] vector_view<const float, typename device::memory> slopes() const { return {}; }
};

/// Rotary position embedding (RoPE): element i of a head's rotated part is paired with i + rotated/2. [Su et al. 2021]
template <class Recipe>
class rotary_positions {
 public:
  using device = typename Recipe::device;

  rotary_positions(const typename device::context& context, typename device::stream& stream, const position_options& o)
      : head_dim_(o.head_dim), cos_sin_pd_(context, {o.max_position_embeddings, o.turned()}, memory_role::weights) {
    if (is_dry_run(context)) return;                 // not read
    const std::vector<float> table = rope_table(o);
    copy_to_device(stream, cos_sin_pd_.span(), table);
    stream.synchronize();
  }

  /// Rotates the first `heads` heads of every token.
  template <class Matrix>
  void turn(pass<Recipe>& p, std::size_t heads, const Matrix& x, ops::turn direction) const {
    turn_by(p, p.batch.positions_n, heads, head_dim_, x, direction);
  }
  /// With given positions; heads are `head_dim` elements apart.
  template <class Matrix>
  void turn_by(pass<Recipe>& p, vector_view<const token, typename device::memory> position_n, std::size_t heads, std::size_t head_dim,
               const Matrix& x, ops::turn direction) const {
    ops::rotary(p, position_n, cos_sin_pd_.view(), heads, head_dim, x, direction);
  }
  [[nodiscard]] vector_view<const float, typename device::memory> slopes() const { return {}; }

 private:
  std::size_t head_dim_;
  tensor<float, 2, device> cos_sin_pd_;
};

/// 2D rotary embedding: the first half of a head is rotated by a token's position, the second by its position in the generated span.
/// [Du et al. 2022, section 2.1.2]
template <class Recipe>
class rotary_positions_2d {
 public:
  using device = typename Recipe::device;

  rotary_positions_2d(const typename device::context& context, typename device::stream& stream, const position_options& o)
      : half_(context, stream, halved(o)), half_dim_(o.head_dim / 2) {}

  template <class Matrix>
  void turn(pass<Recipe>& p, std::size_t heads, const Matrix& x, ops::turn direction) const {
    half_.turn_by(p, p.batch.positions_n, heads, 2 * half_dim_, x, direction);
    half_.turn_by(p, p.batch.withins_n, heads, 2 * half_dim_, x.columns(half_dim_, x.shape(1) - half_dim_), direction);
  }
  [[nodiscard]] vector_view<const float, typename device::memory> slopes() const { return {}; }

 private:
  /// One more position: the span's start at 1.
  static position_options halved(position_options o) {
    require<config_error>(o.first == 0, "rotary_positions_2d: positions must start at 0, because they follow from where the generated span begins; "
                          "with the adapter they start at ", o.first);
    ++o.max_position_embeddings;
    o.head_dim /= 2;
    return o;
  }

  rotary_positions<Recipe> half_;
  std::size_t half_dim_;
};

/// ALiBi: scores decrease with distance, with a slope per head. [Press et al. 2022]
template <class Recipe>
class alibi_positions {
 public:
  using device = typename Recipe::device;

  alibi_positions(const typename device::context& context, typename device::stream& stream, const position_options& o)
      : slope_h_(context, {o.num_heads}, memory_role::weights) {
    const std::vector<float> slopes = alibi_slopes(o.num_heads);
    copy_to_device(stream, slope_h_.span(), slopes);
    stream.synchronize();
  }

  template <class Matrix>
  void turn(pass<Recipe>&, std::size_t, const Matrix&, ops::turn) const {}
  [[nodiscard]] vector_view<const float, typename device::memory> slopes() const { return slope_h_.view(); }

 private:
  tensor<float, 1, device> slope_h_;
};

/// Chosen by the model config.
template <class Recipe>
class rotary_or_alibi_positions {
 public:
  using device = typename Recipe::device;

  rotary_or_alibi_positions(const typename device::context& context, typename device::stream& stream, const position_options& o) {
    if (o.alibi) alibi_.emplace(context, stream, o);
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
