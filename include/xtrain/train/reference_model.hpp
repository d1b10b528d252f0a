// A second, frozen model as the reference of an objective.
#pragma once

#include <cstddef>

#include <xtrain/device/stream_drain.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/objective/log_prob_source.hpp>
#include <xtrain/objective/sequence_log_probs.hpp>
#include <xtrain/train/forward_only.hpp>

namespace xtrain {

/// Computes log-probabilities of sequences with a model that is not trained, for trainer::use_reference. The model may be of another family,
/// precision or adapter than the trained one; its vocabulary and its device must be the same. On several ranks it has the same strategy as
/// the trained model, on channels of its own: parallel = {.ranks = separate_channels(ranks)}.
template <class Model>
class reference_model final : public log_prob_source<typename Model::device> {
 public:
  using device = typename Model::device;
  using memory = typename device::memory;
  using config = forward_only_config;

  /// throws config_error for a sequence length that the model does not have, memory_error
  explicit reference_model(Model& model, config settings = {})
      : passes_(model, settings), counts_(model.context(), passes_.settings().micro_batch_size * sizeof(double), memory_role::batch),
        drain_(model.stream()) {}

  void compute(typename device::stream& stream, const batch_view& batch, std::size_t micro_batch, vector_view<double, memory> logp_b) override {
    // the model has a stream of its own: memory that both use is ready in either order
    auto& own = passes_.model().stream();
    own.wait(stream.record());
    collector_.write_to(logp_b, {counts_.template as<double>().subspan(0, batch.b), {batch.b}});
    passes_.run(batch, micro_batch, collector_);
    stream.wait(own.record());
  }

 private:
  forward_only<Model> passes_;
  buffer<device> counts_;
  log_prob_collector<typename Model::recipe> collector_{};
  detail::stream_drain<typename device::stream> drain_;  // last: the host waits before memory that queued work uses is released
};

}  // namespace xtrain
