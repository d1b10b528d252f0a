// Logits of entire sequences, as an xtensor array.
#pragma once

#include <cstddef>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/thread_use.hpp>
#include <xtrain/data/xtensor_batch.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/models/pass_memory.hpp>
#include <xtrain/models/require_batch.hpp>
#include <xtrain/tensor/tensor.hpp>
#include <xtrain/tensor/xtensor_face.hpp>

namespace xtrain {

namespace detail {

/// Writes the logits of all positions to `to`.
template <class Model, class Rows>
void run_logits(Model& model, pass_memory<Model>& passes, const Rows& rows, const batch_memory<typename Model::device>& batch,
                const tensor_view<token, 1, typename Model::memory>& chosen,
                const matrix_view<typename Model::accumulate, typename Model::memory>& to) {
  std::vector<token> all(rows.b * rows.t);
  std::iota(all.begin(), all.end(), token{0});
  copy_to_device(model.stream(), chosen.span(), all);
  auto p = passes.new_pass(pass_mode::evaluation);
  p.batch = batch.upload(model.stream(), rows);
  model.logits(p, passes.layer_inputs(), chosen, to);
  model.stream().synchronize();
}

}  // namespace detail

/// Logits [batch size, sequence length, vocabulary]: of the next token, or in an encoder of the token. A host-addressable device computes them into the
/// array.
///   throws  shape_error when sequences exceed the model's maximum; data_error when a token is unknown, positions are missing or out of range, or
///           sequences are empty; memory_error
template <class Model, class Rows>
requires requires(const Rows& rows) { rows.tokens; }
[[nodiscard]] array<typename Model::accumulate, 3> logits(Model& model, const Rows& rows) {
  using accumulate = typename Model::accumulate;
  const std::size_t n = rows.b * rows.t, v = model.config().vocab_size;
  if (rows.b == 0) return array<accumulate, 3>(shape_of_rank<3>{0, rows.t, v});
  detail::require_batch(model, rows, "logits");
  const auto use = detail::use_of(model, "logits");
  pass_memory<Model> passes(model, measure_pass(model, [&](auto& like, auto& memory) {
                              using device = typename std::remove_cvref_t<decltype(like)>::device;
                              tensor<token, 1, device> chosen(like.context(), {n}, memory_role::batch);
                              tensor<accumulate, 2, device> result(like.context(), {n, v}, memory_role::batch);
                              detail::run_logits(like, memory, rows, batch_memory<device>(like.context(), n, attention_mask_of(like)), chosen.view(),
                                                 result.view());
                            }));
  using device = typename Model::device;
  const batch_memory<device> batch(model.context(), n, attention_mask_of(model));
  tensor<token, 1, device> chosen(model.context(), {n}, memory_role::batch);
  array<accumulate, 3> logits_btv(shape_of_rank<3>{rows.b, rows.t, v});
  if constexpr (host_addressable<device>) {
    detail::run_logits(model, passes, rows, batch, chosen.view(), view_of(logits_btv).template reshaped<2>({n, v}));
  } else {
    tensor<accumulate, 2, device> result(model.context(), {n, v}, memory_role::batch);
    detail::run_logits(model, passes, rows, batch, chosen.view(), result.view());
    copy_to_host(model.stream(), std::span<accumulate>(logits_btv.data(), logits_btv.size()), result.span());
    model.stream().synchronize();
  }
  return logits_btv;
}
/// For tokens [batch size, sequence length].
template <class Model>
[[nodiscard]] array<typename Model::accumulate, 3> logits(Model& model, const array<token, 2>& tokens) {
  const array<token, 2> nothing = -xt::ones<token>(tokens.shape());
  return logits(model, xtensor_batch(tokens, nothing));
}

/// Logits [batch size, labels] of an encoder.
///   throws  as logits
template <class Model, class Rows>
[[nodiscard]] array<typename Model::accumulate, 2> label_logits(Model& model, const Rows& rows) {
  using accumulate = typename Model::accumulate;
  const std::size_t n = rows.b * rows.t;
  if (rows.b == 0) return array<accumulate, 2>(shape_of_rank<2>{0, model.config().labels.size()});
  detail::require_batch(model, rows, "logits");
  const auto use = detail::use_of(model, "logits");
  const auto run = [&](auto& of, auto& passes, auto& batch, auto& result) {
    auto p = passes.new_pass(pass_mode::evaluation);
    p.batch = batch.upload(of.stream(), rows);
    of.label_logits(p, passes.layer_inputs(), result.view());
    of.stream().synchronize();
  };
  const shape_of_rank<2> shape{rows.b, model.config().labels.size()};
  pass_memory<Model> passes(model, measure_pass(model, [&](auto& like, auto& memory) {
                              using device = typename std::remove_cvref_t<decltype(like)>::device;
                              const batch_memory<device> batch(like.context(), n, attention_mask_of(like));
                              tensor<accumulate, 2, device> result(like.context(), shape, memory_role::batch);
                              run(like, memory, batch, result);
                            }));
  using device = typename Model::device;
  const batch_memory<device> batch(model.context(), n, attention_mask_of(model));
  tensor<accumulate, 2, device> result(model.context(), shape, memory_role::batch);
  run(model, passes, batch, result);
  array<accumulate, 2> logits_bv(shape);
  copy_to_host(model.stream(), std::span<accumulate>(logits_bv.data(), logits_bv.size()), result.view().span());
  model.stream().synchronize();
  return logits_bv;
}

}  // namespace xtrain
