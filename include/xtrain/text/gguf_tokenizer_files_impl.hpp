// Definitions of gguf_tokenizer_files.hpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/utf8.hpp>
#include <xtrain/text/class_steps.hpp>
#include <xtrain/text/gguf_tokenizer_files.hpp>
#include <xtrain/text/sentencepiece_file.hpp>
#include <xtrain/text/split_patterns.hpp>

namespace xtrain {

namespace detail {

/// A GGUF file's vocabulary; types are SentencePiece's.
struct gguf_vocabulary {
  std::vector<std::string_view> tokens{};
  std::vector<piece_kind> kinds{};
  std::vector<double> scores{};

  ///   throws  config_error, file_error
  explicit gguf_vocabulary(const gguf_file& file) : tokens(file.texts("tokenizer.ggml.tokens")), scores(file.numbers("tokenizer.ggml.scores")) {
    const std::string& who = file.path();
    require<config_error>(!tokens.empty(), who, ": must have tokenizer.ggml.tokens; it has no vocabulary");
    require<config_error>(tokens.size() < (1U << 24), who, ": tokenizer.ggml.tokens must be fewer than 2^24; they are ", tokens.size());
    const std::vector<std::int64_t> types = file.integers("tokenizer.ggml.token_type");
    for (const auto& [name, count] : {std::pair{"scores", scores.size()}, {"token_type", types.size()}})
      require<config_error>(count == 0 || count == tokens.size(), who, ": tokenizer.ggml.", name, " must have a number for each of the ", tokens.size(),
                            " tokens; it has ", count);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      require<config_error>(!tokens[i].empty(), who, ": tokens must have a text; token ", i, " has none");
      require_utf8(tokens[i], who, "tokens");
      const std::int64_t type = types.empty() ? 1 : types[i];
      require<config_error>(type >= 0 && type <= 6, who, ": types of tokens must be from 0 to 6; that of token ", i, " is ", type);
      kinds.push_back(type == 0 ? piece_kind::normal : static_cast<piece_kind>(type));
    }
  }
  static void require_utf8(std::string_view text, const std::string& who, const char* what) {
    for (std::size_t at = 0; at < text.size();) {
      const character next = character_at(text, at);
      require<config_error>(next.code >= 0, who, ": ", what, " must be UTF-8; byte ", at, " of one is not");
      at += next.bytes;
    }
  }
  [[nodiscard]] token id(const gguf_file& file, const char* name) const {
    const std::optional<std::int64_t> found = file.integer(concat("tokenizer.ggml.", name, "_token_id"));
    return found && *found >= 0 && static_cast<std::size_t>(*found) < tokens.size() ? static_cast<token>(*found) : -1;
  }
  [[nodiscard]] std::string text(token id) const { return id < 0 ? std::string() : std::string(tokens[static_cast<std::size_t>(id)]); }
};

/// A byte-level split: patterns in order.
struct gguf_split {
  std::vector<std::string> patterns{};
  bool ignores_merges = false;  ///< a word in the vocabulary is not merged
  bool begins = false;          ///< with the begin token, unless the file says otherwise
};

[[nodiscard]] inline gguf_split gguf_split_of(std::string_view name, const std::string& who) {
  const auto is = [&](std::initializer_list<std::string_view> names) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (is({"gpt-2", "phi-2", "mpt", "olmo", "jais"})) return {{gpt2_pattern}};
  if (is({"llama-bpe", "llama3", "llama-v3", "falcon3"})) return {{cl100k_pattern}, true, true};
  if (is({"dbrx", "smaug-bpe"})) return {{cl100k_pattern}};
  if (is({"qwen2", "deepseek-r1-qwen", "stablelm2"})) return {{qwen_pattern}};
  if (is({"gpt-4o", "llama4"})) return {{o200k_pattern}};
  if (is({"starcoder", "refact", "command-r", "smollm", "codeshell"})) return {{R"(\p{N})", gpt2_pattern}};
  if (is({"deepseek-coder"})) return {{R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)", R"(\p{N})"}};
  if (is({"bloom", "poro-chat", "gpt3-finnish"})) return {{" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"}};
  if (is({"default", ""})) return {{R"([\p{P}\$\+<=>\^~\|]+)", gpt2_pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}};
  fail<config_error>(who, ": tokenizer.ggml.pre must be gpt-2, phi-2, mpt, olmo, jais, llama-bpe, falcon3, dbrx, smaug-bpe, qwen2, deepseek-r1-qwen, ",
                     "stablelm2, gpt-4o, llama4, starcoder, refact, command-r, smollm, codeshell, deepseek-coder, bloom, poro-chat, gpt3-finnish or default; it is '", name,
                     "'");
}

/// Protocol buffer fields.
[[nodiscard]] inline std::string proto_varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>((value & 0x7F) | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}
[[nodiscard]] inline std::string proto_number(std::uint64_t field, std::uint64_t value) { return proto_varint(field << 3) + proto_varint(value); }
[[nodiscard]] inline std::string proto_bytes(std::uint64_t field, std::string_view value) {
  return (proto_varint(field << 3 | 2) + proto_varint(value.size())).append(value);
}
[[nodiscard]] inline std::string proto_float(std::uint64_t field, float value) {
  std::string bytes = proto_varint(field << 3 | 5);
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(value), i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(bits >> 8 * i & 0xFFU));
  return bytes;
}

/// Post-processor with tokens around a text; null: none.
[[nodiscard]] inline json gguf_tokens_around(const gguf_vocabulary& all, token begin, token end) {
  const auto of = [&](token id) { return id < 0 ? std::optional<template_token>() : template_token{all.text(id), id}; };
  return tokens_around(of(begin), of(end));
}

XTRAIN_INLINE json gguf_tokenizer_json(const gguf_file& file) {
  const gguf_vocabulary all(file);
  const gguf_split split = gguf_split_of(file.text("tokenizer.ggml.pre").value_or(""), file.path());
  json whole = literal_json(
      R"({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null, )"
      R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": []}, "post_processor": null, )"
      R"("decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false}, )"
      R"("model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, )"
      R"("byte_fallback": false, "ignore_merges": false, "vocab": {}, "merges": []}})");
  const json plain_token = literal_json(R"({"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})");
  json &steps = whole["pre_tokenizer"]["pretokenizers"], &added = whole["added_tokens"];
  json &vocabulary = whole["model"]["vocab"], &merges = whole["model"]["merges"];
  for (const std::string& pattern : split.patterns) steps.push_back(split_step(pattern));
  steps.push_back(whole["decoder"]);
  for (std::size_t i = 0; i < all.tokens.size(); ++i) {
    const std::string text(all.tokens[i]);
    require<config_error>(vocabulary.emplace(text, i).second, file.path(), ": tokens must differ; token ", i, " is '", text, "' again");
    if (all.kinds[i] == piece_kind::control || all.kinds[i] == piece_kind::user_defined || all.kinds[i] == piece_kind::unknown) {
      json& one = added.emplace_back(plain_token);
      one["id"] = i;
      one["content"] = text;
      one["special"] = all.kinds[i] != piece_kind::user_defined;
    }
  }
  const std::vector<std::string_view> pairs = file.texts("tokenizer.ggml.merges");
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const std::size_t space = pairs[i].find(' ', 1);
    require<config_error>(space != std::string_view::npos && space + 1 < pairs[i].size(), file.path(), ": merge ", i + 1,
                          " of tokenizer.ggml.merges must be two tokens with a space between; it is '", pairs[i], "'");
    gguf_vocabulary::require_utf8(pairs[i], file.path(), "tokenizer.ggml.merges");
    json& both = merges.emplace_back(json::array());
    both.push_back(std::string(pairs[i].substr(0, space)));
    both.push_back(std::string(pairs[i].substr(space + 1)));
  }
  const bool begins = file.flag("tokenizer.ggml.add_bos_token").value_or(split.begins), ends = file.flag("tokenizer.ggml.add_eos_token").value_or(false);
  whole["post_processor"] = gguf_tokens_around(all, begins ? all.id(file, "bos") : -1, ends ? all.id(file, "eos") : -1);
  whole["model"]["ignore_merges"] = split.ignores_merges;
  return whole;
}

XTRAIN_INLINE std::string gguf_sentencepiece_bytes(const gguf_file& file) {
  gguf_vocabulary all(file);
  if (std::find(all.kinds.begin(), all.kinds.end(), piece_kind::unknown) == all.kinds.end()) {  // some converters write it as control
    const token unknown = file.has("tokenizer.ggml.unknown_token_id") ? all.id(file, "unknown") : 0;  // llama.cpp's default: 0
    if (unknown >= 0) all.kinds[static_cast<std::size_t>(unknown)] = piece_kind::unknown;
  }
  require<config_error>(!all.scores.empty(), file.path(), ": must have tokenizer.ggml.scores, by which tokens of the model 'llama' are merged");
  std::string bytes;
  bool byte_fallback = false;
  for (std::size_t i = 0; i < all.tokens.size(); ++i) {
    byte_fallback = byte_fallback || all.kinds[i] == piece_kind::byte;
    bytes += proto_bytes(1, proto_bytes(1, all.tokens[i]) + proto_float(2, static_cast<float>(all.scores[i])) +
                                proto_number(3, static_cast<std::uint64_t>(all.kinds[i])));
  }
  std::string training = proto_number(3, 2) + proto_number(35, byte_fallback ? 1 : 0);  // BPE
  if (const token bos = all.id(file, "bos"); bos >= 0) training += proto_bytes(46, all.text(bos));
  if (const token eos = all.id(file, "eos"); eos >= 0) training += proto_bytes(47, all.text(eos));
  const bool space = file.flag("tokenizer.ggml.add_space_prefix").value_or(true);
  bytes += proto_bytes(2, training);
  return bytes + proto_bytes(3, proto_bytes(1, "identity") + proto_number(3, space ? 1 : 0) + proto_number(4, 0) + proto_number(5, 1));
}

XTRAIN_INLINE json gguf_tokenizer_settings(const gguf_file& file) {
  const gguf_vocabulary all(file);
  const bool sentencepiece = file.text("tokenizer.ggml.model").value_or("") == "llama";
  json settings = json::object();
  for (const auto& [ours, theirs] : {std::pair{"bos_token", "bos"}, {"eos_token", "eos"}, {"unk_token", "unknown"}, {"pad_token", "padding"}}) {
    if (const token id = all.id(file, theirs); id >= 0) settings[ours] = all.text(id);
    else settings[ours] = nullptr;
  }
  if (sentencepiece) {
    settings["tokenizer_class"] = "LlamaTokenizer";
    settings["legacy"] = true;
    settings["add_prefix_space"] = file.flag("tokenizer.ggml.add_space_prefix").value_or(true);
    settings["add_bos_token"] = file.flag("tokenizer.ggml.add_bos_token").value_or(true);
    settings["add_eos_token"] = file.flag("tokenizer.ggml.add_eos_token").value_or(false);
  } else {
    settings["tokenizer_class"] = "PreTrainedTokenizerFast";
  }
  settings["clean_up_tokenization_spaces"] = false;
  if (const std::optional<std::string> chat = file.text("tokenizer.chat_template"); chat && !chat->empty()) {
    gguf_vocabulary::require_utf8(*chat, file.path(), "tokenizer.chat_template");
    settings["chat_template"] = *chat;
  }
  return settings;
}

XTRAIN_INLINE bool gguf_has_sentencepiece(const gguf_file& file) {
  const std::string model = file.text("tokenizer.ggml.model").value_or("");
  require<config_error>(model == "llama" || model == "gpt2", file.path(), ": tokenizer.ggml.model must be llama or gpt2; it is '", model, "'");
  return model == "llama";
}

}  // namespace detail

XTRAIN_INLINE void write_gguf_tokenizer(const std::string& path, const std::string& folder) {
  const gguf_file file(path);
  if (detail::gguf_has_sentencepiece(file)) write_file(folder + "/tokenizer.model", detail::gguf_sentencepiece_bytes(file));
  else write_file(folder + "/tokenizer.json", detail::gguf_tokenizer_json(file).dump() + "\n");
  write_file(folder + "/tokenizer_config.json", detail::gguf_tokenizer_settings(file).dump(2) + "\n");
}

}  // namespace xtrain
