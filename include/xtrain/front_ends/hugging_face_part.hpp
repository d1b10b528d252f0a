#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/program_flags.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

/// A part of the translation: reads some of the flags into some of the run.
class hugging_face_part {
 public:
  /// `config`: the model's config.json, or an empty object.
  hugging_face_part(program_flags& flags, run_description& run, const json& config) : flags_(flags), run_(run), config_(config) {}

 protected:
  [[nodiscard]] std::string in_model(const char* file) const {
    return concat(run_.model.folder, run_.model.folder.ends_with('/') ? "" : "/", file);
  }
  /// Refuses samples longer than the model's config allows, naming the flag. The last token of a sample is no input.
  void require_positions(const char* flag_must, std::size_t length, const std::string& given) const {
    for (const char* key : {"n_positions", "max_position_embeddings", "max_sequence_length", "seq_length"}) {  // the last two are ChatGLM's
      const auto at = config_.find(key);
      if (at == config_.end() || !at->is_number_unsigned()) continue;
      const auto positions = at->get<std::size_t>();
      require<config_error>(length - 1 <= positions, flag_must, " at most ", positions + 1, " tokens, the model's ", key,
                            " and one that is no input; given ", given);
      return;
    }
  }
  [[nodiscard]] static json unscaled() { return {{"initial", 1.0}, {"min", 1.0}, {"window", std::size_t{1} << 50U}, {"hysteresis", 1}}; }
  /// As Python's json.load: the last value of a repeated key counts.
  [[nodiscard]] json python_json(std::string_view text, const std::string& who) {
    std::vector<std::string> twice;
    json all = parse_python_json<config_error>(text, who, twice);
    for (const std::string& key : twice) run_.notes.push_back(concat(who, ": ", key, ": is given twice; the last one counts"));
    return all;
  }
  [[nodiscard]] json python_json(const std::string& file) { return python_json(mapped_file(file).text(), file); }
  [[nodiscard]] json json_of(const char* name) {
    json value = python_json(flags_.text(name), concat("--", name));
    if (!value.is_object()) flags_.wrong(name, "a JSON object");
    return value;
  }

  program_flags& flags_;
  run_description& run_;
  const json& config_;
};

}  // namespace xtrain::detail
