// Changes of a tokenizer.json's steps by its class, and differences between versions of transformers. Component 'text'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/text/companion_files.hpp>
#include <xtrain/text/settings_reader.hpp>
#include <xtrain/text/tokenizer_class.hpp>
#include <xtrain/text/tokenizer_json.hpp>
#include <xtrain/text/word_cutter.hpp>

namespace xtrain::detail {

/// A token's id, or -1.
[[nodiscard]] inline token token_in(const tokenizer_description& from, std::string_view text) {
  if (const json& list = member_or_null(from.settings, "added_tokens"); list.is_array())
    for (const json& one : list)
      if (one.is_object() && token_text(one) == text && member_or_null(one, "id").is_number_unsigned()) return one["id"].get<token>();
  for (const auto& [known, id] : from.vocabulary)
    if (known == text) return id;
  for (std::size_t i = 0; i < from.pieces.size(); ++i)
    if (from.pieces[i].first == text) return static_cast<token>(i);
  return -1;
}

/// Text and id of a special token.
using template_token = std::pair<std::string, token>;

/// Post-processor with tokens around each text; null: no tokens.
[[nodiscard]] inline json tokens_around(const std::optional<template_token>& begin, const std::optional<template_token>& end) {
  if (!begin && !end) return nullptr;
  json step = literal_json(R"({"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}})");
  for (const auto* one : {&begin, &end})
    if (*one) {
      json special = literal_json(R"({"ids": [], "tokens": []})");
      special["id"] = (*one)->first;
      special["ids"].push_back(static_cast<std::uint64_t>((*one)->second));
      special["tokens"].push_back((*one)->first);
      step["special_tokens"][(*one)->first] = std::move(special);
    }
  const auto put = [&](const char* list, const char* kind, const std::string& id, int type) {
    json& part = step[list].emplace_back(json::object())[kind];
    part["id"] = id;
    part["type_id"] = type;
  };
  const auto put_around = [&](const char* list, const char* text, int type) {
    if (begin) put(list, "SpecialToken", begin->first, type);
    put(list, "Sequence", text, type);
    if (end) put(list, "SpecialToken", end->first, type);
  };
  put_around("single", "A", 0);
  put_around("pair", "A", 0);
  put_around("pair", "B", 1);
  return step;
}

/// Post-processor for add_bos_token and add_eos_token.
///   begins  add_bos_token, if missing
///   throws  config_error if the vocabulary lacks such a token
[[nodiscard]] inline json tokens_of_keys(const tokenizer_description& from, const companion_files& beside, bool begins = false) {
  const auto wanted = [&](std::optional<bool> asked, const char* key, const char* name, std::string_view own,
                          bool none) -> std::optional<template_token> {
    const std::string text = !beside.named(name).empty() ? beside.named(name) : std::string(own);
    if (!asked.value_or(false) || none || text.empty()) return std::nullopt;
    const token id = token_in(from, text);
    require<config_error>(id >= 0, from.who, ": ", key, " of tokenizer_config.json: the ", std::string_view(name).starts_with("bos") ? "begin" : "end",
                          " token '", text, "' must be in the vocabulary");
    return template_token{text, id};
  };
  const tokenizer_class& kind = beside.kind();
  const bool known = !kind.name.empty() && !kind.eos.empty();
  return tokens_around(wanted(beside.adds_bos().value_or(begins), "add_bos_token", "bos_token", known ? kind.bos : "<|endoftext|>", beside.bos_is_none()),
                       wanted(beside.adds_eos(), "add_eos_token", "eos_token", known ? kind.eos : "<|endoftext|>", false));
}

template <class Change>
void for_each_byte_level(json& step, Change&& change) {
  if (type_of(step) == "ByteLevel") change(step);
  if (type_of(step) == "Sequence" && step.contains("pretokenizers") && step["pretokenizers"].is_array())
    for (json& one : step["pretokenizers"]) for_each_byte_level(one, change);
}

/// Removes LLaMA's space before a text.
inline void without_prefix_space(json& settings) {
  const auto drop = [](json& step, const char* list, const char* type) {
    if (type_of(step) == type) return step = nullptr, void();
    if (type_of(step) != "Sequence" || !step.contains(list) || !step[list].is_array()) return;
    json kept = json::array();
    for (const json& one : step[list])
      if (type_of(one) != type) kept.push_back(one);
    step[list] = std::move(kept);
  };
  if (settings.contains("normalizer")) drop(settings["normalizer"], "normalizers", "Prepend");
  if (settings.contains("decoder")) drop(settings["decoder"], "decoders", "Strip");
  if (settings.contains("pre_tokenizer") && type_of(settings["pre_tokenizer"]) == "Metaspace") {
    settings["pre_tokenizer"].erase("add_prefix_space");
    settings["pre_tokenizer"]["prepend_scheme"] = "never";
  }
}

/// Splits at matches of a pattern.
[[nodiscard]] inline json split_step(const std::string& pattern) {
  json step = literal_json(R"({"type": "Split", "pattern": {}, "behavior": "Isolated", "invert": false})");
  step["pattern"]["Regex"] = pattern;
  return step;
}

/// Mistral's pattern since Tekken.
inline constexpr const char* mistral_pattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// fix_mistral_regex: replaces the first step, a pattern.
///   throws  config_error if there is no such step
inline void fix_mistral_pattern(tokenizer_description& to) {
  if (to.vocabulary.size() <= 100000) return;
  json& cut = to.settings["pre_tokenizer"];
  require<config_error>(type_of(cut) == "Sequence" && cut.contains("pretokenizers") && cut["pretokenizers"].is_array() && !cut["pretokenizers"].empty(),
                        to.who, ": fix_mistral_regex of tokenizer_config.json: the pre-tokenizer must be a Sequence; it is '", type_of(cut), "'");
  cut["pretokenizers"][0] = split_step(mistral_pattern);
}

/// Changes steps as the class does.
inline void follow_class(tokenizer_description& to, const companion_files& beside) {
  if (beside.fixes_mistral_pattern()) fix_mistral_pattern(to);
  json& settings = to.settings;
  if (!settings.contains("pre_tokenizer")) settings["pre_tokenizer"] = nullptr;
  json& cut = settings["pre_tokenizer"];
  const class_kind kind = beside.kind().kind;
  const std::optional<bool> space = beside.adds_prefix_space();
  const auto set_space = [&](json& step) { step["add_prefix_space"] = space.value_or(false); };
  switch (kind) {
    case class_kind::bert:
    case class_kind::mpnet: {
      json& normal = settings["normalizer"];
      if (!normal.is_null() && type_of(normal) != "BertNormalizer") break;
      if (normal.is_null()) normal = literal_json(R"({"type": "BertNormalizer", "clean_text": true})");
      normal["lowercase"] = beside.lowercase().value_or(true);
      normal["strip_accents"] = beside.strips_accents() ? json(*beside.strips_accents()) : json();
      if (kind == class_kind::bert || beside.separates_ideographs()) normal["handle_chinese_chars"] = beside.separates_ideographs().value_or(true);
      break;
    }
    case class_kind::gpt_neox:
      settings["post_processor"] = tokens_of_keys(to, beside);
      [[fallthrough]];
    case class_kind::byte_level:
    case class_kind::roberta:
      if (type_of(cut) == "ByteLevel") set_space(cut);
      break;
    case class_kind::blenderbot:
      if (type_of(cut) == "ByteLevel" && space) set_space(cut);
      break;
    case class_kind::qwen2:
      for_each_byte_level(cut, set_space);
      break;
    case class_kind::cohere:
      if (space.value_or(false)) for_each_byte_level(cut, set_space);
      break;
    case class_kind::llama:
      if (!space.value_or(true)) without_prefix_space(settings);
      break;
    case class_kind::code_llama:
      settings["post_processor"] = tokens_of_keys(to, beside, true);
      break;
    default:
      break;
  }
}

/// Equal but for members without effect on tokens.
[[nodiscard]] inline bool same_step(json one, json other) {
  for (json* step : {&one, &other}) {
    if (!step->is_object()) continue;
    step->erase("trim_offsets");
    if (type_of(*step) == "ByteLevel" && !step->contains("use_regex")) (*step)["use_regex"] = true;
    if (type_of(*step) == "Split" && !step->contains("invert")) (*step)["invert"] = false;
  }
  for (const char* list : {"pretokenizers", "normalizers"})
    if (one.is_object() && other.is_object() && one.contains(list) && other.contains(list)) {
      json first = one[list], second = other[list];
      one.erase(list);
      other.erase(list);
      if (!first.is_array() || !second.is_array() || first.size() != second.size()) return false;
      for (std::size_t i = 0; i < first.size(); ++i)
        if (!same_step(first[i], second[i])) return false;
    }
  return one == other;
}

/// Steps that transformers 5.24 takes from the class, not the file: normalizer and pre-tokenizer.
[[nodiscard]] inline std::optional<std::pair<json, json>> steps_of_class(const companion_files& beside) {
  const bool space = beside.adds_prefix_space().value_or(false);
  const json nfc = literal_json(R"({"type": "NFC"})");
  const auto byte_level = [&](bool uses_pattern) {
    json step = literal_json(R"({"type": "ByteLevel"})");
    step["add_prefix_space"] = space;
    step["use_regex"] = uses_pattern;
    return step;
  };
  const auto sequence = [](const json& first, const json& second) {
    json step = literal_json(R"({"type": "Sequence", "pretokenizers": []})");
    step["pretokenizers"].push_back(first);
    step["pretokenizers"].push_back(second);
    return step;
  };
  const auto prepended_space = [](const char* scheme) {
    json step = literal_json(R"({"type": "Metaspace", "replacement": "\u2581", "split": false})");
    step["prepend_scheme"] = scheme;
    return step;
  };
  using steps = std::pair<json, json>;
  switch (beside.kind().kind) {
    case class_kind::byte_level:
    case class_kind::roberta:
      return steps{nullptr, byte_level(true)};
    case class_kind::gpt_neox:
      return steps{nfc, byte_level(true)};
    case class_kind::qwen2:
      return steps{nfc, sequence(split_step(qwen_pattern), byte_level(false))};
    case class_kind::cohere:
      return steps{nfc, sequence(literal_json(R"({"type": "Digits", "individual_digits": true})"), byte_level(true))};
    case class_kind::llama:
      return steps{nullptr, prepended_space(!beside.adds_prefix_space().value_or(true) ? "never" : beside.legacy().value_or(false) ? "always" : "first")};
    case class_kind::code_llama:
      return steps{nullptr, prepended_space(beside.adds_prefix_space().value_or(true) ? "first" : "never")};
    case class_kind::gemma:
      return steps{literal_json(R"({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})"),
                   literal_json(R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false})")};
    default:
      return std::nullopt;
  }
}

/// A bool; `otherwise` if missing, null, or of another type (refused later).
[[nodiscard]] inline bool flag_of(const json& step, const char* name, bool otherwise) {
  const json& value = member_or_null(step, name);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

/// Differences from transformers 4.57.6 or 5.24, a sentence each.
///   to       after follow_class()
///   written  the file's settings, before
///   around   special tokens before and after a text
[[nodiscard]] inline std::vector<std::string> notes_on_class(const tokenizer_description& to, const companion_files& beside, const json& written,
                                                             const std::pair<std::vector<token>, std::vector<token>>& around) {
  std::vector<std::string> notes;
  if (!beside.names_class()) return notes;
  const tokenizer_class& own = beside.kind();
  const json& written_cut = member_or_null(written, "pre_tokenizer");
  const json& written_around = member_or_null(written, "post_processor");
  const json& normal = member_or_null(to.settings, "normalizer");
  const json& cut = member_or_null(to.settings, "pre_tokenizer");
  const auto note = [&](const auto&... words) { notes.push_back(concat(to.who, ": tokenizer_class ", beside.class_name(), ": ", words...)); };
  const bool bytes = [&] {
    bool any = false;
    json copy = cut;
    for_each_byte_level(copy, [&](const json&) { any = true; });
    return any || type_of(member_or_null(to.settings, "decoder")) == "ByteLevel";
  }();
  const bool rebuilds = !is_loaded_as_written(beside.model_type()) && !(own.kind == class_kind::llama && bytes);
  if (const auto steps = steps_of_class(beside); steps && rebuilds && !(same_step(normal, steps->first) && same_step(cut, steps->second)))
    note("transformers 5 has its own normalizer and pre-tokenizer for it; here, as in transformers 4, the file's are used");
  if ((own.kind == class_kind::bert || own.kind == class_kind::mpnet) && rebuilds &&
      (type_of(normal) != "BertNormalizer" || type_of(cut) != "BertPreTokenizer"))
    note("transformers 5 has BERT's normalizer and pre-tokenizer for it; here, as in transformers 4, the file's are used");
  if (own.kind == class_kind::mpnet && !beside.separates_ideographs() && type_of(normal) == "BertNormalizer" &&
      !flag_of(normal, "handle_chinese_chars", true))
    note("transformers 5 separates ideographs; here, as in transformers 4, the file's handle_chinese_chars counts");
  if (own.kind == class_kind::as_written && !own.name.empty() && type_of(written_cut) == "ByteLevel" && own.name != "TokenizersBackend" &&
      flag_of(written_cut, "add_prefix_space", true) != beside.adds_prefix_space().value_or(false))
    note("transformers 4 takes add_prefix_space of tokenizer_config.json, by default false; here, as in transformers 5, the file's counts");
  if (own.kind == class_kind::qwen2 && !same_step(written_cut, cut) && type_of(written_cut) == "Sequence")
    note("transformers 4 takes add_prefix_space of tokenizer.json; here, as in transformers 5, tokenizer_config.json's counts, by default false");
  const bool begins = own.kind == class_kind::code_llama;
  if ((own.kind == class_kind::gpt_neox || begins) && (beside.adds_bos().value_or(begins) != begins || beside.adds_eos().value_or(false)))
    note("transformers 5 ignores add_bos_token and add_eos_token beside a tokenizer.json; here, as in transformers 4, they count");
  const bool sets_around = own.kind == class_kind::llama || own.kind == class_kind::gemma || own.kind == class_kind::cohere;
  if (sets_around && (around.first.empty() == beside.adds_bos().value_or(true) || around.second.empty() == beside.adds_eos().value_or(false)))
    note("transformers 4 takes the tokens around a text from add_bos_token (by default true) and add_eos_token; here, as in transformers 5, the "
         "file's post-processor counts");
  if (own.kind == class_kind::blenderbot && rebuilds && !beside.adds_prefix_space() &&
      (type_of(cut) != "ByteLevel" || !flag_of(cut, "add_prefix_space", true)))
    note("transformers 5 puts a space before a text; here, as in transformers 4, the file's pre-tokenizer counts");
  if (own.name == "ConvBert" && type_of(normal) == "BertNormalizer" &&
      (flag_of(normal, "lowercase", true) != beside.lowercase().value_or(true) ||
       member_or_null(normal, "strip_accents") != (beside.strips_accents() ? json(*beside.strips_accents()) : json())))
    note("transformers 4 takes do_lower_case and strip_accents of tokenizer_config.json; here, as in transformers 5, the file's normalizer counts");
  if ((own.kind == class_kind::roberta || own.name == "Deberta") && rebuilds && (around.first.empty() || around.second.empty()))
    note("transformers 5 puts ", own.cls, " and ", own.sep, " around a text; here, as in transformers 4, the file's post-processor counts");
  if ((own.kind == class_kind::bert || own.kind == class_kind::mpnet) && written_around.is_null() && rebuilds)
    note("transformers 5 puts [CLS] and [SEP] around a text; here, as in transformers 4, the file's post-processor counts, which is null");
  return notes;
}

}  // namespace xtrain::detail
