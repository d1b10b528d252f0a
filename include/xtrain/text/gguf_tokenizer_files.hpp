// A GGUF file's tokenizer as files of a folder. Component 'io'.
#pragma once

#include <string>

#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json_fwd.hpp>

namespace xtrain {

/// Writes tokenizer.model or tokenizer.json, and tokenizer_config.json with the chat template.
///   throws  config_error for an unsupported (load_gguf_tokenizer) or inconsistent tokenizer; file_error
void write_gguf_tokenizer(const std::string& path, const std::string& folder);

namespace detail {

/// SentencePiece, else byte-level BPE.
///   throws  config_error for others
[[nodiscard]] bool gguf_has_sentencepiece(const gguf_file& file);
/// A tokenizer.model.
[[nodiscard]] std::string gguf_sentencepiece_bytes(const gguf_file& file);
/// A tokenizer.json.
[[nodiscard]] json gguf_tokenizer_json(const gguf_file& file);
/// A tokenizer_config.json.
[[nodiscard]] json gguf_tokenizer_settings(const gguf_file& file);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/text/gguf_tokenizer_files_impl.hpp>
#endif
