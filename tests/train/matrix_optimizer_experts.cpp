// Optimizers over whole matrices train like one rank on expert-parallel ranks.
#include <doctest/doctest.h>

#include <cstddef>

#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel/expert.hpp>
#include <xtrain/parallel/zero.hpp>

#include "matrix_runs.hpp"
#include "scratch.hpp"

TEST_CASE_TEMPLATE("expert-parallel ranks train like one rank, and go on from its checkpoint", Optimizer, muon, adafactor) {
  decoder_config shape = sizes(false);
  shape.num_layers = 1;
  shape.num_experts = 4;
  shape.num_experts_per_token = 2;
  shape.residual_dropout = shape.attention_dropout = 0;
  using one_rank = mixtral<recipe_with<single, Optimizer>>;
  using experts = mixtral<recipe_with<expert_parallel, Optimizer>>;
  using sharded = mixtral<recipe_with<parallel<zero<1>, expert_parallel>, Optimizer>>;
  const rank_layout two{.expert_parallel_size = 2};
  const scratch_folder scratch;
  const outcome one = saved_run<one_rank, one_rank>(shape, scratch / "one", 1, single::config{}, 6, 1, false);
  const auto same = [&](const outcome& other) {
    if (other.losses.size() == one.losses.size()) CHECK(difference(one.losses, other.losses) < 2e-5);
    CHECK(difference(one.weights, other.weights) < 2e-5);
  };
  same(saved_run<experts, one_rank>(shape, scratch / "experts", 2, two, 6, 2, false));
  same(saved_run<sharded, one_rank>(shape, scratch / "sharded", 6, two, 6, 6, false));
  (void)saved_run<sharded, one_rank>(shape, scratch / "a", 6, two, 3, 6, false);
  same(saved_run<one_rank, one_rank>(shape, scratch / "a", 1, single::config{}, 6, 1, true));
  (void)saved_run<one_rank, one_rank>(shape, scratch / "b", 1, single::config{}, 3, 1, false);
  same(saved_run<experts, one_rank>(shape, scratch / "b", 2, two, 6, 2, true));
}
