// The settings of a training run, from a run description.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/text.hpp>

#include "command_line.hpp"

namespace command_line {

/// Sets members of a config by their names; every name that is given must be one of the config's.
class named_members {
 public:
  named_members(const xtrain::json& given, const char* who) : given_(given), who_(who) {}

  template <class T>
  void take(const char* name, T& member) {
    names_ += (names_.empty() ? "" : ", ") + std::string(name);
    const auto at = given_.find(name);
    if (at == given_.end()) return;
    ++taken_;
    const auto wrong = [&](const char* what) { xtrain::fail<usage_error>(who_, ".", name, ": must be ", what, "; given ", at->dump()); };
    if constexpr (std::is_same_v<T, bool>) {
      if (!at->is_boolean()) wrong("true or false");
      member = at->get<bool>();
    } else if constexpr (std::is_enum_v<T>) {
      if (!at->is_string()) wrong("a name");
      member = for_flag(name, "", [&] { return xtrain::kind_named<T>(at->get<std::string>()); });
    } else if constexpr (std::is_integral_v<T>) {
      if (!at->is_number_unsigned()) wrong("a non-negative integer");
      member = at->get<T>();
    } else if constexpr (requires { std::tuple_size<T>::value; }) {
      if (!at->is_array() || at->size() != member.size() || !std::all_of(at->begin(), at->end(), [](const auto& one) { return one.is_number(); }))
        wrong(xtrain::concat("a list of ", member.size(), " numbers").c_str());
      for (std::size_t i = 0; i < member.size(); ++i) member[i] = at->at(i).template get<typename T::value_type>();
    } else {
      if (!at->is_number()) wrong("a number");
      member = at->get<T>();
    }
  }
  /// A member that is a config itself: set(member, object).
  template <class T, class Set>
  void take_config(const char* name, T& member, Set&& set) {
    names_ += (names_.empty() ? "" : ", ") + std::string(name);
    const auto at = given_.find(name);
    if (at == given_.end()) return;
    ++taken_;
    xtrain::require<usage_error>(at->is_object(), who_, ".", name, ": must be an object; given ", at->dump());
    set(member, *at);
  }
  /// Call at the end.
  ///   throws  usage_error when a name was not taken
  void finish() const {
    if (taken_ == given_.size()) return;
    for (const auto& [name, ignored] : given_.items()) {
      const std::string all = ", " + names_ + ",";
      xtrain::require<usage_error>(all.find(", " + name + ",") != std::string::npos, who_, ".", name, ": there is no such setting; there are ",
                                   names_.empty() ? "none" : names_);
    }
  }

 private:
  const xtrain::json& given_;
  const char* who_;
  std::string names_{};
  std::size_t taken_ = 0;
};

#define XTRAIN_TAKE(name)                                       \
  if constexpr (requires { to.name; }) members.take(#name, to.name)

template <class Config>
void set_optimizer(Config& to, const xtrain::json& given) {
  named_members members(given, "optimizer.settings");
  XTRAIN_TAKE(beta1);
  XTRAIN_TAKE(beta2);
  XTRAIN_TAKE(epsilon);
  XTRAIN_TAKE(weight_decay);
  XTRAIN_TAKE(momentum);
  XTRAIN_TAKE(nesterov);
  XTRAIN_TAKE(min_8bit_size);
  XTRAIN_TAKE(scale_parameter);
  XTRAIN_TAKE(relative_step);
  XTRAIN_TAKE(warmup_init);
  XTRAIN_TAKE(clip_threshold);
  XTRAIN_TAKE(decay_rate);
  XTRAIN_TAKE(epsilon1);
  XTRAIN_TAKE(epsilon2);
  XTRAIN_TAKE(coefficients);
  XTRAIN_TAKE(steps);
  XTRAIN_TAKE(adjust_learning_rate);
  XTRAIN_TAKE(learning_rate_ratio);
  if constexpr (requires { to.adamw; })  // of parameters that are not hidden layers' matrices
    members.take_config("adamw", to.adamw, [](auto& config, const xtrain::json& settings) { set_optimizer(config, settings); });
  members.finish();
}

template <class Config>
void set_objective(Config& to, const xtrain::json& given) {
  named_members members(given, "objective.settings");
  if constexpr (requires { to.kind; }) {
    if constexpr (xtrain::kind_with_names<std::remove_cvref_t<decltype(to.kind)>>) members.take("kind", to.kind);
  }
  XTRAIN_TAKE(beta);
  XTRAIN_TAKE(gamma);
  XTRAIN_TAKE(label_smoothing);
  XTRAIN_TAKE(z_loss);
  XTRAIN_TAKE(nll_weight);
  XTRAIN_TAKE(reference_free);
  XTRAIN_TAKE(desirable_weight);
  XTRAIN_TAKE(undesirable_weight);
  XTRAIN_TAKE(ratio);
  XTRAIN_TAKE(temperature);
  XTRAIN_TAKE(top_k);
  XTRAIN_TAKE(renormalize);
  XTRAIN_TAKE(epsilon_low);
  XTRAIN_TAKE(epsilon_high);
  XTRAIN_TAKE(clip_range);
  XTRAIN_TAKE(coefficient);
  members.finish();
  if constexpr (requires { to.top_k, to.renormalize; })
    xtrain::require<usage_error>(to.top_k > 0 || !to.renormalize, "objective.settings.renormalize: needs top_k");
}

template <class Config>
void set_qat(Config& to, const xtrain::json& given) {
  named_members members(given, "adapter.settings");
  XTRAIN_TAKE(group_size);
  XTRAIN_TAKE(quantizes_activations);
  XTRAIN_TAKE(float_zero_points);
  XTRAIN_TAKE(fake_quant_after_n_steps);
  members.finish();
}

template <class Config>
void set_prefix(Config& to, const xtrain::json& given) {
  named_members members(given, "adapter.settings");
  XTRAIN_TAKE(length);
  XTRAIN_TAKE(projection);
  XTRAIN_TAKE(counts_in_positions);
  XTRAIN_TAKE(weight_bits);
  members.finish();
}

#undef XTRAIN_TAKE

[[nodiscard]] inline xtrain::lora_config lora_of(const xtrain::adapter_description& adapter) {
  xtrain::lora_config lora{.rank = adapter.rank, .alpha = adapter.alpha, .dropout = adapter.dropout, .targets = adapter.targets,
                           .modules_to_save = adapter.modules_to_save};
  lora.rank_stabilised = adapter.rank_stabilised;
  for (const auto& item : adapter.parts.items()) lora.parts[item.key()] = item.value().get<std::vector<std::string>>();
  lora.dora = adapter.kind == "dora" || adapter.kind == "qdora";
  return lora;
}

[[nodiscard]] inline xtrain::batch_size_rampup rampup_of(const xtrain::run_description& run) {
  const std::vector<std::size_t>& given = run.rampup_batch_size;
  return given.size() == 3 ? xtrain::batch_size_rampup{given[0], given[1], given[2]} : xtrain::batch_size_rampup{};
}

/// The settings of a run. What depends on the data (steps per epoch) is the trainer's to find out.
template <class Optimizer, class Objective>
[[nodiscard]] xtrain::training_config<Optimizer, Objective> described_config(const xtrain::run_description& run) {
  xtrain::training_config<Optimizer, Objective> c;
  c.epochs = run.epochs;
  c.max_steps = run.max_steps;
  c.micro_batch_size = run.micro_batch_size;
  c.gradient_accumulation_steps = run.gradient_accumulation_steps;
  c.rampup_batch_size = rampup_of(run);
  c.seq_length = run.seq_length;
  c.shuffle = run.shuffle;
  c.drop_last = run.drop_last;
  c.max_steps_per_epoch = run.max_steps_per_epoch;
  c.seed = run.seed;
  c.neftune_noise_alpha = run.neftune_noise_alpha;

  const xtrain::schedule_description& schedule = run.schedule;
  c.learning_rate = schedule.learning_rate;
  c.lr_schedule = xtrain::lr_schedule_named(schedule.kind);
  c.warmup_steps = schedule.warmup_steps;
  c.warmup_ratio = schedule.warmup_ratio;
  c.min_lr = schedule.min_learning_rate;
  c.lr_from_zero = schedule.starts_at_zero;
  c.lr_decay_steps = schedule.decay_steps;
  c.lr_counts_sequences = schedule.counts == "sequences";
  named_members shape(schedule.settings, "schedule.settings");
  shape.take("num_cycles", c.lr_num_cycles);
  shape.take("power", c.lr_power);
  shape.take("timescale", c.lr_timescale);
  shape.take("warmup_init", c.lr_warmup_init);
  shape.take("round_warmup", c.round_warmup);
  shape.take("decay_epochs", c.lr_decay_epochs);
  shape.take("as_deepspeed", c.lr_as_deepspeed);
  shape.take("log_warmup", c.lr_log_warmup);
  shape.take("continues", c.lr_continues);
  shape.take("counts_updates", c.lr_counts_updates);
  shape.take("warmup_shape", c.lr_warmup_shape);
  shape.take("decay_shape", c.lr_decay_shape);
  shape.take("final_steps", c.lr_final_steps);
  shape.take("stable_steps", c.lr_stable_steps);
  shape.finish();

  set_optimizer(c.optimizer, run.optimizer.settings);
  c.weight_decay_of = run.optimizer.decays == "all" ? xtrain::decayed_parameters::all : xtrain::decayed_parameters::matrices;
  c.max_grad_norm = run.optimizer.max_grad_norm;
  c.keep_gradients = run.optimizer.keep_gradients;
  set_objective(c.objective, run.objective.settings);
  c.average_balance = for_flag("objective.balance", "", [&] { return xtrain::kind_named<xtrain::balance_average>(run.objective.balance); });
  c.average_loss = run.objective.average == "micro_batch" ? xtrain::loss_average::micro_batch : xtrain::loss_average::step;

  named_members scale(run.loss_scale, "loss_scale");
  scale.take("initial", c.loss_scale.start);
  scale.take("window", c.loss_scale.growth_window);
  scale.take("hysteresis", c.loss_scale.hysteresis);
  scale.take("min", c.loss_scale.min_scale);
  scale.finish();
  c.eval_steps = run.output.eval_steps;
  return c;
}

}  // namespace command_line
