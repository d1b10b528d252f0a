// What an objective is: what training minimizes. A policy, its config, how many losses a batch has, and what a head computes.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <string_view>

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

}  // namespace clause

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
