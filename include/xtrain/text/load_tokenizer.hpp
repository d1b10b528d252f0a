// Loads a tokenizer from its original files. Component 'text'.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Loads a tokenizer.json.
///   throws  file_error if the file is not JSON, config_error if it is unsupported or contradicts itself
[[nodiscard]] tokenizer load_tokenizer_json(const std::string& path);

/// Loads a SentencePiece model. Texts begin with bos, as LLaMA's do, unless a tokenizer_config.json beside it says otherwise; for ChatGLM,
/// the tokens of its published code begin or end the texts.
///   throws  file_error, config_error
[[nodiscard]] tokenizer load_sentencepiece(const std::string& path);

namespace detail {

/// File formats of tokenizers.
enum class tokenizer_form : std::uint8_t { unknown, json, vocabulary, merges, ranks, sentencepiece, word_piece };

/// Detects a file's format from its contents.
[[nodiscard]] tokenizer_form form_of(std::string_view text);

}  // namespace detail

/// Loads a tokenizer from "byte", a folder of tokenizer files, or one such file: tokenizer.json, a SentencePiece *.model, vocab.json (with
/// merges.txt beside it), tiktoken ranks (*.tiktoken, LLaMA-3's tokenizer.model), BERT's vocab.txt, or a GGUF file. The contents tell the format.
///   throws  file_error, config_error
[[nodiscard]] tokenizer load_tokenizer(const std::string& path);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/text/load_tokenizer_impl.hpp>
#endif
