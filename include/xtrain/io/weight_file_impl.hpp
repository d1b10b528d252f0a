#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/gguf.hpp>
#include <xtrain/io/llama2c.hpp>
#include <xtrain/io/llmc.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/io/tensor_source.hpp>
#include <xtrain/io/torch_file.hpp>
#include <xtrain/io/weight_file.hpp>

namespace xtrain {

XTRAIN_INLINE std::optional<weight_format> format_of(std::string_view file) {
  if (gguf_file::begins_as_one(file)) return weight_format::gguf;
  if (torch_file::begins_as_one(file)) return weight_format::torch;
  if (llmc_file::begins_as_one(file)) return weight_format::llmc;
  std::uint64_t header = 0;
  if (file.size() > sizeof(header)) std::memcpy(&header, file.data(), sizeof(header));
  if (header > 0 && header <= safetensors_file::longest_header && file[sizeof(header)] == '{') return weight_format::safetensors;
  if (llama2c_file::begins_as_one(file)) return weight_format::llama2c;
  return {};
}

XTRAIN_INLINE weight_file::weight_file(const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);  // npos + 1 is 0
  require<file_error>(name.find("zero_pp_rank_") == std::string_view::npos, path, ": must be a file of whole weights; it holds one rank's share. ",
                      detail::gather_zero);
  const std::optional<weight_format> format = format_of(mapped_file(path).text());
  require<file_error>(format.has_value(), path,
                      ": must be a file of weights: safetensors, PyTorch's, GGUF, llm.c's or llama2.c's; it begins as none of them");
  format_ = *format;
  if (format_ == weight_format::gguf) {
    const gguf_model& model = keep<gguf_model>(path);
    for (const auto& entry : model.tensors()) add(*entry.second, path);
    config_ = model.config();
    return;
  }
  const auto open = [&]<class File>(const File& file) {
    add_all(file);
    if constexpr (requires { file.config(); }) config_ = file.config();
  };
  if (format_ == weight_format::safetensors) open(keep<safetensors_file>(path));
  else if (format_ == weight_format::torch) open(keep<torch_file>(path));
  else if (format_ == weight_format::llmc) open(keep<llmc_file>(path));
  else open(keep<llama2c_file>(path));
}

}  // namespace xtrain
