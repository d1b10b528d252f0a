// Published config.json files: the model's settings, and what a save writes.
#include <doctest/doctest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/families.hpp>

using namespace xtrain;

namespace {

decoder_config read(const std::string& text) {
  const json_settings settings(parse_json(text, "config.json"), "config.json");
  const decoder_family_info& family = all_families::of(settings);
  decoder_config c = family.read(settings);
  c.family = &family;
  family.complete(c);
  detail::complete_decoder(c, family.name);
  return c;
}
/// Replaces keys (null: set to null) and erases `without`.
std::string with(const std::string& text, const std::string& changes, const std::vector<std::string>& without = {}) {
  json config = parse_json(text, "config.json");
  const json all = parse_json(changes, "changes");
  for (const auto& [key, value] : all.items()) config[key] = value;
  for (const std::string& key : without) config.erase(key);
  return config.dump();
}
json written(const decoder_config& c) {
  json_settings config;
  config.set("model_type", c.family->model_type);
  c.family->write(c, config);
  return config.object();
}
/// The config survives writing and reading.
void keeps(const decoder_config& c) { CHECK(read(written(c).dump()) == c); }
void refused(const std::string& text, const char* why) { CHECK_THROWS_WITH_AS((void)read(text), doctest::Contains(why), config_error); }

const std::string gemma2_2b = R"({"architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1, "final_logit_softcapping": 30.0, "head_dim": 256,
  "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "initializer_range": 0.02, "intermediate_size": 9216,
  "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0,
  "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096, "torch_dtype": "float32", "use_cache": true,
  "vocab_size": 256000})";
const std::string llama31_8b = R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
  "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
  "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": false, "vocab_size": 128256})";
const std::string qwen25_7b = R"({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
  "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02, "intermediate_size": 18944, "max_position_embeddings": 32768,
  "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0, "sliding_window": 131072, "tie_word_embeddings": false, "use_cache": true, "use_sliding_window": false, "vocab_size": 152064})";
const std::string qwen3_8b = R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
  "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
  "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false,
  "use_sliding_window": false, "vocab_size": 151936})";
const std::string mistral_v03 = R"({"architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
  "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768,
  "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0,
  "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 32768})";
const std::string code_llama_7b = R"({"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
  "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 16384, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
  "rope_theta": 1000000, "tie_word_embeddings": false, "vocab_size": 32016})";
const std::string phi4 = R"({"architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 100257,
  "embd_pdrop": 0.0, "eos_token_id": 100265, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 17920,
  "max_position_embeddings": 16384, "model_type": "phi3", "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 10,
  "original_max_position_embeddings": 16384, "pad_token_id": 100349, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null,
  "rope_theta": 250000, "sliding_window": null, "tie_word_embeddings": false, "vocab_size": 100352})";

}  // namespace

TEST_CASE("Gemma 2") {
  const decoder_config c = read(gemma2_2b);
  CHECK(c.attn_logit_softcapping == 50.0);
  CHECK(c.final_logit_softcapping == 30.0);
  CHECK(c.query_pre_attn_scalar == 256.0);
  CHECK(c.tie_word_embeddings);
  for (const std::size_t layer : {0U, 1U, 2U, 25U}) CHECK(c.window_of(layer) == (layer % 2 == 0 ? 4096 : 0));
  keeps(c);
  CHECK(written(c).at("query_pre_attn_scalar").is_number_integer());  // as transformers' class requires
  // missing softcap: default of transformers' class; null: no softcap
  CHECK(read(with(gemma2_2b, "{}", {"attn_logit_softcapping", "final_logit_softcapping"})) == c);
  const decoder_config uncapped = read(with(gemma2_2b, R"({"attn_logit_softcapping": null, "final_logit_softcapping": null, "query_pre_attn_scalar": 144.5})"));
  CHECK(uncapped.attn_logit_softcapping == 0.0);
  CHECK(uncapped.final_logit_softcapping == 0.0);
  keeps(uncapped);
  json types = json::array();
  for (std::size_t layer = 0; layer < 26; ++layer) types.push_back(layer % 3 == 0 ? "full_attention" : "sliding_attention");
  const decoder_config other = read(with(gemma2_2b, json{{"layer_types", types}}.dump()));
  for (std::size_t layer = 0; layer < 26; ++layer) CHECK(other.window_of(layer) == (layer % 3 == 0 ? 0 : 4096));
  keeps(other);
  for (auto& type : types) type = "full_attention";
  const decoder_config global = read(with(gemma2_2b, json{{"layer_types", types}, {"sliding_window", nullptr}}.dump()));
  CHECK(global.window_of(0) == 0);
  keeps(global);
  CHECK(written(global).at("sliding_window") == 4096);  // transformers cannot run with null, for any layers
  refused(with(gemma2_2b, R"({"sliding_window": null})"), "sliding_window must be given for layers with sliding_attention; it is null");
  refused(with(gemma2_2b, R"({"layer_types": ["full_attention"]})"), "layer_types must have one type for each of the 26 layers; given 1");
  refused(with(gemma2_2b, R"({"num_hidden_layers": 1, "layer_types": ["chunked_attention"]})"),
          "layer_types must be full_attention or sliding_attention; given 'chunked_attention'");
  refused(with(gemma2_2b, R"({"hidden_activation": "gelu"})"), "hidden_activation must be gelu_pytorch_tanh; given 'gelu'");
  refused(with(gemma2_2b, R"({"attn_logit_softcapping": -1})"), "attn_logit_softcapping must be positive, or null; given -1");
}

TEST_CASE("Llama 3.1, 3.2 and 3.3; CodeLlama") {
  const decoder_config c = read(llama31_8b);
  CHECK(c.rope_scaling == rope_scaling_config{.kind = rope_scaling_config::rule::llama3, .factor = 8.0, .low_frequency_factor = 1.0,
                                              .high_frequency_factor = 4.0, .original_context = 8192});
  CHECK(c.rope_theta == 500000.0);
  CHECK(c.eos == std::vector<token>{128001, 128008, 128009});
  keeps(c);
  const decoder_config small = read(with(llama31_8b, R"({"head_dim": 64, "hidden_size": 2048, "tie_word_embeddings": true, "rope_scaling": {"factor": 32.0,
      "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}})"));
  CHECK(small.rope_scaling.factor == 32.0);
  CHECK(small.tie_word_embeddings);
  keeps(small);
  // as transformers 5 writes it
  const decoder_config newer = read(with(llama31_8b, R"({"rope_parameters": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192, "rope_type": "llama3", "rope_theta": 500000.0}})", {"rope_scaling", "rope_theta"}));
  CHECK(newer == c);
  const decoder_config code = read(code_llama_7b);
  CHECK(code.rope_theta == 1e6);
  CHECK(code.rope_scaling == rope_scaling_config{});
  CHECK(code.max_position_embeddings == 16384);
  keeps(code);
}

TEST_CASE("InternLM has the base of RoPE and its dynamic scaling in an object of its own") {
  const std::string text = R"({"model_type": "internlm", "vocab_size": 103168, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
      "intermediate_size": 11008, "rotary": {"base": 10000, "type": "dynamic"}})";
  const decoder_config c = read(text);
  CHECK(c == read(with(text, "{}", {"rotary"})));
  CHECK_FALSE(written(c).contains("rotary"));
  keeps(c);
  const decoder_config other = read(with(text, R"({"rotary": {"base": 5000.0, "type": "dynamic", "scaling_factor": 2.0}})"));
  CHECK(other.rope_theta == 5e3);
  CHECK(other.rope_scaling == rope_scaling_config{.factor = 2.0});
  CHECK(written(other).at("rotary") == json{{"base", 5e3}, {"type", "dynamic"}, {"scaling_factor", 2.0}});
  keeps(other);
  CHECK(read(with(text, R"({"rotary": {"base": 5000.0, "type": "origin", "scaling_factor": 2.0}})")).rope_scaling == rope_scaling_config{});
  refused(with(text, R"({"rotary": {"base": 5000.0, "type": "linear"}})"), "the type of 'rotary' must be origin or dynamic; given 'linear'");
  refused(with(text, R"({"rope_theta": 10000.0, "rotary": {"base": 5000.0}})"), "rope_theta must be the base of 'rotary', 5000; given 10000");
  refused(with(text, R"({"rotary": {"scaling_factor": -2.0}})"), "the scaling_factor of 'rotary' must be positive; given -2");
  refused(with(text, R"({"rope_scaling": {"type": "linear", "factor": 2.0}, "rotary": {"scaling_factor": 2.0}})"),
          "rope_scaling must be that of 'rotary', dynamic with a factor of 2; it is another");
}

TEST_CASE("the longest sequence, where the key is missing, is that of the family's own class") {
  const auto longest = [](const std::string& text) { return read(with(text, "{}", {"max_position_embeddings"})).max_position_embeddings; };
  CHECK(longest(llama31_8b) == 2048);
  CHECK(longest(mistral_v03) == 131072);
  CHECK(longest(with(mistral_v03, R"({"model_type": "mixtral"})")) == 131072);
  CHECK(longest(qwen25_7b) == 32768);
  CHECK(longest(qwen3_8b) == 32768);
}

TEST_CASE("every size and token, where the key is missing, is that of transformers' configuration class") {
  // defaults of 5.24.0 and 4.57.6, as in MistralConfig()
  struct defaults_of {
    const char* family;
    std::size_t vocab, hidden, layers, heads, kv_heads, head_dim, feed_forward, longest;
    double epsilon, theta;
    bool tied;
    token bos, eos;
    std::optional<token> pad;
  };
  for (const defaults_of& d : std::vector<defaults_of>{
           {"llama", 32000, 4096, 32, 32, 32, 128, 11008, 2048, 1e-6, 1e4, false, 1, 2, {}},
           {"mistral", 32000, 4096, 32, 32, 8, 128, 14336, 131072, 1e-6, 1e4, false, 1, 2, {}},
           {"mixtral", 32000, 4096, 32, 32, 8, 128, 14336, 131072, 1e-5, 1e6, false, 1, 2, {}},
           {"qwen2", 151936, 4096, 32, 32, 32, 128, 22016, 32768, 1e-6, 1e4, false, -1, -1, {}},
           {"qwen3", 151936, 4096, 32, 32, 32, 128, 22016, 32768, 1e-6, 1e4, false, -1, -1, {}},
           {"gemma", 256000, 3072, 28, 16, 16, 256, 24576, 8192, 1e-6, 1e4, true, 2, 1, 0},
           {"gemma2", 256000, 2304, 26, 8, 4, 256, 9216, 8192, 1e-6, 1e4, true, 2, 1, 0},
           {"phi3", 32064, 3072, 32, 32, 32, 96, 8192, 4096, 1e-5, 1e4, false, 1, 32000, 32000},
           {"gpt2", 50257, 768, 12, 12, 12, 64, 3072, 1024, 1e-5, 1e4, true, 50256, 50256, {}},
           {"bloom", 250880, 64, 2, 8, 8, 8, 256, 2048, 1e-5, 1e4, true, 1, 2, {}}}) {
    CAPTURE(std::string(d.family));
    const decoder_config c = read(concat(R"({"model_type": ")", d.family, "\"}"));
    CHECK(c.vocab_size == d.vocab);
    CHECK(c.hidden_size == d.hidden);
    CHECK(c.num_layers == d.layers);
    CHECK(c.num_heads == d.heads);
    CHECK(c.num_kv_heads == d.kv_heads);
    CHECK(c.head_dim == d.head_dim);
    CHECK(c.intermediate_size == d.feed_forward);
    CHECK(c.max_position_embeddings == d.longest);
    CHECK(c.norm_epsilon == d.epsilon);
    CHECK(c.rope_theta == d.theta);
    CHECK(c.tie_word_embeddings == d.tied);
    CHECK(c.bos == d.bos);
    CHECK(c.eos == (d.eos < 0 ? std::vector<token>{} : std::vector<token>{d.eos}));
    CHECK(c.pad_token_id == d.pad);
    keeps(c);
  }
  // null differs from missing: as many key/value heads as heads, no tokens
  const decoder_config null = read(with(mistral_v03, R"({"num_key_value_heads": null, "bos_token_id": null, "eos_token_id": null})"));
  CHECK(null.num_kv_heads == 32);
  CHECK(null.bos == -1);
  CHECK(null.eos.empty());
  // a default token outside the vocabulary never ends a text
  CHECK(read(R"({"model_type": "gpt2", "vocab_size": 300})").eos.empty());
  // published classes outside transformers have no default sizes
  refused(R"({"model_type": "internlm"})", "'vocab_size' must be given; it is missing");
}

TEST_CASE("Mistral without a window, and where the key is missing") {
  const decoder_config c = read(mistral_v03);
  CHECK(c.sliding_window == 0);
  CHECK(c.rope_theta == 1e6);
  keeps(c);
  CHECK(read(with(mistral_v03, R"({"sliding_window": 4096})")).window_of(31) == 4096);
  CHECK(read(with(mistral_v03, "{}", {"sliding_window"})).sliding_window == 4096);  // the default of transformers' class
}

TEST_CASE("Mistral with the types of its layers, which transformers reads as Ministral") {
  const auto layers = [](const char* types, const char* more) {
    return with(mistral_v03, concat(R"({"num_hidden_layers": 3, "layer_types": )", types, more, "}"));
  };
  const char* mixed = R"(["sliding_attention", "full_attention", "sliding_attention"])";
  const decoder_config c = read(layers(mixed, R"(, "sliding_window": 4096)"));
  CHECK(c.window_of(0) == 4096);
  CHECK(c.window_of(1) == 0);
  CHECK(c.window_of(2) == 4096);
  CHECK(written(c).at("layer_types") == parse_json(mixed, "types"));
  keeps(c);
  const decoder_config all = read(layers(R"(["sliding_attention", "sliding_attention", "sliding_attention"])", R"(, "sliding_window": 4096)"));
  CHECK(all == read(with(mistral_v03, R"({"num_hidden_layers": 3, "sliding_window": 4096})")));
  CHECK_FALSE(written(all).contains("layer_types"));
  const char* none = R"(["full_attention", "full_attention", "full_attention"])";
  CHECK(read(layers(none, R"(, "sliding_window": 4096)")) == read(with(mistral_v03, R"({"num_hidden_layers": 3})")));
  CHECK(read(layers(none, "")).sliding_window == 0);
  refused(layers(mixed, ""), "sliding_window must be given for layers with sliding_attention; it is null");
  refused(with(layers(mixed, R"(, "sliding_window": 4096)"), R"({"model_type": "mixtral"})"), "layer_types must not be given");
}

TEST_CASE("Mixtral, where keys are missing, has the defaults of its own class") {
  const std::string text = with(mistral_v03, R"({"model_type": "mixtral"})", {"sliding_window", "rope_theta", "rms_norm_eps"});
  const decoder_config c = read(text);
  CHECK(c.rope_theta == 1e6);
  CHECK(c.norm_epsilon == 1e-5);
  CHECK(c.sliding_window == 0);
  CHECK(read(with(text, R"({"rope_theta": 10000.0, "rms_norm_eps": 1e-6})")).rope_theta == 1e4);
  CHECK(read(with(text, R"({"rope_parameters": {"rope_theta": 5000.0, "rope_type": "default"}})")).rope_theta == 5e3);
  keeps(c);
  const decoder_config mistral = read(with(mistral_v03, "{}", {"rope_theta", "rms_norm_eps"}));  // Mistral's class has other defaults
  CHECK(mistral.rope_theta == 1e4);
  CHECK(mistral.norm_epsilon == 1e-6);
}

TEST_CASE("how positions are scaled needs what transformers needs, and is written again") {
  const auto scaled = [](const char* how) { return with(code_llama_7b, concat(R"({"rope_scaling": )", how, "}")); };
  const decoder_config dynamic = read(scaled(R"({"type": "dynamic", "factor": 2.5})"));
  CHECK(dynamic.rope_scaling.scaled(0.25) == 0.25);
  CHECK(written(dynamic).at("rope_scaling") == json{{"rope_type", "dynamic"}, {"rope_theta", 1e6}, {"factor", 2.5}});
  keeps(dynamic);
  keeps(read(scaled(R"({"type": "linear", "factor": 2.5})")));
  for (const char* family : {"internlm2", "aquila"}) {  // their published classes accept only these two fields
    const decoder_config c = read(with(scaled(R"({"type": "dynamic", "factor": 2.0})"), concat(R"({"model_type": ")", family, R"("})")));
    CHECK(written(c).at("rope_scaling") == json{{"type", "dynamic"}, {"factor", 2.0}});
    keeps(c);
  }
  refused(scaled(R"({"rope_type": "dynamic"})"), "rope scaling of type 'dynamic' must have a factor; it is missing");
  refused(scaled(R"({"rope_type": "linear"})"), "rope scaling of type 'linear' must have a factor; it is missing");
  refused(scaled(R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192})"),
          "rope scaling of type 'llama3' must have a high_freq_factor; it is missing");
  // releases of transformers read one or the other
  CHECK(read(with(llama31_8b, R"({"original_max_position_embeddings": 8192})")) == read(llama31_8b));
  refused(with(llama31_8b, R"({"original_max_position_embeddings": 4096})"), "original_max_position_embeddings must be that of rope scaling, 8192; given 4096");
  CHECK(read(with(scaled(R"({"rope_type": "linear", "factor": 2.0})"), R"({"partial_rotary_factor": 1.0})")).rope_scaling.factor == 2.0);
  refused(with(scaled(R"({"rope_type": "linear", "factor": 2.0})"), R"({"partial_rotary_factor": 0.5})"),
          "partial_rotary_factor must be 1 with rope scaling of type 'linear'; given 0.5");
  refused(scaled(R"({"rope_type": "dynamic", "factor": 2.0, "partial_rotary_factor": 0.5})"), "partial_rotary_factor must be 1 with rope scaling of type");
  refused(with(qwen3_8b, R"({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6}}})", {"rope_theta", "rope_scaling"}),
          "rope_parameters must be the same for all layers; given some for full_attention");
}

TEST_CASE("names of one setting must agree") {
  refused(with(code_llama_7b, R"({"rope_scaling": {"rope_type": "linear", "factor": 2.0}, "rope_parameters": {"rope_type": "default"}})"),
          R"(config.json: rope_parameters and rope_scaling must agree, because they are names of one setting; given {"rope_type":"default"} and )");
  CHECK(read(with(code_llama_7b, R"({"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2.0}})")).rope_scaling.factor == 2.0);
  CHECK(read(with(code_llama_7b, R"({"rope_parameters": {}, "rope_scaling": {"rope_type": "linear", "factor": 2.0}})")).rope_scaling.factor == 2.0);
  refused(with(code_llama_7b, R"({"rope_scaling": {"rope_type": "linear", "type": "default", "factor": 2.0}})"), R"(given "linear" and "default")");
  const std::string gpt2 = R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024})";
  const std::string bloom = R"({"model_type": "bloom", "vocab_size": 250880, "hidden_size": 1024, "n_layer": 24, "n_head": 16})";
  for (const std::string& text : {gpt2, bloom}) {
    CAPTURE(text);
    refused(with(text, R"({"num_hidden_layers": 2})"), "n_layer and num_hidden_layers must agree");
    refused(with(text, R"({"num_attention_heads": 4})"), "n_head and num_attention_heads must agree");
    CHECK(read(with(text, R"({"num_hidden_layers": null})")) == read(text));
  }
  CHECK(read(with(gpt2, R"({"num_hidden_layers": 12, "num_attention_heads": 12.0})")) == read(gpt2));
  // ChatGLM's sizes: tokens, embedding rows
  const std::string chatglm = R"({"model_type": "chatglm", "padded_vocab_size": 65024, "vocab_size": 64793, "hidden_size": 4096, "num_layers": 28,
      "num_attention_heads": 32, "multi_query_attention": true, "multi_query_group_num": 2, "kv_channels": 128, "ffn_hidden_size": 13696})";
  CHECK(read(chatglm).vocab_size == 65024);
}

TEST_CASE("settings that would compute something else are refused by name") {
  const std::string bloom = R"({"model_type": "bloom", "vocab_size": 250880, "hidden_size": 1024, "n_layer": 24, "n_head": 16, "slow_but_exact": true})";
  CHECK_NOTHROW((void)read(bloom));
  refused(with(bloom, R"({"pretraining_tp": 4})"), "slow_but_exact must be false, because products are not summed in the 4 parts of pretraining_tp");
  const std::string gemma = with(gemma2_2b, R"({"model_type": "gemma", "hidden_act": "gelu", "hidden_activation": null})");
  CHECK_NOTHROW((void)read(gemma));
  refused(with(gemma, R"({"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh"})"), "hidden_act must be gelu_pytorch_tanh; given 'silu'");
  refused(with(gemma, R"({"hidden_activation": "silu"})"), "hidden_activation must be gelu_pytorch_tanh; given 'silu'");
}

TEST_CASE("Qwen2.5 and Qwen3, and which of their layers have the window") {
  for (const auto& one : {std::pair{qwen25_7b, std::size_t{28}}, {qwen3_8b, std::size_t{36}}}) {
    const auto text = one.first;
    const std::size_t layers = one.second;
    CAPTURE(text);
    const decoder_config c = read(text);
    CHECK(c.window_of(layers - 1) == 0);
    CHECK(c.rope_theta == 1e6);
    keeps(c);
    const auto windows = [&](const std::string& changes) {
      const decoder_config some = read(with(text, changes));
      keeps(some);
      std::vector<std::size_t> all;
      for (std::size_t layer = 0; layer < 4; ++layer) all.push_back(some.window_of(layer));
      return all;
    };
    using sizes = std::vector<std::size_t>;
    CHECK(windows(R"({"num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 3})") == sizes{0, 0, 0, 9});
    CHECK(windows(R"({"num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0})") == sizes{9, 9, 9, 9});
    CHECK(windows(R"({"num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": null, "max_window_layers": 0})") == sizes{0, 0, 0, 0});
    // layer_types takes precedence over max_window_layers
    CHECK(windows(R"({"num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0,
        "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]})") == sizes{0, 9, 0, 9});
    CHECK(windows(R"({"num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0,
        "layer_types": ["full_attention", "full_attention", "sliding_attention", "sliding_attention"]})") == sizes{0, 0, 9, 9});
    CHECK(windows(R"({"num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": 9, "max_window_layers": 0,
        "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"]})") == sizes{0, 0, 0, 0});
    refused(with(text, R"({"num_hidden_layers": 2, "use_sliding_window": false, "layer_types": ["full_attention", "sliding_attention"]})"),
            "layer_types has sliding_attention, so use_sliding_window must be true and sliding_window be given");
  }
}

TEST_CASE("Phi-4, and RoPE on a part of a head") {
  const decoder_config c = read(phi4);
  CHECK(c.rotary_dim == 0);
  CHECK(c.rope_theta == 250000.0);
  CHECK(c.sliding_window == 0);
  keeps(c);
  // declared by transformers' class, but unused
  CHECK(read(with(phi4, R"({"embd_pdrop": 0.1})")).embedding_dropout == 0.0);
  CHECK(read(with(phi4, R"({"resid_pdrop": 0.1})")).residual_dropout == 0.1);
  refused(with(phi4, R"({"partial_rotary_factor": 0.005})"), "at least two elements of a head are rotated; given 0.005 of a head dim of 128");
  decoder_config part = c;
  for (std::size_t d = 2; d <= 256; d += 2) {
    part.head_dim = d;
    for (part.rotary_dim = 2; part.rotary_dim < d; part.rotary_dim += 2) {
      const decoder_config again = read(written(part).dump());
      if (again.rotary_dim != part.rotary_dim) FAIL_CHECK("head_dim ", d, ": ", part.rotary_dim, " elements are read back as ", again.rotary_dim);
    }
  }
}

TEST_CASE("what a config.json of the family cannot hold is refused") {
  const auto refuses = [](const std::string& text, auto change, const char* why) {
    decoder_config c = read(text);
    change(c);
    const auto complete = [&] {
      c.family->complete(c);
      detail::complete_decoder(c, c.family->name);
    };
    CHECK_THROWS_WITH_AS(complete(), doctest::Contains(why), config_error);
  };
  refuses(phi4, [](decoder_config& c) { c.output_bias = true; }, "phi3: there must be no biases");
  refuses(phi4, [](decoder_config& c) { c.feed_forward_bias = true; }, "phi3: there must be no biases");
  refuses(mistral_v03, [](decoder_config& c) { c.attention_bias = true; }, "mistral: there must be no biases");
  CHECK_FALSE(written(read(mistral_v03)).contains("attention_bias"));
  refuses(phi4, [](decoder_config& c) { c.embedding_dropout = 0.1; }, "phi3: embedding_dropout must be 0, as in transformers' class; given 0.1");
  refuses(gemma2_2b, [](decoder_config& c) { c.feed_forward_bias = true; }, "gemma2: attention must have all biases or none");
  refuses(gemma2_2b, [](decoder_config& c) { c.output_bias = true; }, "gemma2: attention must have all biases or none");
  refuses(gemma2_2b, [](decoder_config& c) { c.windowed_layers.pop_back(); }, "windowed_layers must have one value for each of the 26 layers");
  refuses(gemma2_2b, [](decoder_config& c) { c.final_logit_softcapping = -1; }, "the softcaps of logits must be finite and not negative; given -1");
  refuses(qwen25_7b, [](decoder_config& c) { c.feed_forward_bias = true; }, "qwen2: there must be no biases but those of queries, keys and values");
  refuses(qwen3_8b, [](decoder_config& c) { c.output_bias = true; }, "qwen3: attention must have all biases or none");
  using parts = decoder_parts<defaults, any_block<defaults>>;
  decoder_config other = read(code_llama_7b);
  other.attn_logit_softcapping = 50.0;
  CHECK_THROWS_WITH_AS((void)parts::completed(other),
                       "llama: query_pre_attn_scalar, attn_logit_softcapping and final_logit_softcapping must be 0, because this family has none; given 0, 50 "
                       "and 0",
                       config_error);
  other = read(phi4);
  other.sliding_window = 4096;
  other.windowed_layers.assign(40, true);
  CHECK_THROWS_WITH_AS((void)parts::completed(other),
                       "phi3: windowed_layers must not be given, because a config.json of this family has no layer_types", config_error);
}
