// Requirements on a precision policy.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <xtrain/core/dtype.hpp>

namespace xtrain {

/// Rounding of an updated weight.
enum class rounding : std::uint8_t { nearest, stochastic };

namespace clause {

template <class P>
concept precision_has_a_name = requires {
  { P::name } -> std::convertible_to<std::string_view>;
};

template <class P>
concept precision_names_a_dtype_for_every_role = dtype<typename P::parameter> && dtype<typename P::compute> &&
    dtype<typename P::gradient> && dtype<typename P::master> && dtype<typename P::state>;

template <class P>
concept precision_says_how_updates_are_rounded = std::same_as<std::remove_cv_t<decltype(P::update)>, rounding>;

template <class P>
concept precision_says_whether_the_loss_is_scaled = requires {
  { P::scales_loss } -> std::same_as<const bool&>;
};

/// Kernels multiply weights and activations of the same dtype.
template <class P>
concept parameter_is_of_compute_type = std::same_as<typename P::parameter, typename P::compute>;

/// Kernels accumulate in accumulate_t<compute> and round a weight gradient to compute once, or not at all.
template <class P>
concept gradient_is_of_compute_or_accumulate_type =
    std::same_as<typename P::gradient, typename P::compute> || std::same_as<typename P::gradient, accumulate_t<typename P::compute>>;

template <class P>
concept master_not_narrower_than_parameter =
    dtype_traits<typename P::master>::unit_roundoff <= dtype_traits<typename P::parameter>::unit_roundoff;

/// Otherwise updates below half a unit in the last place vanish and training stalls silently.
template <class P>
concept narrow_parameters_have_a_master_or_round_stochastically =
    sizeof(typename P::parameter) > 2 || !std::same_as<typename P::parameter, typename P::master> || P::update == rounding::stochastic;

/// Gradients below 6e-8 underflow to zero in fp16.
template <class P>
concept narrow_exponent_scales_the_loss =
    (dtype_traits<typename P::compute>::exponent_bits >= 8 && dtype_traits<typename P::gradient>::exponent_bits >= 8) || P::scales_loss;

}  // namespace clause

/// Dtypes by role, and how updates are rounded.
template <class P>
concept precision = clause::precision_has_a_name<P> && clause::precision_names_a_dtype_for_every_role<P> &&
    clause::precision_says_how_updates_are_rounded<P> && clause::precision_says_whether_the_loss_is_scaled<P> &&
    clause::parameter_is_of_compute_type<P> && clause::gradient_is_of_compute_or_accumulate_type<P> &&
    clause::master_not_narrower_than_parameter<P> && clause::narrow_parameters_have_a_master_or_round_stochastically<P> &&
    clause::narrow_exponent_scales_the_loss<P>;

/// The optimizer has master weights in a wider dtype than layers read.
template <class P>
inline constexpr bool has_master_copy = !std::is_same_v<typename P::master, typename P::parameter>;

}  // namespace xtrain
