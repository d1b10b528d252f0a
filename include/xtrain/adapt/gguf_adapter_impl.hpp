// Definitions of gguf_adapter.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/adapt/gguf_adapter.hpp>
#include <xtrain/adapt/lora_config.hpp>
#include <xtrain/adapt/peft.hpp>
#include <xtrain/adapt/peft_config.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_writer.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/gguf_save.hpp>
#include <xtrain/io/gguf_tensors.hpp>
#include <xtrain/io/weight_file.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE void write_gguf_adapter(const std::string& path, const lora_config& adapter, const gguf_config& base, gguf_type type,
                                      std::vector<gguf_adapter_part> parts, bool writes) {
  require<config_error>(!adapter.dora, path, ": an adapter in a GGUF file must be LoRA, because llama.cpp has no magnitudes; it is DoRA");
  require<config_error>(adapter.target_parameters.empty(), path, ": an adapter in a GGUF file must be of modules; target_parameters are given");
  const gguf_sizes sizes = gguf_sizes_of(base, path);
  std::map<std::string, gguf_adapter_source> modules;
  for (gguf_adapter_part& part : parts) {
    const std::string module(lora_names::module_beside(part.name));
    require<config_error>(!module.empty(), path, ": an adapter in a GGUF file must have LoRA's matrices only; '", part.name, "' is trained too");
    gguf_adapter_source& one = modules[module];
    one.module = module;
    one.scale = adapter.scale_of(module);
    one.is_embedding = part.name.ends_with(lora_names::table_a) || part.name.ends_with(lora_names::table_b);
    const bool is_a = part.name.ends_with(lora_names::a) || part.name.ends_with(lora_names::table_a);
    (is_a ? one.a : one.b) = std::move(part.source);
  }
  std::vector<gguf_adapter_source> all;
  for (auto& entry : modules) all.push_back(std::move(entry.second));
  gguf_writer file(path);
  file.add_text("general.architecture", sizes.architecture);
  file.add_text("general.type", "adapter");
  file.add_text("adapter.type", "lora");
  std::string name = path.substr(path.rfind('/') + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  file.add_text("general.name", name);
  file.add_u32("general.file_type", gguf_file_type(type));
  file.add_u32("general.quantization_version", 2);
  add_gguf_adapter(file, sizes, type, all);
  if (writes) return file.write();
  for (const gguf_tensor_to_write& tensor : file.tensors()) tensor.produce([](const void*, std::size_t) {});
}

}  // namespace detail

XTRAIN_INLINE void write_gguf_adapter(const std::string& path, const std::string& folder, const gguf_config& base, gguf_type type) {
  const lora_config adapter = adapter_config_of(folder);
  std::string file = folder + "/adapter_model.safetensors";
  if (!file_exists(file)) file = folder + "/adapter_model.bin";
  const weight_file tensors(file);
  std::vector<detail::gguf_adapter_part> parts;
  for (const auto& entry : tensors.tensors()) {
    std::string_view name = entry.first;
    if (name.starts_with(detail::peft_prefix)) name.remove_prefix(detail::peft_prefix.size());
    parts.push_back({std::string(name), gguf_source_of(*entry.second)});
  }
  detail::write_gguf_adapter(path, adapter, base, type, std::move(parts), true);
}

}  // namespace xtrain
