// Optimizers over whole matrices train like one rank on tensor-parallel shards and pipeline stages.
#include <doctest/doctest.h>

#include <cstddef>
#include <string>

#include <xtrain/parallel/pipeline.hpp>
#include <xtrain/parallel/zero.hpp>

#include "matrix_runs.hpp"
#include "scratch.hpp"

namespace {

decoder_config shape() {
  decoder_config all = sizes(false);
  all.num_heads = 4;
  all.num_kv_heads = 2;
  all.residual_dropout = all.attention_dropout = 0;
  return all;
}
template <class Model, class Layout>
outcome run_in(const std::string& folder, std::size_t ranks, const Layout& layout, std::size_t steps, std::size_t data_parallel_size = 1,
               bool resumes = false) {
  return saved_run<Model, model_with<single, typename Model::recipe::optimizer>>(shape(), folder, ranks, layout, steps, data_parallel_size, resumes);
}

}  // namespace

TEST_CASE_TEMPLATE("tensor-parallel ranks and pipelines train like one rank, and go on from each other's checkpoints", Optimizer, muon, adafactor) {
  const scratch_folder scratch;
  const outcome one = run_in<model_with<single, Optimizer>>(scratch / "one", 1, single::config{}, 6);
  const auto same = [&](const outcome& other) {
    if (other.losses.size() == one.losses.size()) CHECK(difference(one.losses, other.losses) < 2e-5);
    CHECK(difference(one.weights, other.weights) < 2e-5);
  };
  using tensor = model_with<tensor_parallel, Optimizer>;
  using sharded_tensor = model_with<parallel<zero<1>, tensor_parallel>, Optimizer>;
  using sequence = model_with<parallel<zero<3>, sequence_parallel>, Optimizer>;
  using stages = model_with<pipeline<one_forward_one_backward, zero<1>>, Optimizer>;
  const rank_layout two{.tensor_parallel_size = 2}, four{.tensor_parallel_size = 4};
  same(run_in<tensor>(scratch / "two", 2, two, 6));
  same(run_in<tensor>(scratch / "four", 4, four, 6));  // 4 ranks share 2 key/value heads: two ranks have the same shard
  same(run_in<sharded_tensor>(scratch / "zero", 4, two, 6, 2));
  same(run_in<sequence>(scratch / "sequence", 4, two, 6, 2));
  same(run_in<stages>(scratch / "stages", 4, pipeline_ranks{.data_parallel_size = 2}, 6, 2));
  // one strategy's checkpoint, from which another continues
  (void)run_in<tensor>(scratch / "a", 4, four, 3);
  same(run_in<stages>(scratch / "a", 4, pipeline_ranks{.data_parallel_size = 2}, 6, 2, true));
  (void)run_in<stages>(scratch / "b", 4, pipeline_ranks{.data_parallel_size = 2}, 3, 2);
  same(run_in<sharded_tensor>(scratch / "b", 4, two, 6, 2, true));
  (void)run_in<sequence>(scratch / "c", 4, two, 3, 2);
  same(run_in<model_with<single, Optimizer>>(scratch / "c", 1, single::config{}, 6, 1, true));
}
