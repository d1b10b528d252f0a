// Ids of added tokens in a tokenizer.json. Component 'text'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/json.hpp>
#include <xtrain/text/tokenizer_json.hpp>

namespace xtrain::detail {

/// Adds to the vocabulary the added tokens that another library would renumber: it numbers tokens outside from the vocabulary's size on.
inline void keep_numbers(json& document) {
  json& model = document["model"];
  if (!model.is_object() || !model.contains("vocab") || !model["vocab"].is_object()) return;
  json& vocabulary = model["vocab"];
  std::vector<std::pair<std::uint64_t, std::string>> beyond;
  for (const json& one : document["added_tokens"])
    if (!vocabulary.contains(token_text(one))) beyond.emplace_back(one["id"].get<std::uint64_t>(), token_text(one));
  std::sort(beyond.begin(), beyond.end());
  bool counts_on = true;
  for (std::size_t i = 0; i < beyond.size(); ++i) counts_on = counts_on && beyond[i].first == vocabulary.size() + i;
  if (counts_on) return;
  for (const auto& [id, text] : beyond) vocabulary[text] = id;
}

}  // namespace xtrain::detail
