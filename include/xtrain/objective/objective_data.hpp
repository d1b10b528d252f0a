#pragma once

#include <cstddef>

#include <xtrain/layers/batch.hpp>
#include <xtrain/objective/teacher_source.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// All that an objective gets before the pass of a micro-batch.
///   A   the dtype of logits
template <class Device, class A>
struct objective_data {
  const batch_view& batch;
  std::size_t micro_batch = 0;                   ///< its index in the step
  teacher_source<Device, A>* teacher = nullptr;  ///< null: no model is the teacher, or a dry run

  /// Queues: logp_b [batch.b] written, the reference model's log-probabilities: from the batch, a second model, or the model without its adapter.
  virtual void write_reference(vector_view<double, typename Device::memory> logp_b) const = 0;

 protected:
  objective_data(const batch_view& of, std::size_t index, teacher_source<Device, A>* by) : batch(of), micro_batch(index), teacher(by) {}
  ~objective_data() = default;
};

}  // namespace xtrain
