#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include <xtrain/parallel/pipeline/schedules.hpp>
#include <xtrain/parallel/pipeline/stages.hpp>

using namespace xtrain;

TEST_CASE("stages follow one another from the embedding to the head, as equal as can be") {
  for (std::size_t layers = 1; layers <= 12; ++layers)
    for (std::size_t stages = 1; stages <= layers; ++stages) {
      CAPTURE(concat(layers, " layers, ", stages, " stages"));
      const std::vector<block_range> blocks = stage_blocks(layers, stages, {});
      REQUIRE(blocks.size() == stages);
      CHECK(blocks.front().first == 0);
      CHECK(blocks.back().last == layers + 2);
      for (std::size_t s = 1; s < stages; ++s) CHECK(blocks[s].first == blocks[s - 1].last);
      const std::vector<std::size_t> split = equal_layers(layers, stages);
      CHECK(*std::max_element(split.begin(), split.end()) - *std::min_element(split.begin(), split.end()) <= 1);
      CHECK(stage_blocks(layers, stages, split) == blocks);
    }
}

TEST_CASE("the first stage and the last may have no layer") {
  CHECK(stage_blocks(3, 3, {0, 3, 0}) == std::vector<block_range>{{0, 1}, {1, 4}, {4, 5}});
  CHECK_THROWS_AS((void)stage_blocks(3, 4, {1, 0, 1, 1}), config_error);
  CHECK_THROWS_AS((void)stage_blocks(3, 2, {3, 1}), config_error);
  CHECK_THROWS_AS((void)stage_blocks(3, 2, {1, 1}), config_error);
  CHECK_THROWS_AS((void)stage_blocks(3, 0, {}), config_error);
}

TEST_CASE("schedules are made under the names they are chosen by") {
  const std::vector<std::size_t> rows(4, 1);
  CHECK(gpipe::make(2, 1, rows).name == gpipe::name);
  CHECK(one_forward_one_backward::make(2, 1, rows).name == one_forward_one_backward::name);
  CHECK(interleaved::make(2, 2, rows).name == interleaved::name);
  CHECK(all_in_all_out::make(2, 2, rows).name == all_in_all_out::name);
  CHECK_THROWS_AS((void)gpipe::make(2, 2, rows), config_error);
}
