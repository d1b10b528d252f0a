// A training run small enough to be repeated hundreds of times.
#pragma once

#include <vector>

#include <xtrain/io.hpp>

namespace small_run {

struct recipe : xtrain::defaults {};
using model = xtrain::llama<recipe>;

inline xtrain::decoder_config sizes() {
  return {.vocab_size = 31,
          .hidden_size = 16,
          .num_layers = 2,
          .num_heads = 2,
          .intermediate_size = 24,
          .max_position_embeddings = 12,
          .residual_dropout = 0.1};
}
inline xtrain::training_config<xtrain::adamw> settings(std::size_t steps) {
  return {.max_steps = steps, .micro_batch_size = 2, .learning_rate = 1e-2, .lr_schedule = xtrain::lr_schedule_kind::constant};
}
inline const xtrain::dataset& data() {
  static const xtrain::dataset all = [] {
    xtrain::dataset d("numbers", xtrain::sequence_layout::stream);
    std::vector<xtrain::token> tokens;
    for (xtrain::token i = 0; i < 400; ++i) tokens.push_back(i * i % 31);
    d.add(tokens);
    d.finish();
    return d;
  }();
  return all;
}

}  // namespace small_run
