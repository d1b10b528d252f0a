#pragma once

#include <xtrain/device/kernel/experts.hpp>
#include <xtrain/device/kernel/grouped_matmul.hpp>
#include <xtrain/ops/launch.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain::ops {

/// Experts of each row and slots of its copies: kernel::expert_routing.
template <class Device, class A>
struct expert_routes {
  matrix<A, Device> probability_ne{};
  matrix<token, Device> choice_nk{};
  matrix<A, Device> weight_nk{};
  matrix<token, Device> slot_nk{};
  vector<token, Device> row_s{};
};

namespace detail {

/// throws shape_error unless the routes fit n rows
template <class Device, class A>
void require_routes(const expert_routes<Device, A>& routes, std::size_t n, std::size_t experts) {
  const std::size_t k = routes.choice_nk.shape(1);
  require<shape_error>(k > 0 && k <= experts, "expert_routing: a token must choose at least one and at most ", experts, " experts; given ",
                       k);
  require_shape("expert_routing: probability_ne", routes.probability_ne.shape(), {n, experts});
  require_shape("expert_routing: choice_nk", routes.choice_nk.shape(), {n, k});
  require_shape("expert_routing: weight_nk", routes.weight_nk.shape(), {n, k});
  require_shape("expert_routing: slot_nk", routes.slot_nk.shape(), {n, k});
  require_shape("expert_routing: row_s", routes.row_s.shape(), {n * k});
}

}  // namespace detail

/// The k most probable experts of each row, their weights, and the slot of every choice.
///   logits_ne read; routes, count_e written
///   load_e, counted_e   written, or none: load without padding, for the load-balancing loss
///   target_n            read: padding_target marks padding; none: no padding
template <class Device, class X>
void expert_routing(execution<Device>& on, matrix<X, Device> logits_ne,
                    const expert_routes<Device, accumulate_t<std::remove_const_t<X>>>& routes, vector<token, Device> count_e,
                    vector<accumulate_t<std::remove_const_t<X>>, Device> load_e = {}, vector<token, Device> counted_e = {},
                    in_vector<token, Device> target_n = {}) {
  const std::size_t n = logits_ne.shape(0), e = logits_ne.shape(1);
  detail::require_routes(routes, n, e);
  require_shape("expert_routing: count_e", count_e.shape(), {e});
  if (load_e.exists()) {
    require_shape("expert_routing: load_e", load_e.shape(), {e});
    require_shape("expert_routing: counted_e", counted_e.shape(), {e});
  }
  if (target_n.exists()) require_shape("expert_routing: target_n", target_n.shape(), {n});
  launch(on, kernel::expert_routing<typename Device::memory, std::remove_const_t<X>>{.n = n,
                                                                                     .experts = e,
                                                                                     .choices = routes.choice_nk.shape(1),
                                                                                     .logits_ne = logits_ne.span(),
                                                                                     .probability_ne = routes.probability_ne.span(),
                                                                                     .weight_nk = routes.weight_nk.span(),
                                                                                     .choice_nk = routes.choice_nk.span(),
                                                                                     .slot_nk = routes.slot_nk.span(),
                                                                                     .row_s = routes.row_s.span(),
                                                                                     .count_e = count_e.span(),
                                                                                     .load_e = load_e.extent(),
                                                                                     .target_n = target_n.extent(),
                                                                                     .counted_e = counted_e.extent()});
}

/// dlogits from gradients of the choices' weights and, with a load-balancing loss, of the experts' probabilities.
///   target_n   read: padding_target marks rows outside that loss; none: no padding
template <class Device, class T>
void expert_routing_backward(execution<Device>& on, const expert_routes<Device, accumulate_t<T>>& routes,
                             in_matrix<accumulate_t<T>, Device> dweight_nk, in_vector<accumulate_t<T>, Device> dprobability_e,
                             matrix<T, Device> dlogits_ne, in_vector<token, Device> target_n = {}) {
  const std::size_t n = dlogits_ne.shape(0), e = dlogits_ne.shape(1);
  detail::require_routes(routes, n, e);
  require_shape("expert_routing_backward: dweight_nk", dweight_nk.shape(), routes.weight_nk.shape());
  if (dprobability_e.exists()) require_shape("expert_routing_backward: dprobability_e", dprobability_e.shape(), {e});
  if (target_n.exists()) require_shape("expert_routing_backward: target_n", target_n.shape(), {n});
  launch(on, kernel::expert_routing_backward<typename Device::memory, T>{.n = n,
                                                                         .experts = e,
                                                                         .choices = routes.choice_nk.shape(1),
                                                                         .probability_ne = routes.probability_ne.span(),
                                                                         .weight_nk = routes.weight_nk.span(),
                                                                         .dweight_nk = dweight_nk.span(),
                                                                         .dprobability_e = dprobability_e.extent(),
                                                                         .choice_nk = routes.choice_nk.span(),
                                                                         .dlogits_ne = dlogits_ne.span(),
                                                                         .target_n = target_n.extent()});
}

/// y row i = or += Σ_j weight_ij · x row slot_ij. Without weights: the backward of dispatching rows into slots.
template <class Device, class T>
void expert_combine(execution<Device>& on, in_matrix<token, Device> slot_nk, in_matrix<accumulate_t<T>, Device> weight_nk,
                    in_matrix<T, Device> x_sc, matrix<T, Device> y_nc, result write_mode = result::replaces) {
  const std::size_t n = slot_nk.shape(0), k = slot_nk.shape(1), c = y_nc.shape(1);
  if (weight_nk.exists()) require_shape("expert_combine: weight_nk", weight_nk.shape(), {n, k});
  require_shape("expert_combine: x_sc", x_sc.shape(), {n * k, c});
  require_shape("expert_combine: y_nc", y_nc.shape(), {n, c});
  launch(on, kernel::expert_combine<typename Device::memory, T>{.n = n,
                                                                .c = c,
                                                                .choices = k,
                                                                .accumulate = write_mode == result::is_added,
                                                                .slot_nk = slot_nk.span(),
                                                                .weight_nk = weight_nk.extent(),
                                                                .x_sc = x_sc.span(),
                                                                .y_nc = y_nc.span()});
}

/// dx row slot_ij = weight_ij · dy row i, dweight_ij = dy row i · x row slot_ij; dx_sc may alias x_sc.
template <class Device, class T>
void expert_combine_backward(execution<Device>& on, in_matrix<token, Device> slot_nk, in_matrix<accumulate_t<T>, Device> weight_nk,
                             in_matrix<T, Device> x_sc, in_matrix<T, Device> dy_nc, matrix<T, Device> dx_sc,
                             matrix<accumulate_t<T>, Device> dweight_nk) {
  const std::size_t n = slot_nk.shape(0), k = slot_nk.shape(1), c = dy_nc.shape(1);
  require_shape("expert_combine_backward: weight_nk", weight_nk.shape(), {n, k});
  require_shape("expert_combine_backward: x_sc", x_sc.shape(), {n * k, c});
  require_shape("expert_combine_backward: dy_nc", dy_nc.shape(), {n, c});
  require_shape("expert_combine_backward: dx_sc", dx_sc.shape(), {n * k, c});
  require_shape("expert_combine_backward: dweight_nk", dweight_nk.shape(), {n, k});
  launch(on, kernel::expert_combine_backward<typename Device::memory, T>{.n = n,
                                                                         .c = c,
                                                                         .choices = k,
                                                                         .slot_nk = slot_nk.span(),
                                                                         .weight_nk = weight_nk.span(),
                                                                         .x_sc = x_sc.span(),
                                                                         .dy_nc = dy_nc.span(),
                                                                         .dx_sc = dx_sc.span(),
                                                                         .dweight_nk = dweight_nk.span()});
}

/// Adds the load-balancing loss of all layers to the loss of every row with a target; writes its gradient.
///   choices         of each counted row
///   weight          the loss's coefficient in each row's loss
///   gradient_scale  factor on the gradient of each row's loss
///   count_le, load_le, target_n read; loss_n added to; dprobability_e written
template <class T, class Device>
void expert_balance(execution<Device>& on, in_matrix<token, Device> count_le, in_matrix<accumulate_t<T>, Device> load_le,
                    std::size_t choices, in_vector<token, Device> target_n, std::size_t vocabulary, double weight,
                    kernel::scalar<typename Device::memory> gradient_scale, vector<accumulate_t<T>, Device> loss_n,
                    vector<accumulate_t<T>, Device> dprobability_e) {
  const std::size_t n = target_n.shape(0), l = count_le.shape(0), e = count_le.shape(1);
  require_shape("expert_balance: load_le", load_le.shape(), {l, e});
  require_shape("expert_balance: loss_n", loss_n.shape(), {n});
  require_shape("expert_balance: dprobability_e", dprobability_e.shape(), {e});
  launch(on, kernel::expert_balance<typename Device::memory, T>{.n = n,
                                                                .v = vocabulary,
                                                                .layers = l,
                                                                .experts = e,
                                                                .choices = choices,
                                                                .weight = weight,
                                                                .gradient_scale = gradient_scale.value,
                                                                .gradient_factor_1 = gradient_scale.factor_1,
                                                                .count_le = count_le.span(),
                                                                .target_n = target_n.span(),
                                                                .load_le = load_le.span(),
                                                                .loss_n = loss_n.span(),
                                                                .dprobability_e = dprobability_e.span()});
}

/// Rows of each expert: range_e2 [e, 2] written.
template <class Device>
void expert_ranges(execution<Device>& on, in_vector<token, Device> count_e, matrix<token, Device> range_e2) {
  require_shape("expert_ranges: range_e2", range_e2.shape(), {count_e.shape(0), 2});
  launch(on, kernel::expert_ranges<typename Device::memory>{.experts = count_e.shape(0), .count_e = count_e.span(), .range_e2 = range_e2.span()});
}

/// For each expert e, on rows range_e2[e]: y = x · w_eᵀ.
///   x_ni, w_eoi, range_e2 read, y_no written; w_eoi may be strided by expert
template <class Device, class T>
void grouped_linear(execution<Device>& on, in_matrix<T, Device> x_ni, in_tensor<T, 3, Device> w_eoi, in_matrix<token, Device> range_e2,
                    matrix<T, Device> y_no) {
  const std::size_t n = x_ni.shape(0), e = w_eoi.shape(0), o = w_eoi.shape(1), i = w_eoi.shape(2);
  require_shape("grouped_linear: x_ni", x_ni.shape(), {n, i});
  require_shape("grouped_linear: range_e2", range_e2.shape(), {e, 2});
  require_shape("grouped_linear: y_no", y_no.shape(), {n, o});
  launch(on, kernel::grouped_matmul<typename Device::memory, T, T>{.experts = e,
                                                                   .m = n,
                                                                   .n = o,
                                                                   .k = i,
                                                                   .lda = x_ni.stride(),
                                                                   .ldb = i,
                                                                   .ldc = y_no.stride(),
                                                                   .distance = w_eoi.stride(),
                                                                   .transpose_b = true,
                                                                   .range_e2 = range_e2.span(),
                                                                   .a = x_ni.extent(),
                                                                   .b = w_eoi.extent(),
                                                                   .c = y_no.extent()});
}

/// forward: y = x · w_eᵀ.   dx = dy · w_e
template <class Device, class T>
void grouped_linear_backward_input(execution<Device>& on, in_matrix<T, Device> dy_no, in_tensor<T, 3, Device> w_eoi, in_matrix<token, Device> range_e2,
                                   matrix<T, Device> dx_ni) {
  const std::size_t n = dy_no.shape(0), e = w_eoi.shape(0), o = w_eoi.shape(1), i = w_eoi.shape(2);
  require_shape("grouped_linear_backward_input: dy_no", dy_no.shape(), {n, o});
  require_shape("grouped_linear_backward_input: range_e2", range_e2.shape(), {e, 2});
  require_shape("grouped_linear_backward_input: dx_ni", dx_ni.shape(), {n, i});
  launch(on, kernel::grouped_matmul<typename Device::memory, T, T>{.experts = e,
                                                                   .m = n,
                                                                   .n = i,
                                                                   .k = o,
                                                                   .lda = dy_no.stride(),
                                                                   .ldb = i,
                                                                   .ldc = dx_ni.stride(),
                                                                   .distance = w_eoi.stride(),
                                                                   .range_e2 = range_e2.span(),
                                                                   .a = dy_no.extent(),
                                                                   .b = w_eoi.extent(),
                                                                   .c = dx_ni.extent()});
}

/// forward: y = x · w_eᵀ.   dw_e += dyᵀ · x
template <class Device, class T, class G>
void grouped_linear_backward_weight(execution<Device>& on, in_matrix<T, Device> dy_no, matrix_view<const T, typename Device::memory> x_ni,
                                    in_matrix<token, Device> range_e2, tensor_of<G, 3, Device> dw_eoi) {
  const std::size_t n = dy_no.shape(0), e = dw_eoi.shape(0), o = dw_eoi.shape(1), i = dw_eoi.shape(2);
  require_shape("grouped_linear_backward_weight: dy_no", dy_no.shape(), {n, o});
  require_shape("grouped_linear_backward_weight: x_ni", x_ni.shape(), {n, i});
  require_shape("grouped_linear_backward_weight: range_e2", range_e2.shape(), {e, 2});
  launch(on, kernel::grouped_matmul<typename Device::memory, T, G>{.experts = e,
                                                                   .m = o,
                                                                   .n = i,
                                                                   .k = n,
                                                                   .lda = dy_no.stride(),
                                                                   .ldb = x_ni.stride(),
                                                                   .ldc = i,
                                                                   .distance = dw_eoi.stride(),
                                                                   .transpose_a = true,
                                                                   .accumulate = true,
                                                                   .range_e2 = range_e2.span(),
                                                                   .a = dy_no.extent(),
                                                                   .b = x_ni.extent(),
                                                                   .c = dw_eoi.extent()});
}

}  // namespace xtrain::ops
