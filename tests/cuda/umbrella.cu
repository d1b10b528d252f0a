// Every umbrella header and a trainer, as nvcc's front end reads them.
#include <cstdio>
#include <string>

#include <xtrain/io.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/text.hpp>
#include <xtrain/testing/conformance.hpp>
#include <xtrain/testing/isolated.hpp>
#include <xtrain/xtrain.hpp>

struct my_run : xtrain::defaults {
  using precision = xtrain::bf16_mixed;
};

int main(int argc, char** argv) {
  const auto tokenizer = xtrain::byte_tokenizer();
  const auto data = xtrain::text_dataset(argc > 1 ? argv[1] : __FILE__, tokenizer);
  xtrain::llama<my_run> model({.vocab_size = tokenizer.vocab_size(), .hidden_size = 32, .num_layers = 2, .num_heads = 4, .max_position_embeddings = 64});
  xtrain::trainer trainer(model, {.max_steps = 10, .micro_batch_size = 2, .learning_rate = 3e-3});
  trainer.fit(data);
  std::printf("loss %.4f\n", trainer.evaluate(data).loss);
  if (argc > 2) xtrain::merge_adapter(model, std::string(argv[2]));
}
