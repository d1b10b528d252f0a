#pragma once

#include <xtrain/device/kernel/split_loss.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// Partial softmax of this rank's logits, which begin at token `first` (vocabulary parallel).
///   logits_nv, target_n read; parts_3n [3, n] written: kernel::softmax_part
template <class Device, class A>
void softmax_part(execution<Device>& on, in_matrix<A, Device> logits_nv, in_vector<token, Device> target_n, std::size_t first,
                  matrix<A, Device> parts_3n) {
  const std::size_t n = logits_nv.shape(0), v = logits_nv.shape(1);
  require_shape("softmax_part: target_n", target_n.shape(), {n});
  require_shape("softmax_part: parts_3n", parts_3n.shape(), {3, n});
  launch(on, kernel::softmax_part<typename Device::memory, A>{.n = n,
                                                              .v = v,
                                                              .first = static_cast<token>(first),
                                                              .logits_nv = logits_nv.span(),
                                                              .target_n = target_n.span(),
                                                              .parts_3n = parts_3n.span()});
}

/// Losses from the partial results of all ranks, and the gradient of this rank's logits.
///   rank, z_loss            see kernel::softmax_of_parts
///   parts_r3n [ranks · 3, n] read; loss_n written; dlogits_nv written, or none
template <class Device, class A, class T>
void softmax_of_parts(execution<Device>& on, in_matrix<A, Device> logits_nv, in_vector<token, Device> target_n, std::size_t first,
                      std::size_t vocab_size, std::size_t rank, in_matrix<A, Device> parts_r3n, double gradient_scale, double z_loss,
                      vector<A, Device> loss_n, matrix<T, Device> dlogits_nv) {
  const std::size_t n = logits_nv.shape(0), v = logits_nv.shape(1);
  require_shape("softmax_of_parts: target_n", target_n.shape(), {n});
  require_shape("softmax_of_parts: loss_n", loss_n.shape(), {n});
  require_shape("softmax_of_parts: parts_r3n", parts_r3n.shape(), {parts_r3n.shape(0) / 3 * 3, n});
  if (dlogits_nv.exists()) require_shape("softmax_of_parts: dlogits_nv", dlogits_nv.shape(), {n, v});
  launch(on, kernel::softmax_of_parts<typename Device::memory, A, T>{.n = n,
                                                                     .v = v,
                                                                     .rank = rank,
                                                                     .ranks = parts_r3n.shape(0) / 3,
                                                                     .vocab_size = vocab_size,
                                                                     .first = static_cast<token>(first),
                                                                     .gradient_scale = gradient_scale,
                                                                     .z_loss = z_loss,
                                                                     .parts_r3n = parts_r3n.span(),
                                                                     .target_n = target_n.span(),
                                                                     .logits_nv = logits_nv.span(),
                                                                     .loss_n = loss_n.span(),
                                                                     .dlogits_nv = dlogits_nv.extent()});
}

}  // namespace xtrain::ops
