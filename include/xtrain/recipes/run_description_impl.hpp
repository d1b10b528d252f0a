// Definitions of run_description.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

namespace detail {

template <class T>
concept has_members = requires(T& of) { T::members(of, [](const char*, auto&, const char* = nullptr) {}); };
template <class T>
inline constexpr bool is_list = false;
template <class T>
inline constexpr bool is_list<std::vector<T>> = true;

/// The value, or members that differ from `plain`.
template <class T>
[[nodiscard]] json described(const T& value, const T& plain, bool all) {
  if constexpr (has_members<T>) {
    json result = json::object();
    std::vector<json> others;
    T::members(plain, [&](const char*, const auto& one, const char* = nullptr) { others.push_back(described(one, one, true)); });
    std::size_t i = 0;
    T::members(value, [&](const char* name, const auto& one, const char* = nullptr) {
      using member = std::remove_cvref_t<decltype(one)>;
      if (json whole = described(one, member{}, true); all || whole != others[i]) {
        if constexpr (has_members<member>) result[name] = described(one, member{}, all);
        else result[name] = described(one, one, all);
      }
      ++i;
    });
    return result;
  } else if constexpr (is_list<T>) {
    json result = json::array();
    using member = typename T::value_type;
    for (const member& one : value) result.push_back(described(one, member{}, all));
    return result;
  } else return value;
}

template <class T>
void read_described(T& value, const json& from, const std::string& where) {
  const auto wrong = [&](const char* what) {
    fail<config_error>(where, ": must be ", what, "; given ", from.dump(-1, ' ', false, json::error_handler_t::replace));
  };
  if constexpr (has_members<T>) {
    if (!from.is_object()) wrong("an object");
    std::size_t found = 0;
    std::string names;
    // earlier: a former name
    T::members(value, [&](const char* name, auto& one, const char* earlier = nullptr) {
      names += concat(names.empty() ? "" : ", ", name);
      auto at = from.find(name);
      if (earlier != nullptr && from.contains(earlier)) {
        require<config_error>(at == from.end(), where, ".", earlier, ": is an earlier name of ", name, ", which is given, too");
        at = from.find(earlier);
      }
      if (at == from.end()) return;
      ++found;
      read_described(one, *at, concat(where, ".", name));
    });
    if (found == from.size()) return;
    for (const auto& item : from.items()) {
      const std::string& name = item.key();  // clang 14 captures no structured bindings
      bool known = false;
      T::members(value, [&](const char* one, auto&, const char* earlier = nullptr) { known = known || name == one || (earlier && name == earlier); });
      require<config_error>(known, where, ".", name, ": there is no such member; there are ", names);
    }
  } else if constexpr (is_list<T>) {
    if (!from.is_array()) wrong("a list");
    value.clear();
    for (std::size_t i = 0; i < from.size(); ++i) {
      value.emplace_back();
      read_described(value.back(), from[i], concat(where, "[", i, "]"));
    }
  } else if constexpr (std::is_same_v<T, json>) {
    if (!from.is_object()) wrong("an object");
    value = from;
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!from.is_string()) wrong("a string");
    value = from.get_ref<const std::string&>();
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!from.is_boolean()) wrong("true or false");
    value = from.get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    if (!from.is_number_unsigned()) wrong("a non-negative integer");
    value = from.get<T>();
  } else {
    static_assert(std::is_floating_point_v<T>);
    if (!from.is_number()) wrong("a number");
    value = from.get<T>();
  }
}

inline void require_one_of(const char* member, const std::string& given, std::initializer_list<std::string_view> known) {
  if (std::find(known.begin(), known.end(), given) != known.end()) return;
  std::string names;
  for (const std::string_view one : known)
    if (!one.empty()) names += concat(names.empty() ? "" : ", ", one);
  fail<config_error>("run description: ", member, ": must be one of ", names, "; given '", given, "'");
}

/// Refuses changed members without effect.
///   used  members with an effect
///   of    what lacks such settings: "data of kind text"
template <class T>
void require_only(const std::string& path, const T& value, std::initializer_list<std::string_view> used, const std::string& of) {
  const json given = described(value, T{}, true), plain = described(T{}, T{}, true);
  for (const auto& item : given.items()) {
    if (item.value() == plain.at(item.key()) || std::find(used.begin(), used.end(), item.key()) != used.end()) continue;
    fail<config_error>("run description: ", path, ".", item.key(), ": must be left out: it is no setting of ", of, "; given ",
                       item.value().dump(-1, ' ', false, json::error_handler_t::replace));
  }
}

/// Refuses settings of other kinds of datasets.
inline void check_data(const data_description& data, const std::string& path) {
  const auto is_one_of = [&](const char* member, const std::string& given, std::initializer_list<std::string_view> known) {
    require_one_of(concat(path, ".", member).c_str(), given, known);
  };
  is_one_of("kind", data.kind, {"text", "alpaca", "chat", "preference", "prompts", "indexed", "indexed_instructions"});
  is_one_of("when_too_long", data.when_too_long, {"truncate", "drop", "refuse"});
  const auto must = [&](bool holds, const char* member, const auto&... what) {
    require<config_error>(holds, "run description: ", path, ".", member, ": must ", what...);
  };
  must(!data.files.empty(), "files", "name a file; none is given for ", data.kind);
  must(data.add_eos, "add_eos", "be true: every sample ends with the end-of-text token; given false");
  must(data.pack_gap == 0 || data.packed, "pack_gap", "be left out where samples are not packed; given ", data.pack_gap);
  const std::string of = "data of kind " + data.kind;
  if (data.kind == "text") {
    require_only(path, data,
                 {"kind", "files", "split", "form", "text_field", "packed", "pack_gap", "end_token", "when_too_long", "group_texts", "block_size",
                  "group_workers"},
                 of);
    is_one_of("form", data.form, {"", "separate", "stream"});
    if (data.group_texts > 0) {
      require_only(path, data, {"kind", "files", "split", "text_field", "group_texts", "block_size", "group_workers"}, "texts in groups");
      return;
    }
    require_only(path, data, {"kind", "files", "split", "form", "text_field", "packed", "pack_gap", "end_token", "when_too_long"},
                 "texts that are not in groups (group_texts)");
    for (const std::string& file : data.files)
      if (std::error_code ignored; !file.ends_with(".json") && !file.ends_with(".jsonl") && !std::filesystem::is_directory(file, ignored)) {
        must(!data.packed && data.form != "separate", data.packed ? "packed" : "form", "be left out: ", file,
             " is one stream of text; records are .json or .jsonl");
        must(data.end_token.empty(), "end_token", "be left out: ", file, " has no records; given '", data.end_token, "'");
        must(data.text_field == "text", "text_field", "be left out: ", file, " has no fields; given '", data.text_field, "'");
      }
  } else if (data.kind == "alpaca") {
    require_only(path, data,
                 {"kind", "files", "split", "columns", "prompt_template", "prompt_template_without_input", "train_on_input", "packed", "when_too_long",
                  "max_prompt_tokens", "max_answer_tokens", "skips_empty", "learns_prompt_ending"},
                 of);
  } else if (data.kind == "chat") {
    require_only(path, data, {"kind", "files", "split", "form", "columns", "prompt_template", "prompt_template_without_input", "system_prompt",
                              "train_on_input", "packed", "pack_gap", "when_too_long"}, of);
    is_one_of("form", data.form, {"", "messages", "conversations", "instruction", "moss", "auto"});
  } else if (data.kind == "preference") {
    require_only(path, data, {"kind", "files", "split", "form", "columns", "system_prompt", "when_too_long"}, of);
    is_one_of("form", data.form, {"", "text", "messages", "auto"});
  } else if (data.kind == "prompts") {
    require_only(path, data, {"kind", "files", "text_field"}, of);
    for (const std::string& file : data.files) must(file.ends_with(".json") || file.ends_with(".jsonl"), "files", "be .json or .jsonl; given ", file);
  } else if (data.kind == "indexed") {
    require_only(path, data, {"kind", "files", "weight"}, of);
  } else {
    require_only(path, data, {"kind", "files", "split", "packed", "when_too_long"}, of);
  }
  // field names of the form
  const bool instructs = data.kind == "alpaca" || !data.prompt_template.empty();
  for (const auto& item : data.columns.items()) {
    const std::string& name = item.key();
    const bool known = data.kind == "preference" ? name == "prompt" || name == "chosen" || name == "rejected"
                       : instructs               ? name == "instruction" || name == "input" || name == "output"
                                                 : (name == "messages" || name == "conversations") && name == data.form;
    must(known, "columns", "not have '", name, "': there is no such field in data of kind ", data.kind,
         data.form.empty() ? "" : concat(" and form ", data.form));
    must(item.value().is_string(), "columns", "have the name of a field as ", name, "; given ",
         item.value().dump(-1, ' ', false, json::error_handler_t::replace));
  }
  const bool is_indexed = data.kind == "indexed_instructions";
  const bool is_part = data.split.starts_with("train of ") || data.split.starts_with("validation of ");
  must(data.split.empty() || (is_indexed ? is_part : data.split == "train"), "split",
       is_indexed ? "be 'train of' or 'validation of' weights, as 969,30,1" : "be train: parts of a file are not supported; split the file", "; given '",
       data.split, "'");
  must(data.prompt_template_without_input.empty() || !data.prompt_template.empty() || data.kind != "chat", "prompt_template_without_input",
       "be used with a prompt_template");
}

/// Refuses contradictory settings of reinforcement learning, and settings of other runs.
inline void check_rollouts(const run_description& run) {
  const auto must = [](bool holds, const char* member, const auto&... what) {
    require<config_error>(holds, "run description: ", member, ": must ", what...);
  };
  const rollouts_description& rollouts = run.rollouts;
  const bool is_ppo = run.objective.kind == "ppo";
  for (const data_description& one : run.data)
    must((one.kind == "prompts") == is_ppo, "data", is_ppo ? "be of kind prompts with the objective ppo; given " : "not be of kind prompts with the objective ",
         is_ppo ? one.kind : run.objective.kind);
  if (!is_ppo) return require_only("rollouts", rollouts, {}, "the objective " + run.objective.kind);
  must(!rollouts.reward_model.empty(), "rollouts.reward_model", "be given: a folder of a model with a score head");
  must(!rollouts.value_model.empty(), "rollouts.value_model", "be given: a folder of a model with a score head");
  must(!rollouts.value_output.empty(), "rollouts.value_output", "be given: where the value model is to be saved");
  must(rollouts.value_output != run.output.folder, "rollouts.value_output", "be another folder than output.folder, ", run.output.folder);
  must(rollouts.steps > 0, "rollouts.steps", "be positive; given 0");
  must(rollouts.max_completion_length > 0, "rollouts.max_completion_length", "be positive; given 0");
  must(rollouts.num_ppo_epochs > 0, "rollouts.num_ppo_epochs", "be positive; given 0");
  const std::size_t each = run.micro_batch_size * run.gradient_accumulation_steps;
  must(rollouts.batch_size > 0 && rollouts.batch_size % each == 0, "rollouts.batch_size",
       "be a multiple of micro_batch_size x gradient_accumulation_steps = ", each, "; given ", rollouts.batch_size);
  must(rollouts.generation_batch_size == 0 || rollouts.batch_size % rollouts.generation_batch_size == 0, "rollouts.generation_batch_size",
       "divide batch_size, ", rollouts.batch_size, "; given ", rollouts.generation_batch_size);
  must(!rollouts.stop.empty(), "rollouts.stop", "name a token that ends an answer");
  must(run.adapter.kind == "none", "adapter.kind", "be none with the objective ppo; given ", run.adapter.kind);
  must(run.parallel == parallel_description{}, "parallel", "be one rank with the objective ppo");
  must(run.eval_data.empty(), "eval_data", "be left out with the objective ppo");
  must(run.schedule.kind == "constant" && run.schedule.warmup_steps == 0 && run.schedule.warmup_ratio == 0.0, "schedule",
       "be constant, without warm-up, with the objective ppo");
  must(run.max_steps == 0 && run.max_steps_per_epoch == 0 && run.epochs == 1 && run.drop_last, "max_steps",
       "be left out with the objective ppo, as max_steps_per_epoch, epochs and drop_last: rollouts.steps says how long the run is");
  must(run.model.adapter.empty() && !run.model.random_weights && !run.model.folder.empty(), "model.folder", "be given with the objective ppo");
  must(run.model.override_config.empty() && run.tokenizer.add_tokens.empty() && run.model.vocab_multiple == 1, "model.override_config",
       "be left out with the objective ppo, as tokenizer.add_tokens and model.vocab_multiple");
  must(run.offload == "none" && run.neftune_noise_alpha == 0.0 && run.seq_length == 0, "offload",
       "be none with the objective ppo, without neftune_noise_alpha and seq_length");
  const output_description& output = run.output;
  must(output.resume.empty(), "output.resume", "be left out with the objective ppo: such a run writes models, but no checkpoints");
  must(output.save_steps == 0 && output.eval_steps == 0 && output.save_ratio == 0.0 && output.eval_ratio == 0.0 && output.metrics.empty() &&
           output.tensorboard.empty() && !output.overwrite,
       "output",
       "have no save_steps, eval_steps, metrics, tensorboard and overwrite with the objective ppo");
  must(output.save_total_limit == 0, "output.save_total_limit", "be 0 with the objective ppo: the models of every epoch stay; given ", output.save_total_limit);
  for (const auto& [member, style] : {std::pair{"output.log_style", output.log_style}, {"output.checkpoint_style", output.checkpoint_style}})
    must(style == "xtrain" || style == "torchtune", member, "be xtrain or torchtune with the objective ppo; given ", style);
  for (const auto& [member, share] : {std::pair{"rollouts.gamma", rollouts.gamma}, {"rollouts.lambda", rollouts.lambda}})
    must(share >= 0.0 && share <= 1.0, member, "be from 0 to 1; given ", share);
  must(rollouts.kl_coef >= 0.0 && std::isfinite(rollouts.kl_coef), "rollouts.kl_coef", "not be negative; given ", rollouts.kl_coef);
  must(rollouts.value_clip_range > 0.0, "rollouts.value_clip_range", "be positive; given ", rollouts.value_clip_range);
  must(rollouts.value_coefficient >= 0.0 && std::isfinite(rollouts.value_coefficient), "rollouts.value_coefficient", "not be negative; given ",
       rollouts.value_coefficient);
  must(std::isfinite(rollouts.penalty), "rollouts.penalty", "be finite; given ", rollouts.penalty);
}

/// Refuses settings without effect.
inline void check_uses(const run_description& run) {
  check_rollouts(run);
  const auto must = [](bool holds, const char* member, const auto&... what) {
    require<config_error>(holds, "run description: ", member, ": must ", what...);
  };
  const std::string& adapter = run.adapter.kind;
  if (adapter == "lora" || adapter == "qlora")
    require_only("adapter", run.adapter, {"kind", "rank", "alpha", "dropout", "targets", "modules_to_save", "rank_stabilised", "parts"},
                 "an adapter of kind " + adapter);
  else if (adapter == "dora" || adapter == "qdora")
    require_only("adapter", run.adapter, {"kind", "rank", "alpha", "dropout", "targets", "modules_to_save", "rank_stabilised"},
                 "an adapter of kind " + adapter);
  else if (adapter == "qat_lora")
    require_only("adapter", run.adapter, {"kind", "rank", "alpha", "dropout", "targets", "modules_to_save", "rank_stabilised", "settings"},
                 "an adapter of kind " + adapter);
  else if (adapter == "none") require_only("adapter", run.adapter, {}, "a run without an adapter");
  else require_only("adapter", run.adapter, {"kind", "settings"}, "an adapter of kind " + adapter);
  for (const auto& item : run.adapter.parts.items()) {
    const json& names = item.value();
    const auto& targets = run.adapter.targets;
    must(names.is_array() && !names.empty() && std::all_of(names.begin(), names.end(), [](const json& one) { return one.is_string(); }), "adapter.parts",
         "have a list of names for '", item.key(), "'; given ", names.dump(-1, ' ', false, json::error_handler_t::replace));
    must(std::find(targets.begin(), targets.end(), item.key()) != targets.end(), "adapter.parts", "be of modules in adapter.targets; '", item.key(),
         "' is not in there");
  }
  must(run.offload_folder.empty() || run.offload != "none", "offload_folder", "be used with offload, which is none; given '", run.offload_folder, "'");
  must(run.offload_folder.empty() || run.device == "cpu", "offload_folder", "be empty with the device ", run.device,
       ", which offloads to pinned memory of the host; given '", run.offload_folder, "'");
  must(run.offload == "none" || run.device != "npu", "offload", "be none on npu, whose operators cannot address host memory; given ", run.offload);
  must(run.loss_scale.empty() || run.precision == "fp16_mixed", "loss_scale", "be used with precision fp16_mixed; the precision is ", run.precision);
  const std::string& objective = run.objective.kind;
  must(run.objective.second_model.empty() || objective == "dpo" || objective == "kto" || objective == "distillation" || objective == "ppo",
       "objective.second_model",
       "be left out: the objective ", objective, " has none; given '", run.objective.second_model, "'");

  const parallel_description& mesh = run.parallel;
  must(mesh.zero < 3 || mesh.ranks == 1 || !adapter.ends_with("dora"), "parallel.zero", "be at most 2 with an adapter of kind ", adapter,
       ", which needs whole rows of weights; given ", mesh.zero);
  must(!mesh.ring || mesh.context > 1, "parallel.ring", "be used with context-parallel ranks; parallel.context is 1");
  must(mesh.shards == 0 || mesh.zero > 0, "parallel.shards", "be used with parallel.zero, which is 0; given ", mesh.shards);
  must(mesh.stage_layers.empty() || mesh.pipeline > 1, "parallel.stage_layers", "be used with pipeline-parallel ranks; parallel.pipeline is 1");
  must(mesh.schedule == "1f1b" || mesh.pipeline > 1, "parallel.schedule", "be used with pipeline-parallel ranks; parallel.pipeline is 1, given ",
       mesh.schedule);
  must(mesh.virtual_stages == 1 || (mesh.schedule != "gpipe" && mesh.schedule != "zero_bubble"), "parallel.virtual_stages",
       "be 1 with the schedule ", mesh.schedule, "; given ", mesh.virtual_stages);

  const auto indexed = [](const data_description& one) { return one.kind == "indexed"; };
  const auto number = static_cast<std::size_t>(std::count_if(run.data.begin(), run.data.end(), indexed));
  must(number == 0 || number == run.data.size(), "data", "be of kind indexed as a whole or not at all; ", number, " of ", run.data.size(), " are");
  must(run.eval_data.empty() || number == 0, "eval_data", "be left out: indexed data has a validation part of its own, see eval_iters");
  must(run.eval_iters == 0 || number > 0, "eval_iters", "be used with indexed data; given ", run.eval_iters);
  must(run.samples == 0 || number > 0, "samples", "be used with indexed data; given ", run.samples);
  must(number == 0 || run.seed < std::uint64_t{1} << 32U, "seed", "be below 2^32 with indexed data, whose order is numpy's; given ", run.seed);
  must(run.rampup_batch_size.empty() || (number > 0 && run.max_steps > 0), "rampup_batch_size", "be used with indexed data and max_steps");
  must(run.rampup_batch_size.empty() || mesh.micro_batch_sizes.empty(), "rampup_batch_size", "be used without parallel.micro_batch_sizes");
  if (!run.rampup_batch_size.empty()) {
    must(run.rampup_batch_size.size() == 3, "rampup_batch_size", "be start, increment and samples; given ", run.rampup_batch_size.size(), " numbers");
    const std::size_t together = run.micro_batch_size * (mesh.ranks / (mesh.tensor * mesh.pipeline * mesh.context));
    const batch_size_rampup rampup{run.rampup_batch_size[0], run.rampup_batch_size[1], run.rampup_batch_size[2]};
    must(rampup.start > 0, "rampup_batch_size", "start with at least 1; given 0");
    const global_batch_sizes sizes(together * run.gradient_accumulation_steps, rampup, together);
    must(run.samples == 0 || sizes.before(run.max_steps) <= run.samples, "samples", "be at least those of max_steps, ", sizes.before(run.max_steps), "; given ",
         run.samples);
  } else {
    const std::size_t all =
        run.max_steps * run.micro_batch_size * run.gradient_accumulation_steps * (mesh.ranks / (mesh.tensor * mesh.pipeline * mesh.context));
    must(run.samples == 0 || (run.max_steps > 0 && all <= run.samples), "samples", "be at least those of max_steps, ", all, "; given ", run.samples);
  }
  must(run.split.empty() || std::any_of(run.data.begin(), run.data.end(), [](const auto& one) { return one.kind.starts_with("indexed"); }), "split",
       "be used with indexed data; given '", run.split, "'");

  const output_description& output = run.output;
  for (const auto& [member, given] : {std::pair{"output.save_epochs", output.save_epochs}, {"output.eval_epochs", output.eval_epochs},
                                      {"max_steps_per_epoch", run.max_steps_per_epoch > 0}})
    must(number == 0 || !given, member, "be left out: samples of indexed data are those of all epochs");
  must(!output.overwrite || output.resume.empty(), "output.overwrite", "be false with output.resume");
  must(!output.save_epochs || output.checkpoint_style != "torchtune" || output.save_total_limit <= 1, "output.save_total_limit",
       "be 0 or 1 with save_epochs and the checkpoint_style torchtune, which has the models of all epochs and one checkpoint; given ", output.save_total_limit);
  must(output.log_file.empty() || output.log_style == "torchtune", "output.log_file", "be used with log_style torchtune; given '", output.log_file, "'");
  must(!output.log_first_step || output.log_style == "hugging_face", "output.log_first_step", "be used with log_style hugging_face; given true with ",
       output.log_style);
  must(output.log_style != "xtrain" || output.log_steps == 1, "output.log_steps", "be left out: log_style xtrain has a line for every tenth of the run; given ",
       output.log_steps);
  must(output.log_style != "musa_demo" || output.log_steps == 1 || output.log_steps == 10, "output.log_steps",
       "be 10: log_style musa_demo has a line for every tenth step; given ", output.log_steps);
  const auto whole_epochs = static_cast<double>(run.epochs);
  must(run.partial_epochs == 0.0 || (run.partial_epochs > whole_epochs - 1.0 && run.partial_epochs <= whole_epochs), "partial_epochs", "be above ",
       run.epochs - 1, " and at most ", run.epochs, ", the epochs; given ", run.partial_epochs);
  must(run.partial_epochs == 0.0 || (run.max_steps == 0 && number == 0), "partial_epochs", "be left out with max_steps and with indexed data; given ",
       run.partial_epochs);
  for (const auto& [member, ratio] : {std::pair{"output.save_ratio", output.save_ratio}, {"output.eval_ratio", output.eval_ratio},
                                      {"output.log_ratio", output.log_ratio}})
    must(ratio >= 0.0 && ratio < 1.0, member, "be a fraction below 1; given ", ratio);
  must(output.save_ratio == 0.0 || (output.save_steps == 0 && !output.save_epochs), "output.save_ratio", "be left out with save_steps or save_epochs; given ",
       output.save_ratio);
  must(output.eval_ratio == 0.0 || (output.eval_steps == 0 && !output.eval_epochs), "output.eval_ratio", "be left out with eval_steps or eval_epochs; given ",
       output.eval_ratio);
  must(output.log_ratio == 0.0 || (output.log_steps == 1 && !output.log_epochs), "output.log_ratio", "be left out with log_steps or log_epochs; given ",
       output.log_ratio);
  must(output.log_style == "hugging_face" || (!output.log_epochs && output.log_ratio == 0.0), output.log_epochs ? "output.log_epochs" : "output.log_ratio",
       "be left out with log_style ", output.log_style);
  must(output.eval_steps == 0 || !output.eval_epochs, "output.eval_steps", "be 0 with eval_epochs; given ", output.eval_steps);
  must(output.save_steps == 0 || !output.save_epochs, "output.save_steps", "be 0 with save_epochs; given ", output.save_steps);
  must((output.eval_steps == 0 && output.eval_ratio == 0.0 && !output.eval_epochs) || !run.eval_data.empty() || run.eval_iters > 0,
       output.eval_epochs ? "output.eval_epochs" : "output.eval_steps", "be used with data to evaluate: eval_data, or eval_iters of indexed data");
  for (const std::string& text : run.tokenizer.add_tokens)
    must(!text.empty() && text.find(',') == std::string::npos, "tokenizer.add_tokens", "be texts without a comma; given '", text, "'");
  must(run.tokenizer.special_tokens.empty() || !run.tokenizer.add_tokens.empty(), "tokenizer.special_tokens",
       "be left out without tokenizer.add_tokens: they name what is added");
  for (const auto& one : run.tokenizer.special_tokens.items()) {
    constexpr std::array<std::string_view, 7> names{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};
    must(std::find(names.begin(), names.end(), one.key()) != names.end() && one.value().is_string(), "tokenizer.special_tokens",
         "name tokens as tokenizer_config.json does, such as pad_token, and be their texts; given ", one.key(), " ", one.value().dump());
  }
}

}  // namespace detail

XTRAIN_INLINE run_description run_description::from_json(const json& all, const std::string& who) {
  run_description result;
  detail::read_described(result, all, who);
  return result;
}

XTRAIN_INLINE run_description run_description::load(const std::string& path) { return from_json(read_json(path), path); }

XTRAIN_INLINE json run_description::to_json(bool all) const { return detail::described(*this, run_description{}, all); }

XTRAIN_INLINE void run_description::save(const std::string& path) const {
  write_file(path, to_json().dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

XTRAIN_INLINE void run_description::check() const {
  using detail::require_one_of;
  require_one_of("device", device, {"cpu", "cuda", "npu", "musa"});
  require_one_of("precision", precision, {"fp32", "bf16_mixed", "bf16_gradients", "bf16_pure", "fp16_mixed"});
  require_one_of("recompute", recompute, {"none", "full", "selective"});
  require_one_of("offload", offload, {"none", "optimizer", "optimizer+weights"});
  require_one_of("optimizer.kind", optimizer.kind, {"adamw", "adamw_8bit", "sgd", "lion", "muon", "adafactor"});
  require_one_of("optimizer.decays", optimizer.decays, {"matrices", "all"});
  require_one_of("schedule.kind", schedule.kind, {"constant", "linear", "cosine", "cosine_with_restarts", "polynomial", "inverse_sqrt", "inverse_square_root",
                                                  "warmup_stable_decay", "cosine_warmup_with_min_lr"});
  require_one_of("schedule.counts", schedule.counts, {"steps", "sequences"});
  require_one_of("objective.kind", objective.kind, {"next_token", "dpo", "kto", "orpo", "simpo", "distillation", "ppo"});
  require_one_of("objective.average", objective.average, {"step", "micro_batch"});
  require_one_of("objective.balance", objective.balance, {"targets", "micro_batches", "none"});
  require_one_of("adapter.kind", adapter.kind, {"none", "lora", "dora", "qlora", "qdora", "qat", "qat_lora", "prefix"});
  require_one_of("parallel.schedule", parallel.schedule, {"1f1b", "interleaved", "gpipe", "aiao", "zero_bubble"});
  require_one_of("output.log_style", output.log_style, {"xtrain", "torchtune", "megatron", "hugging_face", "musa_demo"});
  require_one_of("output.checkpoint_style", output.checkpoint_style, {"xtrain", "torchtune", "hugging_face", "megatron"});
  const auto positive = [](const char* member, std::size_t value) {
    require<config_error>(value > 0, "run description: ", member, ": must be positive; given 0");
  };
  positive("micro_batch_size", micro_batch_size), positive("gradient_accumulation_steps", gradient_accumulation_steps), positive("epochs", epochs);
  positive("parallel.ranks", parallel.ranks), positive("parallel.tensor", parallel.tensor), positive("parallel.pipeline", parallel.pipeline);
  positive("parallel.context", parallel.context), positive("parallel.expert", parallel.expert), positive("parallel.virtual_stages", parallel.virtual_stages);
  require<config_error>(parallel.zero <= 3, "run description: parallel.zero: must be 0, 1, 2 or 3; given ", parallel.zero);
  require<config_error>(!parallel.sequence_parallel || parallel.tensor > 1,
                        "run description: parallel.sequence_parallel: needs tensor-parallel ranks; parallel.tensor is ", parallel.tensor);
  require<config_error>(parallel.virtual_stages == 1 || parallel.pipeline > 1,
                        "run description: parallel.virtual_stages: ", parallel.virtual_stages, " needs pipeline-parallel ranks; parallel.pipeline is ",
                        parallel.pipeline);
  const std::size_t model_ranks = parallel.tensor * parallel.pipeline * parallel.context;
  require<config_error>(parallel.ranks % model_ranks == 0, "run description: parallel.ranks: must be divisible by tensor x pipeline x context = ",
                        model_ranks, "; given ", parallel.ranks);
  require<config_error>(!model.folder.empty() || !model.config.empty(), "run description: model.folder: must be given, or model.config with the sizes");
  require<config_error>(schedule.warmup_ratio >= 0.0 && schedule.warmup_ratio <= 1.0, "run description: schedule.warmup_ratio: must be from 0 to 1; given ",
                        schedule.warmup_ratio);
  for (std::size_t i = 0; i < data.size(); ++i) detail::check_data(data[i], concat("data[", i, "]"));
  for (std::size_t i = 0; i < eval_data.size(); ++i) detail::check_data(eval_data[i], concat("eval_data[", i, "]"));
  detail::check_uses(*this);
}

}  // namespace xtrain
