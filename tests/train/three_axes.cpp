#include <doctest/doctest.h>

#include <xtrain/models/gpt2.hpp>
#include <xtrain/parallel/pipeline.hpp>
#include "ranks.hpp"
#include "scratch.hpp"

namespace {

using run = training_config<adamw>;
using three = pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel>>;
using with_shared_rows = pipeline<one_forward_one_backward, parallel<zero<1>, tensor_parallel, context_parallel>>;

decoder_config four_heads(bool tied) {
  decoder_config shape = sizes(tied);
  shape.num_heads = 4;
  shape.num_layers = 4;
  return shape;
}
run settings(std::size_t steps, std::size_t accumulate) {
  return {.max_steps = steps,
          .micro_batch_size = 2,
          .gradient_accumulation_steps = accumulate,
          .learning_rate = 1e-3,
          .lr_schedule = lr_schedule_kind::constant};
}

template <class Parallel, template <class> class Family>
void equals_one(bool tied, pipeline_ranks how) {
  const scratch_folder scratch;
  const dataset data = sentences();
  const decoder_config shape = four_heads(tied);
  using single_model = Family<recipe<single>>;
  using model_type = Family<recipe<Parallel>>;
  const outcome one = train<single_model>(data, shape, settings(6, 4), {});
  std::vector<std::vector<double>> losses(8);
  run_ranks(8, [&](const std::shared_ptr<transport>& network) {
    pipeline_ranks own = how;
    own.ranks = network;
    model_type model(shape, {}, {.parallel = own});
    trainer trainer(model, settings(3, 4 / how.data_parallel_size));
    checkpoint_folder checkpoints(trainer, scratch / "run", {.save_steps = 3});
    history seen;
    trainer.attach(checkpoints);
    trainer.attach(seen);
    trainer.fit(data);
    losses[network->rank()] = {seen.losses().begin(), seen.losses().end()};
  });
  for (const auto& mine : losses) CHECK(mine == losses[0]);
  CHECK(difference({one.losses.begin(), one.losses.begin() + 3}, losses[0]) < 2e-5);
  // one rank resumes where eight stopped
  single_model model(shape);
  trainer trainer(model, settings(6, 4));
  checkpoint_folder checkpoints(trainer, scratch / "run");
  CHECK(checkpoints.resume());
  trainer.fit(data);
  CHECK(difference(one.weights, all_weights(model)) < 2e-5);
}

}  // namespace

TEST_CASE("two by two by two ranks: llama, and gpt2 whose head is tied") {
  equals_one<three, llama>(false, {.data_parallel_size = 2, .tensor_parallel_size = 2});
  equals_one<three, gpt2>(true, {.data_parallel_size = 2, .tensor_parallel_size = 2});
}

TEST_CASE("stages of context-parallel ranks that are tensor-parallel, or data-parallel, too") {
  equals_one<with_shared_rows, gpt2>(true, {.tensor_parallel_size = 2, .context_parallel_size = 2});
  equals_one<with_shared_rows, gpt2>(true, {.data_parallel_size = 2, .context_parallel_size = 2});
}
