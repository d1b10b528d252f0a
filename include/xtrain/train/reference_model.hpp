#pragma once

#include <cstddef>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/stream_drain.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/objective/log_prob_source.hpp>
#include <xtrain/objective/sequence_log_probs.hpp>
#include <xtrain/train/checked_recipe.hpp>
#include <xtrain/train/forward_only.hpp>
#include <xtrain/train/require_second_model.hpp>

namespace xtrain {

/// Log-probabilities of sequences for trainer::use_reference. Family, precision and adapter may differ from the trained model; vocabulary and device must be
/// the same. Weights are not rounded, even with the adapter qat: the run starts from unrounded weights. On several ranks it has the trained model's
/// strategy, on separate channels: parallel = {.ranks = separate_channels(ranks)}.
template <class Model>
class reference_model final : public log_prob_source<typename Model::device> {
 public:
  using model_type = Model;
  using device = typename Model::device;
  using memory = typename device::memory;
  using config = forward_only_config;

  /// throws config_error for a sequence length that the model does not have, memory_error
  explicit reference_model(Model& model, config settings = {})
      : passes_(model, settings, false, "reference_model"), counts_(model.context(), passes_.settings().micro_batch_size * sizeof(double), memory_role::batch),
        collector_(settings.temperature), drain_(model.stream(), detail::watched(model)) {}
  reference_model(const reference_model&) = delete;  // trainers store its address
  reference_model& operator=(const reference_model&) = delete;

  /// Memory of the model and its passes. Allocates nothing.
  [[nodiscard]] static planned_memory run_dry(const typename Model::config_type& sizes, const typename Model::options& options, const config& settings,
                                              const typename device::properties& properties) {
    return with_counts(forward_only<Model>::run_dry(sizes, options, settings, properties, false));
  }
  [[nodiscard]] planned_memory plan() const override { return with_counts(passes_.needed()); }
  [[nodiscard]] const void* parameters() const override { return &passes_.model().parameters(); }
  [[nodiscard]] channel_origin channels() const override { return detail::channels_of(passes_.model()); }
  [[nodiscard]] std::size_t vocab_size() const override { return passes_.model().config().vocab_size; }

  void compute(typename device::stream& stream, const batch_view& batch, std::size_t micro_batch, vector_view<double, memory> logp_b) override {
    // two streams share this memory: each waits for the other
    auto& own = passes_.model().stream();
    own.wait(stream.record());
    collector_.write_to(logp_b, {counts_.template as<double>().subspan(0, batch.b), {batch.b}});
    passes_.run(batch, micro_batch, collector_);
    stream.wait(own.record());
  }
  /// log p(target) of every token of a batch, 0 without a target, on the host; for rollouts.
  ///   throws  config_error for context parallelism, where this rank does not have all tokens; shape_error, data_error
  template <class Batch>
  [[nodiscard]] std::vector<float> token_log_probs(const Batch& batch) {
    require<config_error>(!has_context_parallel<model_computation<Model>>,
                          "reference_model: token_log_probs must not be used with context parallelism, where a rank does not have all tokens");
    const batch_view view(batch);
    token_loss_collector<model_computation<Model>> only_losses(passes_.settings().temperature);
    return passes_.log_probs_of(view, only_losses);
  }

 private:
  [[nodiscard]] static planned_memory with_counts(const typename forward_only<Model>::needs& needed) {
    planned_memory all = needed.memory;
    all.add(memory_role::batch, needed.settings.micro_batch_size * sizeof(double));
    return all;
  }

  forward_only<Model> passes_;
  buffer<device> counts_;
  log_prob_collector<model_computation<Model>> collector_;
  detail::stream_drain<typename device::stream> drain_;  // last: destroyed first, so the host waits before memory in use is released
};

}  // namespace xtrain
