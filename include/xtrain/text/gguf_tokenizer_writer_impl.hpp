// Definitions of gguf_tokenizer_writer.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/gguf_file.hpp>
#include <xtrain/core/gguf_writer.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/text/class_steps.hpp>
#include <xtrain/text/gguf_tokenizer_files_impl.hpp>
#include <xtrain/text/gguf_tokenizer_writer.hpp>
#include <xtrain/text/sentencepiece_file.hpp>
#include <xtrain/text/split_patterns.hpp>

namespace xtrain {

namespace detail {

inline constexpr std::string_view or_without_it = ". Without tokenizer_from the file is written without a tokenizer";

/// A vocabulary to be written.
class gguf_token_list {
 public:
  gguf_token_list(std::size_t count, std::string who) : who_(std::move(who)), tokens_(count), kinds_(count, piece_kind::unused), scores_(count, -10000.0f) {
    for (std::size_t i = 0; i < count; ++i) tokens_[i] = concat("[PAD", i, "]");
  }

  void set(std::size_t id, std::string text, piece_kind kind, float score = -1000.0f) {
    require<config_error>(id < tokens_.size(), who_, ": tokens must be fewer than the ", tokens_.size(), " of the model; '", text, "' is token ", id);
    require<config_error>(!text.empty(), who_, ": tokens must have a text; token ", id, " has none");
    tokens_[id] = std::move(text);
    kinds_[id] = kind;
    scores_[id] = score;
  }
  /// An added token.
  void set_added(std::size_t id, std::string text, bool special) {
    const bool in_bars = (text.starts_with("<|") && text.ends_with("|>")) || (text.starts_with("<\uFF5C") && text.ends_with("\uFF5C>"));
    const bool looks_special = in_bars || text == "<pad>" || text == "<mask>" || text == "<2mass>" || text == "[@BOS@]" ||
                               (text.starts_with("<unused") && text.ends_with(">"));
    if (!special && !looks_special)
      for (std::size_t at = 0; (at = text.find("\u2581", at)) != std::string::npos; ++at) text.replace(at, 3, " ");
    const bool is_unknown = id < tokens_.size() && kinds_[id] == piece_kind::unknown && tokens_[id] == text;
    set(id, std::move(text), is_unknown ? piece_kind::unknown : special || looks_special ? piece_kind::control : piece_kind::user_defined);
  }
  [[nodiscard]] token find(const std::string& text) const {
    const auto at = text.empty() ? tokens_.end() : std::find(tokens_.begin(), tokens_.end(), text);
    return at == tokens_.end() ? -1 : static_cast<token>(at - tokens_.begin());
  }
  void write(gguf_writer& to, bool with_scores) const {
    to.add_texts("tokenizer.ggml.tokens", tokens_);
    if (with_scores) to.add_f32s("tokenizer.ggml.scores", scores_);
    std::vector<std::int32_t> kinds;
    for (const piece_kind kind : kinds_) kinds.push_back(static_cast<std::int32_t>(kind));
    to.add_i32s("tokenizer.ggml.token_type", kinds);
  }

 private:
  std::string who_;
  std::vector<std::string> tokens_;
  std::vector<piece_kind> kinds_;
  std::vector<float> scores_;
};

[[nodiscard]] inline const json& gguf_member(const json& object, const char* name) {
  static const json nothing = nullptr;
  if (!object.is_object()) return nothing;
  const auto at = object.find(name);
  return at == object.end() ? nothing : *at;
}
[[nodiscard]] inline std::string gguf_member_text(const json& object, const char* name) {
  const json& value = gguf_member(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}
[[nodiscard]] inline bool gguf_member_flag(const json& object, const char* name, bool otherwise) {
  const json& value = gguf_member(object, name);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}
/// A string, or an object with the text.
[[nodiscard]] inline std::string gguf_token_text(const json& settings, const char* name) {
  const json& value = gguf_member(settings, name);
  return value.is_object() ? gguf_member_text(value, "content") : gguf_member_text(settings, name);
}
[[nodiscard]] inline json read_json_if_there(const std::string& path) {
  return file_exists(path) ? parse_json(mapped_file(path).text(), path) : json(nullptr);
}

/// Steps without sequences around them.
inline void gguf_flatten(const json& step, const char* list, std::vector<json>& steps) {
  if (step.is_null()) return;
  if (gguf_member_text(step, "type") != "Sequence") return steps.push_back(step);
  for (const json& one : gguf_member(step, list)) gguf_flatten(one, list, steps);
}

/// tokenizer.ggml.pre of a split.
///   throws  config_error when llama.cpp has no such split
[[nodiscard]] inline std::string gguf_split_name(const json& document, const std::string& who) {
  std::vector<json> steps;
  gguf_flatten(gguf_member(document, "pre_tokenizer"), "pretokenizers", steps);
  std::vector<std::string> patterns;
  bool ends_in_bytes = false;
  for (const json& step : steps) {
    const std::string type = gguf_member_text(step, "type");
    require<config_error>(!ends_in_bytes, who, ": the pre-tokenizer must end with ByteLevel to be in a GGUF file; ", type, " follows");
    if (type == "ByteLevel") {
      require<config_error>(!gguf_member_flag(step, "add_prefix_space", true), who, ": add_prefix_space must be false to be in a GGUF file; it is true");
      if (gguf_member_flag(step, "use_regex", true)) patterns.emplace_back(gpt2_pattern);
      ends_in_bytes = true;
    } else if (type == "Digits" && gguf_member_flag(step, "individual_digits", false)) {
      patterns.emplace_back(R"(\p{N})");
    } else {
      require<config_error>(type == "Split" && gguf_member_text(step, "behavior") == "Isolated" && !gguf_member_flag(step, "invert", false), who,
                            ": the pre-tokenizer must have Split (isolated), Digits and ByteLevel only to be in a GGUF file; it has ", type);
      std::string pattern = gguf_member_text(gguf_member(step, "pattern"), "Regex");
      if (pattern == " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+") pattern = gguf_split_of("bloom", who).patterns[0];  // an equal set
      patterns.push_back(std::move(pattern));
    }
  }
  const json& model = gguf_member(document, "model");
  const bool ignores_merges = gguf_member_flag(model, "ignore_merges", false);
  for (const char* name : {"gpt-2", "llama-bpe", "dbrx", "qwen2", "gpt-4o", "starcoder", "deepseek-coder", "bloom", "default"}) {
    const gguf_split split = gguf_split_of(name, who);
    if (ends_in_bytes && split.patterns == patterns && split.ignores_merges == ignores_merges) return name;
  }
  fail<config_error>(who, ": the split of the pre-tokenizer must be llama.cpp's gpt-2, llama-bpe, qwen2, gpt-4o, starcoder, deepseek-coder, bloom or default ",
                     "to be in a GGUF file; it is another, or ignore_merges differs");
}

/// Tokens before and after a text in tokenizer.json.
struct gguf_surroundings {
  std::vector<std::string> before{}, after{};
  bool described = false;
};
[[nodiscard]] inline gguf_surroundings gguf_surroundings_of(const json& document) {
  std::vector<json> steps;
  gguf_flatten(gguf_member(document, "post_processor"), "processors", steps);
  gguf_surroundings around{.described = document.is_object()};
  for (const json& step : steps) {
    if (gguf_member_text(step, "type") != "TemplateProcessing") continue;
    bool behind = false;
    for (const json& one : gguf_member(step, "single")) {
      if (!gguf_member(one, "Sequence").is_null()) behind = true;
      else (behind ? around.after : around.before).push_back(gguf_member_text(gguf_member(one, "SpecialToken"), "id"));
    }
  }
  return around;
}

/// Adds special ids, tokens around texts, and the chat template.
inline void add_gguf_special_tokens(gguf_writer& to, const gguf_token_list& tokens, const json& settings, const json& document, const gguf_model_tokens& model,
                                    const std::string& folder, bool sentencepiece, const std::string& who) {
  const auto id_of = [&](const char* name) { return tokens.find(gguf_token_text(settings, name)); };
  const auto add = [&](const char* name, token id) {
    if (id >= 0 && static_cast<std::size_t>(id) < model.vocab_size) to.add_u32(concat("tokenizer.ggml.", name, "_token_id"), static_cast<std::size_t>(id));
  };
  token bos = id_of("bos_token"), eos = id_of("eos_token"), pad = id_of("pad_token");
  if (bos < 0) bos = model.bos;
  if (!model.eos.empty() && std::find(model.eos.begin(), model.eos.end(), eos) == model.eos.end()) eos = model.eos.front();
  if (pad < 0) pad = model.pad;
  add("bos", bos);
  add("eos", eos);
  for (const token other : model.eos)
    if (other != eos) {
      add("eot", other);
      break;
    }
  add("unknown", id_of("unk_token"));
  add("padding", pad);
  const gguf_surroundings around = gguf_surroundings_of(document);
  bool adds_bos = sentencepiece && bos >= 0, adds_eos = false;
  if (around.described) {
    adds_bos = !around.before.empty();
    adds_eos = !around.after.empty();
    require<config_error>(around.before.size() <= 1 && around.after.size() <= 1 && (!adds_bos || tokens.find(around.before[0]) == bos) &&
                              (!adds_eos || tokens.find(around.after[0]) == eos),
                          who, ": the post-processor must put no tokens around a text but the begin and the end token, to be in a GGUF file; it puts others");
  }
  const json& adds_bos_setting = gguf_member(settings, "add_bos_token");
  if (adds_bos_setting.is_boolean() && (sentencepiece || !around.described)) adds_bos = adds_bos_setting.get<bool>() && bos >= 0;
  if (sentencepiece || !around.described) adds_eos = gguf_member_flag(settings, "add_eos_token", adds_eos) && eos >= 0;
  to.add_flag("tokenizer.ggml.add_bos_token", adds_bos);
  to.add_flag("tokenizer.ggml.add_eos_token", adds_eos);
  const std::string file = folder.empty() ? "chat_template.jinja" : folder + "/chat_template.jinja";
  const json& chat = gguf_member(settings, "chat_template");
  if (file_exists(file)) {
    to.add_text("tokenizer.chat_template", mapped_file(file).text());
  } else if (chat.is_string()) {
    to.add_text("tokenizer.chat_template", chat.get<std::string>());
  } else if (chat.is_array()) {
    std::vector<std::string> names;
    for (const json& one : chat) {
      const std::string name = gguf_member_text(one, "name"), text = gguf_member_text(one, "template");
      if (name.empty() || text.empty()) continue;
      if (name != "default") names.push_back(name);
      to.add_text(name == "default" ? "tokenizer.chat_template" : "tokenizer.chat_template." + name, text);
    }
    if (!names.empty()) to.add_texts("tokenizer.chat_templates", names);
  }
}

/// Added tokens of companion files and tokenizer.json.
inline void set_gguf_added_tokens(gguf_token_list& tokens, const json& added, const json& settings, const json& document, const std::string& who) {
  const auto number = [&](const json& id) {
    require<config_error>(id.is_number_unsigned() && id.get<std::uint64_t>() < (1U << 24), who, ": ids of added tokens must be whole numbers below 2^24");
    return static_cast<std::size_t>(id.get<std::uint64_t>());
  };
  if (added.is_object())
    for (const auto& [text, id] : added.items()) tokens.set(number(id), text, piece_kind::user_defined);
  if (const json& decoder = gguf_member(settings, "added_tokens_decoder"); decoder.is_object())
    for (const auto& [id, one] : decoder.items()) {
      const bool is_number = !id.empty() && id.size() < 9 && id.find_first_not_of("0123456789") == std::string::npos;
      require<config_error>(is_number, who, ": ids of added tokens must be whole numbers; one is '", id, "'");
      tokens.set_added(static_cast<std::size_t>(std::stoul(id)), gguf_member_text(one, "content"), gguf_member_flag(one, "special", false));
    }
  if (const json& listed = gguf_member(document, "added_tokens"); listed.is_array())
    for (const json& one : listed) tokens.set_added(number(gguf_member(one, "id")), gguf_member_text(one, "content"), gguf_member_flag(one, "special", false));
}

inline void add_gguf_sentencepiece(gguf_writer& to, const std::string& path, const std::string& folder, const gguf_model_tokens& model) {
  const auto beside = [&](const char* name) { return read_json_if_there(folder.empty() ? name : concat(folder, "/", name)); };
  const mapped_file bytes(path);
  const sentencepiece_file pieces = read_sentencepiece(bytes.text(), path);
  const json settings = beside("tokenizer_config.json"), document = beside("tokenizer.json");
  const auto must = [&](bool holds, const auto&... what) { require<config_error>(holds, path, ": a tokenizer in a GGUF file must ", what..., or_without_it); };
  const std::string kind = gguf_member_text(settings, "tokenizer_class");
  must(kind != "ChatGLMTokenizer", "be described by its files; ChatGLM's special tokens are in its code");
  must(pieces.model == piece_model::bpe, "merge pieces by score (SentencePiece BPE); this is another model");
  must(pieces.byte_fallback, "have a token for each byte (byte_fallback)");
  must(!pieces.whitespace_as_suffix && pieces.normalization.escape_whitespaces, "write spaces as \u2581 before words");
  must(pieces.normalization.charsmap.empty(), "not normalize text, as llama.cpp does not; this one has a table of characters");
  must(!pieces.normalization.remove_extra_whitespaces, "keep all spaces, as llama.cpp does; this one removes some (remove_extra_whitespaces)");
  gguf_token_list tokens(model.vocab_size, path);
  for (std::size_t i = 0; i < pieces.pieces.size(); ++i) {
    const sentence_piece& piece = pieces.pieces[i];
    std::string text = piece.text;
    if (text == std::string_view("\0", 1)) text = "\U0001F409";  // llama.cpp's strings end at a zero byte; its converter's replacement
    tokens.set(i, std::move(text), piece.kind, piece.score);
  }
  set_gguf_added_tokens(tokens, beside("added_tokens.json"), settings, document, path);
  to.add_text("tokenizer.ggml.model", "llama");
  to.add_text("tokenizer.ggml.pre", "default");
  tokens.write(to, true);
  const bool space = pieces.normalization.add_dummy_prefix && !kind.starts_with("Gemma");
  to.add_flag("tokenizer.ggml.add_space_prefix", gguf_member_flag(settings, "add_prefix_space", space));
  json named = settings.is_object() ? settings : json::object();
  if (!named.contains("bos_token")) named["bos_token"] = pieces.bos_piece;
  if (!named.contains("eos_token")) named["eos_token"] = pieces.eos_piece;
  if (!named.contains("unk_token")) named["unk_token"] = pieces.pieces[static_cast<std::size_t>(pieces.unknown)].text;
  add_gguf_special_tokens(to, tokens, named, json(nullptr), model, folder, true, path);
}

/// tokenizer.json, or one made of vocab.json and merges.txt.
inline void add_gguf_byte_level(gguf_writer& to, const json& document, const std::string& path, const std::string& folder, const gguf_model_tokens& model) {
  const auto beside = [&](const char* name) { return read_json_if_there(folder.empty() ? name : concat(folder, "/", name)); };
  const json settings = beside("tokenizer_config.json"), &bpe = gguf_member(document, "model");
  const auto must = [&](bool holds, const auto&... what) { require<config_error>(holds, path, ": a tokenizer in a GGUF file must ", what..., or_without_it); };
  const std::string type = gguf_member_text(bpe, "type");
  must(type == "BPE" || (type.empty() && gguf_member(bpe, "merges").is_array()), "be a BPE; it is ", type.empty() ? "another model" : type);
  must(!gguf_member_flag(bpe, "byte_fallback", false), "be a byte-level BPE, or come with its tokenizer.model, which has scores; this one has byte_fallback");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    must(gguf_member_text(bpe, affix).empty(), "have no ", affix, "; it has one");
  const json& normalizer = gguf_member(document, "normalizer");
  must(normalizer.is_null() || gguf_member_text(normalizer, "type") == "NFC", "have no normalizer but NFC, which llama.cpp leaves out; it has ",
       gguf_member_text(normalizer, "type"));
  const std::string split = gguf_split_name(document, path);
  gguf_token_list tokens(model.vocab_size, path);
  const json& vocabulary = gguf_member(bpe, "vocab");
  must(vocabulary.is_object() && !vocabulary.empty(), "have a vocabulary; it has none");
  for (const auto& [text, id] : vocabulary.items()) {
    must(id.is_number_unsigned() && id.get<std::uint64_t>() < (1U << 24), "have whole numbers below 2^24 as tokens; '", text, "' is ", id.dump());
    tokens.set(static_cast<std::size_t>(id.get<std::uint64_t>()), text, piece_kind::normal);
  }
  set_gguf_added_tokens(tokens, beside("added_tokens.json"), settings, document, path);
  std::vector<std::string> merges;
  for (const json& one : gguf_member(bpe, "merges")) {
    std::string left, right;
    if (one.is_string()) {
      const std::string both = one.get<std::string>();
      const std::size_t space = both.find(' ', 1);
      if (space != std::string::npos) left = both.substr(0, space), right = both.substr(space + 1);
    } else if (one.is_array() && one.size() == 2 && one[0].is_string() && one[1].is_string()) {
      left = one[0].get<std::string>(), right = one[1].get<std::string>();
    }
    must(!left.empty() && !right.empty() && left.find(' ') == std::string::npos && right.find(' ') == std::string::npos,
         "have merges of two tokens without spaces; merge ", merges.size() + 1, " is ", one.dump());
    merges.push_back(concat(left, " ", right));
  }
  to.add_text("tokenizer.ggml.model", "gpt2");
  to.add_text("tokenizer.ggml.pre", split);
  tokens.write(to, false);
  to.add_texts("tokenizer.ggml.merges", merges);
  add_gguf_special_tokens(to, tokens, settings, document, model, folder, false, path);
}

/// A tokenizer.json for GPT-2's or Qwen 2's vocab.json and merges.txt.
[[nodiscard]] inline json gguf_document_of(const std::string& vocabulary, const std::string& merges, const std::string& folder) {
  const json settings = read_json_if_there(folder.empty() ? "tokenizer_config.json" : folder + "/tokenizer_config.json");
  const std::string kind = gguf_member_text(settings, "tokenizer_class");
  require<config_error>(kind.empty() || kind.starts_with("GPT2") || kind.starts_with("Qwen2"), vocabulary,
                        ": without a tokenizer.json, tokenizer_class must be GPT2Tokenizer or Qwen2Tokenizer to be in a GGUF file; it is ", kind);
  json listed = json::array();
  const mapped_file file(merges);
  const std::string_view text = file.text();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !(begin == 0 && line.starts_with("#version"))) listed.push_back(std::string(line));
    begin = end + 1;
  }
  const bool is_qwen = kind.starts_with("Qwen2");
  json whole = literal_json(R"({"added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Sequence", "pretokenizers": []}, )"
                            R"("post_processor": null, "model": {"type": "BPE"}})");
  json& steps = whole["pre_tokenizer"]["pretokenizers"];
  if (is_qwen) steps.push_back(split_step(qwen_pattern));
  json bytes = literal_json(R"({"type": "ByteLevel", "add_prefix_space": false})");
  bytes["use_regex"] = !is_qwen;
  steps.push_back(std::move(bytes));
  json words = parse_json(mapped_file(vocabulary).text(), vocabulary);
  const char* const end = "<|endoftext|>";  // in no file of GPT-2
  if (const json& id = gguf_member(words, end); !is_qwen && id.is_number_unsigned()) {
    json one = literal_json(R"({"special": true})");
    one["id"] = id;
    one["content"] = std::string(end);
    whole["added_tokens"].push_back(std::move(one));
  }
  whole["model"]["vocab"] = std::move(words);
  whole["model"]["merges"] = std::move(listed);
  return whole;
}

/// Copies a GGUF file's tokenizer.
inline void copy_gguf_tokenizer(gguf_writer& to, const std::string& from, const gguf_model_tokens& model) {
  const gguf_file file(from);
  const std::size_t tokens = file.texts("tokenizer.ggml.tokens").size();
  require<config_error>(tokens == model.vocab_size, from, ": its vocabulary must have the model's ", model.vocab_size, " tokens; it has ", tokens);
  std::vector<std::pair<const char*, std::string_view>> order;
  for (const auto& [key, value] : file.metadata())
    if (key.starts_with("tokenizer.")) order.emplace_back(key.data(), key);
  std::sort(order.begin(), order.end());  // the file's order
  for (const auto& [place, key] : order) to.add(key, *file.find(key));
}

}  // namespace detail

XTRAIN_INLINE void add_gguf_tokenizer(gguf_writer& to, const std::string& from, const gguf_model_tokens& model) {
  if (!from.empty() && gguf_file::is_one(from) && gguf_file(from).has("tokenizer.ggml.tokens")) return detail::copy_gguf_tokenizer(to, from, model);
  const bool is_folder = is_directory(from);
  const std::string folder = is_folder ? from : from.substr(0, from.rfind('/') == std::string::npos ? 0 : from.rfind('/'));
  const auto given = [&](std::string_view name) -> std::string {
    const std::string path = is_folder ? concat(from, "/", name) : from;
    return path.ends_with(name) && file_exists(path) ? path : std::string();
  };
  if (const std::string path = given("tokenizer.model"); !path.empty()) return detail::add_gguf_sentencepiece(to, path, folder, model);
  if (const std::string path = given("tokenizer.json"); !path.empty())
    return detail::add_gguf_byte_level(to, parse_json(mapped_file(path).text(), path), path, folder, model);
  if (const std::string path = given("vocab.json"); !path.empty()) {  // gpt2-vocab.json has gpt2-merges.txt
    const std::string merges = path.substr(0, path.size() - std::string_view("vocab.json").size()) + "merges.txt";
    if (file_exists(merges)) return detail::add_gguf_byte_level(to, detail::gguf_document_of(path, merges, folder), path, folder, model);
  }
  require<config_error>(from.empty() || is_folder || gguf_file::is_one(from), from,
                        ": a GGUF file's tokenizer must come from tokenizer.model, tokenizer.json, vocab.json or a GGUF file; it is another file");
  if (is_folder)
    for (const std::string& name : names_in(from))
      require<config_error>(!name.ends_with(".tiktoken") && name != "vocab.txt" && !name.ends_with(".model"), from, "/", name,
                            ": a tokenizer in a GGUF file must be a tokenizer.model, tokenizer.json or vocab.json; it is another kind");
  to.add_text("tokenizer.ggml.model", "none");
  const auto add = [&](const char* name, token id) {
    if (id >= 0 && static_cast<std::size_t>(id) < model.vocab_size) to.add_u32(concat("tokenizer.ggml.", name, "_token_id"), static_cast<std::size_t>(id));
  };
  add("bos", model.bos);
  if (!model.eos.empty()) add("eos", model.eos[0]);
  if (model.eos.size() > 1) add("eot", model.eos[1]);
  add("padding", model.pad);
}

}  // namespace xtrain
