// adapter_config.json, as PEFT reads and writes it.
#pragma once

#include <string>
#include <string_view>

#include <xtrain/adapt/lora_config.hpp>
#include <xtrain/io/settings.hpp>

namespace xtrain {

namespace detail {

/// Parses and checks an adapter_config.json.
///   text    of the file: patterns count in its order; empty: in that of their names
///   throws  config_error when it describes something that is not LoRA or DoRA, or contradicts itself
[[nodiscard]] lora_config lora_config_of(const json_settings& s, std::string_view text = {});

/// The inverse: the text of an adapter_config.json.
///   transposed_in_files   whether files store the family's linear weights transposed
///   tied                  an embedding is trained together with the tied head
///   task                  PEFT's task type; empty: null in the file
[[nodiscard]] std::string peft_config_text(const lora_config& c, const std::string& base_model, bool transposed_in_files, bool tied,
                                           std::string_view task);

/// Beside adapter_config.json: which parts of fused modules have adapters of their own. PEFT's config has no place for it, and PEFT does not need it.
inline constexpr const char* parts_file = "/xtrain_parts.json";
/// Writes it, or removes it where there are no parts.
void write_parts(const lora_config& c, const std::string& folder);

}  // namespace detail

/// The settings of a saved adapter: create a model with them before load_adapter.
///   throws  file_error, config_error when the folder contains something other than LoRA or DoRA
[[nodiscard]] lora_config adapter_config_of(const std::string& folder);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/adapt/peft_config_impl.hpp>
#endif
