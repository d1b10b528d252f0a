// A custom trainer with the policies passed to xtrain_add_trainer.
//
//   own_trainer <text file> <model folder>
#include <cstdio>
#include <type_traits>

#include "recipe.hpp"

static_assert(std::is_same_v<recipe::optimizer, mine::plain_descent>);
static_assert(std::is_same_v<recipe::precision, xtrain::bf16_mixed>);
static_assert(std::is_same_v<recipe::recompute, xtrain::recompute_selective<xtrain::norm_outputs, xtrain::attention_outputs>>);
static_assert(std::is_same_v<recipe::device, xtrain::defaults::device>);

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  const auto tokenizer = xtrain::load_tokenizer(argv[2]);
  const auto data = xtrain::text_dataset(argv[1], tokenizer);
  auto model = xtrain::llama<recipe>::from_pretrained(argv[2]);
  xtrain::trainer trainer(model, {.max_steps = 5, .micro_batch_size = 2, .learning_rate = 1e-1});
  const double before = trainer.evaluate(data).loss;
  trainer.fit(data);
  const double after = trainer.evaluate(data).loss;
  std::printf("%s: loss %.4f, then %.4f\n", recipe::optimizer::name.data(), before, after);
  return after < before ? 0 : 1;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "own_trainer: %s\n", problem.what());
  return 1;
}
