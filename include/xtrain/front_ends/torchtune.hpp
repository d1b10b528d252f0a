// torchtune's configs and recipes: what `tune run` is asked for, as a run description or as a call of one of our programs. Component 'recipes'.
#pragma once

#include <string>
#include <vector>

#include <xtrain/front_ends/torchtune_call.hpp>
#include <xtrain/front_ends/torchtune_config.hpp>
#include <xtrain/front_ends/yaml.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

/// Those of torchtune 0.6, in the order of `tune ls`.
[[nodiscard]] const std::vector<torchtune_recipe>& torchtune_recipes();

/// What `tune ls`, `tune cp` and `tune cat` have.
[[nodiscard]] const std::vector<torchtune_config>& torchtune_configs();

/// A config with its overrides, interpolated: ${a.b} is the value of key b of a; ${oc.env:NAME,default} that of a variable of the environment.
///   file       a path, or the name of one of torchtune_configs()
///   overrides  key=value, where a key that has a _component_ means that; ~key removes one
///   throws     file_error; config_error with the line or the override
[[nodiscard]] yaml_value torchtune_values(const std::string& file, const std::vector<std::string>& overrides = {});

/// Whether every component is one of torchtune's, is given arguments that it has, and every other key is one that a recipe reads. Data and weights are not
/// looked for.
///   throws  config_error
void validate_torchtune(const std::string& file, const std::vector<std::string>& overrides = {});

/// What a recipe does with a config. Every key is honoured, or named in the notes with the reason why it changes no result, or refused by its name and line.
///   recipe  empty: that of a config of ours; otherwise the one for a single device that the config's components are for
///   throws  file_error, config_error
[[nodiscard]] torchtune_call torchtune_run(const std::string& recipe, const std::string& file, const std::vector<std::string>& overrides = {},
                                           const torchtune_launch& launch = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/front_ends/torchtune_impl.hpp>
#endif
