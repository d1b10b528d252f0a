#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <xtrain/core/hooks.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/objective/objective_data.hpp>

namespace xtrain {

/// Maximum batch sizes.
struct objective_sizes {
  std::size_t num_tokens = 0;     ///< of a micro-batch, on this rank
  std::size_t sequences = 0;
  std::size_t micro_batches = 1;  ///< of a step
};

/// What an objective needs of a second model: nothing, log-probabilities of sequences by a reference model, or a teacher's logits.
enum class reference_use : std::uint8_t { none, sequence_log_probs, teacher_logits };

namespace clause {

template <class O>
concept objective_has_a_name = requires {
  { O::name } -> std::convertible_to<std::string_view>;
};

template <class O>
concept objective_config_is_default_initializable = std::default_initializable<typename O::config>;

/// count_losses(batch), or count_losses(config, batch): denominator of the mean loss, summed over all ranks' batches: targets, or pairs.
template <class O>
concept objective_counts_losses_by_its_config = requires(const typename O::config& config, const batch_view& batch) {
  { O::count_losses(config, batch) } -> std::same_as<double>;
};
template <class O>
concept objective_counts_losses = objective_counts_losses_by_its_config<O> || requires(const batch_view& batch) {
  { O::count_losses(batch) } -> std::same_as<double>;
};

/// require_batch(config, batch): throws when a batch lacks what the objective needs.
template <class O>
concept objective_checks_batches = requires(const typename O::config& config, const batch_view& batch) {
  O::require_batch(config, batch);
};

/// reference(config): what it needs of a second model.
template <class O>
concept objective_says_what_it_refers_to = requires(const typename O::config& config) {
  { O::reference(config) } -> std::same_as<reference_use>;
};

/// group_size: consecutive samples of a dataset that are compared; 2 for pairs.
template <class O>
concept objective_says_what_it_compares = requires {
  { O::group_size } -> std::convertible_to<std::size_t>;
};

/// statistics: names of at most four numbers that are summed over losses, for metrics.
template <class O>
concept objective_names_its_statistics = requires {
  { O::statistics.size() } -> std::convertible_to<std::size_t>;
};

template <class O>
concept objective_lists_its_hooks = policy_lists_its_hooks<O>;

/// state<Recipe>(config, context, sizes): its memory. prepare(pass, micro_batch) is called before every pass.
template <class O, class Recipe>
concept objective_state_prepares_passes =
    std::constructible_from<typename O::template state<Recipe>, const typename O::config&, const typename Recipe::device::context&, const objective_sizes&> &&
    requires(typename O::template state<Recipe>& state, pass<Recipe>& p, std::size_t micro_batch) {
  state.prepare(p, micro_batch);
};

template <class O>
concept objective_has_flag_as_member = requires { O::can_be_captured; } || requires { O::scores_sequences; } || requires { O::averages_tokens; } ||
    requires { O::uses_reference; } || requires { O::uses_teacher; } || requires { O::reads_labels; };
template <class State>
concept state_is_cross_entropy = requires { requires State::is_cross_entropy; };

template <class O>
concept objective_says_if_it_balances_experts = requires {
  { O::balances_experts } -> std::convertible_to<bool>;
};
template <class O>
concept objective_has_temperature = requires(const typename O::config& config) {
  { O::log_prob_temperature(config) } -> std::convertible_to<double>;
};
template <class O>
concept objective_converts_statistics = requires(const std::array<double, kernel::max_statistics>& means) {
  { O::reported(means) } -> std::convertible_to<std::array<double, kernel::max_statistics>>;
};
template <class O, class Model>
concept objective_checks_models = requires(const Model& model) {
  O::require_model(model);
};
template <class State, class Stream, class Data>
concept state_uploads_data = requires(State& state, Stream& stream, const Data& data) {
  state.upload(stream, data);
};

}  // namespace clause

namespace detail {

/// Names of hooks, and names close to them.
struct objective_names {
  int balances_experts, log_prob_temperature, reported, require_model, is_cross_entropy, upload;
  int balance_experts, log_probs_temperature, requires_model, require_models, can_capture, average_tokens, score_sequences;
  int uploads, upload_batch, on_upload;
};

/// Optional members must be listed, and listed hooks must be members. A function: clang++ reports only the first error in a class.
template <class O, class Recipe>
consteval bool objective_hooks_are_members() {
  using state = typename O::template state<Recipe>;
  using stream = typename Recipe::device::stream;
  using data = objective_data<typename Recipe::device, accumulate_t<typename pass<Recipe>::compute>>;
  using names = objective_names;
  static_assert(O::hooks::template all_among<hook::balances_experts, hook::can_be_captured, hook::scores_sequences, hook::averages_tokens,
                                             hook::log_prob_temperature, hook::require_model, hook::reported, hook::is_cross_entropy, hook::upload,
                                             hook::uses_reference, hook::uses_teacher, hook::reads_labels>,
                "xtrain recipe: the objective's hooks must be tags of objectives; see objective/README.md");
  static_assert(!clause::objective_has_flag_as_member<O>,
                "xtrain recipe: 'can_be_captured', 'scores_sequences', 'averages_tokens', 'uses_reference', 'uses_teacher' and 'reads_labels' must be tags in "
                "the objective's hooks, not members; see objective/README.md");
  static_assert(is_as_listed(has_hook<O, hook::balances_experts>, clause::objective_says_if_it_balances_experts<O>,
                             XTRAIN_HAS_NAME(O, names, balances_experts)),
                "xtrain recipe: 'balances_experts' must be both a member of the objective and in its hooks, or neither; see objective/README.md");
  static_assert(is_as_listed(has_hook<O, hook::log_prob_temperature>, clause::objective_has_temperature<O>, XTRAIN_HAS_NAME(O, names, log_prob_temperature)),
                "xtrain recipe: 'log_prob_temperature(config)' must be both a member of the objective and in its hooks, or neither; see objective/README.md");
  static_assert(is_as_listed(has_hook<O, hook::reported>, clause::objective_converts_statistics<O>, XTRAIN_HAS_NAME(O, names, reported)),
                "xtrain recipe: 'reported(means)' must be both a member of the objective and in its hooks, or neither; see objective/README.md");
  static_assert(is_as_listed(has_hook<O, hook::is_cross_entropy>, clause::state_is_cross_entropy<state>, XTRAIN_HAS_NAME(state, names, is_cross_entropy)),
                "xtrain recipe: 'is_cross_entropy' must be both a member of the objective's state and in the objective's hooks, or neither; see "
                "objective/README.md");
  static_assert(is_as_listed(has_hook<O, hook::upload>, clause::state_uploads_data<state, stream, data>, XTRAIN_HAS_NAME(state, names, upload)),
                "xtrain recipe: 'upload(stream, data)' must be both a member of the objective's state and in the objective's hooks, or neither; see "
                "objective/README.md");
  static_assert(has_hook<O, hook::upload> || !(has_hook<O, hook::uses_reference> || has_hook<O, hook::uses_teacher> || has_hook<O, hook::reads_labels>),
                "xtrain recipe: an objective with the hook 'uses_reference', 'uses_teacher' or 'reads_labels' must have 'upload(stream, data)', which gets "
                "them; see objective/README.md");
  static_assert(!XTRAIN_HAS_NAME(O, names, upload) && !XTRAIN_HAS_NAME(O, names, is_cross_entropy),
                "xtrain recipe: 'upload' and 'is_cross_entropy' must be members of the objective's state, not of the objective; see objective/README.md");
  static_assert(!XTRAIN_HAS_NAME(state, names, balances_experts) && !XTRAIN_HAS_NAME(state, names, log_prob_temperature) &&
                    !XTRAIN_HAS_NAME(state, names, reported) && !XTRAIN_HAS_NAME(state, names, require_model),
                "xtrain recipe: 'balances_experts', 'log_prob_temperature', 'reported' and 'require_model' must be members of the objective, not of its state; "
                "see objective/README.md");
  XTRAIN_REFUSE_NAME("objective", O, O, names, balance_experts, balances_experts, "balances_experts");
  XTRAIN_REFUSE_NAME("objective", O, O, names, log_probs_temperature, log_prob_temperature, "log_prob_temperature");
  XTRAIN_REFUSE_NAME("objective", O, O, names, requires_model, require_model, "require_model");
  XTRAIN_REFUSE_NAME("objective", O, O, names, require_models, require_model, "require_model");
  XTRAIN_REFUSE_NAME("objective", O, O, names, can_capture, can_be_captured, "can_be_captured");
  XTRAIN_REFUSE_NAME("objective", O, O, names, average_tokens, averages_tokens, "averages_tokens");
  XTRAIN_REFUSE_NAME("objective", O, O, names, score_sequences, scores_sequences, "scores_sequences");
  XTRAIN_REFUSE_NAME("objective's state", O, state, names, uploads, upload, "upload");
  XTRAIN_REFUSE_NAME("objective's state", O, state, names, upload_batch, upload, "upload");
  XTRAIN_REFUSE_NAME("objective's state", O, state, names, on_upload, upload, "upload");
  static_assert(O::statistics.size() <= kernel::max_statistics, "xtrain recipe: the objective must have at most four statistics; see objective/README.md");
  return true;
}
template <class O, class Model>
consteval bool objective_checks_this_model() {
  static_assert(is_as_listed(has_hook<O, hook::require_model>, clause::objective_checks_models<O, Model>, XTRAIN_HAS_NAME(O, objective_names, require_model)),
                "xtrain recipe: 'require_model(model)' must be both a member of the objective and in its hooks, or neither; see objective/README.md");
  return true;
}

}  // namespace detail

/// An objective policy; objective_for checks whether it supports a recipe.
template <class O>
concept objective = clause::objective_has_a_name<O> && clause::objective_config_is_default_initializable<O> && clause::objective_counts_losses<O> &&
    clause::objective_checks_batches<O> && clause::objective_says_what_it_refers_to<O> && clause::objective_says_what_it_compares<O> &&
    clause::objective_names_its_statistics<O> && clause::objective_lists_its_hooks<O>;

/// An objective whose state works with this recipe.
template <class O, class Recipe>
concept objective_for = objective<O> && clause::objective_state_prepares_passes<O, Recipe>;

/// Whether experts' load-balancing loss (one per target) can be added: not if the objective compares sequences, or weighs tokens by advantages or returns.
/// Objectives of single samples exclude it by the hook `balances_experts` = false.
template <objective O>
[[nodiscard]] consteval bool goes_with_balanced_experts() {
  if constexpr (has_hook<O, hook::balances_experts>) return O::balances_experts;
  else return O::group_size == 1;
}

/// This batch's part of the denominator of the mean loss.
template <objective O>
[[nodiscard]] double count_losses(const typename O::config& config, const batch_view& batch) {
  if constexpr (clause::objective_counts_losses_by_its_config<O>) return O::count_losses(config, batch);
  else return O::count_losses(batch);
}

}  // namespace xtrain
