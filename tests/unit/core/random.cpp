#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <xtrain/core/random.hpp>
#include <xtrain/device/cpu/random.hpp>

using namespace xtrain;

TEST_CASE("philox gives the published words") {
  // known-answer vectors of Random123, philox4x32-10
  CHECK(philox({0, 0, 0, 0}, 0) == std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822) ==
        std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("many words at once are the words one by one, wherever they begin") {
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{6}, std::uint64_t{1} << 34}) {
    const random_site site{.seed = 7, .step = 3, .site = 11, .first = first};
    std::array<std::uint32_t, cpu_kernels::words_at_once> words{};
    cpu_kernels::random_words(site, 5, words);
    for (std::size_t i = 0; i < words.size(); ++i) REQUIRE(words[i] == random_word(site, 5 + i));
  }
}

TEST_CASE("normal numbers have mean 0 and deviation 1, uniform ones are above 0") {
  double sum = 0, squares = 0;
  constexpr std::size_t quads = 25000;
  for (std::size_t q = 0; q < quads; ++q)
    for (const float x : normal_quad({.seed = 1}, q)) {
      sum += static_cast<double>(x);
      squares += static_cast<double>(x) * static_cast<double>(x);
    }
  // of 100 000 numbers the mean deviates by 1/sqrt(n) = 0.003, the variance by sqrt(2/n) = 0.0045; four standard deviations
  CHECK(std::abs(sum / 1e5) < 0.013);
  CHECK(std::abs(squares / 1e5 - 1.0) < 0.018);
  CHECK(uniform_open(0) > 0.0f);
  CHECK(uniform_open(0xffffffff) == 1.0f);
}

TEST_CASE("names, normal numbers and shuffled orders are those of programs of their own") {
  CHECK(site_of_name("") == 0x811c9dc5U);  // test vectors of FNV's authors
  CHECK(site_of_name("a") == 0xe40c292cU);
  CHECK(site_of_name("foobar") == 0xbf9cf968U);
  const std::array<double, 4> expected{0.379287059, 0.513411486, -0.0918956936, -0.633480932};
  const auto normal = normal_quad({.seed = (std::uint64_t{2} << 32) | 7, .step = 5, .site = 11}, (std::uint64_t{1} << 32) | 3);
  for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(static_cast<double>(normal[i]) - expected[i]) < 2e-7);  // one rounding of fp32
  CHECK(uniform_open(0) == 0x1p-24f);
  CHECK(uniform_open(0x80000000U) == 0.5f + 0x1p-24f);
  CHECK(random_site{}.seed == 0);
  CHECK(random_word({}, 0) == 0x6627e8d5U);
  CHECK(dropout_threshold(1.0) == 0xffffffffU);
  CHECK(dropout_threshold(0.25) == 0x40000000U);
  CHECK(dropout_threshold(0x1p-32) == 1);

  const auto check_order = [](const shuffled_order& order, const std::vector<std::size_t>& places) {
    CHECK(order.size() == places.size());
    for (std::size_t i = 0; i < places.size(); ++i) CHECK(order[i] == places[i]);
  };
  check_order({4, 1, 0}, {3, 1, 0, 2});
  check_order({5, 42, 3}, {0, 1, 4, 3, 2});
  check_order({16, 7, 2}, {1, 5, 14, 13, 9, 11, 10, 7, 8, 2, 15, 0, 12, 4, 3, 6});
  check_order({17, 7, 2}, {10, 7, 5, 8, 3, 2, 16, 0, 11, 4, 9, 15, 13, 12, 6, 14, 1});
}

TEST_CASE("a shuffled order holds every place once, and differs by seed and epoch") {
  for (const std::size_t size : {1UL, 2UL, 3UL, 5UL, 64UL, 1000UL}) {
    std::vector<bool> seen(size, false);
    const shuffled_order order(size, 42, 0);
    for (std::size_t i = 0; i < size; ++i) {
      REQUIRE(order[i] < size);
      REQUIRE(!seen[order[i]]);
      seen[order[i]] = true;
    }
  }
  const shuffled_order a(1000, 42, 0), again(1000, 42, 0), other_epoch(1000, 42, 1), other_seed(1000, 43, 0);
  std::size_t same_epoch = 0, same_seed = 0, fixed_points = 0;
  for (std::size_t i = 0; i < 1000; ++i) {
    REQUIRE(a[i] == again[i]);
    same_epoch += a[i] == other_epoch[i];
    same_seed += a[i] == other_seed[i];
    fixed_points += a[i] == i;
  }
  CHECK(same_epoch < 10);  // one is expected
  CHECK(same_seed < 10);
  CHECK(fixed_points < 10);
}

TEST_CASE("dropout's threshold is its probability") {
  CHECK(dropout_threshold(0.0) == 0);
  CHECK(dropout_threshold(0.5) == 0x80000000U);
  std::size_t dropped = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) dropped += random_word({.seed = 5}, i) < dropout_threshold(0.1) ? 1 : 0;
  // binomial: standard deviation sqrt(n p (1-p)) = 95; four of them
  CHECK(std::abs(static_cast<double>(dropped) - 1e4) < 380);
}
