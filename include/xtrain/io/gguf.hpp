#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/core/gguf_file.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/io/tensor_source.hpp>

namespace xtrain {

/// All files of a model, given the first.
///   throws  file_error when one is missing, or this is not the first
[[nodiscard]] std::vector<std::string> gguf_files(const std::string& path);

/// A model in a GGUF file, or in several (NAME-00001-of-0000N.gguf), given the first.
///
///   general.architecture   llama (with experts: mixtral; with a sliding window: mistral), qwen2, qwen3, gemma, gemma2, phi3, gpt2, bloom, baichuan,
///                          internlm2, chatglm
///   rows of q and k        llama's rotate in adjacent pairs in files; returned in Hugging Face's order
///   tensors of experts     one per expert
///   Gemma's norms          files hold 1 + weight; returned: weight
///   tied head              no output.weight, or one equal to token_embd.weight
///   attn_q, attn_k, attn_v Baichuan's and InternLM2's: fused, as in Hugging Face's files
///   rope_freqs.weight      frequency factors of LLaMA 3's rule; others are refused
///
/// Settings that change results are read, or refused by key. Not in files: dropout (0), Gemma 2's query_pre_attn_scalar (llama.cpp's).
class gguf_model : public tensor_source {
 public:
  /// throws file_error when a file is damaged or missing, config_error for an unsupported or inconsistent model
  explicit gguf_model(const std::string& path);

  /// The equivalent config.json.
  [[nodiscard]] const json_settings& config() const { return config_; }
  /// With metadata and tokenizer.
  [[nodiscard]] const gguf_file& file() const { return *file_; }
  [[nodiscard]] const std::string& path() const { return file_->path(); }

 private:
  json_settings config_;
  const gguf_file* file_ = nullptr;
  std::vector<file_tensor> tensors_;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/gguf_impl.hpp>
#endif
