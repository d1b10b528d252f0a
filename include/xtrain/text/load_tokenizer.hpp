// Loads tokenizers from their files. Component 'text'.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Loads a tokenizer.json.
///   throws  file_error if it is not JSON, config_error if it is unsupported or inconsistent
[[nodiscard]] tokenizer load_tokenizer_json(const std::string& path);

/// Loads a SentencePiece model. Texts begin with bos unless tokenizer_config.json says otherwise; ChatGLM: with its published code's tokens.
///   throws  file_error, config_error
[[nodiscard]] tokenizer load_sentencepiece(const std::string& path);

namespace detail {

/// Tokenizer formats.
enum class tokenizer_form : std::uint8_t { unknown, json, vocabulary, merges, ranks, sentencepiece, word_piece };

/// A file's format, from its contents.
[[nodiscard]] tokenizer_form form_of(std::string_view text);

}  // namespace detail

/// Loads "byte", a folder, or a file, whose contents tell the format: tokenizer.json, SentencePiece *.model, vocab.json (with merges.txt), tiktoken ranks
/// (*.tiktoken, LLaMA-3's tokenizer.model), BERT's vocab.txt, GGUF.
///   throws  file_error, config_error
[[nodiscard]] tokenizer load_tokenizer(const std::string& path);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/text/load_tokenizer_impl.hpp>
#endif
