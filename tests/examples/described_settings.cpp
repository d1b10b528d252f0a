// Optimizer settings, from a run description to a run's checkpoint.
#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/optim/adafactor.hpp>
#include <xtrain/optim/muon.hpp>
#include <xtrain/recipes/recipe_type.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/train/checkpoint.hpp>

#include "../../examples/described_settings.hpp"
#include "scratch.hpp"
#include "small_run.hpp"

using namespace xtrain;

namespace {

/// An optimizer outside the library: muon with a setting of its own.
struct own_muon : muon {
  static constexpr std::string_view name = "own_muon";
  struct config : muon::config {
    double own_strength = 0.5;

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      muon::config::members(c, visit);
      visit({.name = "own_strength", .range = setting_range::share, .help = "of nothing"}, c.own_strength);
    }
  };
};
struct muon_recipe : defaults {
  using optimizer = own_muon;
};

/// Every setting of muon, with non-default values.
const char* const settings_of_muon = R"({"momentum": 0.75, "nesterov": false, "weight_decay": 0.25, "coefficients": [3.0, -3.5, 1.5], "steps": 7,
  "epsilon": 1e-6, "adjust_learning_rate": "original", "learning_rate_ratio": 8.0,
  "adamw": {"beta1": 0.5, "beta2": 0.625, "epsilon": 1e-4, "weight_decay": 0.125}})";

run_description run_with_muon() {
  run_description run;
  run.model.folder = "llama";
  run.data = {{.kind = "alpaca", .files = {"a.json"}}};
  run.optimizer.kind = "muon";
  run.optimizer.settings = json::parse(settings_of_muon);
  return run;
}

}  // namespace

TEST_CASE("settings of an optimizer are those of a run description, saved and read again, and a checkpoint records them, with those of one's own") {
  const scratch_folder folder;
  const run_description given = run_with_muon();
  CHECK(recipe_of(given).text("r") == "struct r : xtrain::defaults {\n  using optimizer = xtrain::muon;\n};\n");
  given.save(folder / "run.json");
  const run_description run = run_description::load(folder / "run.json");
  CHECK(run == given);

  const auto described = command_line::described_config<muon, next_token>(run);
  const muon::config& c = described.optimizer;
  CHECK(c.momentum == 0.75);
  CHECK_FALSE(c.nesterov);
  CHECK(c.weight_decay == 0.25);
  CHECK(c.coefficients == std::array{3.0, -3.5, 1.5});
  CHECK(c.steps == 7);
  CHECK(c.epsilon == 1e-6);
  CHECK(c.adjust_learning_rate == muon_rate::original);
  CHECK(c.learning_rate_ratio == 8.0);
  CHECK(c.adamw.beta1 == 0.5);
  CHECK(c.adamw.beta2 == 0.625);
  CHECK(c.adamw.epsilon == 1e-4);
  CHECK(c.adamw.weight_decay == 0.125);

  llama<muon_recipe> model(small_run::sizes());
  trainer of_run(model, training_config<own_muon>{.max_steps = 1, .micro_batch_size = 2, .optimizer = {c, 0.75}});
  of_run.fit(small_run::data());
  const std::string checkpoint = checkpoint_folder(of_run, folder / "out").save();
  const json recorded = read_json(checkpoint + "/trainer_state.json").at("settings");
  const json expected = json::parse(R"({"momentum": 0.75, "nesterov": false, "weight_decay": 0.25, "newton_schulz_coefficients": [3.0, -3.5, 1.5],
    "newton_schulz_steps": 7, "epsilon": 1e-6, "adjust_learning_rate": "original", "learning_rate_ratio": 8.0, "adamw_betas": [0.5, 0.625],
    "adamw_epsilon": 1e-4, "adamw_weight_decay": 0.125, "own_strength": 0.75})");
  for (const auto& item : expected.items()) {
    CAPTURE(item.key());
    REQUIRE(recorded.contains(item.key()));
    CHECK(recorded.at(item.key()) == item.value());
  }
  // resuming with other settings reports them, with equal settings nothing
  const auto changes = [&](const muon::config& now, double own_strength) {
    llama<muon_recipe> other(small_run::sizes());
    trainer again(other, training_config<own_muon>{.max_steps = 2, .micro_batch_size = 2, .optimizer = {now, own_strength}});
    checkpoint_folder files(again, folder / "out");
    files.resume();
    return files.changes();
  };
  CHECK(changes(c, 0.75) == std::vector<std::string>{"max_steps is 2, it was 1"});
  muon::config other = c;
  other.momentum = 0.5, other.adamw.beta1 = 0.75;
  CHECK(changes(other, 0.25) == std::vector<std::string>{"adamw_betas is [0.75,0.625], it was [0.5,0.625]", "max_steps is 2, it was 1",
                                                         "momentum is 0.5, it was 0.75", "own_strength is 0.25, it was 0.75"});
}

TEST_CASE("members of a run description become the run's settings of the same names") {
  run_description run = run_with_muon();
  run.epochs = 3, run.max_steps = 5, run.micro_batch_size = 7, run.gradient_accumulation_steps = 9, run.seq_length = 11, run.max_steps_per_epoch = 13;
  run.shuffle = !run.shuffle, run.drop_last = !run.drop_last, run.seed = 17, run.neftune_noise_alpha = 0.5;
  run.schedule.learning_rate = 0.25, run.schedule.min_learning_rate = 0.125, run.schedule.warmup_steps = 19, run.schedule.warmup_ratio = 0.75;
  run.schedule.from_zero = true, run.schedule.decay_steps = 23, run.schedule.counts = "sequences", run.schedule.kind = "linear";
  run.optimizer.max_grad_norm = 2.5, run.optimizer.keep_gradients = true, run.output.eval_steps = 29;
  const auto c = command_line::described_config<muon, next_token>(run);
  CHECK(std::array{c.epochs, c.max_steps, c.micro_batch_size, c.gradient_accumulation_steps, c.seq_length, c.max_steps_per_epoch, c.warmup_steps,
                   c.lr_decay_steps, c.eval_steps} == std::array<std::size_t, 9>{3, 5, 7, 9, 11, 13, 19, 23, 29});
  CHECK(std::array{c.neftune_noise_alpha, c.learning_rate, c.min_lr, c.warmup_ratio, c.max_grad_norm} == std::array{0.5, 0.25, 0.125, 0.75, 2.5});
  CHECK(c.seed == 17);
  CHECK(c.shuffle == run.shuffle);
  CHECK(c.drop_last == run.drop_last);
  CHECK(c.lr_from_zero);
  CHECK(c.lr_counts_sequences);
  CHECK(c.keep_gradients);
  CHECK(c.lr_schedule == lr_schedule_kind::linear);

  const lora_config lora = command_line::lora_of({.rank = 3, .alpha = 0.5, .dropout = 0.25, .targets = {"q_proj"}, .modules_to_save = {"lm_head"},
                                                  .rank_stabilised = true});
  CHECK(lora == lora_config{.rank = 3, .alpha = 0.5, .dropout = 0.25, .targets = {"q_proj"}, .modules_to_save = {"lm_head"}, .rank_stabilised = true});
}

TEST_CASE("a setting that muon does not have, or of another type, is refused by name") {
  const auto refused = [](const char* settings) -> std::string {
    run_description run = run_with_muon();
    run.optimizer.settings = json::parse(settings);
    try {
      (void)command_line::described_config<muon, next_token>(run);
    } catch (const error& problem) {
      return problem.what();
    }
    return "it is accepted";
  };
  CHECK(refused(R"({"ns_steps": 5})").find("optimizer.settings.ns_steps: there is no such setting; there are ") == 0);
  CHECK(refused(R"({"nesterov": 1})") == "optimizer.settings.nesterov: must be true or false; given 1");
  CHECK(refused(R"({"coefficients": [1, 2]})") == "optimizer.settings.coefficients: must be a list of 3 numbers; given [1,2]");
  CHECK(refused(R"({"adamw": 3})") == "optimizer.settings.adamw: must be an object; given 3");
  CHECK(refused(R"({"adjust_learning_rate": "moonlight"})").find("must be one of original, match_rms_adamw, spectral; given 'moonlight'") != std::string::npos);
}

TEST_CASE("every setting that a checkpoint records can be given in a run description; a schedule has the name that earlier versions gave it") {
  run_description run = run_with_muon();
  run.optimizer.kind = "adafactor";
  run.optimizer.settings = json::parse(R"({"relative_step": true, "at_most_learning_rate": true})");
  run.objective.settings = json::parse(R"({"z_loss": 0.5})");
  run.schedule.settings = json::parse(R"({"num_cycles": 2.0, "counts_updates": true, "decay_shape": "linear"})");
  const auto described = command_line::described_config<adafactor, next_token>(run);
  CHECK(described.optimizer.at_most_learning_rate);
  CHECK(described.objective.z_loss == 0.5);
  CHECK(described.lr_num_cycles == 2.0);
  CHECK(described.lr_counts_updates);
  CHECK(described.lr_decay_shape == lr_shape::linear);

  json old = run.to_json();
  old["schedule"].erase("from_zero");
  old["schedule"]["starts_at_zero"] = true;
  CHECK(run_description::from_json(old, "run").schedule.from_zero);
  old["schedule"]["from_zero"] = true;
  CHECK_THROWS_WITH_AS((void)run_description::from_json(old, "run"),
                       doctest::Contains("schedule.starts_at_zero: is an earlier name of from_zero, which is given, too"), config_error);
  old["schedule"] = json::parse(R"({"settings": {"warmup_steps": 1}})");
  CHECK_THROWS_WITH_AS((void)(command_line::described_config<adafactor, next_token>(run_description::from_json(old, "run"))),
                       doctest::Contains("schedule.settings.warmup_steps: there is no such setting; there are counts_updates, warmup_init"), error);
}
