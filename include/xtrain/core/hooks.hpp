// Optional members of policies: declared by tag, never guessed from a member's name.
#pragma once

#include <type_traits>

namespace xtrain {

/// The optional members of a policy: `using hooks = xtrain::hooks<xtrain::hook::upload>;`, or `xtrain::hooks<>`. Each tag has the name of the member, or is a
/// statement that needs no member.
template <class... Tags>
struct hooks {
  template <class Tag>
  static constexpr bool has = (std::is_same_v<Tag, Tags> || ...);
  template <class... Known>
  static constexpr bool all_among = (hooks<Known...>::template has<Tags> && ...);
};

template <class Policy, class Tag>
concept has_hook = Policy::hooks::template has<Tag>;

namespace hook {

// of an objective (objective/README.md)
struct balances_experts;      ///< constant: whether a load-balancing loss of experts can be added
struct can_be_captured;       ///< no member: the work is the same in every step
struct averages_tokens;       ///< no member: the mean may also be the mean of micro-batches' means (loss_average)
struct scores_sequences;      ///< no member: a score head replaces logits
struct log_prob_temperature;  ///< (config): what logits are divided by
struct require_model;         ///< (model): throws for a model that it cannot train
struct reported;              ///< (means): statistics as they are shown
struct is_cross_entropy;      ///< constant of the state, true: prepare() installs nothing
struct upload;                ///< (stream, batch, micro_batch), of the state: copies values of a batch to the device
struct reference_b;           ///< (micro_batch, sequences), of the state: where a reference model's log-probabilities are written
struct use_teacher;           ///< (source), of the state, with has_teacher() and teach(stream, batch, micro_batch)

// of an optimizer (optim/README.md)
struct layout_alignment;           ///< constant: models lay parameters and shards out at multiples of so many elements
struct has_learning_rate_factors;  ///< no member: a step multiplies the learning rate by decay_run::learning_rate_factor
struct steps_with_strategy;        ///< step(execution, store, step, strategy), of the state

}  // namespace hook

namespace clause {

template <class Policy>
concept policy_lists_its_hooks = requires {
  Policy::hooks::template all_among<>;
};

}  // namespace clause

}  // namespace xtrain
