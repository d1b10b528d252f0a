// Which tokens are sampled, and how often.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include <xtrain/generate/sampling.hpp>

using namespace xtrain;

namespace {

/// Logits of these probabilities, plus a shift that softmax must ignore.
std::vector<float> logits_of(const std::vector<double>& probabilities, double shift = 0.0) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + shift));
  return logits;
}

/// The frequency of each token must match its probability.
void check_frequencies(const sampling_config& settings, const std::vector<float>& logits, const std::vector<double>& expected) {
  sampler choices(settings);
  constexpr double n = 20000;
  std::vector<double> count(logits.size(), 0.0);
  for (std::size_t place = 0; place < 20000; ++place)
    count[static_cast<std::size_t>(choices.choose<float>(logits, {}, 1, place))] += 1.0;
  for (std::size_t t = 0; t < logits.size(); ++t) {
    CAPTURE(t);
    // binomial, four standard deviations
    CHECK(std::abs(count[t] / n - expected[t]) <= 4 * std::sqrt(expected[t] * (1 - expected[t]) / n));
  }
}

token greedy(const std::vector<float>& logits, const std::vector<token>& seen, double penalty) {
  return sampler({.repetition_penalty = penalty}).choose<float>(logits, seen, 0, 0);
}

}  // namespace

TEST_CASE("tokens come as often as temperature, top-k and top-p say, each set of what is left adding up to 1") {
  const std::vector<double> p{0.1, 0.5, 0.15, 0.25};
  const auto logits = logits_of(p);
  check_frequencies({.temperature = 1.0}, logits, p);
  check_frequencies({.temperature = 1.0}, logits_of(p, 900.0), p);  // exp of such a logit is infinite
  check_frequencies({.temperature = 1.0}, logits_of(p, -900.0), p);
  double roots = 0;
  for (const double x : p) roots += std::sqrt(x);
  check_frequencies({.temperature = 2.0}, logits,
                    {std::sqrt(p[0]) / roots, std::sqrt(p[1]) / roots, std::sqrt(p[2]) / roots, std::sqrt(p[3]) / roots});
  check_frequencies({.temperature = 0.5}, logits, {0.01 / 0.345, 0.25 / 0.345, 0.0225 / 0.345, 0.0625 / 0.345});
  check_frequencies({.temperature = 1.0, .top_k = 3}, logits, {0, 0.5 / 0.9, 0.15 / 0.9, 0.25 / 0.9});
  check_frequencies({.temperature = 1.0, .top_k = 9}, logits, p);
  check_frequencies({.temperature = 1.0, .top_p = 0.7}, logits, {0, 2.0 / 3, 0, 1.0 / 3});
  check_frequencies({.temperature = 1.0, .top_p = 0.8}, logits, {0, 0.5 / 0.9, 0.15 / 0.9, 0.25 / 0.9});
  check_frequencies({.temperature = 1.0, .top_p = 0.999}, logits, p);
  check_frequencies({.temperature = 1.0, .top_k = 3, .top_p = 0.8}, logits, {0, 2.0 / 3, 0, 1.0 / 3});  // of the 0.9 of the top three, 5/6
  check_frequencies({.temperature = 1.0, .top_k = 1}, logits_of({0.25, 0.25, 0.5, 0.5}), {0, 0, 1, 0});  // ties: the lower token
}

TEST_CASE("the choice among equals is the random word of (seed, row, place)") {
  // 16 equal logits: the upper four bits. Philox of (0, 0, row, position), key 42, computed by an independent program
  const std::vector<float> equal(16, 0.5f);
  const std::vector<token> of_row_0{9, 2, 5, 10, 5, 3, 1, 4, 6, 11, 7, 0}, of_row_3{0, 9, 13, 3, 5, 4, 2, 15, 1, 15, 2, 12};
  sampler choices({.temperature = 1.0});
  for (std::size_t place = 0; place < 12; ++place) {
    CAPTURE(place);
    CHECK(choices.choose<float>(equal, {}, 0, place) == of_row_0[place]);
    CHECK(choices.choose<float>(equal, {}, 3, place) == of_row_3[place]);
  }
}

TEST_CASE("the repetition penalty divides logits above 0 and multiplies those below, once for a token") {
  CHECK(greedy({-1.0f, -1.2f}, {}, 2.0) == 0);
  CHECK(greedy({-1.0f, -1.2f}, {0}, 2.0) == 1);
  CHECK(greedy({-1.0f, -2.1f}, {0}, 2.0) == 0);
  CHECK(greedy({1.0f, 0.6f}, {0}, 2.0) == 1);
  CHECK(greedy({1.0f, 0.4f}, {0}, 2.0) == 0);
  CHECK(greedy({1.0f, 0.9f, 0.4f}, {0, 1, 0, 1, 0}, 2.0) == 0);  // 0.5, 0.45, 0.4
  CHECK(greedy({1.0f, 0.9f, 0.4f}, {0, 1}, 0.5) == 0);           // below 1 it is a reward
  CHECK(greedy({-1.0f, -0.9f, -0.6f}, {0}, 0.5) == 0);
  CHECK(greedy({1.0f, 0.9f}, {-1, 2, 77, 0}, 2.0) == 1);  // tokens without a logit
  CHECK(greedy({-1.0f, 0.9f, 0.8f}, {-1, 1}, 2.0) == 2);
}

TEST_CASE("settings that are at the edge of what can be") {
  CHECK(sampling_config{}.temperature == 0.0);
  CHECK(sampling_config{}.repetition_penalty == 1.0);
  CHECK_NOTHROW(sampler({.top_p = 1.0}));
  CHECK_THROWS_AS(sampler({.top_p = 1.1}), config_error);
  CHECK_THROWS_AS(sampler({.repetition_penalty = 0.0}), config_error);
  CHECK_NOTHROW(sampler({.repetition_penalty = 0.1}));
  CHECK_THROWS_AS(sampler({.temperature = std::numeric_limits<double>::infinity()}), config_error);
}
