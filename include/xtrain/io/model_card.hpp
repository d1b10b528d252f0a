// A model folder's README.md, as transformers and PEFT write, with headings for the author.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace xtrain {

/// Contents of a model card.
struct model_card {
  std::string base_model{};                  ///< name or path; empty: trained from scratch
  std::string library = "transformers";      ///< transformers or peft
  std::string pipeline = "text-generation";  ///< Hub tag; empty: none
  std::vector<std::string> tags{};
  std::string description{};                 ///< a sentence
};  // namespace detail

/// With the sections of the Hub's template. [huggingface_hub, templates/modelcard_template.md; peft, model_card]
[[nodiscard]] std::string model_card_text(const model_card& card);

/// Writes a README.md unless there is one.
///   throws  file_error
void write_model_card(const std::string& folder, const model_card& card);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/model_card_impl.hpp>
#endif
