// Optimizers over whole matrices train like one rank on data-parallel ranks that shard the matrices; checkpoints do not depend on the ranks.
#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/parallel/zero.hpp>
#include <xtrain/testing/isolated.hpp>

#include "matrix_runs.hpp"
#include "scratch.hpp"

namespace {

template <class Parallel, class Optimizer>
struct walled_recipe : recipe_with<Parallel, Optimizer> {
  using device = testing::isolated<cpu>;
};

/// Steps on some ranks, with a checkpoint folder; returns the final weights.
template <class Parallel, class Optimizer, class Precision = fp32>
std::vector<double> run_in(const std::string& folder, std::size_t ranks, std::size_t steps, bool resumes) {
  const dataset data = sentences();
  std::vector<double> weights;
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    using model_type = model_with<Parallel, Optimizer, Precision>;
    typename model_type::options options;
    if constexpr (!std::is_same_v<Parallel, single>) options.parallel.ranks = network;
    model_type model(sizes(false), {}, options);
    trainer trainer(model, settings<Optimizer>(steps, ranks));
    checkpoint_folder checkpoints(trainer, folder, {.save_steps = 3});
    if (resumes) CHECK(checkpoints.resume());
    trainer.attach(checkpoints);
    trainer.fit(data);
    const std::vector<double> mine = all_weights(model);
    if (network->rank() == 0) weights = mine;
  });
  return weights;
}

template <class Check>
void for_each_sharding(Check&& check) {
  for (const std::size_t ranks : {std::size_t{2}, std::size_t{3}}) {
    CAPTURE(ranks);
    check(ranks, zero<1>{});
    check(ranks, zero<2>{});
    check(ranks, zero<3>{});
  }
}

}  // namespace

TEST_CASE_TEMPLATE("they train", Optimizer, muon, adafactor) {
  training_config<Optimizer> how = settings<Optimizer>(40, 1);
  how.learning_rate = std::is_same_v<Optimizer, muon> ? 1e-2 : 1e-1;
  const outcome one = train<model_with<single, Optimizer>>(sentences(), sizes(false), how, {});
  CHECK(one.losses.back() < one.losses.front() - 0.5);
}

TEST_CASE("muon on ranks that shard matrices has the bits of ranks that do not") {
  const dataset data = sentences();
  training_config<muon> how = settings<muon>(6, 1, 0);
  how.gradient_accumulation_steps = 1;  // ZeRO stages 2 and 3 add micro-batches' gradients in another order
  for_each_sharding([&]<class Parallel>(std::size_t ranks, Parallel) {
    const outcome all = train_on_ranks<model_with<data_parallel, muon>>(ranks, data, sizes(false), how);
    const outcome shards = train_on_ranks<model_with<Parallel, muon>>(ranks, data, sizes(false), how);
    CHECK(shards.weights == all.weights);
    CHECK(shards.losses == all.losses);
  });
}

TEST_CASE_TEMPLATE("ranks that shard matrices train like one rank", Optimizer, muon, adafactor) {
  const dataset data = sentences();
  const outcome one = train<model_with<single, Optimizer>>(data, sizes(false), settings<Optimizer>(6, 1), {});
  for_each_sharding([&]<class Parallel>(std::size_t ranks, Parallel) {
    const outcome shards = train_on_ranks<model_with<Parallel, Optimizer>>(ranks, data, sizes(false), settings<Optimizer>(6, ranks));
    CHECK(difference(one.losses, shards.losses) < 2e-5);
    CHECK(difference(one.weights, shards.weights) < 2e-5);
  });
}

TEST_CASE_TEMPLATE("memory that the host cannot reach changes nothing", Optimizer, muon, adafactor) {
  const dataset data = sentences();
  const outcome here = train_on_ranks<model_with<zero<2>, Optimizer>>(3, data, sizes(false), settings<Optimizer>(3, 3));
  const outcome there = train_on_ranks<llama<walled_recipe<zero<2>, Optimizer>>>(3, data, sizes(false), settings<Optimizer>(3, 3));
  CHECK(here.losses == there.losses);
  CHECK(here.weights == there.weights);
}

TEST_CASE_TEMPLATE("a resumed run has the bits of an uninterrupted one", Optimizer, muon, adafactor) {
  const scratch_folder scratch;
  const auto resumed = [&]<class Parallel, class Precision>(Parallel, Precision, std::size_t ranks) {
    const std::string name = concat(Parallel::name, ranks, Precision::name);
    const std::vector<double> whole = run_in<Parallel, Optimizer, Precision>(scratch / (name + "whole"), ranks, 6, false);
    (void)run_in<Parallel, Optimizer, Precision>(scratch / name, ranks, 3, false);
    CHECK(run_in<Parallel, Optimizer, Precision>(scratch / name, ranks, 6, true) == whole);
  };
  resumed(single{}, fp32{}, 1);
  resumed(single{}, bf16_mixed{}, 1);
  resumed(zero<1>{}, fp32{}, 2);
  resumed(zero<2>{}, bf16_mixed{}, 3);
  resumed(zero<3>{}, fp32{}, 3);
}

TEST_CASE_TEMPLATE("a checkpoint of any ranks goes on with any others", Optimizer, muon, adafactor) {
  const scratch_folder scratch;
  const std::vector<double> one = run_in<single, Optimizer>(scratch / "one", 1, 6, false);
  const auto interrupted = [&]<class First, class Second>(First, std::size_t first, Second, std::size_t second) {
    const std::string folder = scratch / concat(First::name, first, Second::name, second);
    (void)run_in<First, Optimizer>(folder, first, 3, false);
    CHECK(difference(one, run_in<Second, Optimizer>(folder, second, 6, true)) < 2e-5);
  };
  interrupted(zero<3>{}, 3, single{}, 1);
  interrupted(single{}, 1, zero<3>{}, 2);
  interrupted(zero<1>{}, 2, zero<2>{}, 3);
}

TEST_CASE_TEMPLATE("in bf16_mixed, ranks that shard matrices train like one rank", Optimizer, muon, adafactor) {
  const dataset data = sentences();
  const outcome one = train<model_with<single, Optimizer, bf16_mixed>>(data, sizes(false), settings<Optimizer>(4, 1), {});
  const outcome two = train_on_ranks<model_with<zero<2>, Optimizer, bf16_mixed>>(2, data, sizes(false), settings<Optimizer>(4, 2));
  CHECK(difference(one.losses, two.losses) < 2e-2);   // activations are bf16; a step may round a weight to its neighbor
  CHECK(difference(one.weights, two.weights) < 2e-2);
}
