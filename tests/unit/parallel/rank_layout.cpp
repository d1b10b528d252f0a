#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include <xtrain/comm/transport.hpp>
#include <xtrain/parallel/rank_layout.hpp>

using namespace xtrain;
using members = std::vector<std::size_t>;

namespace {

constexpr detail::sharded_axes everything{.tensor = true, .context = true, .expert = true};

detail::rank_axes axes_of(std::size_t ranks, rank_layout layout, const detail::sharded_axes& divided = everything) {
  layout.ranks = std::make_shared<dry_transport>(0, ranks);
  return {layout, divided};
}

}  // namespace

TEST_CASE("neighbours divide layers, then share rows or hold other experts, then divide a copy; copies are farthest apart") {
  const auto at = axes_of(16, {.tensor_parallel_size = 2, .context_parallel_size = 2, .shards = 2, .expert_parallel_size = 2});
  CHECK(at.replicas == 2);
  CHECK(at.layers(5) == members{4, 5});
  CHECK(at.rows(5) == members{5, 7});
  CHECK(at.expert_owners(5) == members{5, 7});
  CHECK(at.data(5) == members{1, 5, 9, 13});
  CHECK(at.alike(5) == members{1, 5, 9, 13});
  CHECK(at.shard(5) == members{1, 5});
  CHECK(at.same_shard(5) == members{5, 13});
}

TEST_CASE("context-parallel ranks have the same weights and the same sequences") {
  const auto at = axes_of(8, {.tensor_parallel_size = 2, .context_parallel_size = 2});
  CHECK(at.shards == 4);
  CHECK(at.rows(6) == members{4, 6});
  CHECK(at.data(6) == members{2, 6});
  CHECK(at.alike(6) == members{0, 2, 4, 6});
  CHECK(at.same_shard(6) == members{6});
}

TEST_CASE("a rank is among those it works with, and they agree on who they are") {
  for (const rank_layout& layout :
       {rank_layout{}, rank_layout{.tensor_parallel_size = 4}, rank_layout{.context_parallel_size = 6, .shards = 3},
        rank_layout{.tensor_parallel_size = 2, .context_parallel_size = 3, .shards = 2, .expert_parallel_size = 3},
        rank_layout{.tensor_parallel_size = 3, .shards = 1, .expert_parallel_size = 2}}) {
    const auto at = axes_of(24, layout);
    for (const auto& list : {&detail::rank_axes::layers, &detail::rank_axes::rows, &detail::rank_axes::expert_owners, &detail::rank_axes::data,
                             &detail::rank_axes::alike, &detail::rank_axes::shard, &detail::rank_axes::same_shard}) {
      for (std::size_t rank = 0; rank < 24; ++rank) {
        const members together = (at.*list)(rank);
        std::size_t found = 0;
        for (const std::size_t other : together) {
          found += other == rank ? 1 : 0;
          REQUIRE((at.*list)(other) == together);
        }
        REQUIRE(found == 1);
      }
    }
  }
}

TEST_CASE("ranks that the axes do not divide, and axes that the strategy does not have, are refused") {
  for (const rank_layout& layout :
       {rank_layout{.tensor_parallel_size = 0}, rank_layout{.tensor_parallel_size = 5}, rank_layout{.context_parallel_size = 0},
        rank_layout{.context_parallel_size = 5}, rank_layout{.tensor_parallel_size = 4, .context_parallel_size = 4},
        rank_layout{.expert_parallel_size = 0}, rank_layout{.expert_parallel_size = 5},
        rank_layout{.tensor_parallel_size = 4, .expert_parallel_size = 4}, rank_layout{.shards = 5},
        rank_layout{.tensor_parallel_size = 2, .shards = 12}, rank_layout{.shards = 16}})
    CHECK_THROWS_AS(axes_of(8, layout), config_error);
  constexpr detail::sharded_axes nothing{};
  for (const rank_layout& layout : {rank_layout{.tensor_parallel_size = 2}, rank_layout{.context_parallel_size = 2}, rank_layout{.expert_parallel_size = 2}})
    CHECK_THROWS_AS(axes_of(8, layout, nothing), config_error);
  const auto at = axes_of(8, {}, nothing);
  CHECK(at.shards == 8);
  CHECK(at.replicas == 1);
  CHECK(at.data(3) == members{0, 1, 2, 3, 4, 5, 6, 7});
  const detail::rank_axes alone(rank_layout{}, nothing);  // without a transport there is one rank
  CHECK(alone.shards == 1);
  CHECK(alone.alike(0) == members{0});
  CHECK(axes_of(8, {.tensor_parallel_size = 8}).replicas == 1);
  CHECK(axes_of(8, {.shards = 8}).replicas == 1);
  CHECK(axes_of(8, {.shards = 1}).replicas == 8);
}
