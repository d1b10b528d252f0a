// The tokenizer in a GGUF file. Component 'text'.
#pragma once

#include <string>

#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Loads the tokenizer of a GGUF file. Texts have llama.cpp's tokens: none is normalized.
///
///   tokenizer.ggml.model   'llama' (SentencePiece, by score) or 'gpt2' (byte-level BPE)
///   tokenizer.ggml.pre     of 'gpt2', the split: gpt-2, llama-bpe, qwen2, gpt-4o, starcoder, deepseek-coder, bloom, default, and names of the same splits
///
///   throws  config_error for another model or split, or a vocabulary that contradicts itself; file_error
[[nodiscard]] tokenizer load_gguf_tokenizer(const std::string& path);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/text/gguf_tokenizer_impl.hpp>
#endif
