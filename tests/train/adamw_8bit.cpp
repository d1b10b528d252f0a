// AdamW with 8-bit moments: ranks with shards, and checkpoints, keep every bit.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <xtrain/optim/adamw_8bit.hpp>
#include <xtrain/optim/lion.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/train/optimizer_file.hpp>

#include "ranks.hpp"
#include "scratch.hpp"

namespace {

template <class Optimizer, class Parallel, class Precision>
struct recipe_with : recipe<Parallel> {
  using optimizer = Optimizer;
  using precision = Precision;
};
template <class Parallel, class Precision = fp32>
using model_8bit = llama<recipe_with<adamw_8bit, Parallel, Precision>>;

/// Matrices have codes, norms do not. With several micro-batches or gradient clipping, sharded ranks would add in another order.
training_config<adamw_8bit> settings(std::size_t steps, std::size_t ranks) {
  return {.max_steps = steps,
          .micro_batch_size = 12 / ranks,
          .learning_rate = 1e-3,
          .lr_schedule = lr_schedule_kind::constant,
          .optimizer = {.min_8bit_size = 256},
          .max_grad_norm = 0.0};
}

/// Continues from the newest checkpoint in `folder`, if any, to `steps` steps. Returns all weights; writes the optimizer state to `state`.
template <class Parallel, class Precision>
std::vector<double> run_in(const std::string& folder, std::size_t ranks, std::size_t steps, const std::string& state) {
  const dataset data = sentences();
  std::vector<double> weights;
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    using model_type = model_8bit<Parallel, Precision>;
    typename model_type::options options;
    if constexpr (!std::is_same_v<Parallel, single>) options.parallel.ranks = network;
    model_type model(sizes(false), {}, options);
    trainer trainer(model, settings(steps, ranks));
    checkpoint_folder checkpoints(trainer, folder, {.save_steps = 3});
    checkpoints.resume();
    trainer.attach(checkpoints);
    trainer.fit(data);
    (void)write_optimizer(trainer, state, nullptr);
    const std::vector<double> mine = all_weights(model);
    if (network->rank() == 0) weights = mine;
  });
  return weights;
}

}  // namespace

TEST_CASE("8-bit moments train like those of 32 bits, and lion trains") {
  const auto losses = []<class Optimizer>(Optimizer, double learning_rate, typename Optimizer::config config) {
    const training_config<Optimizer> how{.max_steps = 60, .micro_batch_size = 4, .learning_rate = learning_rate, .optimizer = config};
    return train<llama<recipe_with<Optimizer, single, fp32>>>(sentences(), sizes(false), how, {}).losses;
  };
  const std::vector<double> wide = losses(adamw{}, 1e-3, {}), narrow = losses(adamw_8bit{}, 1e-3, {.min_8bit_size = 256}),
                            sign = losses(lion{}, 1e-3, {});
  CHECK(wide.back() < wide.front() - 0.1);
  CHECK(narrow != wide);
  for (std::size_t i = 0; i < wide.size(); ++i) CHECK(std::abs(narrow[i] - wide[i]) < 0.01);  // 0.005 measured
  CHECK(sign.back() < sign.front() - 0.2);
}

TEST_CASE("ranks with shards of 8-bit moments train to the bits of ranks without shards") {
  const dataset data = sentences();
  const auto check = [&]<class Precision>(Precision) {
    for (const std::size_t ranks : {std::size_t{2}, std::size_t{3}}) {
      CAPTURE(ranks);
      const outcome all = train_on_ranks<model_8bit<data_parallel, Precision>>(ranks, data, sizes(false), settings(6, ranks));
      const auto equal = [&]<class Parallel>(Parallel) {
        const outcome shards = train_on_ranks<model_8bit<Parallel, Precision>>(ranks, data, sizes(false), settings(6, ranks));
        CHECK(shards.weights == all.weights);
        CHECK(shards.losses == all.losses);
      };
      equal(zero<1>{});
      equal(zero<2>{});
      equal(zero<3>{});
    }
  };
  check(fp32{});
}

TEST_CASE("a checkpoint of 8-bit moments keeps every bit, on the same ranks and on others") {
  const scratch_folder scratch;
  const auto check = [&]<class First, class Second, class Precision>(First, std::size_t first, Second, std::size_t second, Precision) {
    const std::string name = concat(First::name, first, Second::name, second, Precision::name), folder = scratch / name;
    CAPTURE(name);
    const std::vector<double> whole = run_in<First, Precision>(scratch / (name + "whole"), first, 6, scratch / (name + "whole.state"));
    const std::vector<double> half = run_in<First, Precision>(folder, first, 3, scratch / (name + "half.state"));
    CHECK(run_in<Second, Precision>(folder, second, 3, scratch / (name + "read.state")) ==
          half);  // no steps left: read and written again
    CHECK(get_file(scratch / (name + "half.state")) == get_file(scratch / (name + "read.state")));
    CHECK(run_in<First, Precision>(folder, first, 6, scratch / (name + "resumed.state")) == whole);
    CHECK(get_file(scratch / (name + "whole.state")) == get_file(scratch / (name + "resumed.state")));
  };
  check(single{}, 1, single{}, 1, fp32{});
  check(single{}, 1, zero<3>{}, 3, bf16_mixed{});
  check(zero<1>{}, 2, single{}, 1, fp32{});
  check(zero<2>{}, 3, zero<1>{}, 2, bf16_mixed{});
}
