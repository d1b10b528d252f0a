// Definitions of peft_config.hpp.
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

/// Names, or a single name; empty when missing or empty.
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

/// A list of names, or a pattern as a single string.
inline void read_choice(const json_settings& s, const char* key, std::vector<std::string>& names, std::string& expression) {
  if (s.has({key}) && s.object()[key].is_string()) expression = s.text_or("", {key});
  else names = module_names_in(s, key);
}

/// Keys of an object in the outermost one, in text order.
class key_order {
 public:
  explicit key_order(std::string object) : object_(std::move(object)) {}

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(json::number_integer_t) { return true; }
  bool number_unsigned(json::number_unsigned_t) { return true; }
  bool number_float(json::number_float_t, const std::string&) { return true; }
  bool string(std::string&) { return true; }
  bool binary(json::binary_t&) { return true; }
  bool start_object(std::size_t) { return ++depth_ > 0; }
  bool key(std::string& name) {
    if (depth_ == 1) inside_ = name == object_;
    else if (depth_ == 2 && inside_) keys_.push_back(name);
    return true;
  }
  bool end_object() { return --depth_ >= 0; }
  bool start_array(std::size_t) { return ++depth_ > 0; }
  bool end_array() { return --depth_ >= 0; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

  [[nodiscard]] const std::vector<std::string>& keys() const { return keys_; }

 private:
  std::string object_;
  std::vector<std::string> keys_;
  int depth_ = 0;
  bool inside_ = false;
};

/// {"name": number, ...} in text order; empty when missing.
template <class Value, class Read>
[[nodiscard]] std::vector<std::pair<std::string, Value>> pattern_in(const json_settings& s, const char* key, std::string_view text, Read&& read) {
  const json_settings patterns = s.inner({key});
  key_order order(key);
  if (!text.empty()) (void)walk_json(order, text);  // refused elsewhere
  std::vector<std::string> names = order.keys();
  if (names.size() != patterns.object().size()) {
    names.clear();
    for (const auto& item : patterns.object().items()) names.push_back(item.key());
  }
  std::vector<std::pair<std::string, Value>> all;
  for (const std::string& name : names) all.emplace_back(name, read(patterns, name.c_str()));
  return all;
}

/// Refuses unsupported PEFT features that change the result.
inline void require_plain_features(const json_settings& s) {
  for (const char* key :
       {"lora_bias", "use_qalora", "use_bdlora", "alora_invocation_tokens", "arrow_config", "kasa_config", "velora_config",
        "monteclora_config", "trainable_token_indices", "layer_replication", "megatron_config"}) {
    if (!s.has({key})) continue;
    const json& value = s.object()[key];
    const bool off = value.is_boolean() ? !value.get<bool>() : value.is_structured() && value.empty();
    require<config_error>(off, s.who(), ": '", key, "' must be off; it is ", value.dump());
  }
  // others (pissa, olora, corda, loftq, ...) change the base weights before training
  if (!s.has({"init_lora_weights"}) || s.object()["init_lora_weights"].is_boolean()) return;
  const std::string initial = s.text_or("", {"init_lora_weights"});
  require<config_error>(initial == "gaussian" || initial == "eva" || initial == "orthogonal" || initial == "mica" || initial == "MICA", s.who(),
                        ": init_lora_weights must leave the base weights as they are; given '", initial, "'");
}

/// Where parts of a fused module have adapters, PEFT reads one adapter with the sum of ranks: its rank_pattern and alpha_pattern.
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

/// Parts replace the patterns of their modules.
///   throws  config_error when these do not match
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

XTRAIN_INLINE lora_config lora_config_of(const json_settings& s, std::string_view text) {
  const std::string type = s.text_or("", {"peft_type"});
  require<config_error>(type == "LORA", s.who(), ": peft_type must be LORA; given '", type, "'");
  require_plain_features(s);
  (void)s.flag_or(false, {"fan_in_fan_out"});  // the model knows how files store weights; PEFT overrides the key too
  lora_config c;
  c.rank = s.size({"r"});
  c.alpha = s.number_or(8.0, {"lora_alpha"});
  c.dropout = s.number_or(0.0, {"lora_dropout"});
  read_choice(s, "target_modules", c.targets, c.target_pattern);
  c.target_parameters = module_names_in(s, "target_parameters");
  require<config_error>(!c.targets.empty() || !c.target_pattern.empty() || !c.target_parameters.empty(), s.who(),
                        ": 'target_modules' or 'target_parameters' must name what is adapted; there are none");
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
      pattern_in<std::size_t>(s, "rank_pattern", text, [](const json_settings& ranks, const char* name) { return ranks.size({name}); });
  c.alpha_pattern = pattern_in<double>(s, "alpha_pattern", text, [](const json_settings& alphas, const char* name) {
    require<config_error>(alphas.has({name}), alphas.who(), ": '", name, "' must be a number; given null");  // 0 would switch the adapter off
    return alphas.number_or(0.0, {name});
  });
  c.rank_stabilised = s.flag_or(false, {"use_rslora"});
  c.dora = s.flag_or(false, {"use_dora"});
  c.frozen_b = s.has({"init_lora_weights"}) && s.object()["init_lora_weights"] == "mica";
  require<config_error>(!c.frozen_b || !c.dora, s.who(), ": use_dora must be false with init_lora_weights 'mica', as PEFT has one of them only");
  require<config_error>(c.target_parameters.empty() || (!c.dora && c.dropout == 0.0), s.who(),
                        ": use_dora and lora_dropout must be off with target_parameters, as in PEFT");
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
  // the order of patterns counts, but json sorts keys: objects replace these texts later
  const auto object_of = [](const auto& patterns) {
    std::string text;
    for (const auto& [name, value] : patterns) text += concat(text.empty() ? "{\n    " : ",\n    ", json(name).dump(), ": ", json(value).dump());
    return text.empty() ? std::string("{}") : text + "\n  }";
  };
  const auto put = [](std::string& text, const std::string& key, const std::string& object) {
    const std::string place = concat("\"", key, "\": null");
    text.replace(text.find(place), place.size(), concat("\"", key, "\": ", object));
  };
  auto ranks = c.rank_pattern;
  auto alphas = c.alpha_pattern;
  for (const pattern_of_parts& one : patterns_of_parts(c)) ranks.emplace_back(one.module, one.rank), alphas.emplace_back(one.module, one.alpha);
  const json all{{"peft_type", "LORA"},
                 {"task_type", task.empty() ? nothing : json(task)},
                 {"base_model_name_or_path", base_model.empty() ? nothing : json(base_model)},
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
                 {"init_lora_weights", c.frozen_b ? json("mica") : json(true)},
                 {"layers_to_transform", list_or_nothing(c.layers)},
                 {"layers_pattern", list_or_nothing(c.layers_pattern)},
                 {"rank_pattern", nothing},
                 {"alpha_pattern", nothing}};
  std::string text = all.dump(2) + "\n";
  put(text, "rank_pattern", object_of(ranks));
  put(text, "alpha_pattern", object_of(alphas));
  return text;
}

XTRAIN_INLINE void write_parts(const lora_config& c, const std::string& folder) {
  if (c.parts.empty()) {
    (void)std::remove((folder + parts_file).c_str());  // of an earlier adapter
  } else {
    write_file(folder + parts_file, json(c.parts).dump(2) + "\n");
  }
}

}  // namespace detail

XTRAIN_INLINE lora_config adapter_config_of(const std::string& folder) {
  require<file_error>(is_directory(folder), folder, ": must be a folder with an adapter; no such folder");
  const std::string path = folder + "/adapter_config.json", parts = folder + detail::parts_file;
  const mapped_file text(path);
  lora_config result = detail::lora_config_of(json_settings(parse_json(text.text(), path), path), text.text());
  if (file_exists(parts)) detail::read_parts(json_settings(read_json(parts), parts), result);
  return result;
}

}  // namespace xtrain
