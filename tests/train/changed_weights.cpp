// Weights changed by others than their trainer: another trainer, a loaded folder, a merged adapter. Also further uses of a trainer in a user's loop.
#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <xtrain/adapt/merge.hpp>
#include <xtrain/io.hpp>
#include "ranks.hpp"
#include "scratch.hpp"

namespace {

struct mixed : defaults {
  using precision = bf16_mixed;
};
struct mixed_lora : mixed {
  using adapter = lora;
};

[[nodiscard]] decoder_config shape() {
  decoder_config c = sizes(false);
  c.attention_dropout = c.residual_dropout = 0.0;
  return c;
}
[[nodiscard]] training_config<adamw> settings(std::size_t steps) {
  return {.max_steps = steps, .micro_batch_size = 2, .seq_length = 24, .learning_rate = 1e-2};
}

/// A step with learning rate 0 changes no weights.
template <class Trainer>
void changes_nothing(Trainer& trainer, const dataset& data) {
  const std::vector<double> before = all_weights(trainer.model());
  loader rows(data, trainer.loader_settings());
  trainer.step(rows.next(), 0.0);
  CHECK(all_weights(trainer.model()) == before);
}

}  // namespace

TEST_CASE("with master weights, a trainer goes on from weights that another trainer has trained") {
  const dataset data = sentences();
  llama<mixed> model(shape());
  trainer first(model, settings(8)), second(model, settings(1));
  first.fit(data);
  changes_nothing(second, data);
  second.fit(data);
  changes_nothing(first, data);
}

TEST_CASE("... that were set, or loaded") {
  const dataset data = sentences();
  llama<mixed> model(shape()), other(shape(), {}, {.seed = 7});
  trainer trainer(model, settings(2));
  trainer.fit(data);
  for (const auto& entry : model.parameters().entries()) {
    std::vector<bf16> values(entry.size());
    copy_to_host(other.stream(), std::span(values), other.parameters().value(*other.parameters().find(entry.spec.name)));
    other.stream().synchronize();
    model.parameters().set(model.stream(), entry, std::span<const bf16>(values));
  }
  CHECK(all_weights(model) == all_weights(other));
  changes_nothing(trainer, data);

  trainer.fit(data);
  const scratch_folder folder;
  save_pretrained(other, folder.path());
  load_weights(model, folder.path());
  CHECK(all_weights(model) == all_weights(other));
  changes_nothing(trainer, data);
}

TEST_CASE("... that an adapter was merged into") {
  const dataset data = sentences();
  llama<mixed_lora> model(shape(), {}, {.adapter = {.rank = 4, .alpha = 8}});
  trainer trainer(model, settings(4));
  trainer.fit(data);
  merge_adapter(model);
  changes_nothing(trainer, data);
}

TEST_CASE("a trainer's settings of parameters are its own") {
  const dataset data = sentences();
  llama<defaults> alone(shape()), shared(shape());
  auto strong = settings(3);
  strong.optimizer.weight_decay = 0.5;
  auto all = strong;
  all.weight_decay_of = decayed_parameters::all;
  trainer of_alone(alone, strong), of_shared(shared, strong);
  trainer other(shared, all);
  of_alone.fit(data);
  of_shared.fit(data);
  CHECK(all_weights(alone) == all_weights(shared));

  llama<defaults> one(shape()), two(shape());
  trainer first_of_one(one, strong), second_of_one(one, all), of_two(two, all);
  changes_nothing(first_of_one, data);  // the older trainer steps; the newer has its own settings
  second_of_one.fit(data);
  of_two.fit(data);
  CHECK(all_weights(one) == all_weights(two));

  auto kept = strong;
  kept.keep_gradients = true;
  trainer keeps(shared, kept);
  of_shared.fit(data);
  CHECK_THROWS_WITH_AS(keeps.fit(data), doctest::Contains("a model must have one trainer"), config_error);
}

TEST_CASE("a loop of one's own: checkpoints know where the data continues") {
  const dataset data = sentences();
  const auto some = settings(4);
  const auto run = [](auto& trained, loader& from, std::size_t steps) {
    std::vector<double> losses;
    for (std::size_t s = 0; s < steps; ++s) {
      losses.push_back(trained.step(from.next(), 1e-2).loss);
      trained.set_data_state(from.state());
    }
    return losses;
  };
  llama<defaults> model(shape());
  trainer whole(model, some);
  loader rows(data, whole.loader_settings());
  const scratch_folder folder;
  (void)run(whole, rows, 2);
  {
    checkpoint_folder checkpoints(whole, folder.path());
    checkpoints.save();
  }
  const std::vector<double> expected = run(whole, rows, 2);

  llama<defaults> again(shape());
  trainer resumed(again, some);
  checkpoint_folder checkpoints(resumed, folder.path());
  checkpoints.resume();
  loader from_there(data, resumed.loader_settings());
  from_there.restore(resumed.progress().data);
  CHECK(run(resumed, from_there, 2) == expected);
}

TEST_CASE("misuse is refused, and observers may attach observers") {
  const dataset data = sentences();
  llama<defaults> model(shape());
  trainer trainer(model, settings(6));
  loader rows(data, trainer.loader_settings());
  const auto next = rows.next();
  std::vector<host_batch> batches(next.begin(), next.end());
  const std::vector<double> before = all_weights(model);
  for (const double rate : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), -1e-3})
    CHECK_THROWS_WITH_AS((void)trainer.step(std::span(batches), rate), doctest::Contains("the learning rate of a step must be non-negative"),
                         config_error);
  CHECK(all_weights(model) == before);

  using trainer_type = decltype(trainer);
  struct adder final : observer {
    using observer::on;
    trainer_type* to = nullptr;
    std::vector<std::unique_ptr<history>> all{};
    void on(const step_done&) override {
      all.push_back(std::make_unique<history>());
      to->attach(*all.back());
    }
  } adds;
  adds.to = &trainer;
  trainer.attach(adds);
  trainer.fit(data);
  REQUIRE(adds.all.size() == 6);
  CHECK(adds.all.front()->losses().size() == 6);  // it receives the event in which it was attached
  CHECK(adds.all.back()->losses().size() == 1);

  xtrain::trainer behind(model, settings(2));
  behind.restore({.step = 5});
  history none;
  behind.attach(none);
  behind.fit(data);
  CHECK(none.losses().empty());

  const auto& entry = model.parameters().entries().front();
  std::vector<float> values(entry.size(), std::numeric_limits<float>::quiet_NaN());
  model.parameters().set(model.stream(), entry, std::span<const float>(values));
  const scratch_folder folder;
  CHECK_THROWS_AS(behind.save(folder.path()), non_finite_error);
}
