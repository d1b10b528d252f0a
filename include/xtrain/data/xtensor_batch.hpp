// A micro-batch of xtensor arrays.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/tensor/xtensor_face.hpp>

namespace xtrain {

/// The fields of a host_batch that batches of tokens do not need: a base class of such a batch.
struct tokens_only {
  static constexpr std::span<const token> ends{}, segments{}, labels{}, teacher_tokens{};
  static constexpr std::span<const float> token_weights{}, teacher_log_probs{}, old_log_probs{}, reference_token_log_probs{}, old_values{}, returns{};
  static constexpr std::span<const double> reference_log_probs{}, advantages{};
};

/// Views two arrays [batch size, sequence length], which must outlive it. Negative targets are ignored by the loss. No copy if the device reads host memory.
///
///     xtrain::array<xtrain::token, 2> tokens = ..., targets = ...;
///     const xtrain::xtensor_batch rows(tokens, targets);
///     trainer.step(std::span(&rows, 1), learning_rate);
class xtensor_batch : public tokens_only {
 public:
  /// throws shape_error unless both arrays have the same shape
  xtensor_batch(const array<token, 2>& token_bt, const array<token, 2>& target_bt, std::size_t first = 0)
      : b(token_bt.shape()[0]), t(token_bt.shape()[1]), tokens(token_bt.data(), token_bt.size()),
        targets(target_bt.data(), target_bt.size()), first_sequence(first) {
    require_shape("xtensor_batch: targets", shape_of_rank<2>{target_bt.shape()[0], target_bt.shape()[1]}, {b, t});
    positions.resize(b * t);
    for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<token>(i % t);
    for (const token target : targets) target_count += target >= 0 ? 1 : 0;
    token_count = b * t;
  }

  // the arrays must outlive it
  xtensor_batch(const array<token, 2>&&, const array<token, 2>&, std::size_t = 0) = delete;
  xtensor_batch(const array<token, 2>&, const array<token, 2>&&, std::size_t = 0) = delete;
  xtensor_batch(const array<token, 2>&&, const array<token, 2>&&, std::size_t = 0) = delete;

  std::size_t b, t;
  std::span<const token> tokens;
  std::span<const token> targets;
  std::vector<token> positions;
  std::vector<token> starts;  ///< empty: a sample per sequence
  std::size_t target_count = 0;
  std::size_t token_count = 0;
  std::size_t first_sequence;
};

}  // namespace xtrain
