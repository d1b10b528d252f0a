// How a model knows where a token stands: a learned vector per place, added to the embedding, or a rotation of queries and
// keys.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/embedding.hpp>
#include <xtrain/tensor/tensor.hpp>

namespace xtrain {

/// Attention that does not look at positions itself: they are in the embedding.
template <class Recipe>
class no_positions {
 public:
  using device = typename Recipe::device;
  no_positions(const typename device::context&, typename device::stream&, std::size_t, std::size_t, double) {}

  template <class Matrix>
  void turn(pass<Recipe>&, std::size_t, const Matrix&, ops::turn) const {}
};

/// Rotary position embedding, half-rotated.                               [Su et al. 2021]
/// The angles position · base^(−2i/d) are multiplied in fp32, as the models' training code did it: weights expect the
/// rounding of large positions to be the same.
template <class Recipe>
class rotary_positions {
 public:
  using device = typename Recipe::device;

  rotary_positions(const typename device::context& context, typename device::stream& stream, std::size_t positions, std::size_t head_dim,
                   double base)
      : cos_sin_pd_(context, {positions, head_dim}, memory_role::weights) {
    const std::size_t half = head_dim / 2;
    std::vector<float> table(positions * head_dim);
    for (std::size_t i = 0; i < half; ++i) {
      const auto frequency = static_cast<float>(1.0 / std::pow(base, 2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
      for (std::size_t at = 0; at < positions; ++at) {
        const float angle = static_cast<float>(at) * frequency;
        table[at * head_dim + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
        table[at * head_dim + half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
      }
    }
    copy_to_device(stream, cos_sin_pd_.span(), table);
    stream.synchronize();
  }

  /// Turns the first `heads` heads of every row by the row's position.
  template <class Matrix>
  void turn(pass<Recipe>& p, std::size_t heads, const Matrix& x, ops::turn direction) const {
    ops::rotary(p, p.batch.positions_n, cos_sin_pd_.view(), heads, x, direction);
  }

 private:
  tensor<float, 2, device> cos_sin_pd_;
};

}  // namespace xtrain
