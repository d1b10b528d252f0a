// What a training step on an H100 takes if every kernel reaches a given rate: operations and traffic come from a dry run of the step, rates from
// published measurements. Nothing is run.
//
//   roofline
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <string_view>
#include <vector>

#include <xtrain/models/qwen2.hpp>
#include <xtrain/plan/machines.hpp>
#include <xtrain/xtrain.hpp>

namespace {

using namespace xtrain;

struct run : defaults {
  using precision = bf16_mixed;
};

/// The rates of a design.
struct design {
  const char* name;
  double products, attention, attention_backward;  ///< FLOP/s
  double bytes_per_logit;                          ///< traffic of the head's logits and their gradients
  double bandwidth = 2.7e12;                       ///< bytes per second of kernels that are bound by memory: 90 % of a measured copy
  double launch = 1e-6;                            ///< seconds between kernels of a captured step
};
constexpr std::array<design, 3> designs{{
    {"own attention (mma.sync), fp32 logits", 650e12, 280e12, 170e12, 18},
    {"cuDNN's attention, fp32 logits", 680e12, 550e12, 400e12, 18},
    {"cuDNN's attention, bf16 logits", 700e12, 550e12, 400e12, 10},
}};

struct step {
  std::vector<kernel_count> kernels{};
  std::size_t tokens = 0, vocabulary = 0;
  double operations = 0;
  std::size_t launches = 0, bytes = 0;
};

double seconds_of(const kernel_count& kernel, const design& by, const step& of) {
  const double traffic = kernel.bytes / by.bandwidth, launches = static_cast<double>(kernel.runs) * by.launch;
  if (kernel.name == "matmul") return launches + std::max(kernel.operations / by.products, traffic);
  if (kernel.name == "attention") return launches + kernel.operations / by.attention;
  if (kernel.name == "attention_backward") return launches + kernel.operations / by.attention_backward;
  if (kernel.name == "linear_cross_entropy")
    return launches + kernel.operations / by.products + static_cast<double>(of.tokens * of.vocabulary) * by.bytes_per_logit / by.bandwidth;
  return launches + traffic;
}
double seconds_of(const design& by, const step& of) {
  double seconds = 0;
  for (const kernel_count& kernel : of.kernels) seconds += seconds_of(kernel, by, of);
  return seconds;
}
/// The rate of products at which a step reaches half of the peak; 0 if none does.
double products_for_half(design by, const step& of) {
  const double goal = of.operations / (0.5 * h100().bf16);
  double low = 1e12, high = 1e18;
  by.products = high;
  if (seconds_of(by, of) > goal) return 0;
  for (int i = 0; i < 60; ++i) {
    by.products = (low + high) / 2;
    (seconds_of(by, of) > goal ? low : high) = by.products;
  }
  return high;
}

template <class Model>
void show(const char* name, const typename Model::config_type& sizes, std::size_t batch, std::size_t length) {
  const auto planned = plan<trainer<Model>>(sizes, {}, {.max_steps = 1, .micro_batch_size = batch, .seq_length = length}, cpu_properties{132});
  step all{.kernels = {planned.record.kernels.begin(), planned.record.kernels.end()}, .tokens = batch * length, .vocabulary = sizes.vocab_size};
  for (const kernel_count& kernel : all.kernels) {
    all.launches += kernel.runs;
    if (kernel.name == "matmul" || kernel.name == "linear_cross_entropy" || kernel.name.starts_with("attention")) all.operations += kernel.operations;
  }
  std::sort(all.kernels.begin(), all.kernels.end(),
            [&](const auto& a, const auto& b) { return seconds_of(a, designs[0], all) > seconds_of(b, designs[0], all); });
  std::printf("\n%s, b %zu, t %zu: %.1f TFLOP, %zu launches\n\n| kernel | runs | TFLOP | GB |", name, batch, length, all.operations * 1e-12,
              all.launches);
  for (const design& by : designs) std::printf(" %s, ms |", by.name);
  std::printf("\n|---|---|---|---|---|---|---|\n");
  double rest[designs.size()] = {};
  for (const kernel_count& kernel : all.kernels) {
    const bool is_shown = seconds_of(kernel, designs[0], all) > 0.5e-3;
    if (is_shown)
      std::printf("| %.*s | %zu | %.1f | %.1f |", static_cast<int>(kernel.name.size()), kernel.name.data(), static_cast<std::size_t>(kernel.runs),
                  kernel.operations * 1e-12, kernel.bytes * 1e-9);
    for (std::size_t i = 0; i < designs.size(); ++i) {
      const double seconds = seconds_of(kernel, designs[i], all);
      if (is_shown) std::printf(" %.1f |", seconds * 1e3);
      else rest[i] += seconds;
    }
    if (is_shown) std::printf("\n");
  }
  std::printf("| others | | | |");
  for (const double seconds : rest) std::printf(" %.1f |", seconds * 1e3);
  const auto line = [&](const char* what, const char* format, auto value) {
    std::printf("\n| %s | | | |", what);
    for (const design& by : designs) std::printf(format, value(by));
  };
  line("step, ms", " %.0f |", [&](const design& by) { return seconds_of(by, all) * 1e3; });
  line("tokens/s", " %.0f |", [&](const design& by) { return static_cast<double>(all.tokens) / seconds_of(by, all); });
  line("MFU, %", " %.1f |", [&](const design& by) { return 100 * all.operations / (seconds_of(by, all) * h100().bf16); });
  line("products for 50 %, TFLOP/s", " %.0f |", [&](const design& by) { return products_for_half(by, all) * 1e-12; });
  std::printf("\n");
}

}  // namespace

int main() {
  try {
    show<qwen2<run>>("Qwen2.5-1.5B",
                     {.vocab_size = 151936,
                      .hidden_size = 1536,
                      .num_layers = 28,
                      .num_heads = 12,
                      .num_kv_heads = 2,
                      .head_dim = 128,
                      .intermediate_size = 8960,
                      .max_position_embeddings = 2048,
                      .tie_word_embeddings = true},
                     8, 2048);
    show<gpt2<run>>("GPT-2 124M", {.vocab_size = 50257, .hidden_size = 768, .num_layers = 12, .num_heads = 12, .max_position_embeddings = 1024}, 64,
                    1024);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "roofline: %s\n", problem.what());
    return 1;
  }
}
