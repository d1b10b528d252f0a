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

/// A model in a GGUF file, or in several (NAME-00001-of-0000N.gguf), given the first; architectures and settings: io/README.md. In Hugging Face's order,
/// experts one per tensor, Gemma's norms without 1 +; fused queries, keys and values as in Hugging Face's files. Settings that change results are read, or
/// refused by key. Not in files: dropout (0), Gemma 2's query_pre_attn_scalar (llama.cpp's).
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
