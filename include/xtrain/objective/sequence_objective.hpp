#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/objective/sequence_log_probs.hpp>
#include <xtrain/ops/preference.hpp>
#include <xtrain/ops/step_scalars.hpp>

namespace xtrain {

/// Operands of a loss over the b sequences of a batch, in g groups.
template <class Memory>
struct sequence_losses {
  vector_view<double, Memory> logp_b{}, count_b{}, reference_b{};  // read; reference_b: empty without a reference model
  vector_view<const token, Memory> label_b{};                      // read; empty without labels
  vector_view<double, Memory> loss_g{}, dlogp_b{};                 // written; loss_g: one per group
  matrix_view<double, Memory> statistics_4g{};                     // written
};

/// Groups of sequences with a target.
[[nodiscard]] inline double count_groups(const batch_view& batch, std::size_t group_size) {
  double groups = 0;
  for (std::size_t i = 0; i + group_size <= batch.b; i += group_size) {
    const auto targets = batch.targets.subspan(i * batch.t, group_size * batch.t);
    groups += std::any_of(targets.begin(), targets.end(), [](token t) { return t >= 0; }) ? 1 : 0;
  }
  return groups;
}

/// Whether a sequence of the batch has a target.
[[nodiscard]] inline bool has_target(const batch_view& batch, std::size_t sequence) {
  const auto targets = batch.targets.subspan(sequence * batch.t, batch.t);
  return std::any_of(targets.begin(), targets.end(), [](token t) { return t >= 0; });
}

/// Checks a batch of pairs of sequences for the objective `who`.
///   what    what a pair is
///   throws  data_error
inline void require_pairs(std::string_view who, std::string_view what, const batch_view& batch) {
  require<data_error>(batch.b % 2 == 0, who, ": a micro-batch must have an even number of sequences, ", what, "; given ", batch.b);
  require<data_error>(batch.targets.size() == batch.b * batch.t, who, ": every token of a batch must have a label, or a negative one; given ",
                      batch.targets.size(), " labels for ", batch.b * batch.t, " tokens");
  require<data_error>(batch.token_weights.empty(), who, ": a batch must not have weights per token");
  require<data_error>(batch.reference_log_probs.empty() || batch.reference_log_probs.size() == batch.b,
                      who, ": reference log-probabilities must be given for every sequence, or for none; given ", batch.reference_log_probs.size(),
                      " for ", batch.b);
  for (std::size_t i = 0; i < batch.starts.size(); ++i)
    require<data_error>(batch.starts[i] == 0 || batch.targets[i] < 0, who, ": a sequence must hold one sample; sequence ", i / batch.t,
                        " holds a second one at token ", i % batch.t, ". Do not pack samples");
}

/// Means per target need targets: in both sequences of a pair, or in neither.
///   throws  data_error
inline void require_targets_of_both(std::string_view who, const batch_view& batch) {
  for (std::size_t i = 0; i + 1 < batch.b; i += 2)
    require<data_error>(has_target(batch, i) == has_target(batch, i + 1), who, ": both sequences of a pair must have targets; sequence ",
                        has_target(batch, i) ? i + 1 : i, " has none");
}

/// The state of an objective over sequences. The objective also has
///   losses(on, config, sequence_losses)   a loss per group and its derivatives by log-probabilities
///   require_config(config)                throws config_error for a setting out of range, on every rank, with or without a head
///   hooks                                 uses_reference if it may have a reference model, reads_labels if it reads batch.labels; upload with one of them
/// The head runs twice: for log-probabilities, and for gradients.
template <class Recipe, class Objective>
class sequence_objective final : public pass_objective<Recipe> {
 public:
  using device = typename Recipe::device;
  using memory = typename device::memory;
  using config = typename Objective::config;
  using accumulate = accumulate_t<typename pass<Recipe>::compute>;
  static_assert(!requires { Objective::has_reference; } && !requires { Objective::has_labels; },
                "xtrain recipe: 'has_reference' and 'has_labels' must be the tags 'uses_reference' and 'reads_labels' in the objective's hooks, not members; "
                "see objective/README.md");
  static constexpr bool has_labels = has_hook<Objective, hook::reads_labels>;

  template <class Context>
  sequence_objective(const config& settings, const Context& on, const objective_sizes& sizes)
      : settings_(settings), sequences_(sizes.sequences), micro_batches_(sizes.micro_batches),
        reference_(on, Objective::reference(settings) == reference_use::none ? 0 : sizes.micro_batches * sizes.sequences * sizeof(double),
                   memory_role::batch),
        labels_(on, has_labels ? sizes.micro_batches * sizes.sequences * sizeof(token) : 0, memory_role::batch),
        staged_labels_(on, has_labels && !is_dry_run(on) ? 2 * sizes.micro_batches * sizes.sequences * sizeof(token) : 0) {
    Objective::require_config(settings);
    require<config_error>(sizes.sequences % Objective::group_size == 0, Objective::name, ": micro_batch_size must be even, for pairs of sequences; given ",
                          sizes.sequences);
  }

  void prepare(pass<Recipe>& p, std::size_t micro_batch) {
    p.internal.objective = this;
    p.internal.micro_batch = micro_batch;
  }
  template <class Stream, class Data>
  void upload(Stream& stream, const Data& data) requires has_hook<Objective, hook::upload> {
    if constexpr (has_labels) upload_labels(stream, data.batch, data.micro_batch);
    if constexpr (has_hook<Objective, hook::uses_reference>)
      if (Objective::reference(settings_) != reference_use::none) data.write_reference(reference_of(data.micro_batch, data.batch.b));
  }

  void compute(pass<Recipe>& p, const head_pass<Recipe>& head, typename head_pass<Recipe>::sums loss_n) override {
    const auto saved = p.trains() ? head.save_input_gradient(p) : matrix_view<typename pass<Recipe>::compute, memory>{};
    const auto scope = p.scope();
    const std::size_t b = p.batch.b, groups = b / Objective::group_size, micro_batch = p.internal.micro_batch;
    const auto values = [&](std::size_t n) { return vector_view<double, memory>{p.workspace.template take<double>(n), {n}}; };
    sequence_losses<memory> of;
    of.logp_b = values(b);
    of.count_b = values(b);
    of.dlogp_b = values(b);
    of.loss_g = values(groups);
    of.statistics_4g = {p.workspace.template take<double>(4 * groups), {4, groups}};
    of.reference_b = reference_of(micro_batch, b);
    if constexpr (has_labels) of.label_b = {labels_.template as<token>().subspan(micro_batch * sequences_, b), {b}};
    sequence_log_probs(p, head, loss_n, of.logp_b, of.count_b);
    Objective::losses(static_cast<execution<device>&>(p), settings_, of);
    if (p.trains()) {
      const vector_view<accumulate, memory> weight_n{p.workspace.template take<accumulate>(loss_n.shape(0)), {loss_n.shape(0)}};
      ops::sequence_weights(p, p.batch.targets_n, head.vocab_size(), of.dlogp_b, weight_n);
      head.gradient(p, weight_n, loss_n, saved);
    }
    // context-parallel ranks share sequences: only the first counts their losses
    bool counts = true;
    if constexpr (has_context_parallel<Recipe>) counts = p.internal.parallel.context().rank() == 0;
    ops::sequence_losses(p, counts ? of.loss_g : vector_view<double, memory>{}, b, loss_n);
    for (std::size_t i = 0; counts && !p.internal.statistics.empty() && i < Objective::statistics.size(); ++i)
      ops::sum(p, of.statistics_4g.rows(i, 1).span(), p.internal.statistics.subspan(i, 1));
  }

 private:
  template <class Stream>
  void upload_labels(Stream& stream, const batch_view& batch, std::size_t micro_batch) {
    if (batch.labels.empty()) return;
    const auto staged = staged_labels_.template as<token>().subspan(staged_++ % (2 * micro_batches_) * sequences_, batch.b);
    std::copy(batch.labels.begin(), batch.labels.end(), staged.begin());
    copy_to_device(stream, labels_.template as<token>().subspan(micro_batch * sequences_, batch.b), staged);
  }
  /// The reference model's log-probabilities of a micro-batch; empty in a reference-free run.
  [[nodiscard]] vector_view<double, memory> reference_of(std::size_t micro_batch, std::size_t b) const {
    if (Objective::reference(settings_) == reference_use::none) return {};
    return {reference_.template as<double>().subspan(micro_batch * sequences_, b), {b}};
  }

  config settings_;
  std::size_t sequences_, micro_batches_, staged_ = 0;
  buffer<device> reference_, labels_;  // by micro-batch
  pinned_memory<device> staged_labels_;
};

}  // namespace xtrain
