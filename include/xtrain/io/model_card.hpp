// The README.md of a model's folder, as transformers and PEFT write one: shown on the Hub, with headings for the sections that the author must fill in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xtrain {

/// What a saved model's README.md says.
struct model_card {
  std::string base_model{};                  ///< name or path of the model that it was trained from; empty: trained from scratch
  std::string library = "transformers";      ///< what loads it: transformers or peft
  std::string pipeline = "text-generation";  ///< pipeline tag on the Hub; empty: none
  std::vector<std::string> tags{};           ///< in addition to xtrain
  std::string description{};                 ///< a sentence
};  // namespace detail

/// A card with the sections of the Hub's template.                            [huggingface_hub, templates/modelcard_template.md; peft, model_card]
[[nodiscard]] std::string model_card_text(const model_card& card);

/// Writes the card of a folder that has none. An existing README.md is kept.
///   throws  file_error
void write_model_card(const std::string& folder, const model_card& card);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/model_card_impl.hpp>
#endif
