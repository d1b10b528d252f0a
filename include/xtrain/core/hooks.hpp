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

/// Whether a policy lists the tag in its hooks.
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

// of an adapter (adapt/README.md)
struct can_be_switched_off;       ///< no member: a pass without the adapter is the base model
struct quantizes_weights;         ///< no member: frozen weights of linear layers are stored in four bits, or as integers of weight_bits
struct stores_blocks;             ///< no member: frozen weights of linear layers may be stored in a GGUF file's blocks
struct on_weights_loaded;         ///< (store, stream): called when base weights are loaded or initialized
struct on_table;                  ///< on_table<Recipe>: the part of an embedding table
struct on_attention;              ///< on_attention<Recipe>, with tokens_before() and positions_before() of the config
struct on_head;                   ///< on_head<Recipe>: adds to the logits of a decoder's head
struct drops_input;               ///< (), of on_linear: dropout on x
struct works_on_rows;             ///< (), of on_linear: only operations on rows
struct adds_nothing;              ///< (), of on_linear: the layer is a product with the weight
struct quantizes;                 ///< (pass), of on_linear: the adapter replaces the layer's operands
struct quantized_outputs;         ///< (), of on_linear: ranges of outputs whose operands are replaced
struct trains_bias;               ///< (module, is_linear), of the config: a bias is trained although its weight is not
struct adapts_table;              ///< (module), of the config: a table or a head is a target
struct weight_bits;               ///< member of the config: bits of the integers; 0: weights as they are
struct fake_quant_after_n_steps;  ///< member of the config: steps before weights are rounded

}  // namespace hook

namespace clause {

template <class Policy>
concept policy_lists_its_hooks = requires {
  Policy::hooks::template all_among<>;
};

}  // namespace clause

}  // namespace xtrain
