// Settings of config.json replaced by another file's.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/bert.hpp>
#include "golden.hpp"

using namespace xtrain;

namespace {

json_settings settings(const char* text, const char* who) { return {parse_json(text, who), who}; }
json_settings with(const char* text) { return settings(text, "mine.json"); }
json_settings config_of(const char* fixture) { return read_config(golden::folder(fixture)); }

std::vector<std::string> keys_of(const overridden_settings& result) {
  std::vector<std::string> keys;
  for (const auto& change : result.changes) keys.push_back(change.key);
  return keys;
}
/// The error message contains all `words`.
template <class Family>
void refused(const char* fixture, const char* replaced, const std::vector<const char*>& words) {
  try {
    (void)sizes_of<Family>(override_settings<Family>(config_of(fixture), with(replaced)).settings);
    FAIL_CHECK("was not refused: ", std::string(replaced));
  } catch (const config_error& problem) {
    const std::string said = problem.what();
    CAPTURE(said);
    for (const char* part : words) CHECK(said.find(part) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("known settings are replaced and everything else stays") {
  const auto result = override_settings<llama_family>(config_of("llama_tied"), with(R"({"num_hidden_layers": 1, "rope_theta": 5e5})"));
  decoder_config expected = read_sizes<llama_family>(golden::folder("llama_tied"));
  expected.num_layers = 1;
  expected.rope_theta = 5e5;
  CHECK(sizes_of<llama_family>(result.settings) == expected);
  CHECK(result.unknown.empty());
  CHECK(keys_of(result) == std::vector<std::string>{"num_hidden_layers", "rope_parameters.rope_theta"});  // the effective key
  CHECK(result.changes.front().before == "3");
  CHECK(result.changes.front().after == "1");
  const auto nothing = override_settings<llama_family>(config_of("llama_tied"), with("{}"));
  CHECK(nothing.settings.object() == config_of("llama_tied").object());
}

TEST_CASE("dropout is switched off as the keys of each family say it") {
  const auto gpt2 = override_settings<gpt2_family>(
      config_of("gpt2"), with(R"({"attn_pdrop": 0.0, "embd_pdrop": 0, "resid_pdrop": 0.0, "summary_first_dropout": 0.0})"));
  const decoder_config sizes = sizes_of<gpt2_family>(gpt2.settings);
  CHECK(sizes.attention_dropout + sizes.embedding_dropout + sizes.residual_dropout == 0.0);
  const auto bert = override_settings<bert_masked_lm_family>(
      config_of("bert_pretraining"), with(R"({"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0})"));
  CHECK(sizes_of<bert_masked_lm_family>(bert.settings).residual_dropout == 0.0);
}

TEST_CASE("a setting that the file does not have is known if the family asks for it, under any of its names") {
  const auto result = override_settings<gpt2_family>(
      settings(R"({"model_type": "gpt2", "vocab_size": 31, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32})", "theirs.json"),
      with(R"({"hidden_size": 24, "num_hidden_layers": 1, "n_inner": 40, "layer_norm_epsilon": 1e-6, "colour": "red"})"));
  const decoder_config sizes = sizes_of<gpt2_family>(result.settings);
  CHECK(sizes.hidden_size == 24);  // the file has n_embd, which the family reads first
  CHECK(sizes.num_layers == 1);
  CHECK(sizes.intermediate_size == 40);
  CHECK(sizes.norm_epsilon == 1e-6);
  CHECK(result.unknown == std::vector<std::string>{"colour"});
  CHECK(keys_of(result) == std::vector<std::string>{"n_embd", "layer_norm_epsilon", "n_inner", "n_layer"});
}

TEST_CASE("a new rope scaling keeps the theta that transformers 5 writes beside the old one") {
  json theirs = config_of("llama_tied").object();
  theirs.erase("rope_theta"), theirs.erase("rope_scaling");
  theirs["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  const std::string saved = theirs.dump();
  const auto sizes = [&](const char* text) {
    return sizes_of<llama_family>(override_settings<llama_family>(settings(saved.c_str(), "theirs.json"), with(text)).settings);
  };
  const decoder_config kept = sizes(R"({"rope_scaling": {"rope_type": "linear", "factor": 2.0}})");
  CHECK(kept.rope_theta == 5e5);
  CHECK(kept.rope_scaling.factor == 2.0);
  CHECK(sizes(R"({"rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 7.0}})").rope_theta == 7.0);
}

TEST_CASE("a config that cannot be read may be put right") {
  const auto broken = settings(
      R"({"model_type": "bert", "hidden_act": "relu", "vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2})",
      "theirs.json");
  CHECK_THROWS_AS((void)sizes_of<bert_masked_lm_family>(broken), config_error);
  CHECK(sizes_of<bert_masked_lm_family>(override_settings<bert_masked_lm_family>(broken, with(R"({"hidden_act": "gelu"})")).settings)
            .hidden_size == 16);
}

TEST_CASE("a value of another type, or one that cannot be, is refused with key, expected and given") {
  refused<llama_family>("llama_tied", R"({"num_hidden_layers": "two"})",
                        {"mine.json", "'num_hidden_layers'", "must be a number", "3", "\"two\""});
  refused<llama_family>("llama_tied", R"({"tie_word_embeddings": 1})", {"'tie_word_embeddings'", "true or false", "given 1"});
  refused<llama_family>("llama_tied", R"({"num_hidden_layers": 1.5})",
                        {"with mine.json", "'num_hidden_layers'", "positive whole number", "1.5"});
  refused<llama_family>("llama_tied", R"({"num_hidden_layers": -1})", {"'num_hidden_layers'", "positive whole number", "-1"});
  refused<llama_family>("llama_tied", R"({"hidden_size": null})", {"'hidden_size'", "missing"});
  refused<llama_family>("llama_tied", R"({"model_type": "gpt2"})", {"must describe a 'llama' model"});
}

TEST_CASE("weights of other sizes are refused as ever") {
  struct plain : defaults {};
  const auto fewer = override_settings<llama_family>(config_of("llama_tied"), with(R"({"num_hidden_layers": 2})"));
  CHECK_THROWS_WITH_AS((void)load_as<llama<plain>>(golden::folder("llama_tied"), sizes_of<llama_family>(fewer.settings)),
                       doctest::Contains("has no counterpart in the model"), config_error);
  // unless layers are left out
  const auto shallow = load_as<llama<plain>>(golden::folder("llama_tied"), sizes_of<llama_family>(fewer.settings), {}, {}, {.fewer_layers = true});
  CHECK(shallow.config().num_layers == 2);
  CHECK(detail::name_in_first_layer("model.layers.2.mlp.experts.0.up_proj.weight", 2) == "model.layers.0.mlp.experts.0.up_proj.weight");
  CHECK(detail::name_in_first_layer("model.layers.1.mlp.experts.7.up_proj.weight", 2).empty());
  CHECK(detail::name_in_first_layer("model.norm.weight", 2).empty());
  const auto more = override_settings<llama_family>(config_of("llama_tied"), with(R"({"num_hidden_layers": 9})"));
  CHECK_THROWS_WITH_AS((void)load_as<llama<plain>>(golden::folder("llama_tied"), sizes_of<llama_family>(more.settings), {}, {}, {.fewer_layers = true}),
                       doctest::Contains("because config.json asks for it; it is missing"), config_error);
  const auto other = override_settings<llama_family>(config_of("llama_tied"), with(R"({"rope_theta": 77.0})"));
  const auto model = load_as<llama<plain>>(golden::folder("llama_tied"), sizes_of<llama_family>(other.settings));
  CHECK(model.config().rope_theta == 77.0);
}
