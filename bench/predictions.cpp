// Predicted step times compared with published ones: plan/predict.hpp applied to runs that others have measured. Nothing is run.
//
//   predictions
#include <cstdio>
#include <string>
#include <utility>

#include <xtrain/models/bloom.hpp>
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
  return {.vocabulary = vocabulary, .width = width, .layers = layers, .heads = heads, .context = context};
}
decoder_config untied_llama(decoder_config sizes) {
  sizes.tied_head = false;
  return sizes;
}

/// The one mesh that a reference gives, whatever memory it needs.
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
  const auto l = static_cast<double>(c.layers), h = static_cast<double>(c.width), s = static_cast<double>(c.context), v = static_cast<double>(c.vocabulary);
  const double operations = 72 * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
  row(what, concat(published, " % of peak"), concat(fixed(100 * operations * plan.tokens_per_second / a100().bf16, 1), " % of peak"), plan);
}

void megatron() {
  const auto on = a100();
  const decoder_config b22 = gpt(48, 6144, 64, 51'200, 2048), b175 = gpt(96, 12'288, 96, 51'200, 2048), b530 = gpt(105, 20'480, 128, 51'200, 2048),
                       t1 = gpt(128, 25'600, 160, 51'200, 2048);
  megatron_row("Megatron 22B, 8 A100: tensor 8 + sequence, 1 x 4 rows", "41.5", b22,
               predicted<gpt2<keeps>, with_sequence>(b22, {.devices = 8, .rows = 4, .batches = {4}, .tensors = {8}, .pipelines = {1}}, on));
  megatron_row("Megatron 175B, 64 A100: tensor 8 + sequence, 8 stages x 3, 64 x 1", "51.4", b175,
               predicted<gpt2<keeps>, with_sequence_in_chunks>(b175, {.devices = 64, .rows = 64, .batches = {1}, .tensors = {8}, .pipelines = {8}, .chunks = {3}}, on));
  megatron_row("Megatron 530B, 280 A100: tensor 8 + sequence, 35 stages x 3, 280 x 1", "56.0", b530,
               predicted<gpt2<keeps>, with_sequence_in_chunks>(b530, {.devices = 280, .rows = 280, .batches = {1}, .tensors = {8}, .pipelines = {35}, .chunks = {3}}, on));
  megatron_row("Megatron 1T, 512 A100: tensor 8 + sequence, 64 stages, 512 x 1", "56.3", t1,
               predicted<gpt2<keeps>, with_sequence>(t1, {.devices = 512, .rows = 512, .batches = {1}, .tensors = {8}, .pipelines = {64}}, on));
}

void torchtitan() {
  const decoder_config b8 = untied_llama({.vocabulary = 128'256, .width = 4096, .layers = 32, .heads = 32, .kv_heads = 8, .feed_forward = 14'336, .context = 8192});
  row("torchtitan 8B, 8 H100 at 500 W: FSDP, 1 row", "6667",
      predicted<llama<keeps>, weights_divided>(b8, {.devices = 8, .rows = 8, .batches = {1}, .tensors = {1}}, h100()));
}

void llm_c_and_llmq() {
  row("llm.c GPT-2 124M, 8 A100: 64 rows", "218000",
      predicted<gpt2<keeps>, copies>(gpt(12, 768, 12, 50'304, 1024), {.devices = 8, .rows = 512, .batches = {64}, .tensors = {1}}, a100()));
  row("llm.c GPT-2 1558M, 8 H100: ZeRO-1, 8 x 16", "46800 to 48500",
      predicted<gpt2<keeps>, states_divided>(gpt(48, 1600, 25, 50'304, 1024), {.devices = 8, .rows = 1024, .batches = {16}, .tensors = {1}}, h100()));
  const decoder_config half{.vocabulary = 151'936, .width = 896, .layers = 24, .heads = 14, .kv_heads = 2, .feed_forward = 4864, .context = 1024, .attention_bias = true};
  const decoder_config seven = untied_llama({.vocabulary = 152'064, .width = 3584, .layers = 28, .heads = 28, .kv_heads = 4, .feed_forward = 18'944, .context = 1024, .attention_bias = true});
  const auto one = [](std::size_t batch) { return search_settings{.devices = 1, .rows = 512, .batches = {batch}, .tensors = {1}, .pipelines = {1}}; };
  row("LLM.Q Qwen2.5-0.5B, 1 H100", "149000", predicted<llama<keeps>, in_turn>(half, one(16), h100()));
  row("LLM.Q Qwen2.5-7B, 1 H100", "14000", predicted<llama<keeps>, in_turn>(seven, one(4), h100()));
}

void ascend() {
  const decoder_config b7 = untied_llama({.vocabulary = 32'000, .width = 4096, .layers = 32, .heads = 32, .feed_forward = 11'008, .context = 2048});
  const decoder_config b65 = untied_llama({.vocabulary = 32'000, .width = 8192, .layers = 80, .heads = 64, .feed_forward = 22'016, .context = 2048});
  const decoder_config b176{.vocabulary = 250'880, .width = 14'336, .layers = 70, .heads = 112, .context = 2048};
  row("AscendSpeed LLaMA-7B, 8 NPUs: tensor 8, 8 x 4", "2862",
      predicted<llama<keeps>, in_turn>(b7, {.devices = 8, .rows = 32, .batches = {4}, .tensors = {8}, .pipelines = {1}}, ascend_910b()));
  row("AscendSpeed LLaMA-65B, 4 x 8 NPUs: tensor 8, 4 stages, 32 x 2", "234",
      predicted<llama<recomputes>, in_turn>(b65, {.devices = 32, .rows = 64, .batches = {2}, .tensors = {8}, .pipelines = {4}}, ascend_910b()));
  row("AscendSpeed Bloom-176B, 12 x 8 NPUs: tensor 8, 12 stages, 256 x 2", "100",
      predicted<bloom<recomputes>, in_turn>(b176, {.devices = 96, .rows = 512, .batches = {2}, .tensors = {8}, .pipelines = {12}}, ascend_910b()));
}

/// This machine's processor: train_step measures the same configuration.
template <class Recipe>
void here(const char* what, const machine& on, std::size_t batch, std::size_t context) {
  const decoder_config sizes = gpt(12, 768, 12, 50'257, 1024);
  const rehearsal step = plan<trainer<gpt2<Recipe>>>(sizes, {}, {.steps = 1, .batch = batch, .context = context}, cpu::context().properties());
  const predicted_step time = predict(step, {}, on, number_traits<typename Recipe::precision::compute>::name);
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
