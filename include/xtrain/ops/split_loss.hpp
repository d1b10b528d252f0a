#pragma once

#include <algorithm>

#include <xtrain/device/kernel/split_loss.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/loss.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// Partial softmax of this rank's logits, from token `first` (vocabulary parallel): kernel::softmax_part.
///   logits_nv, target_n read; parts_pn [kernel::softmax_parts(label_smoothing), n] written
template <class Device, class A>
void softmax_part(execution<Device>& on, in_matrix<A, Device> logits_nv, in_vector<token, Device> target_n, std::size_t first,
                  matrix<A, Device> parts_pn) {
  const std::size_t n = logits_nv.shape(0), v = logits_nv.shape(1);
  require_shape("softmax_part: target_n", target_n.shape(), {n});
  const std::size_t parts = parts_pn.shape(0) == 4 ? 4 : 3;
  require_shape("softmax_part: parts_pn", parts_pn.shape(), {parts, n});
  launch(on, kernel::softmax_part<typename Device::memory, A>{.n = n,
                                                              .v = v,
                                                              .parts = parts,
                                                              .first = static_cast<token>(first),
                                                              .logits_nv = logits_nv.span(),
                                                              .target_n = target_n.span(),
                                                              .parts_pn = parts_pn.span()});
}

/// Losses from all ranks' parts, and the gradient of this rank's logits: kernel::softmax_of_parts.
///   parts_rpn [ranks · kernel::softmax_parts(label_smoothing), n] read; loss_n written; dlogits_nv written, or none
///   throws  config_error unless label_smoothing is in [0, 1), log_z_loss at least 0
template <class Device, class A, class T>
void softmax_of_parts(execution<Device>& on, in_matrix<A, Device> logits_nv, in_vector<token, Device> target_n, std::size_t first,
                      std::size_t vocab_size, std::size_t rank, in_matrix<A, Device> parts_rpn,
                      kernel::scalar<typename Device::memory> gradient_scale, double z_loss,
                      vector<A, Device> loss_n, matrix<T, Device> dlogits_nv, in_vector<A, Device> token_weight_n = {},
                      double label_smoothing = 0.0, double log_z_loss = 0.0) {
  require_label_smoothing("softmax_of_parts", label_smoothing);
  require_log_z_loss("softmax_of_parts", log_z_loss);
  const std::size_t n = logits_nv.shape(0), v = logits_nv.shape(1);
  const std::size_t parts = kernel::softmax_parts(label_smoothing), ranks = parts_rpn.shape(0) / parts;
  require_shape("softmax_of_parts: target_n", target_n.shape(), {n});
  require_shape("softmax_of_parts: loss_n", loss_n.shape(), {n});
  require_shape("softmax_of_parts: parts_rpn", parts_rpn.shape(), {std::max<std::size_t>(1, ranks) * parts, n});
  if (token_weight_n.exists()) require_shape("softmax_of_parts: token_weight_n", token_weight_n.shape(), {n});
  if (dlogits_nv.exists()) require_shape("softmax_of_parts: dlogits_nv", dlogits_nv.shape(), {n, v});
  launch(on, kernel::softmax_of_parts<typename Device::memory, A, T>{.n = n,
                                                                     .v = v,
                                                                     .rank = rank,
                                                                     .ranks = ranks,
                                                                     .vocab_size = vocab_size,
                                                                     .first = static_cast<token>(first),
                                                                     .gradient_scale = gradient_scale.value,
                                                                     .z_loss = z_loss,
                                                                     .label_smoothing = label_smoothing,
                                                                     .log_z_loss = log_z_loss,
                                                                     .gradient_factor_1 = gradient_scale.factor_1,
                                                                     .parts_rpn = parts_rpn.span(),
                                                                     .target_n = target_n.span(),
                                                                     .token_weight_n = token_weight_n.extent(),
                                                                     .logits_nv = logits_nv.span(),
                                                                     .loss_n = loss_n.span(),
                                                                     .dlogits_nv = dlogits_nv.extent()});
}

}  // namespace xtrain::ops
