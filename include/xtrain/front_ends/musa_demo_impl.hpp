#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/musa_demo.hpp>
#include <xtrain/front_ends/program_flags.hpp>

namespace xtrain {

namespace detail {

/// A value as Python prints it.
[[nodiscard]] inline std::string python_text(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}
[[nodiscard]] inline bool is_python_type(const json& value, const json& other) {
  if (value.is_number() && other.is_number()) return value.is_number_float() == other.is_number_float();
  return value.type() == other.type();
}

/// Replaced settings of override_config.json, and the demo's lines. Settings missing in config.json are left to the family.
[[nodiscard]] inline json musa_overrides(const json& given, const json& config, std::vector<std::string>& lines) {
  json result = json::object();
  require<config_error>(given.is_object(), "override_config.json: must be an object; given ", given.dump());
  for (const auto& [key, value] : given.items()) {
    const auto old = config.find(key);
    if (old != config.end() && old->is_null()) {
      lines.push_back(concat("WARNING: config ", key, " is set None and skip override it"));
      continue;
    }
    if (key == "torch_dtype") {  // weights are always read as fp32
      constexpr std::array<std::string_view, 10> dtypes{"float16", "bfloat16", "float32", "float64", "int8",
                                                        "int16",   "int32",    "int64",   "uint8",   "bool"};
      require<config_error>(value.is_string() && std::find(dtypes.begin(), dtypes.end(), value.get<std::string>()) != dtypes.end(),
                            "override_config.json: torch_dtype: must be a dtype of torch; given ", python_text(value));
      if (old != config.end()) lines.push_back(concat("modify torch_dtype: torch.", python_text(*old), " -> torch.", python_text(value)));
      continue;
    }
    require<config_error>(old == config.end() || is_python_type(value, *old), "override_config.json: Type mismatch of ", key, ": ",
                          old == config.end() ? std::string() : python_text(*old), " vs ", python_text(value));
    result[key] = value;
  }
  return result;
}

[[nodiscard]] inline std::vector<std::string> files_of_split(const std::string& folder, std::initializer_list<std::string_view> names) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool is_split =
        std::any_of(names.begin(), names.end(), [&](std::string_view one) { return name.find(one) != std::string::npos; });
    if (entry.is_regular_file() && is_split && !name.starts_with(".")) found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace detail

namespace detail {

/// tokenizer.model_max_length of a model's folder; 0: unknown, a huge number in transformers.
[[nodiscard]] inline double model_max_length(const std::string& folder) {
  const std::string file = concat(folder, folder.ends_with('/') ? "" : "/", "tokenizer_config.json");
  if (!file_exists(file)) return 0.0;
  const json settings = read_json(file);
  const auto length = settings.find("model_max_length");
  if (length == settings.end() || !length->is_number()) return 0.0;
  require<config_error>(length->get<double>() >= 2.0, file, ": model_max_length: must be at least 2; given ", length->dump());
  return length->get<double>();
}

}  // namespace detail

XTRAIN_INLINE bool musa_demo_texts_are_long(const std::string& folder) {
  const double length = detail::model_max_length(folder);
  return length == 0.0 || length > 1024.0;
}

XTRAIN_INLINE musa_demo_run read_musa_demo(const std::vector<std::string>& words, const std::string& override_config) {
  musa_demo_run result;
  run_description& run = result.run;
  const launched_script launched = read_launcher(words);
  program_flags flags(launched.flags);
  for (const std::string& word : words) run.made_from += concat(run.made_from.empty() ? "" : " ", word);
  run.notes = launched.notes;
  run.parallel.ranks = launched.ranks;
  run.model.folder = flags.text("model_name_or_path", "gpt2");
  const std::string dataset = flags.text("dataset_name_or_path", "wikitext"),
                    config_name = flags.text("dataset_config_name", "wikitext-103-raw-v1");
  run.micro_batch_size = flags.whole<std::size_t>("batch_size", 2, 1);
  run.epochs = flags.whole<std::size_t>("epochs", 100, 1);
  run.output.folder = flags.text("output_dir", "main_hf");  // the demo saves nothing; a run here does
  run.device = flags.one_of("device", "cpu", {"cpu", "cuda", "npu", "musa"});  // the demo's users edit its source
  flags.finish();

  std::error_code problem;
  const auto in_model = [&](const char* file) { return concat(run.model.folder, run.model.folder.ends_with('/') ? "" : "/", file); };
  const json config = file_exists(in_model("config.json")) ? read_json(in_model("config.json")) : json::object();
  if (const auto type = config.find("model_type"); type != config.end() && (*type == "bert" || *type == "roberta"))
    fail<config_error>("--model_name_or_path: must be a decoder; given '", run.model.folder, "' with model_type ", type->dump(),
                       ", an encoder, whose next tokens the demo predicts although it sees them; train_encoder trains encoders");
  if (!override_config.empty()) {
    std::vector<std::string> twice;
    const json given = parse_python_json<config_error>(override_config, "override_config.json", twice);
    for (const std::string& key : twice) run.notes.push_back(concat("override_config.json: ", key, ": is given twice; the last one counts"));
    run.model.override_config = detail::musa_overrides(given, config, result.lines);
  }

  data_description data{.kind = "text"};
  data.group_texts = 1000;
  data.group_workers = 16;
  if (!musa_demo_texts_are_long(run.model.folder)) data.block_size = static_cast<std::size_t>(detail::model_max_length(run.model.folder));
  run.seq_length = data.block_size - 1;  // the last token of a block is no input

  data_description test = data;
  if (std::filesystem::is_directory(dataset, problem)) {
    const std::string inner = dataset + "/" + config_name;
    const std::string& folder = std::filesystem::is_directory(inner, problem) ? inner : dataset;
    data.files = detail::files_of_split(folder, {"train"});
    test.files = detail::files_of_split(folder, {"test"});
    require<config_error>(!data.files.empty() && !test.files.empty(),
                          "--dataset_name_or_path: must have files of texts whose names have train and test in them, as ",
                          "train.jsonl and test.jsonl; ", folder, " has ", data.files.size(), " and ", test.files.size());
    run.eval_data.push_back(test);
    run.output.eval_epochs = true;
  } else {
    data.files = {dataset};
    run.notes.push_back(concat("--dataset_name_or_path ", dataset, ": a file has no test split: nothing is evaluated"));
  }
  for (const std::vector<std::string>* files : {&data.files, &test.files})
    for (const std::string& file : *files)
      require<config_error>(!file.ends_with(".parquet") && !file.ends_with(".arrow"),
                            "--dataset_name_or_path: must have files of texts, a .txt with one per line, .json, ", ".jsonl or .csv; given ",
                            file);
  run.data.push_back(data);

  run.optimizer.kind = "adamw";
  run.optimizer.settings = {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.1}};
  run.optimizer.decays = "all";
  run.optimizer.max_grad_norm = 1.0;
  run.optimizer.keep_gradients = true;
  run.schedule = {
      .kind = "cosine", .learning_rate = 1e-4 * static_cast<double>(run.parallel.ranks), .warmup_steps = 100, .from_zero = true};
  run.schedule.settings = {{"decay_epochs", 1}, {"continues", true}};
  run.objective.average = "micro_batch";
  run.drop_last = false;
  run.seed = 123;
  run.output.log_style = "musa_demo";
  run.output.log_steps = 10;
  run.check();
  return result;
}

}  // namespace xtrain
