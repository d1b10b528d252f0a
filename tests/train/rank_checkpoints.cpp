// Checkpoints do not depend on the number of ranks.
#include <doctest/doctest.h>

#include <type_traits>

#include <xtrain/parallel/zero.hpp>
#include "ranks.hpp"
#include "scratch.hpp"

namespace {

/// `steps` steps on some ranks, with a checkpoint folder; returns the final weights.
template <class Parallel>
std::vector<double> run_in(const std::string& folder, std::size_t ranks, std::size_t steps, bool resumes) {
  const dataset data = sentences();
  std::vector<double> weights;
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    using model_type = llama<recipe<Parallel>>;
    typename model_type::options options;
    if constexpr (!std::is_same_v<Parallel, single>) options.parallel.ranks = network;
    model_type model(sizes(false), {}, options);
    trainer trainer(model, run_config{.max_steps = steps,
                                      .micro_batch_size = 2,
                                      .gradient_accumulation_steps = 4 / ranks,
                                      .learning_rate = 1e-3,
                                      .lr_schedule = lr_schedule_kind::constant});
    checkpoint_folder checkpoints(trainer, folder, {.save_steps = 3});
    if (resumes) {
      (void)trainer.evaluate(data);  // gathered weights must not survive a load
      CHECK(checkpoints.resume());
    }
    trainer.attach(checkpoints);
    trainer.fit(data);
    trainer.save(folder + "/out");
    const std::vector<double> mine = all_weights(model);
    if (network->rank() == 0) weights = mine;
  });
  return weights;
}

}  // namespace

TEST_CASE("a checkpoint of any ranks goes on with any others") {
  const scratch_folder scratch;
  const std::vector<double> one = run_in<single>(scratch / "one", 1, 6, false);
  const auto interrupted = [&]<class First, class Second>(First, std::size_t first, Second, std::size_t second) {
    const std::string folder = scratch / concat(First::name, first, Second::name, second);
    (void)run_in<First>(folder, first, 3, false);
    const std::vector<double> went_on = run_in<Second>(folder, second, 6, true);
    CHECK(difference(one, went_on) < 2e-5);
    // saved weights are the trained ones, and one rank loads them
    const llama<recipe<single>> saved = llama<recipe<single>>::from_pretrained(folder + "/out");
    CHECK(all_weights(saved) == went_on);
  };
  interrupted(zero<3>{}, 4, single{}, 1);
  interrupted(single{}, 1, zero<3>{}, 2);
  interrupted(zero<1>{}, 2, zero<2>{}, 4);
  interrupted(data_parallel{}, 4, zero<1>{}, 2);
}
