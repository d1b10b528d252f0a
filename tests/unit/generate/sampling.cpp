// Sampled tokens, and their frequencies.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/reference/reference.hpp>
#include <xtrain/device/simt/sample.hpp>
#include <xtrain/device/simt/simt.hpp>
#include <xtrain/generate/sampling.hpp>
#include "golden.hpp"

using namespace xtrain;

namespace {

/// Logits of these probabilities, plus a shift that softmax must ignore.
std::vector<float> logits_of(const std::vector<double>& probabilities, double shift = 0.0) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + shift));
  return logits;
}

/// Token frequencies match probabilities.
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

/// README.md's definition, by sorting all tokens; logits are after penalties.
token chosen_by_sorting(const std::vector<double>& logits, const sampling_config& settings, std::size_t row, std::size_t place) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  std::size_t kept = order.size();
  if (settings.top_k != 0 && settings.top_k < kept)
    for (kept = settings.top_k; kept < order.size() && logits[order[kept]] == logits[order[settings.top_k - 1]];) ++kept;
  while (logits[order[kept - 1]] == -std::numeric_limits<double>::infinity()) --kept;
  std::vector<double> weights;
  double total = 0, share = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    weights.push_back(std::exp((logits[order[i]] - logits[order[0]]) / settings.temperature));
    total += weights.back();
  }
  for (std::size_t i = 0; settings.top_p < 1.0 && i < kept; ++i) {
    share += weights[i] / total;
    if (share >= settings.top_p) kept = i + 1;
  }
  while (kept > 1 && weights[kept - 1] < settings.min_p) --kept;
  double left = 0;
  for (std::size_t i = 0; i < kept; ++i) left += weights[i];
  left *= static_cast<double>(
      uniform_open(random_word({.seed = settings.seed, .step = static_cast<std::uint32_t>(place), .site = static_cast<std::uint32_t>(row)}, 0)));
  std::size_t i = 0;
  for (; i + 1 < kept; ++i)
    if ((left -= weights[i]) <= 0.0) break;
  return static_cast<token>(order[i]);
}

/// The kernel's choice on a device.
template <class Device>
token chosen_on(const std::vector<float>& logits, const std::vector<token>& seen, const sampling_config& settings, std::size_t row, std::size_t place) {
  const typename Device::context context;
  typename Device::stream stream(context);
  const std::size_t text = seen.size() + 4;
  const buffer<Device> logits_memory(context, logits.size() * sizeof(float), memory_role::other), tokens(context, text * sizeof(token), memory_role::other);
  std::vector<token> all = seen;
  for (const std::size_t number : {seen.size() - 1, place, row, std::size_t{0}}) all.push_back(static_cast<token>(number));
  stream.copy_from_host(logits_memory.template as<float>().raw(), logits.data(), logits_memory.bytes());
  stream.copy_from_host(tokens.template as<token>().raw(), all.data(), tokens.bytes());
  const auto tokens_at = [&](std::size_t first, std::size_t n) { return tokens.template as<token>().subspan(first, n); };
  kernel::sample<typename Device::memory> k{.n = 1,
                                            .v = logits.size(),
                                            .capacity = seen.size(),
                                            .temperature = settings.temperature,
                                            .top_k = settings.top_k,
                                            .top_p = settings.top_p,
                                            .min_p = settings.min_p,
                                            .repetition_penalty = settings.repetition_penalty,
                                            .seed = settings.seed};
  k.logits_nv = logits_memory.template as<float>();
  k.text_nc = tokens_at(0, seen.size());
  k.last_n = tokens_at(seen.size(), 1);
  k.place_n = tokens_at(seen.size() + 1, 1);
  k.sequence_n = tokens_at(seen.size() + 2, 1);
  k.token_n = tokens_at(seen.size() + 3, 1);
  const buffer<Device> scratch(context, scratch_bytes(context.properties(), k), memory_role::workspace);
  run_kernel(stream, k, scratch.template as<std::byte>());
  token chosen = 0;
  stream.copy_to_host(&chosen, k.token_n.raw(), sizeof chosen);
  stream.synchronize();
  return chosen;
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
  check_frequencies({.temperature = 1.0, .top_k = 3, .top_p = 0.8}, logits, {0, 2.0 / 3, 0, 1.0 / 3});  // 5/6 of the top three's 0.9
  check_frequencies({.temperature = 1.0, .top_k = 1}, logits_of({0.25, 0.25, 0.5, 0.5}), {0, 0, 0.5, 0.5});  // ties are kept, as in transformers
  check_frequencies({.temperature = 1.0, .min_p = 0.4}, logits, {0, 0.5 / 0.75, 0, 0.25 / 0.75});
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

TEST_CASE("what is drawn from are the distributions of transformers' logits processors") {
  const safetensors_file expected(golden::folder("generation/expected.safetensors"));
  std::vector<token> seen;
  for (const double t : golden::numbers(expected, "seen")) seen.push_back(static_cast<token>(t));
  constexpr std::size_t fresh = 6;
  const std::vector<std::vector<token>> bad_words{{5}, {2, 6, 9}};
  const std::vector<sequence_bias> biases{{{4}, 2.5}, {{6, 10}, 1.75}, {{1, 12}, 9.0}};
  const std::map<std::string, sampling_config> all{
      {"repetition", {.temperature = 1.0, .repetition_penalty = 1.7}},
      {"temperature_top_k", {.temperature = 0.7, .top_k = 5}},
      {"top_k_ties", {.temperature = 1.3, .top_k = 4}},
      {"temperature_top_p", {.temperature = 1.4, .top_p = 0.7}},
      {"min_p", {.temperature = 1.5, .min_p = 0.25}},
      {"top_k_top_p", {.temperature = 2.0, .top_k = 9, .top_p = 0.8}},
      {"top_p_min_p", {.temperature = 2.0, .top_p = 0.9, .min_p = 0.3}},
      {"all_of_them", {.temperature = 1.8, .top_k = 12, .top_p = 0.85, .repetition_penalty = 1.4, .min_p = 0.2}},
      {"ngrams", {.temperature = 1.0, .no_repeat_ngram_size = 3}},
      {"bad_words", {.temperature = 1.0, .bad_words = bad_words}},
      {"biases", {.temperature = 1.0, .repetition_penalty = 1.3, .biases = biases}},
      {"min_new_tokens", {.temperature = 1.0, .top_p = 0.9}},
      {"everything", {.temperature = 1.2, .top_k = 10, .top_p = 0.95, .repetition_penalty = 1.3, .min_p = 0.05, .no_repeat_ngram_size = 2,
                      .bad_words = bad_words, .biases = biases}}};
  for (const auto& one : all) {
    const std::string& name = one.first;
    CAPTURE(name);
    const std::size_t least = name == "min_new_tokens" || name == "everything" ? fresh + 1 : 0;
    sampler choices(one.second, {.min_new_tokens = least, .stop = {3, 8}});
    const std::vector<double> logits = golden::numbers(expected, name + ".logits"), probabilities = golden::numbers(expected, name + ".probabilities");
    const std::vector<double> ours = choices.distribution<double>(logits, seen, fresh);
    REQUIRE(ours.size() == probabilities.size());
    for (std::size_t t = 0; t < ours.size(); ++t) {
      CAPTURE(t);
      CHECK((ours[t] == 0.0) == (probabilities[t] == 0.0));
      CHECK(std::abs(ours[t] - probabilities[t]) < 1e-6);  // a softmax in fp32
    }
  }
}

TEST_CASE("frequency and presence penalties count what was generated, not the prompt") {
  const std::vector<float> logits{1.0f, 1.0f, 1.0f, 1.0f};
  const auto probabilities = [&](const sampling_config& settings) { return sampler(settings).distribution<float>(logits, std::vector<token>{0, 1, 1, 2}, 3); };
  const auto weights = [](std::vector<double> exponents) {
    double sum = 0;
    for (double& x : exponents) sum += x = std::exp(x);
    for (double& x : exponents) x /= sum;
    return exponents;
  };
  const auto near = [](const std::vector<double>& a, const std::vector<double>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) < 1e-12);
  };
  near(probabilities({.temperature = 1.0, .frequency_penalty = 0.5}), weights({0, -1, -0.5, 0}));
  near(probabilities({.temperature = 1.0, .presence_penalty = 0.7}), weights({0, -0.7, -0.7, 0}));
  near(probabilities({.temperature = 2.0, .frequency_penalty = 0.5, .presence_penalty = 0.7}), weights({0, -0.85, -0.6, 0}));
  CHECK_THROWS_AS(sampler({.min_p = 1.5}), config_error);
  CHECK_THROWS_AS(sampler({.bad_words = {{}}}), config_error);
  CHECK_THROWS_AS(sampler({.biases = {{{}, 1.0}}}), config_error);
}

TEST_CASE("a draw by selection, and by the kernel of every device, gives the token that sorting gives: ties, banned tokens, outliers, all settings") {
  std::mt19937_64 random(11);
  const auto one_of = [&](const auto& values) { return values[random() % values.size()]; };
  const std::vector<std::size_t> sizes{1, 2, 10, 1500, 5000, 9000}, ks{0, 0, 1, 5, 50, 4500};
  const std::vector<double> temperatures{1e-3, 0.3, 0.8, 1.0, 2.5, 100.0}, ps{1.0, 1.0, 0.999999, 0.95, 0.8, 0.5, 0.3, 1e-9},
      min_ps{0.0, 0.0, 0.0, 0.05, 0.3, 1.0}, penalties{1.0, 1.0, 1.3, 0.7};
  std::set<token> different;
  int undecided = 0;  // left to the host by the GPU's kernel
  for (int i = 0; i < 500; ++i) {
    const std::size_t size = one_of(sizes);
    const int shape = static_cast<int>(random() % 6);
    std::normal_distribution<float> normal(0.0f, 2.0f);
    std::vector<float> logits(size, 0.5f);  // shape 0: all are equal
    for (float& x : logits) {
      const float y = normal(random);
      if (shape == 1) x = y;
      if (shape == 2) x = std::round(y * 2) / 2;
      if (shape == 3) x = random() % 3 == 0 ? -std::numeric_limits<float>::infinity() : y;
      if (shape == 4) x = random() % 50 == 0 ? 1e30f * y : y;
      if (shape == 5) x = 3.0f + 1e-6f * std::round(y);  // many in a bucket
    }
    logits[random() % size] = 0.25f;  // one that is not banned
    const sampling_config settings{.temperature = one_of(temperatures),
                                   .top_k = one_of(ks),
                                   .top_p = one_of(ps),
                                   .repetition_penalty = one_of(penalties),
                                   .seed = random(),
                                   .min_p = one_of(min_ps)};
    const std::vector<token> seen{0, static_cast<token>(size / 2), 0};
    std::vector<double> penalised(logits.begin(), logits.end());
    for (const std::size_t t : std::set<std::size_t>{0, size / 2})
      penalised[t] = penalised[t] > 0 ? penalised[t] / settings.repetition_penalty : penalised[t] * settings.repetition_penalty;
    CAPTURE(i);
    CAPTURE(size);
    CAPTURE(shape);
    CAPTURE(settings.temperature);
    CAPTURE(settings.top_k);
    CAPTURE(settings.top_p);
    CAPTURE(settings.min_p);
    sampler choices(settings);
    for (std::size_t place = 0; place < 3; ++place) {
      const token expected = chosen_by_sorting(penalised, settings, place, 7 * place);
      different.insert(expected);
      REQUIRE(choices.choose<float>(logits, seen, place, 7 * place) == expected);
      if (place > 0) continue;
      REQUIRE(chosen_on<reference>(logits, seen, settings, place, 0) == expected);
      REQUIRE(chosen_on<cpu>(logits, seen, settings, place, 0) == expected);
      const token on_gpu = chosen_on<simt_device>(logits, seen, settings, place, 0);
      if (on_gpu == kernel::undecided) {  // where equal weights reach top_p, or near min_p
        CHECK((settings.top_p < 1.0 || settings.min_p > 0.0));
        ++undecided;
      } else {
        REQUIRE(on_gpu == expected);
      }
    }
  }
  CHECK(different.size() > 150);
  CHECK(undecided < 25);
  constexpr std::size_t largest = 1453509, smallest = 1837107;  // positions with random words 1 and 2^-24
  std::vector<float> logits(5000);
  std::vector<double> wide;
  for (float& x : logits) wide.push_back(static_cast<double>(x = std::normal_distribution<float>(0.0f, 3.0f)(random)));
  for (const std::size_t place : {largest, smallest})
    for (const double p : ps) {
      const sampling_config settings{.temperature = 1.0, .top_p = p};
      CHECK(sampler(settings).choose<float>(logits, {}, 0, place) == chosen_by_sorting(wide, settings, 0, place));
    }
}

TEST_CASE("where equal weights reach top_p exactly, rounding in the order of likelihood decides, as it is defined") {
  for (const std::size_t size : {std::size_t{10}, std::size_t{100}, std::size_t{6000}}) {
    const std::vector<float> logits(size, 1.0f);
    const std::vector<double> same(size, 1.0);
    for (const double p : {0.1, 0.3, 0.5, 0.7, 0.8, 0.9})
      for (std::size_t place = 0; place < 20; ++place) {
        const sampling_config settings{.temperature = 0.7, .top_p = p};
        CAPTURE(size);
        CAPTURE(p);
        const token expected = chosen_by_sorting(same, settings, 0, place);
        CHECK(sampler(settings).choose<float>(logits, {}, 0, place) == expected);
        if (size == 6000 || place > 2) continue;
        CHECK(chosen_on<cpu>(logits, {0}, settings, 0, place) == expected);
        const token on_gpu = chosen_on<simt_device>(logits, {0}, settings, 0, place);
        if (on_gpu != expected) CHECK(on_gpu == kernel::undecided);
      }
  }
}
