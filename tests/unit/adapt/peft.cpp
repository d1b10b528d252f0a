// Adapter folders: round trip of every setting and tensor, further files of PEFT, refusals.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/bloom.hpp>
#include <xtrain/models/mixtral.hpp>
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
/// Equal sums in another order: 25 consecutive sums of up to 96 products, relative error 2^-24 · sqrt(96), logits below 10: 25 · 6e-8 · 10 · 10.
constexpr double other_order = 1.5e-4;

/// A trained adapter is saved and loaded with the same base; merging does not change outputs.
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
  refused({{"target_parameters", {"experts.gate"}}, {"use_dora", true}}, "use_dora and lora_dropout must be off with target_parameters");
  refused({{"init_lora_weights", "mica"}, {"use_dora", true}}, "use_dora must be false with init_lora_weights 'mica'");
  refused({{"bias", "some"}}, "bias must be none, all or lora_only; given 'some'");
  refused({{"target_modules", nullptr}}, "'target_modules' or 'target_parameters' must name what is adapted; there are none");
  refused({{"target_modules", 5}}, "'target_modules' must be a list of module names; given 5");
  refused({{"modules_to_save", "lm_head"}}, "'modules_to_save' must be a list of module names");
  refused({{"rank_pattern", {{"q_proj", 0}}}}, "'rank_pattern': 'q_proj' must be a positive whole number; given 0");
  refused({{"rank_pattern", 3}}, "'rank_pattern': must be a JSON object");
  refused({{"alpha_pattern", {{"q_proj", "x"}}}}, "'q_proj' must be a number");
  refused({{"alpha_pattern", {{"q_proj", nullptr}}}}, "'q_proj' must be a number; given null");
  refused({{"layers_to_transform", -1}}, "'layers_to_transform' must be layers, counted from 0; given -1");
  refused({{"use_dora", 1}}, "'use_dora' must be true or false");
}

TEST_CASE("patterns count in the order of the file, and are written in theirs") {
  const scratch_folder folder;
  put_file(folder / "adapter_config.json", R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "other": {"rank_pattern": {"x": 1}},
    "rank_pattern": {"z?q_proj": 3, "a?q_proj": 5}, "alpha_pattern": {"q_proj": 6.0, ".*": 7.0}})");
  const lora::config c = adapter_config_of(folder.path());
  CHECK(c.rank_pattern == std::vector<std::pair<std::string, std::size_t>>{{"z?q_proj", 3}, {"a?q_proj", 5}});
  CHECK(c.rank_of("model.layers.0.self_attn.q_proj") == 3);
  CHECK(c.scale_of("model.layers.0.self_attn.q_proj") == 2.0);
  save_pretrained(llama<adapted_recipe>(sizes(), {}, {.adapter = c}), folder.path());
  CHECK(adapter_config_of(folder.path()) == c);
  const json text = parse_json(get_file(folder / "adapter_config.json"), "adapter_config.json");
  CHECK(text["rank_pattern"] == json{{"z?q_proj", 3}, {"a?q_proj", 5}});
  CHECK(text["alpha_pattern"] == json{{"q_proj", 6.0}, {".*", 7.0}});
}

TEST_CASE("of a MiCA adapter B stays as it was saved, and the rest is LoRA") {
  const scratch_folder folder, again;
  const lora::config plain{.rank = 2, .alpha = 4, .targets = {"q_proj", "down_proj"}};
  llama<adapted_recipe> model(sizes(), {}, {.adapter = plain});
  train(model, 2);  // B is not zero
  save_pretrained(model, folder.path());
  json config = parse_json(get_file(folder / "adapter_config.json"), "adapter_config.json");
  config["init_lora_weights"] = "mica";
  put_file(folder / "adapter_config.json", config.dump());
  const lora::config saved = adapter_config_of(folder.path());
  CHECK(saved.frozen_b);
  llama<adapted_recipe> trained(sizes(), {}, {.adapter = saved});
  load_adapter(trained, folder.path());
  CHECK(logits_of(trained) == logits_of(model));
  train(trained, 2);
  save_pretrained(trained, again.path());
  const safetensors_file before(folder / "adapter_model.safetensors"), after(again / "adapter_model.safetensors");
  CHECK(before.tensors().size() == after.tensors().size());
  for (const file_tensor& tensor : before.tensors())
    CHECK(same_values(tensor, *after.find(tensor.name)) == (tensor.name.find("lora_B") != std::string::npos));
  CHECK(adapter_config_of(again.path()) == saved);
  llama<plain_recipe> merged(sizes());
  merge_adapter(merged, again.path());
  CHECK(largest_difference(logits_of(merged), logits_of(trained)) < other_order);
  CHECK_THROWS_WITH_AS(load_adapter(model, folder.path()), doctest::Contains("B must be frozen in the model's adapter and in this one"), config_error);
}

TEST_CASE("an adapter of parameters that hold all experts is merged, expert by expert") {
  constexpr std::size_t hidden = 12, inner = 10, experts = 3;
  const decoder_config c{.vocab_size = 29, .hidden_size = hidden, .num_layers = 2, .num_heads = 2, .intermediate_size = inner,
                         .max_position_embeddings = 12, .num_experts = experts};
  using mixture = mixtral<plain_recipe>;
  const auto weight_of = [](const mixture& model, const std::string& name) {
    const auto values = model.parameters().value(*model.parameters().find(name)).host();
    return std::vector<float>(values.begin(), values.end());
  };
  const scratch_folder folder;
  // PEFT wraps the module once per parameter, the first name innermost
  const auto write = [&](const std::string& gate_up, const std::string& down, json config, std::size_t rank_of_gate_up) {
    std::vector<file_tensor> tensors;
    std::vector<std::vector<float>> values;
    values.reserve(8);
    const auto add = [&](const std::string& module, const char* matrix, std::size_t rows, std::size_t columns) {
      values.emplace_back();
      for (std::size_t i = 0; i < rows * columns; ++i) values.back().push_back(static_cast<float>((i * 7 + values.size() * 3) % 11) * 0.1F - 0.5F);
      tensors.push_back({.name = "base_model.model.model.layers.1." + module + matrix, .dtype = "F32", .shape = {rows, columns},
                         .bytes = std::as_bytes(std::span(values.back()))});
    };
    const std::size_t all_ranks = rank_of_gate_up * experts;
    if (!gate_up.empty()) add(gate_up, ".lora_A.weight", all_ranks, hidden), add(gate_up, ".lora_B.weight", 2 * inner, all_ranks);
    if (!down.empty()) add(down, ".lora_A.weight", 2 * experts, inner), add(down, ".lora_B.weight", hidden, 2 * experts);
    std::vector<tensor_to_write> all;
    for (const file_tensor& tensor : tensors) all.push_back(rewritten(tensor, "F32"));
    write_safetensors(folder / "adapter_model.safetensors", std::move(all));
    config.update({{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 8}, {"target_modules", json::array()}});
    put_file(folder / "adapter_config.json", config.dump());
  };
  const auto check = [&](const std::string& gate_up, const std::string& down, std::size_t rank_of_gate_up, double scale_of_gate_up) {
    mixture base(c), merged(c);
    merge_adapter(merged, folder.path());
    const safetensors_file file(folder / "adapter_model.safetensors");
    for (std::size_t e = 0; e < experts; ++e)
      for (const char* w : {"w1", "w2", "w3"}) {
        const bool is_down = std::string(w) == "w2";
        const std::size_t rows = is_down ? hidden : inner, columns = is_down ? inner : hidden, rank = is_down ? 2 : rank_of_gate_up;
        const std::string name = concat("model.layers.1.block_sparse_moe.experts.", e, ".", w, ".weight"), module = is_down ? down : gate_up;
        std::vector<float> expected = weight_of(base, name);
        if (!module.empty()) {
          std::vector<float> a(rank * experts * columns), b((is_down ? 1 : 2) * rows * rank * experts);
          read_numbers<float>(*file.find(concat("base_model.model.model.layers.1.", module, ".lora_A.weight")), 0, a);
          read_numbers<float>(*file.find(concat("base_model.model.model.layers.1.", module, ".lora_B.weight")), 0, b);
          const std::size_t first = std::string(w) == "w3" ? inner : 0;
          for (std::size_t o = 0; o < rows; ++o)  // einsum("o r e, e r i -> e o i") of PEFT
            for (std::size_t i = 0; i < columns; ++i) {
              double sum = 0;
              for (std::size_t r = 0; r < rank; ++r)
                sum += static_cast<double>(b[((first + o) * rank + r) * experts + e]) * static_cast<double>(a[(e * rank + r) * columns + i]);
              expected[o * columns + i] += static_cast<float>((is_down ? 4.0 : scale_of_gate_up) * sum);
            }
        }
        // at most 5 products below 1, times 4: 20 · 2^-23
        CHECK(largest_difference(weight_of(merged, name), expected) < 3e-6);
      }
    CHECK(weight_of(merged, "model.layers.0.block_sparse_moe.experts.0.w1.weight") == weight_of(base, "model.layers.0.block_sparse_moe.experts.0.w1.weight"));
  };
  const char *outer = "mlp.experts", *within = "mlp.experts.base_layer";
  const json both{{"target_parameters", {"layers.1.mlp.experts.gate_up_proj", "layers.1.mlp.experts.down_proj"}}};
  json doubled = both;  // PEFT's own conversion of w1, w2, w3 of rank 2
  doubled.update({{"rank_pattern", {{".*\\.gate_up_proj", 4}}}, {"alpha_pattern", {{".*\\.gate_up_proj", 16}}}});
  write(within, outer, both, 2);
  check(within, outer, 2, 4.0);
  write(outer, within, both, 2);  // wrapped the other way round
  check(outer, within, 2, 4.0);
  write(within, outer, doubled, 4);
  check(within, outer, 4, 4.0);
  write("", outer, {{"target_parameters", {"layers.1.mlp.experts.down_proj"}}}, 2);
  check("", outer, 2, 4.0);
  write(outer, "", {{"target_parameters", {"layers.1.mlp.experts.gate_up_proj"}}, {"rank_pattern", {{"gate_up_proj", 5}}}}, 5);
  check(outer, "", 5, 8.0 / 5.0);

  // PEFT before 0.19 read the parameter as [experts, in, out]: the product is transposed
  json old = both;
  old["peft_version"] = "0.18.1";
  write(within, outer, both, 2);
  mixture now(c), before(c);
  merge_adapter(now, folder.path());
  {
    const scratch_folder turned;
    const safetensors_file file(folder / "adapter_model.safetensors");
    std::vector<file_tensor> tensors;
    std::vector<std::vector<float>> values;
    values.reserve(4);
    const auto put = [&](const std::string& name, std::size_t rows, std::size_t columns, const std::function<float(std::size_t, std::size_t)>& at) {
      values.emplace_back();
      for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) values.back().push_back(at(i, j));
      tensors.push_back({.name = name, .dtype = "F32", .shape = {rows, columns}, .bytes = std::as_bytes(std::span(values.back()))});
    };
    for (const char* module : {within, outer}) {
      const std::string layer = "base_model.model.model.layers.1.", a = concat(layer, module, ".lora_A.weight"), b = concat(layer, module, ".lora_B.weight");
      const std::vector<std::size_t> of_a = file.find(a)->shape, of_b = file.find(b)->shape;
      std::vector<float> from_a(of_a[0] * of_a[1]), from_b(of_b[0] * of_b[1]);
      read_numbers<float>(*file.find(a), 0, from_a);
      read_numbers<float>(*file.find(b), 0, from_b);
      // row e · rank + r corresponds to column r · experts + e
      put(a, of_a[0], of_b[0], [&](std::size_t i, std::size_t j) { return from_b[j * of_b[1] + i % 2 * experts + i / 2]; });
      put(b, of_a[1], of_b[1], [&](std::size_t i, std::size_t j) { return from_a[(j % experts * 2 + j / experts) * of_a[1] + i]; });
    }
    std::vector<tensor_to_write> all;
    for (const file_tensor& tensor : tensors) all.push_back(rewritten(tensor, "F32"));
    write_safetensors(turned / "adapter_model.safetensors", std::move(all));
    put_file(turned / "adapter_config.json", [&] {
      old.update({{"peft_type", "LORA"}, {"r", 2}, {"lora_alpha", 8}, {"target_modules", json::array()}});
      return old.dump();
    }());
    merge_adapter(before, turned.path());
  }
  for (const char* w : {"w1", "w2", "w3"}) {
    const std::string name = concat("model.layers.1.block_sparse_moe.experts.2.", w, ".weight");
    CHECK(weight_of(before, name) == weight_of(now, name));
  }

  mixture model(c);
  const auto refuses = [&](const char* words) { CHECK_THROWS_WITH_AS(merge_adapter(model, folder.path()), doctest::Contains(words), config_error); };
  write(outer, "", both, 2);
  refuses("must hold the adapter of 'model.layers.1.block_sparse_moe.experts.0.w2'");
  write(within, outer, both, 4);
  refuses("the adapter of 'model.layers.1.mlp.experts.gate_up_proj' must have shapes [6, 12] and [20, 6]");
  write(within, outer, {{"target_parameters", {"layers.1.mlp.experts.down_proj"}}}, 2);
  refuses("must be of a target of its adapter_config.json; it is of none");
  CHECK_THROWS_WITH_AS(mixtral<adapted_recipe>(c, {}, {.adapter = adapter_config_of(folder.path())}),
                       doctest::Contains("an adapter of parameters (target_parameters: 'layers.1.mlp.experts.down_proj') must be merged into the model"),
                       config_error);
}

TEST_CASE("a module to save may be in the file under the names that PEFT gives its copies") {
  const scratch_folder folder;
  const lora::config adapter{.rank = 2, .targets = {"q_proj"}, .modules_to_save = {"embed_tokens", "lm_head"}};
  llama<adapted_recipe> model(sizes(), {}, {.adapter = adapter});
  train(model, 2);
  save_pretrained(model, folder.path());
  const auto rename = [&](const std::function<void(std::vector<tensor_to_write>&)>& change) {
    const scratch_folder written;
    {
      const safetensors_file file(folder / "adapter_model.safetensors");
      std::vector<tensor_to_write> tensors;
      for (const file_tensor& tensor : file.tensors()) tensors.push_back(rewritten(tensor, "F32"));
      change(tensors);
      write_safetensors(written / "x.safetensors", std::move(tensors));
    }
    put_file(folder / "adapter_model.safetensors", get_file(written / "x.safetensors"));
  };
  const auto is_head = [](const tensor_to_write& one) { return one.name == "base_model.model.lm_head.weight"; };
  const auto check = [&] {
    llama<plain_recipe> merged(sizes());
    merge_adapter(merged, folder.path());
    CHECK(largest_difference(logits_of(merged), logits_of(model)) < other_order);
  };
  rename([&](std::vector<tensor_to_write>& tensors) {
    for (const char* more : {"modules_to_save", "original_module"}) {
      tensors.push_back(*std::find_if(tensors.begin(), tensors.end(), is_head));
      tensors.back().name = concat("base_model.model.lm_head.", more, ".weight");
    }
  });
  check();
  rename([&](std::vector<tensor_to_write>& tensors) { tensors.erase(std::find_if(tensors.begin(), tensors.end(), is_head)); });
  check();
}

TEST_CASE("an adapter of a head that the model ties is refused, and the tie is named") {
  const scratch_folder folder;
  llama<adapted_recipe> untied(sizes(false), {}, {.adapter = {.rank = 2, .targets = {"q_proj", "lm_head"}}});
  save_pretrained(untied, folder.path());
  llama<plain_recipe> tied(sizes(true));
  CHECK_THROWS_WITH_AS(merge_adapter(tied, folder.path()),
                       doctest::Contains("adapts 'lm_head' ('base_model.model.lm_head.lora_A.weight'), which must have a weight of its own; in this model "
                                         "it is tied to 'model.embed_tokens' (tie_word_embeddings is true)"),
                       config_error);
  lora::config pattern;
  pattern.target_pattern = ".*(q_proj|lm_head)";
  CHECK_THROWS_WITH_AS(llama<adapted_recipe>(sizes(true), {}, {.adapter = pattern}), doctest::Contains("it is tied to 'model.embed_tokens'"), config_error);
}

TEST_CASE("an adapter that changes one of an embedding and the head that is tied to it is refused") {
  const scratch_folder folder;
  lora::config saves{.rank = 2, .targets = {"q_proj"}, .modules_to_save = {"embed_tokens"}};
  llama<adapted_recipe> untied(sizes(false), {}, {.adapter = saves});
  save_pretrained(untied, folder.path());  // PEFT's files of a tied model by default
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
