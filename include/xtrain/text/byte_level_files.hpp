// Byte-level vocabularies: vocab.json with merges.txt, and tiktoken ranks. Component 'text'.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/text/charsmap.hpp>
#include <xtrain/text/class_steps.hpp>
#include <xtrain/text/companion_files.hpp>
#include <xtrain/text/tokenizer_class.hpp>
#include <xtrain/text/tokenizer_json.hpp>
#include <xtrain/text/word_cutter.hpp>

namespace xtrain {

namespace detail {

/// Settings of a byte-level BPE with a split pattern.
[[nodiscard]] inline json byte_level_settings(const std::string& pattern, bool nfc, bool ignore_merges) {
  const std::string by_pattern =
      concat(R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": )", json(pattern).dump(),
             R"(}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}]})");
  const std::string byte_level = R"({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true})";
  return parse_json(concat(R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": )",
                           nfc ? R"({"type": "NFC"})" : "null", R"(, "pre_tokenizer": )", pattern == gpt2_pattern ? byte_level : by_pattern,
                           R"(, "post_processor": null, "decoder": )", byte_level, R"(, "model": {"type": "BPE", "dropout": null,
      "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
      "ignore_merges": )",
                           ignore_merges, "}}"),
                    "tokenizer");
}

/// A byte without a rank cannot be encoded; small vocabularies may lack some.
inline void require_every_byte(const tokenizer_description& from) {
  const vocabulary_table table(from.vocabulary, from.who);
  for (unsigned byte = 0; byte < 256; ++byte)
    require<config_error>(table.find(printable_byte(byte)) >= 0, from.who, ": every byte must have a token; byte ", byte, " has none");
}

/// visit(line, number), without the line end.
template <class Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    visit(line, ++number);
    begin = end + 1;
  }
}

}  // namespace detail

/// Loads vocab.json and merges.txt. The class in tokenizer_config.json decides the pre-tokenizer (Qwen2's differs) and tokens around a text: RoBERTa's, or by
/// add_bos_token and add_eos_token.
///   throws  file_error, config_error
[[nodiscard]] inline tokenizer load_vocabulary_and_merges(const std::string& vocabulary_path, const std::string& merges_path) {
  const mapped_file vocabulary(vocabulary_path), merges(merges_path);
  detail::companion_files beside(detail::parent_of(vocabulary_path));
  using detail::class_kind;
  const auto reads = [](const detail::tokenizer_class& one) {
    return one.kind == class_kind::qwen2 || one.kind == class_kind::roberta || one.name == "GPT2" || one.name == "CodeGen";
  };
  if (!reads(beside.kind())) beside.forget_class_of_model();
  std::string_view family = beside.class_name();
  if (family.ends_with("Fast")) family.remove_suffix(4);
  const detail::tokenizer_class& own = beside.kind();
  const bool generic = family.empty() || family == "PreTrainedTokenizer" || family == "OPTTokenizer";
  const bool qwen = own.kind == class_kind::qwen2, roberta = own.kind == class_kind::roberta;
  require<config_error>(generic || reads(own), vocabulary_path,
                        ": tokenizer_class must be one whose pre-tokenization is known; tokenizer_config.json says '", family,
                        "'. A tokenizer.json would define it");
  tokenizer_description from;
  from.who = vocabulary_path;
  from.settings = detail::byte_level_settings(qwen ? qwen_pattern : gpt2_pattern, qwen, false);
  from.vocabulary = detail::read_vocabulary(parse_json(vocabulary.text(), vocabulary_path), vocabulary_path);
  detail::for_each_line(merges.text(), [&](std::string_view line, std::size_t number) {
    if (line.empty() || line.starts_with("#version")) return;
    const std::size_t space = line.find(' ');
    require<config_error>(space != std::string_view::npos && space > 0 && space + 1 < line.size(), merges_path, ": line ", number,
                          " must be two tokens with a space between; given '", line, "'");
    from.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  });
  detail::describe_added_tokens(from, beside);
  for (json& one : from.settings["added_tokens"])  // as in the class
    if (roberta && detail::token_text(one) == own.mask && !beside.has_flags_of(std::string(own.mask)) && beside.named("mask_token").empty())
      one["lstrip"] = true;
  const auto of_class = [&](const char* name, std::string_view otherwise) {
    const std::string text = beside.named(name);
    return text.empty() ? std::string(otherwise) : text;
  };
  if (roberta) {
    const std::string begin = of_class("cls_token", own.cls), end = of_class("sep_token", own.sep);
    const token begin_id = detail::token_in(from, begin), end_id = detail::token_in(from, end);
    for (const auto& [text, id] : {std::pair{&begin, begin_id}, {&end, end_id}})
      require<config_error>(id >= 0, vocabulary_path, ": ", family, " puts '", begin, "' and '", end, "' around a text; the vocabulary must have '",
                            *text, "'");
    json step = detail::literal_json(R"({"type": "RobertaProcessing", "sep": [], "cls": [], "trim_offsets": true})");
    step["sep"].push_back(end);
    step["sep"].push_back(static_cast<std::uint64_t>(end_id));
    step["cls"].push_back(begin);
    step["cls"].push_back(static_cast<std::uint64_t>(begin_id));
    step["add_prefix_space"] = beside.adds_prefix_space().value_or(false);
    from.settings["post_processor"] = std::move(step);
  } else {
    const bool listed = std::any_of(from.settings["added_tokens"].begin(), from.settings["added_tokens"].end(),
                                    [](const json& one) { return detail::token_text(one) == "<|endoftext|>"; });
    if (const token id = detail::token_in(from, "<|endoftext|>"); !listed && id >= 0)  // GPT-2's files do not mark it as special
      from.settings["added_tokens"].push_back(detail::json_of({.content = "<|endoftext|>", .id = id, .special = true}));
    from.settings["post_processor"] = detail::tokens_of_keys(from, beside);
  }
  if (beside.adds_prefix_space().value_or(false))
    detail::for_each_byte_level(from.settings["pre_tokenizer"], [](json& step) { step["add_prefix_space"] = true; });
  std::vector<std::string> notes;
  if (beside.names_class() && qwen && beside.adds_bos().value_or(false) && !beside.bos_is_none())
    notes.push_back(concat(vocabulary_path, ": tokenizer_class ", family, ": transformers 4 ignores add_bos_token of tokenizer_config.json beside ",
                           "vocab.json; here, as in transformers 5, texts begin with the begin token"));
  if (beside.names_class() && !roberta && beside.adds_eos().value_or(false))
    notes.push_back(concat(vocabulary_path, ": tokenizer_class ", family, ": transformers 4 ignores add_eos_token of tokenizer_config.json beside ",
                           "vocab.json; here, as in transformers 5, texts end with the end token"));
  return detail::finish_tokenizer(std::move(from),
                                  {{"vocab.json", std::string(vocabulary.text())}, {"merges.txt", std::string(merges.text())}}, beside, std::move(notes), true);
}

/// Not in a rank file: split pattern, special tokens.
struct tiktoken_family {
  std::string_view name;
  std::size_t ranks;  ///< identifies the family's file
  const char* pattern;
  bool nfc = false;
  std::string_view first = {};  ///< begins every text
};

/// Known tiktoken vocabularies.
inline constexpr std::array<tiktoken_family, 6> tiktoken_families{{{"gpt2", 50256, gpt2_pattern},
                                                                   {"p50k_base", 50280, gpt2_pattern},
                                                                   {"cl100k_base", 100256, cl100k_pattern},
                                                                   {"o200k_base", 199998, o200k_pattern},
                                                                   {"qwen", 151643, qwen_pattern, true},
                                                                   {"llama3", 128000, cl100k_pattern, false, "<|begin_of_text|>"}}};

namespace detail {

/// A family's special tokens: with its ids in its file, after the ranks in others.
[[nodiscard]] inline std::vector<added_token> special_tokens_of(const tiktoken_family& family, bool own_file, token ranks) {
  std::vector<added_token> all;
  const token behind = ranks;
  const auto add = [&](std::string content, token id) { all.push_back({.content = std::move(content), .id = id, .special = true}); };
  if (family.name == "gpt2" || family.name == "p50k_base") {
    add("<|endoftext|>", 50256);
  } else if (family.name == "cl100k_base") {
    add("<|endoftext|>", 100257);
    add("<|fim_prefix|>", 100258);
    add("<|fim_middle|>", 100259);
    add("<|fim_suffix|>", 100260);
    add("<|endofprompt|>", 100276);
  } else if (family.name == "o200k_base") {
    add("<|endoftext|>", 199999);
    add("<|endofprompt|>", 200018);
  } else if (family.name == "qwen") {
    for (const char* name : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) add(name, ranks++);
    for (int i = 0; i < 205; ++i) add(concat("<|extra_", i, "|>"), ranks++);
  } else {
    for (const char* name : {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
                             "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>",
                             "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"})
      add(name, ranks++);
    for (int i = 3; i < 248; ++i) add(concat("<|reserved_special_token_", i, "|>"), ranks++);
  }
  for (std::size_t i = 0; !own_file && i < all.size(); ++i) all[i].id = behind + static_cast<token>(i);
  return all;
}

/// Lines: base64 token, rank.
[[nodiscard]] inline std::vector<std::pair<std::string, token>> read_ranks(std::string_view text, const std::string& path) {
  std::vector<std::pair<std::string, token>> ranks;
  for_each_line(text, [&](std::string_view line, std::size_t number) {
    if (line.empty()) return;
    const std::size_t space = line.find(' ');
    const std::string_view digits = space == std::string_view::npos ? std::string_view{} : line.substr(space + 1);
    require<config_error>(
        space != 0 && !digits.empty() && digits.size() <= 8 && digits.find_first_not_of("0123456789") == std::string_view::npos, path,
        ": line ", number, " must be a token in base 64 and its rank; given '", line.substr(0, 100), "'");
    std::string printable;
    for (const char byte : bytes_of_base64(line.substr(0, space), path)) printable += printable_byte(static_cast<unsigned char>(byte));
    ranks.emplace_back(std::move(printable), static_cast<token>(std::stoul(std::string(digits))));
  });
  require<config_error>(!ranks.empty(), path, ": must hold tokens and their ranks; it is empty");
  return ranks;
}

/// The family asked for, or recognized by ranks or file name. LLaMA-3's files share a name.
[[nodiscard]] inline const tiktoken_family& family_of(std::string_view asked, std::size_t ranks, const std::string& path) {
  const std::string_view name = std::string_view(path).substr(path.find_last_of('/') + 1);
  for (const tiktoken_family& one : tiktoken_families)
    if (asked.empty() ? ranks == one.ranks : asked == one.name) return one;
  if (asked.empty())
    for (const tiktoken_family& one : tiktoken_families)
      if (name.starts_with(one.name) || (one.name == "llama3" && name.ends_with(".model"))) return one;
  std::string known;
  for (const tiktoken_family& one : tiktoken_families) known += concat(known.empty() ? "" : ", ", one.name);
  if (asked.empty())
    fail<config_error>(path, ": ", ranks, " ranks must belong to a known family, or load_tiktoken must be told which; it knows ", known);
  fail<config_error>("load_tiktoken: the family must be one of ", known, "; given '", asked, "'");
}

}  // namespace detail

/// Loads tiktoken ranks: OpenAI's, Qwen's, LLaMA-3's tokenizer.model. Special tokens are the family's unless a tokenizer_config.json names others.
///   family  a name in tiktoken_families; empty: recognized by ranks or file name
///   throws  file_error, config_error
[[nodiscard]] inline tokenizer load_tiktoken(const std::string& path, std::string_view family = {}) {
  const mapped_file file(path);
  detail::companion_files beside(detail::parent_of(path));
  if (!beside.names_class()) beside.forget_tokens_of_class();  // the family has special tokens
  tokenizer_description from;
  from.who = path;
  from.vocabulary = detail::read_ranks(file.text(), path);
  from.merges_by_rank = true;
  token ranks = 0;
  for (const auto& [text, id] : from.vocabulary) ranks = std::max(ranks, id + 1);
  const tiktoken_family& kind = detail::family_of(family, from.vocabulary.size(), path);
  from.settings = detail::byte_level_settings(kind.pattern, kind.nfc, true);
  detail::require_every_byte(from);
  detail::describe_added_tokens(from, beside);
  json& added = from.settings["added_tokens"];
  if (added.empty())
    for (const added_token& one : detail::special_tokens_of(kind, from.vocabulary.size() == kind.ranks, ranks))
      added.push_back(detail::json_of(one));
  if (kind.nfc)  // normalize before added tokens are matched
    for (json& one : added) one["normalized"] = true;
  for (const json& one : added)
    if (!kind.first.empty() && detail::token_text(one) == kind.first && beside.adds_bos().value_or(true))
      from.settings["post_processor"] = detail::tokens_around(detail::template_token{std::string(kind.first), one["id"].get<token>()}, std::nullopt);
  return detail::finish_tokenizer(std::move(from), {{path.substr(path.find_last_of('/') + 1), std::string(file.text())}}, beside);
}

}  // namespace xtrain
