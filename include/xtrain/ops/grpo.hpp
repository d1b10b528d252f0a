#pragma once

#include <cstddef>
#include <type_traits>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/grpo.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

using kernel::grpo_kind;

/// See kernel::grpo_loss.
struct grpo_settings {
  grpo_kind kind = grpo_kind::dapo;
  bool sequence_ratio = false;
  double beta = 0.0, epsilon_low = 0.2, epsilon_high = 0.2;
  double max_completion_length = 1.0;
};

/// Losses of b sequences with advantages, and token weights that give cross-entropy their gradient: kernel::grpo_loss
///   loss_n, target_n [b · t], advantage_b; old_n, reference_n [b · t], or none     read
///   loss_b, statistics_3b [3, b], weight_n [b · t] or none     written
///   throws  config_error for a setting out of range
template <class Device, class A>
void grpo_loss(execution<Device>& on, const grpo_settings& settings, vector<A, Device> loss_n, in_vector<token, Device> target_n,
               std::size_t vocab_size, in_vector<double, Device> advantage_b, in_vector<std::remove_const_t<A>, Device> old_n,
               in_vector<std::remove_const_t<A>, Device> reference_n, std::type_identity_t<vector<double, Device>> loss_b,
               std::type_identity_t<matrix<double, Device>> statistics_3b, std::type_identity_t<vector<std::remove_const_t<A>, Device>> weight_n) {
  require<config_error>(settings.beta >= 0.0, "grpo_loss: beta must not be negative; given ", settings.beta);
  require<config_error>(settings.epsilon_low > 0.0 && settings.epsilon_high > 0.0, "grpo_loss: epsilon_low and epsilon_high must be positive; given ",
                        settings.epsilon_low, " and ", settings.epsilon_high);
  require<config_error>(settings.max_completion_length > 0.0, "grpo_loss: max_completion_length must be positive; given ",
                        settings.max_completion_length);
  const std::size_t n = loss_n.shape(0), b = advantage_b.shape(0), t = b == 0 ? 0 : n / b;
  require<shape_error>(b * t == n, "grpo_loss: the ", n, " tokens must be those of ", b, " sequences of equal length");
  require_shape("grpo_loss: target_n", target_n.shape(), {n});
  if (old_n.exists()) require_shape("grpo_loss: old_n", old_n.shape(), {n});
  if (settings.beta > 0.0) require_shape("grpo_loss: reference_n", reference_n.shape(), {n});
  require_shape("grpo_loss: loss_b", loss_b.shape(), {b});
  require_shape("grpo_loss: statistics_3b", statistics_3b.shape(), {3, b});
  if (weight_n.exists()) require_shape("grpo_loss: weight_n", weight_n.shape(), {n});
  kernel::grpo_loss<typename Device::memory, std::remove_const_t<A>> k{.b = b, .t = t, .v = vocab_size, .kind = settings.kind};
  k.sequence_ratio = settings.sequence_ratio;
  k.beta = settings.beta;
  k.epsilon_low = settings.epsilon_low;
  k.epsilon_high = settings.epsilon_high;
  k.max_completion_length = settings.max_completion_length;
  k.loss_n = loss_n.span();
  k.target_n = target_n.span();
  k.advantage_b = advantage_b.span();
  k.old_n = old_n.extent();
  if (settings.beta > 0.0) k.reference_n = reference_n.extent();
  k.loss_b = loss_b.span();
  k.statistics_3b = statistics_3b.span();
  k.weight_n = weight_n.extent();
  launch(on, k);
}

}  // namespace xtrain::ops
