// Adapter folders: round trip of every setting and tensor, what PEFT writes besides, and what is rejected.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/bloom.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

struct plain_recipe : defaults {};
struct adapted_recipe : defaults {
  using adapter = lora;
};
struct recomputing_recipe : adapted_recipe {
  using recompute = recompute_full;
};
struct bf16_recipe : adapted_recipe {
  using precision = bf16_mixed;
};

decoder_config sizes(bool tied = false) {
  return {.vocab_size = 29,
          .hidden_size = 24,
          .num_layers = 2,
          .num_heads = 2,
          .num_kv_heads = 1,
          .intermediate_size = 40,
          .max_position_embeddings = 12,
          .attention_bias = true,
          .output_bias = true,
          .tie_word_embeddings = tied,
          .initializer_range = 0.1};
}
decoder_config bloom_sizes() {
  return {.vocab_size = 29, .hidden_size = 24, .num_layers = 2, .num_heads = 3, .max_position_embeddings = 12, .initializer_range = 0.1};
}

const dataset& data() {
  static const dataset all = [] {
    dataset d("numbers", sequence_layout::stream);
    std::vector<token> tokens;
    for (token i = 0; i < 300; ++i) tokens.push_back((i * i * 5 + i) % 29);
    d.add(tokens);
    d.finish();
    return d;
  }();
  return all;
}

template <class Model>
std::vector<float> logits_of(Model& model) {
  array<token, 2> tokens(shape_of_rank<2>{3, 9});
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens.data()[i] = static_cast<token>((i * i + 3) % 29);
  const auto logits_btv = logits(model, tokens);
  return {logits_btv.begin(), logits_btv.end()};
}
template <class Model>
void train(Model& model, std::size_t steps = 8) {
  trainer trainer(model, {.max_steps = steps, .micro_batch_size = 4, .learning_rate = 2e-2});
  trainer.fit(data());
}
double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}
/// The same sums in another order: 25 sums of up to 96 products, one after the other, each with relative error 2^-24 · sqrt(96),
/// logits below 10: 25 · 6e-8 · 10 · 10.
constexpr double other_order = 1.5e-4;

/// A trained adapter is saved and loaded with the same base; merged, it computes the same.
template <template <class> class Family>
void there_and_back(const decoder_config& model_sizes, const lora::config& adapter, bool merges = true) {
  const scratch_folder base_folder, folder;
  Family<plain_recipe> base(model_sizes);
  save_pretrained(base, base_folder.path());
  auto model = Family<adapted_recipe>::from_pretrained(base_folder.path(), {}, {.adapter = adapter});
  CHECK(largest_difference(logits_of(model), logits_of(base)) < (adapter.dora ? other_order : 1e-30));  // initially equal to the base
  train(model);
  save_pretrained(model, folder.path());
  CHECK(largest_difference(logits_of(model), logits_of(base)) > 100 * other_order);

  auto again = Family<adapted_recipe>::from_pretrained(base_folder.path(), {}, {.adapter = adapter_config_of(folder.path()), .seed = 7});
  load_adapter(again, folder.path());
  CHECK(logits_of(again) == logits_of(model));
  if (!merges) {
    CHECK_THROWS_WITH_AS(merge_adapter(base, folder.path()), doctest::Contains("must not be merged where the head is tied to it"),
                         config_error);
    CHECK_THROWS_WITH_AS(merge_adapter(again), doctest::Contains("must not be merged where the head is tied to it"), config_error);
    return;
  }
  merge_adapter(base, folder.path());
  CHECK(largest_difference(logits_of(base), logits_of(model)) < other_order);
  merge_adapter(again);
  const auto merged = logits_of(again);
  CHECK(largest_difference(merged, logits_of(model)) < other_order);
  merge_adapter(again);
  CHECK(largest_difference(logits_of(again), merged) < (adapter.dora ? other_order : 1e-30));
}

/// An adapter_config.json with these keys changed.
json config_with(const json& changes) {
  json config = {{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 4}, {"target_modules", {"q_proj"}}};
  config.update(changes);
  return config;
}
lora::config read_config(const json& changes) {
  const scratch_folder folder;
  put_file(folder / "adapter_config.json", config_with(changes).dump());
  return adapter_config_of(folder.path());
}
void refused(const json& changes, const std::string& words) {
  CAPTURE(words);
  CHECK_THROWS_WITH_AS((void)read_config(changes), doctest::Contains(words.c_str()), config_error);
}

}  // namespace

TEST_CASE("adapters of every kind begin with the base, are read as they were written, and merge") {
  SUBCASE("names by a pattern, ranks and scales of their own, rank-stabilised") {
    there_and_back<llama>(sizes(), {.rank = 3,
                                    .alpha = 5,
                                    .target_pattern = R"(model\.layers\.\d\.(mlp\.(up|down)|self_attn\.v)_proj)",
                                    .exclude = {"0.mlp.up_proj"},
                                    .rank_pattern = {{"v_proj", 5}},
                                    .alpha_pattern = {{"1.mlp.down_proj", 9.0}},
                                    .rank_stabilised = true});
  }
  SUBCASE("DoRA") { there_and_back<llama>(sizes(), {.rank = 3, .alpha = 5, .targets = {"q_proj", "v_proj", "down_proj"}, .dora = true}); }
  SUBCASE("DoRA with dropout") {
    there_and_back<llama>(sizes(), {.rank = 3, .dropout = 0.2, .targets = {"v_proj", "up_proj"}, .dora = true});
  }
  SUBCASE("DoRA and biases of a module whose rows files hold in another order") {
    there_and_back<bloom>(bloom_sizes(),
                          {.rank = 3, .targets = {"query_key_value", "dense"}, .dora = true, .bias = trained_biases::adapted});
  }
  SUBCASE("LoRA of weights that files hold the other way around, all biases") {
    there_and_back<gpt2>(bloom_sizes(), {.rank = 3, .targets = {"c_attn", "c_fc"}, .bias = trained_biases::all});
  }
  SUBCASE("embeddings") { there_and_back<llama>(sizes(), {.rank = 3, .targets = {"embed_tokens", "q_proj"}}); }
  SUBCASE("embeddings of positions") { there_and_back<gpt2>(bloom_sizes(), {.rank = 3, .targets = {"wpe", "c_fc"}}); }
  SUBCASE("embeddings that the head is tied to") { there_and_back<llama>(sizes(true), {.rank = 3, .targets = {"embed_tokens"}}, false); }
  SUBCASE("a trained embedding that the head is tied to") {
    there_and_back<llama>(sizes(true), {.rank = 3, .targets = {"q_proj"}, .modules_to_save = {"embed_tokens"}});
  }
  SUBCASE("layers") { there_and_back<llama>(sizes(), {.rank = 3, .targets = {"o_proj"}, .layers = {1}, .layers_pattern = {"layers"}}); }
}

TEST_CASE("lengths of DoRA begin as those of the weights that were loaded") {
  const scratch_folder base_folder;
  gpt2<plain_recipe> base(bloom_sizes());
  save_pretrained(base, base_folder.path());
  const auto model = gpt2<adapted_recipe>::from_pretrained(base_folder.path(), {}, {.adapter = {.dora = true}, .seed = 7});
  const auto w = as_xtensor(base.parameter<2>("transformer.h.1.attn.c_attn.weight"));
  const auto m = as_xtensor(model.parameter<1>("transformer.h.1.attn.c_attn.lora_magnitude_vector"));
  for (std::size_t o = 0; o < 72; ++o) {
    double squares = 0;
    for (std::size_t i = 0; i < 24; ++i) squares += static_cast<double>(w(o, i)) * static_cast<double>(w(o, i));
    REQUIRE(m(o) == doctest::Approx(std::sqrt(squares)).epsilon(1e-7));
  }
}

TEST_CASE("recomputation changes nothing of DoRA, embeddings and biases, bit for bit") {
  const lora::config adapter{.rank = 2, .dropout = 0.1, .targets = {"embed_tokens", "o_proj", "up_proj"}, .bias = trained_biases::all};
  const auto trained = [&](auto model) {
    train(model);
    const auto values = model.parameters().trained_values().host();
    return std::vector<float>(values.begin(), values.end());
  };
  for (const bool dora : {false, true}) {
    lora::config c = adapter;
    c.dora = dora;
    if (dora) c.targets.erase(c.targets.begin());
    CHECK(trained(llama<adapted_recipe>(sizes(), {}, {.adapter = c})) == trained(llama<recomputing_recipe>(sizes(), {}, {.adapter = c})));
  }
}

TEST_CASE("DoRA learns in bf16") {
  llama<bf16_recipe> model(sizes(), {}, {.adapter = {.rank = 4, .target_pattern = "all-linear", .dora = true}});
  const double before = perplexity(model, data()).loss;
  train(model, 60);
  CHECK(perplexity(model, data()).loss < 0.9 * before);
}

TEST_CASE("a run of DoRA, embeddings and biases goes on where it was stopped, bit for bit") {
  const scratch_folder folder;
  const auto fresh = [](bool dora) {
    return llama<adapted_recipe>(
        sizes(true), {},
        {.adapter = {.rank = 2, .targets = {"o_proj"}, .modules_to_save = {"embed_tokens"}, .dora = dora, .bias = trained_biases::all}});
  };
  const auto values_of = [](const auto& model) {
    const auto values = model.parameters().trained_values().host();
    return std::vector<float>(values.begin(), values.end());
  };
  for (const bool dora : {false, true}) {
    const training_config<adamw> eight{.max_steps = 8, .micro_batch_size = 2, .learning_rate = 1e-2};
    const std::string here = folder / (dora ? "dora" : "lora");
    auto through = fresh(dora);
    trainer straight(through, eight);
    checkpoint_folder files(straight, here, {.save_steps = 4});
    straight.attach(files);
    straight.fit(data());
    auto rest = fresh(dora);
    trainer second(rest, eight);
    checkpoint_folder(second, here).resume_from(here + "/checkpoint-4");
    second.fit(data());
    CHECK(values_of(rest) == values_of(through));
  }
}

TEST_CASE("what is written has PEFT's names and shapes") {
  const scratch_folder folder;
  gpt2<adapted_recipe> model(
      bloom_sizes(), {}, {.adapter = {.rank = 3, .targets = {"c_fc", "wpe"}, .modules_to_save = {"wte"}, .bias = trained_biases::adapted}});
  save_pretrained(model, folder.path());
  const json config = json::parse(get_file(folder / "adapter_config.json"));
  CHECK(config["fan_in_fan_out"] == true);
  CHECK(config["bias"] == "lora_only");
  CHECK(config["ensure_weight_tying"] == true);
  const safetensors_file file(folder / "adapter_model.safetensors");
  const auto shape = [&](const std::string& name) {
    const file_tensor* tensor = file.find("base_model.model." + name);
    REQUIRE_MESSAGE(tensor != nullptr, name);
    return tensor->shape;
  };
  CHECK(file.tensors().size() == 2 * 3 + 2 + 2);
  CHECK(shape("transformer.h.1.mlp.c_fc.base_layer.bias") == std::vector<std::size_t>{96});
  CHECK(shape("transformer.h.1.mlp.c_fc.lora_B.weight") == std::vector<std::size_t>{96, 3});
  CHECK(shape("transformer.wpe.lora_embedding_A") == std::vector<std::size_t>{3, 12});
  CHECK(shape("transformer.wpe.lora_embedding_B") == std::vector<std::size_t>{24, 3});
  CHECK(shape("transformer.wte.weight") == std::vector<std::size_t>{29, 24});
  CHECK(shape("lm_head.weight") == std::vector<std::size_t>{29, 24});
}

TEST_CASE("every key that matters is read; what is unknown is left alone") {
  const lora::config c = read_config({{"lora_dropout", 0.25},
                                      {"target_modules", "all-linear"},
                                      {"exclude_modules", {"k_proj", "o_proj"}},
                                      {"modules_to_save", {"lm_head"}},
                                      {"rank_pattern", {{"v_proj", 5}}},
                                      {"alpha_pattern", {{"down_proj", 2.5}}},
                                      {"use_rslora", true},
                                      {"use_dora", true},
                                      {"bias", "all"},
                                      {"fan_in_fan_out", true},
                                      {"key_of_the_future", {1, 2}},
                                      {"loftq_config", json::object()},
                                      {"layer_replication", nullptr}});
  CHECK(c.rank == 2);
  CHECK(c.alpha == 4);
  CHECK(c.dropout == 0.25);
  CHECK(c.targets.empty());
  CHECK(c.target_pattern == "all-linear");
  CHECK(c.exclude == std::vector<std::string>{"k_proj", "o_proj"});
  CHECK(c.modules_to_save == std::vector<std::string>{"lm_head"});
  CHECK(c.rank_pattern == std::vector<std::pair<std::string, std::size_t>>{{"v_proj", 5}});
  CHECK(c.alpha_pattern == std::vector<std::pair<std::string, double>>{{"down_proj", 2.5}});
  CHECK(c.rank_stabilised);
  CHECK(c.dora);
  CHECK(c.bias == trained_biases::all);
  CHECK(read_config({{"layers_to_transform", 1}, {"layers_pattern", "layers"}}).layers == std::vector<std::size_t>{1});
  CHECK(read_config({{"layers_to_transform", {0, 1}}}).layers == std::vector<std::size_t>{0, 1});
  CHECK(read_config({{"layers_to_transform", {0}}, {"layers_pattern", {"h", "layers"}}}).layers_pattern.size() == 2);
  CHECK(read_config({{"exclude_modules", ".*k_proj"}}).exclude_pattern == ".*k_proj");
}

TEST_CASE("adapters that are something else are refused by the key that says so") {
  refused({{"peft_type", "IA3"}}, "peft_type must be LORA; given 'IA3'");
  refused({{"init_lora_weights", "pissa_niter_4"}}, "init_lora_weights must leave the base weights as they are; given 'pissa_niter_4'");
  refused({{"lora_bias", true}}, "'lora_bias' must be off; it is true");
  refused({{"trainable_token_indices", {1, 2}}}, "'trainable_token_indices' must be off");
  refused({{"layer_replication", {{0, 1}}}}, "'layer_replication' must be off");
  refused({{"alora_invocation_tokens", {5}}}, "'alora_invocation_tokens' must be off");
  refused({{"target_parameters", {"experts.gate"}}}, "'target_parameters' must be off");
  refused({{"bias", "some"}}, "bias must be none, all or lora_only; given 'some'");
  refused({{"target_modules", nullptr}}, "'target_modules' must name modules; there are none");
  refused({{"target_modules", 5}}, "'target_modules' must be a list of module names; given 5");
  refused({{"modules_to_save", "lm_head"}}, "'modules_to_save' must be a list of module names");
  refused({{"rank_pattern", {{"q_proj", 0}}}}, "'rank_pattern': 'q_proj' must be a positive whole number; given 0");
  refused({{"rank_pattern", 3}}, "'rank_pattern': must be a JSON object");
  refused({{"alpha_pattern", {{"q_proj", "x"}}}}, "'q_proj' must be a number");
  refused({{"alpha_pattern", {{"q_proj", nullptr}}}}, "'q_proj' must be a number; given null");
  refused({{"layers_to_transform", -1}}, "'layers_to_transform' must be layers, counted from 0; given -1");
  refused({{"use_dora", 1}}, "'use_dora' must be true or false");
}

TEST_CASE("an adapter that changes one of an embedding and the head that is tied to it is refused") {
  const scratch_folder folder;
  lora::config saves{.rank = 2, .targets = {"q_proj"}, .modules_to_save = {"embed_tokens"}};
  llama<adapted_recipe> untied(sizes(false), {}, {.adapter = saves});
  save_pretrained(untied, folder.path());  // what PEFT writes for a tied model unless told to keep the tie
  llama<adapted_recipe> tied(sizes(true), {}, {.adapter = saves});
  llama<plain_recipe> plain(sizes(true));
  const char* message = "changes the embedding and leaves the head as it was ('base_model.model.lm_head.weight' is missing)";
  CHECK_THROWS_WITH_AS(load_adapter(tied, folder.path()), doctest::Contains(message), config_error);
  CHECK_THROWS_WITH_AS(merge_adapter(plain, folder.path()), doctest::Contains(message), config_error);
  saves.modules_to_save.push_back("lm_head");
  llama<adapted_recipe> both(sizes(false), {}, {.adapter = saves});
  save_pretrained(both, folder.path());
  CHECK_THROWS_WITH_AS(load_adapter(tied, folder.path()), doctest::Contains("the head must be the embedding, as the model ties them"),
                       config_error);
  CHECK_THROWS_WITH_AS(merge_adapter(plain, folder.path()), doctest::Contains("the head must be the embedding, as the model ties them"),
                       config_error);
}

TEST_CASE("an adapter that was made with other settings than the model's is refused") {
  const scratch_folder folder;
  const lora::config adapter{.rank = 2, .alpha = 4, .targets = {"q_proj", "up_proj"}, .alpha_pattern = {{"up_proj", 3.0}}, .dora = true};
  save_pretrained(llama<adapted_recipe>(sizes(), {}, {.adapter = adapter}), folder.path());
  const auto refuses = [&](auto&& change, const std::string& words) {
    lora::config c = adapter;
    change(c);
    llama<adapted_recipe> model(sizes(), {}, {.adapter = c});
    CHECK_THROWS_WITH_AS(load_adapter(model, folder.path()), doctest::Contains(words.c_str()), config_error);
  };
  refuses([](lora::config& c) { c.dora = false; }, "must be DoRA as the model's adapter is, or neither; the adapter is DoRA");
  refuses([](lora::config& c) { c.rank_stabilised = true; }, "the scale of 'model.layers.0.self_attn.q_proj' must be the model's");
  refuses([](lora::config& c) { c.alpha_pattern.clear(); },
          "the scale of 'model.layers.0.mlp.up_proj' must be the model's 2; the adapter has 1.5");
  refuses(
      [](lora::config& c) {
        c.rank_pattern = {{"up_proj", 3}};
        c.alpha_pattern = {{"up_proj", 4.5}};
      },
      "must have shape [3, 24]");
}

TEST_CASE("a published adapter's settings are read") {
  const std::string folder = test_data("formats/peft");
  if (folder.empty()) {
    MESSAGE("skipped: XTRAIN_TEST_DATA does not lead to adapters' settings");
    return;
  }
  const scratch_folder scratch;
  put_file(scratch / "adapter_config.json", get_file(folder + "/qwen2_adapter_config.json"));
  const lora::config c = adapter_config_of(scratch.path());
  CHECK(c.rank == 8);
  CHECK(c.alpha == 16);
  CHECK(c.targets.size() == 8);
  CHECK(c.adapts_table("model.embed_tokens"));
  CHECK(c.adapts("model.layers.3.mlp.gate_proj"));
}
