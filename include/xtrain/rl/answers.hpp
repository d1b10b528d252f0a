// Online reinforcement learning before a trainer's steps: answers to prompts, rewards, batches.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <numeric>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/lifetime.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/generate/generator.hpp>
#include <xtrain/layers/attention_mask.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/tensor_shard.hpp>
#include <xtrain/rl/completions.hpp>
#include <xtrain/train/checked_recipe.hpp>
#include <xtrain/train/trainer.hpp>

namespace xtrain::detail {

/// See rollouts_config.
struct answer_settings {
  std::size_t num_generations = 1, max_completion_length = 256;
  sampling_config sampling{};
  std::vector<token> stop{};
  std::size_t generation_batch_size = 0;
};

/// throws config_error for a pipeline with micro-batches of different sizes
template <class Trainer>
void require_equal_micro_batches(std::string_view who, const Trainer& of) {
  for (const std::size_t size : of.loader_settings().micro_batch_sizes)
    require<config_error>(size == of.settings().micro_batch_size, who, ": micro-batches must have equal sizes, of micro_batch_size (",
                          of.settings().micro_batch_size, "); one of micro_batch_sizes is ", size);
}

/// Answers of a trainer's model. Every data-parallel rank answers its prompts; ranks that share prompts have equal answers.
template <class Model>
class answer_source {
  using computation = model_computation<Model>;
  static_assert(!has_context_parallel<computation> && !has_expert_parallel<computation>,
                "xtrain rollouts: the recipe's 'parallel' must be single, data_parallel, zero<Stage>, tensor_parallel, sequence_parallel, a pipeline, or a "
                "combination of these, without context and expert parallelism; see rl/README.md");

 public:
  using generator_type = decltype(generator(std::declval<Model&>()));

  /// throws config_error for settings that contradict each other or the trainer's, memory_error
  answer_source(std::string_view who, trainer<Model>& of, const answer_settings& settings)
      : who_(who), trainer_(&of), trainer_life_(of), settings_(settings),
        own_prompts_(of.settings().micro_batch_size * of.settings().gradient_accumulation_steps / std::max<std::size_t>(settings.num_generations, 1)),
        generator_(of.model(), settings.generation_batch_size > 0 ? settings.generation_batch_size : of.settings().micro_batch_size,
                   of.settings().seq_length) {
    const std::size_t sequences = of.settings().micro_batch_size * of.settings().gradient_accumulation_steps;
    require<config_error>(settings.num_generations > 0 && sequences % settings.num_generations == 0, who_,
                          ": micro_batch_size x gradient_accumulation_steps must be a multiple of num_generations, so that a step has whole groups; "
                          "given ", sequences, " sequences and ", settings.num_generations, " generations");
    require<config_error>(settings.max_completion_length > 0, who_, ": max_completion_length must be positive; given ", settings.max_completion_length);
    require<config_error>(settings.sampling.temperature > 0.0, who_, ": temperature must be positive: greedy answers to a prompt are all equal; given ",
                          settings.sampling.temperature);
    require<config_error>(attention_mask_of(of.model()).kind == attention_mask::rule::causal, who_,
                          ": the model must be causal; one with a bidirectional prefix is not supported");
    require_equal_micro_batches(who_, of);
  }

  [[nodiscard]] auto& parallel() const { return trainer_->model().parallel(); }
  [[nodiscard]] std::size_t ranks() const { return parallel().data().size(); }
  [[nodiscard]] std::size_t rank() const { return parallel().data().rank(); }
  /// On all data-parallel ranks.
  [[nodiscard]] std::size_t prompts_per_step() const { return own_prompts_ * ranks(); }
  [[nodiscard]] const planned_memory& plan() const { return generator_.plan(); }
  /// This rank's, in order of prompts.
  [[nodiscard]] std::vector<completion>& completions() { return completions_; }
  [[nodiscard]] const std::vector<completion>& completions() const { return completions_; }

  /// throws config_error, data_error
  void require_prompts(std::span<const std::vector<token>> prompts) const {
    trainer_life_.require_there(who_, "its trainer");
    require<config_error>(!prompts.empty() && prompts.size() % prompts_per_step() == 0, who_, ": the number of prompts must be a multiple of ",
                          prompts_per_step(), ", the prompts of an optimizer step on ", ranks(), " data-parallel ranks; given ", prompts.size());
    const std::size_t longest = trainer_->settings().seq_length;
    for (std::size_t i = 0; i < prompts.size(); ++i)
      require<data_error>(prompts[i].size() < longest, who_, ": a prompt must be shorter than the sequence length of ", longest, " tokens; prompt ", i + 1,
                          " has ", prompts[i].size());
    trainer_->require_no_queued_steps(concat(who_, ": step()"));
  }

  void generate(std::span<const std::vector<token>> prompts) {
    const generate_config how{.max_new_tokens = settings_.max_completion_length, .sampling = settings_.sampling, .stop = settings_.stop};
    const auto number = static_cast<std::uint32_t>(trainer_->progress().updates + trainer_->progress().skipped);
    completions_.clear();
    const std::size_t at_once = gathers_weights() ? prompts_per_step() : own_prompts_;
    for (std::size_t first = 0; first < prompts.size(); first += at_once) {
      if (!gathers_weights() && !is_own(first)) continue;
      std::vector<completion> all = completions_of(generator_, prompts.subspan(first, at_once), settings_.num_generations, how, number, first);
      for (std::size_t i = 0; i < all.size(); ++i)
        if (is_own(first + i / settings_.num_generations)) completions_.push_back(std::move(all[i]));
    }
  }

  /// Rewards of completions(), equal on all ranks that share them.
  ///   check    called with this rank's rewards; may throw
  ///   throws   errors of the reward or check(); an error where another rank failed
  template <class Reward, class Check>
  [[nodiscard]] std::vector<double> rewards(Reward& reward, Check&& check) {
    std::vector<double> all;
    std::exception_ptr problem;
    try {
      all = rewards_of(reward, std::span<const completion>(completions_));
      check(std::span<const double>(all));
    } catch (...) {
      problem = std::current_exception();
    }
    if (auto& world = parallel().world(); world.size() > 1) {  // all ranks stop together
      std::array<double, 1> failed{problem ? 1.0 : 0.0};
      world.all_reduce(failed, reduction::largest);
      require<error>(problem || failed[0] == 0.0, who_, ": every rank must have rewards; those of another rank have failed. Nothing has been trained");
    }
    if (problem) std::rethrow_exception(problem);
    // ranks with the same answers use the same rewards
    if constexpr (has_tensor_parallel<computation>) {
      auto& tensor = parallel().tensor();
      if (tensor.rank() != 0) std::fill(all.begin(), all.end(), 0.0);
      tensor.all_reduce(std::span<double>(all), reduction::sum);
    }
    if constexpr (strategy_runs<Model>) {
      if (parallel().position() != 0) std::fill(all.begin(), all.end(), 0.0);
      parallel().add_up(all);
    }
    for (std::size_t i = 0; i < all.size(); ++i) completions_[i].reward = all[i];
    return all;
  }

  /// A value is predicted after the end token; as in torchtune, not for answers of one token or of maximum length.
  [[nodiscard]] bool has_value_behind(const completion& one) const {
    return one.stop >= 0 && !one.answer.empty() && one.answer.size() + 1 < settings_.max_completion_length &&
           one.prompt.size() + one.answer.size() < trainer_->settings().seq_length;
  }
  /// Per rank.
  [[nodiscard]] std::size_t answers_per_step() const { return trainer_->settings().micro_batch_size * trainer_->settings().gradient_accumulation_steps; }
  /// Micro-batches of an optimizer step, laid out as by a loader; targets are the answers' tokens.
  [[nodiscard]] std::vector<host_batch> batches_of(std::size_t step) const {
    std::vector<std::size_t> numbers(answers_per_step());
    std::iota(numbers.begin(), numbers.end(), step * numbers.size());
    return batches_of(std::span<const std::size_t>(numbers));
  }
  /// Micro-batches of the given answers.
  ///   values_behind   the end token is an input with itself as target where has_value_behind()
  [[nodiscard]] std::vector<host_batch> batches_of(std::span<const std::size_t> numbers, bool values_behind = false) const {
    const auto& settings = trainer_->settings();
    const std::size_t b = settings.micro_batch_size, sequences = answers_per_step();
    const std::size_t multiple = trainer_->loader_settings().pad_to_multiple_of;
    std::vector<host_batch> all;
    for (std::size_t first = 0; first < sequences; first += b) {
      const auto answer = [&](std::size_t s) -> const completion& { return completions_[numbers[first + s]]; };
      std::vector<std::vector<token>> tokens;
      std::size_t longest = 1;
      for (std::size_t s = 0; s < b; ++s) {
        tokens.push_back(answer(s).tokens());
        if (values_behind && has_value_behind(answer(s))) tokens.back().push_back(answer(s).stop);
        longest = std::max(longest, tokens.back().size() - 1);
      }
      host_batch batch;
      batch.b = b;
      batch.t = std::min(settings.seq_length, (longest + multiple - 1) / multiple * multiple);
      batch.tokens.assign(b * batch.t, trainer_->loader_settings().pad_token_id);
      batch.targets.assign(b * batch.t, -1);
      batch.first_sequence = rank() * sequences + first;
      for (std::size_t s = 0; s < b; ++s) {
        const std::size_t inputs = tokens[s].size() - 1;
        for (std::size_t i = 0; i < batch.t; ++i) {  // padding forms a sample
          batch.positions.push_back(static_cast<token>(i < inputs ? i : i - inputs));
          batch.starts.push_back(static_cast<token>(i < inputs ? 0 : inputs));
          if (i >= inputs) continue;
          batch.tokens[s * batch.t + i] = tokens[s][i];
          if (i + 1 < answer(s).prompt.size()) continue;
          batch.targets[s * batch.t + i] = tokens[s][i + 1];
          ++batch.target_count;
        }
        batch.token_count += inputs;
      }
      all.push_back(std::move(batch));
    }
    return all;
  }

 private:
  /// A forward pass needs all data-parallel ranks.
  [[nodiscard]] bool gathers_weights() const { return parallel().sharding().values; }
  /// This rank's part of the prompts of all optimizer steps.
  [[nodiscard]] bool is_own(std::size_t prompt) const { return prompt / own_prompts_ % ranks() == rank(); }

  std::string_view who_;
  trainer<Model>* trainer_;
  watched trainer_life_;
  answer_settings settings_;
  std::size_t own_prompts_;  // per optimizer step
  generator_type generator_;
  std::vector<completion> completions_{};
};

}  // namespace xtrain::detail
