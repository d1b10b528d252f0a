// The tokenizer in a GGUF file as the files of a folder. Component 'io'.
#pragma once

#include <string>

#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json_fwd.hpp>

namespace xtrain {

/// Writes the tokenizer of a GGUF file into a folder: tokenizer.model or tokenizer.json, and a tokenizer_config.json that holds the chat template.
///   throws  config_error for a tokenizer that is not supported (load_gguf_tokenizer), or contradicts itself; file_error
void write_gguf_tokenizer(const std::string& path, const std::string& folder);

namespace detail {

/// Whether the tokenizer is a SentencePiece model; else it is a byte-level BPE.
///   throws  config_error if it is neither
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
