// A recipe names a policy for every axis: a struct that inherits `defaults` and overrides what differs.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>

#include <xtrain/adapt/none.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/offload.hpp>
#include <xtrain/layers/recompute.hpp>
#include <xtrain/models/recipe_members.hpp>
#include <xtrain/objective/next_token.hpp>
#include <xtrain/optim/adamw.hpp>
#include <xtrain/parallel/single.hpp>
#include <xtrain/precision/precision.hpp>

namespace xtrain {

/// struct my_run : xtrain::defaults { using precision = xtrain::bf16_mixed; };
struct defaults {
  using device = cpu;
  using precision = fp32;
  using parallel = single;
  using optimizer = adamw;
  using objective = next_token;
  using recompute = recompute_none;
  using offload = no_offload;
  using adapter = no_adapter;
};

namespace clause {

template <class R>
concept recipe_names_every_axis = requires {
  typename R::device;
  typename R::precision;
  typename R::parallel;
  typename R::optimizer;
  typename R::objective;
  typename R::recompute;
  typename R::offload;
  typename R::adapter;
};

}  // namespace clause

/// One line per axis, for display or logs.
template <class Recipe>
[[nodiscard]] std::string describe() {
  static_assert(
      clause::recipe_names_every_axis<Recipe>,
      "xtrain recipe: must name every axis (device, precision, parallel, optimizer, objective, recompute, offload, adapter); inherit xtrain::defaults; see "
      "train/README.md");
  static_assert(detail::members_are_axes<Recipe>());
  using p = typename Recipe::precision;
  std::string device(Recipe::device::name);
  if constexpr (requires { Recipe::device::instructions(); }) device += concat(" (", Recipe::device::instructions(), ")");
  return concat("device     ", device, "\n",                                                                                  //
                "precision  ", p::name, " (parameter ", dtype_traits<typename p::parameter>::name, ", gradient ",            //
                dtype_traits<typename p::gradient>::name, ", master ", dtype_traits<typename p::master>::name, ", state ",  //
                dtype_traits<typename p::state>::name, ", updates rounded ",
                p::update == rounding::nearest ? "to nearest" : "stochastically",  //
                p::scales_loss ? ", loss scaled)\n" : ")\n",                       //
                "parallel   ", Recipe::parallel::name, "\n",                       //
                "optimizer  ", Recipe::optimizer::name, "\n",                      //
                "objective  ", Recipe::objective::name, "\n",                      //
                "recompute  ", Recipe::recompute::name, "\n",                      //
                "offload    ", Recipe::offload::name, "\n",                        //
                "adapter    ", Recipe::adapter::name, "\n");
}

}  // namespace xtrain
