// Text generation: prefill and decode speed in tokens per second, compared with the peak of the processor and its
// memory. The weights are random; the generated text does not matter.
//
//   decode [gpt2|llama] [fp32|bf16] [PROMPT] [NEW]        GPT-2 124M (default), or a LLaMA of 1.1B
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <vector>

#include <xtrain/device/cpu/peak.hpp>
#include <xtrain/xtrain.hpp>

namespace {

struct fp32_run : xtrain::defaults {};
struct bf16_run : xtrain::defaults {
  using precision = xtrain::bf16_pure;
};

const xtrain::decoder_config gpt2_124m{.vocab_size = 50257, .hidden_size = 768, .num_layers = 12, .num_heads = 12, .max_position_embeddings = 1024};
const xtrain::decoder_config llama_1100m{.vocab_size = 32000,
                                         .hidden_size = 2048,
                                         .num_layers = 22,
                                         .num_heads = 32,
                                         .num_kv_heads = 4,
                                         .intermediate_size = 5632,
                                         .max_position_embeddings = 2048,
                                         .tie_word_embeddings = false};

template <class Model>
int run(const char* name, const xtrain::decoder_config& sizes, std::size_t prompt_tokens, std::size_t new_tokens) {
  using compute = typename Model::compute;
  Model model(sizes);
  xtrain::generator writer(model, 1, prompt_tokens + new_tokens);
  std::vector<xtrain::token> prompt(prompt_tokens);
  for (std::size_t i = 0; i < prompt_tokens; ++i)
    prompt[i] = static_cast<xtrain::token>(xtrain::random_word({.seed = 1}, i) % sizes.vocab_size);
  const xtrain::cpu::context device;
  const double peak = xtrain::measure_peak<compute>(device);
  std::vector<double> prefill, decode, bandwidth, memory;
  for (int round = 0; round < 5; ++round) {
    memory.push_back(xtrain::measure_read_bandwidth(device));
    (void)writer.generate(prompt, {.max_new_tokens = new_tokens});
    const auto& s = writer.statistics();
    prefill.push_back(static_cast<double>(s.prompt_tokens) / s.prompt_seconds);
    decode.push_back(s.tokens_per_second());
    bandwidth.push_back(s.bandwidth());
  }
  const auto median = [](std::vector<double> of) {
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
  };
  // products with the blocks' weights for each token; with the head's only for the last
  const double table = static_cast<double>(sizes.vocab_size * sizes.hidden_size * (sizes.tie_word_embeddings ? 1 : 2));
  const double operations = 2.0 * (static_cast<double>(model.parameters().count()) - table) * median(prefill);
  std::printf(
      "%-11s prompt of %zu: %8.1f tokens/s (%.0f %% of the peak)   then %7.1f tokens/s, %5.1f GB/s (%.0f %% of reading memory, %.1f GB/s)\n",
      name, prompt_tokens, median(prefill), 100.0 * operations / peak, median(decode), median(bandwidth) * 1e-9,
      100.0 * median(bandwidth) / median(memory), median(memory) * 1e-9);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string_view family = argc > 1 ? argv[1] : "gpt2", precision = argc > 2 ? argv[2] : "fp32";
  const std::size_t prompt = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 512,
                    fresh = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 32;
  if (family == "gpt2" && precision == "fp32") return run<xtrain::gpt2<fp32_run>>("gpt2 fp32", gpt2_124m, prompt, fresh);
  if (family == "gpt2" && precision == "bf16") return run<xtrain::gpt2<bf16_run>>("gpt2 bf16", gpt2_124m, prompt, fresh);
  if (family == "llama" && precision == "fp32") return run<xtrain::llama<fp32_run>>("llama fp32", llama_1100m, prompt, fresh);
  if (family == "llama" && precision == "bf16") return run<xtrain::llama<bf16_run>>("llama bf16", llama_1100m, prompt, fresh);
  std::fprintf(stderr, "decode: must be gpt2 or llama, then fp32 or bf16; given '%s %s'\n", argv[1], argc > 2 ? argv[2] : "");
  return 2;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "decode: %s\n", problem.what());
  return 1;
}
