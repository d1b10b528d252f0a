// One file of weights in any format, detected by its first bytes.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/io/llama2c.hpp>
#include <xtrain/io/llmc.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/io/tensor_source.hpp>
#include <xtrain/io/torch_file.hpp>

namespace xtrain {

enum class weight_format { safetensors, torch, llmc, llama2c };

/// A readable name of a format.
[[nodiscard]] constexpr std::string_view name_of(weight_format format) {
  switch (format) {
    case weight_format::safetensors:
      return "safetensors";
    case weight_format::torch:
      return "PyTorch";
    case weight_format::llmc:
      return "llm.c";
    default:
      return "llama2.c";
  }
}

/// The format of a file that begins with these bytes; nullopt for an unknown format.
[[nodiscard]] inline std::optional<weight_format> format_of(std::string_view file) {
  if (torch_file::begins_as_one(file)) return weight_format::torch;
  if (llmc_file::begins_as_one(file)) return weight_format::llmc;
  std::uint64_t header = 0;
  if (file.size() > sizeof(header)) std::memcpy(&header, file.data(), sizeof(header));
  if (header > 0 && header <= safetensors_file::longest_header && file[sizeof(header)] == '{') return weight_format::safetensors;
  if (llama2c_file::begins_as_one(file)) return weight_format::llama2c;
  return {};
}

/// The tensors of a file, and the model config if the format contains it.
class weight_file : public tensor_source {
 public:
  /// throws file_error, config_error when the file is damaged or its format unknown
  explicit weight_file(const std::string& path) {
    const std::optional<weight_format> format = format_of(mapped_file(path).text());
    require<file_error>(format.has_value(), path,
                        ": must be a file of weights: safetensors, PyTorch's, llm.c's or llama2.c's; it begins as none of them");
    format_ = *format;
    const auto open = [&]<class File>(const File& file) {
      add_all(file);
      if constexpr (requires { file.config(); }) config_ = file.config();
    };
    if (format_ == weight_format::safetensors) open(keep<safetensors_file>(path));
    else if (format_ == weight_format::torch) open(keep<torch_file>(path));
    else if (format_ == weight_format::llmc) open(keep<llmc_file>(path));
    else open(keep<llama2c_file>(path));
  }

  [[nodiscard]] weight_format format() const { return format_; }
  /// The equivalent config.json of an llm.c or llama2.c file.
  [[nodiscard]] const std::optional<json_settings>& config() const { return config_; }

 private:
  weight_format format_{};
  std::optional<json_settings> config_;
};

}  // namespace xtrain
