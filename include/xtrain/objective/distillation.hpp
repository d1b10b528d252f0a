#pragma once

#include <algorithm>
#include <array>
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
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/objective/next_token.hpp>
#include <xtrain/objective/teacher_source.hpp>
#include <xtrain/ops/distillation.hpp>

namespace xtrain {

using kernel::divergence_kind;

template <>
struct kind_names<kernel::divergence_kind> {
  static constexpr named_kinds<kernel::divergence_kind, 2> all{
      {{"forward", kernel::divergence_kind::forward}, {"reverse", kernel::divergence_kind::reverse}}};
};

/// (1 − ratio) · cross-entropy + ratio · temperature² · KL, the mean over targets. KL of the distributions at the temperature: forward, KL(teacher ‖ student),
/// or reverse, KL(student ‖ teacher).        [Hinton et al. 2015, section 2; Gu et al. 2024, eq. 1]
/// The teacher is a model (teacher_model), or its top-k log-probabilities per token in the batch: then KL is forward, over these k tokens.
/// torchtune omits the teacher's entropy and temperature²: gradients at temperature 1 are equal.
struct distillation {
  static constexpr std::string_view name = "distillation";
  static constexpr std::size_t group_size = 1;
  static constexpr std::array<std::string_view, 0> statistics{};
  using hooks = xtrain::hooks<hook::averages_tokens, hook::upload, hook::uses_teacher>;

  struct config {
    divergence_kind kind = divergence_kind::forward;
    double ratio = 0.5;        ///< weight of the divergence; the rest is cross-entropy with the labels
    double temperature = 1.0;  ///< of student and teacher
    bool renormalize = false;  ///< top-k: divide stored probabilities by their sum
    std::size_t top_k = 0;     ///< log-probabilities per token in the batches; 0: a model is the teacher

    template <class Self, class Visit>
    static constexpr void members(Self& c, Visit&& visit) {
      visit({.name = "kind", .full_name = "loss_type", .help = "which loss"}, c.kind);
      visit({.name = "ratio", .range = setting_range::share, .help = "ratio of the divergence from the teacher in the loss"}, c.ratio);
      visit({.name = "temperature", .range = setting_range::positive, .help = "temperature of student and teacher"}, c.temperature);
      visit({.name = "renormalize", .help = "divide the teacher's stored probabilities by their sum"}, c.renormalize);
      visit({.name = "top_k", .help = "log-probabilities per token in the batches; 0: a model is the teacher", .is_flag = false}, c.top_k);
    }
  };

  [[nodiscard]] static double count_losses(const batch_view& batch) { return next_token::count_losses(batch); }
  /// throws data_error when a batch lacks the teacher's log-probabilities, or has invalid tokens
  static void require_batch(const config& settings, const batch_view& batch) {
    next_token::require_weights(batch);
    const std::size_t k = settings.top_k, values = batch.b * batch.t * k;
    require<data_error>(k > 0 || (batch.teacher_tokens.empty() && batch.teacher_log_probs.empty()),
                        "distillation: top_k must be set to use the teacher's log-probabilities that a batch has; it is 0");
    require<data_error>(batch.teacher_tokens.size() == values && batch.teacher_log_probs.size() == values,
                        "distillation: a batch must have the teacher's top-", settings.top_k, " tokens and log-probabilities, ", values,
                        " of each; given ", batch.teacher_tokens.size(), " and ", batch.teacher_log_probs.size());
    std::vector<token> of_one(k);
    for (std::size_t row = 0; row * k < values; ++row) {
      std::copy_n(batch.teacher_tokens.begin() + static_cast<std::ptrdiff_t>(row * k), k, of_one.begin());
      std::sort(of_one.begin(), of_one.end());
      require<data_error>(of_one.front() >= 0, "distillation: the teacher's tokens must not be negative; token ", row, " has ", of_one.front());
      const auto twice = std::adjacent_find(of_one.begin(), of_one.end());
      require<data_error>(twice == of_one.end(), "distillation: the teacher's tokens must be different; token ", row, " has ",
                          twice == of_one.end() ? 0 : *twice, " twice");
    }
  }
  [[nodiscard]] static reference_use reference(const config& c) { return c.top_k == 0 ? reference_use::teacher_logits : reference_use::none; }

  template <class Recipe>
  class state final : public pass_objective<Recipe> {
   public:
    using device = typename Recipe::device;
    using memory = typename device::memory;
    using accumulate = accumulate_t<typename pass<Recipe>::compute>;
    using teacher = teacher_source<device, accumulate>;

    template <class Context>
    state(const config& settings, const Context& on, const objective_sizes& sizes)
        : settings_(settings), num_tokens_(sizes.num_tokens), values_(sizes.num_tokens * settings.top_k), micro_batches_(sizes.micro_batches),
          ids_(on, sizes.micro_batches * values_ * sizeof(token), memory_role::batch),
          log_probs_(on, sizes.micro_batches * values_ * sizeof(accumulate), memory_role::batch),
          staged_ids_(on, is_dry_run(on) ? 0 : 2 * sizes.micro_batches * values_ * sizeof(token)),
          staged_log_probs_(on, is_dry_run(on) ? 0 : 2 * sizes.micro_batches * values_ * sizeof(accumulate)) {
      require_ranges("distillation", settings);
      require<config_error>(settings.top_k == 0 || settings.kind == divergence_kind::forward,
                            "distillation: with stored log-probabilities (top_k) the divergence must be forward");
      if constexpr (has_context_parallel<Recipe>)
        require<config_error>(settings.top_k == 0, "distillation: stored log-probabilities (top_k) must not be used with context parallelism");
    }

    /// Queues the teacher's pass of a micro-batch, or the copy of its stored log-probabilities.
    template <class Stream, class Data>
    void upload(Stream& stream, const Data& data) {
      const batch_view& batch = data.batch;
      const std::size_t micro_batch = data.micro_batch;
      teacher_ = data.teacher;
      if (settings_.top_k == 0) {
        if (teacher_ != nullptr) teacher_->begin(stream, batch, micro_batch);
        return;
      }
      if (batch.teacher_tokens.empty()) return;
      const std::size_t n = batch.teacher_tokens.size(), slot = staged_++ % (2 * micro_batches_) * values_;
      const auto ids = staged_ids_.template as<token>().subspan(slot, n);
      const auto log_probs = staged_log_probs_.template as<accumulate>().subspan(slot, n);
      std::copy(batch.teacher_tokens.begin(), batch.teacher_tokens.end(), ids.begin());
      std::copy(batch.teacher_log_probs.begin(), batch.teacher_log_probs.end(), log_probs.begin());
      copy_to_device(stream, ids_.template as<token>().subspan(micro_batch * values_, n), ids);
      copy_to_device(stream, log_probs_.template as<accumulate>().subspan(micro_batch * values_, n), log_probs);
    }
    void prepare(pass<Recipe>& p, std::size_t micro_batch) {
      p.internal.objective = this;
      p.internal.micro_batch = micro_batch;
    }

    void compute(pass<Recipe>& p, const head_pass<Recipe>& head, typename head_pass<Recipe>::sums loss_n) override {
      const auto dx = p.trains() ? head.save_input_gradient(p) : matrix_view<typename pass<Recipe>::compute, memory>{};
      const double t = settings_.temperature;
      const ops::distillation_settings settings{
          .kind = settings_.kind, .temperature = t, .factor = settings_.ratio * t * t, .renormalize = settings_.renormalize};
      const std::size_t slot = p.internal.micro_batch;
      head.distil(
          p, settings, 1.0 - settings_.ratio,
          [&](std::size_t first, matrix_view<accumulate, memory> logits_nv) {
            // a dry run has no teacher
            if (teacher_ != nullptr) teacher_->logits(p, slot, first, logits_nv);
          },
          stored(slot), loss_n, dx);
    }

   private:
    [[nodiscard]] typename head_pass<Recipe>::stored_log_probs stored(std::size_t slot) const {
      if (settings_.top_k == 0) return {};
      const std::size_t k = settings_.top_k;
      return {.id_nk = {ids_.template as<token>().subspan(slot * values_, values_), {num_tokens_, k}},
              .log_prob_nk = {log_probs_.template as<accumulate>().subspan(slot * values_, values_), {num_tokens_, k}}};
    }

    config settings_;
    std::size_t num_tokens_, values_, micro_batches_, staged_ = 0;
    buffer<device> ids_, log_probs_;  // by micro-batch
    pinned_memory<device> staged_ids_, staged_log_probs_;
    teacher* teacher_ = nullptr;
  };
};

static_assert(objective<distillation>);

}  // namespace xtrain
