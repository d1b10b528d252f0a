// LoRA adapters in GGUF files, read: as folders in PEFT's format.
#pragma once

#include <string>

#include <xtrain/io/gguf_save.hpp>

namespace xtrain {

/// Writes an adapter in a GGUF file as a folder in PEFT's format, which merge_adapter and load_adapter read. Matrices keep F32, F16 or BF16; other types
/// become F32.
///   base        the base model's config: gguf_config_of
///   base_model  its name or path, for adapter_config.json
///   throws  file_error; config_error for a file that is no LoRA adapter, belongs to another architecture, has a matrix without a place in the model, or
///           different A for the queries, keys and values of a fused module
void write_adapter_folder(const std::string& folder, const std::string& path, const gguf_config& base, const std::string& base_model = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/adapt/gguf_adapter_folder_impl.hpp>
#endif
