// Adapter policies: which modules they train, and what they add to a linear layer.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace clause

/// What is trained instead of the weights. Per layer: A::on_linear<Recipe> with declare, needs_input, forward and backward; example and optional members in
/// adapt/README.md.
template <class A>
concept adapter =
    clause::adapter_has_a_name<A> && clause::adapter_says_whether_weights_freeze<A> && clause::adapter_config_says_what_is_trained<A> &&
    clause::adapter_config_sees_the_finished_store<A> && clause::adapter_knows_its_parameters<A>;

}  // namespace xtrain
