// Logits of sequences: equal with isolated memory, independent of other sequences and positions of the batch, refused for sequences that are too long.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <xtrain/testing/isolated.hpp>
#include <xtrain/xtrain.hpp>

using namespace xtrain;

namespace {

struct recipe : defaults {};
struct walled_recipe : defaults {
  using device = testing::isolated<cpu>;
};

decoder_config sizes() {
  return {.vocab_size = 29,
          .hidden_size = 24,
          .num_layers = 2,
          .num_heads = 2,
          .num_kv_heads = 1,
          .intermediate_size = 40,
          .max_position_embeddings = 12,
          .attention_dropout = 0.5,
          .initializer_range = 0.3};
}

array<token, 2> rows(std::size_t b, std::size_t t) {
  array<token, 2> tokens(shape_of_rank<2>{b, t});
  for (std::size_t i = 0; i < b; ++i)
    for (std::size_t j = 0; j < t; ++j) tokens(i, j) = static_cast<token>((7 * i + 5 * j * j + 3) % 29);
  return tokens;
}

/// Two computations of a logit: sums of at most 40 products in another order, each with relative error 2^-24 · sqrt(40); 20 consecutive sums, logits below 20:
/// 20 · 6e-8 · 6.3 · 20 = 1.5e-4.
constexpr double other_order = 1.5e-4;

}  // namespace

TEST_CASE("logits of a device that the host cannot touch are those of the cpu, bit for bit") {
  llama<recipe> model(sizes());
  llama<walled_recipe> walled(sizes());
  const array<float, 3> a = logits(model, rows(3, 7)), b = logits(walled, rows(3, 7));
  CHECK(a.shape() == b.shape());
  CHECK(a.shape()[0] == 3);
  CHECK(a.shape()[1] == 7);
  CHECK(a.shape()[2] == 29);
  CHECK(std::equal(a.begin(), a.end(), b.begin()));
  CHECK(std::all_of(a.begin(), a.end(), [](float x) { return std::isfinite(x) && std::abs(x) < 20.0f; }));
  CHECK(*std::max_element(a.begin(), a.end()) > 1.0f);  // not all zero
}

TEST_CASE("an evaluation waits for the device once per batch, and copies between pinned memory and the device") {
  dataset data("numbers", sequence_layout::stream);
  std::vector<token> tokens;
  for (token i = 0; i < 100; ++i) tokens.push_back(i * i % 29);
  data.add(tokens);
  data.finish();
  llama<recipe> model(sizes());
  llama<walled_recipe> walled(sizes());
  const auto before = walled.context().waits();
  const evaluation a = perplexity(model, data, {.micro_batch_size = 2}), b = perplexity(walled, data, {.micro_batch_size = 2});
  const auto waits = walled.context().waits().since(before);
  CHECK(a.loss == b.loss);
  CHECK(waits.synchronizations == (a.targets + 23) / 24);  // 2 rows of 12 tokens
  CHECK(waits.blocking_copies + waits.event_waits == 0);
}

TEST_CASE("a row's logits do not depend on the rows beside it, a place's not on the places behind it") {
  llama<recipe> model(sizes());
  const array<float, 3> all = logits(model, rows(3, 9));
  array<token, 2> first_places(shape_of_rank<2>{1, 4});
  for (std::size_t j = 0; j < 4; ++j) first_places(0, j) = rows(3, 9)(2, j);
  const array<float, 3> alone = logits(model, first_places);
  for (std::size_t j = 0; j < 4; ++j)
    for (std::size_t v = 0; v < 29; ++v)
      REQUIRE(std::abs(static_cast<double>(alone(0, j, v)) - static_cast<double>(all(2, j, v))) < other_order);
}

TEST_CASE("logits leave nothing behind in device memory") {
  llama<recipe> model(sizes());
  const std::size_t memory = model.context().memory().total_now;
  (void)logits(model, rows(2, 12));
  CHECK(model.context().memory().total_now == memory);
  CHECK(model.context().memory().total_peak > memory);
}

TEST_CASE("rows that the model cannot read are refused with the numbers") {
  llama<recipe> model(sizes());
  CHECK_THROWS_WITH_AS((void)logits(model, rows(1, 13)), "logits: sequences must not be longer than the model's max_position_embeddings of 12 tokens; given 13",
                       shape_error);
  array<token, 2> wrong = rows(2, 5);
  wrong(1, 3) = 29;
  CHECK_THROWS_WITH_AS((void)logits(model, wrong), "logits: tokens must be in the model's vocabulary of 29; given 29 at index 8", data_error);
  wrong(1, 3) = -1;
  CHECK_THROWS_WITH_AS((void)logits(model, wrong), "logits: tokens must be in the model's vocabulary of 29; given -1 at index 8", data_error);
  CHECK(logits(model, rows(0, 5)).size() == 0);  // no sequences, no logits
  CHECK_THROWS_WITH_AS((void)logits(model, rows(2, 0)), "logits: a batch must have at least one sequence of at least one token; given 2 sequences of 0",
                       data_error);
  CHECK_NOTHROW((void)logits(model, rows(1, 12)));
}

TEST_CASE("logits that do not fit the device's memory are refused") {
  const cpu::context on({.memory_limit = 1 << 20});
  llama<recipe> model(sizes(), on);
  CHECK_THROWS_AS((void)logits(model, rows(200, 12)), memory_error);
  CHECK_NOTHROW((void)logits(model, rows(1, 2)));
}
