// Modules that LoRA adapts, their ranks and scales, and other trained parameters. PEFT selects the same from the same settings.
#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/train/recipe.hpp>

using namespace xtrain;

namespace {

struct recipe : defaults {
  using adapter = lora;
};
using names = std::set<std::string>;

decoder_config sizes() {
  return {.vocab_size = 11,
          .hidden_size = 8,
          .num_layers = 2,
          .num_heads = 2,
          .intermediate_size = 12,
          .max_position_embeddings = 6,
          .attention_bias = true,
          .output_bias = true,
          .tie_word_embeddings = false};
}

/// Adapted modules, without "model.layers." or "transformer.h.".
template <class Model>
names adapted_of(const Model& model) {
  names found;
  for (const auto& entry : model.parameters().entries()) {
    std::string module(lora_names::module_beside(entry.spec.name));
    for (const std::string prefix : {"model.layers.", "transformer.h."})
      if (module.starts_with(prefix)) module.erase(0, prefix.size());
    if (!module.empty()) found.insert(module);
  }
  return found;
}
names adapted(const lora::config& c) { return adapted_of(llama<recipe>(sizes(), {}, {.adapter = c})); }

template <class Model>
names trained_of(const Model& model) {
  names found;
  for (const auto& entry : model.parameters().entries())
    if (entry.spec.trainable && !lora::is_own(entry.spec.name)) found.insert(entry.spec.name);
  return found;
}

void refused(const lora::config& c, const std::string& words) {
  CAPTURE(words);
  CHECK_THROWS_WITH_AS((llama<recipe>(sizes(), {}, {.adapter = c})), doctest::Contains(words.c_str()), config_error);
}

const names every_linear{"0.self_attn.q_proj", "0.self_attn.k_proj", "0.self_attn.v_proj", "0.self_attn.o_proj", "0.mlp.gate_proj",
                         "0.mlp.up_proj",      "0.mlp.down_proj",    "1.self_attn.q_proj", "1.self_attn.k_proj", "1.self_attn.v_proj",
                         "1.self_attn.o_proj", "1.mlp.gate_proj",    "1.mlp.up_proj",      "1.mlp.down_proj"};

}  // namespace

TEST_CASE("a pattern means the modules whose whole names it matches") {
  CHECK(adapted({.target_pattern = R"(model\.layers\.1\.self_attn\.(q|v)_proj)"}) == names{"1.self_attn.q_proj", "1.self_attn.v_proj"});
  CHECK(adapted({.target_pattern = R"(.*\.up_proj)"}) == names{"0.mlp.up_proj", "1.mlp.up_proj"});
  CHECK(adapted({.target_pattern = "all-linear"}) == every_linear);
  CHECK(adapted({.target_pattern = "All-Linear"}) == every_linear);
  refused({.target_pattern = "q_proj"}, "at least one module must get an adapter; 'q_proj' matches none");  // only part of a name
  CHECK(adapted({.target_pattern = ".*(q_proj|head)"}) == names{"0.self_attn.q_proj", "1.self_attn.q_proj", "lm_head"});
  CHECK(adapted({.target_pattern = ".*(q_proj|head)", .exclude = {"lm_head"}}) == names{"0.self_attn.q_proj", "1.self_attn.q_proj"});
  refused({.target_pattern = "(q_proj"}, "must be a regular expression that is understood here");
}

TEST_CASE("modules are left out by name, by pattern, or because they are trained themselves") {
  CHECK(adapted({.target_pattern = "all-linear", .exclude = {"mlp.up_proj", "q_proj", "k_proj", "v_proj", "o_proj"}}) ==
        names{"0.mlp.gate_proj", "0.mlp.down_proj", "1.mlp.gate_proj", "1.mlp.down_proj"});
  CHECK(adapted({.targets = {"q_proj"}, .exclude_pattern = R"(.*\.0\..*)"}) == names{"1.self_attn.q_proj"});
  CHECK(adapted({.modules_to_save = {"mlp"}, .target_pattern = "all-linear"}) ==
        names{"0.self_attn.q_proj", "0.self_attn.k_proj", "0.self_attn.v_proj", "0.self_attn.o_proj", "1.self_attn.q_proj",
              "1.self_attn.k_proj", "1.self_attn.v_proj", "1.self_attn.o_proj"});
  refused({.targets = {"q_proj"}, .exclude = {"q_proj"}}, "at least one module must get an adapter; layers and exclusions leave none");
}

TEST_CASE("layers are chosen by number, behind what they are called") {
  CHECK(adapted({.targets = {"q_proj"}, .layers = {1}}) == names{"1.self_attn.q_proj"});
  CHECK(adapted({.targets = {"q_proj"}, .layers = {1, 0}}) == names{"0.self_attn.q_proj", "1.self_attn.q_proj"});
  CHECK(adapted({.targets = {"q_proj"}, .layers = {1}, .layers_pattern = {"layers"}}) == names{"1.self_attn.q_proj"});
  CHECK(adapted({.targets = {"q_proj"}, .layers = {1}, .layers_pattern = {"h", "lay.*"}}) == names{"1.self_attn.q_proj"});
  // targets outside layers are skipped; a full module name is always adapted
  CHECK(adapted({.targets = {"q_proj", "embed_tokens", "model.layers.0.mlp.up_proj"}, .layers = {1}}) ==
        names{"1.self_attn.q_proj", "0.mlp.up_proj"});
  refused({.targets = {"q_proj"}, .layers = {0, 2}}, "layers must be layers of the model; it has no layer 2");
  refused({.targets = {"q_proj"}, .layers = {0}, .layers_pattern = {"h"}}, "layers must be layers of the model; it has no layer 0");
  const gpt2<recipe> model({.vocab_size = 11, .hidden_size = 8, .num_layers = 2, .num_heads = 2, .max_position_embeddings = 6}, {},
                           {.adapter = {.targets = {"c_proj"}, .layers = {1}, .layers_pattern = {"h"}}});
  CHECK(adapted_of(model) == names{"1.attn.c_proj", "1.mlp.c_proj"});
}

TEST_CASE("ranks and scales are those of the pattern that matches a name's end") {
  const lora::config c{.rank = 4,
                       .alpha = 8,
                       .targets = {"q_proj", "v_proj", "up_proj"},
                       .rank_pattern = {{"v_proj", 2}, {R"(layers\.1\.mlp\..*)", 9}},
                       .alpha_pattern = {{"model.layers.0.self_attn.q_proj", 3.0}, {"roj", 100.0}}};
  const llama<recipe> model(sizes(), {}, {.adapter = c});
  const auto rank_at = [&](const std::string& module) { return model.parameters().find(module + ".lora_A.weight")->spec.shape[0]; };
  CHECK(rank_at("model.layers.0.self_attn.q_proj") == 4);
  CHECK(rank_at("model.layers.0.self_attn.v_proj") == 2);
  CHECK(rank_at("model.layers.0.mlp.up_proj") == 4);
  CHECK(rank_at("model.layers.1.mlp.up_proj") == 9);
  CHECK(c.scale_of("model.layers.0.self_attn.q_proj") == 3.0 / 4.0);
  CHECK(c.scale_of("model.layers.1.self_attn.q_proj") == 8.0 / 4.0);
  CHECK(c.scale_of("model.layers.1.self_attn.v_proj") == 8.0 / 2.0);
  lora::config stabilised = c;
  stabilised.rank_stabilised = true;
  CHECK(stabilised.scale_of("model.layers.1.self_attn.v_proj") == 8.0 / std::sqrt(2.0));
  CHECK(stabilised.scale_of("model.layers.1.mlp.up_proj") == 8.0 / 3.0);
  // the first match counts, as in PEFT
  const lora::config several{.rank = 4, .rank_pattern = {{R"(.*\.0\..*)", 3}, {"q_proj", 2}, {"proj", 7}, {".*", 5}}};
  CHECK(several.rank_of("model.layers.0.self_attn.q_proj") == 3);
  CHECK(several.rank_of("model.layers.1.self_attn.q_proj") == 2);
  CHECK(several.rank_of("model.layers.1.self_attn.v_proj") == 5);
}

TEST_CASE("modules to save are named by their ends, dots or not, and contain what lies in them") {
  const auto trained = [](const std::vector<std::string>& saved) {
    return trained_of(llama<recipe>(sizes(), {}, {.adapter = {.targets = {"o_proj"}, .modules_to_save = saved}}));
  };
  CHECK(trained({}).empty());
  CHECK(trained({"lm_head"}) == names{"lm_head.weight"});
  CHECK(trained({"norm"}) == names{"model.norm.weight", "model.layers.0.input_layernorm.weight", "model.layers.1.input_layernorm.weight",
                                   "model.layers.0.post_attention_layernorm.weight", "model.layers.1.post_attention_layernorm.weight"});
  CHECK(trained({"1.mlp"}) ==
        names{"model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight", "model.layers.1.mlp.down_proj.weight"});
  refused({.targets = {"o_proj"}, .modules_to_save = {""}}, "names of modules must not be empty");
  refused({.targets = {"o_proj"}, .modules_to_save = {"classifier", "score"}}, "'classifier' must name a module of the model");
}

TEST_CASE("biases are trained everywhere or beside adapters") {
  const auto trained = [](const lora::config& c) {
    return trained_of(gpt2<recipe>({.vocab_size = 11, .hidden_size = 8, .num_layers = 1, .num_heads = 2, .max_position_embeddings = 6}, {}, {.adapter = c}));
  };
  CHECK(trained({}).empty());
  const std::string h = "transformer.h.0.";
  CHECK(trained({.bias = trained_biases::adapted}) == names{h + "attn.c_attn.bias"});
  CHECK(trained({.target_pattern = "all-linear", .bias = trained_biases::adapted}) ==
        names{h + "attn.c_attn.bias", h + "attn.c_proj.bias", h + "mlp.c_fc.bias", h + "mlp.c_proj.bias"});
  CHECK(trained({.bias = trained_biases::all}) == names{h + "attn.c_attn.bias", h + "attn.c_proj.bias", h + "mlp.c_fc.bias",
                                                        h + "mlp.c_proj.bias", h + "ln_1.bias", h + "ln_2.bias", "transformer.ln_f.bias"});
  // queries, keys and values share one vector here
  refused({.targets = {"q_proj"}, .bias = trained_biases::adapted}, "are computed together; train both or none");
}

TEST_CASE("embeddings are adapted with a column for each index, and begin with the base model") {
  const llama<recipe> model(sizes(), {}, {.adapter = {.rank = 3, .targets = {"embed_tokens"}}});
  CHECK(adapted_of(model) == names{"model.embed_tokens"});
  const auto& a = *model.parameters().find("model.embed_tokens.lora_embedding_A");
  const auto& b = *model.parameters().find("model.embed_tokens.lora_embedding_B");
  CHECK(a.spec.shape == std::vector<std::size_t>{11, 3});
  CHECK(a.spec.transposed_in_files);
  CHECK(b.spec.shape == std::vector<std::size_t>{8, 3});
  for (const float x : model.parameters().value(a).host()) REQUIRE(x == 0.0f);
  refused({.targets = {"embed_tokens"}, .dora = true}, "embeddings must not be decomposed (DoRA); 'model.embed_tokens' is a target");
  CHECK(adapted({.targets = {"lm_head"}}) == names{"lm_head"});  // not tied to the embedding
}

TEST_CASE("settings that contradict one another are refused") {
  refused({.targets = {"q_proj"}, .target_pattern = ".*"}, "targets must be names or a pattern; both are given");
  refused({.targets = {"q_proj"}, .exclude = {"v_proj"}, .exclude_pattern = ".*"}, "exclusions must be names or a pattern; both are given");
  refused({.target_pattern = ".*q_proj", .layers = {0}}, "layers must be chosen by the pattern where targets are one");
  refused({.targets = {"q_proj"}, .layers_pattern = {"layers"}}, "layers must be given where the pattern of their names is");
  refused({.targets = {"q_proj"}, .rank_pattern = {{"v_proj", 0}}}, "the rank of 'v_proj' must be positive; given 0");
  refused({.targets = {"q_proj"}, .alpha_pattern = {{"v_proj", -1.0}}}, "lora: the alpha of 'v_proj' must be positive; given -1");
}
