// Post-processors of a tokenizer.json: special tokens around one or two texts. Component 'text'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/text/settings_reader.hpp>
#include <xtrain/text/tokenizer.hpp>
#include <xtrain/text/unicode.hpp>

namespace xtrain::detail {

class post_processor {
 public:
  /// throws config_error for what is unsupported
  explicit post_processor(const json& step = nullptr, const std::string& who = "tokenizer") { read(step, who); }

  /// Input of a text, or of a pair if `both`.
  ///   text_of(token)  its string in the vocabulary
  template <class TextOf>
  [[nodiscard]] encoding apply(std::vector<placed_token> first, std::vector<placed_token> second, bool both, TextOf&& text_of) const {
    if (trims_)
      for (auto* tokens : {&first, &second})
        for (std::size_t i = 0; i < tokens->size(); ++i) trim((*tokens)[i], i, text_of((*tokens)[i].id));
    encoding result;
    for (const piece& p : both ? pair_ : single_) {
      for (const token id : p.special) result.tokens.push_back({id, 0, 0});
      if (p.text >= 0) {
        const auto& tokens = p.text == 0 ? first : second;
        result.tokens.insert(result.tokens.end(), tokens.begin(), tokens.end());
      }
      result.types.resize(result.tokens.size(), p.type);
      result.parts.resize(result.tokens.size(), static_cast<std::int8_t>(p.text));
    }
    return result;
  }
  /// Special tokens before a text.
  [[nodiscard]] std::vector<token> before_text() const {
    std::vector<token> tokens;
    for (const piece& p : single_) {
      if (p.text >= 0) break;
      tokens.insert(tokens.end(), p.special.begin(), p.special.end());
    }
    return tokens;
  }
  /// Special tokens after a text.
  [[nodiscard]] std::vector<token> after_text() const {
    std::vector<token> tokens;
    for (const piece& p : single_) {
      if (p.text >= 0) tokens.clear();
      tokens.insert(tokens.end(), p.special.begin(), p.special.end());
    }
    return tokens;
  }
  [[nodiscard]] token largest_token() const {
    token largest = -1;
    for (const auto* pieces : {&single_, &pair_})
      for (const piece& p : *pieces)
        for (const token id : p.special) largest = std::max(largest, id);
    return largest;
  }

 private:
  struct piece {
    int text = -1;  // 0, 1: first, second text; negative: special tokens
    std::vector<token> special{};
    std::int32_t type = 0;
  };

  void read(const json& step, const std::string& who) {
    if (step.is_null()) return;
    const settings_reader reader(step, who, "post-processor");
    const std::string type = type_of(step);
    if (type == "Sequence") {
      reader.allow({"processors"});
      for (const json& one : reader.list("processors")) read(one, who);
    } else if (type == "TemplateProcessing") {
      read_template(reader);
    } else if (type == "ByteLevel") {
      reader.allow({"add_prefix_space", "trim_offsets", "use_regex"});
      if (reader.flag("trim_offsets", true)) trim_spaces(reader.flag("add_prefix_space", true));
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      reader.allow({"sep", "cls", "trim_offsets", "add_prefix_space"});
      const bool roberta = type == "RobertaProcessing";
      const piece begin{.special = {named_token(reader, "cls")}}, end{.special = {named_token(reader, "sep")}};
      take_only_template(reader);
      single_ = {begin, {.text = 0}, end};
      pair_ = {begin, {.text = 0}, end};
      if (roberta) pair_.insert(pair_.end(), {end, {.text = 1}, end});
      else pair_.insert(pair_.end(), {{.text = 1, .type = 1}, {.special = end.special, .type = 1}});
      if (roberta && reader.flag("trim_offsets", true)) trim_spaces(reader.flag("add_prefix_space", true));
    } else {
      fail<config_error>(who, ": the post-processor must be one that this library knows; given '", type, "'");
    }
  }

  void trim_spaces(bool prefix_space) {
    trims_ = true;
    prefix_space_ = prefix_space;
  }
  void take_only_template(const settings_reader& reader) {
    require<config_error>(!has_template_, reader.who(), ": there must be one step that adds tokens; this is the second");
    has_template_ = true;
  }

  /// ["[SEP]", 102]
  [[nodiscard]] static token named_token(const settings_reader& reader, const char* name) {
    const json& pair = reader.list(name);
    require<config_error>(pair.size() == 2 && pair[1].is_number_unsigned() && pair[1].get<std::uint64_t>() < (1U << 24), reader.who(),
                          ": '", name, "' must be a token's text and id; it is ", pair.dump().substr(0, 100));
    return pair[1].get<token>();
  }

  void read_template(const settings_reader& reader) {
    reader.allow({"single", "pair", "special_tokens"});
    take_only_template(reader);
    single_ = read_pieces(reader, "single");
    const auto texts = std::count_if(single_.begin(), single_.end(), [](const piece& p) { return p.text == 0; });
    require<config_error>(texts == 1, reader.who(), ": 'single' must have the text A once; it has it ", texts, " times");
    if (reader.has("pair")) pair_ = read_pieces(reader, "pair");
  }
  [[nodiscard]] static std::vector<piece> read_pieces(const settings_reader& reader, const char* name) {
    std::vector<piece> pieces;
    for (const json& one : reader.list(name)) {
      const settings_reader outer(one, reader.who(), name);
      outer.allow({"Sequence", "SpecialToken"});
      const bool is_text = outer.has("Sequence");
      const settings_reader inner(outer.member(is_text ? "Sequence" : "SpecialToken"), reader.who(), name);
      inner.allow({"id", "type_id"});
      const std::string id = inner.text("id");
      piece p{.type = static_cast<std::int32_t>(std::min<std::uint64_t>(inner.count("type_id", 0), 1U << 24))};
      if (is_text) {
        require<config_error>(id == "A" || id == "B", reader.who(), ": a text must be A or B; given '", id, "'");
        p.text = id == "A" ? 0 : 1;
      } else {
        p.special = special_ids(reader, id);
      }
      pieces.push_back(std::move(p));
    }
    return pieces;
  }
  [[nodiscard]] static std::vector<token> special_ids(const settings_reader& reader, const std::string& name) {
    const json& all = reader.member("special_tokens");
    require<config_error>(all.is_object() && all.contains(name), reader.who(), ": 'special_tokens' must say what '", name, "' is");
    std::vector<token> ids;
    const settings_reader one(all[name], reader.who(), "special token");
    for (const json& id : one.list("ids")) {
      require<config_error>(id.is_number_unsigned() && id.get<std::uint64_t>() < (1U << 24), one.who(),
                            ": 'ids' must be whole numbers below 2^24; given ", id.dump());
      ids.push_back(id.get<token>());
    }
    return ids;
  }

  /// Offsets without spaces at a token's ends.
  void trim(placed_token& t, std::size_t index, std::string_view text) const {
    const auto spaces = [](std::int32_t code) { return code == 0x120 || is_space(code); };  // 0x120: a space
    std::size_t leading = 0, trailing = 0;
    for (std::size_t at = 0; at < text.size() && spaces(character_at(text, at).code); at += character_at(text, at).bytes) ++leading;
    for (std::size_t end = text.size(); end > 0 && spaces(character_before(text, end).code); end -= character_before(text, end).bytes)
      ++trailing;
    if (leading > 0 && prefix_space_ && (index == 0 || t.begin == 0)) --leading;  // the added prefix space is not in the text
    t.begin = std::min(t.begin + leading, t.end);
    if (t.end >= trailing) t.end = std::max(t.end - trailing, t.begin);
  }

  std::vector<piece> single_{{.text = 0}};
  std::vector<piece> pair_{{.text = 0}, {.text = 1, .type = 1}};
  bool trims_ = false, prefix_space_ = false, has_template_ = false;
};

}  // namespace xtrain::detail
