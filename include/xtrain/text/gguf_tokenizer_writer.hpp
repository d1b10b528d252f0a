// A folder's tokenizer as GGUF metadata. Component 'io'.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/gguf_writer.hpp>

namespace xtrain {

/// A model's tokens.
struct gguf_model_tokens {
  std::size_t vocab_size = 0;  ///< rows of the embedding; rows without a token are written as unused
  token bos = -1;              ///< negative: none
  std::vector<token> eos{};    ///< the second is written as eot
  token pad = -1;              ///< negative: none
};

/// Adds tokenizer.ggml.* and the chat template as llama.cpp's converter.
///
///   from     folder or file: tokenizer.model (SentencePiece BPE with bytes), tokenizer.json, or vocab.json and merges.txt (byte-level BPE); a GGUF file, whose
///            entries are copied; empty: no vocabulary, only the model's special tokens
///   throws   config_error with the reason where llama.cpp would tokenize differently: another model, split or normalization, or tokens beyond the vocabulary;
///            file_error
void add_gguf_tokenizer(gguf_writer& to, const std::string& from, const gguf_model_tokens& model);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/text/gguf_tokenizer_writer_impl.hpp>
#endif
