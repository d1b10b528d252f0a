#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/model_card.hpp>

namespace xtrain {

namespace detail {

/// Quoted YAML.
[[nodiscard]] inline std::string yaml_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') quoted += "\\n";
    else if (static_cast<unsigned char>(c) >= 0x20) quoted += c;
  }
  return quoted + '"';
}

}  // namespace detail

XTRAIN_INLINE std::string model_card_text(const model_card& card) {
  std::string text = "---\n";
  if (!card.base_model.empty()) text += concat("base_model: ", detail::yaml_text(card.base_model), "\n");
  text += concat("library_name: ", card.library, "\n");
  if (!card.pipeline.empty()) text += concat("pipeline_tag: ", card.pipeline, "\n");
  text += "tags:\n";
  for (const std::string& tag : card.tags) text += concat("- ", detail::yaml_text(tag), "\n");
  text += concat("- xtrain\n---\n\n# Model Card for Model ID\n\n", card.description, "\n");
  for (const char* section : {"Model Details", "Uses", "Bias, Risks, and Limitations", "Training Details", "Evaluation"})
    text += concat("\n## ", section, "\n\n[More Information Needed]\n");
  return text;
}

XTRAIN_INLINE void write_model_card(const std::string& folder, const model_card& card) {
  const std::string path = folder + "/README.md";
  if (!file_exists(path)) write_file(path, model_card_text(card));
}

}  // namespace xtrain
