// Rewards compared within groups, as in trl; valid reward functions.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <xtrain/io/safetensors.hpp>
#include <xtrain/rl/advantages.hpp>
#include <xtrain/rl/completions.hpp>
#include "golden.hpp"

using namespace xtrain;

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

void are(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == doctest::Approx(expected[i]).epsilon(1e-14));
}

}  // namespace

TEST_CASE("advantages are rewards less the mean of their group, divided by its standard deviation, as PyTorch computes them") {
  const std::vector<double> rewards{1.0, 0.5, 2.5, -1.0, 3.0, 3.0, 3.0, 3.0, 0.25, 1.75, 0.5, 0.125};
  are(group_advantages(rewards, 4),
      {0.1731930815882145, -0.1731930815882145, 1.2123515711175015, -1.2123515711175015, 0.0, 0.0, 0.0, 0.0, -0.5447557292036923, 1.466650040163787,
       -0.20952143430911244, -0.7123728766509823});
  are(group_advantages(rewards, 4, false), {0.25, -0.25, 1.75, -1.75, 0.0, 0.0, 0.0, 0.0, -0.40625, 1.09375, -0.15625, -0.53125});
}

TEST_CASE("an answer without a reward has no advantage, and does not change those of the others") {
  are(group_advantages(std::vector<double>{1.0, none, 2.5, -1.0}, 4), {0.09491039447766197, 0.0, 0.9491039447766199, -1.044014339254282});
  are(group_advantages(std::vector<double>{none, none}, 2), {0.0, 0.0});
  are(group_advantages(std::vector<double>{none, 4.0}, 2), {0.0, 0.0});
  const reward_statistics found(std::vector<double>{none, 4.0, 2.0});
  CHECK(found.answers == 2);
  CHECK(found.mean == 3.0);
  CHECK(found.deviation == doctest::Approx(std::sqrt(2.0)));
}

TEST_CASE("rewards that cannot be compared are refused") {
  CHECK_THROWS_WITH_AS((void)group_advantages(std::vector<double>(5), 2), doctest::Contains("whole groups of 2; given 5"), config_error);
  CHECK_THROWS_WITH_AS((void)group_advantages(std::vector<double>(4), 0), doctest::Contains("whole groups of 0"), config_error);
  const std::vector<double> infinite{0.0, std::numeric_limits<double>::infinity()};
  CHECK_THROWS_WITH_AS((void)group_advantages(infinite, 2), doctest::Contains("reward 1 is inf"), data_error);
}

TEST_CASE("rewards, advantages and returns of tokens are those of torchtune's PPO (tests/golden/make_ppo.py)") {
  const safetensors_file file(golden::folder("objectives") + "/ppo.safetensors");
  const auto expected = [&](const char* name) { return golden::numbers(file, name); };
  const auto mask = expected("mask"), scores = expected("scores"), whitened = expected("advantages");
  const std::size_t t = mask.size() / scores.size();
  const auto near = [](double a, double b) { CHECK(std::abs(a - b) < 1e-6); };  // log-probabilities and values are rounded to fp32
  std::vector<double> all;
  for (std::size_t s = 0; s < scores.size(); ++s) {
    const auto part = [&](const char* name) {
      std::vector<double> values;
      for (std::size_t i = s * t; i < (s + 1) * t; ++i)
        if (mask[i] > 0) values.push_back(expected(name)[i]);
      return values;
    };
    const auto floats = [&](const char* name) {
      const auto values = part(name);
      return std::vector<float>(values.begin(), values.end());
    };
    const auto rewards = token_rewards(scores[s], floats("old"), floats("reference"), 0.1);
    const auto found = generalized_advantages(rewards, floats("values"), 0.98, 0.9);
    for (std::size_t i = 0; i < rewards.size(); ++i) {
      near(rewards[i], part("rewards")[i]);
      near(found.advantages[i], part("unwhitened")[i]);
      near(found.returns[i], part("returns")[i]);
      all.push_back(found.advantages[i]);
    }
  }
  std::vector<double> alone = all;
  whiten(std::span<double>(alone), [](std::span<double>) {});
  for (std::size_t i = 0, next = 0; i < mask.size(); ++i)
    if (mask[i] > 0) near(alone[next++], whitened[i]);
  std::vector<double> one{4.0};
  whiten(std::span<double>(one), [](std::span<double>) {});
  CHECK(one[0] == 0.0);
  CHECK(token_rewards(2.0, std::vector<float>{-1.0F, -2.0F}, {}, 0.5) == std::vector<double>{0.0, 2.0});
  CHECK_THROWS_WITH_AS((void)token_rewards(2.0, std::vector<float>{-1.0F}, std::vector<float>{-1.0F, 0.0F}, 0.5), doctest::Contains("given 1 and 2"),
                       config_error);
  CHECK_THROWS_WITH_AS((void)generalized_advantages(std::vector<double>{1.0}, std::vector<float>{}, 1.0, 1.0), doctest::Contains("given 1 and 0"),
                       config_error);
}

TEST_CASE("a reward is a function of a prompt and an answer, or of a batch of answers") {
  const std::vector<completion> all{{.prompt = {1, 2}, .answer = {3}, .stop = 9}, {.prompt = {1}, .answer = {4, 5}}};
  CHECK(all[0].tokens() == std::vector<token>{1, 2, 3, 9});
  CHECK(all[1].tokens() == std::vector<token>{1, 4, 5});
  const auto one = [](const std::vector<token>& prompt, const std::vector<token>& answer) { return static_cast<double>(10 * prompt.size() + answer.size()); };
  CHECK(detail::rewards_of(one, std::span<const completion>(all)) == std::vector<double>{21.0, 12.0});
  const auto batch = [](std::span<const completion> answers) { return std::vector<double>(answers.size(), 0.5); };
  CHECK(detail::rewards_of(batch, std::span<const completion>(all)) == std::vector<double>{0.5, 0.5});
  const auto short_one = [](std::span<const completion>) { return std::vector<double>{1.0}; };
  CHECK_THROWS_WITH_AS((void)detail::rewards_of(short_one, std::span<const completion>(all)), doctest::Contains("each of the 2 answers; given 1"), data_error);
}
