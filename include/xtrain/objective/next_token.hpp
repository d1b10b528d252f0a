// Cross-entropy of the next token: pre-training and supervised fine-tuning.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/setting.hpp>
#include <xtrain/core/setting_check.hpp>
#include <xtrain/objective/concepts.hpp>

namespace xtrain {

/// Mean of −log p(target) over all targets of a step; with weights per token Σ weight · loss / Σ weight.
struct next_token {
  static constexpr std::string_view name = "next_token";
  static constexpr std::size_t group_size = 1;
  static constexpr std::array<std::string_view, 0> statistics{};
  using hooks = xtrain::hooks<hook::can_be_captured, hook::is_cross_entropy>;

  struct config {
    double label_smoothing = 0.0;  ///< ε: (1 − ε) · loss + ε · mean over the vocabulary of −log p   [Szegedy et al. 2016, section 7]
    double z_loss = 0.0;           ///< added: z_loss · (log of the softmax's denominator)²   [Chowdhery et al. 2022, section 5]

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "label_smoothing", .range = setting_range::share_below_one, .help = "label smoothing"}, c.label_smoothing);
      visit({.name = "z_loss", .range = setting_range::non_negative, .help = "weight of the z-loss"}, c.z_loss);
    }
  };

  [[nodiscard]] static double count_losses(const batch_view& batch) {
    if (batch.token_weights.empty()) return static_cast<double>(batch.target_count);
    double sum = 0;
    for (std::size_t i = 0; i < batch.targets.size(); ++i)
      if (batch.targets[i] >= 0) sum += static_cast<double>(batch.token_weights[i]);
    return sum;
  }
  /// throws config_error for a setting out of range, data_error for non-finite, negative or too few weights, or a wrong target_count
  static void require_batch(const config& settings, const batch_view& batch) {
    require_config(settings);
    require_weights(batch);
  }
  static void require_weights(const batch_view& batch) {
    if (batch.token_weights.empty()) {  // target_count is the mean's denominator, in a program's batch too
      const auto targets = static_cast<std::size_t>(std::count_if(batch.targets.begin(), batch.targets.end(), [](token t) { return t >= 0; }));
      return require<data_error>(targets == batch.target_count, "next_token: target_count must be how many targets are not negative, ", targets,
                                 "; given ", batch.target_count);
    }
    require<data_error>(batch.token_weights.size() == batch.b * batch.t && batch.targets.size() == batch.b * batch.t,
                        "next_token: weights must be given for every token, or for none; given ", batch.token_weights.size(), " for ", batch.b * batch.t);
    for (std::size_t i = 0; i < batch.token_weights.size(); ++i)
      require<data_error>(std::isfinite(batch.token_weights[i]) && batch.token_weights[i] >= 0.0F,
                          "next_token: weights of tokens must be finite and not negative; token ", i, " has ", batch.token_weights[i]);
  }
  [[nodiscard]] static reference_use reference(const config&) { return reference_use::none; }

  template <class Recipe>
  class state {
   public:
    /// prepare() installs no objective: the head computes cross-entropy.
    static constexpr bool is_cross_entropy = true;

    template <class Context>
    state(const config& settings, const Context&, const objective_sizes&) : settings_(settings) {
      require_config(settings);
    }
    void prepare(pass<Recipe>& p, std::size_t) {
      if (!p.trains()) return;  // evaluations use the plain loss
      p.internal.loss = {.label_smoothing = settings_.label_smoothing, .log_z_loss = settings_.z_loss};
    }

   private:
    config settings_;
  };

 private:
  static void require_config(const config& settings) { require_ranges("next_token", settings); }
};

static_assert(objective<next_token>);

}  // namespace xtrain
