// Reads tokenizer.json; rejects by name what is unsupported. Component 'text'.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/text/bpe.hpp>
#include <xtrain/text/settings_reader.hpp>
#include <xtrain/text/tokenizer_pipeline.hpp>
#include <xtrain/text/unigram.hpp>
#include <xtrain/text/word_piece.hpp>

namespace xtrain {

/// A tokenizer.json: large lists, and the rest as in the file.
struct tokenizer_description {
  json settings = json::object();  ///< without vocabulary and merges
  std::vector<std::pair<std::string, token>> vocabulary{};
  std::vector<std::pair<std::string, std::string>> merges{};
  std::vector<std::pair<std::string, double>> pieces{};  ///< of a unigram model, in place of the vocabulary
  bool merges_by_rank = false;                           ///< join tokens that form a token, smallest id first
  std::string who = "tokenizer";                         ///< for errors
};

namespace detail {

[[nodiscard]] inline const json& member_or_null(const json& object, const char* name) {
  static const json nothing = nullptr;
  const auto at = object.find(name);
  return at == object.end() ? nothing : *at;
}

/// A string, or an object's "content".
[[nodiscard]] inline std::string token_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) return value["content"].get<std::string>();
  return {};
}

/// Sorted by id.
[[nodiscard]] inline std::vector<std::pair<std::string, token>> read_vocabulary(const json& object, const std::string& who) {
  require<config_error>(object.is_object() && !object.empty(), who, ": the vocabulary must be an object of tokens; it is ",
                        object.is_object() ? "empty" : object.type_name());
  std::vector<std::pair<std::string, token>> all;
  for (const auto& [text, id] : object.items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= (1U << 24))
      fail<config_error>(who, ": every token must be a whole number below 2^24; '", text, "' is ", id.dump());
    all.emplace_back(text, id.get<token>());
  }
  return all;
}

/// "a b", or ["a", "b"] in newer files.
[[nodiscard]] inline std::pair<std::string, std::string> read_merge(const json& value, std::size_t index, const std::string& who) {
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return {value[0].get<std::string>(), value[1].get<std::string>()};
  const std::string text = value.is_string() ? value.get<std::string>() : std::string{};
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || space == 0 || space + 1 == text.size())
    fail<config_error>(who, ": merge ", index + 1, " must be two tokens; given ", value.dump());
  return {text.substr(0, space), text.substr(space + 1)};
}

/// As the tokenizers library parses: digits as an integer / power of ten; above 16 digits the last may be off by one. This decides between equal scores.
[[nodiscard]] inline double score_as_written(double score) {
  char text[40];
  const char* const end = std::to_chars(text, text + sizeof text, score, std::chars_format::scientific).ptr;
  const char* const mark = std::find(static_cast<const char*>(text), end, 'e');
  std::uint64_t digits = 0;
  int exponent = 0;
  std::from_chars(mark + (mark[1] == '+' ? 2 : 1), end, exponent);
  bool behind_point = false;
  for (const char* at = text; at != mark; ++at) {
    if (*at >= '0' && *at <= '9') {
      digits = 10 * digits + static_cast<std::uint64_t>(*at - '0');
      if (behind_point) --exponent;
    }
    behind_point = behind_point || *at == '.';
  }
  if (exponent < -22 || exponent > 22) return score;  // larger powers are not exact
  double power = 1.0;
  for (int i = 0; i < std::abs(exponent); ++i) power *= 10.0;
  const auto whole = static_cast<double>(digits);
  return std::copysign(exponent < 0 ? whole / power : whole * power, score);
}

[[nodiscard]] inline std::vector<std::pair<std::string, double>> read_pieces(const json& list, const std::string& who) {
  std::vector<std::pair<std::string, double>> pieces;
  for (const json& one : list) {
    if (!one.is_array() || one.size() != 2 || !one[0].is_string() || !one[1].is_number())
      fail<config_error>(who, ": every piece must be a text and a score; given ", one.dump().substr(0, 100));
    pieces.emplace_back(one[0].get<std::string>(), one[1].get<double>());
  }
  return pieces;
}

[[nodiscard]] inline std::vector<added_token> read_added_tokens(const json& list, const std::string& who) {
  std::vector<added_token> all;
  if (list.is_null()) return all;
  require<config_error>(list.is_array(), who, ": 'added_tokens' must be a list; it is ", list.type_name());
  for (const json& one : list) {
    const settings_reader read(one, who, "added token");
    read.allow({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special", "__type"});
    const std::uint64_t id = read.count("id");
    require<config_error>(id < (1U << 24), read.who(), ": 'id' must be below 2^24; it is ", id);
    all.push_back({.content = read.text("content"),
                   .id = static_cast<token>(id),
                   .single_word = read.flag("single_word", false),
                   .lstrip = read.flag("lstrip", false),
                   .rstrip = read.flag("rstrip", false),
                   .normalized = read.flag("normalized", !read.flag("special", false)),
                   .special = read.flag("special", false)});
    require<config_error>(!all.back().content.empty(), read.who(), ": 'content' must not be empty");
  }
  return all;
}

/// Old files lack it.
[[nodiscard]] inline std::string model_type(const json& model) {
  if (const std::string type = type_of(model); !type.empty()) return type;
  if (model.contains("merges")) return "BPE";
  if (model.contains("unk_id")) return "Unigram";
  return model.contains("max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

/// ByteLevel is last: BPE reads raw bytes.
[[nodiscard]] inline bool ends_with_bytes(const json& pre_tokenizer) {
  if (type_of(pre_tokenizer) == "ByteLevel") return true;
  const json& steps = pre_tokenizer.is_object() ? member_or_null(pre_tokenizer, "pretokenizers") : pre_tokenizer;
  return type_of(pre_tokenizer) == "Sequence" && steps.is_array() && !steps.empty() && ends_with_bytes(steps.back());
}

/// BPE adds a prefix or suffix to characters: it reads printable characters.
[[nodiscard]] inline bool decorates_characters(const json& model) {
  const auto given = [&](const char* name) { return member_or_null(model, name).is_string() && member_or_null(model, name) != ""; };
  return given("continuing_subword_prefix") || given("end_of_word_suffix");
}

[[nodiscard]] inline std::unique_ptr<word_model> make_model(const tokenizer_description& from, bool bytes) {
  const json& model = member_or_null(from.settings, "model");
  const settings_reader read(model, from.who, "model");
  const std::string type = model_type(model);
  if (type == "BPE") {
    read.allow({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges"});
    require<config_error>(!read.has("dropout") || (read.member("dropout").is_number() && read.member("dropout").get<double>() == 0.0),
                          read.who(), ": 'dropout' must be null or 0, so that a text always has the same tokens; it is ",
                          member_or_null(model, "dropout").dump());
    return std::make_unique<bpe>(bpe_options{.vocabulary = from.vocabulary,
                                             .merges = from.merges,
                                             .merges_by_rank = from.merges_by_rank,
                                             .bytes = bytes,
                                             .ignore_merges = read.flag("ignore_merges", false),
                                             .byte_fallback = read.flag("byte_fallback", false),
                                             .unknown = read.text("unk_token", ""),
                                             .fuse_unknown = read.flag("fuse_unk", false),
                                             .continuing_prefix = read.text("continuing_subword_prefix", ""),
                                             .end_suffix = read.text("end_of_word_suffix", ""),
                                             .who = from.who});
  }
  if (type == "Unigram") {
    read.allow({"unk_id", "byte_fallback"});
    const std::uint64_t unknown = read.count("unk_id", from.pieces.size());
    require<config_error>(!read.has("unk_id") || unknown < from.pieces.size(), read.who(),
                          ": 'unk_id' must be a token id in the vocabulary of ", from.pieces.size(), "; it is ", unknown);
    std::vector<std::pair<std::string, double>> pieces = from.pieces;
    for (auto& piece : pieces) piece.second = score_as_written(piece.second);
    return std::make_unique<unigram>(unigram_options{.pieces = std::move(pieces),
                                                     .unknown = read.has("unk_id") ? static_cast<token>(unknown) : -1,
                                                     .byte_fallback = read.flag("byte_fallback", false),
                                                     .who = from.who});
  }
  if (type == "WordPiece") {
    read.allow({"unk_token", "continuing_subword_prefix", "max_input_chars_per_word"});
    return std::make_unique<word_piece>(word_piece_options{.vocabulary = from.vocabulary,
                                                           .unknown = read.text("unk_token", "[UNK]"),
                                                           .continuing_prefix = read.text("continuing_subword_prefix", "##"),
                                                           .longest_word = read.count("max_input_chars_per_word", 100),
                                                           .who = from.who});
  }
  require<config_error>(type == "WordLevel", from.who, ": the model must be BPE, Unigram, WordPiece or WordLevel; given '", type, "'");
  read.allow({"unk_token"});
  return std::make_unique<word_level>(
      word_piece_options{.vocabulary = from.vocabulary, .unknown = read.text("unk_token", "<unk>"), .who = from.who});
}

}  // namespace detail

/// Moves large lists out of the document.
///   throws  config_error
[[nodiscard]] inline tokenizer_description describe_tokenizer(json document, const std::string& who) {
  require<config_error>(document.is_object(), who, ": must be a JSON object");
  tokenizer_description result;
  result.who = who;
  json& model = document["model"];
  require<config_error>(model.is_object() && model.contains("vocab"), who, ": must have a 'model' with a 'vocab'; it has none");
  const std::string type = detail::model_type(model);
  if (type == "Unigram") {
    require<config_error>(model["vocab"].is_array(), who, ": the vocabulary must be a list of pieces; it is ", model["vocab"].type_name());
    result.pieces = detail::read_pieces(model["vocab"], who);
  } else {
    result.vocabulary = detail::read_vocabulary(model["vocab"], who);
  }
  if (type == "BPE") {
    const json& merges = detail::member_or_null(model, "merges");
    require<config_error>(merges.is_array(), who, ": merges must be a list; it is ", merges.type_name());
    for (std::size_t i = 0; i < merges.size(); ++i) result.merges.push_back(detail::read_merge(merges[i], i, who));
    model.erase("merges");
  }
  model.erase("vocab");
  model["type"] = type;
  result.settings = std::move(document);
  return result;
}

/// Readable by other libraries.
[[nodiscard]] inline std::string tokenizer_json_text(const tokenizer_description& from) {
  json document = from.settings;
  json& model = document["model"];
  if (!from.pieces.empty()) {
    json& list = model["vocab"] = json::array();
    for (const auto& [text, score] : from.pieces) list.push_back(json::array({text, score}));
    return document.dump() + "\n";
  }
  json& vocabulary = model["vocab"] = json::object();
  for (const auto& [text, id] : from.vocabulary) vocabulary[text] = id;
  if (model["type"] == "BPE") {
    json& merges = model["merges"] = json::array();
    if (from.merges_by_rank) {
      // rank files may skip ids; other libraries keep an added token's id only if the vocabulary has it
      for (const json& one : document["added_tokens"]) vocabulary[detail::token_text(one)] = one["id"];
      const detail::vocabulary_table table(from.vocabulary, from.who);
      detail::for_each_split(table, [&](token left, token right, token) {
        merges.push_back(json::array({table.text(left), table.text(right)}));
      });
    } else {
      for (const auto& [left, right] : from.merges) merges.push_back(json::array({left, right}));
    }
  }
  return document.dump() + "\n";
}

/// Builds a description's tokenizer.
///   files   written by save(); a missing tokenizer.json is generated
///   throws  config_error for what is unsupported or inconsistent
[[nodiscard]] inline std::shared_ptr<const tokenizer_pipeline> make_tokenizer(tokenizer_description from, named_files files) {
  const json& settings = from.settings;
  // truncation and padding are for batches: the dataset sets the length
  detail::settings_reader(settings, from.who, "tokenizer")
      .allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model"});
  const json& cut = detail::member_or_null(settings, "pre_tokenizer");
  const json& model = detail::member_or_null(settings, "model");
  const bool bytes = detail::model_type(model) == "BPE" && detail::ends_with_bytes(cut) && !detail::decorates_characters(model);
  tokenizer_steps steps;
  steps.added = detail::read_added_tokens(detail::member_or_null(settings, "added_tokens"), from.who);
  steps.normalizer = detail::read_normalizer(detail::member_or_null(settings, "normalizer"), from.who);
  steps.pre_tokenizer = detail::read_pre_tokenizer(cut, from.who, bytes);
  steps.model = detail::make_model(from, bytes);
  steps.post_processor = detail::post_processor(detail::member_or_null(settings, "post_processor"), from.who);
  steps.decoder = detail::read_token_decoder(detail::member_or_null(settings, "decoder"), from.who);
  for (const added_token& one : steps.added) {
    const token known = steps.model->vocabulary().find(one.content);
    const bool agrees = (known < 0 || known == one.id) && (!steps.model->vocabulary().has(one.id) || known == one.id);
    require<config_error>(agrees, from.who, ": added token '", one.content, "' must have the id that the vocabulary gives it; it is ",
                          one.id, ", where the vocabulary has ",
                          known >= 0 ? concat(known) : concat("'", steps.model->vocabulary().text(one.id), "'"));
  }
  const std::string who = from.who;
  saved_tokenizer saved{.files = std::move(files)};
  const bool has_json =
      std::any_of(saved.files.begin(), saved.files.end(), [](const auto& file) { return file.first == "tokenizer.json"; });
  if (!has_json)
    saved.tokenizer_json = [kept = std::make_shared<const tokenizer_description>(std::move(from))] { return tokenizer_json_text(*kept); };
  return std::make_shared<tokenizer_pipeline>(std::move(steps), std::move(saved), who);
}

}  // namespace xtrain
