// What an objective is: what training minimizes. A policy, its config, how many losses a batch has, and what a head computes.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/pass.hpp>

namespace xtrain {

/// The largest batches that an objective will see.
struct objective_sizes {
  std::size_t num_tokens = 0;     ///< of a micro-batch, on this rank
  std::size_t sequences = 0;      ///< of a micro-batch
  std::size_t micro_batches = 1;  ///< of a step
};

/// Log-probabilities of sequences by a reference model, for the micro-batches of a step; none where an objective needs none.
enum class reference_use : bool { none, sequence_log_probs };

namespace clause {

template <class O>
concept objective_has_a_name = requires {
  { O::name } -> std::convertible_to<std::string_view>;
};

template <class O>
concept objective_config_is_default_initializable = std::default_initializable<typename O::config>;

/// count_losses(batch), or count_losses(config, batch): the denominator of the mean loss, a sum over the batches of all ranks: targets, or pairs.
template <class O>
concept objective_counts_losses_by_its_config = requires(const typename O::config& config, const batch_view& batch) {
  { O::count_losses(config, batch) } -> std::same_as<double>;
};
template <class O>
concept objective_counts_losses = objective_counts_losses_by_its_config<O> || requires(const batch_view& batch) {
  { O::count_losses(batch) } -> std::same_as<double>;
};

/// require_batch(config, batch): throws when a batch does not have what the objective needs.
template <class O>
concept objective_checks_batches = requires(const typename O::config& config, const batch_view& batch) {
  O::require_batch(config, batch);
};

/// reference(config): whether it needs a reference model.
template <class O>
concept objective_says_what_it_refers_to = requires(const typename O::config& config) {
  { O::reference(config) } -> std::same_as<reference_use>;
};

/// group_size: how many consecutive samples of a dataset an objective compares; 2 for pairs.
template <class O>
concept objective_says_what_it_compares = requires {
  { O::group_size } -> std::convertible_to<std::size_t>;
};

/// statistics: names of at most four numbers that are summed over losses beside the loss, for metrics.
template <class O>
concept objective_names_its_statistics = requires {
  { O::statistics.size() } -> std::convertible_to<std::size_t>;
};

/// state<Recipe>(config, context, sizes): its memory. prepare(pass, micro_batch) is called before every pass.
template <class O, class Recipe>
concept objective_state_prepares_passes =
    std::constructible_from<typename O::template state<Recipe>, const typename O::config&, const typename Recipe::device::context&, const objective_sizes&> &&
    requires(typename O::template state<Recipe>& state, pass<Recipe>& p, std::size_t micro_batch) {
  state.prepare(p, micro_batch);
};

/// Names that are often meant for an optional member, which has an effect only under its own name.
template <class O>
concept objective_has_other_name_for_balances_experts = requires { O::balance_experts; } || requires { O::balances_expert; } ||
    requires { O::with_balanced_experts; } || requires { O::balances_load; };
template <class O>
concept objective_has_other_name_for_can_be_captured = requires { O::can_capture; } || requires { O::is_captured; } || requires { O::capturable; } ||
    requires { O::captures_steps; };
template <class O>
concept objective_has_other_name_for_scores_sequences = requires { O::score_sequences; } || requires { O::scores_sequence; } || requires { O::has_score_head; };
/// Constants: a state may have a member with the cross-entropy.
template <class State>
concept state_has_other_name_for_cross_entropy =
    requires { typename std::bool_constant<State::cross_entropy>; } || requires { typename std::bool_constant<State::is_crossentropy>; } ||
    requires { typename std::bool_constant<State::predicts_next_token>; };
template <class State>
concept state_has_near_name_of_upload = requires { &State::uploads; } || requires { &State::upload_batch; } || requires { &State::load_batch; } ||
    requires { &State::copy_to_device; };

/// upload(stream, batch, micro_batch), if the state has it.
template <class State, class Stream>
concept state_uploads_batches = requires(State& state, Stream& stream, const batch_view& batch, std::size_t micro_batch) {
  state.upload(stream, batch, micro_batch);
};
template <class State, class Stream>
concept state_has_other_name_for_upload = !state_uploads_batches<State, Stream> && state_has_near_name_of_upload<State>;
template <class State, class Stream>
concept state_uploads_something_else = !state_uploads_batches<State, Stream> &&
    (requires { &State::upload; } || requires(State& state, Stream& stream, const batch_view& batch) { state.upload(stream, batch); } ||
     requires(State& state, const batch_view& batch) { state.upload(batch); } ||
     requires(State& state, const batch_view& batch, std::size_t micro_batch) { state.upload(batch, micro_batch); });

}  // namespace clause

namespace detail {

/// Optional members that would have no effect do not compile. A function, since clang++ stops at the first such member in a class.
template <class O, class Recipe>
consteval bool objective_hooks_are_named() {
  using state = typename O::template state<Recipe>;
  static_assert(!clause::objective_has_other_name_for_balances_experts<O>,
                "xtrain recipe: 'balances_experts' is the name of the objective's optional member; a member with another name has no effect "
                "(balance_experts, balances_expert, with_balanced_experts, balances_load); see objective/README.md");
  static_assert(!clause::objective_has_other_name_for_can_be_captured<O>,
                "xtrain recipe: 'can_be_captured' is the name of the objective's optional member; a member with another name has no effect "
                "(can_capture, is_captured, capturable, captures_steps); see objective/README.md");
  static_assert(!clause::objective_has_other_name_for_scores_sequences<O>,
                "xtrain recipe: 'scores_sequences' is the name of the objective's optional member; a member with another name has no effect "
                "(score_sequences, scores_sequence, has_score_head); see objective/README.md");
  static_assert(!clause::state_has_other_name_for_cross_entropy<state>,
                "xtrain recipe: 'is_cross_entropy' is the name of an optional member of the objective's state; a member with another name has no effect "
                "(cross_entropy, is_crossentropy, predicts_next_token); see objective/README.md");
  static_assert(!clause::state_has_other_name_for_upload<state, typename Recipe::device::stream>,
                "xtrain recipe: 'upload' is the name of an optional member of the objective's state; a member with another name has no effect "
                "(uploads, upload_batch, load_batch, copy_to_device); see objective/README.md");
  static_assert(!clause::state_uploads_something_else<state, typename Recipe::device::stream>,
                "xtrain recipe: 'upload' of the objective's state must take (stream, batch, micro_batch); with other arguments nothing calls it; see "
                "objective/README.md");
  static_assert(O::statistics.size() <= 4, "xtrain recipe: the objective must have at most four statistics; see objective/README.md");
  return true;
}

}  // namespace detail

/// An objective policy. Whether it supports a recipe is checked by objective_for.
template <class O>
concept objective = clause::objective_has_a_name<O> && clause::objective_config_is_default_initializable<O> && clause::objective_counts_losses<O> &&
    clause::objective_checks_batches<O> && clause::objective_says_what_it_refers_to<O> && clause::objective_says_what_it_compares<O> &&
    clause::objective_names_its_statistics<O>;

/// An objective whose state works with this recipe.
template <class O, class Recipe>
concept objective_for = objective<O> && clause::objective_state_prepares_passes<O, Recipe>;

/// Whether a load-balancing loss of experts, which is one per target, can be added to the objective's: not where that compares sequences, or weighs tokens by
/// advantages or returns. An objective of single samples for which it cannot says so: `balances_experts` is false.
template <objective O>
[[nodiscard]] consteval bool goes_with_balanced_experts() {
  if constexpr (requires { O::balances_experts; }) return O::balances_experts;
  else return O::group_size == 1;
}

/// The denominator of the mean loss: this batch's part of it.
template <objective O>
[[nodiscard]] double count_losses(const typename O::config& config, const batch_view& batch) {
  if constexpr (clause::objective_counts_losses_by_its_config<O>) return O::count_losses(config, batch);
  else return O::count_losses(batch);
}

}  // namespace xtrain
