// A model family as a value, for code that chooses it at run time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/named_settings.hpp>

namespace xtrain {

/// What most families have in common: every family derives from it and overrides what differs.
struct family_defaults {
  static constexpr const char* model_type = nullptr;  ///< of config.json; null: the family's name
  static constexpr bool transposed_in_files = false;  ///< files hold linear weights as [in, out]
  static constexpr const char* peft_task = "CAUSAL_LM";

  /// Whether settings with this model_type are the family's, where several families share one.
  static bool describes(const named_settings&) { return true; }
  /// Whether a parameter may be missing in files.
  static bool may_be_missing(std::string_view) { return false; }
  /// The parameter that a tensor of files is a copy of; empty: none.
  template <class Config>
  static std::string copied_by(std::string_view, const Config&) {
    return {};
  }
};

/// The model_type of a family's config.json.
template <class Family>
inline constexpr const char* model_type_of = Family::model_type != nullptr ? Family::model_type : Family::name;

/// Names in files; how files and config.json are read and written.
template <class Config>
struct family_info {
  const char* name;
  const char* model_type;    ///< of config.json
  const char* architecture;  ///< of config.json's `architectures`
  bool transposed_in_files;  ///< linear weights are [in, out] in files
  /// Fills in defaults and checks. throws config_error
  void (*complete)(Config&);
  Config (*read)(const named_settings&);
  void (*write)(const Config&, named_settings&);
  /// Settings with a shared model_type belong to this family.
  bool (*describes)(const named_settings&);
  /// The parameter's other names: the family's, and without "model." in files of the base model.
  std::vector<std::string> (*other_names)(const std::string& parameter);
  /// A missing parameter keeps its initial value.
  bool (*may_be_missing)(const std::string& parameter);
  /// Tensors without a parameter.
  bool (*may_be_ignored)(std::string_view tensor, const Config&);
  /// One row per token of the vocabulary.
  bool (*has_row_per_token)(std::string_view parameter);
  std::vector<std::string> (*adapter_targets)();
  const char* peft_task;
  /// For tied embeddings; empty: none.
  std::string (*embedding_name)();
  std::string (*head_name)();
};

/// The name of transformers' class for sequence classification; empty: none.
[[nodiscard]] inline std::string sequence_classification_architecture(std::string_view language_model) {
  for (const std::string_view ending : {"ForCausalLM", "LMHeadModel"})
    if (language_model.ends_with(ending)) return std::string(language_model.substr(0, language_model.size() - ending.size())) + "ForSequenceClassification";
  return {};
}

namespace detail {

/// A decoder's names have the head's.
template <class Family>
concept names_a_head = requires { Family::names().head; };
/// Otherwise embedding and head have a row per token of the vocabulary.
template <class Family>
concept says_row_per_token = requires(std::string_view parameter) { Family::has_row_per_token(parameter); };

template <class Family, class Config>
[[nodiscard]] constexpr family_info<Config> make_family_info() {
  family_info<Config> info{};
  info.name = Family::name;
  info.model_type = model_type_of<Family>;
  info.architecture = Family::architecture;
  info.transposed_in_files = Family::transposed_in_files;
  info.complete = [](Config& c) { Family::complete(c); };
  info.read = [](const named_settings& s) -> Config { return Family::read(s); };
  info.write = [](const Config& c, named_settings& s) { Family::write(c, s); };
  info.describes = [](const named_settings& s) { return Family::describes(s); };
  info.other_names = [](const std::string& parameter) {
    std::vector<std::string> names = Family::other_names(parameter);
    const std::string blocks = Family::names().blocks;  // "model.layers."
    if (const std::string base = blocks.substr(0, blocks.find('.') + 1); parameter.starts_with(base))
      if (std::string without = parameter.substr(base.size()); std::find(names.begin(), names.end(), without) == names.end())
        names.push_back(std::move(without));
    return names;
  };
  info.may_be_missing = [](const std::string& parameter) { return Family::may_be_missing(parameter); };
  info.may_be_ignored = [](std::string_view tensor, const Config& c) { return Family::may_be_ignored(tensor, c); };
  info.adapter_targets = [] { return Family::adapter_targets(); };
  info.peft_task = Family::peft_task;
  info.embedding_name = [] { return Family::names().embedding; };
  info.head_name = [] {
    if constexpr (names_a_head<Family>) return Family::names().head;
    else return std::string{};
  };
  info.has_row_per_token = [](std::string_view parameter) {
    if constexpr (says_row_per_token<Family>) return Family::has_row_per_token(parameter);
    else return parameter == Family::names().embedding + ".weight" || parameter == Family::names().head + ".weight";
  };
  return info;
}

}  // namespace detail

}  // namespace xtrain
