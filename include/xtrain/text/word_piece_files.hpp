// BERT's vocab.txt: a token per line. Component 'text'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/text/byte_level_files.hpp>
#include <xtrain/text/companion_files.hpp>
#include <xtrain/text/tokenizer_json.hpp>

namespace xtrain {

namespace detail {

/// BERT's steps: [CLS] text [SEP], or [CLS] text [SEP] second [SEP].
[[nodiscard]] inline json bert_settings(bool lowercase, const json& strips_accents, bool ideographs, token begin, token end) {
  const std::string around = concat(
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
      {"SpecialToken": {"id": "[SEP]", "type_id": 0}}], "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A",
      "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]",
      "type_id": 1}}], "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [)",
      begin, R"(], "tokens": ["[CLS]"]},
      "[SEP]": {"id": "[SEP]", "ids": [)",
      end, R"(], "tokens": ["[SEP]"]}}})");
  return parse_json(
      concat(R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": {"type": "BertNormalizer",
      "clean_text": true, "handle_chinese_chars": )",
             ideographs, R"(, "strip_accents": )", strips_accents.dump(), R"(, "lowercase": )", lowercase, R"(},
      "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": )",
             begin >= 0 && end >= 0 ? around : "null", R"(,
      "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true}, "model": {"type": "WordPiece", "unk_token": "[UNK]",
      "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}})"),
      "tokenizer");
}

}  // namespace detail

/// Loads a vocab.txt with do_lower_case (default true), strip_accents and tokenize_chinese_chars of tokenizer_config.json. Without a class in files, text is
/// lowercased if only tokens in brackets have uppercase letters.
///   throws  file_error, config_error
[[nodiscard]] inline tokenizer load_word_piece(const std::string& path) {
  const mapped_file file(path);
  detail::companion_files beside(detail::parent_of(path));
  tokenizer_description from;
  from.who = path;
  bool capitals = false;
  detail::for_each_line(file.text(), [&](std::string_view line, std::size_t number) {
    const bool bracketed = line.starts_with('[') && line.ends_with(']');
    capitals = capitals || (!bracketed && std::any_of(line.begin(), line.end(), [](char c) { return c >= 'A' && c <= 'Z'; }));
    from.vocabulary.emplace_back(std::string(line), static_cast<token>(number - 1));
  });
  const detail::vocabulary_table table(from.vocabulary, path);
  require<config_error>(table.find("[UNK]") >= 0, path, ": must be a vocabulary of BERT's kind, a token on every line; it has no [UNK]");
  const auto reads = [](const detail::tokenizer_class& one) { return one.kind == detail::class_kind::bert && one.bos.empty(); };
  if (!reads(beside.kind())) beside.forget_class_of_model();
  const std::string& class_name = beside.class_name();
  const std::string_view own = beside.kind().name;
  const bool of_bert = reads(beside.kind());
  require<config_error>(of_bert || class_name.empty() || own == "PreTrained" || own == "ConvBert", path,
                        ": tokenizer_class must be one that reads vocab.txt as BERT's; it is '", class_name, "'. A tokenizer.json would define it");
  const bool lowercase = beside.lowercase().value_or(of_bert || own == "ConvBert" || !capitals);
  from.settings = detail::bert_settings(lowercase, beside.strips_accents() ? json(*beside.strips_accents()) : json(),
                                        beside.separates_ideographs().value_or(true), table.find("[CLS]"), table.find("[SEP]"));
  std::vector<std::string> notes;
  if (lowercase && capitals && !beside.lowercase())
    notes.push_back(concat(path, ": tokens have uppercase letters, but text is lowercased: do_lower_case of tokenizer_config.json is missing, which is true"));
  for (const char* name : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"})
    if (const token id = table.find(name); id >= 0)
      from.settings["added_tokens"].push_back(detail::json_of({.content = name, .id = id, .special = true}));
  detail::describe_added_tokens(from, beside);
  return detail::finish_tokenizer(std::move(from), {{"vocab.txt", std::string(file.text())}}, beside, std::move(notes), true);
}

}  // namespace xtrain
