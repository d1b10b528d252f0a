// Online reinforcement learning: answers, rewards, optimizer steps.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/lifetime.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/generate/generator.hpp>
#include <xtrain/objective/grpo.hpp>
#include <xtrain/rl/advantages.hpp>
#include <xtrain/rl/answers.hpp>
#include <xtrain/rl/completions.hpp>
#include <xtrain/train/concepts.hpp>
#include <xtrain/train/events.hpp>
#include <xtrain/train/trainer.hpp>

namespace xtrain {

/// Settings of rollouts.
struct rollouts_config {
  std::size_t num_generations = 8;          ///< answers per prompt: a group whose rewards are compared
  std::size_t max_completion_length = 256;  ///< in tokens
  sampling_config sampling = {.temperature = 1.0};  ///< log-probabilities always have temperature 1
  std::vector<token> stop = {};             ///< each ends an answer and is its last target
  bool scale_rewards = true;                ///< divides advantages by their group's standard deviation
  std::size_t num_iterations = 1;           ///< passes over a step's answers (µ)
  std::size_t generation_batch_size = 0;    ///< answers generated together; 0: the trainer's micro_batch_size
};

/// Result of a step; means over the answers of all data-parallel ranks.
struct rollouts_done {
  double reward = 0;                ///< mean without NaN (no reward)
  double reward_std = 0;            ///< mean over prompts of the group's standard deviation
  double frac_reward_zero_std = 0;  ///< share of groups with equal rewards, which teach nothing
  double completion_length = 0;     ///< in tokens, with the end token
  double clipped_ratio = 0;         ///< share of answers cut off at maximum length
  std::vector<step_done> steps{};   ///< optimizer steps
};

/// Group relative policy optimization of a trainer's model (objective grpo).         [Shao et al. 2024, "DeepSeekMath", algorithm 1]
/// A generator on the same weights answers; its memory is allocated in the constructor. Random numbers are a function of seed, number of optimizer steps
/// and the answer's index. Each data-parallel rank answers its part of the prompts, with one device's result; with zero<3>, which gathers weights in
/// every pass, every rank generates all answers.
template <class Model>
class rollouts {
  using recipe = typename Model::recipe;
  static_assert(std::is_same_v<typename recipe::objective, grpo>, "xtrain rollouts: the recipe's 'objective' must be grpo; see rl/README.md");

 public:
  using config = rollouts_config;
  using generator_type = typename detail::answer_source<Model>::generator_type;

  /// throws config_error for settings that contradict each other or the trainer's, memory_error
  explicit rollouts(trainer<Model>& of, const config& settings = {});

  /// Reference model for a positive beta. Default: the model without its LoRA adapter, if nothing else is trained. Must outlive its use.
  template <class Source>
  void use_reference(Source& source) {
    detail::require_second_model("rollouts: the reference model", source, trainer_->model());
    reference_ = [&source](const host_batch& batch) { return source.token_log_probs(batch); };
    reference_life_ = detail::watched(source);
    reference_plan_ = detail::plan_of(source);
  }

  /// Generates answers; takes num_iterations passes of optimizer steps over them. An optimizer step has micro_batch_size x gradient_accumulation_steps
  /// sequences per data-parallel rank.
  ///   prompts   of all data-parallel ranks, equal on every rank; a multiple of prompts_per_step()
  ///   reward    double(prompt, answer), or std::vector<double>(std::span<const completion>); NaN: no reward
  ///   throws    config_error, data_error; errors of trainer::step
  template <class Reward>
  rollouts_done step(std::span<const std::vector<token>> prompts, Reward&& reward, double learning_rate);

  /// Per optimizer step, on all data-parallel ranks.
  [[nodiscard]] std::size_t prompts_per_step() const { return answers_.prompts_per_step(); }
  /// Memory of the trainer, generator and the given reference model; without a reward's memory.
  [[nodiscard]] dry_run plan() const {
    dry_run all = trainer_->plan();
    if (reference_) all.set_beside("reference model", reference_plan_);
    all.set_beside("generator", answers_.plan());
    return all;
  }
  /// This rank's answers of the last step, with rewards and advantages.
  [[nodiscard]] std::span<const completion> completions() const { return answers_.completions(); }

 private:
  void require_reference() const;
  [[nodiscard]] rollouts_done statistics() const;
  [[nodiscard]] std::vector<host_batch> batches_of(std::size_t step, bool needs_old);

  trainer<Model>* trainer_;
  config config_;
  detail::answer_source<Model> answers_;
  std::function<std::vector<float>(const host_batch&)> reference_{};
  planned_memory reference_plan_{};
  detail::watched reference_life_{};
};

template <class Model>
rollouts(trainer<Model>&, const rollouts_config& = {}) -> rollouts<Model>;

template <class Model>
rollouts<Model>::rollouts(trainer<Model>& of, const config& settings)
    : trainer_(&of), config_(settings),
      answers_("rollouts", of, {settings.num_generations, settings.max_completion_length, settings.sampling, settings.stop, settings.generation_batch_size}) {
  require<config_error>(settings.num_generations > 1, "rollouts: num_generations must be at least 2, for answers that can be compared; given ",
                        settings.num_generations);
  require<config_error>(settings.num_iterations > 0, "rollouts: num_iterations must be positive; given ", settings.num_iterations);
  const std::size_t limit = of.settings().objective.max_completion_length;
  require<config_error>(limit == 0 || settings.max_completion_length <= limit, "rollouts: max_completion_length must not be more than the objective's ",
                        limit, "; given ", settings.max_completion_length);
}

template <class Model>
template <class Reward>
rollouts_done rollouts<Model>::step(std::span<const std::vector<token>> prompts, Reward&& reward, double learning_rate) {
  answers_.require_prompts(prompts);
  require_reference();
  answers_.generate(prompts);
  const auto compared = [&](std::span<const double> rewards) { return group_advantages(rewards, config_.num_generations, config_.scale_rewards); };
  const std::vector<double> rewards = answers_.rewards(reward, [&](std::span<const double> own) { (void)compared(own); });
  const std::vector<double> advantages = compared(rewards);
  for (std::size_t i = 0; i < advantages.size(); ++i) answers_.completions()[i].advantage = advantages[i];
  rollouts_done done = statistics();
  const std::size_t steps = prompts.size() / prompts_per_step();
  const bool needs_old = steps * config_.num_iterations > 1;  // otherwise the trained model generated them
  std::vector<std::vector<host_batch>> batches;
  for (std::size_t i = 0; i < steps; ++i) batches.push_back(batches_of(i, needs_old));
  for (std::size_t pass = 0; pass < config_.num_iterations; ++pass)
    for (const auto& of_step : batches) {
      done.steps.push_back(trainer_->step(std::span<const host_batch>(of_step), learning_rate));
      step_done& last = done.steps.back();
      last.steps = std::max(last.steps, last.step);  // max_steps is optional
      trainer_->tell(last);
    }
  return done;
}

template <class Model>
void rollouts<Model>::require_reference() const {
  reference_life_.require_there("rollouts", "the reference model");
  require<config_error>(trainer_->settings().objective.beta == 0.0 || reference_ || detail::adapter_can_be_switched_off(trainer_->model()),
                        "rollouts: a reference model must be given if beta is positive: a second model (use_reference), or an adapter that is all that is "
                        "trained (lora)");
}

template <class Model>
rollouts_done rollouts<Model>::statistics() const {
  std::array<double, 8> sums{};
  std::vector<double> rewards;
  for (const completion& one : completions()) {
    rewards.push_back(one.reward);
    sums[3] += static_cast<double>(one.answer.size() + (one.stop >= 0 ? 1 : 0));
    sums[4] += one.stop >= 0 ? 0 : 1;
    sums[5] += 1;
  }
  for (std::size_t first = 0; first < rewards.size(); first += config_.num_generations) {
    const reward_statistics group(std::span<const double>(rewards).subspan(first, config_.num_generations));
    sums[0] += group.mean * static_cast<double>(group.answers);
    sums[1] += group.deviation;
    sums[2] += group.deviation < 1e-8 ? 1 : 0;
    sums[6] += static_cast<double>(group.answers);
    sums[7] += 1;
  }
  answers_.parallel().data().all_reduce(std::span<double>(sums), reduction::sum);
  return {.reward = sums[6] > 0 ? sums[0] / sums[6] : 0.0,
          .reward_std = sums[1] / sums[7],
          .frac_reward_zero_std = sums[2] / sums[7],
          .completion_length = sums[3] / sums[5],
          .clipped_ratio = sums[4] / sums[5]};
}

template <class Model>
std::vector<host_batch> rollouts<Model>::batches_of(std::size_t step, bool needs_old) {
  std::vector<host_batch> all = answers_.batches_of(step);
  std::size_t answer = step * trainer_->settings().micro_batch_size * trainer_->settings().gradient_accumulation_steps;
  for (host_batch& batch : all) {
    for (std::size_t s = 0; s < batch.b; ++s) batch.advantages.push_back(completions()[answer++].advantage);
    if (needs_old) batch.old_log_probs = trainer_->token_log_probs(batch);
    if (trainer_->settings().objective.beta > 0.0)
      batch.reference_token_log_probs = reference_ ? reference_(batch) : trainer_->token_log_probs(batch, true);
  }
  return all;
}

}  // namespace xtrain
