// Prefix tuning: gradients, equality with attention over a longer sequence, round trip through folders, generation, errors.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <xtrain/io.hpp>
#include <xtrain/models/bloom.hpp>
#include <xtrain/models/chatglm.hpp>
#include <xtrain/models/chatglm1.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/testing/check_gradient.hpp>
#include "scratch.hpp"

using namespace xtrain;

namespace {

struct gradient_recipe : testing::gradient_recipe {
  using adapter = prefix_tuning;
};
struct recomputing_gradient_recipe : gradient_recipe {
  using recompute = recompute_selective<attention_outputs>;
};
struct plain_recipe : defaults {};
struct prefix_recipe : defaults {
  using adapter = prefix_tuning;
};
struct recomputing_recipe : prefix_recipe {
  using recompute = recompute_full;
};

template <class Recipe>
void check_gradients(double dropout, std::size_t window, std::size_t projection = 0) {
  CAPTURE(dropout);
  CAPTURE(window);
  reference::context on;
  reference::stream stream(on);
  const rotary_positions<Recipe> positions(on, stream, position_options{.max_position_embeddings = 8, .num_heads = 4, .head_dim = 6, .first = 3});
  const auto report = testing::check_gradient<Recipe>(
      {.b = 2, .t = 5, .inputs = 7, .outputs = 7},
      [&](auto& build) {
        return causal_attention<Recipe, rotary_positions<Recipe>>(build, {.hidden_size = 7,
                                                                          .num_heads = 4,
                                                                          .num_kv_heads = 2,
                                                                          .head_dim = 6,
                                                                          .bias = true,
                                                                          .output_bias = true,
                                                                          .dropout = dropout,
                                                                          .site = 5,
                                                                          .sliding_window = window,
                                                                          .qkv_names = {"q", "k", "v"},
                                                                          .output_name = "o"});
      },
      [&](const auto& layer, auto& p, auto x, auto y) { layer.forward(p, positions, x, y, ops::result::replaces); },
      [&](const auto& layer, auto& p, auto x, auto dy, auto dx) { layer.backward(p, positions, x, dy, dx, ops::result::is_added); },
      prefix_config{.length = 3, .projection = projection});
  // x and the prefix's parameters; weights are frozen
  const std::size_t kv = 2 * 6, r = projection;
  CHECK(report.checked == 2 * 5 * 7 + (r == 0 ? 3 * 2 * kv : 3 * kv + r * kv + r + 2 * kv * r + 2 * kv));
  CHECK_MESSAGE(bool(report), report.problem, "; largest error ", report.largest_error);
}

decoder_config sizes() {
  return {.vocab_size = 29,
          .hidden_size = 24,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .intermediate_size = 40,
          .max_position_embeddings = 24,
          .tie_word_embeddings = false,
          .initializer_range = 0.1};
}
decoder_config bloom_sizes() {
  return {.vocab_size = 29, .hidden_size = 24, .num_layers = 2, .num_heads = 3, .max_position_embeddings = 24, .initializer_range = 0.1};
}

dataset numbers(sequence_layout layout = sequence_layout::stream) {
  dataset d("numbers", layout);
  for (token sample = 0; sample < 20; ++sample) {
    std::vector<token> tokens;
    for (token i = 0; i < 10; ++i) tokens.push_back((i * i * 5 + i + sample) % 29);
    d.add(tokens);
  }
  d.finish();
  return d;
}
template <class Model>
std::vector<float> logits_of(Model& model) {
  array<token, 2> tokens(shape_of_rank<2>{3, 9});
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens.data()[i] = static_cast<token>((i * i + 3) % 29);
  const auto logits_btv = logits(model, tokens);
  return {logits_btv.begin(), logits_btv.end()};
}
double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return most;
}

template <template <class> class Family>
void there_and_back(const decoder_config& model_sizes, const prefix_config& settings) {
  const scratch_folder base_folder, folder;
  Family<plain_recipe> base(model_sizes);
  save_pretrained(base, base_folder.path());
  auto model = Family<prefix_recipe>::from_pretrained(base_folder.path(), {}, {.adapter = settings});
  const auto before = logits_of(model);
  trainer trainer(model, {.max_steps = 6, .micro_batch_size = 4, .learning_rate = 5e-2});
  trainer.fit(numbers());
  const auto trained = logits_of(model);
  CHECK(largest_difference(before, trained) > 1e-2);
  CHECK(largest_difference(logits_of(base), trained) > 1e-2);
  trainer.save(folder.path(), save_adapter_options{.base_model = base_folder.path()});
  CHECK(prefix_config_of(folder.path()) == settings);

  auto again = Family<prefix_recipe>::from_pretrained(base_folder.path(), {}, {.adapter = prefix_config_of(folder.path()), .seed = 7});
  CHECK(logits_of(again) != trained);
  load_adapter(again, folder.path());
  CHECK(logits_of(again) == trained);
  if (settings.projection == 0) return;
  // the network's output is the prefix of a model without the network
  auto without = settings;
  without.projection = 0;
  auto made = Family<prefix_recipe>::from_pretrained(base_folder.path(), {}, {.adapter = without});
  load_adapter(made, folder.path());
  CHECK(largest_difference(logits_of(made), trained) < 1e-4);  // equal sums in another order
  const scratch_folder plain;
  save_pretrained(made, plain.path());
  CHECK_THROWS_WITH_AS(load_adapter(again, plain.path()), doctest::Contains("must hold 'prefix_encoder.embedding.weight'; it is missing"),
                       config_error);
}

/// Of a ChatGLM-6B: 13 is the begin token, 8 the mask token.
decoder_config glm_sizes() {
  decoder_config c = sizes();
  c.hidden_size = 32;
  c.num_kv_heads = 4;
  c.bos = 13;
  c.gap = 8;
  return c;
}

}  // namespace

TEST_CASE("the gradients of a prefix, and of what stands behind it, are difference quotients") {
  check_gradients<gradient_recipe>(0.0, 0);
  check_gradients<gradient_recipe>(0.3, 0);
  check_gradients<gradient_recipe>(0.0, 4);
  check_gradients<recomputing_gradient_recipe>(0.3, 0);
  check_gradients<gradient_recipe>(0.3, 0, 5);
}

TEST_CASE("a prefix is saved and read beside the same base, in PEFT's form and in ChatGLM's") {
  there_and_back<llama>(sizes(), {.length = 5});
  there_and_back<llama>(sizes(), {.length = 5, .counts_in_positions = false});
  there_and_back<bloom>(bloom_sizes(), {.length = 3});
  there_and_back<llama>(sizes(), {.length = 5, .projection = 7});
  there_and_back<llama>(sizes(), {.length = 5, .projection = 7, .counts_in_positions = false});
  there_and_back<gpt2>(bloom_sizes(), {.length = 3, .counts_in_positions = false});
  auto chatglm_sizes = sizes();
  chatglm_sizes.hidden_size = 32;
  there_and_back<chatglm>(chatglm_sizes, {.length = 4, .counts_in_positions = false});
}

TEST_CASE("blocks that are computed again train the same prefix") {
  const prefix_config settings{.length = 4};
  llama<prefix_recipe> kept(sizes(), {}, {.adapter = settings});
  llama<recomputing_recipe> recomputed(sizes(), {}, {.adapter = settings});
  trainer(kept, {.max_steps = 3, .micro_batch_size = 4, .learning_rate = 5e-2}).fit(numbers());
  trainer(recomputed, {.max_steps = 3, .micro_batch_size = 4, .learning_rate = 5e-2}).fit(numbers());
  CHECK(logits_of(kept) == logits_of(recomputed));
}

TEST_CASE("a cache begins with the prefix: tokens chosen one by one are those that whole rows say") {
  for (const bool counts : {true, false}) {
    llama<prefix_recipe> model(sizes(), {}, {.adapter = {.length = 6, .counts_in_positions = counts}});
    trainer(model, {.max_steps = 6, .micro_batch_size = 4, .learning_rate = 5e-2}).fit(numbers());
    generator generate(model, 2);
    const std::vector<std::vector<token>> prompts{{3, 9, 1, 17}, {5, 2}};
    const auto fresh = generate.generate(prompts, {.max_new_tokens = 8, .sampling = {.temperature = 0}});
    generator one_slot(model, 1);
    CHECK(one_slot.generate(prompts, {.max_new_tokens = 8, .sampling = {.temperature = 0}}) == fresh);
    for (std::size_t r = 0; r < prompts.size(); ++r) {
      auto text = prompts[r];
      for (const token next : fresh[r]) {
        array<token, 2> row(shape_of_rank<2>{1, text.size()});
        std::copy(text.begin(), text.end(), row.data());
        const auto all = logits(model, row);
        const float* last = all.data() + (text.size() - 1) * 29;
        // the greedy choice, up to sums in another order
        CHECK(static_cast<double>(last[next]) >= static_cast<double>(*std::max_element(last, last + 29)) - 1e-4);
        text.push_back(next);
      }
      CHECK(fresh[r].size() == 8);
    }
  }
}

TEST_CASE("behind a prefix, a context is still seen from both sides") {
  // without the begin token 13, everything is generated
  constexpr std::size_t length = 5;
  token_layout layout({.kind = attention_mask::rule::prefix, .begin = 13, .gap = 8, .virtual_tokens = 2}, 8);
  const std::vector<token> two{4, 8, 13, 2, 1, 2, 3, 4};
  CHECK(layout.lay_out(two, {}, 4).ends == std::vector<token>{1, 1, 4, 4, 5, 6, 1, 1, 3, 4, 5, 6});  // 2 context and 2 virtual tokens, ...
  CHECK(layout.positions == std::vector<token>{0, 1, 1, 1, 0, 0, 0, 0});

  there_and_back<chatglm1>(glm_sizes(), {.length = length, .counts_in_positions = false});
  CHECK_THROWS_WITH_AS(chatglm1<prefix_recipe>(glm_sizes(), {}, {.adapter = {.length = length}}),
                       doctest::Contains("rotary_positions_2d: positions must start at 0"), config_error);

  dataset answers("answers", sequence_layout::separate);
  for (token sample = 0; sample < 12; ++sample) {
    std::vector<token> tokens{(sample * 3) % 7, sample % 5, 8, 13};
    for (token i = 0; i < 5; ++i) tokens.push_back(14 + (sample + i) % 9);
    answers.add(tokens, [](std::size_t i) { return i > 3; });
  }
  answers.finish();
  chatglm1<prefix_recipe> model(glm_sizes(), {}, {.adapter = {.length = length, .counts_in_positions = false}});
  trainer(model, {.max_steps = 6, .micro_batch_size = 4, .learning_rate = 5e-2}).fit(answers);
  const auto row_logits = [&](const std::vector<token>& text) {
    array<token, 2> row(shape_of_rank<2>{1, text.size()});
    std::copy(text.begin(), text.end(), row.data());
    const auto all = logits(model, row);
    return std::vector<float>(all.begin(), all.end());
  };
  // a context's first token attends to its last; a generated token does not attend to the next
  const std::vector<float> a = row_logits({1, 2, 8, 13, 15, 16}), b = row_logits({1, 3, 8, 13, 15, 16}), c = row_logits({1, 2, 8, 13, 15, 17});
  CHECK(largest_difference({a.begin(), a.begin() + 29}, {b.begin(), b.begin() + 29}) > 1e-6);
  CHECK(std::equal(a.begin(), a.begin() + 29 * 5, c.begin()));

  // a cache that begins with the prefix equals unsplit sequences; slots of several lengths
  generator generate(model, 2);
  const std::vector<std::vector<token>> prompts{{3, 1, 8, 13}, {5, 2, 4, 0, 8, 13}};
  const auto fresh = generate.generate(prompts, {.max_new_tokens = 8, .sampling = {.temperature = 0}});
  for (std::size_t r = 0; r < prompts.size(); ++r) {
    auto text = prompts[r];
    for (const token next : fresh[r]) {
      const auto all = row_logits(text);
      const auto last = all.end() - 29;
      CHECK(static_cast<double>(*(last + next)) >= static_cast<double>(*std::max_element(last, all.end())) - 1e-4);
      text.push_back(next);
    }
    CHECK(fresh[r].size() == 8);
  }
}

namespace {

struct half_prefix_recipe : prefix_recipe {
  using precision = fp16_mixed;
};

/// Weights that ChatGLM-6B's model.quantize(bits) replaces.
bool is_rounded(const std::string& name) {
  for (const char* module : {"query_key_value.weight", "attention.dense.weight", "dense_h_to_4h.weight", "dense_4h_to_h.weight"})
    if (name.ends_with(module)) return true;
  return false;
}

/// Fifty steps with quantized weights equal steps with the rounded weights.
template <class Recipe>
void trains_beside_integers(std::size_t bits) {
  CAPTURE(bits);
  decoder_config c = sizes();
  c.hidden_size = 32;
  c.num_kv_heads = 4;
  c.bos = 13;
  c.gap = 8;
  const scratch_folder base, rounded;
  chatglm1<plain_recipe> plain(c);
  save_pretrained(plain, base.path());
  std::size_t count = 0;
  for (const auto& entry : plain.parameters().entries()) {
    if (!is_rounded(entry.spec.name)) continue;
    ++count;
    std::vector<float> w(entry.size());
    const auto values = plain.parameters().value(entry).host();
    std::copy(values.begin(), values.end(), w.begin());
    const std::size_t columns = entry.spec.shape[1];
    const row_integers_array made = row_integers::quantize<float>(std::span<const float>(w), columns, bits, entry.spec.name);
    row_integers::dequantize<float>(made, columns, bits, w);
    std::copy(w.begin(), w.end(), values.begin());
  }
  CHECK(count == 2 * 4);
  save_pretrained(plain, rounded.path());

  dataset answers("answers", sequence_layout::separate);
  for (token sample = 0; sample < 12; ++sample) {
    std::vector<token> tokens{(sample * 3) % 7, sample % 5, 8, 13};
    for (token i = 0; i < 5; ++i) tokens.push_back(14 + (sample + i) % 9);
    answers.add(tokens, [](std::size_t i) { return i > 3; });
  }
  answers.finish();
  prefix_config settings{.length = 5, .counts_in_positions = false};
  const auto train = [&](const std::string& folder, std::size_t weight_bits, std::size_t& bytes) {
    settings.weight_bits = weight_bits;
    auto model = chatglm1<Recipe>::from_pretrained(folder, {}, {.adapter = settings});
    for (const auto& entry : model.parameters().entries()) CHECK(entry.spec.quantized == (weight_bits > 0 && is_rounded(entry.spec.name)));
    bytes = model.parameters().bytes();
    std::vector<float> all = logits_of(model);
    trainer(model, {.max_steps = 50, .micro_batch_size = 4, .learning_rate = 5e-2}).fit(answers);
    const auto prefix = model.parameters().trained_values().host();
    for (const auto value : prefix) all.push_back(static_cast<float>(value));
    const std::vector<float> after = logits_of(model);
    CHECK(largest_difference({all.begin(), all.begin() + static_cast<std::ptrdiff_t>(after.size())}, after) > 1e-2);
    all.insert(all.end(), after.begin(), after.end());
    return all;
  };
  std::size_t small = 0, large = 0, whole = 0;
  CHECK(train(base.path(), bits, small) == train(rounded.path(), 0, large));
  (void)train(base.path(), 0, whole);
  CHECK(whole == large);
  // integers and a scale per row; some padding
  std::size_t expected = 0;
  const std::size_t number = sizeof(typename Recipe::precision::parameter);
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>{96, 32}, {32, 32}, {40, 32}, {32, 40}})
    expected += 2 * rows * (columns * number - columns * bits / 8 - sizeof(float));
  CHECK(large - small >= expected - 2048);
  CHECK(large - small <= expected + 2048);
}

}  // namespace

TEST_CASE("a prefix is trained beside weights in 4 and 8 bits as beside the same weights rounded before, bit for bit, in less memory") {
  for (const std::size_t bits : {4U, 8U}) {
    trains_beside_integers<prefix_recipe>(bits);
    trains_beside_integers<half_prefix_recipe>(bits);
  }
  CHECK_THROWS_WITH_AS(llama<prefix_recipe>(sizes(), {}, {.adapter = {.length = 5, .weight_bits = 3}}),
                       doctest::Contains("prefix_tuning: weight_bits must be 0, 4 or 8; given 3"), config_error);
}

namespace {

template <class Parallel>
struct prefix_on_ranks : prefix_recipe {
  using parallel = Parallel;
};

/// Losses with 4-bit weights, and the final prefix, on one rank or two.
template <class Parallel>
std::vector<double> steps_beside_integers(const std::string& base, const std::shared_ptr<transport>& network) {
  using model_type = chatglm1<prefix_on_ranks<Parallel>>;
  typename model_type::options options{.adapter = {.length = 5, .counts_in_positions = false, .weight_bits = 4}};
  if constexpr (requires { options.parallel.ranks; }) options.parallel.ranks = network;
  auto model = model_type::from_pretrained(base, {}, options);
  std::size_t quantized = 0;
  for (const auto& entry : model.parameters().entries()) quantized += entry.spec.quantized ? 1 : 0;
  CHECK(quantized == 2 * 4);
  const std::size_t ranks = model.parallel().data().size();
  trainer steps(model, {.max_steps = 6, .micro_batch_size = 2, .gradient_accumulation_steps = 2 / ranks, .learning_rate = 5e-2});
  history seen;
  steps.attach(seen);
  dataset answers("answers", sequence_layout::separate);
  for (token sample = 0; sample < 12; ++sample) answers.add(std::vector<token>{(sample * 3) % 7, sample % 5, 8, 13, 14 + sample % 9, 15, 16 + sample % 5});
  answers.finish();
  steps.fit(answers);
  std::vector<double> all(seen.losses().begin(), seen.losses().end());
  for (const auto& entry : model.parameters().entries()) {
    if (!entry.spec.trainable) continue;
    std::vector<float> host(entry.whole_size());
    model.parallel().collect(model.stream(), model.parameters(), entry, model.parameters().stored_values(), std::span<float>(host));
    if (network == nullptr || network->rank() == 0) all.insert(all.end(), host.begin(), host.end());
  }
  return all;
}

}  // namespace

TEST_CASE("ranks that shard what they train have a prefix beside the same weights in few bits as one rank") {
  const scratch_folder base;
  save_pretrained(chatglm1<plain_recipe>(glm_sizes()), base.path());
  const std::vector<double> one = steps_beside_integers<single>(base.path(), nullptr);
  REQUIRE(one.size() == 6 + 2 * 5 * 2 * 32);
  const auto on_two = [&](auto strategy) {
    std::vector<std::vector<double>> all(2);
    run_ranks(2, [&](const std::shared_ptr<transport>& network) {
      all[network->rank()] = steps_beside_integers<decltype(strategy)>(base.path(), network);
    });
    REQUIRE(all[0].size() == one.size());
    for (std::size_t i = 0; i < one.size(); ++i) CHECK(std::abs(all[0][i] - one[i]) < 2e-5);
    for (std::size_t i = 0; i < 6; ++i) CHECK(all[0][i] == all[1][i]);
  };
  on_two(zero<1>{});
  on_two(zero<2>{});
}

TEST_CASE("a run goes on only beside weights in as many bits") {
  const scratch_folder base, run;
  save_pretrained(chatglm1<plain_recipe>(glm_sizes()), base.path());
  const auto with = [&](std::size_t bits, auto&& use) {
    auto model = chatglm1<prefix_recipe>::from_pretrained(base.path(), {}, {.adapter = {.length = 5, .counts_in_positions = false, .weight_bits = bits}});
    trainer steps(model, {.max_steps = 6, .micro_batch_size = 2, .seq_length = 8});
    checkpoint_folder files(steps, run.path());
    use(files);
  };
  with(8, [](auto& files) { files.save(); });
  with(8, [](auto& files) { CHECK(files.resume()); });
  for (const std::size_t bits : {0U, 4U})
    with(bits, [](auto& files) {
      CHECK_THROWS_WITH_AS((void)files.resume(), doctest::Contains("a resumed run must have the same model; its weight_bits was 8, now it is "), config_error);
    });
}

TEST_CASE("the gradient of a prefix before a context is the slope along any direction") {
  decoder_config c = sizes();
  c.hidden_size = 32;
  c.num_kv_heads = 4;
  c.bos = 13;
  c.gap = 8;
  using model_type = chatglm1<gradient_recipe>;
  model_type model(c, {}, {.adapter = {.length = 3, .counts_in_positions = false}});
  host_batch batch{.b = 2, .t = 6};
  batch.tokens = {4, 2, 8, 13, 20, 21, 7, 8, 13, 22, 23, 24};
  batch.targets = {-1, -1, -1, 20, 21, 22, -1, -1, 22, 23, 24, 25};
  batch.target_count = 7;
  pass_memory<model_type> passes(model, {.layer_inputs = 1 << 20, .saved = 1 << 22, .workspace = 1 << 22});
  const batch_memory<reference> memory(model.context(), 12, attention_mask_of(model));
  std::vector<double> losses(12);
  model.parameters().allocate_gradients();
  fill_zero(model.stream(), model.parameters().gradients());
  const auto run = [&](bool with_gradients) {
    auto p = passes.new_pass(pass_mode::training);
    p.batch = memory.upload(model.stream(), batch);
    p.gradient_scale = 1.0 / 7.0;
    model.forward(p, passes.layer_inputs(), {span_of(std::span<double>(losses)), {12}});
    if (with_gradients) model.backward(p, passes.layer_inputs(), true);
    else {
      p.saved.drop(0);
      passes.layer_inputs().drop(0);
    }
    double sum = 0;
    for (const double one : losses) sum += one;
    return sum / 7.0;
  };
  (void)run(true);
  const auto gradients = model.parameters().gradients().host();
  const auto weights = model.parameters().trained_values().host();
  const std::vector<double> gradient(gradients.begin(), gradients.end()), start(weights.begin(), weights.end());
  REQUIRE(start.size() == 2 * 3 * 2 * 32);  // only the prefix is trained
  for (std::uint32_t direction = 0; direction < 4; ++direction) {
    double slope = 0;
    std::vector<double> d(start.size());
    for (std::size_t i = 0; i < d.size(); ++i) {
      d[i] = 2.0 * static_cast<double>(uniform_open(random_word({.seed = direction, .site = 3}, i))) - 1.0;
      slope += gradient[i] * d[i];
    }
    const auto at = [&](double s) {
      for (std::size_t i = 0; i < d.size(); ++i) weights[i] = start[i] + s * d[i];
      return run(false);
    };
    const double h = 1e-6, quotient = (at(h) - at(-h)) / (2 * h);
    CHECK(slope == doctest::Approx(quotient).epsilon(1e-6));
  }
}

TEST_CASE("a prefix is refused where it cannot be, and says why") {
  using model = llama<prefix_recipe>;
  CHECK_THROWS_WITH_AS(model(sizes(), {}, {.adapter = {.length = 0}}), "prefix_tuning: length must be 1 to 65536; given 0", config_error);
  CHECK_THROWS_WITH_AS(gpt2<prefix_recipe>(bloom_sizes(), {}, {.adapter = {.length = 2}}),
                       "gpt2: positions must start at 0, because each has its own embedding; with the adapter they start at 2", config_error);
  const dataset packed = numbers(sequence_layout::packed);
  model m(sizes(), {}, {.adapter = {.length = 2}});
  CHECK_THROWS_WITH_AS(trainer(m, {.max_steps = 1, .micro_batch_size = 2, .seq_length = 24}).fit(packed), doctest::Contains("a sequence must hold one sample"),
                       config_error);
  trainer(m, {.max_steps = 1, .micro_batch_size = 2, .seq_length = 24}).fit(numbers(sequence_layout::separate));  // padding is not a sample

  const scratch_folder folder;
  save_pretrained(m, folder.path());
  model longer(sizes(), {}, {.adapter = {.length = 3}});
  CHECK_THROWS_WITH_AS(load_adapter(longer, folder.path()), doctest::Contains("must have the model's 3 virtual tokens; it has 2"), config_error);
  auto other_sizes = sizes();
  other_sizes.num_layers = 3;
  model deeper(other_sizes, {}, {.adapter = {.length = 2}});
  CHECK_THROWS_WITH_AS(load_adapter(deeper, folder.path()), doctest::Contains("Does the prefix belong to this model?"), config_error);
}
