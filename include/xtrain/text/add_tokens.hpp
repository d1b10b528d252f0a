// Adds user-defined tokens to a folder's tokenizer. Component 'text'.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <xtrain/core/json_fwd.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Texts that are no tokens, in order, without duplicates.
///   throws  config_error if one is empty
[[nodiscard]] std::vector<std::string> texts_without_token(const tokenizer& of, std::span<const std::string> texts);  // namespace detail

/// Adds texts to a folder's tokenizer, matched literally as ordinary text, with ids after the vocabulary; texts that are tokens stay. Files are replaced one
/// by one; a second run changes nothing.
///   returns  how many were added
///   throws   file_error, config_error
std::size_t add_tokens(const std::string& folder, std::span<const std::string> texts);

/// Marks tokens of a folder's tokenizer as special, as transformers' add_special_tokens, in tokenizer_config.json and, if present, special_tokens_map.json.
///   names   an object, such as {"pad_token": "[PAD]"}
///   throws  file_error, config_error if a text is no token
void name_special_tokens(const std::string& folder, const json& names);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/text/add_tokens_impl.hpp>
#endif
