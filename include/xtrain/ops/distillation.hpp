#pragma once

#include <algorithm>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/device/kernel/distillation.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

using kernel::divergence_kind;

/// See kernel::distillation_of_parts.
struct distillation_settings {
  divergence_kind kind = divergence_kind::forward;  ///< only forward with stored log-probabilities
  double temperature = 1.0;                         ///< of student and teacher
  double factor = 1.0;                              ///< on loss and gradient
  bool renormalize = false;                         ///< stored log-probabilities: p is divided by their sum
  bool accumulate = false;                          ///< adds to loss and gradient
};

/// throws  config_error unless the temperature is positive
inline void require_temperature(std::string_view who, double temperature) {
  require<config_error>(temperature > 0.0, who, ": temperature must be positive; given ", temperature);
}

/// Partial divergence over this rank's vocabulary shard: kernel::distillation_part.
///   student_nv, teacher_nv read; parts_5n [5, n] written
///   throws  config_error unless the temperature is positive
template <class Device, class A>
void distillation_part(execution<Device>& on, const distillation_settings& settings, in_matrix<A, Device> student_nv,
                       in_matrix<A, Device> teacher_nv, matrix<A, Device> parts_5n) {
  const std::size_t n = student_nv.shape(0), v = student_nv.shape(1);
  require_temperature("distillation_part", settings.temperature);
  require_shape("distillation_part: teacher_nv", teacher_nv.shape(), {n, v});
  require_shape("distillation_part: parts_5n", parts_5n.shape(), {5, n});
  launch(on, kernel::distillation_part<typename Device::memory, A>{.n = n,
                                                                   .v = v,
                                                                   .kind = settings.kind,
                                                                   .temperature = settings.temperature,
                                                                   .student_nv = student_nv.span(),
                                                                   .teacher_nv = teacher_nv.span(),
                                                                   .parts_5n = parts_5n.span()});
}

/// Losses from all ranks' parts, and the gradient of this rank's logits.
///   gradient_scale  factor on the gradient only
///   parts_r5n [ranks · 5, n] read; token_weight_n read, or none
///   loss_n written; dstudent_nv written, or none; with settings.accumulate both are added to
///   throws  config_error unless the temperature is positive
template <class Device, class A, class T>
void distillation_of_parts(execution<Device>& on, const distillation_settings& settings, in_matrix<A, Device> student_nv,
                           in_matrix<A, Device> teacher_nv, in_vector<token, Device> target_n, std::size_t vocab_size,
                           in_matrix<A, Device> parts_r5n, kernel::scalar<typename Device::memory> gradient_scale, vector<A,
                           Device> loss_n, matrix<T, Device> dstudent_nv,
                           in_vector<A, Device> token_weight_n = {}) {
  const std::size_t n = student_nv.shape(0), v = student_nv.shape(1), ranks = parts_r5n.shape(0) / 5;
  require_temperature("distillation_of_parts", settings.temperature);
  require_shape("distillation_of_parts: teacher_nv", teacher_nv.shape(), {n, v});
  require_shape("distillation_of_parts: target_n", target_n.shape(), {n});
  require_shape("distillation_of_parts: parts_r5n", parts_r5n.shape(), {std::max<std::size_t>(1, ranks) * 5, n});
  require_shape("distillation_of_parts: loss_n", loss_n.shape(), {n});
  if (dstudent_nv.exists()) require_shape("distillation_of_parts: dstudent_nv", dstudent_nv.shape(), {n, v});
  if (token_weight_n.exists()) require_shape("distillation_of_parts: token_weight_n", token_weight_n.shape(), {n});
  launch(on, kernel::distillation_of_parts<typename Device::memory, A, T>{.n = n,
                                                                          .v = v,
                                                                          .ranks = ranks,
                                                                          .vocab_size = vocab_size,
                                                                          .kind = settings.kind,
                                                                          .temperature = settings.temperature,
                                                                          .factor = settings.factor,
                                                                          .gradient_scale = gradient_scale.value,
                                                                          .gradient_factor_1 = gradient_scale.factor_1,
                                                                          .accumulate = settings.accumulate,
                                                                          .parts_r5n = parts_r5n.span(),
                                                                          .target_n = target_n.span(),
                                                                          .token_weight_n = token_weight_n.extent(),
                                                                          .student_nv = student_nv.span(),
                                                                          .teacher_nv = teacher_nv.span(),
                                                                          .loss_n = loss_n.span(),
                                                                          .dstudent_nv = dstudent_nv.extent()});
}

/// Partial divergence from stored log-probabilities, over this rank's vocabulary shard from token `first`: kernel::topk_distillation_part.
///   student_nv; id_nk, teacher_nk [n, top] read; parts_3n [3, n] written
///   throws  config_error unless the temperature is positive and the kind is forward
template <class Device, class A>
void topk_distillation_part(execution<Device>& on, const distillation_settings& settings, in_matrix<A, Device> student_nv,
                            in_matrix<token, Device> id_nk, in_matrix<A, Device> teacher_nk, std::size_t first,
                            matrix<A, Device> parts_3n) {
  const std::size_t n = student_nv.shape(0), v = student_nv.shape(1), top = id_nk.shape(1);
  require_temperature("topk_distillation_part", settings.temperature);
  require<config_error>(settings.kind == divergence_kind::forward,
                        "topk_distillation_part: only the forward divergence can be computed from stored log-probabilities");
  require_shape("topk_distillation_part: id_nk", id_nk.shape(), {n, top});
  require_shape("topk_distillation_part: teacher_nk", teacher_nk.shape(), {n, top});
  require_shape("topk_distillation_part: parts_3n", parts_3n.shape(), {3, n});
  launch(on, kernel::topk_distillation_part<typename Device::memory, A>{.n = n,
                                                                        .v = v,
                                                                        .top = top,
                                                                        .first = static_cast<token>(first),
                                                                        .temperature = settings.temperature,
                                                                        .student_nv = student_nv.span(),
                                                                        .id_nk = id_nk.span(),
                                                                        .teacher_nk = teacher_nk.span(),
                                                                        .parts_3n = parts_3n.span()});
}

/// distillation_of_parts from stored log-probabilities.
///   parts_r3n [ranks · 3, n] read
///   throws  config_error unless the temperature is positive and the kind is forward
template <class Device, class A, class T>
void topk_distillation_of_parts(execution<Device>& on, const distillation_settings& settings, in_matrix<A, Device> student_nv,
                                in_matrix<token, Device> id_nk, in_matrix<A, Device> teacher_nk, in_vector<token, Device> target_n,
                                std::size_t first, std::size_t vocab_size, in_matrix<A, Device> parts_r3n,
                                kernel::scalar<typename Device::memory> gradient_scale,
                                vector<A, Device> loss_n, matrix<T, Device> dstudent_nv, in_vector<A, Device> token_weight_n = {}) {
  const std::size_t n = student_nv.shape(0), v = student_nv.shape(1), top = id_nk.shape(1), ranks = parts_r3n.shape(0) / 3;
  require_temperature("topk_distillation_of_parts", settings.temperature);
  require<config_error>(settings.kind == divergence_kind::forward,
                        "topk_distillation_of_parts: only the forward divergence can be computed from stored log-probabilities");
  require_shape("topk_distillation_of_parts: id_nk", id_nk.shape(), {n, top});
  require_shape("topk_distillation_of_parts: teacher_nk", teacher_nk.shape(), {n, top});
  require_shape("topk_distillation_of_parts: target_n", target_n.shape(), {n});
  require_shape("topk_distillation_of_parts: parts_r3n", parts_r3n.shape(), {std::max<std::size_t>(1, ranks) * 3, n});
  require_shape("topk_distillation_of_parts: loss_n", loss_n.shape(), {n});
  if (dstudent_nv.exists()) require_shape("topk_distillation_of_parts: dstudent_nv", dstudent_nv.shape(), {n, v});
  if (token_weight_n.exists()) require_shape("topk_distillation_of_parts: token_weight_n", token_weight_n.shape(), {n});
  launch(on, kernel::topk_distillation_of_parts<typename Device::memory, A, T>{.n = n,
                                                                               .v = v,
                                                                               .top = top,
                                                                               .ranks = ranks,
                                                                               .vocab_size = vocab_size,
                                                                               .first = static_cast<token>(first),
                                                                               .temperature = settings.temperature,
                                                                               .factor = settings.factor,
                                                                               .gradient_scale = gradient_scale.value,
                                                                               .gradient_factor_1 = gradient_scale.factor_1,
                                                                               .renormalize = settings.renormalize,
                                                                               .accumulate = settings.accumulate,
                                                                               .parts_r3n = parts_r3n.span(),
                                                                               .target_n = target_n.span(),
                                                                               .token_weight_n = token_weight_n.extent(),
                                                                               .student_nv = student_nv.span(),
                                                                               .id_nk = id_nk.span(),
                                                                               .teacher_nk = teacher_nk.span(),
                                                                               .loss_n = loss_n.span(),
                                                                               .dstudent_nv = dstudent_nv.extent()});
}

}  // namespace xtrain::ops
