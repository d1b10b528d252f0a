// Definitions of peft_config.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/adapt/lora_config.hpp>
#include <xtrain/adapt/peft_config.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/settings.hpp>

namespace xtrain {

namespace detail {

/// A list of names; a single name counts as a list of one. Empty when the key is missing or the name is empty.
[[nodiscard]] inline std::vector<std::string> module_names_in(const json_settings& s, const char* key) {
  std::vector<std::string> names;
  if (!s.has({key})) return names;
  const json& value = s.object()[key];
  const auto add = [&](const json& one) {
    require<config_error>(one.is_string(), s.who(), ": '", key, "' must be a list of module names; given ", value.dump());
    names.push_back(one.get<std::string>());
  };
  if (value.is_array())
    for (const json& one : value) add(one);
  else if (value != "") add(value);
  return names;
}

/// Names, or a pattern if the value is a single string.
inline void read_choice(const json_settings& s, const char* key, std::vector<std::string>& names, std::string& expression) {
  if (s.has({key}) && s.object()[key].is_string()) expression = s.text_or("", {key});
  else names = module_names_in(s, key);
}

/// {"name": number, ...}; empty when the key is missing.
template <class Value, class Read>
[[nodiscard]] std::vector<std::pair<std::string, Value>> pattern_in(const json_settings& s, const char* key, Read&& read) {
  std::vector<std::pair<std::string, Value>> all;
  const json_settings patterns = s.inner({key});
  for (const auto& [name, value] : patterns.object().items()) all.emplace_back(name, read(patterns, name.c_str()));
  return all;
}

/// Rejects PEFT features that change the math and are not supported.
inline void require_plain_features(const json_settings& s) {
  for (const char* key :
       {"lora_bias", "use_qalora", "use_bdlora", "alora_invocation_tokens", "arrow_config", "kasa_config", "velora_config",
        "monteclora_config", "target_parameters", "trainable_token_indices", "layer_replication", "megatron_config"}) {
    if (!s.has({key})) continue;
    const json& value = s.object()[key];
    const bool off = value.is_boolean() ? !value.get<bool>() : value.is_structured() && value.empty();
    require<config_error>(off, s.who(), ": '", key, "' must be off; it is ", value.dump());
  }
  // others (pissa, olora, corda, loftq, ...) change the base weights before training
  if (!s.has({"init_lora_weights"}) || s.object()["init_lora_weights"].is_boolean()) return;
  const std::string initial = s.text_or("", {"init_lora_weights"});
  require<config_error>(initial == "gaussian" || initial == "eva" || initial == "orthogonal", s.who(),
                        ": init_lora_weights must leave the base weights as they are; given '", initial, "'");
}

/// Where parts of fused modules have adapters, PEFT reads one of the module, of the sum of their ranks: what rank_pattern and alpha_pattern say of it.
struct pattern_of_parts {
  std::string module{};
  std::size_t rank = 0;
  double alpha = 0.0;
};
[[nodiscard]] inline std::vector<pattern_of_parts> patterns_of_parts(const lora_config& c) {
  std::vector<pattern_of_parts> all;
  for (const auto& [module, names] : c.parts) {
    const auto n = static_cast<double>(names.size());
    all.push_back({module, c.rank * names.size(), c.alpha * (c.rank_stabilised ? std::sqrt(n) : n)});
  }
  return all;
}

/// Parts take the place of the patterns of their modules.
///   throws  config_error when these are not those of the parts
inline void read_parts(const json_settings& given, lora_config& c) {
  for (const auto& item : given.object().items()) c.parts[item.key()] = module_names_in(given, item.key().c_str());
  const auto ranks = std::move(c.rank_pattern);
  const auto alphas = std::move(c.alpha_pattern);
  c.rank_pattern.clear(), c.alpha_pattern.clear();
  const std::vector<pattern_of_parts> expected = patterns_of_parts(c);
  bool same = ranks.size() == expected.size() && alphas.size() == expected.size();
  for (const pattern_of_parts& one : expected) {
    same = same && std::find(ranks.begin(), ranks.end(), std::pair{one.module, one.rank}) != ranks.end();
    same = same && std::find(alphas.begin(), alphas.end(), std::pair{one.module, one.alpha}) != alphas.end();
  }
  require<config_error>(same, given.who(), ": rank_pattern and alpha_pattern of adapter_config.json must be those of these parts, of rank ", c.rank,
                        " and alpha ", c.alpha, " each");
}

XTRAIN_INLINE lora_config lora_config_of(const json_settings& s) {
  const std::string type = s.text_or("", {"peft_type"});
  require<config_error>(type == "LORA", s.who(), ": peft_type must be LORA; given '", type, "'");
  require_plain_features(s);
  (void)s.flag_or(false, {"fan_in_fan_out"});  // the model itself knows how files store its weights; PEFT overrides the key as well
  lora_config c;
  c.rank = s.size({"r"});
  c.alpha = s.number_or(8.0, {"lora_alpha"});
  c.dropout = s.number_or(0.0, {"lora_dropout"});
  read_choice(s, "target_modules", c.targets, c.target_pattern);
  require<config_error>(!c.targets.empty() || !c.target_pattern.empty(), s.who(), ": 'target_modules' must name modules; there are none");
  require<config_error>(!s.has({"modules_to_save"}) || s.object()["modules_to_save"].is_array(), s.who(),
                        ": 'modules_to_save' must be a list of module names");
  c.modules_to_save = module_names_in(s, "modules_to_save");
  read_choice(s, "exclude_modules", c.exclude, c.exclude_pattern);
  if (s.has({"layers_to_transform"})) {
    const json& value = s.object()["layers_to_transform"];
    const auto add = [&](const json& one) {
      require<config_error>(one.is_number_unsigned(), s.who(), ": 'layers_to_transform' must be layers, counted from 0; given ",
                            value.dump());
      c.layers.push_back(one.get<std::size_t>());
    };
    if (value.is_array())
      for (const json& one : value) add(one);
    else add(value);
  }
  c.layers_pattern = module_names_in(s, "layers_pattern");
  c.rank_pattern =
      pattern_in<std::size_t>(s, "rank_pattern", [](const json_settings& ranks, const char* name) { return ranks.size({name}); });
  c.alpha_pattern = pattern_in<double>(s, "alpha_pattern", [](const json_settings& alphas, const char* name) {
    require<config_error>(alphas.has({name}), alphas.who(), ": '", name, "' must be a number; given null");  // as 0 it would switch the module's adapter off
    return alphas.number_or(0.0, {name});
  });
  c.rank_stabilised = s.flag_or(false, {"use_rslora"});
  c.dora = s.flag_or(false, {"use_dora"});
  const std::string bias = s.text_or("none", {"bias"});
  require<config_error>(bias == "none" || bias == "all" || bias == "lora_only", s.who(), ": bias must be none, all or lora_only; given '",
                        bias, "'");
  c.bias = bias == "all" ? trained_biases::all : bias == "lora_only" ? trained_biases::adapted : trained_biases::none;
  return c;
}

XTRAIN_INLINE std::string peft_config_text(const lora_config& c, const std::string& base_model, bool transposed_in_files, bool tied,
                                           std::string_view task) {
  const json nothing = nullptr;
  const auto list_or_nothing = [&](const auto& values) { return values.empty() ? nothing : json(values); };
  const auto object_of = [](const auto& patterns) {
    json object = json::object();
    for (const auto& [name, value] : patterns) object[name] = value;
    return object;
  };
  auto ranks = c.rank_pattern;
  auto alphas = c.alpha_pattern;
  for (const pattern_of_parts& one : patterns_of_parts(c)) ranks.emplace_back(one.module, one.rank), alphas.emplace_back(one.module, one.alpha);
  const json all{{"peft_type", "LORA"},
                 {"task_type", task.empty() ? nothing : json(task)},
                 {"base_model_name_or_path", base_model},
                 {"revision", nothing},
                 {"inference_mode", true},
                 {"r", c.rank},
                 {"lora_alpha", c.alpha},
                 {"lora_dropout", c.dropout},
                 {"target_modules", c.target_pattern.empty() ? json(c.targets) : json(c.target_pattern)},
                 {"exclude_modules", c.exclude_pattern.empty() ? list_or_nothing(c.exclude) : json(c.exclude_pattern)},
                 {"modules_to_save", list_or_nothing(c.modules_to_save)},
                 {"ensure_weight_tying", tied},
                 {"fan_in_fan_out", transposed_in_files},
                 {"bias", c.bias == trained_biases::all       ? "all"
                          : c.bias == trained_biases::adapted ? "lora_only"
                                                              : "none"},
                 {"use_rslora", c.rank_stabilised},
                 {"use_dora", c.dora},
                 {"init_lora_weights", true},
                 {"layers_to_transform", list_or_nothing(c.layers)},
                 {"layers_pattern", list_or_nothing(c.layers_pattern)},
                 {"rank_pattern", object_of(ranks)},
                 {"alpha_pattern", object_of(alphas)}};
  return all.dump(2) + "\n";
}

XTRAIN_INLINE void write_parts(const lora_config& c, const std::string& folder) {
  if (c.parts.empty()) {
    (void)std::remove((folder + parts_file).c_str());  // of an adapter that was there before
  } else {
    write_file(folder + parts_file, json(c.parts).dump(2) + "\n");
  }
}

}  // namespace detail

XTRAIN_INLINE lora_config adapter_config_of(const std::string& folder) {
  require<file_error>(is_directory(folder), folder, ": must be a folder with an adapter; no such folder");
  const std::string path = folder + "/adapter_config.json", parts = folder + detail::parts_file;
  lora_config result = detail::lora_config_of(json_settings(read_json(path), path));
  if (file_exists(parts)) detail::read_parts(json_settings(read_json(parts), parts), result);
  return result;
}

}  // namespace xtrain
