// Runs that every accelerator repeats: two small decoders, their data and losses.
#pragma once

#include <cstddef>
#include <vector>

#include <xtrain/xtrain.hpp>

namespace device_runs {

inline const xtrain::dataset& data() {
  static const xtrain::dataset all = [] {
    xtrain::dataset d("numbers", xtrain::sequence_layout::stream);
    std::vector<xtrain::token> tokens;
    for (xtrain::token i = 0; i < 400; ++i) tokens.push_back(i * i % 61);
    d.add(tokens);
    d.finish();
    return d;
  }();
  return all;
}

inline const xtrain::decoder_config llama_sizes{.vocab_size = 61,
                                                .hidden_size = 32,
                                                .num_layers = 2,
                                                .num_heads = 4,
                                                .num_kv_heads = 2,
                                                .intermediate_size = 48,
                                                .max_position_embeddings = 24};
inline const xtrain::decoder_config gpt2_sizes{.vocab_size = 61, .hidden_size = 32, .num_layers = 2, .num_heads = 4, .max_position_embeddings = 24};

/// The losses of some steps, and of an evaluation.
template <class Model>
std::vector<double> losses(Model& model, bool captures, std::size_t steps = 4) {
  xtrain::trainer trainer(
      model, {.max_steps = steps, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .learning_rate = 3e-3, .capture_steps = captures});
  xtrain::history seen;
  trainer.attach(seen);
  trainer.fit(data());
  std::vector<double> all(seen.losses().begin(), seen.losses().end());
  all.push_back(trainer.evaluate(data()).loss);
  return all;
}

}  // namespace device_runs
