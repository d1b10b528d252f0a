// A training run small enough to be repeated hundreds of times.
#pragma once

#include <vector>

#include <xtrain/io.hpp>

namespace small_run {

struct recipe : xtrain::defaults {};
using model = xtrain::llama<recipe>;

inline xtrain::decoder_config sizes() {
  return {.vocabulary = 31, .width = 16, .layers = 2, .heads = 2, .feed_forward = 24, .context = 12, .residual_dropout = 0.1};
}
inline xtrain::training_config<xtrain::adamw> settings(std::size_t steps) {
  return {.steps = steps, .batch = 2, .learning_rate = 1e-2, .shape = xtrain::schedule::constant};
}
inline const xtrain::dataset& data() {
  static const xtrain::dataset all = [] {
    xtrain::dataset d("numbers", xtrain::row_layout::stream);
    std::vector<xtrain::token> tokens;
    for (xtrain::token i = 0; i < 400; ++i) tokens.push_back(i * i % 31);
    d.add(tokens);
    d.finish();
    return d;
  }();
  return all;
}

}  // namespace small_run
