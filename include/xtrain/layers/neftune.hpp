// NEFTune: noise on embeddings in training. [Jain et al. 2023, "NEFTune: Noisy embeddings improve instruction finetuning", algorithm 1]
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <xtrain/core/random.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/ops/elementwise.hpp>

namespace xtrain::detail {

/// y += alpha / sqrt(L · hidden_size) · u, u uniform in [−1, 1), L: a sequence's tokens without padding, as in the paper (transformers: padded length). u is a
/// function of (seed, step, sequence in the global batch, token, channel), not of rank or micro-batch. The backward is the identity.
///   y  [this rank's tokens in the sequence-parallel region, hidden_size] added to
template <class Recipe>
void add_neftune_noise(pass<Recipe>& p, matrix_view<typename pass<Recipe>::compute, typename pass<Recipe>::memory> y) {
  constexpr std::uint64_t elements_per_sequence = std::uint64_t{1} << 36;
  const auto& batch = p.batch;
  const std::size_t c = y.shape(1), first = p.first_sequence_parallel_token(), last = first + y.shape(0);
  auto ranges = batch.own_ranges;
  if (!batch.is_part()) ranges = {context_shard::range{0, batch.t}, context_shard::range{}};
  std::size_t begin = 0;  // in this rank's tokens
  for (std::size_t sequence = 0; sequence < batch.b; ++sequence) {
    const std::size_t length = batch.tokens_of(sequence);
    for (const auto& range : ranges) {
      const std::size_t real = std::min(range.begin + range.count, length), count = real > range.begin ? real - range.begin : 0;
      const std::size_t from = std::max(begin, first), to = std::min(begin + count, last);
      if (from < to) {
        random_site at = p.random;
        at.site = site_of_name("neftune_noise");
        at.first = (batch.first_sequence + sequence) * elements_per_sequence + (range.begin + from - begin) * c;
        ops::uniform_noise(p, p.internal.neftune_noise_alpha / std::sqrt(static_cast<double>(length * c)), at, y.rows(from - first, to - from));
      }
      begin += range.count;
    }
  }
}

/// Whether a host batch has a sequence with more than one sample, padding not counted.
[[nodiscard]] inline bool has_packed_sequences(const batch_view& batch) {
  for (std::size_t i = 0; i < batch.starts.size(); ++i) {
    if (batch.starts[i] <= 0) continue;
    if (batch.targets.empty() || batch.targets[i] >= 0 || (i % batch.t > 0 && batch.starts[i - 1] > 0 && batch.starts[i - 1] != batch.starts[i])) return true;
  }
  return false;
}

}  // namespace xtrain::detail
