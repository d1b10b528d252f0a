// Every family either saves a setting in config.json or refuses it at construction.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/families.hpp>
#include "golden.hpp"

using namespace xtrain;

namespace {

using parts = decoder_parts<defaults, any_block<defaults>>;
using rule = rope_scaling_config::rule;
using names = std::set<std::string>;

const std::vector<const decoder_family_info*> families = [] {
  std::vector<const decoder_family_info*> found;
  for (const std::string& name : all_families::all_names()) found.push_back(all_families::named(name));
  return found;
}();
names all_but(const names& some) {
  names rest;
  for (const decoder_family_info* family : families)
    if (!some.contains(family->name)) rest.insert(family->name);
  return rest;
}

decoder_config plain(const decoder_family_info* family) {
  return {.vocab_size = 29, .hidden_size = 32, .num_layers = 2, .num_heads = 4, .max_position_embeddings = 16, .initializer_range = 0.3, .family = family};
}

/// The saved model, loaded again.
decoder_config loaded(const decoder_config& c) {
  json_settings config;
  config.set("model_type", c.family->model_type);
  c.family->write(c, config);
  return parts::completed(sizes_of(json_settings(parse_json(config.text(), "config.json"), "config.json"), *c.family));
}

/// Settings without effect on logits are set equal.
decoder_config normal(decoder_config c, const decoder_config& like) {
  std::vector<bool> windows;
  bool any = false;
  for (std::size_t layer = 0; layer < c.num_layers; ++layer) {
    windows.push_back(c.window_of(layer) != 0);
    any = any || windows.back();
  }
  c.windowed_layers = windows;
  c.first_windowed_layer = 0;
  if (!any) c.sliding_window = 0;
  if (c.rotary_dim == c.head_dim) c.rotary_dim = 0;
  if (c.rope_theta == doctest::Approx(like.rope_theta).epsilon(1e-12)) c.rope_theta = like.rope_theta;  // ChatGLM's files hold its ratio to 10000
  if (c.family->positions == position_kind::alibi) c.alibi = like.alibi;
  c.z_loss = like.z_loss;
  c.embedding_dropout = like.embedding_dropout;
  c.attention_dropout = like.attention_dropout;
  c.residual_dropout = like.residual_dropout;
  c.initializer_range = like.initializer_range;
  if (c.family->mask(c).kind != attention_mask::rule::prefix) {
    c.bos = like.bos;
    c.gap = like.gap;
    c.word_gap = like.word_gap;
  }
  return c;
}

/// Families that refuse the setting; others save it.
names refusing(const std::function<void(decoder_config&)>& set) {
  names found;
  for (const decoder_family_info* family : families) {
    decoder_config c = plain(family);
    set(c);
    const std::string name = family->name;
    CAPTURE(name);
    try {
      c = parts::completed(c);
    } catch (const config_error& problem) {
      CHECK_MESSAGE(std::string(problem.what()).starts_with(concat(family->name, ": ")), problem.what());
      found.insert(family->name);
      continue;
    }
    const decoder_config again = loaded(c);
    CHECK(normal(c, c) == normal(again, c));
  }
  return found;
}

void refused(const decoder_family_info& family, const std::function<void(decoder_config&)>& set, const char* why) {
  decoder_config c = plain(&family);
  set(c);
  CHECK_THROWS_WITH_AS((void)parts::completed(c), why, config_error);
}

}  // namespace

TEST_CASE("what is not refused is loaded as it was saved") {
  CHECK(refusing([](decoder_config&) {}) == names{});
  const names windowed{"mistral", "mixtral", "qwen2", "qwen3", "gemma2", "phi3"};
  CHECK(refusing([](decoder_config& c) { c.sliding_window = 3; }) == all_but(windowed));
  CHECK(refusing([](decoder_config& c) { c.sliding_window = 3, c.first_windowed_layer = 1; }) == all_but({"mistral", "qwen2", "qwen3"}));
  CHECK(refusing([](decoder_config& c) { c.sliding_window = 3, c.windowed_layers = {true, false}; }) == all_but({"mistral", "qwen2", "qwen3", "gemma2"}));
  CHECK(refusing([](decoder_config& c) { c.rotary_dim = 4; }) == all_but({"phi3", "chatglm"}));
  CHECK(refusing([](decoder_config& c) { c.rope_theta = 77; }) == names{"gpt2", "bloom", "baichuan", "chatglm1"});
  const names no_scaling{"gpt2", "bloom", "phi3", "chatglm", "chatglm1"};
  CHECK(refusing([](decoder_config& c) { c.rope_scaling = {.kind = rule::linear, .factor = 3}; }) == no_scaling);
  CHECK(refusing([](decoder_config& c) { c.rope_scaling.factor = 3; }) == no_scaling);
  CHECK(refusing([](decoder_config& c) {
          c.rope_scaling = {.kind = rule::llama3, .factor = 8, .low_frequency_factor = 1, .high_frequency_factor = 4, .original_context = 16};
        }) == no_scaling);
  CHECK(refusing([](decoder_config& c) { c.alibi = true; }) == all_but({"baichuan", "bloom"}));

  const names always{"gpt2", "bloom", "chatglm1"};  // always have all biases
  CHECK(refusing([](decoder_config& c) { c.attention_bias = true; }) == all_but({"gpt2", "bloom", "chatglm1", "qwen2", "chatglm"}));
  CHECK(refusing([](decoder_config& c) { c.output_bias = true; }) == all_but(always));
  CHECK(refusing([](decoder_config& c) { c.feed_forward_bias = true; }) == all_but({"gpt2", "bloom", "chatglm1", "llama", "aquila"}));
  CHECK(refusing([](decoder_config& c) { c.attention_bias = c.output_bias = true; }) ==
        names{"mistral", "mixtral", "qwen2", "phi3", "baichuan", "chatglm"});

  CHECK(refusing([](decoder_config& c) { c.head_dim = 16; }) == names{"gpt2", "bloom", "baichuan", "internlm", "internlm2", "chatglm1"});
  CHECK(refusing([](decoder_config& c) { c.num_kv_heads = 2; }) == names{"gpt2", "bloom", "baichuan", "chatglm1"});
  CHECK(refusing([](decoder_config& c) { c.intermediate_size = 40; }) == names{"bloom"});
  CHECK(refusing([](decoder_config& c) { c.num_experts = 4, c.num_experts_per_token = 2; }) == all_but({"mixtral"}));
  CHECK(refusing([](decoder_config& c) { c.balances_experts = true, c.router_aux_loss_coef = 0.5; }) == all_but({"mixtral"}));
  CHECK(refusing([](decoder_config& c) { c.tie_word_embeddings = false, c.normalized_head = true; }) == all_but({"baichuan"}));
  CHECK(refusing([](decoder_config& c) { c.query_pre_attn_scalar = 1.5; }) == all_but({"gemma2"}));
  CHECK(refusing([](decoder_config& c) { c.attn_logit_softcapping = 0.5; }) == all_but({"gemma2"}));
  CHECK(refusing([](decoder_config& c) { c.final_logit_softcapping = 0.5; }) == all_but({"gemma2"}));

  for (const std::function<void(decoder_config&)>& set : std::vector<std::function<void(decoder_config&)>>{
           [](decoder_config& c) { c.norm_epsilon = 0.3; }, [](decoder_config& c) { c.tie_word_embeddings = false; },
           [](decoder_config& c) { c.bos = 5, c.gap = 7, c.word_gap = 8; }, [](decoder_config& c) { c.eos = {5, 7}; },
           [](decoder_config& c) { c.pad_token_id = 3; }, [](decoder_config& c) { c.pad_token_id = -1; },
           [](decoder_config& c) { c.z_loss = 0.1; }, [](decoder_config& c) { c.attention_dropout = 0.1; }})
    CHECK(refusing(set) == names{});
}

TEST_CASE("a refusal names the setting, what it must be and what is given") {
  refused(info_of<llama_family>, [](decoder_config& c) { c.sliding_window = 3; },
          "llama: sliding_window of layer 0 must be 0, which is what a saved config.json of this model is read as; given 3; see models/README.md");
  refused(info_of<llama_family>, [](decoder_config& c) { c.attention_bias = true; },
          "llama: output_bias must be true, which is what a saved config.json of this model is read as; given false; see models/README.md");
  refused(info_of<gemma_family>, [](decoder_config& c) { c.rotary_dim = 4; },
          "gemma: rotary_dim must be 0, which is what a saved config.json of this model is read as; given 4; see models/README.md");
  refused(info_of<chatglm_family>, [](decoder_config& c) { c.rope_scaling = {.kind = rule::linear, .factor = 3}; },
          "chatglm: rope_scaling must be none, which is what a saved config.json of this model is read as; given linear; see models/README.md");
  refused(info_of<qwen2_family>, [](decoder_config& c) { c.num_experts = 4; },
          "qwen2: num_experts must be 0, which is what a saved config.json of this model is read as; given 4; see models/README.md");
  refused(info_of<phi3_family>, [](decoder_config& c) { c.sliding_window = 3, c.first_windowed_layer = 1; },
          "phi3: sliding_window of layer 0, by first_windowed_layer (1) and windowed_layers, must be 3, which is what a saved config.json of this model is "
          "read as; given 0; see models/README.md");
  refused(info_of<phi3_family>, [](decoder_config& c) { c.rope_scaling = {.kind = rule::linear, .factor = 3}; },
          "phi3: rope_scaling must be none, because a config.json of this family may have LongRoPE only; given a factor of 3");
  refused(info_of<mixtral_family>, [](decoder_config& c) { c.sliding_window = 3, c.first_windowed_layer = 1; },
          "mixtral: first_windowed_layer must be 0, because all layers have the sliding window, or none; given 1");
}

TEST_CASE("a family whose config.json it cannot read itself is refused") {
  struct forgetful_family : llama_family {
    static decoder_config read(const named_settings& s) {
      decoder_config c = llama_family::read(s);
      c.norm_epsilon = s.object_at({"norm"})->number_or(0.0, {"epsilon"});
      return c;
    }
  };
  refused(info_of<forgetful_family>, [](decoder_config&) {},
          "llama: settings must be such that a saved config.json can be read again; of these it could not: llama: norm_epsilon must be positive; given 0");
}

TEST_CASE("the config.json of every fixture can be saved again") {
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(XTRAIN_GOLDEN)) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    const json_settings settings = read_config(entry.path().string());
    const std::string type = settings.text_or("", {"model_type"});
    if (std::none_of(families.begin(), families.end(), [&](const decoder_family_info* family) { return family->model_type == type; })) continue;
    CAPTURE(entry.path().string());
    const decoder_config c = parts::completed(sizes_of(settings, all_families::of(settings)));
    CHECK(normal(loaded(c), c) == normal(c, c));
    ++found;
  }
  CHECK(found > 15);
}
