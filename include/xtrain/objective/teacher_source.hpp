#pragma once

#include <cstddef>

#include <xtrain/comm/channel_origin.hpp>
#include <xtrain/core/lifetime.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// A source of a teacher's logits: a model of any type.
///   A   the dtype of logits, accumulate of the student
template <class Device, class A>
class teacher_source {
 public:
  virtual ~teacher_source() = default;
  /// Queues the teacher's forward pass of a micro-batch on the stream.
  ///   slot   identifies it in logits(); below the number of micro-batches of a step
  virtual void begin(typename Device::stream& stream, const batch_view& batch, std::size_t slot) = 0;
  /// Logits of the micro-batch's tokens from `first` on, in the student's shard of the vocabulary.
  ///   logits_nv [n, vocabulary or this rank's shard] written
  ///   throws  shape_error when the vocabulary has another size
  virtual void logits(execution<Device>& on, std::size_t slot, std::size_t first, matrix_view<A, typename Device::memory> logits_nv) = 0;
  /// Identifies the model; null: no parameters.
  [[nodiscard]] virtual const void* parameters() const { return nullptr; }
  /// Channels of its ranks; default: one rank, or no shared channels.
  [[nodiscard]] virtual channel_origin channels() const { return {}; }
  /// Memory, for the plan of the run.
  [[nodiscard]] virtual planned_memory plan() const { return {}; }
  [[nodiscard]] const detail::lifetime& lifetime() const { return lifetime_; }

 private:
  detail::address_lifetime lifetime_;
};

}  // namespace xtrain
