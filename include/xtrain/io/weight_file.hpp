// One file of weights in any format, detected by its first bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <xtrain/io/settings.hpp>
#include <xtrain/io/tensor_source.hpp>

namespace xtrain {

/// Formats of weights in one file.
enum class weight_format { safetensors, torch, llmc, llama2c, gguf };

/// A readable name of a format.
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

/// The format of a file that begins with these bytes; nullopt for an unknown format.
[[nodiscard]] std::optional<weight_format> format_of(std::string_view file);

/// The tensors of a file, and the model config if the format contains it.
class weight_file : public tensor_source {
 public:
  /// throws file_error, config_error when the file is damaged or its format unknown
  explicit weight_file(const std::string& path);

  [[nodiscard]] weight_format format() const { return format_; }
  /// The equivalent config.json of a GGUF, llm.c or llama2.c file.
  [[nodiscard]] const std::optional<json_settings>& config() const { return config_; }

 private:
  weight_format format_{};
  std::optional<json_settings> config_;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/weight_file_impl.hpp>
#endif
