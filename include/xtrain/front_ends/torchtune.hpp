// torchtune's configs and recipes: `tune run` as a run description or as a call of a program. Component 'recipes'.
#pragma once

#include <string>
#include <vector>

#include <xtrain/front_ends/torchtune_call.hpp>
#include <xtrain/front_ends/torchtune_config.hpp>
#include <xtrain/front_ends/yaml.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

/// Recipes of torchtune 0.6, in the order of `tune ls`.
[[nodiscard]] const std::vector<torchtune_recipe>& torchtune_recipes();

/// Configs of `tune ls`, `tune cp` and `tune cat`.
[[nodiscard]] const std::vector<torchtune_config>& torchtune_configs();

/// A config with overrides, interpolated: ${a.b} is the value of key b of a; ${oc.env:NAME,default} an environment variable.
///   file       a path, or the name of one of torchtune_configs()
///   overrides  key=value, which sets _component_ of a key that has it; ~key removes a key
///   throws     file_error; config_error with the line or the override
[[nodiscard]] yaml_value torchtune_values(const std::string& file, const std::vector<std::string>& overrides = {});

/// Checks that every component and its arguments are torchtune's, and every other key is read by a recipe. Does not look for data and weights.
///   throws  config_error
void validate_torchtune(const std::string& file, const std::vector<std::string>& overrides = {});

/// What a recipe does with a config. Every key is used, or listed in the notes with the reason why it changes no result, or refused by name and line.
///   recipe  empty: from a config of torchtune_configs(), otherwise the single-device recipe of the config's components
///   throws  file_error, config_error
[[nodiscard]] torchtune_call torchtune_run(const std::string& recipe, const std::string& file, const std::vector<std::string>& overrides = {},
                                           const torchtune_launch& launch = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/front_ends/torchtune_impl.hpp>
#endif
