// A small decoder with adapters, and data to train it on.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <xtrain/data/dataset.hpp>
#include <xtrain/models/config.hpp>

namespace small_decoder {

inline xtrain::decoder_config sizes(double initializer_range) {
  return {.vocab_size = 29,
          .hidden_size = 16,
          .num_layers = 2,
          .num_heads = 2,
          .num_kv_heads = 1,
          .intermediate_size = 24,
          .max_position_embeddings = 12,
          .tie_word_embeddings = false,
          .initializer_range = initializer_range};
}

/// Eight samples of 6 to 10 tokens.
inline const xtrain::dataset& data() {
  static const xtrain::dataset all = [] {
    xtrain::dataset d("numbers", xtrain::sequence_layout::separate);
    for (std::size_t s = 0; s < 8; ++s) {
      std::vector<xtrain::token> tokens;
      for (std::size_t i = 0; i < 6 + s % 5; ++i) tokens.push_back(static_cast<xtrain::token>((s * 11 + i * i * 5) % 29));
      d.add(tokens);
    }
    d.finish();
    return d;
  }();
  return all;
}

/// The largest difference of elements.
template <class Numbers>
double difference(const Numbers& mine, const std::vector<double>& expected) {
  REQUIRE(mine.size() == expected.size());
  double most = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) most = std::max(most, std::abs(static_cast<double>(mine[i]) - expected[i]));
  return most;
}

}  // namespace small_decoder
