// The begin, end and padding token of a tokenizer's files, and a model's config.json and generation_config.json in agreement with them. Component 'io'.
#pragma once

#include <optional>
#include <string>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/json_fwd.hpp>

namespace xtrain {

/// Special tokens that a tokenizer's files name; none: they name no such token, or one that the vocabulary lacks.
struct special_token_ids {
  std::optional<token> bos{}, eos{}, pad{};
};

/// The special tokens of the tokenizer in a folder, by tokenizer_config.json, special_tokens_map.json (unless the former lists all added tokens), or the
/// class of the tokenizer.                                                       [transformers 5.24, tokenization_utils_base.py, models/*/tokenization_*.py]
/// Files that cannot be read name none: whoever loads the tokenizer refuses them.
[[nodiscard]] special_token_ids special_token_ids_of(const std::string& folder);

/// Makes a config.json and a generation_config.json agree with a tokenizer, as transformers' Trainer does before it trains.
///                                                                                              [transformers 5.24, trainer_utils.align_special_tokens]
///   eos        added to generation_config's list, and to config's if that is a list, otherwise in its place: tokens that end a text are never removed
///   bos, pad   replaced in both
///   generation null: the model has none. A key that it lacks is null there
/// A token that the tokenizer does not name stays as it is; so does one that the model's vocabulary (vocab_size) lacks, which transformers would write.
void align_special_tokens(const special_token_ids& of, json& config, json* generation);

/// The same for the files of a folder.
///   throws  file_error
void align_special_tokens(const std::string& folder);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/special_token_ids_impl.hpp>
#endif
