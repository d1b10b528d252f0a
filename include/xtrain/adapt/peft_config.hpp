// PEFT's adapter_config.json.
#pragma once

#include <string>
#include <string_view>

#include <xtrain/adapt/lora_config.hpp>
#include <xtrain/io/settings.hpp>

namespace xtrain {

namespace detail {

/// Parses and checks it.
///   text    of the file, for the order of patterns; empty: sorted by name
///   throws  config_error unless it describes a consistent LoRA or DoRA
[[nodiscard]] lora_config lora_config_of(const json_settings& s, std::string_view text = {});

/// The text of an adapter_config.json.
///   transposed_in_files   files store linear weights transposed
///   tied                  an embedding is trained with the tied head
///   task                  PEFT's task type; empty: null
[[nodiscard]] std::string peft_config_text(const lora_config& c, const std::string& base_model, bool transposed_in_files, bool tied,
                                           std::string_view task);

/// Parts of fused modules with adapters, for which PEFT's config has no place and no need.
inline constexpr const char* parts_file = "/xtrain_parts.json";
/// Writes or, without parts, removes it.
void write_parts(const lora_config& c, const std::string& folder);

}  // namespace detail

/// Settings of a saved adapter: create a model with them before load_adapter.
///   throws  file_error, config_error unless the folder holds LoRA or DoRA
[[nodiscard]] lora_config adapter_config_of(const std::string& folder);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/adapt/peft_config_impl.hpp>
#endif
