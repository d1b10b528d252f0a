#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include <xtrain/data/word_masking.hpp>

using namespace xtrain;

TEST_CASE("which words are chosen and what stands in their places is the random words of (seed, epoch, place)") {
  // Philox of (position, site of the name, epoch), computed by an independent program; -1: not masked
  const std::vector<std::pair<std::size_t, token>> expected{
      {0, -1}, {1, -1}, {2, -1},  {5, 50},  {6, -1},  {7, 50}, {8, -1}, {9, 5},  {12, 47}, {15, -1}, {16, -1}, {18, 46}, {19, 4}, {21, -1}, {23, 4},
      {24, 15}, {25, 12}, {26, 4}, {27, 4}, {29, -1}, {31, 4}, {32, 4}, {34, 40}, {36, 2}, {43, 4}, {52, -1}, {53, 27}, {55, -1}, {59, 4}};
  const detail::masking_draw draw({.mask = 4, .vocab_size = 57, .share = 0.5, .as_mask = 0.4, .as_any = 0.3}, 5, 2);
  std::vector<std::pair<std::size_t, token>> came;
  for (std::size_t place = 0; place < 60; ++place)
    if (draw.chooses(place)) came.emplace_back(place, draw.replacement(place, -1));
  CHECK(came == expected);
}

TEST_CASE("shares of masked, random and kept words are those asked for, and any word is as likely as another") {
  const auto check = [](double share, double as_mask, double as_any) {
    CAPTURE(as_mask);
    constexpr std::size_t vocabulary = 20, n = 200000;
    const detail::masking_draw draw({.mask = 3, .vocab_size = vocabulary, .share = share, .as_mask = as_mask, .as_any = as_any}, 11, 0);
    double chosen = 0, kept = 0;
    std::vector<double> count(vocabulary, 0.0);
    for (std::size_t place = 0; place < n; ++place) {
      if (!draw.chooses(place)) continue;
      chosen += 1;
      const token now = draw.replacement(place, 1000);
      if (now == 1000) kept += 1;
      else count.at(static_cast<std::size_t>(now)) += 1;
    }
    // binomial, four standard deviations
    const auto near = [](double found, double p, double of) { return std::abs(found / of - p) <= 4 * std::sqrt(p * (1 - p) / of); };
    CHECK(near(chosen, share, static_cast<double>(n)));
    CHECK(near(kept, 1 - as_mask - as_any, chosen));
    for (std::size_t t = 0; t < vocabulary; ++t) {
      CAPTURE(t);
      CHECK(near(count[t], (t == 3 ? as_mask : 0.0) + as_any / static_cast<double>(vocabulary), chosen));
    }
  };
  const word_masking bert;
  check(bert.share, bert.as_mask, bert.as_any);
  check(0.15, 0.8, 0.1);
  check(0.3, 0.2, 0.7);
  check(1.0, 0.0, 1.0);
  check(1.0, 1.0, 0.0);
  check(0.5, 0.0, 0.0);
}

TEST_CASE("masking that cannot be is refused") {
  CHECK_NOTHROW(detail::require_masking({.mask = 4, .vocab_size = 5, .share = 1.0, .as_mask = 0.0, .as_any = 1.0}));
  CHECK_NOTHROW(detail::require_masking({.mask = 0, .vocab_size = 5, .as_mask = 1.0, .as_any = 0.0}));
  CHECK_THROWS_AS(detail::require_masking({.mask = -1, .vocab_size = 5}), config_error);
  CHECK_THROWS_AS(detail::require_masking({.mask = 5, .vocab_size = 5}), config_error);
  CHECK_THROWS_AS(detail::require_masking({.mask = 4, .vocab_size = 5, .share = 0.0}), config_error);
  CHECK_THROWS_AS(detail::require_masking({.mask = 4, .vocab_size = 5, .share = 1.1}), config_error);
  CHECK_THROWS_AS(detail::require_masking({.mask = 4, .vocab_size = 5, .as_mask = -0.1}), config_error);
  CHECK_THROWS_AS(detail::require_masking({.mask = 4, .vocab_size = 5, .as_any = -0.1}), config_error);
  CHECK_THROWS_AS(detail::require_masking({.mask = 4, .vocab_size = 5, .as_mask = 0.6, .as_any = 0.5}), config_error);
}
