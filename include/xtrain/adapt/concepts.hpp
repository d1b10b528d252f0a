// Adapter policies: which modules they train, and what they add to a linear layer.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/hooks.hpp>

namespace xtrain {

namespace clause {

template <class A>
concept adapter_has_a_name = requires {
  { A::name } -> std::convertible_to<std::string_view>;
};

/// freezes_weights: only the adapter is trained and saved.
template <class A>
concept adapter_says_whether_weights_freeze = requires {
  { A::freezes_weights } -> std::convertible_to<bool>;
};

/// config::trains(module): a base module's parameters are trained. A default config is valid.
template <class A>
concept adapter_config_says_what_is_trained = std::default_initializable<typename A::config> &&
    requires(typename A::config& config, const std::string& module, const std::vector<std::string>& targets) {
  { config.trains(module) } -> std::convertible_to<bool>;
  config.choose_targets(targets);
};

struct any_store {};

/// config::finish(store), after all layers have declared parameters, can reject targets without a module.
template <class A>
concept adapter_config_sees_the_finished_store = requires(const typename A::config& config, const any_store& store) {
  config.finish(store);
};

/// is_own(name): the parameter is the adapter's.
template <class A>
concept adapter_knows_its_parameters = requires(std::string_view name) {
  { A::is_own(name) } -> std::convertible_to<bool>;
};

/// hooks: the optional members.
template <class A>
concept adapter_lists_its_hooks = policy_lists_its_hooks<A>;

template <class A>
concept adapter_has_flag_as_member = requires { A::can_be_switched_off; } || requires { A::quantizes_weights; } || requires { A::stores_blocks; };
template <class A, class Store, class Stream>
concept adapter_sees_loaded_weights = requires(const Store& store, Stream& stream) { A::on_weights_loaded(store, stream); };
template <class A, class Recipe>
concept adapter_has_on_table = requires { typename A::template on_table<Recipe>; };
template <class A, class Recipe>
concept adapter_has_on_attention = requires { typename A::template on_attention<Recipe>; };
template <class A, class Recipe>
concept adapter_has_on_head = requires { typename A::template on_head<Recipe>; };
template <class Linear>
concept on_linear_drops_input = requires(const Linear& linear) { linear.drops_input(); };
template <class Linear>
concept on_linear_works_on_rows = requires(const Linear& linear) { linear.works_on_rows(); };
template <class Linear>
concept on_linear_adds_nothing = requires(const Linear& linear) { linear.adds_nothing(); };
template <class Linear, class Pass>
concept on_linear_quantizes = requires(const Linear& linear, const Pass& p) { linear.quantizes(p); };
template <class Linear>
concept on_linear_has_quantized_outputs = requires(const Linear& linear) { linear.quantized_outputs(); };
template <class Config>
concept adapter_config_puts_tokens_before = requires(const Config& config) {
  { config.tokens_before() } -> std::convertible_to<std::size_t>;
  { config.positions_before() } -> std::convertible_to<std::size_t>;
};
template <class Config>
concept adapter_config_trains_biases = requires(const Config& config, const std::string& module) { config.trains_bias(module, true); };
template <class Config>
concept adapter_config_adapts_tables = requires(const Config& config, const std::string& module) { config.adapts_table(module); };
template <class Config>
concept adapter_config_has_weight_bits = requires(const Config& config) { config.weight_bits; };
template <class Config>
concept adapter_config_delays_rounding = requires(const Config& config) { config.fake_quant_after_n_steps; };

}  // namespace clause

namespace detail {

/// Names of hooks, and names close to them.
struct adapter_names {
  int on_weights_loaded, on_table, on_attention, on_head, drops_input, works_on_rows, adds_nothing, quantizes, quantized_outputs, trains_bias, adapts_table;
  int weight_bits, fake_quant_after_n_steps, tokens_before, positions_before;
  int on_weight_loaded, on_loaded_weights, on_tables, on_heads, can_switch_off, quantize_weights, store_blocks;
  int drop_input, drops_inputs, work_on_rows, works_on_row, add_nothing, quantises, quantized_output, quantises_weights;
  int trains_biases, adapt_table, adapts_tables, weights_bits, fake_quant_after_steps, token_before, position_before;
};

/// An optional member that is not listed, or listed and missing, does not compile. A function, since clang++ stops at the first such member in a class.
template <class A, class Recipe, class Pass, class Store, class Stream>
consteval bool adapter_hooks_are_members() {
  using config = typename A::config;
  using linear = typename A::template on_linear<Recipe>;
  using names = adapter_names;
  static_assert(A::hooks::template all_among<hook::can_be_switched_off, hook::quantizes_weights, hook::stores_blocks, hook::on_weights_loaded, hook::on_table,
                                             hook::on_attention, hook::on_head, hook::drops_input, hook::works_on_rows, hook::adds_nothing, hook::quantizes,
                                             hook::quantized_outputs, hook::trains_bias, hook::adapts_table, hook::weight_bits,
                                             hook::fake_quant_after_n_steps>,
                "xtrain recipe: the adapter's hooks must be tags of adapters; see adapt/README.md");
  static_assert(!clause::adapter_has_flag_as_member<A>,
                "xtrain recipe: 'can_be_switched_off', 'quantizes_weights' and 'stores_blocks' must be tags in the adapter's hooks, not members; see "
                "adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::on_weights_loaded>, clause::adapter_sees_loaded_weights<A, Store, Stream>,
                             XTRAIN_HAS_NAME(A, names, on_weights_loaded)),
                "xtrain recipe: 'on_weights_loaded(store, stream)' must be both a member of the adapter and in its hooks, or neither; see adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::on_table>, clause::adapter_has_on_table<A, Recipe>, XTRAIN_HAS_NAME(A, names, on_table)),
                "xtrain recipe: 'on_table' must be both a member of the adapter and in its hooks, or neither; see adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::on_attention>, clause::adapter_has_on_attention<A, Recipe>, XTRAIN_HAS_NAME(A, names, on_attention)) &&
                    is_as_listed(has_hook<A, hook::on_attention>, clause::adapter_config_puts_tokens_before<config>,
                                 XTRAIN_HAS_NAME(config, names, tokens_before) || XTRAIN_HAS_NAME(config, names, positions_before)),
                "xtrain recipe: 'on_attention', and tokens_before() and positions_before() of the config, must be both members of the adapter and in its hooks, "
                "or neither; see adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::on_head>, clause::adapter_has_on_head<A, Recipe>, XTRAIN_HAS_NAME(A, names, on_head)),
                "xtrain recipe: 'on_head' must be both a member of the adapter and in its hooks, or neither; see adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::drops_input>, clause::on_linear_drops_input<linear>, XTRAIN_HAS_NAME(linear, names, drops_input)),
                "xtrain recipe: 'drops_input()' must be both a member of on_linear and in the adapter's hooks, or neither; see adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::works_on_rows>, clause::on_linear_works_on_rows<linear>, XTRAIN_HAS_NAME(linear, names, works_on_rows)),
                "xtrain recipe: 'works_on_rows()' must be both a member of on_linear and in the adapter's hooks, or neither; see adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::adds_nothing>, clause::on_linear_adds_nothing<linear>, XTRAIN_HAS_NAME(linear, names, adds_nothing)),
                "xtrain recipe: 'adds_nothing()' must be both a member of on_linear and in the adapter's hooks, or neither; see adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::quantizes>, clause::on_linear_quantizes<linear, Pass>, XTRAIN_HAS_NAME(linear, names, quantizes)),
                "xtrain recipe: 'quantizes(pass)' must be both a member of on_linear and in the adapter's hooks, or neither; see adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::quantized_outputs>, clause::on_linear_has_quantized_outputs<linear>,
                             XTRAIN_HAS_NAME(linear, names, quantized_outputs)),
                "xtrain recipe: 'quantized_outputs()' must be both a member of on_linear and in the adapter's hooks, or neither; see adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::trains_bias>, clause::adapter_config_trains_biases<config>, XTRAIN_HAS_NAME(config, names, trains_bias)),
                "xtrain recipe: 'trains_bias(module, is_linear)' must be both a member of the adapter's config and in its hooks, or neither; see "
                "adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::adapts_table>, clause::adapter_config_adapts_tables<config>, XTRAIN_HAS_NAME(config, names, adapts_table)),
                "xtrain recipe: 'adapts_table(module)' must be both a member of the adapter's config and in its hooks, or neither; see adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::weight_bits>, clause::adapter_config_has_weight_bits<config>, XTRAIN_HAS_NAME(config, names, weight_bits)),
                "xtrain recipe: 'weight_bits' must be both a member of the adapter's config and in its hooks, or neither; see adapt/README.md");
  static_assert(is_as_listed(has_hook<A, hook::fake_quant_after_n_steps>, clause::adapter_config_delays_rounding<config>,
                             XTRAIN_HAS_NAME(config, names, fake_quant_after_n_steps)),
                "xtrain recipe: 'fake_quant_after_n_steps' must be both a member of the adapter's config and in its hooks, or neither; see adapt/README.md");
  XTRAIN_REFUSE_NAME("adapter", A, A, names, on_weight_loaded, on_weights_loaded, "on_weights_loaded");
  XTRAIN_REFUSE_NAME("adapter", A, A, names, on_loaded_weights, on_weights_loaded, "on_weights_loaded");
  XTRAIN_REFUSE_NAME("adapter", A, A, names, on_tables, on_table, "on_table");
  XTRAIN_REFUSE_NAME("adapter", A, A, names, on_heads, on_head, "on_head");
  XTRAIN_REFUSE_NAME("adapter", A, A, names, can_switch_off, can_be_switched_off, "can_be_switched_off");
  XTRAIN_REFUSE_NAME("adapter", A, A, names, quantize_weights, quantizes_weights, "quantizes_weights");
  XTRAIN_REFUSE_NAME("adapter", A, A, names, quantises_weights, quantizes_weights, "quantizes_weights");
  XTRAIN_REFUSE_NAME("adapter", A, A, names, store_blocks, stores_blocks, "stores_blocks");
  XTRAIN_REFUSE_NAME("adapter's on_linear", A, linear, names, drop_input, drops_input, "drops_input");
  XTRAIN_REFUSE_NAME("adapter's on_linear", A, linear, names, drops_inputs, drops_input, "drops_input");
  XTRAIN_REFUSE_NAME("adapter's on_linear", A, linear, names, work_on_rows, works_on_rows, "works_on_rows");
  XTRAIN_REFUSE_NAME("adapter's on_linear", A, linear, names, works_on_row, works_on_rows, "works_on_rows");
  XTRAIN_REFUSE_NAME("adapter's on_linear", A, linear, names, add_nothing, adds_nothing, "adds_nothing");
  XTRAIN_REFUSE_NAME("adapter's on_linear", A, linear, names, quantises, quantizes, "quantizes");
  XTRAIN_REFUSE_NAME("adapter's on_linear", A, linear, names, quantized_output, quantized_outputs, "quantized_outputs");
  XTRAIN_REFUSE_NAME("adapter's config", A, config, names, trains_biases, trains_bias, "trains_bias");
  XTRAIN_REFUSE_NAME("adapter's config", A, config, names, adapt_table, adapts_table, "adapts_table");
  XTRAIN_REFUSE_NAME("adapter's config", A, config, names, adapts_tables, adapts_table, "adapts_table");
  XTRAIN_REFUSE_NAME("adapter's config", A, config, names, weights_bits, weight_bits, "weight_bits");
  XTRAIN_REFUSE_NAME("adapter's config", A, config, names, fake_quant_after_steps, fake_quant_after_n_steps, "fake_quant_after_n_steps");
  XTRAIN_REFUSE_NAME("adapter's config", A, config, names, token_before, on_attention, "on_attention', with the member 'tokens_before");
  XTRAIN_REFUSE_NAME("adapter's config", A, config, names, position_before, on_attention, "on_attention', with the member 'positions_before");
  return true;
}

}  // namespace detail

/// What is trained instead of the weights. Per layer: A::on_linear<Recipe> with declare, needs_input, forward and backward; example and optional members in
/// adapt/README.md.
template <class A>
concept adapter =
    clause::adapter_has_a_name<A> && clause::adapter_says_whether_weights_freeze<A> && clause::adapter_config_says_what_is_trained<A> &&
    clause::adapter_config_sees_the_finished_store<A> && clause::adapter_knows_its_parameters<A> && clause::adapter_lists_its_hooks<A>;

}  // namespace xtrain
