// Predicted step times (plan/predict.hpp) against published ones. Nothing is run.
//
//   predictions
#include <cstdio>
#include <string>
#include <utility>

#include <xtrain/models/bloom.hpp>
#include <xtrain/models/qwen2.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/plan/machines.hpp>
#include <xtrain/plan/measure_machine.hpp>
#include <xtrain/plan/search.hpp>
#include <xtrain/xtrain.hpp>

namespace {

using namespace xtrain;

struct keeps : defaults {
  using precision = bf16_mixed;
};
struct recomputes : keeps {
  using recompute = recompute_full;
};
using in_turn = strategies<pipeline<one_forward_one_backward, parallel<data_parallel, tensor_parallel>>>;
using with_sequence = strategies<pipeline<one_forward_one_backward, parallel<data_parallel, sequence_parallel>>>;
using with_sequence_in_chunks = strategies<pipeline<interleaved, parallel<data_parallel, sequence_parallel>>>;
using copies = strategies<undivided<parallel<zero<1>, tensor_parallel>>>;
using states_divided = strategies<parallel<zero<1>, tensor_parallel>>;
using weights_divided = strategies<parallel<zero<3>, tensor_parallel>>;

decoder_config gpt(std::size_t layers, std::size_t width, std::size_t heads, std::size_t vocabulary, std::size_t context) {
  return {.vocab_size = vocabulary, .hidden_size = width, .num_layers = layers, .num_heads = heads, .max_position_embeddings = context};
}
decoder_config untied_llama(decoder_config sizes) {
  sizes.tie_word_embeddings = false;
  return sizes;
}

/// A reference's only mesh, for any memory.
template <class Model, class Strategies>
found_plan predicted(const decoder_config& sizes, const search_settings& settings, machine on) {
  on.memory = std::size_t{1} << 50;
  const auto found = search_plans<Model, Strategies>(sizes, settings, on, cpu::properties{8});
  require<config_error>(!found.empty(), "predictions: the mesh must be possible");
  return found.front();
}

void row(const char* what, const std::string& published, const std::string& here, const found_plan& plan) {
  std::printf("| %s | %s | %s | %.1f %% | %.1f %% | %.1f %% | %s |\n", what, published.c_str(), here.c_str(), 100 * plan.time.layers / plan.time.seconds,
              100 * plan.time.bubble / plan.time.seconds, 100 * plan.time.exchange / plan.time.seconds, bytes_text(plan.bytes).c_str());
}
void row(const char* what, const std::string& published, const found_plan& plan) {
  row(what, concat(published, " tokens/s"), concat(fixed(plan.tokens_per_second, 0), " tokens/s"), plan);
}

/// Megatron's fraction of peak counts the full square of attention.                          [Narayanan et al. 2021, section 5.1]
void megatron_row(const char* what, const char* published, const decoder_config& c, const found_plan& plan) {
  const auto l = static_cast<double>(c.num_layers), h = static_cast<double>(c.hidden_size),
             s = static_cast<double>(c.max_position_embeddings), v = static_cast<double>(c.vocab_size);
  const double operations = 72 * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
  row(what, concat(published, " % of peak"), concat(fixed(100 * operations * plan.tokens_per_second / a100().bf16, 1), " % of peak"), plan);
}

void megatron() {
  const auto on = a100();
  const decoder_config b22 = gpt(48, 6144, 64, 51'200, 2048), b175 = gpt(96, 12'288, 96, 51'200, 2048), b530 = gpt(105, 20'480, 128, 51'200, 2048),
                       t1 = gpt(128, 25'600, 160, 51'200, 2048);
  megatron_row(
      "Megatron 22B, 8 A100: tensor 8 + sequence, 1 x 4 sequences", "41.5", b22,
      predicted<gpt2<keeps>, with_sequence>(
          b22,
          {.devices = 8, .global_batch_size = 4, .micro_batch_sizes = {4}, .tensor_parallel_sizes = {8}, .pipeline_parallel_sizes = {1}},
          on));
  megatron_row("Megatron 175B, 64 A100: tensor 8 + sequence, 8 stages x 3, 64 x 1", "51.4", b175,
               predicted<gpt2<keeps>, with_sequence_in_chunks>(b175,
                                                               {.devices = 64,
                                                                .global_batch_size = 64,
                                                                .micro_batch_sizes = {1},
                                                                .tensor_parallel_sizes = {8},
                                                                .pipeline_parallel_sizes = {8},
                                                                .chunks = {3}},
                                                               on));
  megatron_row("Megatron 530B, 280 A100: tensor 8 + sequence, 35 stages x 3, 280 x 1", "56.0", b530,
               predicted<gpt2<keeps>, with_sequence_in_chunks>(b530,
                                                               {.devices = 280,
                                                                .global_batch_size = 280,
                                                                .micro_batch_sizes = {1},
                                                                .tensor_parallel_sizes = {8},
                                                                .pipeline_parallel_sizes = {35},
                                                                .chunks = {3}},
                                                               on));
  megatron_row("Megatron 1T, 512 A100: tensor 8 + sequence, 64 stages, 512 x 1", "56.3", t1,
               predicted<gpt2<keeps>, with_sequence>(t1,
                                                     {.devices = 512,
                                                      .global_batch_size = 512,
                                                      .micro_batch_sizes = {1},
                                                      .tensor_parallel_sizes = {8},
                                                      .pipeline_parallel_sizes = {64}},
                                                     on));
}

void torchtitan() {
  const decoder_config b8 = untied_llama({.vocab_size = 128'256,
                                          .hidden_size = 4096,
                                          .num_layers = 32,
                                          .num_heads = 32,
                                          .num_kv_heads = 8,
                                          .intermediate_size = 14'336,
                                          .max_position_embeddings = 8192});
  row("torchtitan 8B, 8 H100 at 500 W: FSDP, 1 sequence", "6667",
      predicted<llama<keeps>, weights_divided>(b8, {.devices = 8, .global_batch_size = 8, .micro_batch_sizes = {1}, .tensor_parallel_sizes = {1}}, h100()));
}

void llm_c_and_llmq() {
  row("llm.c GPT-2 124M, 8 A100: 64 sequences", "218000",
      predicted<gpt2<keeps>, copies>(gpt(12, 768, 12, 50'304, 1024),
                                     {.devices = 8, .global_batch_size = 512, .micro_batch_sizes = {64}, .tensor_parallel_sizes = {1}},
                                     a100()));
  row("llm.c GPT-2 1558M, 8 H100: ZeRO-1, 8 x 16", "46800 to 48500",
      predicted<gpt2<keeps>, states_divided>(
          gpt(48, 1600, 25, 50'304, 1024),
          {.devices = 8, .global_batch_size = 1024, .micro_batch_sizes = {16}, .tensor_parallel_sizes = {1}}, h100()));
  const decoder_config half{.vocab_size = 151'936,
                            .hidden_size = 896,
                            .num_layers = 24,
                            .num_heads = 14,
                            .num_kv_heads = 2,
                            .intermediate_size = 4864,
                            .max_position_embeddings = 1024,
                            .attention_bias = true};
  const decoder_config seven = untied_llama({.vocab_size = 152'064,
                                             .hidden_size = 3584,
                                             .num_layers = 28,
                                             .num_heads = 28,
                                             .num_kv_heads = 4,
                                             .intermediate_size = 18'944,
                                             .max_position_embeddings = 1024,
                                             .attention_bias = true});
  const auto one = [](std::size_t batch) {
    return search_settings{
        .devices = 1, .global_batch_size = 512, .micro_batch_sizes = {batch}, .tensor_parallel_sizes = {1}, .pipeline_parallel_sizes = {1}};
  };
  row("LLM.Q Qwen2.5-0.5B, 1 H100", "149000", predicted<qwen2<keeps>, in_turn>(half, one(16), h100()));
  row("LLM.Q Qwen2.5-7B, 1 H100", "14000", predicted<qwen2<keeps>, in_turn>(seven, one(4), h100()));
}

void ascend() {
  const decoder_config b7 = untied_llama({.vocab_size = 32'000,
                                          .hidden_size = 4096,
                                          .num_layers = 32,
                                          .num_heads = 32,
                                          .intermediate_size = 11'008,
                                          .max_position_embeddings = 2048});
  const decoder_config b65 = untied_llama({.vocab_size = 32'000,
                                           .hidden_size = 8192,
                                           .num_layers = 80,
                                           .num_heads = 64,
                                           .intermediate_size = 22'016,
                                           .max_position_embeddings = 2048});
  const decoder_config b176{.vocab_size = 250'880, .hidden_size = 14'336, .num_layers = 70, .num_heads = 112, .max_position_embeddings = 2048};
  row("AscendSpeed LLaMA-7B, 8 NPUs: tensor 8, 8 x 4", "2862",
      predicted<llama<keeps>, in_turn>(
          b7,
          {.devices = 8, .global_batch_size = 32, .micro_batch_sizes = {4}, .tensor_parallel_sizes = {8}, .pipeline_parallel_sizes = {1}},
          ascend_910b()));
  row("AscendSpeed LLaMA-65B, 4 x 8 NPUs: tensor 8, 4 stages, 32 x 2", "234",
      predicted<llama<recomputes>, in_turn>(
          b65,
          {.devices = 32, .global_batch_size = 64, .micro_batch_sizes = {2}, .tensor_parallel_sizes = {8}, .pipeline_parallel_sizes = {4}},
          ascend_910b()));
  row("AscendSpeed Bloom-176B, 12 x 8 NPUs: tensor 8, 12 stages, 256 x 2", "100",
      predicted<bloom<recomputes>, in_turn>(b176,
                                            {.devices = 96,
                                             .global_batch_size = 512,
                                             .micro_batch_sizes = {2},
                                             .tensor_parallel_sizes = {8},
                                             .pipeline_parallel_sizes = {12}},
                                            ascend_910b()));
}

/// This machine's processor: train_step measures the same configuration.
template <class Recipe>
void here(const char* what, const machine& on, std::size_t batch, std::size_t context) {
  const decoder_config sizes = gpt(12, 768, 12, 50'257, 1024);
  const dry_run step = plan<trainer<gpt2<Recipe>>>(sizes, {}, {.max_steps = 1, .micro_batch_size = batch, .seq_length = context}, cpu::context().properties());
  const predicted_step time = predict(step, {}, on, dtype_traits<typename Recipe::precision::compute>::name);
  std::printf("%s B%zu T%zu: %.0f tokens/s\n", what, batch, context, static_cast<double>(batch * context) / time.seconds);
}

}  // namespace

int main() {
  std::printf("| run | published | predicted | layers | bubble | exchange | memory here |\n|---|---|---|---|---|---|---|\n");
  megatron();
  torchtitan();
  llm_c_and_llmq();
  ascend();
  const machine measured = measure_machine(cpu::context());
  std::printf("\nthis processor: %sFLOP/s in fp32, %sFLOP/s in bf16, %s/s copied\n", count_text(measured.fp32).c_str(), count_text(measured.bf16).c_str(),
              bytes_text(measured.memory_bandwidth).c_str());
  here<defaults>("GPT-2 124M, fp32,", measured, 4, 64);
  here<defaults>("GPT-2 124M, fp32,", measured, 4, 256);
  here<keeps>("GPT-2 124M, bf16_mixed,", measured, 4, 64);
  here<keeps>("GPT-2 124M, bf16_mixed,", measured, 4, 256);
  return 0;
}
