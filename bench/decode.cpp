// Text generation: prefill and decode speed in tokens per second, compared with the peak of the processor and its
// memory. The weights are random; the generated text does not matter.
//
//   decode [gpt2|llama] [fp32|bf16] [PROMPT] [NEW] [BATCH]        GPT-2 124M (default), or a LLaMA of 1.1B
//   decode make FOLDER [VOCABULARY]                               writes a LLaMA of 125M (with 32000 tokens), fp32
//   decode FOLDER fp32|bf16 [PROMPT] [NEW] [BATCH] [TEMPERATURE] [TOP_P]
//                                                                 the LLaMA of a folder: speed and tokens of one batch, for peers/compare
//
// BATCH: also batches of 2, 4, ... up to as many sequences, and a batch whose sequences end at different times, with and without the next prompts in their
// place.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/device/cpu/peak.hpp>
#include <xtrain/io.hpp>

#include "processors.hpp"

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

const xtrain::decoder_config llama_125m{.vocab_size = 32000,
                                        .hidden_size = 768,
                                        .num_layers = 12,
                                        .num_heads = 12,
                                        .num_kv_heads = 4,
                                        .intermediate_size = 2048,
                                        .max_position_embeddings = 2048,
                                        .tie_word_embeddings = false,
                                        .initializer_range = 0.05};  // with 0.02 it repeats one token

[[nodiscard]] std::vector<xtrain::token> prompt_of(std::size_t tokens, std::size_t vocab_size) {
  std::vector<xtrain::token> prompt(tokens);
  for (std::size_t i = 0; i < tokens; ++i) prompt[i] = static_cast<xtrain::token>(xtrain::random_word({.seed = 1}, i) % vocab_size);
  return prompt;
}

[[nodiscard]] double median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

/// Also printed by peers/decode_llamacpp.cpp.
template <class Model>
int run_folder(const char* dtype, const std::string& folder, std::size_t prompt_tokens, std::size_t new_tokens, std::size_t batch,
               const xtrain::sampling_config& sampling) {
  auto model = Model::from_pretrained(folder);
  xtrain::generator writer(model, batch, prompt_tokens + new_tokens);
  std::vector<std::vector<xtrain::token>> prompts(batch, prompt_of(prompt_tokens, model.config().vocab_size)), texts;
  for (std::size_t i = 1; i < batch; ++i) prompts[i][0] = static_cast<xtrain::token>(i);
  std::vector<double> prefill, decode;
  for (int round = 0; round < 4; ++round) {  // the first one warms up
    texts = writer.generate(prompts, {.max_new_tokens = new_tokens, .sampling = sampling});
    if (round == 0) continue;
    const auto& s = writer.statistics();
    prefill.push_back(static_cast<double>(s.prompt_tokens) / s.prompt_seconds);
    decode.push_back(s.tokens_per_second());
  }
  std::printf("xtrain %s batch %zu, %zu threads: prefill %.1f tokens/s, decode %.1f tokens/s, tokens", dtype, batch,
              xtrain::cpu::context().properties().threads, median(prefill), median(decode));
  for (const auto& text : texts)
    for (const xtrain::token t : text) std::printf(" %d", static_cast<int>(t));
  std::printf("\n");
  return 0;
}

template <class Model>
int run(const char* name, const xtrain::decoder_config& sizes, std::size_t prompt_tokens, std::size_t new_tokens, std::size_t max_batch) {
  using compute = typename Model::compute;
  Model model(sizes);
  xtrain::generator writer(model, 1, prompt_tokens + new_tokens);
  const std::vector<xtrain::token> prompt = prompt_of(prompt_tokens, sizes.vocab_size);
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
  // the blocks' weights for each token; the head's only for the last
  const double table = static_cast<double>(sizes.vocab_size * sizes.hidden_size * (sizes.tie_word_embeddings ? 1 : 2));
  const double operations = 2.0 * (static_cast<double>(model.parameters().count()) - table) * median(prefill);
  std::printf(
      "%-11s %zu threads, prompt of %zu: %8.1f tokens/s (%.0f %% of the peak)   then %7.1f tokens/s, %5.1f GB/s (%.0f %% of reading memory, %.1f GB/s)\n",
      name, device.properties().threads, prompt_tokens, median(prefill), 100.0 * operations / peak, median(decode), median(bandwidth) * 1e-9,
      100.0 * median(bandwidth) / median(memory), median(memory) * 1e-9);
  if (max_batch < 2) return 0;
  const auto prompts_of = [&](std::size_t count) {
    std::vector<std::vector<xtrain::token>> all(count, prompt);
    for (std::size_t i = 0; i < count; ++i) all[i][0] = static_cast<xtrain::token>(i % sizes.vocab_size);
    return all;
  };
  for (std::size_t batch = 2; batch <= max_batch; batch *= 2) {
    xtrain::generator several(model, batch, prompt_tokens + new_tokens);
    std::vector<double> tokens, against_one, bound;
    for (int round = 0; round < 3; ++round) {  // compared runs alternate
      const double memory_now = xtrain::measure_read_bandwidth(device);
      (void)writer.generate(prompt, {.max_new_tokens = new_tokens});
      (void)several.generate(prompts_of(batch), {.max_new_tokens = new_tokens});
      tokens.push_back(several.statistics().tokens_per_second());
      against_one.push_back(tokens.back() / writer.statistics().tokens_per_second());
      const auto& s = several.statistics();
      const double steps = static_cast<double>(s.decode_steps) / static_cast<double>(batch);
      bound.push_back(tokens.back() / (memory_now / (s.decode_bytes / steps) * static_cast<double>(batch)));
    }
    std::printf("%-11s batch of %2zu: %7.1f tokens/s, %.2f times one sequence, %.0f %% of what reading weights and cache allows\n", name, batch, median(tokens),
                median(against_one), 100.0 * median(bound));
  }
  // four times as many prompts as slots; answers of 1/4 to 4/4 of the length
  xtrain::generator several(model, max_batch, prompt_tokens + new_tokens);
  const auto prompts = prompts_of(4 * max_batch);
  std::vector<double> ratio;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::size_t> length(prompts.size(), 0);
    std::size_t first = 0;
    const xtrain::generate_config how{.max_new_tokens = new_tokens, .on_token = [&](std::size_t i, xtrain::token) {
                                        return ++length[first + i] < new_tokens * (1 + (first + i) * 7 % 4) / 4;
                                      }};
    double one_after_another = 0;
    for (; first < prompts.size(); first += max_batch) {
      (void)several.generate(std::span(prompts).subspan(first, max_batch), how);
      one_after_another += several.statistics().decode_seconds;
    }
    first = 0;
    std::fill(length.begin(), length.end(), std::size_t{0});
    (void)several.generate(prompts, how);
    ratio.push_back(one_after_another / several.statistics().decode_seconds);
  }
  std::printf("%-11s %zu prompts, answers of different lengths: decoding is %.2f times as fast in one call as in batches of %zu\n", name, prompts.size(),
              median(ratio), max_batch);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const processors_report processors;
  if (argc >= 3 && std::string_view(argv[1]) == "make") {
    xtrain::decoder_config sizes = llama_125m;
    if (argc > 3) sizes.vocab_size = std::strtoull(argv[3], nullptr, 10);
    save_pretrained(xtrain::llama<fp32_run>(sizes), argv[2]);
    return 0;
  }
  const std::string_view family = argc > 1 ? argv[1] : "gpt2", precision = argc > 2 ? argv[2] : "fp32";
  const std::size_t prompt = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 512,
                    fresh = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 32, batch = argc > 5 ? std::strtoull(argv[5], nullptr, 10) : 1;
  const xtrain::sampling_config sampling{.temperature = argc > 6 ? std::strtod(argv[6], nullptr) : 0.0,
                                         .top_p = argc > 7 ? std::strtod(argv[7], nullptr) : 1.0};
  if (family == "gpt2" && precision == "fp32") return run<xtrain::gpt2<fp32_run>>("gpt2 fp32", gpt2_124m, prompt, fresh, batch);
  if (family == "gpt2" && precision == "bf16") return run<xtrain::gpt2<bf16_run>>("gpt2 bf16", gpt2_124m, prompt, fresh, batch);
  if (family == "llama" && precision == "fp32") return run<xtrain::llama<fp32_run>>("llama fp32", llama_1100m, prompt, fresh, batch);
  if (family == "llama" && precision == "bf16") return run<xtrain::llama<bf16_run>>("llama bf16", llama_1100m, prompt, fresh, batch);
  if (std::filesystem::is_directory(family) && precision == "fp32") return run_folder<xtrain::llama<fp32_run>>("fp32", argv[1], prompt, fresh, batch, sampling);
  if (std::filesystem::is_directory(family) && precision == "bf16") return run_folder<xtrain::llama<bf16_run>>("bf16", argv[1], prompt, fresh, batch, sampling);
  std::fprintf(stderr, "decode: must be gpt2, llama or a folder, then fp32 or bf16; given '%s %s'\n", argv[1], argc > 2 ? argv[2] : "");
  return 2;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "decode: %s\n", problem.what());
  return 1;
}
