// What a checkpoint records of settings of runs, objectives and optimizers.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include <xtrain/adapt/prefix_tuning.hpp>
#include <xtrain/adapt/qat.hpp>
#include <xtrain/adapt/qat_lora.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/setting_list.hpp>
#include <xtrain/io/setting_values.hpp>
#include <xtrain/objective/distillation.hpp>
#include <xtrain/objective/dpo.hpp>
#include <xtrain/objective/grpo.hpp>
#include <xtrain/objective/kto.hpp>
#include <xtrain/objective/next_token.hpp>
#include <xtrain/objective/orpo.hpp>
#include <xtrain/objective/ppo.hpp>
#include <xtrain/objective/ppo_value.hpp>
#include <xtrain/objective/reward.hpp>
#include <xtrain/objective/simpo.hpp>
#include <xtrain/optim/adafactor.hpp>
#include <xtrain/optim/adamw.hpp>
#include <xtrain/optim/adamw_8bit.hpp>
#include <xtrain/optim/lion.hpp>
#include <xtrain/optim/loss_scale.hpp>
#include <xtrain/optim/muon.hpp>
#include <xtrain/optim/sgd.hpp>
#include <xtrain/train/checkpoint_state.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/kind_names.hpp>
#include <xtrain/train/recorded_settings.hpp>

using namespace xtrain;

namespace {

/// A resumed run's messages, for settings before and now.
template <class Record, class Config>
std::vector<std::string> changes(const Record& record, Config before, Config now) {
  json_settings then, all;
  json_settings saved;
  record(then, before);
  record(all, now);
  saved.set("settings", then.object());
  return detail::changed_settings(saved, all);
}
template <class Config>
std::vector<std::string> config_changes(Config before, Config now) {
  return changes([](json_settings& to, Config& c) { write_settings(to, list_settings(c), "optimizer"); }, before, now);
}

using texts = std::vector<std::string>;

/// Readable settings of a config and of configs within it, each with its object in a run description.
std::vector<std::pair<std::vector<std::string>, setting_entry>> readable(const std::vector<setting_entry>& all, const std::vector<std::string>& path = {}) {
  std::vector<std::pair<std::vector<std::string>, setting_entry>> found;
  for (const setting_entry& one : all) {
    if (one.type() == setting_type::other) continue;
    std::vector<std::string> inside = path;
    inside.emplace_back(one.about.name);
    if (one.type() != setting_type::config) found.emplace_back(inside, one);
    for (auto& more : readable(one.inner, inside)) found.push_back(std::move(more));
  }
  return found;
}
/// Another value of the setting, within its range.
json other_value(const setting_entry& one) {
  const auto number = [&](std::size_t i) { return one.about.range == setting_range::share || one.about.range == setting_range::share_below_one
                                                      ? (one.get(i).number + 0.25) / 2 : 2 * one.get(i).number + 1.5; };
  if (one.is_list) {
    json all = json::array();
    for (std::size_t i = 0; i < one.values; ++i) all.push_back(number(i));
    return all;
  }
  switch (one.type()) {
    case setting_type::flag: return !one.get().flag;
    case setting_type::whole: return one.get().whole + 3;
    case setting_type::integer: return one.get().integer + 3;
    case setting_type::number: return number(0);
    case setting_type::text: return std::string(one.get().text) + "x";
    default: return std::string(one.access.name(one.access.name(0) == one.get().text ? 1 : 0));
  }
}

/// For every setting of a config: a run description sets another value, and a resumed run reports exactly this change.
template <class Config>
void check_every_setting() {
  Config plain{};
  const auto all = readable(list_settings(plain));
  CHECK(all.size() > 0);
  for (const auto& [path, one] : all) {
    json given = other_value(one);
    const json expected = given;
    for (auto name = path.rbegin(); name != path.rend(); ++name) given = json{{*name, given}};
    CAPTURE(given.dump());
    Config set{};
    read_settings(list_settings(set), given, "settings");
    json_settings before, now;
    write_settings(before, list_settings(plain), "run", written_settings::all);
    write_settings(now, list_settings(set), "run", written_settings::all);
    std::vector<std::string> changed;
    for (const auto& item : now.object().items())
      if (item.value() != before.object().at(item.key())) changed.push_back(item.key());
    REQUIRE(changed.size() == 1);
    CHECK(changed[0].ends_with(one.full_name()));
    const json& recorded = now.object().at(changed[0]);
    CHECK((recorded == expected || recorded.is_array()));
    CHECK(config_changes(plain, set).size() == (one.about.compared ? 1 : 0));
  }
}

enum class own_kind { narrow, wide };
enum class nameless_kind { first, second };

/// The config of an optimizer or objective outside the library.
struct own_config {
  double epsilon = 1e-8;  // adamw has this name, too
  float damping = 0.5F;
  int shift = -2;
  std::string schedule = "flat";
  own_kind kind = own_kind::narrow;
  nameless_kind order = nameless_kind::first;
  adamw::config inner{};
  std::vector<double> unknown_type{};

  template <class Self, class Visit>
  static constexpr void members(Self& c, Visit&& visit) {
    visit({.name = "epsilon", .range = setting_range::positive}, c.epsilon);
    visit({.name = "damping", .range = setting_range::share}, c.damping);
    visit({.name = "shift"}, c.shift);
    visit({.name = "schedule"}, c.schedule);
    visit({.name = "kind", .full_name = "own_kind"}, c.kind);
    visit({.name = "order"}, c.order);
    visit({.name = "inner"}, c.inner);
    visit({.name = "unknown_type"}, c.unknown_type);
  }
};
struct own_objective : next_token {
  using config = own_config;
};

}  // namespace

template <>
struct xtrain::kind_names<own_kind> {
  static constexpr named_kinds<own_kind, 2> all{{{"narrow", own_kind::narrow}, {"wide", own_kind::wide}}};
};

TEST_CASE("every setting of every config can be given in a run description, is recorded, and a change is told") {
  check_every_setting<sgd::config>();
  check_every_setting<lion::config>();
  check_every_setting<adamw::config>();
  check_every_setting<adamw_8bit::config>();
  check_every_setting<muon::config>();
  check_every_setting<adafactor::config>();
  check_every_setting<dynamic_loss_scale::config>();
  check_every_setting<next_token::config>();
  check_every_setting<dpo::config>();
  check_every_setting<kto::config>();
  check_every_setting<orpo::config>();
  check_every_setting<simpo::config>();
  check_every_setting<reward::config>();
  check_every_setting<grpo::config>();
  check_every_setting<ppo::config>();
  check_every_setting<ppo_value::config>();
  check_every_setting<distillation::config>();
  check_every_setting<qat::config>();
  check_every_setting<prefix_config>();
  check_every_setting<own_config>();
  check_every_setting<training_config<adamw>>();
}

TEST_CASE("names in checkpoints are those of earlier versions") {
  json_settings all;
  detail::record_settings<true>(all, training_config<muon, dpo>{});
  for (const char* name : {"adamw_betas", "adamw_epsilon", "adamw_weight_decay", "adjust_learning_rate", "average_balance", "average_loss", "beta",
                           "drop_last", "epochs", "epsilon", "keep_gradients", "label_smoothing", "learning_rate", "learning_rate_ratio",
                           "loraplus_lr_embedding", "loraplus_lr_ratio", "loss_scale_growth_window", "loss_scale_hysteresis", "loss_type", "lr_as_deepspeed",
                           "lr_continues", "lr_counts_sequences", "lr_counts_updates", "lr_decay_epochs", "lr_decay_shape", "lr_decay_steps",
                           "lr_final_steps", "lr_from_zero", "lr_log_warmup", "lr_num_cycles", "lr_power", "lr_schedule", "lr_stable_steps", "lr_timescale",
                           "lr_warmup_init", "lr_warmup_shape", "max_grad_norm", "max_steps", "max_steps_per_epoch", "min_loss_scale", "min_lr",
                           "min_lr_ratio", "momentum", "neftune_noise_alpha", "nesterov", "newton_schulz_coefficients", "newton_schulz_steps",
                           "rampup_batch_size", "reference_free", "round_warmup", "shuffle", "warmup_ratio", "warmup_steps", "weight_decay",
                           "weight_decay_of"})
    CHECK_MESSAGE(all.object().contains(name), name);
  json_settings adapter;
  detail::record_adapter(adapter, qat_lora::config{});
  CHECK(adapter.object() == json{{"lora_dropout", 0.0}, {"group_size", 256}, {"quantizes_activations", true}, {"float_zero_points", false},
                                 {"fake_quant_after_n_steps", 0}});
}

TEST_CASE("settings of an optimizer or objective of one's own are recorded, next to others of the same name") {
  using config = training_config<adamw, own_objective>;
  const auto of_run = [](const config& before, const config& now) {
    return changes([](json_settings& to, const config& c) { detail::record_settings<false>(to, c); }, before, now);
  };
  CHECK(of_run({}, {.optimizer = {.epsilon = 1e-6},
                    .objective = {.epsilon = 1e-4, .damping = 0.25F, .shift = 3, .schedule = "steep", .kind = own_kind::wide, .order = nameless_kind::second,
                                  .inner = {.weight_decay = 0.5}}}) ==
        texts{"damping is 0.25, it was 0.5", "epsilon is 1e-06, it was 1e-08", "inner_weight_decay is 0.5, it was 0.01",
              "objective_epsilon is 0.0001, it was 1e-08",
              "order is 1, it was 0", "own_kind is \"wide\", it was \"narrow\"", "schedule is \"steep\", it was \"flat\"", "shift is 3, it was -2"});
  CHECK(of_run({}, {}).empty());
}

TEST_CASE("a setting in a run description that is out of range, of another type or unknown is refused by name") {
  const auto refused = [](auto config, const char* given) -> std::string {
    try {
      read_settings(list_settings(config), json::parse(given), "optimizer.settings");
    } catch (const config_error& problem) {
      return problem.what();
    }
    return "it is accepted";
  };
  CHECK(refused(adamw::config{}, R"({"beta1": 1.0})") == "optimizer.settings.beta1: must be a number from 0 to below 1; given 1.0");
  CHECK(refused(adamw::config{}, R"({"weight_decay": -1})") == "optimizer.settings.weight_decay: must be a non-negative number; given -1");
  CHECK(refused(adamw::config{}, R"({"momentum": 1})") ==
        "optimizer.settings.momentum: there is no such setting; there are beta1, beta2, epsilon, weight_decay");
  CHECK(refused(muon::config{}, R"({"adamw": {"beta1": "a"}})") == "optimizer.settings.adamw.beta1: must be a number; given \"a\"");
  CHECK(refused(muon::config{}, R"({"steps": 0})") == "optimizer.settings.steps: must be a positive integer; given 0");
  CHECK(refused(own_config{}, R"({"kind": "wid"})") == "optimizer.settings.kind: must be one of narrow, wide; given 'wid'");
  CHECK(refused(own_config{}, R"({"shift": 3000000000})") == "optimizer.settings.shift: is too large; given 3000000000");
  CHECK(refused(own_config{}, R"({"order": 4294967297})") == "optimizer.settings.order: is too large; given 4294967297");
  CHECK(refused(own_config{}, R"({"shift": 18446744073709551615})").starts_with("optimizer.settings.shift: must be an integer of at most 64 bits"));
  CHECK(refused(own_config{}, R"({"unknown_type": []})").starts_with("optimizer.settings.unknown_type: there is no such setting"));
  for (const char* const no_count : {R"({"steps": -1})", R"({"steps": 5.0})", R"({"steps": true})", R"({"steps": null})"})
    CHECK(refused(muon::config{}, no_count).starts_with("optimizer.settings.steps: must be a non-negative integer; given "));
  muon::config made;
  read_settings(list_settings(made), json{{"steps", 7}}, "optimizer.settings");  // created by a program: 7 is signed
  CHECK(made.steps == 7);
  // the name of an earlier version
  dynamic_loss_scale::config scale;
  read_settings(list_settings(scale), json::parse(R"({"initial": 8.0, "window": 5})"), "loss_scale");
  CHECK(scale.start == 8.0);
  CHECK(scale.growth_window == 5);
  CHECK(refused(scale, R"({"initial": 8.0, "start": 5})") == "optimizer.settings.initial: is an earlier name of start, which is given, too");
}

TEST_CASE("changed settings of optimizers and objectives are told by name") {
  CHECK(config_changes(adamw::config{}, adamw::config{.beta2 = 0.95, .epsilon = 1e-6}) ==
        texts{"betas is [0.9,0.95], it was [0.9,0.999]", "epsilon is 1e-06, it was 1e-08"});
  CHECK(config_changes(muon::config{},
                          muon::config{.nesterov = false, .steps = 6, .adjust_learning_rate = muon_rate::original, .adamw = {.weight_decay = 0.5}}) ==
        texts{"adamw_weight_decay is 0.5, it was 0.01", "adjust_learning_rate is \"original\", it was \"match_rms_adamw\"", "nesterov is false, it was true",
              "newton_schulz_steps is 6, it was 5"});
  CHECK(config_changes(adafactor::config{}, adafactor::config{.relative_step = true, .clip_threshold = 2.0, .epsilon2 = 1e-2}) ==
        texts{"clip_threshold is 2.0, it was 1.0", "epsilon2 is 0.01, it was 0.001", "relative_step is true, it was false"});
  CHECK(config_changes(dpo::config{}, dpo::config{.kind = preference_kind::ipo, .beta = 0.2, .reference_free = true}) ==
        texts{"beta is 0.2, it was 0.1", "loss_type is \"ipo\", it was \"sigmoid\"", "reference_free is true, it was false"});
  CHECK(config_changes(kto::config{}, kto::config{.kind = kto_kind::apo_zero, .undesirable_weight = 2.0}) ==
        texts{"loss_type is \"apo_zero_unpaired\", it was \"kto\"", "undesirable_weight is 2.0, it was 1.0"});
  CHECK(config_changes(distillation::config{}, distillation::config{.kind = divergence_kind::reverse, .top_k = 4}) ==
        texts{"loss_type is \"reverse\", it was \"forward\"", "top_k is 4, it was 0"});
  CHECK(config_changes(dpo::config{}, dpo::config{}).empty());
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
  // switched off
  CHECK(of_run({.loraplus_lr_ratio = 16.0, .neftune_noise_alpha = 5.0}, {}) ==
        texts{"loraplus_lr_ratio is 0.0, it was 16.0", "neftune_noise_alpha is 0.0, it was 5.0"});
  CHECK(of_run({}, {}).empty());
}

TEST_CASE("kinds are found by their names") {
  CHECK(kind_named<preference_kind>("hinge") == preference_kind::hinge);
  CHECK_THROWS_WITH_AS((void)kind_named<preference_kind>("hing"), doctest::Contains("must be one of sigmoid, robust, hinge, ipo; given 'hing'"),
                       config_error);
}
