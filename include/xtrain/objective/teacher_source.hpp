#pragma once

#include <cstddef>

#include <xtrain/comm/channel_origin.hpp>
#include <xtrain/core/lifetime.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// Something that knows a teacher's logits: a model of any type.
///   A   the dtype of logits, accumulate of the student
template <class Device, class A>
class teacher_source {
 public:
  virtual ~teacher_source() = default;
  /// Queues the teacher's forward pass of a micro-batch on the stream.
  ///   slot   what logits() refers to; below the number of micro-batches of a step
  virtual void begin(typename Device::stream& stream, const batch_view& batch, std::size_t slot) = 0;
  /// Logits of some tokens of that micro-batch, from token `first` on, in the shard of the vocabulary that this rank's student has.
  ///   logits_nv [n, vocabulary or this rank's shard] written
  ///   throws  shape_error when the vocabulary has another size
  virtual void logits(execution<Device>& on, std::size_t slot, std::size_t first, matrix_view<A, typename Device::memory> logits_nv) = 0;
  /// The parameters that it computes with, by which models are told apart; null: it has none.
  [[nodiscard]] virtual const void* parameters() const { return nullptr; }
  /// Where its ranks send; by default it has one rank, or shares no channels.
  [[nodiscard]] virtual channel_origin channels() const { return {}; }
  /// The memory that it takes, for the plan of the run.
  [[nodiscard]] virtual planned_memory plan() const { return {}; }
  /// For those who refer to it: whether it is still here.
  [[nodiscard]] const detail::lifetime& lifetime() const { return lifetime_; }

 private:
  detail::address_lifetime lifetime_;
};

}  // namespace xtrain
