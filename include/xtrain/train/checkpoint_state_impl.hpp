// Definitions of checkpoint_state.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

#include <xtrain/core/checksum.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/gguf.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/train/checkpoint_state.hpp>
#include <xtrain/train/training_progress.hpp>

namespace xtrain {

XTRAIN_INLINE std::vector<std::pair<std::size_t, std::string>> checkpoints_in(const std::string& folder) {
  constexpr std::string_view prefix = "checkpoint-";
  std::vector<std::pair<std::size_t, std::string>> found;
  for (const std::string& name : try_names_in(folder).value_or(std::vector<std::string>{})) {
    if (!name.starts_with(prefix)) continue;
    std::size_t step = 0;
    const auto [end, problem] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
    std::string path = folder + "/" + name;
    if (problem == std::errc{} && end == name.data() + name.size() && is_directory(path)) found.emplace_back(step, std::move(path));
  }
  std::sort(found.begin(), found.end());
  return found;
}

namespace detail {

XTRAIN_INLINE void remove_unfinished_files(const std::string& folder) {
  const auto number = [](std::string_view text) {
    pid_t value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    return problem == std::errc{} && end == text.data() + text.size() && value > 0 ? value : pid_t{0};
  };
  const auto take_last = [](std::string_view& text) {
    const std::size_t dot = text.rfind('.');
    if (dot == std::string_view::npos || dot == 0) return std::string_view{};
    const std::string_view last = text.substr(dot + 1);
    text = text.substr(0, dot);
    return last;
  };
  for (const std::string& name : try_names_in(folder).value_or(std::vector<std::string>{})) {
    std::string_view rest = name;
    if (name.starts_with(".") || take_last(rest) != "part") continue;
    const std::string_view last = take_last(rest);
    const bool is_drawn = last.size() == 16 && last.find_first_not_of("0123456789abcdef") == std::string_view::npos;  // drawn_name()
    const pid_t owner = number(is_drawn ? take_last(rest) : last);
    const std::string path = concat(folder, "/", name);
    if (owner > 0 && ::kill(owner, 0) != 0 && errno == ESRCH && !is_directory(path)) ::unlink(path.c_str());
  }
}

/// The files are still in the page cache.
[[nodiscard]] inline json checksums(const std::string& folder) {
  json all = json::object();
  for (const std::string& name : names_in(folder))
    if (name.ends_with(".safetensors")) all[name] = checksum_text(mapped_file(folder + "/" + name).text());
  return all;
}

[[nodiscard]] inline json rampup_of(const checkpoint_state& state) {
  const batch_size_rampup& r = state.rampup;
  return r ? json::array({r.start, r.increment, r.samples}) : json::array();
}

XTRAIN_INLINE void write_checkpoint_state(const std::string& folder, const checkpoint_state& state) {
  const training_progress& p = state.progress;
  json all{{"step", p.step},
           {"data", {{"epoch", p.data.epoch}, {"step", p.data.step}}},
           {"loss_scale", {{"scale", p.loss_scale.scale}, {"growth_tracker", p.loss_scale.good}, {"hysteresis_tracker", p.loss_scale.overflows_left}}},
           {"updates", p.updates},
           {"skipped", p.skipped},
           {"skipped_sequences", p.skipped_sequences},
           {"bad_in_a_row", p.bad_in_a_row},
           {"seed", p.seed},
           {"micro_batch_size", state.micro_batch_size},
           {"gradient_accumulation_steps", state.gradient_accumulation_steps},
           {"ranks", state.ranks},
           {"seq_length", state.seq_length},
           {"rampup_batch_size", rampup_of(state)},
           {"precision", state.precision},
           {"optimizer", state.optimizer},
           {"objective", state.objective},
           {"settings", state.settings.object()},
           {"checksums", checksums(folder)}};
  if (!state.model.object().empty()) all["model"] = state.model.object();
  if (!state.base_weights.empty()) all["base_weights"] = state.base_weights;
  all["checksum"] = checksum_text(all.dump());
  write_file(folder + "/trainer_state.json", all.dump(2) + "\n");
}

XTRAIN_INLINE json_settings read_checkpoint_state(const std::string& path) {
  json state = read_json(path);
  if (state.is_object() && state.contains("checksum")) {
    const json expected = state["checksum"];
    state.erase("checksum");
    const std::string found = checksum_text(state.dump());
    require<file_error>(expected == found, path, ": must be what was saved; its checksum is ", found, ", it has ", expected.dump());
  } else {  // older states have no checksum
    require<file_error>(!state.is_object() || !state.contains("checksums"), path, ": must be what was saved; it has no 'checksum' of its own");
  }
  return {std::move(state), path};
}

XTRAIN_INLINE void require_undamaged(const std::string& folder, const json_settings& state) {
  const auto files = state.object().find("checksums");
  if (files == state.object().end()) return;
  require<config_error>(files->is_object(), state.who(), ": 'checksums' must be an object");
  for (const auto& [name, expected] : files->items()) {
    require<config_error>(expected.is_string() && name.find('/') == std::string::npos, state.who(),
                          ": 'checksums' must name files of the folder, each with a text");
    const std::string path = folder + "/" + name;
    if (!file_exists(path)) continue;  // the reader of the folder reports missing files
    const std::string found = checksum_text(mapped_file(path).text());
    if (found == expected.get<std::string>()) continue;
    (void)safetensors_file(path);  // throws a more specific error if the file is truncated
    fail<file_error>(path, ": must be what was saved; its checksum is ", found, ", trainer_state.json has ", expected.get<std::string>());
  }
}

XTRAIN_INLINE training_progress resumed_progress(const json_settings& s, const checkpoint_state& c) {
  const std::string& path = s.who();
  const auto same = [&](const char* key, std::size_t now) {
    const std::size_t then = s.size({key});
    require<config_error>(then == now, path, ": a resumed run must have the same ", key, "; it was ", then, ", now ", now,
                          " is given");
  };
  // the number of data-parallel ranks may differ
  const std::size_t rows = s.size({"micro_batch_size"}) * s.size({"gradient_accumulation_steps"}) * s.size_or(1, {"ranks"});
  require<config_error>(rows == c.micro_batch_size * c.gradient_accumulation_steps * c.ranks, path,
                        ": a resumed run must have the same global batch size (micro_batch_size x gradient_accumulation_steps x ranks): it had ", rows,
                        ", now ", c.micro_batch_size, " x ", c.gradient_accumulation_steps, " x ", c.ranks, " are given");
  same("seq_length", c.seq_length);
  // the ramp-up converts steps to sequences
  const auto saved_rampup = s.object().find("rampup_batch_size");
  const json rampup = saved_rampup == s.object().end() ? json::array() : *saved_rampup, given = rampup_of(c);
  require<config_error>(rampup == given, path, ": a resumed run must have the same rampup_batch_size (start, increment, samples); it was ", rampup.dump(),
                        ", now ", given.dump(), " is given");
  const auto count = [&](const json_settings& from, const char* key) {
    const auto at = from.object().find(key);
    require<config_error>(at != from.object().end() && at->is_number_unsigned(), from.who(), ": '", key, "' must be a whole number");
    return at->get<std::size_t>();
  };
  const auto steps = [&](const json_settings& from, const char* key) {
    const std::size_t value = count(from, key);
    require<config_error>(value < std::size_t{1} << 53, from.who(), ": '", key, "' must be below 2^53, because steps are counted from it; given ",
                          value);
    return value;
  };
  training_progress p;
  p.step = steps(s, "step");
  const json_settings data = s.inner({"data"}), scale = s.inner({"loss_scale"});
  p.data = {steps(data, "epoch"), steps(data, "step")};
  p.loss_scale = {scale.number_or(1.0, {"scale"}), steps(scale, "growth_tracker"), steps(scale, "hysteresis_tracker")};
  require<config_error>(p.loss_scale.scale > 0.0, scale.who(), ": 'scale' must be positive; given ", p.loss_scale.scale);
  p.updates = steps(s, "updates");
  p.skipped = steps(s, "skipped");
  if (s.object().contains("skipped_sequences")) p.skipped_sequences = steps(s, "skipped_sequences");
  p.bad_in_a_row = steps(s, "bad_in_a_row");
  p.seed = count(s, "seed");
  require<config_error>(p.seed == c.seed, path, ": a resumed run must have the same seed; it was ", p.seed, ", now ", c.seed,
                        " is given");
  for (const auto& [key, now] : {std::pair<const char*, std::string_view>{"precision", c.precision}, {"optimizer", c.optimizer}})
    require<config_error>(s.text_or("", {key}) == now, path, ": a resumed run must have the same ", key, "; it was '",
                          s.text_or("", {key}), "', now it is '", now, "'");
  const std::string objective = s.text_or("next_token", {"objective"});  // older states have no objective
  require<config_error>(objective == c.objective, path, ": a resumed run must have the same objective; it was '", objective, "', now it is '", c.objective,
                        "'");
  require_same_model(s, c.model);
  return p;
}

/// Settings in config.json that may differ between parts of a run: they change neither tensors nor results without dropout.
[[nodiscard]] inline bool may_change(std::string_view setting) {
  constexpr std::array<std::string_view, 12> names{"max_position_embeddings", "original_max_position_embeddings", "n_positions",       "n_ctx",
                                                   "seq_length",              "model_max_length",                 "max_sequence_length",
                                                   "initializer_range",       "output_router_logits",             "router_aux_loss_coef",
                                                   "z_loss_weight",           "id2label"};
  constexpr std::array<std::string_view, 4> endings{"dropout", "pdrop", "dropout_prob", "token_id"};
  return setting == "label2id" || std::find(names.begin(), names.end(), setting) != names.end() ||
         std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return setting.ends_with(ending); });
}

struct changed_setting {
  std::string name;
  json before, now;
};
/// null where a side lacks the setting. Empty for older states.
[[nodiscard]] inline std::vector<changed_setting> changes_of_model(const json_settings& saved, const json_settings& now) {
  std::vector<changed_setting> all;
  const auto at = saved.object().find("model");
  if (at == saved.object().end() || now.object().empty()) return all;
  require<config_error>(at->is_object(), saved.who(), ": 'model' must be an object");
  const auto in = [](const json& object, const std::string& key) { return object.contains(key) ? object[key] : json(); };
  for (const auto& [key, value] : now.object().items())
    if (const json before = in(*at, key); before != value) all.push_back({key, before, value});
  for (const auto& [key, value] : at->items())
    if (!now.object().contains(key) && !value.is_null()) all.push_back({key, value, json()});
  return all;
}
[[nodiscard]] inline std::string setting_text(const json& value) {
  return value.is_null() ? "not set" : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

XTRAIN_INLINE void require_same_model(const json_settings& saved, const json_settings& now) {
  for (const changed_setting& one : changes_of_model(saved, now))
    require<config_error>(may_change(one.name), saved.who(), ": a resumed run must have the same model; its ", one.name, " was ", setting_text(one.before),
                          ", now it is ", setting_text(one.now));
}

XTRAIN_INLINE std::string base_weights_fingerprint(const std::string& base_model) {
  if (base_model.empty() || !file_exists(base_model)) return {};
  std::vector<std::string> files;
  if (is_directory(base_model)) {
    const std::vector<std::string> names = try_names_in(base_model).value_or(std::vector<std::string>{});
    // what weight_folder reads: a folder may have other files, and the weights in two formats
    constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kinds{
        {{"model", ".safetensors"}, {"pytorch_model", ".bin"}, {"", ".safetensors"}, {"", ".bin"}, {"", ".pth"}, {"", ".pt"}}};
    for (const auto& [beginning, ending] : kinds)
      if (files.empty())
        for (const std::string& name : names)
          if (name.starts_with(beginning) && name.ends_with(ending) && !is_beside_model(name) && !is_directory(concat(base_model, "/", name)))
            files.push_back(concat(base_model, "/", name));
  }
  std::string all;
  try {
    if (!is_directory(base_model)) files = gguf_file::is_one(base_model) ? gguf_files(base_model) : std::vector<std::string>{base_model};
    for (const std::string& file : files) {
      const mapped_file mapped(file);
      all += concat(mapped.size());
      for (const std::uint64_t sum : sampled_checksums(mapped.text())) all += concat(" ", sum);
      all += "\n";
    }
  } catch (const file_error&) {  // a model's name may match an unrelated file
    return {};
  }
  return all.empty() ? std::string() : checksum_text(all);
}

XTRAIN_INLINE void require_same_base(const json_settings& saved, const checkpoint_state& now, const std::string& base_model) {
  const std::string then = saved.text_or("", {"base_weights"});
  require<config_error>(then.empty() || now.base_weights.empty() || then == now.base_weights, saved.who(),
                        ": a resumed run must train the adapter of the same weights; those of ", base_model, " have the fingerprint ", now.base_weights,
                        ", it was ", then, ". If they are the same in other files, begin a new run with the checkpoint's adapter");
}

XTRAIN_INLINE std::vector<std::string> changed_settings(const json_settings& saved, const json_settings& now) {
  std::vector<std::string> all;
  const json_settings then = saved.inner({"settings"});
  // older states have no checksum of a sample_source's files
  const auto lacks_checksum = [](const json& before, const json& after) {
    if (!before.is_string() || !after.is_string()) return false;
    const auto& text = after.get_ref<const std::string&>();
    const std::size_t at = text.rfind(sample_source::checksum_follows);
    return at != std::string::npos && before.get_ref<const std::string&>() == text.substr(0, at);
  };
  for (const auto& [key, value] : now.object().items())
    if (const auto at = then.object().find(key); at != then.object().end() && *at != value && !(key == "data" && lacks_checksum(*at, value)))
      all.push_back(concat(key, " is ", value.dump(), ", it was ", at->dump()));
  return all;
}

XTRAIN_INLINE std::vector<std::string> changed_settings(const json_settings& saved, const checkpoint_state& now) {
  std::vector<std::string> all = changed_settings(saved, now.settings);
  for (const changed_setting& one : changes_of_model(saved, now.model))
    all.push_back(concat("the model's ", one.name, " is ", setting_text(one.now), ", it was ", setting_text(one.before)));
  return all;
}

}  // namespace detail

}  // namespace xtrain
