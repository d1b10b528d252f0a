// Training steps: tokens per second, and planned memory compared with the memory that the process took.
//
//   train_step fp32|bf16_mixed|bf16_gradients|lora|recompute_full [MICRO_BATCH_SIZE] [SEQ_LENGTH] [STEPS]     GPT-2 124M
//   train_step llama_lora                                         [MICRO_BATCH_SIZE] [SEQ_LENGTH] [STEPS]     LLaMA 1.1B, its adapters alone
//   train_step small                                              [MICRO_BATCH_SIZE] [SEQ_LENGTH] [STEPS]     GPT-2 of one million parameters, fp32
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <xtrain/xtrain.hpp>

#include "processors.hpp"

namespace {

struct fp32_run : xtrain::defaults {};
struct bf16_run : xtrain::defaults {
  using precision = xtrain::bf16_mixed;
};
struct bf16_gradients_run : xtrain::defaults {
  using precision = xtrain::bf16_gradients;
};
struct lora_run : bf16_run {
  using adapter = xtrain::lora;
};
struct recompute_run : xtrain::defaults {
  using recompute = xtrain::recompute_full;
};

struct stopwatch final : xtrain::observer {
  using observer::on;
  void on(const xtrain::step_done& done) override { seconds.push_back(done.seconds); }
  std::vector<double> seconds{};
};

double resident_mebibytes() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_maxrss) / 1024.0;
}

const xtrain::decoder_config gpt2_124m{.vocab_size = 50257, .hidden_size = 768, .num_layers = 12, .num_heads = 12, .max_position_embeddings = 1024};
const xtrain::decoder_config gpt2_1m{.vocab_size = 1024, .hidden_size = 128, .num_layers = 4, .num_heads = 4, .max_position_embeddings = 256};
/// TinyLlama's sizes: the smallest commonly fine-tuned LLaMA.
const xtrain::decoder_config llama_1100m{.vocab_size = 32000,
                                         .hidden_size = 2048,
                                         .num_layers = 22,
                                         .num_heads = 32,
                                         .num_kv_heads = 4,
                                         .intermediate_size = 5632,
                                         .max_position_embeddings = 2048,
                                         .tie_word_embeddings = false};

template <class Model>
int run(const char* name, const xtrain::decoder_config& sizes, std::size_t rows, std::size_t context, std::size_t steps) {
  const double before = resident_mebibytes();
  typename Model::options options;
  if constexpr (Model::recipe::adapter::freezes_weights) options.adapter = {.rank = 16, .alpha = 32};
  Model model(sizes, {}, options);
  xtrain::trainer trainer(model, {.max_steps = steps, .micro_batch_size = rows, .seq_length = context, .learning_rate = 1e-4});

  xtrain::dataset data("random tokens", xtrain::sequence_layout::stream);
  std::vector<xtrain::token> tokens(rows * context * (steps + 1) + 1);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<xtrain::token>(xtrain::random_word({.seed = 1}, i) % sizes.vocab_size);
  data.add(tokens);
  data.finish();
  stopwatch watch;
  trainer.attach(watch);
  const processor_watch processors;
  trainer.fit(data);
  const double used = processors.used();

  std::vector<double> seconds = watch.seconds;
  seconds.erase(seconds.begin());  // the first step touches memory for the first time
  std::sort(seconds.begin(), seconds.end());
  const double tokens_per_step = static_cast<double>(rows * context), median = seconds[seconds.size() / 2];
  const double planned = static_cast<double>(trainer.plan().total()) / 1048576.0, taken = resident_mebibytes() - before;
  std::printf(
      "%-15s %zu threads on %.2f processors, B%zu T%-5zu %8.1f tokens/s (%.1f to %.1f)   planned %7.1f MiB   taken %7.1f MiB   %+.1f %%   in all %7.1f MiB\n",
      name, xtrain::cpu::context().properties().threads, used, rows, context, tokens_per_step / median, tokens_per_step / seconds.back(),
      tokens_per_step / seconds.front(), planned, taken, 100.0 * (taken / planned - 1.0), resident_mebibytes());
  return 0;
}

std::size_t number(int argc, char** argv, int index, std::size_t otherwise) {
  return argc > index ? static_cast<std::size_t>(std::strtoull(argv[index], nullptr, 10)) : otherwise;
}

}  // namespace

int main(int argc, char** argv) try {
  const processors_report processors;
  const std::string_view which = argc > 1 ? argv[1] : "fp32";
  const bool large = which == "llama_lora";
  const std::size_t rows = number(argc, argv, 2, large ? 1 : 4), context = number(argc, argv, 3, large ? 512 : 64),
                    steps = std::max<std::size_t>(2, number(argc, argv, 4, large ? 4 : 7));
  if (which == "fp32") return run<xtrain::gpt2<fp32_run>>("fp32", gpt2_124m, rows, context, steps);
  if (which == "bf16_mixed") return run<xtrain::gpt2<bf16_run>>("bf16_mixed", gpt2_124m, rows, context, steps);
  if (which == "bf16_gradients") return run<xtrain::gpt2<bf16_gradients_run>>("bf16_gradients", gpt2_124m, rows, context, steps);
  if (which == "lora") return run<xtrain::gpt2<lora_run>>("lora on bf16", gpt2_124m, rows, context, steps);
  if (which == "recompute_full") return run<xtrain::gpt2<recompute_run>>("recompute_full", gpt2_124m, rows, context, steps);
  if (which == "small") return run<xtrain::gpt2<fp32_run>>("small", gpt2_1m, rows, context, steps);
  if (large) return run<xtrain::llama<lora_run>>("llama_lora", llama_1100m, rows, context, steps);
  std::fprintf(stderr, "train_step: must be fp32, bf16_mixed, bf16_gradients, lora, recompute_full, llama_lora or small; given '%s'\n", argv[1]);
  return 2;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "train_step: %s\n", problem.what());
  return 1;
}
