// The reference model and the teacher of a training step.
#pragma once

#include <algorithm>
#include <cstddef>

#include <xtrain/adapt/concepts.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/objective/log_prob_source.hpp>
#include <xtrain/objective/objective_data.hpp>
#include <xtrain/objective/sequence_log_probs.hpp>
#include <xtrain/objective/teacher_source.hpp>
#include <xtrain/tensor/view.hpp>
#include <xtrain/train/step_memory.hpp>

namespace xtrain::detail {

/// Only the adapter is trained, so the model without it is the base model.
template <class Model>
[[nodiscard]] bool adapter_can_be_switched_off(const Model& model) {
  using adapter = typename Model::recipe::adapter;
  if constexpr (has_hook<adapter, hook::can_be_switched_off>) {
    for (const auto& entry : model.parameters().entries())
      if (entry.spec.trainable && !adapter::is_own(entry.spec.name)) return false;
    return true;
  } else {
    return false;
  }
}

/// Gives an objective the data of micro-batches, and what other models say of them.
template <class Model>
class second_models {
 public:
  using device = typename Model::device;
  using memory = typename device::memory;
  using computation = model_computation<Model>;
  using objective = typename Model::recipe::objective;
  using teacher_type = teacher_source<device, typename Model::accumulate>;

  log_prob_source<device>* reference = nullptr;  ///< null: from batches, or the model with its adapter switched off
  teacher_type* teacher = nullptr;

  ///   throws  config_error when the objective needs a model that its hooks do not list
  second_models(Model& model, const typename objective::config& settings, std::size_t sequences, std::size_t micro_batches)
      : model_(&model), needs_(objective::reference(settings)), sequences_(sequences), micro_batches_(micro_batches),
        counts_(model.context(), may_have_reference ? sequences * sizeof(double) : 0, memory_role::batch),
        staging_(model.context(), may_have_reference ? 2 * micro_batches * sequences * sizeof(double) : 0) {
    require<config_error>((may_have_reference || needs_ != reference_use::sequence_log_probs) && (may_have_teacher || needs_ != reference_use::teacher_logits),
                          objective::name, ": its hooks must list 'uses_reference' or 'uses_teacher', which reference() says that it needs; see "
                                           "objective/README.md");
  }

  ///   throws  config_error when a model is needed, and not given
  void require_for(const batch_view& batch) const {
    require<config_error>(needs_ != reference_use::teacher_logits || teacher != nullptr, objective::name,
                          ": a teacher must be given: a model (trainer.use_teacher), or its top-k log-probabilities in every batch (top_k of the objective's "
                          "config)");
    require<config_error>(needs_ != reference_use::sequence_log_probs || !batch.reference_log_probs.empty() || reference != nullptr ||
                              adapter_can_be_switched_off(*model_),
                          objective::name, ": a reference model must be given: log-probabilities in every batch (reference_log_probs), a second model "
                          "(trainer.use_reference), or an adapter that is all that is trained (lora); or the objective must be reference-free");
  }

  template <class State>
  void upload(State& state, step_memory<Model>& step, const batch_view& batch, std::size_t micro_batch) {
    state.upload(model_->stream(), data_of_step(*this, step, batch, micro_batch));
  }

 private:
  static constexpr bool may_have_reference = has_hook<objective, hook::uses_reference>, may_have_teacher = has_hook<objective, hook::uses_teacher>;

  struct data_of_step final : objective_data<device, typename Model::accumulate> {
    data_of_step(second_models& models, step_memory<Model>& of_step, const batch_view& of, std::size_t index)
        : objective_data<device, typename Model::accumulate>(of, index, models.teacher), all(models), step(of_step) {}
    void write_reference(vector_view<double, memory> logp_b) const override {
      if constexpr (may_have_reference) all.write_reference(step, this->batch, this->micro_batch, logp_b);
    }
    second_models& all;
    step_memory<Model>& step;
  };

  void write_reference(step_memory<Model>& step, const batch_view& batch, std::size_t micro_batch, vector_view<double, memory> logp_b) {
    auto& stream = model_->stream();
    if (!batch.reference_log_probs.empty()) {
      const auto staged = staging_.template as<double>().subspan(staged_++ % (2 * micro_batches_) * sequences_, batch.b);
      std::copy(batch.reference_log_probs.begin(), batch.reference_log_probs.end(), staged.begin());
      return copy_to_device(stream, logp_b.span(), staged);
    }
    if (reference != nullptr) return reference->compute(stream, batch, micro_batch, logp_b);
    collector_.write_to(logp_b, {counts_.template as<double>().subspan(0, batch.b), {batch.b}});
    const auto prepare_pass = [&](pass<computation>& p) {
      p.internal.objective = &collector_;
      p.internal.without_adapter = true;
      p.internal.most_tokens = step.local_tokens_of(*model_);
    };
    const auto losses = [&](std::size_t n) { return step.losses_of(n); };
    step.runner.evaluate(step.passes.execution_on(), batch, prepare_pass, losses, [](std::size_t) {}, &step.staging);
  }

  Model* model_;
  reference_use needs_;
  std::size_t sequences_, micro_batches_, staged_ = 0;
  log_prob_collector<computation> collector_{};
  buffer<device> counts_;          // targets per sequence
  pinned_memory<device> staging_;  // log-probabilities from the data: of two steps
};

}  // namespace xtrain::detail
