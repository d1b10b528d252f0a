// Definitions of gguf_tokenizer.hpp.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/text/gguf_tokenizer.hpp>
#include <xtrain/text/gguf_tokenizer_files.hpp>
#include <xtrain/text/sentencepiece_tokenizer.hpp>
#include <xtrain/text/tokenizer.hpp>
#include <xtrain/text/tokenizer_json.hpp>

namespace xtrain {

XTRAIN_INLINE tokenizer load_gguf_tokenizer(const std::string& path) {
  const gguf_file file(path);
  const json settings = detail::gguf_tokenizer_settings(file);
  named_files beside{{"tokenizer_config.json", settings.dump(2) + "\n"}};
  const auto find = [&](const tokenizer_model& model, const char* name) {
    const json& text = settings.at(name);
    return text.is_string() ? model.find_token(text.get<std::string>()) : token{-1};
  };
  if (!detail::gguf_has_sentencepiece(file)) {
    const auto model = make_tokenizer(describe_tokenizer(detail::gguf_tokenizer_json(file), path), std::move(beside));
    special_tokens special{.bos = find(*model, "bos_token"), .eos = find(*model, "eos_token")};
    special.adds_bos = special.bos >= 0 && model->before_text() == std::vector<token>{special.bos};
    return {model, special};
  }
  const bool space = settings.at("add_prefix_space") == true;
  auto model = std::make_shared<sentencepiece_model>(detail::gguf_sentencepiece_bytes(file), path,
                                                     sentencepiece_options{.finds_special = true,
                                                                           .prefix = space ? space_before::every_part : space_before::nothing,
                                                                           .normalizes = false,
                                                                           .beside = std::move(beside)});
  special_tokens special{.bos = find(*model, "bos_token"), .eos = find(*model, "eos_token")};
  special.adds_bos = special.bos >= 0 && settings.at("add_bos_token") == true;
  text_surroundings around;
  if (special.adds_bos) around.before = {special.bos};
  if (special.eos >= 0 && settings.at("add_eos_token") == true) around.after = {special.eos};
  around.after_first = around.after_second = around.after;
  around.before_second = around.before;
  model->surround(std::move(around));
  return {std::move(model), special};
}

}  // namespace xtrain
