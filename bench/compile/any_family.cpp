// Compile time of a program that loads a decoder of any family with its tokenizer, trains it on instructions and saves it, for a user.
#include <xtrain/models/families.hpp>
#include <xtrain/text.hpp>

struct my_run : xtrain::defaults {
  using precision = xtrain::bf16_mixed;
};

int main(int, char** argv) {
  auto model = xtrain::load_model<my_run>(argv[1]);
  const auto tokenizer = xtrain::load_tokenizer(argv[1]);
  const auto data = xtrain::instruct_dataset(argv[2], tokenizer);
  xtrain::trainer trainer(model, {.epochs = 3, .micro_batch_size = 4, .learning_rate = 2e-5});
  trainer.fit(data);
  trainer.save(argv[3]);
}
