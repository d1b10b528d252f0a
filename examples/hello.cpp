// Trains a small LLaMA on your text, or on this very file, and generates text.
//
//   hello [text file]
#include <cstdio>
#include <string_view>

#include <xtrain/xtrain.hpp>

struct my_run : xtrain::defaults {  // device = cpu, precision = fp32, parallel = single, optimizer = adamw, ...
  using precision = xtrain::bf16_mixed;
};

int main(int argc, char** argv) try {
  if (argc > 1 && std::string_view(argv[1]) == "--help") return std::puts("usage: hello [text file]"), 0;
  const auto tokenizer = xtrain::byte_tokenizer();
  const auto data = xtrain::text_dataset(argc > 1 ? argv[1] : __FILE__, tokenizer);

  xtrain::llama<my_run> model({.vocab_size = tokenizer.vocab_size(), .hidden_size = 128, .num_layers = 2, .num_heads = 4, .max_position_embeddings = 128});
  xtrain::trainer trainer(model, {.max_steps = 100, .micro_batch_size = 8, .learning_rate = 3e-3, .warmup_ratio = 0.1});
  xtrain::progress_bar bar;
  trainer.attach(bar);
  trainer.fit(data);

  xtrain::generator generator(model);
  const auto prompt = tokenizer.encode("// Trains ");
  const auto text = generator.generate(prompt, {.max_new_tokens = 100, .sampling = {.temperature = 0}});
  std::printf("loss %.3f\n%s%s\n", trainer.evaluate(data).loss, tokenizer.decode(prompt).c_str(), tokenizer.decode(text).c_str());
} catch (const std::exception& problem) {
  std::fprintf(stderr, "hello: %s\n", problem.what());
  return 1;
}
