// Special tokens of tokenizer files, and configs that agree with them. Component 'io'.
#pragma once

#include <optional>
#include <string>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/json_fwd.hpp>

namespace xtrain {

/// Nullopt: not named, or not in the vocabulary.
struct special_token_ids {
  std::optional<token> bos{}, eos{}, pad{};
};

/// Of tokenizer_config.json, special_tokens_map.json (unless the former lists all added tokens), or the tokenizer's class.
/// [transformers 5.24, tokenization_utils_base.py, models/*/tokenization_*.py] Unreadable files name none; loading the tokenizer refuses them.
[[nodiscard]] special_token_ids special_token_ids_of(const std::string& folder);

/// Makes config.json and generation_config.json agree with a tokenizer, as transformers' Trainer. [transformers 5.24, trainer_utils.align_special_tokens]
///   eos        added to generation_config's list, and to config's list, else replaced there: stop tokens are never removed
///   bos, pad   replaced in both
///   generation null: the model has none. A missing key is null there
/// Unchanged: tokens that the tokenizer does not name, or the vocabulary (vocab_size) lacks; transformers would write the latter.
void align_special_tokens(const special_token_ids& of, json& config, json* generation);

/// A folder's files.
///   throws  file_error
void align_special_tokens(const std::string& folder);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/special_token_ids_impl.hpp>
#endif
