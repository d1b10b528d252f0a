// Optional members of policies, declared by tag.
#pragma once

#include <type_traits>

/// In a template: whether the class has a member of the name, of any kind, signature and access. Of a final class: one that is accessible and not overloaded,
/// or a function of at most four arguments.
///   NAMES   a class with members of these names
#define XTRAIN_HAS_NAME(CLASS, NAMES, NAME)                                                                                                   \
  (!requires { &::xtrain::detail::with_names<CLASS, NAMES>::NAME; } || requires { &CLASS::NAME; } ||                                          \
   requires(::xtrain::detail::final_class_t<CLASS>& object) { object.NAME(); } ||                                                             \
   requires(::xtrain::detail::final_class_t<CLASS>& object, ::xtrain::detail::any_value any) { object.NAME(any); } ||                      \
   requires(::xtrain::detail::final_class_t<CLASS>& object, ::xtrain::detail::any_value any) { object.NAME(any, any); } ||                 \
   requires(::xtrain::detail::final_class_t<CLASS>& object, ::xtrain::detail::any_value any) { object.NAME(any, any, any); } ||            \
   requires(::xtrain::detail::final_class_t<CLASS>& object, ::xtrain::detail::any_value any) { object.NAME(any, any, any, any); })
/// In a template: refuses a member with a name close to a hook's, unless the policy lists the hook: the member is then its own.
///   HOOK    begins with the name of TAG
#define XTRAIN_REFUSE_NAME(OWNER, POLICY, CLASS, NAMES, NAME, TAG, HOOK)                            \
  static_assert(::xtrain::has_hook<POLICY, ::xtrain::hook::TAG> || !XTRAIN_HAS_NAME(CLASS, NAMES, NAME), \
                "xtrain recipe: '" #NAME "' of the " OWNER " is no hook; did you mean the hook '" HOOK "'? Otherwise rename it")

namespace xtrain {

/// `using hooks = xtrain::hooks<xtrain::hook::upload>;`, or `xtrain::hooks<>`. A tag is a member's name, or a statement without a member.
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

// objective (objective/README.md)
struct balances_experts;      ///< constant: a load-balancing loss of experts can be added
struct can_be_captured;       ///< no member: equal work in every step
struct averages_tokens;       ///< no member: the mean may be of micro-batches' means (loss_average)
struct scores_sequences;      ///< no member: a score head replaces logits
struct log_prob_temperature;  ///< (config): divisor of logits
struct require_model;         ///< (model): throws for a model that cannot be trained
struct reported;              ///< (means): shown statistics
struct is_cross_entropy;      ///< constant of the state, true: prepare() installs nothing
struct upload;                ///< (stream, data), state: copies values of a micro-batch and of second models to the device (objective_data)
struct uses_reference;        ///< no member: upload may need a reference model's log-probabilities
struct uses_teacher;          ///< no member: upload may need a teacher
struct reads_labels;          ///< no member, of sequence_objective: batches have labels

// optimizer (optim/README.md)
struct layout_alignment;           ///< constant: alignment of parameters and shards, in elements
struct has_learning_rate_factors;  ///< no member: steps use parameter_slice::learning_rate_factor
struct steps_with_strategy;        ///< step(execution, store, step, strategy), state

// adapter (adapt/README.md)
struct can_be_switched_off;       ///< no member: without the adapter a pass is the base model's
struct quantizes_weights;         ///< no member: frozen linear weights have four bits, or integers of weight_bits
struct stores_blocks;             ///< no member: frozen linear weights may be in a GGUF file's blocks
struct on_weights_loaded;         ///< (store, stream): after base weights are loaded or initialized
struct on_table;                  ///< on_table<Recipe>: for embedding tables
struct on_attention;              ///< on_attention<Recipe>, with the config's tokens_before() and positions_before()
struct on_head;                   ///< on_head<Recipe>: adds to logits
struct drops_input;               ///< (), on_linear: dropout on x
struct works_on_rows;             ///< (), on_linear: only operations on rows
struct adds_nothing;              ///< (), on_linear: only the product with the weight
struct quantizes;                 ///< (pass), on_linear: replaces the layer's operands
struct quantized_outputs;         ///< (), on_linear: outputs with replaced operands
struct trains_bias;               ///< (module, is_linear), config: trains a bias without its weight
struct adapts_table;              ///< (module), config: a table or head is a target
struct weight_bits;               ///< config: bits of integers; 0: not quantized
struct fake_quant_after_n_steps;  ///< config: steps before rounding starts

// parallel strategy (parallel/README.md)
struct runner;               ///< runner<Model>: runs a step's micro-batches
struct ranks;                ///< config: the transport between ranks; null: one rank
struct add_up;               ///< (sums), state: sums over pipeline stages
struct steps_are_queued;     ///< (count), state: steps queued by the trainer
struct collects_with_index;  ///< no member: collect() of the state takes an array's index, too
struct collect_state;        ///< (stream, store, entry, first, own, whole), state: gathers an array of any shape; with writes_state()
struct combines_matrices;    ///< no member: the state has gather_pieces(), sum_pieces() and sum_tensor_shards()

}  // namespace hook

namespace detail {

/// Members of T and of Names: a name that both have is ambiguous.
template <class T, class Names>
struct named_members : T, Names {};
template <class T, class Names>
using with_names = named_members<std::conditional_t<std::is_final_v<T> || !std::is_class_v<T>, hooks<>, T>, Names>;
template <class T>
using final_class_t = std::conditional_t<std::is_final_v<T>, T, hooks<>>;
struct any_value {
  template <class T>
  operator T&() const;
};
/// A listed hook must be a member with its signature; without a tag, no member may have the name.
[[nodiscard]] consteval bool is_as_listed(bool listed, bool is_member, bool has_name) { return listed ? is_member : !is_member && !has_name; }

template <class T>
inline constexpr bool is_list_of_hooks = false;
template <class... Tags>
inline constexpr bool is_list_of_hooks<hooks<Tags...>> = true;

}  // namespace detail

namespace clause {

template <class Policy>
concept policy_lists_its_hooks = detail::is_list_of_hooks<typename Policy::hooks>;

}  // namespace clause

}  // namespace xtrain
