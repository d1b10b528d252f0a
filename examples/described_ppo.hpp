// The run of a description with the objective ppo: a policy that answers prompts, its reference, a reward model, and a value model that is also trained.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/data/json_records.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/text.hpp>
#include <xtrain/train/reference_model.hpp>
#include <xtrain/train/reward_scorer.hpp>

#include "command_line.hpp"
#include "described_files.hpp"
#include "described_settings.hpp"
#include "log_styles_torchtune.hpp"
#include "training_run.hpp"

namespace described_ppo {

using command_line::usage_error;

/// Prompts of JSON records, each cut after `longest` tokens (0: not cut), as torchtune's text_completion_dataset without an end-of-text token.
[[nodiscard]] inline std::vector<std::vector<xtrain::token>> prompts_of(const std::vector<xtrain::data_description>& data, const xtrain::tokenizer& tokenizer,
                                                                        std::size_t longest) {
  std::vector<std::vector<xtrain::token>> prompts;
  for (const xtrain::data_description& one : data)
    for (const std::string& path : one.files)
      command_line::for_flag("data", path, [&] {
        xtrain::detail::for_each_record(xtrain::mapped_file(path), [&](const xtrain::json& record, std::size_t line) {
          std::vector<xtrain::token> tokens = tokenizer.beginning();
          const auto text = tokenizer.encode_as_text(xtrain::detail::text_field(record, one.text_field, path, line));
          tokens.insert(tokens.end(), text.begin(), text.end());
          if (longest > 0 && tokens.size() > longest) tokens.resize(longest);
          xtrain::require<xtrain::data_error>(!tokens.empty(), "line ", line, ": a prompt must have a token; '", one.text_field, "' is empty");
          prompts.push_back(std::move(tokens));
        });
      });
  return prompts;
}

/// The reward model's scores of answers, or the penalty in place of a score.
[[nodiscard]] inline std::vector<double> rewards_of(std::span<const xtrain::completion> answers, std::vector<double> scores,
                                                    const xtrain::rollouts_description& how) {
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const std::size_t tokens = answers[i].answer.size() + (answers[i].stop >= 0 ? 1 : 0);
    // as torchtune: an answer of the maximum length has no end either
    const bool is_longest = answers[i].stop < 0 || tokens >= how.max_completion_length, is_short = tokens < how.min_completion_length + 1;
    if ((how.penalize_longest && is_longest) || is_short) scores[i] = how.penalty;
  }
  return scores;
}

/// The lines of torchtune's DiskLogger for its recipe of PPO.
class log_lines {
 public:
  explicit log_lines(const std::string& path) : file_(path) {}

  ///   step   optimizer steps so far
  void write(std::size_t step, const xtrain::ppo_rollouts_done& done, std::span<const xtrain::completion> answers, const xtrain::rollouts_description& how,
             double seconds) const {
    if (file_.get() == nullptr) return;
    const auto mean = [](const std::vector<xtrain::step_done>& steps, auto&& value) {
      double sum = 0;
      for (const xtrain::step_done& one : steps) sum += value(one);
      return sum / static_cast<double>(steps.size());
    };
    const auto loss = [](const xtrain::step_done& one) { return one.loss; };
    const double policy = mean(done.policy_steps, loss), value = mean(done.value_steps, loss), kl_reward = -how.kl_coef * done.kl;
    const auto ended = std::count_if(answers.begin(), answers.end(), [&](const xtrain::completion& one) {
      return one.stop >= 0 && one.answer.size() + 1 < how.max_completion_length;
    });
    std::size_t prompt_tokens = 0;
    for (const xtrain::completion& one : answers) prompt_tokens += one.prompt.size();
    std::fprintf(file_.get(),
                 "Step %zu | scores:%.16g num_stop_tokens:%td rlhf_reward:%.16g kl:%.16g kl_reward:%.16g loss:%.16g policy_loss:%.16g value_loss:%.16g "
                 "clipfrac:%.16g response_lengths:%.16g tokens_per_second_per_gpu:%.16g \n",
                 step, done.reward, ended, done.reward + kl_reward, done.kl, kl_reward, policy + how.value_coefficient * value, policy, value,
                 mean(done.policy_steps, [](const xtrain::step_done& one) { return one.statistics[0] + one.statistics[1]; }), done.completion_length - 1.0,
                 static_cast<double>(prompt_tokens) / seconds);
    std::fflush(file_.get());
  }

 private:
  command_line::torchtune_log_file file_;
};

/// The sizes of a folder's model, which must equal those in the description.
///   require_agreement(named, config, all, folder)  refuses a folder with other sizes
template <class Model>
[[nodiscard]] typename Model::config_type sizes_in(const std::string& folder, const xtrain::json& named, const std::string& family_name,
                                                   const auto& require_agreement) {
  const auto config = xtrain::read_config(folder);
  xtrain::require<usage_error>(family_name.empty() || config.text_or("", {"model_type"}) == family_name, "must hold a model of the family ", family_name,
                               "; its model_type is ", config.text_or("", {"model_type"}));
  const auto& family = Model::family_of(config);
  auto sizes = xtrain::sizes_of(config, family), own = sizes;
  xtrain::json_settings all;
  family.complete(own);
  xtrain::detail::complete_decoder(own, family.name);  // num_key_value_heads and head_dim that the file leaves out
  family.write(own, all);
  require_agreement(named, config, all, folder);
  // ratios of probabilities need equal functions
  for (const double dropout : {sizes.attention_dropout, sizes.residual_dropout, sizes.embedding_dropout})
    xtrain::require<usage_error>(dropout == 0.0, "must be a model without dropout, for ratios of probabilities; its config.json has ", dropout);
  return sizes;
}

/// The run, on one rank.
///   require_agreement   see sizes_in
///   returns             the exit status
template <class Model, class ValueModel>
int train(const xtrain::run_description& run, const typename Model::context_type& on, const typename Model::recipe::parallel::config&, bool only_plan,
          command_line::chat_flags& chat, command_line::interruption& interrupt, const auto& require_agreement) {
  using policy = xtrain::shared_model<Model>;
  using critic = xtrain::shared_model<ValueModel>;
  using optimizer = typename Model::recipe::optimizer;
  const xtrain::rollouts_description& how = run.rollouts;
  const std::string tokenizer_from = run.tokenizer.path.empty() ? run.model.folder : run.tokenizer.path;
  const auto tokenizer = command_line::tokenizer_of("tokenizer.path", tokenizer_from);
  command_line::warn_of_tokenizer(tokenizer);
  const auto sizes = command_line::for_flag("model", run.model.folder, [&] {
    return sizes_in<Model>(run.model.folder, run.model.config, run.model.family, require_agreement);
  });
  const std::string reference_folder = run.objective.second_model.empty() ? run.model.folder : run.objective.second_model;
  const auto reference_sizes = command_line::for_flag("objective.second_model", reference_folder, [&] {
    auto read = sizes_in<Model>(reference_folder, run.model.config, run.model.family, require_agreement);
    xtrain::require<usage_error>(read.vocab_size == sizes.vocab_size, "must have the vocabulary of the policy, ", sizes.vocab_size, " tokens; it has ",
                                 read.vocab_size);
    return read;
  });
  const auto score_sizes = [&](const char* member, const std::string& folder) {
    return command_line::for_flag(member, folder, [&] {
      auto read = sizes_in<ValueModel>(folder, how.score_config, {}, require_agreement);
      xtrain::require<usage_error>(read.vocab_size >= sizes.vocab_size, "must have the tokens of the policy, ", sizes.vocab_size, "; it has ", read.vocab_size);
      xtrain::require<usage_error>(xtrain::open_weights(folder)->find("score.weight") != nullptr,
                                   "must hold a model with a score head, 'score.weight'; there is none");
      return read;
    });
  };
  const auto reward_sizes = score_sizes("rollouts.reward_model", how.reward_model), value_sizes = score_sizes("rollouts.value_model", how.value_model);

  // prompts: cut to one token less than the tokenizer's length, as torchtune does
  xtrain::require<usage_error>(run.tokenizer.max_length != 1, "tokenizer.max_length: must be at least 2; given 1");
  const auto prompts = prompts_of(run.data, tokenizer, run.tokenizer.max_length > 0 ? run.tokenizer.max_length - 1 : 0);
  xtrain::require<usage_error>(prompts.size() >= how.batch_size, "data: must have the prompts of a step, ", how.batch_size, "; there are ", prompts.size());
  std::size_t longest = 0, limit = sizes.max_position_embeddings;
  for (const auto& one : prompts) longest = std::max(longest, one.size());
  for (const auto* one : {&reference_sizes, &reward_sizes, &value_sizes}) limit = std::min<std::size_t>(limit, one->max_position_embeddings);
  xtrain::require<usage_error>(longest + how.max_completion_length <= limit, "data: a prompt and its answer must have at most ", limit,
                               " tokens, the models' max_position_embeddings; the longest prompt has ", longest, ", and answers up to ",
                               how.max_completion_length);
  for (const std::size_t stop : how.stop)
    xtrain::require<usage_error>(stop < sizes.vocab_size, "rollouts.stop: must be tokens of the policy, below ", sizes.vocab_size, "; given ", stop);

  auto of_policy = run;
  of_policy.seq_length = std::min(limit, (longest + how.max_completion_length + 7) / 8 * 8);
  auto of_value = of_policy;
  of_value.objective.settings = {{"clip_range", how.value_clip_range}, {"coefficient", how.value_coefficient}};
  const auto policy_settings = command_line::described_config<optimizer, xtrain::ppo>(of_policy);
  const auto value_settings = command_line::described_config<optimizer, xtrain::ppo_value>(of_value);
  const std::size_t together = how.generation_batch_size > 0 ? how.generation_batch_size : run.micro_batch_size;
  const double temperature = policy_settings.objective.temperature;
  const xtrain::forward_only_config reference_batches{
      .micro_batch_size = run.micro_batch_size, .seq_length = of_policy.seq_length, .temperature = temperature};
  const xtrain::forward_only_config reward_batches{.micro_batch_size = together, .seq_length = of_policy.seq_length};

  std::size_t planned = 0;
  command_line::for_plan([&] {
    auto plan = xtrain::plan<xtrain::trainer<policy>>(sizes, {.seed = run.seed}, policy_settings, on.properties());
    plan.set_beside("value model", xtrain::plan<xtrain::trainer<critic>>(value_sizes, {.seed = run.seed}, value_settings, on.properties()));
    plan.set_beside("reference model", xtrain::plan<xtrain::reference_model<policy>>(reference_sizes, {}, reference_batches, on.properties()));
    plan.set_beside("reward model", xtrain::plan<xtrain::reward_scorer<critic>>(reward_sizes, {}, reward_batches, on.properties()));
    auto dry = xtrain::make_dry_model<policy>(sizes, {}, on.properties());
    plan.set_beside("generator", xtrain::generator(dry, together, of_policy.seq_length).plan());
    planned = plan.total();
    if (only_plan) std::printf("%s%s", xtrain::describe<typename Model::recipe>().c_str(), plan_text(plan).c_str());
    xtrain::require_fit(plan, on.memory_limit());
    if (!only_plan) xtrain::require_host_fit<typename Model::device>(plan);
  });
  if (only_plan) return 0;

  const auto locked = [](const char* member, const std::string& folder) {
    return command_line::for_flag(member, folder, [&] {
      xtrain::make_folder(folder);
      return xtrain::folder_lock(folder, "another run writes there");
    });
  };
  const auto policy_lock = locked("output.folder", run.output.folder), value_lock = locked("rollouts.value_output", how.value_output);
  const auto loaded = [&]<class Any>(const char* member, const std::string& folder, const typename Any::config_type& of, std::type_identity<Any>) {
    return command_line::for_flag(member, folder, [&] { return xtrain::load_as<Any>(folder, of, on, {.seed = run.seed}); });
  };
  Model model = loaded("model.folder", run.model.folder, sizes, std::type_identity<Model>{});
  Model reference = loaded("objective.second_model", reference_folder, reference_sizes, std::type_identity<Model>{});
  ValueModel value = loaded("rollouts.value_model", how.value_model, value_sizes, std::type_identity<ValueModel>{});
  ValueModel judge = loaded("rollouts.reward_model", how.reward_model, reward_sizes, std::type_identity<ValueModel>{});
  std::fprintf(stderr, "%s%s parameters of the policy, %s of the value model; %zu prompts\n", xtrain::describe<typename Model::recipe>().c_str(),
               xtrain::count_text(static_cast<double>(model.parameters().count())).c_str(),
               xtrain::count_text(static_cast<double>(value.parameters().count())).c_str(), prompts.size());

  xtrain::trainer policy_trainer(model, policy_settings);
  xtrain::trainer value_trainer(value, value_settings);
  xtrain::reference_model<policy> frozen(reference, reference_batches);
  xtrain::reward_scorer<critic> scorer(judge, reward_batches);
  std::vector<xtrain::token> stop;
  for (const std::size_t one : how.stop) stop.push_back(static_cast<xtrain::token>(one));
  xtrain::ppo_rollouts rollouts(policy_trainer, value_trainer,
                                {.max_completion_length = how.max_completion_length,
                                 .sampling = {.temperature = temperature, .top_k = how.top_k, .seed = run.seed},
                                 .stop = stop,
                                 .num_ppo_epochs = how.num_ppo_epochs,
                                 .kl_coef = how.kl_coef,
                                 .gamma = how.gamma,
                                 .lambda = how.lambda,
                                 .whitening_keeps_mean = true,
                                 .reward_behind_end = true,
                                 .shuffle = true,
                                 .generation_batch_size = together});
  rollouts.use_reference(frozen);
  const auto reward = [&](std::span<const xtrain::completion> answers) {
    std::vector<std::vector<xtrain::token>> texts;
    for (const xtrain::completion& one : answers) texts.push_back(one.tokens());
    return rewards_of(answers, scorer(texts), how);
  };

  const xtrain::output_description& output = run.output;
  const std::string tokenizer_files = tokenizer_from == "byte" ? "" : tokenizer_from;
  const auto save = [&](const std::string& behind) {
    const auto write = [&](auto& trainer, const char* member, const std::string& folder, const std::string& base, const std::string& tokenizer_of) {
      trainer.require_finite_weights();
      trainer.save(folder, xtrain::save_options{.tokenizer_from = tokenizer_of, .base_model = base});
      command_line::for_flag(member, folder, [&] { run.save(folder + "/run.json"); });
      std::fprintf(stderr, "saved to %s\n", folder.c_str());
      command_line::warn_of_other_weights(folder);
    };
    write(policy_trainer, "output.folder", output.folder + behind, run.model.folder, tokenizer_files);
    command_line::for_flag("output.folder", output.folder, [&] { chat.save(output.folder + behind); });
    const bool has_own = described_files::has_tokenizer(how.value_model);
    write(value_trainer, "rollouts.value_output", how.value_output + behind, how.value_model, has_own ? how.value_model : tokenizer_files);
  };
  const log_lines log(output.log_style == "torchtune" ? output.log_file : "");
  run.save(output.folder + "/run.json");
  const std::stop_token stopped = interrupt.begin_training();
  const std::size_t per_epoch = prompts.size() / how.batch_size;
  for (std::size_t done = 0; done < how.steps;) {
    const std::size_t epoch = done / per_epoch;
    const xtrain::shuffled_order order(prompts.size(), run.seed, static_cast<std::uint32_t>(epoch));
    for (std::size_t i = 0; i < per_epoch && done < how.steps; ++i) {
      std::vector<std::vector<xtrain::token>> some;
      for (std::size_t p = i * how.batch_size; p < (i + 1) * how.batch_size; ++p) some.push_back(prompts[run.shuffle ? order[p] : p]);
      const auto begin = std::chrono::steady_clock::now();
      const xtrain::ppo_rollouts_done step = rollouts.step(some, reward, run.schedule.learning_rate, run.schedule.learning_rate);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      ++done;
      if (done % std::max<std::size_t>(output.log_steps, 1) == 0) {
        log.write(policy_trainer.progress().step, step, rollouts.completions(), how, seconds);
        std::fprintf(stderr, "step %zu/%zu  reward %.4f  kl %.4f  policy loss %.4f  value loss %.4f  answers of %.1f tokens  %.1f s\n", done, how.steps,
                     step.reward, step.kl, step.policy_steps.back().loss, step.value_steps.back().loss, step.completion_length, seconds);
      }
      if (stopped.stop_requested() && done < how.steps) {
        std::fprintf(stderr, "stopped after step %zu of %zu; what was trained since models were saved last is lost\n", done, how.steps);
        return 128 + interrupt.signal();
      }
    }
    if (output.save_epochs) save(xtrain::concat("/epoch_", epoch));
  }
  if (output.log_style != "torchtune")
    std::fprintf(stderr, "peak memory: %s (planned: %s)\n", xtrain::bytes_text(on.memory().total_peak).c_str(), xtrain::bytes_text(planned).c_str());
  if (!output.save_epochs) save("");
  return 0;
}

}  // namespace described_ppo
