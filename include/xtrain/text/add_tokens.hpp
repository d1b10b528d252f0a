// Adds user-defined tokens to a folder's tokenizer. Component 'text'.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <xtrain/core/json_fwd.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// The texts that are not tokens yet, in order, without duplicates.
///   throws  config_error if one is empty
[[nodiscard]] std::vector<std::string> texts_without_token(const tokenizer& of, std::span<const std::string> texts);  // namespace detail

/// Adds texts as tokens to a folder's tokenizer: each is matched literally, anywhere in a text, and is ordinary text. Texts that are
/// tokens already stay as they are; the others get the ids after the vocabulary. Files are replaced one by one; running it again changes
/// nothing.
///   returns how many were added
///   throws  file_error, config_error
std::size_t add_tokens(const std::string& folder, std::span<const std::string> texts);

/// Names tokens of a folder's tokenizer as special ones, as transformers' add_special_tokens: in tokenizer_config.json, and in
/// special_tokens_map.json if there is one; the tokens are marked as special where they are listed.
///   names   an object, such as {"pad_token": "[PAD]"}
///   throws  file_error, config_error if a text is no token
void name_special_tokens(const std::string& folder, const json& names);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/text/add_tokens_impl.hpp>
#endif
