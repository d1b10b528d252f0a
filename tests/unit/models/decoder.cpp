#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/adapt/none.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/device/reference/reference.hpp>
#include <xtrain/models/chatglm1.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/llama.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/models/pass_memory.hpp>
#include <xtrain/testing/check_gradient.hpp>

using namespace xtrain;

namespace {

template <class Recompute>
struct oracle_recipe : testing::gradient_recipe {
  using recompute = Recompute;
};

struct adapted_oracle : testing::gradient_recipe {
  using adapter = lora;
};

decoder_config small_sizes(std::size_t kv_heads) {
  return {.vocab_size = 19,
          .hidden_size = 12,
          .num_layers = 2,
          .num_heads = 2,
          .num_kv_heads = kv_heads,
          .intermediate_size = 10,
          .max_position_embeddings = 9,
          .initializer_range = 0.3};
}

decoder_config with_experts() {
  decoder_config sizes = small_sizes(1);
  sizes.num_experts = 5;
  sizes.num_experts_per_token = 2;
  sizes.balances_experts = true;
  sizes.router_aux_loss_coef = 0.7;
  return sizes;
}

/// The first sample of the first sequence below has a bidirectional prefix of two tokens.
decoder_config with_context() {
  decoder_config sizes = small_sizes(2);
  sizes.hidden_size = 16;
  sizes.bos = 13;
  sizes.gap = 8;
  return sizes;
}

/// Two packed sequences of 7 tokens, some without a label; each second sample begins at token 4.
host_batch rows() {
  host_batch batch{.b = 2, .t = 7};
  for (std::size_t i = 0; i < 14; ++i) {
    const std::size_t place = i % 7, start = place < 4 ? 0 : 4;
    batch.tokens.push_back(static_cast<token>((5 * i + 3) % 19));
    batch.targets.push_back(i % 5 == 1 ? -1 : static_cast<token>((7 * i + 2) % 19));
    batch.positions.push_back(static_cast<token>(place - start));
    batch.starts.push_back(static_cast<token>(start));
    batch.target_count += batch.targets.back() >= 0 ? 1 : 0;
  }
  return batch;
}

/// Loss and gradients of one batch, on the reference device in double.
template <class Model>
struct bench {
  Model model;
  host_batch batch = rows();
  pass_memory<Model> passes;
  batch_memory<reference> memory{model.context(), 14, attention_mask_of(model)};
  std::vector<double> losses = std::vector<double>(14);

  explicit bench(const decoder_config& sizes, const typename Model::options& options = {})
      : model(sizes, {}, options), passes(model, {.layer_inputs = 1 << 20, .saved = 1 << 22, .workspace = 1 << 22}) {
    model.parameters().allocate_gradients();
    fill_zero(model.stream(), model.parameters().gradients());
  }
  double run(bool with_gradients) {
    auto p = passes.new_pass(pass_mode::training);
    p.batch = memory.upload(model.stream(), batch);
    p.gradient_scale = 1.0 / static_cast<double>(batch.target_count);
    p.random = {.seed = 4, .step = 2};
    model.forward(p, passes.layer_inputs(), {span_of(std::span<double>(losses)), {14}});
    if (with_gradients) model.backward(p, passes.layer_inputs(), true);
    else {
      p.saved.drop(0);
      passes.layer_inputs().drop(0);
    }
    return std::accumulate(losses.begin(), losses.end(), 0.0) * p.gradient_scale.value;
  }
};

/// d/ds loss(w + s · direction) at 0 is gradient · direction, for random directions.
template <class Model>
void check_directions(const decoder_config& sizes) {
  bench<Model> b(sizes);
  // the head's forward also computes gradients: zeroed before the measured run
  const auto gradients = b.model.parameters().gradients().host();
  (void)b.run(true);
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
    // along a direction of length sqrt(n) the third derivative is large: h = 1e-6 balances it against rounding / h = 1e-10
    const double h = 1e-6, quotient = (at(h) - at(-h)) / (2 * h);
    CHECK(slope == doctest::Approx(quotient).epsilon(1e-6));
    for (std::size_t i = 0; i < d.size(); ++i) weights[i] = start[i];
  }
}

template <class Model>
std::vector<double> gradients_of(const decoder_config& sizes) {
  bench<Model> b(sizes);
  std::vector<double> all{b.run(true)};
  const auto gradients = b.model.parameters().gradients().host();
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

}  // namespace

TEST_CASE("the gradient of whole models is the slope along any direction") {
  decoder_config with_dropout = small_sizes(2);
  with_dropout.embedding_dropout = with_dropout.attention_dropout = with_dropout.residual_dropout = 0.2;
  check_directions<gpt2<oracle_recipe<recompute_none>>>(with_dropout);
  check_directions<llama<oracle_recipe<recompute_none>>>(small_sizes(1));
  decoder_config untied = small_sizes(2);
  untied.tie_word_embeddings = false;
  check_directions<llama<oracle_recipe<recompute_full>>>(untied);
  check_directions<mixtral<oracle_recipe<recompute_none>>>(with_experts());
  check_directions<chatglm1<oracle_recipe<recompute_none>>>(with_context());
}

TEST_CASE("whatever is recomputed, loss and gradients are the same, bit for bit") {
  decoder_config sizes = small_sizes(2);
  sizes.embedding_dropout = sizes.attention_dropout = sizes.residual_dropout = 0.2;
  const auto kept = gradients_of<gpt2<oracle_recipe<recompute_none>>>(sizes);
  CHECK(kept == gradients_of<gpt2<oracle_recipe<recompute_full>>>(sizes));
  CHECK(kept == gradients_of<gpt2<oracle_recipe<recompute_selective<norm_outputs>>>>(sizes));
  CHECK(kept == gradients_of<gpt2<oracle_recipe<recompute_selective<activation_outputs, attention_outputs>>>>(sizes));
  CHECK(kept == gradients_of<gpt2<oracle_recipe<recompute_selective<norm_outputs, activation_outputs, attention_outputs>>>>(sizes));
  const auto llama_kept = gradients_of<llama<oracle_recipe<recompute_none>>>(small_sizes(1));
  CHECK(llama_kept == gradients_of<llama<oracle_recipe<recompute_full>>>(small_sizes(1)));
  CHECK(llama_kept ==
        gradients_of<llama<oracle_recipe<recompute_selective<norm_outputs, activation_outputs, attention_outputs>>>>(small_sizes(1)));
  const auto mixtral_kept = gradients_of<mixtral<oracle_recipe<recompute_none>>>(with_experts());
  CHECK(mixtral_kept == gradients_of<mixtral<oracle_recipe<recompute_full>>>(with_experts()));
  CHECK(mixtral_kept == gradients_of<mixtral<oracle_recipe<recompute_selective<norm_outputs, activation_outputs>>>>(with_experts()));
  const auto glm_kept = gradients_of<chatglm1<oracle_recipe<recompute_none>>>(with_context());
  CHECK(glm_kept == gradients_of<chatglm1<oracle_recipe<recompute_full>>>(with_context()));
  CHECK(glm_kept ==
        gradients_of<chatglm1<oracle_recipe<recompute_selective<norm_outputs, activation_outputs, attention_outputs>>>>(with_context()));
}

TEST_CASE("a token changes nothing before it: attention is causal") {
  using model_type = llama<oracle_recipe<recompute_none>>;
  bench<model_type> b(small_sizes(1));
  b.batch.starts.assign(14, 0);
  (void)b.run(false);
  const std::vector<double> before = b.losses;
  b.batch.tokens[5] = (b.batch.tokens[5] + 1) % 19;
  (void)b.run(false);
  for (std::size_t i = 0; i < 14; ++i) {
    CAPTURE(i);
    if (i < 5 || i >= 7) CHECK(b.losses[i] == before[i]);
  }
  CHECK(b.losses[5] != before[5]);
}

TEST_CASE("a context is seen from both sides, and what is generated is causal") {
  bench<chatglm1<oracle_recipe<recompute_none>>> b(with_context());
  (void)b.run(false);
  const std::vector<double> before = b.losses;
  const auto changes = [&](std::size_t at) {
    std::vector<std::size_t> found;
    const token was = std::exchange(b.batch.tokens[at], 1);
    (void)b.run(false);
    b.batch.tokens[at] = was;
    for (std::size_t i = 0; i < 14; ++i)
      if (b.losses[i] != before[i]) found.push_back(i);
    return found;
  };
  // tokens 1 and 6 have no label; the begin token is token 2, the next sample begins at 4
  CHECK(changes(1) == std::vector<std::size_t>{0, 2, 3});
  CHECK(changes(3) == std::vector<std::size_t>{3});
  CHECK(changes(5) == std::vector<std::size_t>{5});
}

TEST_CASE("samples packed into one row do not see one another") {
  using model_type = llama<oracle_recipe<recompute_none>>;
  bench<model_type> b(small_sizes(1));
  (void)b.run(false);
  const std::vector<double> before = b.losses;
  b.batch.tokens[1] = (b.batch.tokens[1] + 1) % 19;  // in the first sample of the first sequence
  (void)b.run(false);
  for (std::size_t i = 4; i < 14; ++i) CHECK(b.losses[i] == before[i]);
}

TEST_CASE("initial values are drawn as the papers say") {
  const auto deviation = [](auto& model, const std::string& name) {
    const auto view = model.template parameter<2>(name).span().host();
    double squares = 0;
    for (const double x : view) squares += x * x;
    return std::sqrt(squares / static_cast<double>(view.size()));
  };
  gpt2<oracle_recipe<recompute_none>> g({.vocab_size = 300, .hidden_size = 64, .num_layers = 8, .num_heads = 2, .max_position_embeddings = 50});
  // 4096 or more values: relative standard error of the standard deviation 1/sqrt(2n) = 0.011; four of them
  CHECK(deviation(g, "transformer.wte.weight") == doctest::Approx(0.02).epsilon(0.045).scale(0));
  CHECK(deviation(g, "transformer.h.3.attn.c_attn.weight") == doctest::Approx(0.02).epsilon(0.045).scale(0));
  CHECK(deviation(g, "transformer.h.3.attn.c_proj.weight") == doctest::Approx(0.02 / 4.0).epsilon(0.045).scale(0));
  CHECK(deviation(g, "transformer.h.3.mlp.c_proj.weight") == doctest::Approx(0.02 / 4.0).epsilon(0.045).scale(0));
  for (const double x : g.parameter<1>("transformer.ln_f.weight").span().host()) CHECK(x == 1.0);
  for (const double x : g.parameter<1>("transformer.h.0.mlp.c_fc.bias").span().host()) CHECK(x == 0.0);
  CHECK(g.config().intermediate_size == 256);
  llama<oracle_recipe<recompute_none>> l({.vocab_size = 300, .hidden_size = 64, .num_layers = 2, .num_heads = 2, .max_position_embeddings = 50});
  CHECK(l.config().intermediate_size == 192);
  CHECK(deviation(l, "model.layers.1.self_attn.o_proj.weight") == doctest::Approx(0.02).epsilon(0.045).scale(0));
}

TEST_CASE("the padding token's embedding begins as zeros and no input trains it, where transformers' model has a padding_idx") {
  const auto row = [](const auto& view, std::size_t i) {
    const auto all = view.span().host();
    return std::vector<double>(all.begin() + static_cast<std::ptrdiff_t>(12 * i), all.begin() + static_cast<std::ptrdiff_t>(12 * (i + 1)));
  };
  const std::vector<double> zeros(12, 0.0);
  decoder_config untied = small_sizes(1);
  untied.tie_word_embeddings = false;
  // tokens of rows(): 3, 8, 13, 18, 4, ...; a negative one counts from the end
  for (const auto& [padding, index] : {std::pair<std::optional<token>, std::size_t>{8, 8}, {-1, 18}, {-19, 0}, {18, 18}}) {
    untied.pad_token_id = padding;
    bench<llama<oracle_recipe<recompute_none>>> b(untied);
    const auto embedding = b.model.parameters().find("model.embed_tokens.weight");
    CHECK(row(b.model.parameter<2>("model.embed_tokens.weight"), index) == zeros);
    CHECK(row(b.model.parameter<2>("model.embed_tokens.weight"), 3) != zeros);
    CHECK(row(b.model.parameter<2>("lm_head.weight"), index) != zeros);
    (void)b.run(true);
    const matrix_view<const double, host_memory> gradient(b.model.parameters().gradient(*embedding), {19, 12});
    CHECK(row(gradient, index) == zeros);
    CHECK(row(gradient, 3) != zeros);
    CHECK(row(gradient, 13) != zeros);
  }
  untied.pad_token_id = {};
  bench<llama<oracle_recipe<recompute_none>>> none(untied);
  (void)none.run(true);
  const matrix_view<const double, host_memory> trained(none.model.parameters().gradient(*none.model.parameters().find("model.embed_tokens.weight")), {19, 12});
  CHECK(row(trained, 8) != zeros);
  // a tied head trains this row
  decoder_config tied = small_sizes(1);
  tied.pad_token_id = 8;
  bench<llama<oracle_recipe<recompute_none>>> b(tied);
  (void)b.run(true);
  const matrix_view<const double, host_memory> of_head(b.model.parameters().gradient(*b.model.parameters().find("model.embed_tokens.weight")), {19, 12});
  CHECK(row(of_head, 8) != zeros);
  // GPT-2's embedding has no padding_idx
  decoder_config without = small_sizes(2);
  without.pad_token_id = 8;
  CHECK(row(gpt2<oracle_recipe<recompute_none>>(without).parameter<2>("transformer.wte.weight"), 8) != zeros);

  // an adapter of the embedding does not train the row either, as in peft
  decoder_config adapted = small_sizes(1);
  adapted.tie_word_embeddings = false;
  adapted.pad_token_id = 8;
  bench<llama<adapted_oracle>> lora_bench(adapted, {.adapter = {.rank = 2, .targets = {"embed_tokens"}}});
  (void)lora_bench.run(true);
  const auto* table = lora_bench.model.parameters().find(concat("model.embed_tokens", lora_names::table_a));
  REQUIRE(table != nullptr);
  const auto rows_of_a = lora_bench.model.parameters().gradient(*table).host();
  CHECK(rows_of_a[2 * 8] == 0.0);
  CHECK(rows_of_a[2 * 8 + 1] == 0.0);
  CHECK(rows_of_a[2 * 3] != 0.0);

  for (const token outside : {19, -20}) {
    untied.pad_token_id = outside;
    CHECK_THROWS_WITH_AS(llama<oracle_recipe<recompute_none>>{untied}, doctest::Contains("llama: pad_token_id must be in the vocabulary of 19; given "),
                         config_error);
  }
}

TEST_CASE("sizes that contradict themselves are refused with the numbers") {
  using g = gpt2<oracle_recipe<recompute_none>>;
  using l = llama<oracle_recipe<recompute_none>>;
  CHECK_THROWS_WITH_AS(l({.vocab_size = 9, .hidden_size = 12, .num_layers = 1, .num_heads = 6, .num_kv_heads = 4, .max_position_embeddings = 4}),
                       "llama: num_heads (6) must be divisible by num_kv_heads (4)", config_error);
  CHECK_THROWS_WITH_AS(g({.vocab_size = 9, .hidden_size = 10, .num_layers = 1, .num_heads = 3, .max_position_embeddings = 4}),
                       "gpt2: hidden_size (10) must be divisible by num_heads (3)", config_error);
  CHECK_THROWS_WITH_AS(g({.vocab_size = 9, .hidden_size = 12, .num_layers = 1, .num_heads = 3, .num_kv_heads = 1, .max_position_embeddings = 4}),
                       "gpt2: num_kv_heads must equal num_heads (3); given 1", config_error);
  CHECK_THROWS_WITH_AS(l({.vocab_size = 9, .hidden_size = 9, .num_layers = 1, .num_heads = 3, .max_position_embeddings = 4}),
                       "llama: the head dim must be even to be rotated; it is 3", config_error);
  CHECK_THROWS_WITH_AS(l({.vocab_size = 9, .hidden_size = 10, .num_layers = 1, .num_heads = 3, .max_position_embeddings = 4}),
                       "llama: hidden_size (10) must be divisible by num_heads (3)", config_error);
  CHECK_THROWS_WITH_AS(l({.vocab_size = 9, .hidden_size = 12, .num_layers = 1, .num_heads = 3}),
                       "llama: max_position_embeddings must be given; it is 0", config_error);
  CHECK_THROWS_WITH_AS(g({.vocab_size = 9, .hidden_size = 12, .num_layers = 1, .num_heads = 3, .max_position_embeddings = 4, .residual_dropout = 1.0}),
                       doctest::Contains("dropout must be in [0, 1)"), config_error);
}

TEST_CASE("a parameter is found by its name in files, and a wrong name gets the nearest") {
  llama<oracle_recipe<recompute_none>> model(small_sizes(1));
  CHECK(model.parameter<2>("model.layers.0.self_attn.k_proj.weight").shape() == shape_of_rank<2>{6, 12});
  CHECK_THROWS_WITH_AS((void)model.parameter<2>("model.layers.0.self_attn.k_prj.weight"),
                       doctest::Contains("did you mean 'model.layers.0.self_attn.k_proj.weight'?"), config_error);
  CHECK_THROWS_WITH_AS((void)model.parameter<1>("model.embed_tokens.weight"), doctest::Contains("has 2 dims; asked for 1"), shape_error);
}
