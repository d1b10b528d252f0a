// Proximal policy optimization, the policy.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include <xtrain/objective/answers_batch.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/objective/step_values.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/grpo.hpp>
#include <xtrain/ops/preference.hpp>
#include <xtrain/ops/step_scalars.hpp>

namespace xtrain {

/// Loss of a token = −min(ratio · A, clip(ratio, 1 − epsilon_low, 1 + epsilon_high) · A), ratio = p(token) / p_old(token), A its advantage; loss of a step:
/// mean over tokens.                                                         [Schulman et al. 2017, eq. 7; trl, torchtune]
/// Uses grpo's kernel with sequences of one token. `ppo_rollouts` (rl/) makes the batches and trains the value model (ppo_value); its rewards include the
/// divergence from a reference model. The head runs twice: for log-probabilities, and for gradients.
struct ppo {
  static constexpr std::string_view name = "ppo";
  static constexpr std::size_t group_size = 1;
  static constexpr bool balances_experts = false;
  using hooks = xtrain::hooks<hook::balances_experts, hook::averages_tokens, hook::log_prob_temperature, hook::upload>;
  static constexpr std::array<std::string_view, 2> statistics{"clip_ratio/low_mean", "clip_ratio/high_mean"};

  struct config {
    double epsilon_low = 0.2;  ///< the ratio of probabilities is clipped to [1 − epsilon_low, 1 + epsilon_high]: trl's cliprange
    double epsilon_high = 0.2;
    double temperature = 1.0;  ///< divides logits: the sampling temperature, as in torchtune

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "epsilon_low", .range = setting_range::positive, .help = "how far below 1 ratios of probabilities count"}, c.epsilon_low);
      visit({.name = "epsilon_high", .range = setting_range::positive, .help = "how far above 1 ratios of probabilities count"}, c.epsilon_high);
      visit({.name = "temperature", .range = setting_range::positive, .help = "temperature that answers are sampled with"}, c.temperature);
    }
  };

  [[nodiscard]] static double count_losses(const batch_view& batch) {
    return static_cast<double>(std::count_if(batch.targets.begin(), batch.targets.end(), [](token t) { return t >= 0; }));
  }
  /// throws config_error for a setting out of range; data_error when a batch lacks what it needs
  static void require_batch(const config& settings, const batch_view& batch);
  static void require_config(const config& c) {
    require_ranges("ppo", c);
    require<config_error>(std::isfinite(c.temperature), "ppo: temperature must be positive; given ", c.temperature);
  }
  [[nodiscard]] static double log_prob_temperature(const config& c) { return c.temperature; }
  [[nodiscard]] static reference_use reference(const config&) { return reference_use::none; }

  template <class Recipe>
  class state final : public pass_objective<Recipe> {
   public:
    using device = typename Recipe::device;
    using memory = typename device::memory;
    using accumulate = accumulate_t<typename pass<Recipe>::compute>;

    template <class Context>
    state(const config& settings, const Context& on, const objective_sizes& sizes)
        : settings_(settings), num_tokens_(sizes.num_tokens), advantages_(on, sizes.micro_batches * sizes.num_tokens, is_dry_run(on)),
          old_(on, sizes.micro_batches * sizes.num_tokens, is_dry_run(on)) {
      require_config(settings);
      require<config_error>(!has_context_parallel<Recipe>, "ppo: must not be used with context parallelism; choose another strategy");
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
      advantages_.upload(stream, batch.advantages, micro_batch * num_tokens_);
      old_.upload(stream, batch.old_log_probs, micro_batch * num_tokens_);
    }

    void compute(pass<Recipe>& p, const head_pass<Recipe>& plain_head, typename head_pass<Recipe>::sums loss_n) override {
      const auto saved = p.trains() ? plain_head.save_input_gradient(p) : matrix_view<typename pass<Recipe>::compute, memory>{};
      const auto scope = p.scope();
      const head_pass<Recipe> head = plain_head.with_temperature(p, settings_.temperature);
      const std::size_t n = loss_n.shape(0), slot = p.internal.micro_batch * num_tokens_;
      const vector_view<double, memory> of_token_n{p.workspace.template take<double>(n), {n}};
      const matrix_view<double, memory> statistics_3n{p.workspace.template take<double>(3 * n), {3, n}};
      vector_view<accumulate, memory> weight_n{};
      if (p.trains()) weight_n = {p.workspace.template take<accumulate>(n), {n}};
      head.cross_entropy(p, loss_n);
      ops::grpo_loss(p, {.epsilon_low = settings_.epsilon_low, .epsilon_high = settings_.epsilon_high}, loss_n, p.batch.targets_n, head.vocab_size(),
                     advantages_.view(slot, n), old_.view(slot, n), vector_view<const accumulate, memory>{}, of_token_n, statistics_3n, weight_n);
      if (p.trains()) gradient(p, head, weight_n, loss_n, saved);
      ops::sequence_losses(p, of_token_n, n, loss_n);
      for (std::size_t i = 0; !p.internal.statistics.empty() && i < ppo::statistics.size(); ++i)
        ops::sum(p, statistics_3n.rows(1 + i, 1).span(), p.internal.statistics.subspan(i, 1));
    }

   private:
    void gradient(pass<Recipe>& p, const head_pass<Recipe>& head, vector_view<const accumulate, memory> weight_n, typename head_pass<Recipe>::sums loss_n,
                  matrix_view<typename pass<Recipe>::compute, memory> dx) const {
      if (settings_.temperature == 1.0) return head.gradient(p, weight_n, loss_n, dx);
      const auto scope = p.scope();
      const auto dscaled = p.temporary(dx.shape(0), dx.shape(1));
      head.gradient(p, weight_n, loss_n, dscaled);
      // forward: hidden states / temperature
      fill_zero(p.stream, dx.span());
      ops::add(p, matrix_view<const typename pass<Recipe>::compute, memory>(dscaled), dx, 1.0 / settings_.temperature);
    }

    config settings_;
    std::size_t num_tokens_;
    detail::step_values<device, double> advantages_;
    detail::step_values<device, accumulate> old_;
  };
};

inline void ppo::require_batch(const config& settings, const batch_view& batch) {
  require_config(settings);
  detail::require_answers(name, batch);
  detail::require_token_values(name, "advantages", "ppo_rollouts", batch, batch.advantages);
  detail::require_token_values(name, "old log-probabilities", "ppo_rollouts", batch, batch.old_log_probs);
  require<data_error>(batch.reference_token_log_probs.empty(),
                      "ppo: a batch must not have reference log-probabilities: the divergence from the reference is part of the rewards");
}

static_assert(objective<ppo>);

}  // namespace xtrain
