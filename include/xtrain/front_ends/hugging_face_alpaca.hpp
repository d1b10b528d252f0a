// Stanford Alpaca's train.py: its data and added special tokens.
#pragma once

#include <cstddef>
#include <string>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/hugging_face_part.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/text/tokenizer_class.hpp>

namespace xtrain::detail {

class hugging_face_alpaca : hugging_face_part {
 public:
  using hugging_face_part::hugging_face_part;

  void read() {
    data_description data{.kind = "alpaca", .files = {flags_.text("data_path")}, .when_too_long = "truncate"};
    // the answer follows the colon without a line break
    data.prompt_template =
        "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the "
        "request.\n\n### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:";
    data.prompt_template_without_input =
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
        "### Instruction:\n{instruction}\n\n### Response:";
    run_.data.push_back(data);
    if (flags_.has("eval_data_path")) {
      data.files = {flags_.text("eval_data_path")};
      run_.eval_data.push_back(data);
    }
    const auto length = flags_.whole<std::size_t>("model_max_length", 512, 2);
    run_.seq_length = length - 1;  // the last token is no input
    require_positions("--model_max_length: must be", length, concat(length, flags_.has("model_max_length") ? "" : ", the default"));
    missing_special_tokens();
    run_.tokenizer.saved_settings = {{"model_max_length", length}, {"padding_side", "right"}};
    run_.objective.average = flags_.one_of("loss_average", "step", {"step", "micro_batch"});
    flags_.must_be_off({"lazy_preprocess"}, "samples are tokenized once");
  }

 private:
  /// train.py adds special tokens that are None, usually [PAD]. Tokens missing in the files are the tokenizer class's default; None for generic classes.
  void missing_special_tokens() {
    require<config_error>(!gguf_file::is_one(run_.model.folder), "--model_name_or_path: must be a folder for train.py, which adds special tokens that its ",
                          "tokenizer's files lack; given the GGUF file ", run_.model.folder, ". Convert it to a folder first");
    const std::string file = in_model("tokenizer_config.json"), map = in_model("special_tokens_map.json");
    const auto has = [&](const char* name) { return file_exists(in_model(name)); };
    if (!file_exists(file) && !has("tokenizer.json") && !has("tokenizer.model") && !has("vocab.json")) return;
    json settings = file_exists(file) ? read_json(file) : json::object();
    require<config_error>(settings.is_object(), file, ": must be a JSON object; it is ", settings.type_name());
    if (!settings.contains("added_tokens_decoder") && file_exists(map))  // an older folder: transformers reads them there
      if (const json named = read_json(map); named.is_object())
        for (const auto& one : named.items())
          if (!one.value().is_null()) settings[one.key()] = one.value();
    const tokenizer_class& own = class_of(settings);
    const bool other = own.name.empty();  // e.g. a class in the folder: assumed to lack only padding
    const auto none = [&](const char* name, bool has_by_itself) { return settings.contains(name) ? settings.at(name).is_null() : !has_by_itself; };
    require<config_error>(!none("eos_token", other || !own.eos.empty()), "--model_name_or_path: must have an end-of-text token; eos_token is ",
                          settings.contains("eos_token") ? "null" : "missing", " in ", file_exists(file) ? file : run_.model.folder);
    const auto add = [&](const char* name, bool has_by_itself, const char* text) {
      if (!none(name, has_by_itself)) return;
      run_.tokenizer.add_tokens.emplace_back(text);
      run_.tokenizer.special_tokens[name] = text;
    };
    add("pad_token", !own.pad.empty(), "[PAD]");
    add("bos_token", other || !own.bos.empty(), "<s>");
    add("unk_token", other || !own.unk.empty(), "<unk>");
  }
  [[nodiscard]] const tokenizer_class& class_of(const json& settings) const {
    const auto text = [](const json& from, const char* key) {
      const auto at = from.find(key);
      return at != from.end() && at->is_string() ? at->get<std::string>() : std::string();
    };
    std::string name = text(settings, "tokenizer_class");
    if (name.empty() && config_.is_object()) {
      name = text(config_, "tokenizer_class");
      if (name.empty()) name = class_of_model_type(text(config_, "model_type"));
    }
    return tokenizer_class_of(name);
  }
};

}  // namespace xtrain::detail
