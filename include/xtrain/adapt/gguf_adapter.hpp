// LoRA adapters as GGUF files, which llama.cpp adds to a model (--lora).
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/adapt/lora.hpp>
#include <xtrain/adapt/lora_config.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/io/gguf_save.hpp>
#include <xtrain/io/gguf_tensors.hpp>
#include <xtrain/io/pretrained.hpp>

namespace xtrain {

/// Writes an adapter in a folder of PEFT's format to a GGUF file, atomically.
///   base    the base model's config: gguf_config_of
///   throws  config_error for what such a file cannot say: DoRA, trained weights or biases of the base model, an adapter of a tied embedding or head or of some
///           experts, a base model that llama.cpp does not have; file_error
void write_gguf_adapter(const std::string& path, const std::string& folder, const gguf_config& base, gguf_type type = gguf_type::f32);

namespace detail {

/// A matrix of an adapter, and the module it belongs to.
struct gguf_adapter_part {
  std::string name{};  ///< "model.layers.0.self_attn.q_proj.lora_A.weight"
  gguf_source source{};
};

/// Writes the file, or only takes part in gathering its tensors.
void write_gguf_adapter(const std::string& path, const lora_config& adapter, const gguf_config& base, gguf_type type, std::vector<gguf_adapter_part> parts,
                        bool writes);

}  // namespace detail

/// Writes a model's adapter to a GGUF file. Of several ranks the first writes; all call it.
///   throws  as write_gguf_adapter
template <class Model>
requires std::derived_from<typename Model::recipe::adapter, lora> && requires(const Model& m) { gguf_config_of(m.config(), m.family_info()); }
void save_gguf(const Model& model, const std::string& path, const save_gguf_options& options = {}) {
  const auto& store = model.parameters();
  require<config_error>(!store.has_merged_adapter(), path, ": an adapter must be saved before it is merged");
  std::vector<detail::gguf_adapter_part> parts;
  for (const auto& entry : store.entries()) {
    const bool is_own = !lora_names::module_beside(entry.spec.name).empty();
    if (entry.spec.trainable || is_own) parts.push_back({entry.spec.name, detail::gguf_parameter(model, entry, entry.spec.name)});
  }
  const detail::saving_ranks ranks(model, true);
  detail::write_gguf_adapter(path, model.settings().adapter, gguf_config_of(model.config(), model.family_info()), options.type, std::move(parts),
                             ranks.writes());
  ranks.wait_for_all();
}

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/adapt/gguf_adapter_impl.hpp>
#endif
