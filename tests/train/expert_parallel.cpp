// Ranks that spread experts among them equal one device.
#include <doctest/doctest.h>

#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel/expert.hpp>
#include <xtrain/eval/logits.hpp>
#include "pipelines.hpp"
#include "scratch.hpp"

namespace {

decoder_config eight_experts() {
  decoder_config shape = sizes(false);
  shape.layers = 2;
  shape.experts = 8;
  shape.experts_per_token = 2;
  shape.balances_experts = true;
  shape.balance_loss = 0.05;
  return shape;
}
run_config settings(std::size_t steps, std::size_t accumulate) {
  return {.steps = steps, .batch = 2, .accumulate = accumulate, .learning_rate = 1e-3, .shape = schedule::constant};
}

/// Four micro-batches in a step, on one rank and on several.
template <template <class> class Recipe, class Spread = expert_parallel>
void equals_one(std::size_t ranks, rank_layout layout) {
  const dataset data = sentences();
  const decoder_config shape = eight_experts();
  static const piped_outcome one = run_here<mixtral<Recipe<single>>>(data, shape, settings(8, 4), {});
  const piped_outcome spread = run_pipeline<mixtral<Recipe<Spread>>>(ranks, data, shape, settings(8, 4 / ranks), {.parallel = std::move(layout)});
  CHECK(difference(one.losses, spread.losses) < 2e-5);
  CHECK(difference(one.norms, spread.norms) < 2e-5);
  CHECK(difference(one.weights, spread.weights) < 2e-5);
  CHECK(std::abs(one.held_out - spread.held_out) < 2e-5);
}

}  // namespace

TEST_CASE("mixtral on two and four ranks, all of them neighbours or not") {
  equals_one<recipe>(1, {.expert = 1});
  equals_one<recipe>(2, {.expert = 2});
  equals_one<recipe>(4, {.expert = 4});
  equals_one<recipe>(4, {.expert = 2});
}
