#pragma once

#include <concepts>
#include <cstddef>

#include <xtrain/comm/channel_origin.hpp>
#include <xtrain/core/lifetime.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// A source of log-probabilities of sequences, such as a reference model of any type.
template <class Device>
class log_prob_source {
 public:
  virtual ~log_prob_source() = default;
  /// Queues on the stream: logp_b written, the sum over the targets of each sequence of the batch.
  ///   micro_batch   its index in the step
  ///   throws        shape_error when the batch is too large, or a step has too many micro-batches
  virtual void compute(typename Device::stream& stream, const batch_view& batch, std::size_t micro_batch,
                       vector_view<double, typename Device::memory> logp_b) = 0;
  /// Identifies the model; null: no parameters.
  [[nodiscard]] virtual const void* parameters() const { return nullptr; }
  /// 0: unknown.
  [[nodiscard]] virtual std::size_t vocab_size() const { return 0; }
  /// Channels of its ranks; default: one rank, or no shared channels.
  [[nodiscard]] virtual channel_origin channels() const { return {}; }
  /// Memory, for the plan of the run.
  [[nodiscard]] virtual planned_memory plan() const { return {}; }
  [[nodiscard]] const detail::lifetime& lifetime() const { return lifetime_; }

 private:
  detail::address_lifetime lifetime_;
};

namespace clause {

/// plan(): the memory of a second model.
template <class Source>
concept source_has_a_plan = requires(const Source& source) {
  { source.plan() } -> std::convertible_to<planned_memory>;
};

}  // namespace clause

namespace detail {

template <class Source>
[[nodiscard]] planned_memory plan_of([[maybe_unused]] const Source& source) {
  if constexpr (clause::source_has_a_plan<Source>) return source.plan();
  else return {};
}

}  // namespace detail

}  // namespace xtrain
