// A GGUF file's tokenizer. Component 'text'.
#pragma once

#include <string>

#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Loads a GGUF file's tokenizer, with llama.cpp's tokens: no normalization.
///   tokenizer.ggml.model   'llama' (SentencePiece, by score) or 'gpt2' (byte-level BPE)
///   tokenizer.ggml.pre     'gpt2' only: gpt-2, llama-bpe, qwen2, gpt-4o, starcoder, deepseek-coder, bloom, default, and names of equal splits
///   throws                 config_error for another model or split, or an inconsistent vocabulary; file_error
[[nodiscard]] tokenizer load_gguf_tokenizer(const std::string& path);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/text/gguf_tokenizer_impl.hpp>
#endif
