// Training some modules: changes, cost, and saved files.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <xtrain/io.hpp>
#include "scratch.hpp"
#include "small_run.hpp"

using namespace xtrain;

namespace {

struct frozen_recipe : defaults {
  using adapter = freeze;
};
struct recomputing_recipe : frozen_recipe {
  using recompute = recompute_full;
};
using frozen_model = llama<frozen_recipe>;

template <class Model>
std::vector<float> all_values(const Model& model, const std::string& name) {
  const auto values = model.parameters().value(*model.parameters().find(name)).host();
  return {values.begin(), values.end()};
}

void refused(const std::vector<std::string>& trained, const std::string& message) {
  CHECK_THROWS_WITH_AS(frozen_model(small_run::sizes(), {}, {.adapter = {.trained = trained}}), message.c_str(), config_error);
}

}  // namespace

TEST_CASE("what is named is trained, by its name's end, its beginning, or what it lies in; the rest stays and costs nothing") {
  for (const std::vector<std::string>& trained : {std::vector<std::string>{"model.layers.1"}, {"mlp", "model.norm"}, {"down_proj"}}) {
    frozen_model model(small_run::sizes(), {}, {.adapter = {.trained = trained}});
    const frozen_model before(small_run::sizes(), {}, {.adapter = {.trained = trained}});
    trainer trainer(model, {.max_steps = 3, .micro_batch_size = 2, .learning_rate = 1e-2});
    std::size_t numbers = 0;
    trainer.fit(small_run::data());
    for (const auto& entry : model.parameters().entries()) {
      CAPTURE(entry.spec.name);
      const std::string& name = entry.spec.name;
      const bool chosen = trained[0] == "model.layers.1" ? name.starts_with("model.layers.1.")
                          : trained[0] == "mlp"          ? name.find(".mlp.") != std::string::npos || name == "model.norm.weight"
                                                         : name.ends_with("down_proj.weight");
      CHECK(entry.spec.trainable == chosen);
      CHECK((all_values(model, name) != all_values(before, name)) == chosen);
      CHECK(model.parameters().gradient(entry).empty() != chosen);
      if (chosen) numbers += entry.size();
    }
    CHECK(model.parameters().trained_count() == numbers);
    CHECK(trainer.plan().trained == numbers);
  }
}

TEST_CASE("with recomputation the same weights come out, bit for bit") {
  const auto train = [](auto model) {
    trainer trainer(model, {.max_steps = 4, .micro_batch_size = 2, .learning_rate = 1e-2});
    trainer.fit(small_run::data());
    const auto values = model.parameters().trained_values().host();
    return std::vector<float>(values.begin(), values.end());
  };
  const freeze::config only{.trained = {"self_attn"}};
  CHECK(train(frozen_model(small_run::sizes(), {}, {.adapter = only})) ==
        train(llama<recomputing_recipe>(small_run::sizes(), {}, {.adapter = only})));
}

TEST_CASE("the whole model is saved, and a checkpoint goes on where it was") {
  const scratch_folder folder, checkpoints;
  const auto fresh = [] { return frozen_model(small_run::sizes(), {}, {.adapter = {.trained = {"model.embed_tokens", "model.norm"}}}); };
  const training_config<adamw> eight{.max_steps = 8, .micro_batch_size = 2, .learning_rate = 1e-2};
  frozen_model through = fresh();
  trainer straight(through, eight);
  straight.fit(small_run::data());
  straight.save(folder.path());
  const auto read = llama<defaults>::from_pretrained(folder.path());
  for (const auto& entry : read.parameters().entries()) CHECK(all_values(read, entry.spec.name) == all_values(through, entry.spec.name));

  frozen_model half = fresh();
  trainer first(half, eight);
  checkpoint_folder files(first, checkpoints.path(), {.save_steps = 4, .save_total_limit = 0});
  first.attach(files);
  first.fit(small_run::data());
  frozen_model rest = fresh();
  trainer second(rest, eight);
  checkpoint_folder(second, checkpoints.path()).resume_from(checkpoints / "checkpoint-4");
  second.fit(small_run::data());
  for (const auto& entry : rest.parameters().entries()) CHECK(all_values(rest, entry.spec.name) == all_values(through, entry.spec.name));
}

TEST_CASE("names that are no modules are refused with the nearest that is one") {
  refused({}, "freeze: at least one module must be trained; none is named");
  refused({"model.nrm"}, "freeze: 'model.nrm' must name a module of the model; did you mean 'model.norm'?");
  refused({"embed_tokens", "down_prj"}, "freeze: 'down_prj' must name a module of the model; did you mean 'down_proj'?");
  refused({"weight"}, "freeze: 'weight' must name a module of the model");
  refused({""}, "freeze: '' must name a module of the model");
}
