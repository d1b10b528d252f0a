// Group relative policy optimization.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/kind_names.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include <xtrain/objective/answers_batch.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/objective/step_values.hpp>
#include <xtrain/ops/grpo.hpp>
#include <xtrain/ops/preference.hpp>
#include <xtrain/ops/step_scalars.hpp>

namespace xtrain {

using kernel::grpo_kind;

template <>
struct kind_names<kernel::grpo_kind> {
  static constexpr named_kinds<kernel::grpo_kind, 3> all{
      {{"grpo", kernel::grpo_kind::grpo}, {"dapo", kernel::grpo_kind::dapo}, {"dr_grpo", kernel::grpo_kind::dr_grpo}}};
};

/// The clipped policy gradient of answers with advantages, plus beta times their divergence from a reference model.
///                                                                                         [Shao et al. 2024, "DeepSeekMath", eq. 3]
/// One answer per sequence, whose tokens are its targets, with its advantage; formulas: kernel::grpo_loss. `rollouts` (rl/) makes such batches. The head
/// runs twice: for log-probabilities, and for gradients.
struct grpo {
  static constexpr std::string_view name = "grpo";
  static constexpr std::size_t group_size = 1;  // groups are compared before batches are made
  static constexpr bool balances_experts = false;
  using hooks = xtrain::hooks<hook::balances_experts, hook::upload>;
  static constexpr std::array<std::string_view, 3> statistics{"kl", "clip_ratio/low_mean", "clip_ratio/high_mean"};

  struct config {
    grpo_kind kind = grpo_kind::dapo;       ///< mean over tokens or sequences; trl's bnpo is dapo's mean over tokens, per micro-batch
    double beta = 0.0;                      ///< weight of the divergence; if positive, batches need reference_token_log_probs
    double epsilon_low = 0.2;               ///< the ratio of probabilities is clipped to [1 − epsilon_low, 1 + epsilon_high]
    double epsilon_high = 0.2;
    bool sequence_ratio = false;            ///< one ratio per sequence (GSPO): trl's importance_sampling_level 'sequence'
    std::size_t max_completion_length = 0;  ///< dr_grpo: divisor of a sequence's sum over tokens

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "kind", .full_name = "loss_type", .help = "which loss"}, c.kind);
      visit({.name = "beta", .range = setting_range::non_negative, .help = "weight of the divergence from the reference model"}, c.beta);
      visit({.name = "epsilon_low", .range = setting_range::positive, .help = "how far below 1 ratios of probabilities count"}, c.epsilon_low);
      visit({.name = "epsilon_high", .range = setting_range::positive, .help = "how far above 1 ratios of probabilities count"}, c.epsilon_high);
      visit({.name = "sequence_ratio", .help = "one ratio per sequence (GSPO)"}, c.sequence_ratio);
      visit({.name = "max_completion_length", .unit = "tokens", .help = "of dr_grpo: what the loss of a sequence is divided by"}, c.max_completion_length);
    }
  };

  /// Targets for dapo, otherwise sequences with a target.
  [[nodiscard]] static double count_losses(const config& settings, const batch_view& batch) {
    if (settings.kind == grpo_kind::dapo) return static_cast<double>(std::count_if(batch.targets.begin(), batch.targets.end(), is_target));
    double sequences = 0;
    for (std::size_t i = 0; i < batch.b && !batch.targets.empty(); ++i) {
      const auto targets = batch.targets.subspan(i * batch.t, batch.t);
      sequences += std::any_of(targets.begin(), targets.end(), is_target) ? 1 : 0;
    }
    return sequences;
  }
  /// throws config_error for a setting out of range; data_error when a batch lacks what the settings need
  static void require_batch(const config& settings, const batch_view& batch);
  static void require_config(const config& c) {
    require_ranges("grpo", c);
    require<config_error>((c.max_completion_length > 0) == (c.kind == grpo_kind::dr_grpo),
                          "grpo: max_completion_length must be given for the kind dr_grpo, and for no other; given ", c.max_completion_length);
  }
  /// Batches contain its log-probabilities.
  [[nodiscard]] static reference_use reference(const config&) { return reference_use::none; }

  template <class Recipe>
  class state final : public pass_objective<Recipe> {
   public:
    using device = typename Recipe::device;
    using memory = typename device::memory;
    using accumulate = accumulate_t<typename pass<Recipe>::compute>;

    template <class Context>
    state(const config& settings, const Context& on, const objective_sizes& sizes)
        : settings_(settings), num_tokens_(sizes.num_tokens), sequences_(sizes.sequences), has_old_(sizes.micro_batches),
          advantages_(on, sizes.micro_batches * sizes.sequences, is_dry_run(on)), old_(on, sizes.micro_batches * sizes.num_tokens, is_dry_run(on)),
          reference_(on, settings.beta > 0.0 ? sizes.micro_batches * sizes.num_tokens : 0, is_dry_run(on)) {
      require_config(settings);
      require<config_error>(!has_context_parallel<Recipe>, "grpo: must not be used with context parallelism; choose another strategy");
    }
    void prepare(pass<Recipe>& p, std::size_t micro_batch) {
      p.internal.objective = this;
      p.internal.micro_batch = micro_batch;
    }
    template <class Stream, class Data>
    void upload(Stream& stream, const Data& data) {
      const batch_view& batch = data.batch;
      const std::size_t micro_batch = data.micro_batch;
      if (batch.advantages.empty()) return;
      advantages_.upload(stream, batch.advantages, micro_batch * sequences_);
      has_old_[micro_batch] = !batch.old_log_probs.empty();
      if (has_old_[micro_batch]) old_.upload(stream, batch.old_log_probs, micro_batch * num_tokens_);
      if (settings_.beta > 0.0) reference_.upload(stream, batch.reference_token_log_probs, micro_batch * num_tokens_);
    }

    void compute(pass<Recipe>& p, const head_pass<Recipe>& head, typename head_pass<Recipe>::sums loss_n) override {
      using number = vector_view<const accumulate, memory>;
      const auto saved = p.trains() ? head.save_input_gradient(p) : matrix_view<typename pass<Recipe>::compute, memory>{};
      const auto scope = p.scope();
      const std::size_t b = p.batch.b, n = loss_n.shape(0), slot = p.internal.micro_batch;
      const vector_view<double, memory> loss_b{p.workspace.template take<double>(b), {b}};
      const matrix_view<double, memory> statistics_3b{p.workspace.template take<double>(3 * b), {3, b}};
      vector_view<accumulate, memory> weight_n{};
      if (p.trains()) weight_n = {p.workspace.template take<accumulate>(n), {n}};
      head.cross_entropy(p, loss_n);
      ops::grpo_loss(p, of_kernel(), loss_n, p.batch.targets_n, head.vocab_size(), advantages_.view(slot * sequences_, b),
                     has_old_[slot] ? old_.view(slot * num_tokens_, n) : number{},
                     settings_.beta > 0.0 ? reference_.view(slot * num_tokens_, n) : number{}, loss_b, statistics_3b, weight_n);
      if (p.trains()) head.gradient(p, weight_n, loss_n, saved);
      ops::sequence_losses(p, loss_b, b, loss_n);
      for (std::size_t i = 0; !p.internal.statistics.empty() && i < grpo::statistics.size(); ++i)
        ops::sum(p, statistics_3b.rows(i, 1).span(), p.internal.statistics.subspan(i, 1));
    }

   private:
    [[nodiscard]] ops::grpo_settings of_kernel() const {
      return {.kind = settings_.kind,
              .sequence_ratio = settings_.sequence_ratio,
              .beta = settings_.beta,
              .epsilon_low = settings_.epsilon_low,
              .epsilon_high = settings_.epsilon_high,
              .max_completion_length = static_cast<double>(std::max<std::size_t>(settings_.max_completion_length, 1))};
    }

    config settings_;
    std::size_t num_tokens_, sequences_;
    std::vector<bool> has_old_;  // by micro-batch
    detail::step_values<device, double> advantages_;
    detail::step_values<device, accumulate> old_, reference_;
  };

 private:
  [[nodiscard]] static bool is_target(token t) { return t >= 0; }
};

inline void grpo::require_batch(const config& settings, const batch_view& batch) {
  require_config(settings);
  detail::require_answers(name, batch);
  require<data_error>(batch.advantages.size() == batch.b, "grpo: a batch must have an advantage for each of its ", batch.b, " sequences; given ",
                      batch.advantages.size(), ". Advantages are of generated answers (rollouts), a dataset has none");
  for (std::size_t i = 0; i < batch.b; ++i)
    require<data_error>(std::isfinite(batch.advantages[i]), "grpo: advantages must be finite; sequence ", i, " has ", batch.advantages[i]);
  require<data_error>(settings.beta > 0.0 || batch.reference_token_log_probs.empty(), "grpo: beta must be positive to use reference log-probabilities");
  if (!batch.old_log_probs.empty()) detail::require_token_values(name, "old log-probabilities", "rollouts", batch, batch.old_log_probs);
  if (settings.beta > 0.0)
    detail::require_token_values(name, "reference log-probabilities (beta is positive)", "rollouts", batch, batch.reference_token_log_probs);
}

static_assert(objective<grpo>);

}  // namespace xtrain
