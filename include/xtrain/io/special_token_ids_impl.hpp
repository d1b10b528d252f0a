#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/io/special_token_ids.hpp>
#include <xtrain/text/sentencepiece_file.hpp>

namespace xtrain {

namespace detail {

/// Ids of texts in tokenizer files, read when needed.
class token_finder {
 public:
  ///   settings  tokenizer_config.json
  token_finder(std::string folder, const json& settings) : folder_(std::move(folder)), settings_(settings) {}

  [[nodiscard]] std::optional<token> find(const std::string& text) const {
    if (text.empty()) return {};
    if (const auto listed = settings_.find("added_tokens_decoder"); listed != settings_.end() && listed->is_object())
      for (const auto& [digits, one] : listed->items())
        if (text_of(one) == text) return number(digits);
    if (const json whole = document("tokenizer.json"); whole.is_object()) {
      if (const auto added = whole.find("added_tokens"); added != whole.end() && added->is_array())
        for (const json& one : *added)
          if (text_of(one) == text && one.contains("id")) return number(one.at("id"));
      if (const auto model = whole.find("model"); model != whole.end() && model->is_object() && model->contains("vocab"))
        return in_vocabulary(model->at("vocab"), text);
      return {};
    }
    for (const char* name : {"added_tokens.json", "vocab.json"})
      if (const json all = document(name); all.is_object() && all.contains(text)) return number(all.at(text));
    if (const auto line = in_lines(text)) return line;
    return in_pieces(text);
  }
  /// A string, or an object's content; else empty.
  [[nodiscard]] static std::string text_of(const json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_object() && value.contains("content") && value.at("content").is_string()) return value.at("content").get<std::string>();
    return {};
  }

 private:
  /// Null if missing or not JSON.
  [[nodiscard]] json document(const char* name) const {
    const std::string path = concat(folder_, "/", name);
    return file_exists(path) ? lenient_json(mapped_file(path).text()) : json();
  }
  [[nodiscard]] static std::optional<token> number(const json& value) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<token>::max())) return {};
    return value.get<token>();
  }
  [[nodiscard]] static std::optional<token> number(const std::string& digits) {
    token value = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return problem == std::errc{} && end == digits.data() + digits.size() && value >= 0 ? std::optional(value) : std::nullopt;
  }
  /// BPE, WordPiece: {text: id}; Unigram: [[text, score]].
  [[nodiscard]] static std::optional<token> in_vocabulary(const json& all, const std::string& text) {
    if (all.is_object() && all.contains(text)) return number(all.at(text));
    if (!all.is_array()) return {};
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].is_array() && !all[i].empty() && all[i][0] == text) return static_cast<token>(i);
    return {};
  }
  [[nodiscard]] std::optional<token> in_lines(std::string_view text) const {
    const std::string path = concat(folder_, "/vocab.txt");
    if (!file_exists(path)) return {};
    const mapped_file file(path);
    std::string_view rest = file.text();
    for (token line = 0; !rest.empty(); ++line) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view one = rest.substr(0, end);
      if (one.ends_with('\r')) one.remove_suffix(1);
      if (one == text) return line;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return {};
  }
  [[nodiscard]] std::optional<token> in_pieces(const std::string& text) const {
    const std::string path = concat(folder_, "/tokenizer.model");
    const auto before = settings_.find("num_image_tokens");  // ChatGLM: ids before the pieces
    if (!file_exists(path) || (before != settings_.end() && *before != 0)) return {};
    try {
      const sentencepiece_file model = read_sentencepiece(mapped_file(path).text(), path);
      for (std::size_t i = 0; i < model.pieces.size(); ++i)
        if (model.pieces[i].text == text) return static_cast<token>(i);
    } catch (const error&) {  // ranks, or damaged
    }
    return {};
  }

  std::string folder_;
  const json& settings_;
};

/// A class's special tokens, where files have none.
struct default_special_tokens {
  std::string_view name;  ///< without Tokenizer and Fast
  const char *bos, *eos, *pad;
};
inline constexpr std::array<default_special_tokens, 8> tokenizer_class_tokens{{{"Llama", "<s>", "</s>", ""},
                                                                               {"CodeLlama", "<s>", "</s>", ""},
                                                                               {"GPT2", "<|endoftext|>", "<|endoftext|>", ""},
                                                                               {"GPTNeoX", "<|endoftext|>", "<|endoftext|>", "<|padding|>"},
                                                                               {"CodeGen", "<|endoftext|>", "<|endoftext|>", ""},
                                                                               {"Qwen2", "", "<|endoftext|>", "<|endoftext|>"},
                                                                               {"Gemma", "<bos>", "<eos>", "<pad>"},
                                                                               {"Cohere", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<PAD>"}}};

/// A config's member is the token, or a list with it.
[[nodiscard]] inline bool holds_token(const json& value, token id) {
  return value.is_array() ? std::find(value.begin(), value.end(), json(id)) != value.end() : value == json(id);
}
/// The token, then the value's others.
[[nodiscard]] inline json with_token(token id, const json& others) {
  json all = json::array({id});
  for (const json& one : others.is_array() ? others : json::array({others}))
    if (!one.is_null() && one != json(id)) all.push_back(one);
  return all;
}

}  // namespace detail

XTRAIN_INLINE special_token_ids special_token_ids_of(const std::string& folder) {
  const auto object = [&](const char* name) {
    const std::string path = concat(folder, "/", name);
    json found = file_exists(path) ? detail::lenient_json(mapped_file(path).text()) : json();
    return found.is_object() ? found : json::object();
  };
  const json settings = object("tokenizer_config.json");
  const json map = settings.contains("added_tokens_decoder") ? json::object() : object("special_tokens_map.json");
  std::string name;
  if (const auto given = settings.find("tokenizer_class"); given != settings.end() && given->is_string()) name = given->get<std::string>();
  for (const std::string_view ending : {"Fast", "Tokenizer"})
    if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  const auto own = std::find_if(detail::tokenizer_class_tokens.begin(), detail::tokenizer_class_tokens.end(),
                                [&](const detail::default_special_tokens& one) { return one.name == name; });
  const bool has_own = own != detail::tokenizer_class_tokens.end();
  const detail::token_finder finder(folder, settings);
  const auto id = [&](const char* key, const char* otherwise) {
    for (const json* from : {&map, &settings})
      if (const auto at = from->find(key); at != from->end()) return finder.find(detail::token_finder::text_of(*at));
    return finder.find(otherwise);
  };
  return {.bos = id("bos_token", has_own ? own->bos : ""), .eos = id("eos_token", has_own ? own->eos : ""), .pad = id("pad_token", has_own ? own->pad : "")};
}

XTRAIN_INLINE void align_special_tokens(const special_token_ids& of, json& config, json* generation) {
  const auto size = config.find("vocab_size");
  const auto align = [&](const char* key, std::optional<token> wanted, bool several) {
    if (!wanted) return;
    if (size != config.end() && size->is_number_unsigned() && static_cast<std::uint64_t>(*wanted) >= size->get<std::uint64_t>()) return;
    const json before = config.value(key, json()), generates = generation == nullptr ? json() : generation->value(key, json());
    if (detail::holds_token(before, *wanted) && (generation == nullptr || detail::holds_token(generates, *wanted))) return;
    config[key] = several && before.is_array() ? detail::with_token(*wanted, before) : json(*wanted);
    if (generation != nullptr) (*generation)[key] = several ? detail::with_token(*wanted, generates) : json(*wanted);
  };
  align("eos_token_id", of.eos, true);
  align("bos_token_id", of.bos, false);
  align("pad_token_id", of.pad, false);
}

XTRAIN_INLINE void align_special_tokens(const std::string& folder) {
  const std::string config_path = concat(folder, "/config.json"), generation_path = concat(folder, "/generation_config.json");
  if (!file_exists(config_path)) return;
  const auto read = [](const std::string& path) { return file_exists(path) ? detail::lenient_json(mapped_file(path).text()) : json(); };
  json config = read(config_path), generation = read(generation_path);
  if (!config.is_object()) return;
  const json config_before = config, generation_before = generation;
  align_special_tokens(special_token_ids_of(folder), config, generation.is_object() ? &generation : nullptr);
  if (generation != generation_before) write_file(generation_path, generation.dump(2) + "\n");
  if (config != config_before) write_file(config_path, config.dump(2) + "\n");
}

}  // namespace xtrain
