// Trains a tiny model for a few steps, saves it, and reads it again.
//
//   train_and_save <text file> <folder>
#include <cstdio>

#include <xtrain/io.hpp>
#include <xtrain/text.hpp>

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  using model = xtrain::llama<xtrain::defaults>;
  const auto tokenizer = xtrain::byte_tokenizer();
  const auto data = xtrain::text_dataset(argv[1], tokenizer);
  model small({.vocab_size = tokenizer.vocab_size(),
               .hidden_size = 16,
               .num_layers = 2,
               .num_heads = 2,
               .intermediate_size = 24,
               .max_position_embeddings = 16});
  xtrain::trainer trainer(small, {.max_steps = 5, .micro_batch_size = 2, .learning_rate = 1e-2});
  const double before = trainer.evaluate(data).loss;
  trainer.fit(data);
  const double after = trainer.evaluate(data).loss;
  trainer.save(argv[2]);
  tokenizer.save(argv[2]);

  auto again = model::from_pretrained(argv[2]);
  xtrain::trainer reader(again, {.max_steps = 1, .micro_batch_size = 2});
  const double read = reader.evaluate(data).loss;
  std::printf("loss %.4f, then %.4f, read again %.4f\n", before, after, read);
  return after < before && read == after ? 0 : 1;  // fp32 is saved as it is, so the same values are summed
} catch (const std::exception& problem) {
  std::fprintf(stderr, "train_and_save: %s\n", problem.what());
  return 1;
}
