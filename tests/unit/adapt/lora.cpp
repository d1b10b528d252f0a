// LoRA: computation, training, files. Gradients are checked with the layers'.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/io.hpp>
#include <xtrain/io/rewrite.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include "golden.hpp"
#include "scratch.hpp"
#include "small_decoder.hpp"

using namespace xtrain;

namespace {

using small_decoder::data;

struct plain_recipe : defaults {};
struct adapted_recipe : defaults {
  using adapter = lora;
};
using plain_model = llama<plain_recipe>;
using lora_model = llama<adapted_recipe>;

decoder_config sizes(std::size_t width = 24) {
  return {.vocab_size = 29,
          .hidden_size = width,
          .num_layers = 2,
          .num_heads = 2,
          .num_kv_heads = 1,
          .intermediate_size = 40,
          .max_position_embeddings = 12,
          .tie_word_embeddings = false,
          .initializer_range = 0.1};
}

const std::vector<std::string> all_linear{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};

template <class Model>
std::vector<float> logits_of(Model& model) {
  array<token, 2> tokens(shape_of_rank<2>{3, 9});
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens.data()[i] = static_cast<token>((i * i + 3) % 29);
  const auto logits_btv = logits(model, tokens);
  return {logits_btv.begin(), logits_btv.end()};
}

/// Concatenated values of the parameters whose names end in `ending`.
template <class Model>
std::vector<float> values_of(const Model& model, const std::string& ending) {
  std::vector<float> all;
  for (const auto& entry : model.parameters().entries()) {
    if (!entry.spec.name.ends_with(ending)) continue;
    const auto values = model.parameters().value(entry).host();
    all.insert(all.end(), values.begin(), values.end());
  }
  REQUIRE(!all.empty());
  return all;
}

/// An adapter with an effect: B is nonzero.
lora_model trained_model(const lora::config& adapter, std::size_t steps = 10) {
  lora_model model(sizes(), {}, {.adapter = adapter});
  trainer trainer(model, {.max_steps = steps, .micro_batch_size = 8, .learning_rate = 3e-2});
  trainer.fit(data());
  return model;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

/// Two ways to compute W·x + scale·B·A·x: sums of up to 40 products have relative error 2^-24 · sqrt(40); some 20 consecutive sums, logits below 10: 20 · 6e-8
/// · 6.3 · 10.
constexpr double other_order = 7.6e-5;

void refused(const lora::config& adapter, const std::string& message) {
  CHECK_THROWS_WITH_AS(lora_model(sizes(), {}, {.adapter = adapter}), message.c_str(), config_error);
}

}  // namespace

TEST_CASE("a fresh adapter changes nothing, bit for bit, whatever its rank, scale and targets") {
  plain_model base(sizes());
  const std::vector<float> expected = logits_of(base);
  for (const lora::config& adapter : {lora::config{}, lora::config{.rank = 3, .alpha = 50, .targets = all_linear},
                                      lora::config{.rank = 1, .dropout = 0.5, .modules_to_save = {"lm_head"}}}) {
    lora_model model(sizes(), {}, {.adapter = adapter});
    CHECK(logits_of(model) == expected);
    for (const float b : values_of(model, ".lora_B.weight")) REQUIRE(b == 0.0f);
    // uniform in ±1/sqrt(in): the largest of hundreds of draws is near the bound, and the mean square is a third of its square
    const std::vector<float> a = values_of(model, "layers.0.self_attn.q_proj.lora_A.weight");
    for (const float x : a) REQUIRE(std::abs(x) <= 1.0 / std::sqrt(24.0));
    CHECK(*std::max_element(a.begin(), a.end()) > 0.7 / std::sqrt(24.0));
  }
}

TEST_CASE("the adapted model is the base model with alpha / rank * B * A added to its weights") {
  const lora::config adapter{.rank = 3, .alpha = 7, .targets = all_linear};
  lora_model model = trained_model(adapter);
  CHECK(model.parameter<2>("model.layers.1.mlp.down_proj.lora_A.weight").shape() == shape_of_rank<2>{3, 40});
  CHECK(model.parameter<2>("model.layers.1.mlp.down_proj.lora_B.weight").shape() == shape_of_rank<2>{24, 3});
  plain_model by_hand(sizes());
  for (const auto& entry : by_hand.parameters().entries()) {
    const std::string module = entry.spec.name.substr(0, entry.spec.name.rfind('.'));
    if (model.parameters().find(module + ".lora_A.weight") == nullptr) continue;
    const auto a_ri = as_xtensor(model.parameter<2>(module + ".lora_A.weight"));
    const auto b_or = as_xtensor(model.parameter<2>(module + ".lora_B.weight"));
    auto w_oi = as_xtensor(by_hand.parameter<2>(entry.spec.name));
    for (std::size_t o = 0; o < entry.spec.shape[0]; ++o) {
      for (std::size_t i = 0; i < entry.spec.shape[1]; ++i) {
        double update = 0;
        for (std::size_t r = 0; r < 3; ++r) update += static_cast<double>(b_or(o, r)) * static_cast<double>(a_ri(r, i));
        w_oi(o, i) = static_cast<float>(static_cast<double>(w_oi(o, i)) + 7.0 / 3.0 * update);
      }
    }
  }
  plain_model base(sizes());
  const std::vector<float> found = logits_of(model), before = logits_of(base);
  CHECK(largest_difference(found, before) > 1000 * other_order);  // training has moved it
  CHECK(largest_difference(found, logits_of(by_hand)) < other_order);
}

namespace {

struct fp64_recipe : adapted_recipe {
  using precision = fp64;
};
/// A head with an adapter, and its pass.
struct adapted_head {
  using numbers = std::vector<double>;
  cpu::context on;
  cpu::stream stream{on};
  parameter_store<cpu, fp64> store{on};
  lora::config settings;
  std::size_t n, inputs, vocabulary;
  std::optional<vocab_parallel_head<fp64_recipe>> head;
  single::state<cpu> parallel{single::config{}};
  stash<cpu> kept{on, std::size_t{1} << 20};
  arena<cpu> workspace{on, std::size_t{1} << 26, memory_role::workspace};
  std::vector<token> targets;

  adapted_head(const lora::config& adapter, std::size_t tokens, std::size_t width, std::size_t words, bool is_adapted = true)
      : settings(adapter), n(tokens), inputs(width), vocabulary(words), targets(tokens) {
    builder<fp64_recipe> build(store, settings);
    const parameter weight = build.matrix({{"lm_head", words}}, width, initial_values::normal(1.0));
    vocab_parallel_head<fp64_recipe>::adapter_type own;
    if (is_adapted) own.declare(build, module_part{"lm_head", words}, input_part{width});
    head.emplace(weight, vocab_parallel_head<fp64_recipe>::options{.vocab_size = words, .adapter = own});
    store.allocate();
    store.allocate_gradients();
  }
  void set(const std::string& name, const numbers& values) { store.set(stream, *store.find(name), std::span<const double>(values)); }
  [[nodiscard]] numbers gradient(const std::string& name) {
    const auto values = store.gradient(*store.find(name)).host();
    return {values.begin(), values.end()};
  }
  [[nodiscard]] static matrix_view<double, host_memory> of(numbers& values, std::size_t columns) {
    return {span_of(std::span<double>(values)), {values.size() / columns, columns}};
  }
  template <class Use>
  void with_pass(Use&& use) {
    pass<fp64_recipe> p({stream, workspace, on.properties()}, store, kept, parallel);
    p.batch.b = 1;
    p.batch.t = n;
    p.batch.targets_n = {span_of(std::span<const token>(targets)), {n}};
    use(p);
  }
  /// Losses and dx; the gradients are in the store.
  void run(numbers& x, double scale, numbers& losses, numbers& dx) {
    losses.assign(n, 0.0);
    with_pass([&](auto& p) {
      p.gradient_scale = scale;
      fill_zero(stream, store.gradients());
      head->forward(p, of(x, inputs), {span_of(std::span<double>(losses)), {n}});
      const auto d = head->backward(p, n, inputs).span().host();
      dx.assign(d.begin(), d.end());
    });
  }
};
double most_apart(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

}  // namespace

TEST_CASE("logits, losses and gradients of a head with an adapter are torchtune's") {
  const safetensors_file file(golden::folder("head_lora") + "/expected.safetensors");
  adapted_head one({.rank = 2, .alpha = 3.0, .targets = {"lm_head"}}, 7, 8, 13);
  one.set("lm_head.weight", golden::numbers(file, "w"));
  one.set("lm_head.lora_A.weight", golden::numbers(file, "a"));
  one.set("lm_head.lora_B.weight", golden::numbers(file, "b"));
  one.targets = {3, -1, 0, 12, 7, -1, 5};
  auto x = golden::numbers(file, "x");
  std::vector<double> losses, dx, logits(7 * 13);
  one.run(x, 1.0 / 5.0, losses, dx);
  // sums of up to 13 products below 10, in another order: 13 · 2^-53 · 100
  constexpr double bound = 2e-13;
  CHECK(most_apart(losses, golden::numbers(file, "losses")) < bound);
  CHECK(most_apart(dx, golden::numbers(file, "dx")) < bound);
  CHECK(most_apart(one.gradient("lm_head.lora_A.weight"), golden::numbers(file, "da")) < bound);
  CHECK(most_apart(one.gradient("lm_head.lora_B.weight"), golden::numbers(file, "db")) < bound);
  one.with_pass([&](auto& p) {
    one.head->logits(p, adapted_head::of(x, 8), adapted_head::of(logits, 13));
    CHECK(most_apart(logits, golden::numbers(file, "logits")) < bound);
    p.internal.without_adapter = true;  // the base model: reference of preference training
    one.head->logits(p, adapted_head::of(x, 8), adapted_head::of(logits, 13));
    CHECK(most_apart(logits, golden::numbers(file, "logits")) > 0.1);
  });
}

TEST_CASE("a head's adapter is computed a chunk of tokens at a time, the same as in the weight") {
  constexpr std::size_t n = 1100, c = 3, v = 2100, r = 2;  // chunks of 512 tokens
  const double scale = 1.5;
  adapted_head apart({.rank = r, .alpha = scale * r, .targets = {"lm_head"}}, n, c, v), merged({.targets = {"none"}}, n, c, v, false);
  const auto drawn = [](std::size_t count, std::uint32_t site) {
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = std::sin(static_cast<double>(i * i % 9973) + site);
    return values;
  };
  const auto w = drawn(v * c, 1), a = drawn(r * c, 2), b = drawn(v * r, 3);
  auto x = drawn(n * c, 4), sum = w;
  for (std::size_t o = 0; o < v; ++o)
    for (std::size_t i = 0; i < c; ++i)
      for (std::size_t k = 0; k < r; ++k) sum[o * c + i] += scale * b[o * r + k] * a[k * c + i];
  apart.set("lm_head.weight", w);
  apart.set("lm_head.lora_A.weight", a);
  apart.set("lm_head.lora_B.weight", b);
  merged.set("lm_head.weight", sum);
  for (std::size_t i = 0; i < n; ++i) apart.targets[i] = merged.targets[i] = i % 7 == 0 ? -1 : static_cast<token>(i * 31 % v);
  std::vector<double> losses, dx, expected_losses, expected_dx;
  apart.run(x, 0.01, losses, dx);
  merged.run(x, 0.01, expected_losses, expected_dx);
  constexpr double bound = 1e-12;  // sums of 2100 products below 10, in another order: sqrt(2100) · 2^-53 · 100
  CHECK(most_apart(losses, expected_losses) < bound);
  CHECK(most_apart(dx, expected_dx) < bound);
  CHECK(losses[0] == 0.0);
}

TEST_CASE("a head that is named gets an adapter, which is saved, merged and left out as others are") {
  const lora::config adapter{.rank = 3, .alpha = 7, .targets = {"q_proj", "lm_head"}};
  lora_model model = trained_model(adapter);
  CHECK(model.parameter<2>("lm_head.lora_B.weight").shape() == shape_of_rank<2>{29, 3});
  const auto b = values_of(model, "lm_head.lora_B.weight");
  CHECK(std::any_of(b.begin(), b.end(), [](float one) { return one != 0.0F; }));
  const std::vector<float> expected = logits_of(model);
  const scratch_folder folder;
  plain_model base(sizes());
  save_pretrained(base, folder / "base");
  save_pretrained(model, folder / "adapter", save_adapter_options{});
  CHECK(read_json(folder / "adapter/adapter_config.json").at("target_modules") == json::array({"q_proj", "lm_head"}));
  lora_model again(sizes(), {}, {.adapter = adapter_config_of(folder / "adapter")});
  load_adapter(again, folder / "adapter");
  CHECK(logits_of(again) == expected);
  // PEFT writes the head, too
  {
    const safetensors_file own(folder / "adapter/adapter_model.safetensors"), weights(folder / "base/model.safetensors");
    std::vector<tensor_to_write> tensors;
    for (const file_tensor& tensor : own.tensors()) tensors.push_back(rewritten(tensor, tensor.dtype));
    tensors.push_back(rewritten(*weights.find("lm_head.weight"), "F32"));
    tensors.back().name = "base_model.model.lm_head.base_layer.weight";
    std::filesystem::create_directories(folder / "peft");
    write_safetensors(folder / "peft/adapter_model.safetensors", std::move(tensors));
    put_file(folder / "peft/adapter_config.json", std::string(mapped_file(folder / "adapter/adapter_config.json").text()));
  }
  lora_model of_peft(sizes(), {}, {.adapter = adapter});
  load_adapter(of_peft, folder / "peft");
  CHECK(logits_of(of_peft) == expected);
  merge_adapter(again);
  CHECK(largest_difference(logits_of(again), expected) < other_order);
  merge_adapter(base, folder / "adapter");
  CHECK(largest_difference(logits_of(base), expected) < other_order);

  decoder_config tied = sizes();
  tied.tie_word_embeddings = true;
  CHECK_THROWS_WITH_AS(lora_model(tied, {}, {.adapter = adapter}),
                       doctest::Contains("lora: 'lm_head' must have a weight of its own to be adapted; it is tied to 'model.embed_tokens' "
                                         "(tie_word_embeddings is true)"),
                       config_error);
  refused({.targets = {"lm_head"}, .dora = true}, "lora: the head must not be decomposed (DoRA); 'lm_head' is a target");
}

TEST_CASE("merging leaves the computed numbers where they are, and merging again changes nothing") {
  lora_model model = trained_model({.rank = 3, .alpha = 7, .targets = {"q_proj", "gate_proj", "down_proj"}});
  const std::vector<float> before = logits_of(model), k_before = values_of(model, "k_proj.weight"),
                           q_before = values_of(model, "q_proj.weight");
  merge_adapter(model);
  const std::vector<float> merged = logits_of(model);
  CHECK(largest_difference(before, merged) < other_order);
  CHECK(values_of(model, "k_proj.weight") == k_before);  // no adapter
  CHECK(values_of(model, "q_proj.weight") != q_before);
  for (const float b : values_of(model, ".lora_B.weight")) REQUIRE(b == 0.0f);
  merge_adapter(model);
  CHECK(logits_of(model) == merged);
}

TEST_CASE("a model that its adapter was merged into is not saved as an adapter, which would lose the change") {
  lora_model model = trained_model({.rank = 3, .alpha = 7, .targets = {"q_proj"}});
  const scratch_folder folder;
  save_pretrained(model, folder / "adapter");
  merge_adapter(model);
  CHECK_THROWS_WITH_AS(save_pretrained(model, folder / "merged"), doctest::Contains("merged: an adapter must be saved before it is merged"), config_error);
  CHECK_FALSE(std::filesystem::exists(folder / "merged"));
  llama<defaults> plain(sizes());
  save_pretrained(plain, folder / "base");
  load_weights(model, folder / "base");  // restores the base model's weights
  CHECK_NOTHROW(save_pretrained(model, folder / "merged"));
}

TEST_CASE("frozen weights have no gradient and no optimizer state, and stay as they are") {
  lora_model model(sizes(), {}, {.adapter = {.rank = 4, .targets = {"q_proj"}}});
  trainer trainer(model, {.max_steps = 3, .micro_batch_size = 8, .learning_rate = 1e-2});
  const std::size_t trained = 2 * 4 * (24 + 24);  // two layers; A and B fill 32-element lines
  CHECK(model.parameters().trained_count() == trained);
  CHECK(model.context().memory().of(memory_role::gradients) == trained * sizeof(float));
  CHECK(model.context().memory().of(memory_role::optimizer) == 2 * trained * sizeof(float));
  std::size_t arrays = 0;
  trainer.visit_optimizer([&](std::string_view, auto span) {
    ++arrays;
    CHECK(span.size() == trained);
  });
  CHECK(arrays == 2);
  for (const auto& entry : model.parameters().entries()) {
    CAPTURE(entry.spec.name);
    CHECK(entry.spec.trainable == lora::is_own(entry.spec.name));
    CHECK(model.parameters().gradient(entry).empty() != lora::is_own(entry.spec.name));
  }
  trainer.fit(data());
  plain_model base(sizes());
  for (const auto& entry : base.parameters().entries()) {
    const auto a = base.parameters().value(entry).host(), b = model.parameters().value(*model.parameters().find(entry.spec.name)).host();
    CAPTURE(entry.spec.name);
    CHECK(std::equal(a.begin(), a.end(), b.begin()));
  }
  for (const char* own : {".lora_A.weight", ".lora_B.weight"})
    CHECK(values_of(model, own) != values_of(lora_model(sizes(), {}, {.adapter = {.rank = 4, .targets = {"q_proj"}}}), own));
}

TEST_CASE("an adapter learns") {
  lora_model model(sizes(), {}, {.adapter = {.rank = 4, .targets = all_linear}});
  const double before = perplexity(model, data()).loss;
  trainer trainer(model, {.max_steps = 40, .micro_batch_size = 8, .learning_rate = 3e-2});
  trainer.fit(data());
  CHECK(perplexity(model, data()).loss < 0.8 * before);
}

TEST_CASE("modules to save are trained beside the adapter, and nothing else is") {
  const lora::config adapter{.rank = 2, .targets = {"v_proj"}, .modules_to_save = {"lm_head", "post_attention_layernorm"}};
  lora_model model = trained_model(adapter);
  plain_model base(sizes());
  for (const char* saved : {"lm_head.weight", "post_attention_layernorm.weight"}) CHECK(values_of(model, saved) != values_of(base, saved));
  for (const char* frozen : {"embed_tokens.weight", "v_proj.weight", "input_layernorm.weight", "model.norm.weight"})
    CHECK(values_of(model, frozen) == values_of(base, frozen));
}

TEST_CASE("dropout of the adapter's input is drawn while training and never otherwise") {
  // B must be nonzero for an effect
  lora::config adapter{.rank = 3, .alpha = 9, .targets = all_linear};
  const lora_model trained = trained_model(adapter);
  const auto copy_with = [&](double dropout) {
    adapter.dropout = dropout;
    lora_model model(sizes(), {}, {.adapter = adapter});
    const auto from = trained.parameters().trained_values().host();
    std::copy(from.begin(), from.end(), model.parameters().trained_values().host().begin());
    return model;
  };
  lora_model without = copy_with(0.0), with = copy_with(0.5);
  CHECK(logits_of(without) == logits_of(with));
  CHECK(perplexity(without, data()).loss == perplexity(with, data()).loss);
  // a step's loss is the forward's, before the update
  const auto loss_of_step = [&](lora_model& model, std::uint64_t seed) {
    trainer trainer(model, {.max_steps = 1, .micro_batch_size = 8, .shuffle = false, .seed = seed});
    loader rows(data(), trainer.loader_settings());
    return trainer.step(rows.next(), 0.0).loss;
  };
  const double evaluated = perplexity(without, data()).loss;
  // equal losses of sequences, summed in another order: some hundred terms, sqrt(256) · 2^-24 = 1e-6 of the sum
  CHECK(loss_of_step(without, 1) == doctest::Approx(evaluated).epsilon(1e-6));
  CHECK(std::abs(loss_of_step(with, 1) - evaluated) > 1e-3);
  CHECK(loss_of_step(with, 1) == loss_of_step(with, 1));
  CHECK(loss_of_step(with, 1) != loss_of_step(with, 2));
}

TEST_CASE("LoRA+: B has a multiple of the learning rate, an embedding's adapter a rate of its own") {
  lora::config adapter{.rank = 4, .targets = {"q_proj", "down_proj", "embed_tokens"}};
  const auto after = [&](std::size_t steps, double ratio, double embedding = 1e-6) {
    lora_model model(sizes(), {}, {.adapter = adapter});
    // constant rate without warmup; AdamW's first step is the rate times the gradient's sign
    trainer trainer(model, {.max_steps = steps,
                            .micro_batch_size = 8,
                            .learning_rate = 0x1p-7,
                            .lr_schedule = lr_schedule_kind::constant,
                            .max_grad_norm = 0,
                            .loraplus_lr_ratio = ratio,
                            .loraplus_lr_embedding = embedding});
    trainer.fit(data());
    return model;
  };
  const lora_model plain = after(1, 0), same = after(1, 1, 0x1p-7), sixteen = after(1, 16, 0x1p-9);
  for (const char* name : {".lora_A.weight", ".lora_B.weight", ".lora_embedding_A", ".lora_embedding_B"})
    CHECK(values_of(plain, name) == values_of(same, name));
  CHECK(values_of(plain, ".lora_A.weight") == values_of(sixteen, ".lora_A.weight"));  // B is zero: A only decays
  const auto b = values_of(plain, ".lora_B.weight"), b16 = values_of(sixteen, ".lora_B.weight");
  const auto a = values_of(plain, ".lora_embedding_A"), a_quarter = values_of(sixteen, ".lora_embedding_A");
  for (std::size_t i = 0; i < b.size(); ++i) CHECK(b16[i] == 16 * b[i]);  // powers of two: exact
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(4 * a_quarter[i] == a[i]);
  CHECK(values_of(after(3, 0), ".lora_A.weight") != values_of(after(3, 16, 0x1p-7), ".lora_A.weight"));
  // the factors of the last trainer count
  lora_model model(sizes(), {}, {.adapter = adapter});
  const trainer with(model, {.loraplus_lr_ratio = 16});
  const trainer without(model, {});
  for (const parameter_slice& run : model.parameters().parameter_slices()) CHECK(run.learning_rate_factor == 1.0);
  plain_model base(sizes());
  CHECK_THROWS_WITH_AS(trainer(base, {.loraplus_lr_ratio = 16}),
                       "loraplus_lr_ratio: there must be a LoRA adapter (lora or qlora) with a B to give another learning rate; the model has none",
                       config_error);
  CHECK_THROWS_WITH_AS(trainer(model, {.loraplus_lr_ratio = -1}), "loraplus_lr_ratio: must be non-negative; given -1", config_error);
  CHECK_THROWS_WITH_AS(trainer(model, {.loraplus_lr_embedding = 1e-4}), doctest::Contains("loraplus_lr_embedding: needs a loraplus_lr_ratio"),
                       config_error);
}

TEST_CASE("LoRA+ goes on where it was stopped, bit for bit") {
  const scratch_folder folder;
  const lora::config adapter{.rank = 3, .targets = all_linear};
  const training_config<adamw> settings{.max_steps = 6, .micro_batch_size = 4, .learning_rate = 1e-2, .loraplus_lr_ratio = 8, .neftune_noise_alpha = 5};
  lora_model whole(sizes(), {}, {.adapter = adapter});
  trainer through(whole, settings);
  checkpoint_folder written(through, folder.path(), {.save_steps = 3});
  through.attach(written);
  through.fit(data());
  lora_model model(sizes(), {}, {.adapter = adapter});
  trainer again(model, settings);
  checkpoint_folder(again, folder.path()).resume_from(folder / "checkpoint-3");
  again.fit(data());
  CHECK(values_of(model, ".weight") == values_of(whole, ".weight"));
}

TEST_CASE("NEFTune: uniform noise of magnitude alpha / sqrt(L * hidden_size) on real tokens, a function of seed, step, sequence and element") {
  lora_model model(sizes(), {}, {.adapter = {.rank = 2, .targets = {"v_proj"}}});
  const std::size_t c = sizes().hidden_size;
  const auto noise_of = [&](std::size_t first_sequence, const std::vector<std::size_t>& lengths, std::size_t t, std::uint32_t step) {
    host_batch rows{.b = lengths.size(), .t = t};
    rows.first_sequence = first_sequence;
    for (std::size_t s = 0; s < lengths.size(); ++s)
      for (std::size_t i = 0; i < t; ++i) rows.starts.push_back(i < lengths[s] ? 0 : static_cast<token>(lengths[s]));
    rows.tokens.assign(rows.b * t, 1);
    rows.targets.assign(rows.b * t, -1);
    rows.positions.assign(rows.b * t, 0);
    pass_memory<lora_model> memory(model, {});
    const batch_memory<cpu> batch(model.context(), rows.b * t);
    auto p = memory.new_pass(pass_mode::training);
    p.batch = batch.upload(model.stream(), rows);
    p.random = {.seed = 4, .step = step};
    p.internal.neftune_noise_alpha = 3;
    std::vector<float> y(rows.b * t * c, 0.0f);
    detail::add_neftune_noise(p, matrix_view<float, host_memory>(span_of(std::span<float>(y)), {rows.b * t, c}));
    return y;
  };
  const auto y = noise_of(6, {5, 8}, 8, 1);
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t sequence = i / (8 * c), length = sequence == 0 ? 5 : 8;
    const double scaled = static_cast<double>(y[i]) * std::sqrt(static_cast<double>(length * c)) / 3;
    if (i % (8 * c) >= length * c) CHECK(y[i] == 0.0f);  // padding
    CHECK(std::abs(scaled) <= 1.0 + 1e-6);
    sum += scaled;
    squares += scaled * scaled;
  }
  const double n = 13.0 * static_cast<double>(c);
  CHECK(std::abs(sum / n) < 4 * std::sqrt(1.0 / 3 / n));                   // four standard deviations of the mean
  CHECK(squares / n == doctest::Approx(1.0 / 3).epsilon(4 * std::sqrt(0.8 / n)));  // and of the mean square
  // alone, in another micro-batch, with other padding
  const auto alone = noise_of(7, {8}, 10, 1);
  CHECK(std::equal(alone.begin(), alone.begin() + static_cast<std::ptrdiff_t>(8 * c), y.begin() + static_cast<std::ptrdiff_t>(8 * c)));
  CHECK(noise_of(6, {5, 8}, 8, 2) != y);
}

TEST_CASE("NEFTune's noise is drawn while training and never otherwise; sequences must not be packed") {
  const auto loss_of_step = [&](double alpha, std::size_t micro_batch, std::uint64_t seed, double* evaluated = nullptr) {
    lora_model model(sizes(), {}, {.adapter = {.rank = 2, .targets = {"v_proj"}}});
    trainer trainer(model, {.max_steps = 1,
                            .micro_batch_size = micro_batch,
                            .gradient_accumulation_steps = 8 / micro_batch,
                            .neftune_noise_alpha = alpha,
                            .shuffle = false,
                            .seed = seed});
    if (evaluated != nullptr) *evaluated = trainer.evaluate(data()).loss;
    loader rows(data(), trainer.loader_settings());
    return trainer.step(rows.next(), 0.0).loss;
  };
  double plain = 0, with = 0;
  CHECK(loss_of_step(0, 8, 1, &plain) != loss_of_step(5, 8, 1, &with));
  CHECK(plain == with);
  CHECK(loss_of_step(5, 8, 1) == doctest::Approx(loss_of_step(5, 2, 1)).epsilon(1e-6));  // as dropout's losses above
  CHECK(loss_of_step(5, 8, 1) != loss_of_step(5, 8, 2));
  dataset packed("packed", sequence_layout::packed);
  for (std::size_t s = 0; s < 8; ++s) packed.add(std::vector<token>{1, 2, 3, 4});
  packed.finish();
  plain_model model(sizes());
  trainer trainer(model, {.max_steps = 1, .neftune_noise_alpha = 5});
  CHECK_THROWS_WITH_AS(trainer.fit(packed), "neftune_noise_alpha: sequences must be single samples, on whose length the noise depends; a batch has packed ones",
                       config_error);
}

TEST_CASE("a saved adapter gives the same logits, bit for bit, beside the same base") {
  const scratch_folder base_folder, folder;
  plain_model base(sizes());
  save_pretrained(base, base_folder.path());
  lora_model model = trained_model({.rank = 3, .alpha = 7, .dropout = 0.25, .targets = all_linear, .modules_to_save = {"lm_head"}});
  save_pretrained(model, folder.path(), {.base_model = base_folder.path()});
  // other initial values: equality shows that values were read
  lora_model again = lora_model::from_pretrained(base_folder.path(), {}, {.adapter = adapter_config_of(folder.path()), .seed = 7});
  CHECK(logits_of(again) != logits_of(model));
  load_adapter(again, folder.path());
  CHECK(logits_of(again) == logits_of(model));
  merge_adapter(base, folder.path());  // from the folder into a plain model
  CHECK(largest_difference(logits_of(base), logits_of(model)) < other_order);
}

TEST_CASE("the adapter's config and tensors are those that PEFT writes") {
  const scratch_folder folder;
  const lora_model model =
      trained_model({.rank = 3, .alpha = 7.5, .dropout = 0.25, .targets = {"q_proj", "v_proj"}, .modules_to_save = {"lm_head"}}, 1);
  save_pretrained(model, folder.path(), {.base_model = "some/base"});
  const json config = json::parse(get_file(folder / "adapter_config.json"));
  CHECK(config["peft_type"] == "LORA");
  CHECK(config["task_type"] == "CAUSAL_LM");
  CHECK(config["base_model_name_or_path"] == "some/base");
  CHECK(config["r"] == 3);
  CHECK(config["lora_alpha"] == 7.5);
  CHECK(config["lora_dropout"] == 0.25);
  CHECK(config["target_modules"] == json({"q_proj", "v_proj"}));
  CHECK(config["modules_to_save"] == json({"lm_head"}));
  CHECK(config["bias"] == "none");
  CHECK(config["fan_in_fan_out"] == false);
  CHECK(config["use_rslora"] == false);
  CHECK(config["use_dora"] == false);
  const safetensors_file file(folder / "adapter_model.safetensors");
  CHECK(file.tensors().size() == 2 * 2 * 2 + 1);  // A and B of two modules in two layers, and the head
  const auto shape_in_file = [&](const std::string& name) {
    const file_tensor* tensor = file.find("base_model.model." + name);
    REQUIRE_MESSAGE(tensor != nullptr, name);
    return tensor->shape;
  };
  CHECK(shape_in_file("model.layers.0.self_attn.q_proj.lora_A.weight") == std::vector<std::size_t>{3, 24});
  CHECK(shape_in_file("model.layers.1.self_attn.v_proj.lora_B.weight") == std::vector<std::size_t>{12, 3});
  CHECK(shape_in_file("lm_head.weight") == std::vector<std::size_t>{29, 24});
}

TEST_CASE("numbers out of range are refused with the number") {
  refused({.rank = 0}, "lora: rank must be positive; given 0");
  refused({.alpha = 0}, "lora: alpha must be positive; given 0");
  refused({.alpha = -2}, "lora: alpha must be positive; given -2");
  refused({.alpha = std::nan("")}, "lora: alpha must be positive; given nan");
  refused({.dropout = 1}, "lora: dropout must be in [0, 1); given 1");
  refused({.dropout = -0.5}, "lora: dropout must be in [0, 1); given -0.5");
}

TEST_CASE("names that are no modules are refused with the nearest that is one") {
  refused({.targets = {"q_proj", "v_prj"}}, "lora: 'v_prj' must name a linear module or an embedding of the model; did you mean 'v_proj'?");
  refused({.targets = {"c_attn_of_another_family"}},
          "lora: 'c_attn_of_another_family' must name a linear module or an embedding of the model");
  refused({.targets = {"input_layernorm"}}, "lora: 'input_layernorm' must name a linear module or an embedding of the model");
  refused({.modules_to_save = {"lm_hed"}}, "lora: 'lm_hed' must name a module of the model; did you mean 'lm_head'?");
  refused(
      {.modules_to_save = {"q_proj"}},
      "parameters: 'model.layers.0.self_attn.k_proj.weight' and 'model.layers.0.self_attn.q_proj.weight' are computed together; train both or none");
  // a full name selects only that module, as in PEFT
  const lora_model one(sizes(), {}, {.adapter = {.rank = 2, .targets = {"model.layers.1.mlp.up_proj"}}});
  CHECK(one.parameters().trained_count() == 2 * (24 + 40));
}

TEST_CASE("an adapter that does not fit the model is refused, with what it has and what the model asks for") {
  const scratch_folder folder;
  const lora::config adapter{.rank = 3, .alpha = 7, .targets = {"q_proj", "v_proj"}};
  save_pretrained(trained_model(adapter, 1), folder.path());
  const auto load_into = [&](const decoder_config& base, const lora::config& c) {
    lora_model model(base, {}, {.adapter = c});
    load_adapter(model, folder.path());
  };
  CHECK_NOTHROW(load_into(sizes(), adapter));
  const auto refuses = [&](const decoder_config& base, lora::config c, const std::string& words) {
    CAPTURE(words);
    CHECK_THROWS_WITH_AS(load_into(base, c), doctest::Contains(words.c_str()), config_error);
  };
  refuses(sizes(), {.rank = 4, .alpha = 7, .targets = adapter.targets},
          "rank must be the model's 4; the adapter has 3. Create the model with {.adapter = adapter_config_of(folder)}");
  refuses(sizes(), {.rank = 3, .alpha = 8, .targets = adapter.targets}, "alpha must be the model's 8; the adapter has 7");
  refuses(sizes(), {.rank = 3, .alpha = 7, .targets = {"q_proj"}}, "holds 8 tensors; the model uses 4");
  refuses(sizes(), {.rank = 3, .alpha = 7, .targets = {"q_proj", "k_proj"}},
          "must hold 'base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight'; it is missing");
  refuses(sizes(32), adapter, "'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight' must have shape [3, 32]");
  decoder_config deeper = sizes();
  deeper.num_layers = 3;
  refuses(deeper, adapter, "must hold 'base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight'; it is missing");
  // merged into a plain model of another hidden size
  plain_model wider(sizes(32));
  CHECK_THROWS_WITH_AS(merge_adapter(wider, folder.path()),
                       doctest::Contains("'model.layers.0.self_attn.q_proj' must have shapes [3, 32] and [32, 3]"), config_error);
  // or with more layers, or with settings that do not match the tensors
  const auto merge_refuses = [&](const decoder_config& base, const std::string& words) {
    plain_model model(base);
    CHECK_THROWS_WITH_AS(merge_adapter(model, folder.path()), doctest::Contains(words.c_str()), config_error);
  };
  merge_refuses(deeper, "must hold the adapter of 'model.layers.2.self_attn.q_proj', a target of its adapter_config.json; it is missing");
  const json written = json::parse(get_file(folder / "adapter_config.json"));
  const auto configured = [&](const char* key, json value) {
    json other = written;
    other[key] = std::move(value);
    put_file(folder / "adapter_config.json", other.dump());
  };
  configured("target_modules", json::array({"q_proj", "k_proj", "v_proj"}));
  merge_refuses(sizes(), "must hold the adapter of 'model.layers.0.self_attn.k_proj'");
  configured("target_modules", json::array({"q_proj"}));
  merge_refuses(sizes(), "the adapter of 'model.layers.0.self_attn.v_proj' must be of a target of its adapter_config.json; it is of none");
  configured("layers_to_transform", 0);
  merge_refuses(sizes(), "the adapter of 'model.layers.1.self_attn.q_proj' must be of a target");
  configured("modules_to_save", json::array({"lm_head"}));
  merge_refuses(sizes(), "must hold 'base_model.model.lm_head.weight', which its adapter_config.json says is trained; it is missing");
  configured("target_modules", "all-linear");
  merge_refuses(deeper, "must hold the adapter of 'model.layers.2.self_attn.q_proj'");
  plain_model same(sizes());
  CHECK_NOTHROW(merge_adapter(same, folder.path()));
  CHECK_THROWS_AS((void)adapter_config_of(folder / "nothing"), file_error);
}
