// Loss and perplexity of a data set, against values computed from logits, in double, one sample at a time.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/xtrain.hpp>

using namespace xtrain;

namespace {

struct recipe : defaults {};
using model_type = llama<recipe>;

/// Weights large enough that token probabilities differ by orders of magnitude.
model_type make_model() {
  return model_type({.vocab_size = 29,
                     .hidden_size = 24,
                     .num_layers = 2,
                     .num_heads = 2,
                     .num_kv_heads = 1,
                     .intermediate_size = 40,
                     .max_position_embeddings = 12,
                     .attention_dropout = 0.5,
                     .residual_dropout = 0.5,
                     .initializer_range = 0.3});
}

std::vector<token> numbers(std::size_t length, std::size_t seed) {
  std::vector<token> all;
  for (std::size_t i = 0; i < length; ++i) all.push_back(static_cast<token>((seed * 31 + i * i * 7 + 3 * i) % 29));
  return all;
}

/// 11 samples of 2 to 13 tokens. Unless all tokens are targets, the first three and every fourth are ignored.
bool is_learned(std::size_t i) { return i > 2 && i % 4 != 0; }
dataset samples(sequence_layout layout, bool all_learned) {
  dataset d("samples", layout);
  for (std::size_t s = 0; s < 11; ++s) d.add(numbers(2 + (s * 5) % 12, s), [&](std::size_t i) { return all_learned || is_learned(i); });
  d.finish();
  return d;
}

/// −log probability of each next token, in double.
std::vector<double> losses_of(model_type& model, const std::vector<token>& row) {
  array<token, 2> inputs(shape_of_rank<2>{1, row.size() - 1});
  std::copy(row.begin(), row.end() - 1, inputs.data());
  const auto logits_btv = logits(model, inputs);
  std::vector<double> losses;
  for (std::size_t i = 0; i + 1 < row.size(); ++i) {
    double largest = -INFINITY, sum = 0;
    for (std::size_t v = 0; v < 29; ++v) largest = std::max(largest, static_cast<double>(logits_btv(0, i, v)));
    for (std::size_t v = 0; v < 29; ++v) sum += std::exp(static_cast<double>(logits_btv(0, i, v)) - largest);
    losses.push_back(largest + std::log(sum) - static_cast<double>(logits_btv(0, i, static_cast<std::size_t>(row[i + 1]))));
    REQUIRE(losses.back() < 25);  // assumed by the bound below
  }
  return losses;
}

/// The mean over the targets of all samples.
evaluation by_hand(model_type& model, bool all_learned) {
  evaluation found;
  double sum = 0;
  for (std::size_t s = 0; s < 11; ++s) {
    const std::vector<token> sample = numbers(2 + (s * 5) % 12, s);
    const std::vector<double> losses = losses_of(model, sample);
    for (std::size_t i = 1; i < sample.size(); ++i) {
      if (!all_learned && !is_learned(i)) continue;
      sum += losses[i - 1];
      ++found.targets;
    }
  }
  found.loss = sum / static_cast<double>(found.targets);
  return found;
}

/// Two evaluations of one model: intermediate values are sums of at most 40 products in another order, relative error 2^-24 · sqrt(40); 20 consecutive sums (10
/// matrices, 5 norms, 2 attentions, head, softmax), token losses below 25: 20 · 6e-8 · 6.3 · 25 = 1.9e-4 per token; a mean is no worse.
constexpr double other_order = 1.9e-4;

}  // namespace

TEST_CASE("the loss of a data set is the mean of -log p over its targets, computed from logits") {
  model_type model = make_model();
  const dataset data = samples(sequence_layout::separate, true);
  const evaluation found = perplexity(model, data), expected = by_hand(model, true);
  CHECK(found.targets == expected.targets);
  CHECK(std::abs(found.loss - expected.loss) < other_order);
  CHECK(found.perplexity == std::exp(found.loss));
  CHECK(found.loss > 1.2 * std::log(29.0));  // confident and wrong, unlike uniform predictions
}

TEST_CASE("a stream is cut into rows, and every token but the first is a target once") {
  model_type model = make_model();
  const std::vector<token> text = numbers(31, 5);
  dataset stream("stream", sequence_layout::stream);
  stream.add(text);
  stream.finish();
  double sum = 0;
  for (std::size_t first = 0; first < 30; first += 8) {  // sequences of 8, 8, 8 and 6 tokens
    const std::size_t end = std::min<std::size_t>(first + 8, 30);
    for (const double loss : losses_of(model, std::vector<token>(text.begin() + static_cast<std::ptrdiff_t>(first),
                                                                 text.begin() + static_cast<std::ptrdiff_t>(end) + 1)))
      sum += loss;
  }
  const evaluation found = perplexity(model, stream, {.micro_batch_size = 3, .seq_length = 8});
  CHECK(found.targets == 30);
  CHECK(std::abs(found.loss - sum / 30) < other_order);
}

TEST_CASE("tokens that are only read are not counted") {
  model_type model = make_model();
  const evaluation all = perplexity(model, samples(sequence_layout::separate, true)),
                   some = perplexity(model, samples(sequence_layout::separate, false)), expected = by_hand(model, false);
  CHECK(some.targets == expected.targets);
  CHECK(some.targets < all.targets);
  CHECK(std::abs(some.loss - expected.loss) < other_order);
  CHECK(std::abs(some.loss - all.loss) > 100 * other_order);  // the loss mask matters
  // a sample's last token is only a target; if ignored, it has no effect
  const auto with_last = [&](token last) {
    dataset d("one", sequence_layout::separate);
    d.add(std::vector<token>{3, 1, 4, 1, 5, last}, [](std::size_t i) { return i < 5; });
    d.finish();
    return perplexity(model, d);
  };
  CHECK(with_last(9).loss == with_last(2).loss);
  CHECK(with_last(9).targets == 4);
}

TEST_CASE("batch and padding do not change the loss, and dropout is off") {
  model_type model = make_model();
  const dataset data = samples(sequence_layout::separate, false);
  const evaluation one = perplexity(model, data, {.micro_batch_size = 1});
  for (const std::size_t batch : {2UL, 4UL, 11UL, 16UL}) {
    CAPTURE(batch);
    const evaluation found = perplexity(model, data, {.micro_batch_size = batch});
    CHECK(found.targets == one.targets);
    CHECK(std::abs(found.loss - one.loss) < other_order);
  }
  CHECK(perplexity(model, data, {.micro_batch_size = 4}).loss == perplexity(model, data, {.micro_batch_size = 4}).loss);
}

TEST_CASE("samples packed into rows have the loss of samples in rows of their own") {
  model_type model = make_model();
  for (const bool all_learned : {true, false}) {
    const evaluation packed = perplexity(model, samples(sequence_layout::packed, all_learned), {.micro_batch_size = 2});
    const evaluation separate = perplexity(model, samples(sequence_layout::separate, all_learned), {.micro_batch_size = 2});
    CHECK(packed.targets == separate.targets);
    CHECK(std::abs(packed.loss - separate.loss) < other_order);
  }
}

TEST_CASE("an evaluation leaves weights and device memory as they were") {
  model_type model = make_model();
  const auto values = model.parameters().trained_values().host();
  const std::vector<float> before(values.begin(), values.end());
  const std::size_t memory = model.context().memory().total_now;
  (void)perplexity(model, samples(sequence_layout::packed, true));
  CHECK(std::equal(before.begin(), before.end(), values.begin()));
  CHECK(model.context().memory().total_now == memory);
}

TEST_CASE("data that cannot be evaluated is refused, and says why") {
  model_type model = make_model();
  const auto finished = [](const std::vector<token>& tokens, sequence_layout layout) {
    dataset d("data", layout);
    if (!tokens.empty()) d.add(tokens);
    d.finish();
    return d;
  };
  CHECK_THROWS_WITH_AS((void)perplexity(model, finished({}, sequence_layout::stream)), "data: must hold text to train on; it is empty",
                       data_error);
  CHECK_THROWS_WITH_AS((void)perplexity(model, finished({1, 2, 29}, sequence_layout::separate)),
                       doctest::Contains("data: tokens must be below the model's vocabulary of 29; token 29 occurs"), data_error);
  CHECK_THROWS_WITH_AS((void)perplexity(model, finished(numbers(14, 1), sequence_layout::separate)),
                       doctest::Contains("data: samples must fit the sequence length of 12 tokens; sample 1 has 14"), data_error);
  CHECK_NOTHROW((void)perplexity(model, finished(numbers(13, 1), sequence_layout::separate)));  // 12 inputs
  const dataset good = samples(sequence_layout::separate, true);
  CHECK_THROWS_WITH_AS((void)perplexity(model, good, {.seq_length = 13}),
                       "perplexity: seq_length must not be longer than the model's 12 tokens; given 13", config_error);
  CHECK_THROWS_WITH_AS((void)perplexity(model, good, {.micro_batch_size = 0}),
                       doctest::Contains("micro_batch_size, gradient_accumulation_steps and seq_length must be "
                                         "positive"),
                       config_error);
}
