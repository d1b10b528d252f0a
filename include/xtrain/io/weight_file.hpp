// Weight files of any format.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <xtrain/io/settings.hpp>
#include <xtrain/io/tensor_source.hpp>

namespace xtrain {

/// Formats of weight files.
enum class weight_format { safetensors, torch, llmc, llama2c, gguf };

[[nodiscard]] constexpr std::string_view name_of(weight_format format) {
  switch (format) {
    case weight_format::safetensors:
      return "safetensors";
    case weight_format::torch:
      return "PyTorch";
    case weight_format::llmc:
      return "llm.c";
    case weight_format::gguf:
      return "GGUF";
    default:
      return "llama2.c";
  }
}

/// By a file's first bytes; nullopt: unknown.
[[nodiscard]] std::optional<weight_format> format_of(std::string_view file);

/// Tensors, and the config if the format has it.
class weight_file : public tensor_source {
 public:
  /// throws file_error, config_error when the file is damaged or its format unknown
  explicit weight_file(const std::string& path);

  [[nodiscard]] weight_format format() const { return format_; }
  /// Equivalent config.json of GGUF, llm.c, llama2.c.
  [[nodiscard]] const std::optional<json_settings>& config() const { return config_; }

 private:
  weight_format format_{};
  std::optional<json_settings> config_;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/weight_file_impl.hpp>
#endif
