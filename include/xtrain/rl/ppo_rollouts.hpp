// Proximal policy optimization: answers, a value function, and training steps of both models.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/lifetime.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/generate/generator.hpp>
#include <xtrain/objective/ppo.hpp>
#include <xtrain/objective/ppo_value.hpp>
#include <xtrain/rl/advantages.hpp>
#include <xtrain/rl/answers.hpp>
#include <xtrain/rl/completions.hpp>
#include <xtrain/train/concepts.hpp>
#include <xtrain/train/events.hpp>
#include <xtrain/train/trainer.hpp>

namespace xtrain {

/// Defaults of trl's PPOConfig; sampling with temperature 1, as there.
struct ppo_rollouts_config {
  std::size_t num_generations = 1;          ///< answers per prompt
  std::size_t max_completion_length = 256;  ///< in tokens
  sampling_config sampling = {.temperature = 1.0};  ///< log-probabilities have the objective's temperature
  std::vector<token> stop = {};             ///< each ends an answer and is its last target
  std::size_t num_ppo_epochs = 4;           ///< passes over a step's answers
  double kl_coef = 0.05;                    ///< token reward: −kl_coef · (log p − reference log p)
  double gamma = 1.0;                       ///< discount of later rewards
  double lambda = 0.95;                     ///< of generalized advantage estimation
  bool whiten_advantages = true;            ///< over a step's tokens: mean 0, variance 1
  bool whitening_keeps_mean = false;        ///< torchtune: adds the mean again
  /// torchtune: the reward follows the end token, and the value there is trained, except for answers of one token or of maximum length.
  bool reward_behind_end = false;
  bool shuffle = false;                     ///< trl, torchtune: another order of (each rank's) answers in every epoch
  std::size_t generation_batch_size = 0;    ///< answers generated together; 0: the trainer's micro_batch_size
};

/// Result of a step; means over the answers of all data-parallel ranks.
struct ppo_rollouts_done {
  double reward = 0;
  double kl = 0;                 ///< mean of Σ (log p − reference log p); 0 if kl_coef is 0 without reference model
  double completion_length = 0;  ///< in tokens, with the end token
  double clipped_ratio = 0;      ///< share of answers cut off at maximum length
  std::vector<step_done> policy_steps{}, value_steps{};  ///< optimizer steps, in turn
};

/// PPO of a trainer's model (objective ppo) and a value model with a trainer (objective ppo_value): a decoder with a score head, initialized from the same
/// language model or a reward model.       [Schulman et al. 2017; Ouyang et al. 2022; trl's PPOTrainer, torchtune]
/// Both trainers have equal batch sizes and, on several ranks, equal strategies, on separate channels. Answers are generated and shared as in `rollouts`.
template <class Model, class ValueModel>
class ppo_rollouts {
  static_assert(std::is_same_v<typename Model::recipe::objective, ppo>, "xtrain ppo_rollouts: the recipe's 'objective' must be ppo; see rl/README.md");
  static_assert(std::is_same_v<typename ValueModel::recipe::objective, ppo_value>,
                "xtrain ppo_rollouts: the 'objective' of the value model's recipe must be ppo_value; see rl/README.md");

 public:
  using config = ppo_rollouts_config;

  /// throws config_error for settings that contradict each other or the trainers', memory_error
  ppo_rollouts(trainer<Model>& policy, trainer<ValueModel>& value, const config& settings = {});

  /// Reference model for a positive kl_coef. Default: the model without its LoRA adapter, if nothing else is trained. Must outlive its use.
  template <class Source>
  void use_reference(Source& source) {
    detail::require_second_model("ppo_rollouts: the reference model", source, policy_->model());
    if constexpr (requires { { source.channels() } -> std::convertible_to<channel_origin>; })
      detail::require_own_channels("ppo_rollouts: the reference model", source.channels(), value_->model(), "value");
    reference_ = [&source](const host_batch& batch) { return source.token_log_probs(batch); };
    reference_life_ = detail::watched(source);
    reference_plan_ = detail::plan_of(source);
  }

  /// Generates answers; takes num_ppo_epochs passes of optimizer steps of both models over them.
  ///   prompts   of all data-parallel ranks, equal on every rank; a multiple of prompts_per_step()
  ///   reward    double(prompt, answer), or std::vector<double>(std::span<const completion>)
  ///   throws    config_error, data_error (also for a non-finite reward); errors of trainer::step
  template <class Reward>
  ppo_rollouts_done step(std::span<const std::vector<token>> prompts, Reward&& reward, double learning_rate, double value_learning_rate);

  /// Per optimizer step, on all data-parallel ranks.
  [[nodiscard]] std::size_t prompts_per_step() const { return answers_.prompts_per_step(); }
  /// Memory of the policy's trainer, with value model, generator and the given reference model; without a reward's memory.
  [[nodiscard]] dry_run plan() const {
    dry_run all = policy_->plan();
    all.set_beside("value model", value_->plan());
    if (reference_) all.set_beside("reference model", reference_plan_);
    all.set_beside("generator", answers_.plan());
    return all;
  }
  /// This rank's answers of the last step, with rewards.
  [[nodiscard]] std::span<const completion> completions() const { return answers_.completions(); }

 private:
  /// Calls visit(index of the first target, number of targets) per sequence of a batch.
  template <class Visit>
  static void for_each_answer(const host_batch& batch, Visit&& visit) {
    for (std::size_t s = 0; s < batch.b; ++s) {
      const auto begin = batch.targets.begin() + static_cast<std::ptrdiff_t>(s * batch.t), end = begin + static_cast<std::ptrdiff_t>(batch.t);
      const auto first = std::find_if(begin, end, [](token t) { return t >= 0; });
      visit(static_cast<std::size_t>(first - batch.targets.begin()),
            static_cast<std::size_t>(std::count_if(first, end, [](token t) { return t >= 0; })));
    }
  }
  /// Per token, before optimizer steps; values and returns also after the end token.
  struct answer_values {
    std::vector<float> log_probs{}, values{}, returns{};
    std::vector<double> advantages{};
  };
  void require_reference() const;
  /// Fills in all answers; returns the sum of divergences.
  double complete(std::vector<answer_values>& all);
  [[nodiscard]] ppo_rollouts_done statistics(double kl);
  template <class Trainer>
  static step_done step_of(Trainer& of, const std::vector<host_batch>& batches, double learning_rate) {
    step_done done = of.step(std::span<const host_batch>(batches), learning_rate);
    done.steps = std::max(done.steps, done.step);  // max_steps is optional
    of.tell(done);
    return done;
  }

  trainer<Model>* policy_;
  trainer<ValueModel>* value_;
  detail::watched value_life_;
  config config_;
  detail::answer_source<Model> answers_;
  std::function<std::vector<float>(const host_batch&)> reference_{};
  planned_memory reference_plan_{};
  detail::watched reference_life_{};
};

template <class Model, class ValueModel>
ppo_rollouts(trainer<Model>&, trainer<ValueModel>&, const ppo_rollouts_config& = {}) -> ppo_rollouts<Model, ValueModel>;

template <class Model, class ValueModel>
ppo_rollouts<Model, ValueModel>::ppo_rollouts(trainer<Model>& policy, trainer<ValueModel>& value, const config& settings)
    : policy_(&policy), value_(&value), value_life_(value), config_(settings),
      answers_("ppo_rollouts", policy,
               {settings.num_generations, settings.max_completion_length, settings.sampling, settings.stop, settings.generation_batch_size}) {
  detail::require_own_channels("ppo_rollouts: the value model", detail::channels_of(value.model()), policy.model());
  require<config_error>(settings.num_ppo_epochs > 0, "ppo_rollouts: num_ppo_epochs must be positive; given ", settings.num_ppo_epochs);
  require<config_error>(settings.kl_coef >= 0.0 && std::isfinite(settings.kl_coef), "ppo_rollouts: kl_coef must not be negative; given ", settings.kl_coef);
  require<config_error>(settings.gamma >= 0.0 && settings.gamma <= 1.0 && settings.lambda >= 0.0 && settings.lambda <= 1.0,
                        "ppo_rollouts: gamma and lambda must be from 0 to 1; given ", settings.gamma, " and ", settings.lambda);
  require<config_error>(!settings.whitening_keeps_mean || settings.whiten_advantages, "ppo_rollouts: whitening_keeps_mean needs whiten_advantages");
  const auto sizes = [](const auto& trainer) {
    const auto& s = trainer.settings();
    const loader_config rows = trainer.loader_settings();
    return std::array<std::size_t, 6>{s.micro_batch_size, s.gradient_accumulation_steps, s.seq_length, rows.pad_to_multiple_of, rows.ranks, rows.rank};
  };
  const auto of_policy = sizes(policy), of_value = sizes(value);
  detail::require_equal_micro_batches("ppo_rollouts", value);
  require<config_error>(of_policy == of_value,
                        "ppo_rollouts: both trainers must have the same micro_batch_size, gradient_accumulation_steps, seq_length, padding and data-parallel "
                        "ranks; given ", of_policy[0], ", ", of_policy[1], ", ", of_policy[2], ", ", of_policy[3], ", ", of_policy[4], " and ", of_value[0],
                        ", ", of_value[1], ", ", of_value[2], ", ", of_value[3], ", ", of_value[4]);
}

template <class Model, class ValueModel>
template <class Reward>
ppo_rollouts_done ppo_rollouts<Model, ValueModel>::step(std::span<const std::vector<token>> prompts, Reward&& reward, double learning_rate,
                                                        double value_learning_rate) {
  answers_.require_prompts(prompts);
  value_life_.require_there("ppo_rollouts", "the value model's trainer");
  value_->require_no_queued_steps("ppo_rollouts: step()");
  require_reference();
  answers_.generate(prompts);
  (void)answers_.rewards(reward, [](std::span<const double> own) {
    for (std::size_t i = 0; i < own.size(); ++i)
      require<data_error>(std::isfinite(own[i]), "ppo_rollouts: a reward must be finite; reward ", i, " is ", own[i]);
  });
  std::vector<std::size_t> order(completions().size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t of_step = answers_.answers_per_step(), steps = order.size() / of_step;
  std::vector<answer_values> all(order.size());
  ppo_rollouts_done done = statistics(complete(all));
  for (std::size_t epoch = 0; epoch < config_.num_ppo_epochs; ++epoch) {
    if (config_.shuffle) {
      const shuffled_order shuffled(order.size(), config_.sampling.seed, static_cast<std::uint32_t>(policy_->progress().updates + policy_->progress().skipped));
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = shuffled[i];
    }
    for (std::size_t i = 0; i < steps; ++i) {
      const auto some = std::span<const std::size_t>(order).subspan(i * of_step, of_step);
      std::vector<host_batch> of_policy = answers_.batches_of(some), of_value = answers_.batches_of(some, config_.reward_behind_end);
      std::size_t policy_answer = 0, value_answer = 0;
      for (host_batch& batch : of_policy) {
        batch.old_log_probs.assign(batch.b * batch.t, 0.0F);
        batch.advantages.assign(batch.b * batch.t, 0.0);
        for_each_answer(batch, [&](std::size_t first, std::size_t) {
          const answer_values& one = all[some[policy_answer++]];
          std::copy(one.log_probs.begin(), one.log_probs.end(), batch.old_log_probs.begin() + static_cast<std::ptrdiff_t>(first));
          std::copy(one.advantages.begin(), one.advantages.end(), batch.advantages.begin() + static_cast<std::ptrdiff_t>(first));
        });
      }
      for (host_batch& batch : of_value) {
        batch.old_values.assign(batch.b * batch.t, 0.0F);
        batch.returns.assign(batch.b * batch.t, 0.0F);
        for_each_answer(batch, [&](std::size_t first, std::size_t) {
          const answer_values& one = all[some[value_answer++]];
          std::copy(one.values.begin(), one.values.end(), batch.old_values.begin() + static_cast<std::ptrdiff_t>(first));
          std::copy(one.returns.begin(), one.returns.end(), batch.returns.begin() + static_cast<std::ptrdiff_t>(first));
        });
      }
      done.policy_steps.push_back(step_of(*policy_, of_policy, learning_rate));
      done.value_steps.push_back(step_of(*value_, of_value, value_learning_rate));
    }
  }
  return done;
}

template <class Model, class ValueModel>
void ppo_rollouts<Model, ValueModel>::require_reference() const {
  reference_life_.require_there("ppo_rollouts", "the reference model");
  require<config_error>(config_.kl_coef == 0.0 || reference_ || detail::adapter_can_be_switched_off(policy_->model()),
                        "ppo_rollouts: a reference model must be given if kl_coef is positive: a second model (use_reference), or an adapter that is all that "
                        "is trained (lora)");
}

template <class Model, class ValueModel>
double ppo_rollouts<Model, ValueModel>::complete(std::vector<answer_values>& all) {
  double kl = 0.0;
  std::vector<double> advantages;  // of all tokens, in order
  for (std::size_t first_answer = 0; first_answer < all.size(); first_answer += answers_.answers_per_step()) {
    std::vector<std::size_t> numbers(answers_.answers_per_step());
    std::iota(numbers.begin(), numbers.end(), first_answer);
    std::size_t answer = first_answer, value_answer = first_answer;
    const auto read = [](const std::vector<float>& from, std::size_t first, std::size_t tokens) {
      const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first);
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(tokens));
    };
    for (const host_batch& batch : answers_.batches_of(numbers, config_.reward_behind_end)) {
      const std::vector<float> values = value_->token_values(batch);
      for_each_answer(batch, [&](std::size_t first, std::size_t tokens) { all[value_answer++].values = read(values, first, tokens); });
    }
    for (const host_batch& batch : answers_.batches_of(numbers)) {
      const std::vector<float> log_probs = policy_->token_log_probs(batch);
      std::vector<float> reference;
      if (config_.kl_coef > 0.0 || reference_) reference = reference_ ? reference_(batch) : policy_->token_log_probs(batch, true);
      for_each_answer(batch, [&](std::size_t first, std::size_t tokens) {
        answer_values& one = all[answer];
        one.log_probs = read(log_probs, first, tokens);
        const std::vector<float> by_reference = reference.empty() ? reference : read(reference, first, tokens);
        const double reward = completions()[answer++].reward;
        const bool is_behind = one.values.size() > tokens;
        std::vector<double> rewards = token_rewards(is_behind ? 0.0 : reward, one.log_probs, by_reference, config_.kl_coef);
        if (is_behind) rewards.push_back(reward);
        token_advantages found = generalized_advantages(rewards, one.values, config_.gamma, config_.lambda);
        for (std::size_t i = 0; i < by_reference.size(); ++i) kl += static_cast<double>(one.log_probs[i]) - static_cast<double>(by_reference[i]);
        one.returns.assign(found.returns.begin(), found.returns.end());
        one.advantages = std::move(found.advantages);
        one.advantages.resize(tokens);
        advantages.insert(advantages.end(), one.advantages.begin(), one.advantages.end());
      });
    }
  }
  if (!config_.whiten_advantages) return kl;
  whiten(
      std::span<double>(advantages), [&](std::span<double> sums) { answers_.parallel().data().all_reduce(sums, reduction::sum); },
      config_.whitening_keeps_mean);
  std::size_t next = 0;
  for (answer_values& one : all)
    for (double& advantage : one.advantages) advantage = advantages[next++];
  return kl;
}

template <class Model, class ValueModel>
ppo_rollouts_done ppo_rollouts<Model, ValueModel>::statistics(double kl) {
  std::array<double, 5> sums{0, kl, 0, 0, 0};
  for (const completion& one : completions()) {
    sums[0] += one.reward;
    sums[2] += static_cast<double>(one.answer.size() + (one.stop >= 0 ? 1 : 0));
    sums[3] += one.stop >= 0 ? 0 : 1;
    sums[4] += 1;
  }
  answers_.parallel().data().all_reduce(std::span<double>(sums), reduction::sum);
  return {.reward = sums[0] / sums[4], .kl = sums[1] / sums[4], .completion_length = sums[2] / sums[4], .clipped_ratio = sums[3] / sums[4]};
}

}  // namespace xtrain
