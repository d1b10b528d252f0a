// A reward model: a score for whole sequences, learned from pairs of a chosen and a rejected answer.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/score_head.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/objective/sequence_objective.hpp>
#include <xtrain/ops/preference.hpp>
#include <xtrain/ops/step_scalars.hpp>

namespace xtrain {

/// Decoders of a recipe with this objective have a score head, 'score.weight', in place of logits, as Hugging Face's models for sequence classification with
/// one label. Sequences 2i (chosen) and 2i + 1 (rejected) of a micro-batch are a pair with scores x and y. Loss of a pair:
/// −log σ(x − y − margin) + center_rewards_coefficient · (x + y)²; loss of a step: mean over pairs.
///                                                        [Bradley and Terry 1952; Ouyang et al. 2022, eq. 1; Eisenstein et al. 2023; trl's RewardTrainer]
/// A sequence's score is taken at its last token with a target; the target's value does not matter. A dataset's last token is only a target: to score an
/// end-of-text token as transformers does, samples have one more token (preference_options::scores_last_token).
///   departs from  trl, which also logs the mean reward of both kinds of answers, and has margins per pair
struct reward {
  static constexpr std::string_view name = "reward";
  static constexpr std::size_t group_size = 2;
  static constexpr std::array<std::string_view, 4> statistics{"rewards/chosen", "rewards/rejected", "margin", "accuracy"};
  using hooks = xtrain::hooks<hook::scores_sequences, hook::require_model, hook::upload>;

  struct config {
    double margin = 0.0;                      ///< desired difference of scores
    double center_rewards_coefficient = 0.0;  ///< pulls scores to a mean of 0; trl's documentation recommends 0.01

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "margin", .range = setting_range::non_negative, .help = "margin between scores"}, c.margin);
      visit({.name = "center_rewards_coefficient", .range = setting_range::non_negative, .help = "pulls scores to a mean of 0"}, c.center_rewards_coefficient);
    }
  };

  [[nodiscard]] static double count_losses(const batch_view& batch) { return count_groups(batch, group_size); }
  /// throws data_error when sequences are not pairs, or only one of a pair has targets
  static void require_batch(const config& settings, const batch_view& batch) {
    require_config(settings);
    require_pairs(name, "chosen and rejected in turn", batch);
    require_targets_of_both(name, batch);
    require<data_error>(batch.reference_log_probs.empty(), "reward: there is no reference model; a batch must not have its log-probabilities");
  }
  static void require_config(const config& c) { require_ranges("reward", c); }
  /// throws config_error unless the score head is trained
  template <class Model>
  static void require_model(const Model& model) {
    const auto* entry = model.parameters().find("score.weight");
    require<config_error>(entry != nullptr && entry->spec.trainable,
                          "reward: the score head must be trained; the adapter freezes 'score.weight'. Add 'score' to its modules_to_save, as PEFT does");
  }
  [[nodiscard]] static reference_use reference(const config&) { return reference_use::none; }

  /// last_b written: for each sequence, the index in the batch of its last token with a target; -1 without targets
  static void last_tokens(const batch_view& batch, std::span<token> last_b) {
    for (std::size_t i = 0; i < batch.b; ++i) {
      last_b[i] = -1;
      for (std::size_t j = batch.t; j-- > 0 && last_b[i] < 0;)
        if (batch.targets[i * batch.t + j] >= 0) last_b[i] = static_cast<token>(i * batch.t + j);
    }
  }

  template <class Recipe>
  class state final : public pass_objective<Recipe> {
   public:
    using device = typename Recipe::device;
    using memory = typename device::memory;

    template <class Context>
    state(const config& settings, const Context& on, const objective_sizes& sizes)
        : settings_(settings), is_dry_run_(is_dry_run(on)), sequences_(sizes.sequences), micro_batches_(sizes.micro_batches),
          last_(on, sizes.micro_batches * sizes.sequences * sizeof(token), memory_role::batch),
          staged_last_(on, is_dry_run(on) ? 0 : 2 * sizes.micro_batches * sizes.sequences * sizeof(token)) {
      require_config(settings);
      require<config_error>(sizes.sequences % 2 == 0, "reward: micro_batch_size must be even, for pairs of sequences; given ", sizes.sequences);
    }

    void prepare(pass<Recipe>& p, std::size_t micro_batch) {
      p.internal.objective = this;
      p.internal.micro_batch = micro_batch;
    }
    template <class Stream, class Data>
    void upload(Stream& stream, const Data& data) {
      const batch_view& batch = data.batch;
      const std::size_t micro_batch = data.micro_batch;
      if (is_dry_run_) return;
      const auto staged = staged_last_.template as<token>().subspan(staged_++ % (2 * micro_batches_) * sequences_, batch.b);
      last_tokens(batch, staged);
      copy_to_device(stream, last_.template as<token>().subspan(micro_batch * sequences_, batch.b), staged);
    }

    void compute(pass<Recipe>& p, const head_pass<Recipe>& head, typename head_pass<Recipe>::sums loss_n) override {
      const auto saved = p.trains() ? head.save_input_gradient(p) : matrix_view<typename pass<Recipe>::compute, memory>{};
      const auto scope = p.scope();
      const std::size_t b = p.batch.b, pairs = b / 2;
      const auto values = [&](std::size_t n) { return vector_view<double, memory>{p.workspace.template take<double>(n), {n}}; };
      const vector_view<const token, memory> last_b{last_.template as<token>().subspan(p.internal.micro_batch * sequences_, b), {b}};
      const auto score_b = values(b), count_b = values(b), dscore_b = values(b), loss_p = values(pairs);
      const matrix_view<double, memory> statistics_4p{p.workspace.template take<double>(4 * pairs), {4, pairs}};
      const auto x_bc = head.hidden_states(p, last_b);
      head.scores(p, x_bc, last_b, score_b, count_b);
      ops::preference_loss<device>(p, {.beta = 1.0, .margin = settings_.margin, .center = settings_.center_rewards_coefficient}, score_b, count_b, {},
                                   loss_p, dscore_b, statistics_4p);
      if (p.trains()) head.gradient(p, x_bc, last_b, dscore_b, saved);
      ops::sequence_losses(p, loss_p, b, loss_n);
      for (std::size_t i = 0; !p.internal.statistics.empty() && i < reward::statistics.size(); ++i)
        ops::sum(p, statistics_4p.rows(i, 1).span(), p.internal.statistics.subspan(i, 1));
    }

   private:
    config settings_;
    bool is_dry_run_;
    std::size_t sequences_, micro_batches_, staged_ = 0;
    buffer<device> last_;  // by micro-batch
    pinned_memory<device> staged_last_;
  };
};

static_assert(objective<reward>);

}  // namespace xtrain
