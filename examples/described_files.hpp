// Checks that everything a run description reads exists, before a trainer is compiled and before it loads anything.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/data/json_records.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/train/checkpoint_state.hpp>

namespace described_files {

/// Users' names of a run description's members: "tuned.yaml:12: checkpointer.checkpoint_dir" where a front end read them, or "--output_dir". A missing member
/// has its own name.
using member_names = std::map<std::string, std::string>;

[[nodiscard]] inline std::string name_of(const member_names& names, const std::string& member) {
  const auto found = names.find(member);
  return found == names.end() ? member : found->second;
}

[[nodiscard]] inline bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// The fields that a record must have. The reader checks all others.
[[nodiscard]] inline std::vector<std::string> needed_fields(const xtrain::data_description& data) {
  const auto named = [&](const char* name) {
    const auto at = data.columns.find(name);
    return at != data.columns.end() && at->is_string() ? at->get<std::string>() : std::string(name);
  };
  if (data.kind == "alpaca" || (data.kind == "chat" && !data.prompt_template.empty())) return {named("instruction"), named("output")};
  if (data.kind == "chat" && (data.form == "messages" || data.form == "conversations")) return {named(data.form.c_str())};
  if (data.kind == "text" || data.kind == "prompts") return {data.text_field};
  if (data.kind == "preference") {
    std::vector<std::string> fields;
    for (const char* name : {"prompt", "chosen", "rejected"})
      if (data.columns.contains(name)) fields.push_back(named(name));
    return fields;
  }
  return {};
}

/// Refuses a file whose first record lacks a field. The reader checks records of other formats.
inline void require_fields(const xtrain::data_description& data, const std::string& path, const std::string& member = "data") {
  const std::vector<std::string> fields = needed_fields(data);
  if (fields.empty() || (!path.ends_with(".json") && !path.ends_with(".jsonl"))) return;
  const xtrain::json record = xtrain::first_record(path);
  if (!record.is_object()) return;
  for (const std::string& field : fields) {
    if (field.empty() || record.contains(field)) continue;
    std::string all;
    for (const auto& [name, ignored] : record.items()) all += xtrain::concat(all.empty() ? "" : ", ", name);
    xtrain::fail<xtrain::config_error>(member, " ", path, ": records must have a field '", field, "'; the first one has ", all.empty() ? "none" : all);
  }
}

/// Refuses a config that names other weight files than the folder has: all of these are read.
///   throws  config_error
inline void require_weight_files(const std::string& folder, std::vector<std::string> given, const member_names& names = {},
                                 const std::string& of = "model.files") {
  if (given.empty()) return;
  const std::string member = name_of(names, of);
  if (xtrain::gguf_file::is_one(folder)) {  // the file is the model
    for (const std::string& file : given)
      xtrain::require<xtrain::config_error>(file == std::filesystem::path(folder).filename().string(), member, ": ", file, " must be the model's file, ",
                                            folder);
    return;
  }
  std::vector<std::string> there;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().extension() == std::filesystem::path(given.front()).extension()) there.push_back(entry.path().filename().string());
  std::sort(there.begin(), there.end());
  std::sort(given.begin(), given.end());
  for (const std::string& file : given)
    xtrain::require<xtrain::config_error>(std::binary_search(there.begin(), there.end(), file), member, ": ", file, " must be in ", folder, "; it is not");
  for (const std::string& file : there)
    xtrain::require<xtrain::config_error>(std::binary_search(given.begin(), given.end(), file), member, ": must name all weight files of ", folder, "; ", file,
                                          " is not named");
}

/// Whether a folder has a file that load_tokenizer reads, or a GGUF file has a tokenizer.
[[nodiscard]] inline bool has_tokenizer(const std::string& folder) {
  if (xtrain::gguf_file::is_one(folder)) return xtrain::gguf_file(folder).has("tokenizer.ggml.tokens");
  for (const char* name : {"tokenizer.json", "vocab.json", "vocab.txt"})
    if (exists(folder + "/" + name)) return true;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".model" || entry.path().extension() == ".tiktoken") return true;
  return false;
}

/// Refuses a model folder of another family, other sizes, or too short a context. The trainer knows settings that config.json omits.
inline void require_sizes(const xtrain::run_description& run, const member_names& names) {
  const std::string file = run.model.folder + "/config.json";
  const bool is_gguf = !run.model.folder.empty() && xtrain::gguf_file::is_one(run.model.folder);
  const bool has_file = is_gguf || (!run.model.folder.empty() && exists(file));
  const xtrain::json config = is_gguf ? xtrain::read_config(run.model.folder).object() : has_file ? xtrain::read_json(file) : run.model.config;
  if (!config.is_object()) return;
  const std::string member = name_of(names, "model");
  if (has_file) {
    const auto type = config.find("model_type");
    if (!run.model.family.empty() && type != config.end() && type->is_string())
      xtrain::require<xtrain::config_error>(*type == run.model.family, member, ": ", run.model.folder, " must hold a model of the family ", run.model.family,
                                            "; its model_type is ", type->get<std::string>());
    for (const auto& item : run.model.config.items()) {
      const auto at = config.find(item.key());
      if (at == config.end() || at->is_null()) continue;
      const bool same = at->is_number() && item.value().is_number() ? at->get<double>() == item.value().get<double>() : *at == item.value();
      xtrain::require<xtrain::config_error>(same, member, ": ", item.key(), " must be that of ", run.model.folder, ", ", at->dump(),
                                            "; the run's config names ", item.value().dump());
    }
  }
  std::size_t length = run.seq_length;
  if (run.tokenizer.max_length > 0) length = std::min(length, run.tokenizer.max_length);
  for (const xtrain::json* in : {&run.model.override_config, &config})
    for (const char* key : {"n_positions", "max_position_embeddings"}) {
      const auto longest = in->find(key);
      if (longest == in->end() || !longest->is_number_unsigned()) continue;
      xtrain::require<xtrain::config_error>(length <= longest->get<std::size_t>(), name_of(names, "seq_length"), ": must be at most ", longest->dump(),
                                            " tokens, the model's ", key, "; given ", length);
      return;
    }
}

/// Refuses a folder with checkpoints of another run, unless the run resumes it or may overwrite it.
inline void require_output(const xtrain::run_description& run, const member_names& names) {
  const xtrain::output_description& output = run.output;
  const std::string member = name_of(names, "output.folder");
  std::error_code ignored;
  xtrain::require<xtrain::config_error>(run.model.folder.empty() || !std::filesystem::equivalent(output.folder, run.model.folder, ignored), member, " ",
                                        output.folder, ": must not be the model's folder, which would be overwritten");
  const auto earlier = xtrain::checkpoints_in(output.folder);
  if (output.overwrite) {  // the initial weights must not be removed
    for (const auto& one : earlier)
      for (const std::string& read : {run.model.folder, run.model.adapter, run.objective.second_model, run.tokenizer.path}) {
        const auto from = std::filesystem::weakly_canonical(read, ignored), folder = std::filesystem::weakly_canonical(one.second, ignored);
        const bool inside = !read.empty() && std::mismatch(folder.begin(), folder.end(), from.begin(), from.end()).first == folder.end();
        xtrain::require<xtrain::config_error>(!inside, member, " ", output.folder, ": must be another folder, because its checkpoints are removed: ", read,
                                              " is read");
      }
    return;
  }
  const std::string& style = output.checkpoint_style;
  if (output.resume == "latest" || earlier.empty()) return;
  if (!output.resume.empty()) {
    const std::string state = output.resume + "/trainer_state.json";
    if (style == "hugging_face" || !exists(state)) return;  // transformers' Trainer goes on from an earlier checkpoint of a folder
    const auto from = xtrain::read_json(state).value("step", std::size_t{0});
    xtrain::require<xtrain::config_error>(earlier.back().first <= from, member, " ", output.folder, ": must have no checkpoints of later steps than ",
                                          output.resume, ", with which the run goes on; it has checkpoint-", earlier.back().first,
                                          ". Choose another folder, or remove them");
    return;
  }
  xtrain::fail<xtrain::config_error>(member, " ", output.folder, ": holds checkpoints of an earlier run, the newest of step ", earlier.back().first, "; ",
                                     style == "hugging_face" ? "give --resume_from_checkpoint True to go on, --overwrite_output_dir True to begin anew"
                                     : style == "torchtune"  ? "give resume_from_checkpoint=True to go on"
                                     : style == "megatron"   ? "give it as --load, too, to go on"
                                                             : "resume it",
                                     ", or choose another folder");
}

/// names   users' names of the description's members
/// throws  config_error: a missing folder, file or record field; no checkpoint to resume from; checkpoints of another run
inline void require(const xtrain::run_description& run, const member_names& names = {}) {
  const auto must_be_folder = [&](const char* member, const std::string& folder) {
    std::error_code ignored;
    const bool may_be_gguf = std::string_view(member) != "model.adapter";
    const bool is_there = std::filesystem::is_directory(folder, ignored) || (may_be_gguf && xtrain::gguf_file::is_one(folder));
    xtrain::require<xtrain::config_error>(folder.empty() || is_there, name_of(names, member),
                                          ": must be a folder on this machine; given '", folder, "'. Models are not downloaded");
  };
  must_be_folder("model.folder", run.model.folder);
  require_weight_files(run.model.folder, run.model.files, names);
  must_be_folder("model.adapter", run.model.adapter);
  must_be_folder("objective.second_model", run.objective.second_model);
  must_be_folder("rollouts.reward_model", run.rollouts.reward_model);
  must_be_folder("rollouts.value_model", run.rollouts.value_model);
  require_weight_files(run.rollouts.reward_model, run.rollouts.reward_files, names, "rollouts.reward_files");
  require_weight_files(run.rollouts.value_model, run.rollouts.value_files, names, "rollouts.value_files");
  for (const auto& [member, folder] : {std::pair{"rollouts.reward_model", run.rollouts.reward_model}, {"rollouts.value_model", run.rollouts.value_model}}) {
    std::error_code nothing;
    xtrain::require<xtrain::config_error>(run.rollouts.value_output.empty() || !std::filesystem::equivalent(run.rollouts.value_output, folder, nothing),
                                          name_of(names, "rollouts.value_output"), " ", run.rollouts.value_output, ": must not be the folder of ",
                                          name_of(names, member), ", which would be overwritten");
  }
  const bool is_model = run.tokenizer.path.empty();  // whose folder has the tokenizer
  const std::string& tokenizer = is_model ? run.model.folder : run.tokenizer.path;
  const std::string where = name_of(names, is_model ? "model.folder" : "tokenizer.path");
  xtrain::require<xtrain::config_error>(tokenizer.empty() || tokenizer == "byte" || exists(tokenizer), where,
                                        ": must be a file or a folder on this machine; given '", tokenizer, "'");
  std::error_code ignored;
  xtrain::require<xtrain::config_error>(!std::filesystem::is_directory(tokenizer, ignored) || has_tokenizer(tokenizer), where,
                                        ": the folder must hold tokenizer.json, vocab.json, vocab.txt, *.model or *.tiktoken; '", tokenizer,
                                        "' holds none of them");
  require_sizes(run, names);
  for (const std::vector<xtrain::data_description>* all : {&run.data, &run.eval_data}) {
    const std::string member = name_of(names, all == &run.data ? "data" : "eval_data");
    for (const xtrain::data_description& data : *all)
      for (const std::string& path : data.files) {
        if (data.kind == "indexed_instructions") continue;  // three datasets, whose names the reader knows
        const std::string file = data.kind == "indexed" ? path + ".idx" : path;
        xtrain::require<xtrain::config_error>(exists(file), member, ": must be a file on this machine; given '", file, "'. Datasets are not downloaded");
        require_fields(data, path, member);
      }
  }
  const xtrain::output_description& output = run.output;
  require_output(run, names);
  // as transformers' Trainer and torchtune's recipes; others begin at step 0
  const bool needs_one = output.resume == "latest" && (output.checkpoint_style == "torchtune" || output.checkpoint_style == "hugging_face");
  xtrain::require<xtrain::config_error>(!needs_one || !xtrain::checkpoints_in(output.folder).empty(), name_of(names, "output.resume"),
                                        ": there must be a checkpoint to go on from; there is no valid checkpoint in the output folder '", output.folder, "'");
  xtrain::require<xtrain::config_error>(output.resume.empty() || output.resume == "latest" || exists(output.resume + "/trainer_state.json"),
                                        name_of(names, "output.resume"), ": must be the folder of a checkpoint; there is no trainer_state.json in '",
                                        output.resume, "'");
}

}  // namespace described_files
