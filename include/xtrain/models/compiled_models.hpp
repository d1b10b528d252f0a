// Models that xtrain_add_library compiles: common computations of every family made of the library's layers, trained by AdamW. A program finds these
// instantiations whatever trains them; it makes other computations itself.
#pragma once

#include <type_traits>

#include <xtrain/layers/computation.hpp>

namespace xtrain {

struct cpu;
struct fp32;
struct bf16_mixed;
struct single;
struct adamw;
struct next_token;
struct recompute_none;
struct no_offload;
struct no_adapter;
struct lora;

/// A recipe made of policies alone: compiled models do not depend on the name of the user's recipe.
template <class Device, class Precision, class Parallel, class Optimizer, class Recompute, class Offload, class Adapter,
          class Objective = next_token>
struct recipe_axes {
  using device = Device;
  using precision = Precision;
  using parallel = Parallel;
  using optimizer = Optimizer;
  using recompute = Recompute;
  using offload = Offload;
  using adapter = Adapter;
  using objective = Objective;
};

namespace detail {

/// One cpu, fp32 or bf16, all weights or LoRA, AdamW.
template <class Precision, class Adapter>
using common_recipe = recipe_axes<cpu, Precision, single, adamw, recompute_none, no_offload, Adapter>;

/// Its computation, for every strategy that shards no layer.
template <class Precision, class Adapter>
using common_computation = computation<cpu, Precision, unsharded, recompute_none, Adapter>;

template <class Recipe>
concept names_trained_axes = requires {
  typename Recipe::optimizer;
  typename Recipe::parallel;
  typename Recipe::recompute;
};
template <class Recipe>
inline constexpr bool has_compiled_models = [] {
#ifdef XTRAIN_LIBRARY
  if constexpr (names_trained_axes<Recipe>) {
    using precision = typename Recipe::precision;
    using adapter = typename Recipe::adapter;
    return (std::is_same_v<precision, fp32> || std::is_same_v<precision, bf16_mixed>) &&
           (std::is_same_v<adapter, no_adapter> || std::is_same_v<adapter, lora>) &&
           std::is_same_v<computation_of<Recipe>, common_computation<precision, adapter>>;
  }
#endif
  return false;
}();

template <class Recipe>
struct compiled_recipe_of {
  using type = Recipe;
};
template <class Recipe>
requires has_compiled_models<Recipe>
struct compiled_recipe_of<Recipe> {
  using type = recipe_axes<cpu, typename Recipe::precision, typename Recipe::parallel, typename Recipe::optimizer, recompute_none,
                           typename Recipe::offload, typename Recipe::adapter, typename Recipe::objective>;
};
/// The recipe's policies if the library has compiled its layers; otherwise the recipe.
template <class Recipe>
using compiled_recipe = typename compiled_recipe_of<Recipe>::type;

}  // namespace detail

}  // namespace xtrain
