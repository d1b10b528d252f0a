// What a run description reads must be there: told before a trainer is compiled, and before one loads anything.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/data/json_records.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/train/checkpoint_state.hpp>

namespace described_files {

[[nodiscard]] inline bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// The fields that a record of this data must have. What else it may have is the reader's to say.
[[nodiscard]] inline std::vector<std::string> needed_fields(const xtrain::data_description& data) {
  const auto named = [&](const char* name) {
    const auto at = data.columns.find(name);
    return at != data.columns.end() && at->is_string() ? at->get<std::string>() : std::string(name);
  };
  if (data.kind == "alpaca" || (data.kind == "chat" && !data.prompt_template.empty())) return {named("instruction"), named("output")};
  if (data.kind == "chat" && (data.form == "messages" || data.form == "conversations")) return {named(data.form.c_str())};
  if (data.kind == "text") return {data.text_field};
  if (data.kind == "preference") {
    std::vector<std::string> fields;
    for (const char* name : {"prompt", "chosen", "rejected"})
      if (data.columns.contains(name)) fields.push_back(named(name));
    return fields;
  }
  return {};
}

/// Refuses a file whose first record lacks a field. Records of other formats are the reader's to judge.
inline void require_fields(const xtrain::data_description& data, const std::string& path) {
  const std::vector<std::string> fields = needed_fields(data);
  if (fields.empty() || (!path.ends_with(".json") && !path.ends_with(".jsonl"))) return;
  const xtrain::json record = xtrain::first_record(path);
  if (!record.is_object()) return;
  for (const std::string& field : fields) {
    if (field.empty() || record.contains(field)) continue;
    std::string all;
    for (const auto& [name, ignored] : record.items()) all += xtrain::concat(all.empty() ? "" : ", ", name);
    xtrain::fail<xtrain::config_error>("data ", path, ": records must have a field '", field, "'; the first one has ", all.empty() ? "none" : all);
  }
}

/// Weight files that a config names must be those of the folder, all of which are read.
///   throws  config_error
inline void require_weight_files(const std::string& folder, std::vector<std::string> given) {
  if (given.empty()) return;
  std::vector<std::string> there;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().extension() == std::filesystem::path(given.front()).extension()) there.push_back(entry.path().filename().string());
  std::sort(there.begin(), there.end());
  std::sort(given.begin(), given.end());
  for (const std::string& file : given)
    xtrain::require<xtrain::config_error>(std::binary_search(there.begin(), there.end(), file), "model.files: ", file, " must be in ", folder, "; it is not");
  for (const std::string& file : there)
    xtrain::require<xtrain::config_error>(std::binary_search(given.begin(), given.end(), file), "model.files: must name all weight files of ", folder, "; ",
                                          file, " is not named");
}

/// Whether a folder has a file that load_tokenizer reads.
[[nodiscard]] inline bool has_tokenizer(const std::string& folder) {
  for (const char* name : {"tokenizer.json", "vocab.json", "vocab.txt"})
    if (exists(folder + "/" + name)) return true;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".model" || entry.path().extension() == ".tiktoken") return true;
  return false;
}

/// throws  config_error: which folder or file is missing, which field its records lack, or that there is no checkpoint to go on from
inline void require(const xtrain::run_description& run) {
  const auto must_be_folder = [](const char* member, const std::string& folder) {
    std::error_code ignored;
    xtrain::require<xtrain::config_error>(folder.empty() || std::filesystem::is_directory(folder, ignored), member,
                                          ": must be a folder on this machine; given '", folder, "'. Models are not downloaded");
  };
  must_be_folder("model.folder", run.model.folder);
  require_weight_files(run.model.folder, run.model.files);
  must_be_folder("model.adapter", run.model.adapter);
  must_be_folder("objective.second_model", run.objective.second_model);
  const std::string& tokenizer = run.tokenizer.path;
  xtrain::require<xtrain::config_error>(tokenizer.empty() || tokenizer == "byte" || exists(tokenizer),
                                        "tokenizer.path: must be a file or a folder on this machine; given '", tokenizer, "'");
  std::error_code ignored;
  xtrain::require<xtrain::config_error>(!std::filesystem::is_directory(tokenizer, ignored) || has_tokenizer(tokenizer),
                                        "tokenizer.path: the folder must hold tokenizer.json, vocab.json, vocab.txt, *.model or *.tiktoken; '", tokenizer,
                                        "' holds none of them");
  for (const std::vector<xtrain::data_description>* all : {&run.data, &run.eval_data})
    for (const xtrain::data_description& data : *all)
      for (const std::string& path : data.files) {
        if (data.kind == "indexed_instructions") continue;  // three datasets, whose names the reader knows
        const std::string file = data.kind == "indexed" ? path + ".idx" : path;
        xtrain::require<xtrain::config_error>(exists(file), all == &run.data ? "data" : "eval_data", ": must be a file on this machine; given '", file,
                                              "'. Datasets are not downloaded");
        require_fields(data, path);
      }
  const xtrain::output_description& output = run.output;
  // as transformers' Trainer and torchtune's recipes do; others begin at step 0
  const bool needs_one = output.resume == "latest" && (output.checkpoint_style == "torchtune" || output.checkpoint_style == "hugging_face");
  xtrain::require<xtrain::config_error>(!needs_one || !xtrain::checkpoints_in(output.folder).empty(),
                                        output.checkpoint_style == "hugging_face" ? "--resume_from_checkpoint" : "resume_from_checkpoint",
                                        ": there must be a checkpoint to go on from; there is no valid checkpoint in the output folder '", output.folder, "'");
  xtrain::require<xtrain::config_error>(output.resume.empty() || output.resume == "latest" || exists(output.resume + "/trainer_state.json"),
                                        "output.resume: must be the folder of a checkpoint; there is no trainer_state.json in '", output.resume, "'");
}

}  // namespace described_files
