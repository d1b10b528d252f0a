// BERT: gradients of whole models, attention mask, refusals, parameters that may be missing in a folder.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/adapt/prefix_tuning.hpp>
#include <xtrain/data/sentence_batch.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/encoder_families.hpp>
#include <xtrain/testing/check_gradient.hpp>
#include <xtrain/testing/isolated.hpp>
#include "golden.hpp"
#include "scratch.hpp"

using namespace xtrain;

namespace {

template <class Recompute>
struct oracle_recipe : testing::gradient_recipe {
  using recompute = Recompute;
};
using oracle = oracle_recipe<recompute_none>;
struct plain : defaults {};
struct walled : defaults {
  using device = testing::isolated<cpu>;
};
struct in_bf16 : defaults {
  using precision = bf16_mixed;
};
struct with_prefix : defaults {
  using adapter = prefix_tuning;
};
struct with_lora : defaults {
  using adapter = lora;
};

encoder_config sizes(double dropout = 0.0) {
  return {.vocab_size = 19,
          .hidden_size = 12,
          .num_layers = 2,
          .num_heads = 2,
          .intermediate_size = 10,
          .max_position_embeddings = 9,
          .segments = 3,
          .attention_dropout = dropout,
          .residual_dropout = dropout,
          .label_dropout = dropout,
          .initializer_range = 0.3,
          .pad_token_id = {}};  // trains every token: gradients are compared with difference quotients
}

/// Two sequences of 7 tokens, the second padded after 5; some tokens are masked, and the sequences have labels.
host_batch rows() {
  std::vector<token> tokens, segments, mask, targets;
  for (std::size_t i = 0; i < 14; ++i) {
    tokens.push_back(static_cast<token>((5 * i + 3) % 19));
    segments.push_back(static_cast<token>(i % 7 / 3));
    mask.push_back(i < 12 ? 1 : 0);
    targets.push_back(i % 3 == 1 && i < 12 ? static_cast<token>((7 * i + 2) % 19) : -1);
  }
  const std::vector<token> labels{1, 0};
  return sentence_batch({.b = 2, .t = 7, .tokens = tokens, .segments = segments, .mask = mask, .targets = targets, .labels = labels});
}

/// Loss and gradients of one batch, on the reference device in double.
template <class Model>
struct bench {
  Model model;
  host_batch batch = rows();
  pass_memory<Model> passes;
  batch_memory<reference> memory{model.context(), 14, attention_mask_of(model)};
  std::vector<double> losses = std::vector<double>(14);

  explicit bench(const encoder_config& c) : model(c), passes(model, {.layer_inputs = 1 << 20, .saved = 1 << 22, .workspace = 1 << 22}) {
    model.parameters().allocate_gradients();
    fill_zero(model.stream(), model.parameters().gradients());
  }
  double run(bool with_gradients) {
    auto p = passes.new_pass(pass_mode::training);
    p.batch = memory.upload(model.stream(), batch);
    p.gradient_scale = 0.25;
    p.label_weight = 2.0;
    p.random = {.seed = 4, .step = 2};
    model.forward(p, passes.layer_inputs(), {span_of(std::span<double>(losses)), {14}});
    if (with_gradients) model.backward(p, passes.layer_inputs(), true);
    CHECK((!with_gradients || p.saved.entries() == 0));
    p.saved.drop(0);
    passes.layer_inputs().drop(0);
    return std::accumulate(losses.begin(), losses.end(), 0.0) * p.gradient_scale.value;
  }
};

template <class Model>
std::vector<double> gradients_of(const encoder_config& c) {
  bench<Model> b(c);
  std::vector<double> all{b.run(true)};
  const auto gradients = b.model.parameters().gradients().host();
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

/// d/ds loss(w + s · direction) at 0 is gradient · direction, for random directions.
template <class Model>
void check_directions(const encoder_config& c) {
  bench<Model> b(c);
  (void)b.run(true);
  const auto gradients = b.model.parameters().gradients().host();
  const std::vector<double> gradient(gradients.begin(), gradients.end());
  const auto weights = b.model.parameters().trained_values().host();
  const std::vector<double> start(weights.begin(), weights.end());
  for (std::uint32_t direction = 0; direction < 6; ++direction) {
    double slope = 0;
    std::vector<double> d(start.size(), 0.0);
    for (const auto& entry : b.model.parameters().entries())
      for (std::size_t i = entry.offset; i < entry.offset + entry.size(); ++i)
        d[i] = 2.0 * static_cast<double>(uniform_open(random_word({.seed = direction, .site = 3}, i))) - 1.0;
    for (std::size_t i = 0; i < d.size(); ++i) slope += gradient[i] * d[i];
    const auto at = [&](double s) {
      for (std::size_t i = 0; i < d.size(); ++i) weights[i] = start[i] + s * d[i];
      return b.run(false);
    };
    // as in decoder.cpp: h = 1e-6 balances the third derivative against rounding / h = 1e-10
    const double h = 1e-6, quotient = (at(h) - at(-h)) / (2 * h);
    CHECK(slope == doctest::Approx(quotient).epsilon(1e-6));
    for (std::size_t i = 0; i < d.size(); ++i) weights[i] = start[i];
  }
}

template <class Recipe>
std::vector<double> losses_of_steps(const typename Recipe::device::context& on = {}) {
  bert_pretraining<Recipe> model(sizes(), on);
  trainer trainer(model, {.max_steps = 5, .micro_batch_size = 2, .seq_length = 7});
  const host_batch batch = rows();
  std::vector<double> losses;
  for (int step = 0; step < 5; ++step) losses.push_back(trainer.step(std::span<const host_batch>(&batch, 1), 1e-2).loss);
  return losses;
}

}  // namespace

TEST_CASE("the gradient of whole encoders is the slope along any direction, dropout included") {
  check_directions<bert_pretraining<oracle>>(sizes(0.2));
  check_directions<bert_masked_lm<oracle>>(sizes());
  check_directions<bert_classifier<oracle>>(sizes(0.2));
  encoder_config untied = sizes();
  untied.tie_word_embeddings = false;
  check_directions<bert_pretraining<oracle_recipe<recompute_full>>>(untied);
}

TEST_CASE("whatever of an encoder is recomputed, loss and gradients are the same, bit for bit") {
  const auto kept = gradients_of<bert_pretraining<oracle>>(sizes(0.2));
  CHECK(kept == gradients_of<bert_pretraining<oracle_recipe<recompute_full>>>(sizes(0.2)));
  CHECK(kept == gradients_of<bert_pretraining<oracle_recipe<recompute_selective<norm_outputs>>>>(sizes(0.2)));
  CHECK(kept == gradients_of<bert_pretraining<oracle_recipe<recompute_selective<activation_outputs, attention_outputs>>>>(sizes(0.2)));
}

TEST_CASE("a place sees all of its row but padding, and no other row") {
  bench<bert_masked_lm<oracle>> b(sizes());
  (void)b.run(false);
  const std::vector<double> before = b.losses;
  const auto changed = [&](std::size_t at) {
    std::vector<std::size_t> found;
    const token was = std::exchange(b.batch.tokens[at], 17);
    (void)b.run(false);
    b.batch.tokens[at] = was;
    for (std::size_t i = 0; i < 14; ++i)
      if (b.losses[i] != before[i]) found.push_back(i);
    return found;
  };
  CHECK(changed(6) == std::vector<std::size_t>{1, 4});  // tokens with a label: 1, 4 | 7, 10
  CHECK(changed(8) == std::vector<std::size_t>{7, 10});
  CHECK(changed(13).empty());
}

TEST_CASE("an encoder trains on a device behind a wall as on the cpu, in bf16, and beside an adapter") {
  const auto losses = losses_of_steps<plain>();
  CHECK(losses.back() < losses.front());
  CHECK(losses == losses_of_steps<walled>());
  CHECK(losses_of_steps<in_bf16>().front() == doctest::Approx(losses.front()).epsilon(0.05));
  CHECK(losses_of_steps<with_lora>().front() == doctest::Approx(losses.front()).epsilon(1e-6));
}

TEST_CASE("a step of an encoder takes what its plan says") {
  const cpu::context on;
  bert_pretraining<plain> model(sizes(), on);
  trainer trainer(model, {.max_steps = 1, .micro_batch_size = 2, .seq_length = 7});
  const host_batch batch = rows();
  (void)trainer.step(std::span<const host_batch>(&batch, 1), 1e-2);
  CHECK(trainer.plan().total() == on.memory().total_peak);
}

TEST_CASE("a folder of the encoder alone, with the first release's names, becomes a classifier with a fresh head") {
  auto trained = bert_pretraining<plain>::from_pretrained(golden::folder("bert_pretraining"));
  const scratch_folder folder;
  std::vector<tensor_to_write> tensors;
  for (const auto& entry : trained.parameters().entries()) {
    std::string name = entry.spec.name;
    if (name.starts_with("bert.")) name = name.substr(5);
    for (const auto& [now, once] :
         {std::pair<std::string, std::string>{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}})
      if (name.ends_with(now)) name = name.substr(0, name.size() - now.size()) + once;
    tensors.push_back(detail::parameter_to_write(trained, entry, name));
  }
  write_weights(folder.path(), std::move(tensors), 1 << 20);
  put_file(folder / "config.json", config_text(trained));

  auto classifier = bert_classifier<plain>::from_pretrained(folder.path());
  CHECK(classifier.config().labels == std::vector<std::string>{"LABEL_0", "LABEL_1"});
  for (const char* name : {"bert.embeddings.LayerNorm.weight", "bert.encoder.layer.1.output.LayerNorm.bias", "bert.pooler.dense.bias"}) {
    const auto there = trained.parameter<1>(name).span().host(), here = classifier.parameter<1>(name).span().host();
    CHECK(std::equal(there.begin(), there.end(), here.begin()));
  }
  const auto fresh = classifier.parameter<2>("classifier.weight").span().host();
  CHECK(std::any_of(fresh.begin(), fresh.end(), [](float x) { return x != 0.0f; }));
  CHECK(bert_masked_lm<plain>::from_pretrained(folder.path()).parameters().count() < trained.parameters().count());

  // a custom number of labels
  encoder_config three = read_sizes<bert_classification_family>(folder.path());
  three.labels = {"a", "b", "c"};
  bert_classifier<plain> model(three);
  load_weights(model, folder.path());
  const scratch_folder saved;
  save_pretrained(model, saved.path());
  CHECK(bert_classifier<plain>::from_pretrained(saved.path()).config() == model.config());
}

TEST_CASE("a masked-LM head that is stored beside the embedding it is tied to, and differs, is a head of its own; its bias must be equal") {
  const std::string path = golden::folder("bert_pretraining");
  const safetensors_file file(path + "/model.safetensors");
  const auto load = [&](const std::string& original, const std::string& copy, char last, auto&& visit) {
    const scratch_folder folder;
    put_file(folder / "config.json", get_file(path + "/config.json"));
    std::vector<tensor_to_write> tensors;
    std::string bytes;
    const auto add = [&](const std::string& name, const file_tensor& t, const char* data) {
      tensors.push_back({.name = name, .dtype = t.dtype, .shape = t.shape, .bytes = t.bytes.size(), .produce = [data, &t](const auto& sink) {
                           sink(data, t.bytes.size());
                         }});
    };
    for (const file_tensor& t : file.tensors()) {
      add(t.name, t, reinterpret_cast<const char*>(t.bytes.data()));
      if (t.name != original) continue;
      bytes.assign(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
      bytes.back() = static_cast<char>(bytes.back() ^ last);
      add(copy, t, bytes.data());
    }
    write_safetensors(folder / "model.safetensors", std::move(tensors));
    visit(folder.path());
  };
  const auto is_tied = [](const std::string& folder) { return bert_pretraining<plain>::from_pretrained(folder).config().tie_word_embeddings; };
  const std::string table = "bert.embeddings.word_embeddings.weight", head = "cls.predictions.decoder.weight";
  load(table, head, 0, [&](const std::string& folder) { CHECK(is_tied(folder)); });
  load(table, head, 1, [&](const std::string& folder) {
    CHECK_FALSE(is_tied(folder));
    CHECK_NOTHROW((void)bert_classifier<plain>::from_pretrained(folder));  // has no such head
  });
  const std::string bias = "cls.predictions.bias", copy = "cls.predictions.decoder.bias", why = concat("'", copy, "' must be equal to '", bias, "'");
  load(bias, copy, 0, [&](const std::string& folder) { CHECK(is_tied(folder)); });
  load(bias, copy, 1, [&](const std::string& folder) {
    CHECK_THROWS_WITH_AS((void)is_tied(folder), doctest::Contains(why.c_str()), config_error);
    CHECK_NOTHROW((void)bert_classifier<plain>::from_pretrained(folder));
  });
}

TEST_CASE("the bias of an untied masked-LM head is the decoder's, as in transformers, whatever the other one is") {
  encoder_config untied = sizes();
  untied.tie_word_embeddings = false;
  const bert_masked_lm<plain> model(untied);
  const auto bias_of = [](const auto& of) {
    const auto values = of.parameters().value(*of.parameters().find("cls.predictions.decoder.bias")).host();
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> bias = bias_of(model);
  CHECK(model.parameters().find("cls.predictions.bias") == nullptr);
  const scratch_folder saved;
  save_pretrained(model, saved.path());
  const safetensors_file file(saved / "model.safetensors");
  CHECK(file.find("cls.predictions.bias") == nullptr);

  const auto folder_with = [&](const std::vector<std::string>& names) {  // the bias under these names, with different values each time
    auto folder = std::make_unique<scratch_folder>();
    put_file(*folder / "config.json", get_file(saved / "config.json"));
    std::vector<tensor_to_write> tensors;
    for (const file_tensor& t : file.tensors())
      if (t.name != "cls.predictions.decoder.bias")
        tensors.push_back({.name = t.name, .dtype = t.dtype, .shape = t.shape, .bytes = t.bytes.size(), .produce = [&t](const auto& sink) {
                             sink(t.bytes.data(), t.bytes.size());
                           }});
    for (std::size_t i = 0; i < names.size(); ++i)
      tensors.push_back({.name = names[i], .dtype = "F32", .shape = {bias.size()}, .bytes = 4 * bias.size(), .produce = [i, &bias](const auto& sink) {
                           const std::vector<float> numbers(bias.size(), static_cast<float>(i + 1));
                           sink(numbers.data(), 4 * numbers.size());
                         }});
    write_safetensors(*folder / "model.safetensors", std::move(tensors));
    return folder;
  };
  const auto read_as = [&](const std::vector<std::string>& names) {
    const auto folder = folder_with(names);
    return bias_of(bert_masked_lm<plain>::from_pretrained(folder->path()));
  };
  CHECK(read_as({"cls.predictions.decoder.bias"}) == std::vector<float>(bias.size(), 1.0F));
  CHECK(read_as({"cls.predictions.bias"}) == std::vector<float>(bias.size(), 1.0F));
  CHECK(read_as({"cls.predictions.bias", "cls.predictions.decoder.bias"}) == std::vector<float>(bias.size(), 2.0F));
}

TEST_CASE("a folder says itself which encoder it holds") {
  for (const auto& one : {std::pair{"bert_pretraining", "BertForPreTraining"}, {"bert_classification", "BertForSequenceClassification"}}) {
    std::string visited;
    load_encoder<plain>(golden::folder(one.first), [&](auto& model) { visited = std::remove_cvref_t<decltype(model)>::family::architecture; });
    CHECK(visited == one.second);
  }
  const scratch_folder folder;
  put_file(folder / "config.json", R"({"model_type": "bert", "architectures": ["BertModel"]})");
  CHECK_THROWS_WITH_AS(load_encoder<plain>(folder.path(), [](auto&) {}), doctest::Contains("given 'BertModel'"), config_error);
  put_file(folder / "config.json", R"({"model_type": "bert", "architectures": "BertModel"})");
  CHECK_THROWS_WITH_AS(load_encoder<plain>(folder.path(), [](auto&) {}), doctest::Contains("must be a list of strings"), config_error);
}

TEST_CASE("rows that do not fit an encoder are refused") {
  const std::vector<token> tokens(6, 1), hole{1, 0, 1, 1, 1, 1}, nothing{1, 1, 1, 0, 0, 0}, labels{0, 2}, segments(6, 3);
  CHECK_THROWS_WITH_AS((void)sentence_batch({.b = 2, .t = 3, .tokens = tokens, .mask = hole}),
                       doctest::Contains("sequence 0 is masked from position 1"), data_error);
  CHECK_THROWS_WITH_AS((void)sentence_batch({.b = 2, .t = 3, .tokens = tokens, .mask = nothing}),
                       doctest::Contains("sequence 1 is masked from position 0"), data_error);
  CHECK_THROWS_WITH_AS((void)sentence_batch({.b = 2, .t = 3, .tokens = tokens, .labels = tokens}),
                       "sentence_batch: labels must be 2; given 6", shape_error);
  bert_pretraining<plain> model(sizes());
  trainer trainer(model, {.max_steps = 1, .micro_batch_size = 2, .seq_length = 3});
  const auto refused = [&](const host_batch& batch, const char* words) {
    CHECK_THROWS_WITH_AS((void)trainer.step(std::span<const host_batch>(&batch, 1), 0.0), doctest::Contains(words), error);
  };
  refused(sentence_batch({.b = 2, .t = 3, .tokens = tokens, .labels = labels}), "labels must be below 2; given 2");
  refused(sentence_batch({.b = 2, .t = 3, .tokens = tokens, .segments = segments}), "segments must be below 3; given 3");
  host_batch late = sentence_batch({.b = 2, .t = 3, .tokens = tokens});
  late.ends[4] = 4;
  refused(late, "token 4 has 4");
  late.ends[4] = 0;
  refused(late, "token 4 has 0");
}

TEST_CASE("a prefix in front of rows is refused where places see what follows them") {
  bert_pretraining<with_prefix> model(sizes(), {}, {.adapter = {.length = 2}});
  CHECK_THROWS_WITH_AS(trainer(model, {.max_steps = 1, .micro_batch_size = 2, .seq_length = 7}), doctest::Contains("this model's is neither"),
                       config_error);
}

TEST_CASE("sizes of an encoder that contradict themselves are refused with the numbers") {
  encoder_config c = sizes();
  c.num_heads = 5;
  CHECK_THROWS_WITH_AS(bert_pretraining<plain>{c}, "bert: hidden_size (12) must be divisible by num_heads (5)", config_error);
  c = sizes();
  c.labels = {"one"};
  CHECK_THROWS_WITH_AS(bert_pretraining<plain>{c}, "bert: there must be two labels, follows or not; given 1", config_error);
  CHECK_THROWS_WITH_AS(bert_classifier<plain>{c}, "bert: there must be two labels at least; given 1", config_error);
  c = sizes();
  c.max_position_embeddings = 0;
  CHECK_THROWS_WITH_AS(bert_pretraining<plain>{c}, doctest::Contains("bert: max_position_embeddings must be given"), config_error);
}
