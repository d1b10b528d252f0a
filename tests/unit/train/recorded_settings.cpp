// What a checkpoint records of the settings of a run, of objectives and optimizers.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/objective/distillation.hpp>
#include <xtrain/objective/dpo.hpp>
#include <xtrain/objective/kto.hpp>
#include <xtrain/optim/adafactor.hpp>
#include <xtrain/optim/adamw.hpp>
#include <xtrain/optim/muon.hpp>
#include <xtrain/train/checkpoint_state.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/kind_names.hpp>
#include <xtrain/train/recorded_settings.hpp>

using namespace xtrain;

namespace {

/// What a resumed run would say, for the settings of an optimizer or an objective before and now.
template <class Record, class Config>
std::vector<std::string> changes(const Record& record, const Config& before, const Config& now) {
  json_settings then, all;
  json_settings saved;
  record(then, before);
  record(all, now);
  saved.set("settings", then.object());
  return detail::changed_settings(saved, all);
}
template <class Config>
std::vector<std::string> optimizer_changes(const Config& before, const Config& now) {
  return changes([](json_settings& to, const Config& c) { detail::record_optimizer(to, c); }, before, now);
}
template <class Config>
std::vector<std::string> objective_changes(const Config& before, const Config& now) {
  return changes([](json_settings& to, const Config& c) { detail::record_objective(to, c); }, before, now);
}

using texts = std::vector<std::string>;

}  // namespace

TEST_CASE("changed settings of optimizers and objectives are told by name") {
  CHECK(optimizer_changes(adamw::config{}, adamw::config{.beta2 = 0.95, .epsilon = 1e-6}) ==
        texts{"betas is [0.9,0.95], it was [0.9,0.999]", "epsilon is 1e-06, it was 1e-08"});
  CHECK(optimizer_changes(muon::config{},
                          muon::config{.nesterov = false, .steps = 6, .adjust_learning_rate = muon_rate::original, .adamw = {.weight_decay = 0.5}}) ==
        texts{"adamw_weight_decay is 0.5, it was 0.01", "adjust_learning_rate is \"original\", it was \"match_rms_adamw\"", "nesterov is false, it was true",
              "newton_schulz_steps is 6, it was 5"});
  CHECK(optimizer_changes(adafactor::config{}, adafactor::config{.relative_step = true, .clip_threshold = 2.0, .epsilon2 = 1e-2}) ==
        texts{"clip_threshold is 2.0, it was 1.0", "epsilon2 is 0.01, it was 0.001", "relative_step is true, it was false"});
  CHECK(objective_changes(dpo::config{}, dpo::config{.kind = preference_kind::ipo, .beta = 0.2, .reference_free = true}) ==
        texts{"beta is 0.2, it was 0.1", "loss_type is \"ipo\", it was \"sigmoid\"", "reference_free is true, it was false"});
  CHECK(objective_changes(kto::config{}, kto::config{.kind = kto_kind::apo_zero, .undesirable_weight = 2.0}) ==
        texts{"loss_type is \"apo_zero_unpaired\", it was \"kto\"", "undesirable_weight is 2.0, it was 1.0"});
  CHECK(objective_changes(distillation::config{}, distillation::config{.kind = divergence_kind::reverse, .top_k = 4}) ==
        texts{"loss_type is \"reverse\", it was \"forward\"", "top_k is 4, it was 0"});
  CHECK(objective_changes(dpo::config{}, dpo::config{}).empty());
}

TEST_CASE("data that has changed is told; a checksum that an earlier version did not record is no change") {
  const auto of_data = [](const std::string& before, const std::string& now) {
    return changes([](json_settings& to, const std::string& data) { to.set("data", data); }, before, now);
  };
  const std::string before = "a (3 documents, 9 tokens); 4 samples of 2 tokens", now = before + "; checksum 0123456789abcdef";
  CHECK(of_data(now, now).empty());
  CHECK(of_data(before, now).empty());
  CHECK(of_data(before + " more", now).size() == 1);
  CHECK(of_data(before + "; checksum 0123456789abcdee", now) == texts{"data is \"" + now + "\", it was \"" + before + "; checksum 0123456789abcdee\""});
}

TEST_CASE("changed settings of a run are told by name") {
  using config = training_config<adamw>;
  const auto of_run = [](const config& before, const config& now) {
    return changes([](json_settings& to, const config& c) { detail::record_settings<true>(to, c); }, before, now);
  };
  CHECK(of_run({}, {.loss_scale = {.growth_window = 7}, .shuffle = false, .drop_last = true}) ==
        texts{"drop_last is true, it was false", "loss_scale_growth_window is 7, it was 1000", "shuffle is false, it was true"});
  // off after it was on
  CHECK(of_run({.loraplus_lr_ratio = 16.0, .neftune_noise_alpha = 5.0}, {}) ==
        texts{"loraplus_lr_ratio is 0.0, it was 16.0", "neftune_noise_alpha is 0.0, it was 5.0"});
  CHECK(of_run({}, {}).empty());
}

TEST_CASE("kinds are found by their names") {
  CHECK(kind_named<preference_kind>("hinge") == preference_kind::hinge);
  CHECK_THROWS_WITH_AS((void)kind_named<preference_kind>("hing"), doctest::Contains("must be one of sigmoid, robust, hinge, ipo; given 'hing'"),
                       config_error);
}
