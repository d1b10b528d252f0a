// The schedule cache reuses lists and is bounded.
#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

#include <xtrain/parallel/pipeline/schedule_cache.hpp>
#include <xtrain/parallel/schedule/gpipe.hpp>
#include <xtrain/parallel/schedule/one_forward_one_backward.hpp>

using namespace xtrain;

TEST_CASE("what is asked for again is what was made first, kind by kind") {
  schedule_cache cache;
  std::size_t made = 0;
  const auto in_turn = [&](std::size_t ranks, const std::vector<std::size_t>& rows) {
    return cache.get<struct turns>(ranks, 1, rows, [&] { return ++made, one_forward_one_backward_schedule(ranks, rows); });
  };
  const auto first = in_turn(4, {1, 1, 1, 1});
  CHECK(in_turn(4, {1, 1, 1, 1}) == first);
  CHECK(made == 1);
  CHECK(in_turn(2, {1, 1, 1, 1}) != first);
  CHECK(in_turn(4, {2, 2, 2, 2})->rows[3] == 2);
  CHECK(made == 3);
  const auto other = cache.get<struct fill_and_drain>(4, 1, first->rows, [&] { return gpipe_schedule(4, first->rows); });
  CHECK(other->name == "gpipe");
  CHECK(in_turn(4, {1, 1, 1, 1}) == first);
}

TEST_CASE("a shelf that is full begins anew, and what is too long for it is not kept") {
  schedule_cache cache;
  std::size_t made = 0;
  const auto long_list = [&](std::size_t number, std::size_t actions) {
    return cache.get<struct lists>(1, number, {1}, [&] {
      ++made;
      return pipeline_schedule{"list", number, {1}, {std::vector<pipeline_action>(actions)}};
    });
  };
  const auto first = long_list(1, 600'000);
  CHECK(long_list(1, 600'000) == first);
  (void)long_list(2, 600'000);
  CHECK(made == 2);
  CHECK(long_list(1, 600'000) != first);
  CHECK(made == 3);
  (void)long_list(3, 1'100'000);
  (void)long_list(3, 1'100'000);
  CHECK(made == 5);
  (void)long_list(1, 600'000);  // it is still cached
  CHECK(made == 5);
}
