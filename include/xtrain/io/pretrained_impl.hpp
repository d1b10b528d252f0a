// Definitions of pretrained.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/named_settings.hpp>
#include <xtrain/core/shared_model.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/io/file_runs.hpp>
#include <xtrain/io/file_writers.hpp>
#include <xtrain/io/folder.hpp>
#include <xtrain/io/meta_llama.hpp>
#include <xtrain/io/model_card.hpp>
#include <xtrain/io/pretrained.hpp>
#include <xtrain/io/safetensors.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/io/tensor_source.hpp>
#include <xtrain/io/vocabulary_rows.hpp>
#include <xtrain/io/weight_file.hpp>

namespace xtrain {

XTRAIN_INLINE json_settings read_config(const std::string& folder) {
  require<file_error>(is_directory(folder), folder, ": must be a folder with a model; no such folder");
  if (meta_llama_folder::is_one(folder)) return meta_llama_folder(folder).config();
  const std::string path = folder + "/config.json";
  return {read_json(path), path};
}

XTRAIN_INLINE std::shared_ptr<const tensor_source> open_weights(const std::string& folder) {
  if (meta_llama_folder::is_one(folder)) return std::make_shared<const meta_llama_folder>(folder);
  return std::make_shared<const weight_folder>(folder);
}

namespace detail {

/// Whether one letter was changed, left out, added, or swapped with the next.
[[nodiscard]] inline bool is_misspelt(std::string_view given, std::string_view meant) {
  const auto same = std::mismatch(given.begin(), given.end(), meant.begin(), meant.end());
  const std::string_view a(same.first, given.end()), b(same.second, meant.end());
  if (a.empty() && b.empty()) return false;
  const auto rest = [](std::string_view text, std::size_t skipped) { return text.substr(std::min(skipped, text.size())); };
  if (a.size() == b.size()) return rest(a, 1) == rest(b, 1) || (a.size() > 1 && a[0] == b[1] && a[1] == b[0] && rest(a, 2) == rest(b, 2));
  return a.size() + 1 == b.size() ? a == rest(b, 1) : a.size() == b.size() + 1 && rest(a, 1) == b;
}

XTRAIN_INLINE void require_no_misspelt(const json_settings& config, const asked_settings& all) {
  const auto& asked = all.names;
  const auto is_there = [&](const std::string& name) { return config.object().contains(name); };
  const auto is_asked = [&](const std::string& name) {
    return std::any_of(asked.begin(), asked.end(),
                       [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); });
  };
  for (const auto& member : config.object().items()) {
    if (is_asked(member.key())) continue;
    for (const auto& names : asked) {
      if (std::any_of(names.begin(), names.end(), is_there)) continue;
      for (const std::string& name : names)
        require<config_error>(!is_misspelt(member.key(), name), config.who(), ": '", member.key(), "' is not a setting; did you mean '", name,
                              "'?");
    }
  }
  for (const auto& [name, inside] : all.inner)
    if (const auto at = config.object().find(name); at != config.object().end() && at->is_object())
      require_no_misspelt(json_settings(*at, concat(config.who(), ", '", name, "'")), *inside);
}

}  // namespace detail

/// The files of a tokenizer in a folder.
inline constexpr std::array<const char*, 9> tokenizer_files{
    "tokenizer.json",          "tokenizer_config.json", "tokenizer.model",     "vocab.json", "merges.txt",
    "special_tokens_map.json", "added_tokens.json",     "chat_template.jinja", "vocab.txt"};

XTRAIN_INLINE void copy_tokenizer(const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  std::error_code same;
  if (from.empty() || fs::equivalent(from, to, same)) return;
  const auto copy = [&](const std::string& source, const std::string& name) { write_file(to + "/" + name, mapped_file(source).text()); };
  if (!is_directory(from)) {
    const std::string name = fs::path(from).filename().string();
    if (const std::string merges = from.substr(0, from.size() - std::min(from.size(), std::string_view("vocab.json").size())) + "merges.txt";
        name.ends_with("vocab.json") && file_exists(merges)) {  // gpt2-vocab.json and gpt2-merges.txt
      copy(from, "vocab.json");
      return copy(merges, "merges.txt");
    }
    return copy(from, name.ends_with(".model") ? "tokenizer.model" : name);
  }
  for (const char* name : tokenizer_files)
    if (file_exists(from + "/" + name)) copy(from + "/" + name, name);
  for (const std::string& name : names_in(from))  // files of token ranks have varying names
    if (name.ends_with(".tiktoken")) copy(from + "/" + name, name);
}

namespace detail {

XTRAIN_INLINE json_settings generation_settings(const std::string& folder) {
  const std::string path = folder + "/generation_config.json";
  if (folder.empty() || !is_directory(folder) || !file_exists(path)) return {};
  json found = json::parse(mapped_file(path).text(), nullptr, false);
  return found.is_object() ? json_settings(std::move(found), path) : json_settings();
}

XTRAIN_INLINE void leave_out_absent_tokens(json_settings& config, const std::string& folder) {
  const std::string path = folder + "/config.json";
  if (!file_exists(path)) return;
  const json base = json::parse(mapped_file(path).text(), nullptr, false);
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (base.is_object() && !base.contains(key) && config.object().contains(key) && config.object().at(key).is_null()) config.erase({key});
}

}  // namespace detail

}  // namespace xtrain
