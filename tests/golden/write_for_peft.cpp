// Writes what check_peft.py checks with transformers and peft: small models trained for a few steps and saved, adapters trained
// beside them and saved, and for each the logits that we compute.
//
//   write_for_peft FOLDER
//
// makes, for each family, FOLDER/<family> (a model), and for each adapter on it FOLDER/<family>_<adapter> and
// FOLDER/<family>_<adapter>_merged (the model with the adapter added to its weights), and in each of them ours.safetensors with
// 'tokens' [batch size, sequence length] and 'logits' [batch size, sequence length, vocab_size], both in fp32.
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/io.hpp>
#include <xtrain/models/bloom.hpp>
#include <xtrain/models/qwen2.hpp>

namespace {

struct plain_recipe : xtrain::defaults {};
struct lora_recipe : xtrain::defaults {
  using adapter = xtrain::lora;
};

struct prefix_recipe : xtrain::defaults {
  using adapter = xtrain::prefix_tuning;
};

constexpr std::size_t vocabulary = 61;

xtrain::dataset numbers(std::size_t seed) {
  xtrain::dataset all("numbers", xtrain::sequence_layout::stream);
  std::vector<xtrain::token> tokens;
  for (std::size_t i = 0; i < 500; ++i) tokens.push_back(static_cast<xtrain::token>((i * i + seed * i + seed) % vocabulary));
  all.add(tokens);
  all.finish();
  return all;
}

template <class Model>
void train(Model& model, std::size_t steps, std::size_t seed) {
  const xtrain::dataset data = numbers(seed);
  xtrain::trainer trainer(model, {.max_steps = steps, .micro_batch_size = 4, .learning_rate = 1e-2});
  trainer.fit(data);
}

xtrain::tensor_to_write to_write(std::string name, std::vector<std::size_t> shape, std::vector<float> values) {
  return {.name = std::move(name),
          .dtype = "F32",
          .shape = std::move(shape),
          .bytes = values.size() * sizeof(float),
          .produce = [values](const std::function<void(const void*, std::size_t)>& sink) {
            sink(values.data(), values.size() * sizeof(float));
          }};
}

/// Tokens and our logits of them.
template <class Model>
void write_ours(Model& model, const std::string& folder) {
  constexpr std::size_t b = 3, t = 21;
  xtrain::array<xtrain::token, 2> tokens(xtrain::shape_of_rank<2>{b, t});
  for (std::size_t i = 0; i < b * t; ++i) tokens.data()[i] = static_cast<xtrain::token>((i * i * 7 + 3 * i + 5) % vocabulary);
  const auto logits_btv = xtrain::logits(model, tokens);
  std::vector<xtrain::tensor_to_write> all;
  all.push_back(to_write("tokens", {b, t}, std::vector<float>(tokens.begin(), tokens.end())));
  all.push_back(to_write("logits", {b, t, vocabulary}, std::vector<float>(logits_btv.begin(), logits_btv.end())));
  xtrain::write_safetensors(folder + "/ours.safetensors", std::move(all));
}

struct named_adapter {
  std::string name;
  xtrain::lora::config settings;
  bool merges = true;
};

template <template <class> class Family>
void write_family(const std::string& out, const xtrain::decoder_config& sizes, const std::vector<named_adapter>& adapters) {
  using plain = Family<plain_recipe>;
  const std::string base = out + "/" + plain::family::name;
  {
    plain model(sizes);
    train(model, 20, 1);
    save_pretrained(model, base);
    write_ours(model, base);
  }
  for (const named_adapter& adapter : adapters) {
    const std::string folder = base + "_" + adapter.name;
    auto model = Family<lora_recipe>::from_pretrained(base, {}, {.adapter = adapter.settings});
    train(model, 20, 2);
    save_pretrained(model, folder, {.base_model = base});  // a path: peft must not look a name up elsewhere
    write_ours(model, folder);
    if (!adapter.merges) continue;
    auto merged = plain::from_pretrained(base);
    merge_adapter(merged, folder);
    save_pretrained(merged, folder + "_merged");
    write_ours(merged, folder + "_merged");
  }
}

/// A prefix in front of a model that write_family has written.
template <template <class> class Family>
void write_prefix(const std::string& out) {
  const std::string base = out + "/" + Family<plain_recipe>::family::name, folder = base + "_prefix";
  auto model = Family<prefix_recipe>::from_pretrained(base, {}, {.adapter = {.length = 5}});
  train(model, 20, 2);
  save_pretrained(model, folder, {.base_model = base});
  write_ours(model, folder);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_for_peft FOLDER\n");
    return 2;
  }
  try {
    write_family<xtrain::gpt2>(
        argv[1],
        {.vocab_size = vocabulary,
         .hidden_size = 24,
         .num_layers = 2,
         .num_heads = 3,
         .intermediate_size = 40,
         .max_position_embeddings = 37,
         .bos = 1,
         .eos = {2}},
        {{"lora", {.rank = 3, .alpha = 12, .dropout = 0.1, .targets = {"c_attn", "c_fc"}, .modules_to_save = {"ln_f"}}},
         {"dora",
          {.rank = 3, .alpha = 12, .dropout = 0.1, .targets = {"c_attn", "mlp.c_proj"}, .dora = true, .bias = xtrain::trained_biases::all}},
         {"embeddings", {.rank = 3, .alpha = 12, .targets = {"wte", "wpe", "c_fc"}}, false}});  // the head is tied to wte
    write_family<xtrain::llama>(
        argv[1],
        {.vocab_size = vocabulary,
         .hidden_size = 32,
         .num_layers = 2,
         .num_heads = 4,
         .num_kv_heads = 2,
         .intermediate_size = 44,
         .max_position_embeddings = 40,
         .rope_theta = 500.0,
         .tie_word_embeddings = false,
         .bos = 1,
         .eos = {2, 3}},
        {{"lora", {.rank = 3, .alpha = 12, .dropout = 0.1, .targets = {"q_proj", "v_proj", "down_proj"}, .modules_to_save = {"lm_head"}}},
         {"pattern",
          {.rank = 3,
           .alpha = 12,
           .modules_to_save = {"norm"},
           .target_pattern = R"(model\.layers\.\d+\.(self_attn\.[qkv]|mlp\.(up|down))_proj)",
           .exclude = {"0.mlp.up_proj"},
           .rank_pattern = {{R"(layers\.1\..*_proj)", 5}},
           .alpha_pattern = {{"k_proj", 7.0}},
           .rank_stabilised = true}},
         {"embeddings", {.rank = 3, .alpha = 12, .targets = {"embed_tokens", "o_proj"}}},
         {"all_linear", {.rank = 2, .alpha = 4, .target_pattern = "all-linear", .exclude_pattern = ".*[kv]_proj", .dora = true}}});
    write_family<xtrain::qwen2>(
        argv[1],
        {.vocab_size = vocabulary,
         .hidden_size = 24,
         .num_layers = 2,
         .num_heads = 4,
         .num_kv_heads = 2,
         .intermediate_size = 40,
         .max_position_embeddings = 40,
         .tie_word_embeddings = true,
         .bos = 1,
         .eos = {2}},
        {{"rich",
          {.rank = 3,
           .alpha = 12,
           .dropout = 0.1,
           .targets = {"q_proj", "v_proj", "down_proj"},
           .modules_to_save = {"embed_tokens"},
           .layers = {1},
           .layers_pattern = {"layers"},
           .rank_pattern = {{"v_proj", 5}},
           .alpha_pattern = {{"down_proj", 7.0}},
           .rank_stabilised = true,
           .dora = true}},
         {"biases", {.rank = 3, .targets = {"q_proj", "k_proj", "v_proj"}, .bias = xtrain::trained_biases::adapted}}});
    write_family<xtrain::bloom>(
        argv[1], {.vocab_size = vocabulary, .hidden_size = 24, .num_layers = 2, .num_heads = 3, .max_position_embeddings = 40, .bos = 1, .eos = {2}},
        {{"dora",
          {.rank = 3, .alpha = 12, .targets = {"query_key_value", "dense"}, .dora = true, .bias = xtrain::trained_biases::adapted}}});
    write_prefix<xtrain::llama>(argv[1]);
    write_prefix<xtrain::bloom>(argv[1]);
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "write_for_peft: %s\n", problem.what());
    return 1;
  }
  return 0;
}
