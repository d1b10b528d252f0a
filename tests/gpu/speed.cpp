// Full training steps in bf16 with fp32 master weights, clipping and AdamW: tokens per second, operations per second, planned and used memory.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/models/qwen2.hpp>
#include <xtrain/xtrain.hpp>

#include "gpu.hpp"

namespace gpu {

namespace {

using namespace xtrain;

struct run : defaults {
  using device = cuda;
  using precision = bf16_mixed;
};
struct stopwatch final : observer {
  using observer::on;
  void on(const step_done& done) override {
    seconds.push_back(done.seconds);
    losses.push_back(done.loss);
  }
  std::vector<double> seconds{}, losses{};
};

const decoder_config gpt2_124m{.vocab_size = 50257, .hidden_size = 768, .num_layers = 12, .num_heads = 12, .max_position_embeddings = 1024};
const decoder_config gpt2_small{.vocab_size = 257, .hidden_size = 32, .num_layers = 2, .num_heads = 2, .max_position_embeddings = 64};

decoder_config qwen(std::size_t width, std::size_t inner, std::size_t layers, std::size_t heads) {
  return {.vocab_size = 151936,
          .hidden_size = width,
          .num_layers = layers,
          .num_heads = heads,
          .num_kv_heads = 2,
          .intermediate_size = inner,
          .max_position_embeddings = 4096};
}

template <class Model>
int steps(const char* name, const decoder_config& sizes, std::size_t rows, std::size_t context, std::size_t count, bool captures) {
  const auto on = open();
  Model model(sizes, on);
  trainer trainer(model, {.max_steps = count + 2, .micro_batch_size = rows, .seq_length = context, .learning_rate = 1e-4, .capture_steps = captures});
  dataset data("random tokens", sequence_layout::stream);
  std::vector<token> tokens(rows * context * (count + 3) + 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<token>(random_word({.seed = 1}, i) % sizes.vocab_size);
  data.add(tokens);
  data.finish();
  stopwatch watch;
  trainer.attach(watch);
  trainer.fit(data);

  std::vector<double> seconds(watch.seconds.begin() + 2, watch.seconds.end());  // kernels are loaded in the first steps
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2], in_step = static_cast<double>(rows * context);
  const auto gibibytes = [](std::size_t bytes) { return static_cast<double>(bytes) / 1073741824.0; };
  std::fputs(on.products_text().c_str(), stdout);
  std::fputs(on.attention_text().c_str(), stdout);
  std::printf("xtrain   %-12s %-8s B%zu T%zu  %10.0f tokens/s (%.0f to %.0f)  %6.1f TFLOP/s  %.3f ms  planned %.2f GiB  taken %.2f GiB  loss %.3f to %.3f\n",
              name, captures ? "captured" : "plain", rows, context, in_step / median, in_step / seconds.back(), in_step / seconds.front(),
              1e-12 * trainer.plan().record.operations() / median, 1e3 * median, gibibytes(trainer.plan().total()), gibibytes(on.memory().total_peak),
              watch.losses.front(), watch.losses.back());
  return 0;
}

}  // namespace

int measure(int argc, char** argv) {
  const std::string_view model = argc > 2 ? argv[2] : "";
  const std::size_t rows = number(argc, argv, 3, 4), context = number(argc, argv, 4, 64), count = std::max<std::size_t>(2, number(argc, argv, 5, 4));
  const bool captures = argc > 6 && std::string_view(argv[6]) == "captured";
  if (model == "gpt2_small") return steps<gpt2<run>>("gpt2_small", gpt2_small, rows, context, count, captures);
  if (model == "gpt2_124m") return steps<gpt2<run>>("gpt2_124m", gpt2_124m, rows, context, count, captures);
  if (model == "qwen_500m") return steps<qwen2<run>>("qwen_500m", qwen(896, 4864, 24, 14), rows, context, count, captures);
  if (model == "qwen_1500m") return steps<qwen2<run>>("qwen_1500m", qwen(1536, 8960, 28, 12), rows, context, count, captures);
  std::fputs("gpu: speed must be of gpt2_small, gpt2_124m, qwen_500m or qwen_1500m\n", stderr);
  return 2;
}

}  // namespace gpu
