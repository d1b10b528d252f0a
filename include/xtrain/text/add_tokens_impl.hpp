// Definitions of add_tokens.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/text/add_tokens.hpp>
#include <xtrain/text/companion_files.hpp>
#include <xtrain/text/load_tokenizer.hpp>
#include <xtrain/text/token_numbers.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

XTRAIN_INLINE std::vector<std::string> texts_without_token(const tokenizer& of, std::span<const std::string> texts) {
  std::vector<std::string> missing;
  for (const std::string& text : texts) {
    require<config_error>(!text.empty(), "add_tokens: a token must have a text; given an empty one");
    if (of.find_token(text) < 0 && std::find(missing.begin(), missing.end(), text) == missing.end()) missing.push_back(text);
  }
  return missing;
}

XTRAIN_INLINE std::size_t add_tokens(const std::string& folder, std::span<const std::string> texts) {
  const tokenizer before = [&] {
    const detail::special_tokens_to_come begin_and_end;  // the config may name tokens added here
    return load_tokenizer(folder);
  }();
  const std::vector<std::string> missing = texts_without_token(before, texts);
  if (missing.empty()) return 0;
  const std::string whole = folder + "/tokenizer.json", beside = folder + "/added_tokens.json", pieces = folder + "/tokenizer.model";
  const bool has_pieces =
      file_exists(pieces) && detail::form_of(std::string(mapped_file(pieces).text())) == detail::tokenizer_form::sentencepiece;
  if (!file_exists(whole) && !has_pieces) before.save(folder);  // only tokenizer.json can list added tokens
  auto next = static_cast<token>(before.vocab_size());
  json list = json::array(), numbers = json::object();
  for (const std::string& text : missing) {
    list.push_back(detail::json_of({.content = text, .id = next}));
    numbers[text] = next++;
  }
  if (file_exists(whole)) {
    json document = read_json(whole);
    require<config_error>(document.is_object(), whole, ": must be a JSON object; it is ", document.type_name());
    json& added = document["added_tokens"];
    if (added.is_null()) added = json::array();
    require<config_error>(added.is_array(), whole, ": 'added_tokens' must be a list; it is ", added.type_name());
    for (const json& one : list) added.push_back(one);
    detail::keep_numbers(document);
    write_file(whole, document.dump() + "\n");
    const std::string settings_path = folder + "/tokenizer_config.json";  // a list must be complete
    if (json settings = file_exists(settings_path) ? read_json(settings_path) : json::object();
        settings.is_object() && settings.contains("added_tokens_decoder") && settings["added_tokens_decoder"].is_object()) {
      for (const json& one : list) {
        json described = one;
        described.erase("id");
        settings["added_tokens_decoder"][concat(one["id"].get<token>())] = described;
      }
      write_file(settings_path, settings.dump(2) + "\n");
    }
  }
  if (has_pieces || !file_exists(whole)) {  // SentencePiece's are next to the model
    json document = file_exists(beside) ? read_json(beside) : json::object();
    require<config_error>(document.is_object(), beside, ": must be a JSON object; it is ", document.type_name());
    document.update(numbers);
    write_file(beside, document.dump(2) + "\n");
  }
  require<config_error>(texts_without_token(load_tokenizer(folder), texts).empty(), folder,
                        ": must hold a tokenizer that tokens can be added to; what was added is not found in it");
  return missing.size();
}

XTRAIN_INLINE void name_special_tokens(const std::string& folder, const json& names) {
  if (names.empty()) return;
  const tokenizer with = load_tokenizer(folder);
  for (const auto& one : names.items())
    require<config_error>(one.value().is_string(), "special tokens: ", one.key(), " must be the text of a token; given ", one.value().dump());
  for (const auto& one : names.items())
    require<config_error>(with.find_token(one.value().get<std::string>()) >= 0, folder, ": must hold a tokenizer with the token '",
                          one.value().get<std::string>(), "', its ", one.key());
  const auto mark = [&](json& listed) {
    for (const auto& one : names.items())
      if (listed.is_object() && listed.contains("content") && listed["content"] == one.value()) listed["special"] = true, listed["normalized"] = false;
  };
  const std::string whole = folder + "/tokenizer.json", map_path = folder + "/special_tokens_map.json", settings_path = folder + "/tokenizer_config.json";
  if (file_exists(whole)) {
    json document = read_json(whole);
    if (document.contains("added_tokens"))
      for (json& listed : document["added_tokens"]) mark(listed);
    detail::keep_numbers(document);
    write_file(whole, document.dump() + "\n");
  }
  if (json map = file_exists(map_path) ? read_json(map_path) : json(); map.is_object()) {
    map.update(names);
    write_file(map_path, map.dump(2) + "\n");
  }
  json settings = file_exists(settings_path) ? read_json(settings_path) : json::object();
  require<config_error>(settings.is_object(), settings_path, ": must be a JSON object; it is ", settings.type_name());
  settings.update(names);
  if (settings.contains("added_tokens_decoder"))
    for (json& listed : settings["added_tokens_decoder"]) mark(listed);
  write_file(settings_path, settings.dump(2) + "\n");
}

}  // namespace xtrain
