// Decoders of a tokenizer.json: texts of tokens to text. Component 'text'.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/text/byte_tokenizer.hpp>
#include <xtrain/text/pre_tokenizer.hpp>
#include <xtrain/text/settings_reader.hpp>
#include <xtrain/text/text_pattern.hpp>
#include <xtrain/text/unicode.hpp>

namespace xtrain::detail {

/// Transforms texts of tokens, which are concatenated at the end.
class token_decoder {
 public:
  virtual ~token_decoder() = default;
  virtual void apply(std::vector<std::string>& texts) const = 0;
};

inline void replace_all(std::string& text, std::string_view what, std::string_view with) {
  if (what.empty() || text.find(what) == std::string::npos) return;
  std::string result;
  std::size_t covered = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, covered)) {
    result.append(text, covered, at - covered);
    result.append(with);
    covered = at + what.size();
  }
  result.append(text, covered);
  text.swap(result);
}

/// Printable characters to bytes; text with any other character is unchanged.
[[nodiscard]] inline std::string bytes_of_printable(std::string_view text) {
  static const auto byte_of = [] {
    std::array<std::int16_t, 512> table{};
    table.fill(-1);
    for (unsigned byte = 0; byte < 256; ++byte)
      table[static_cast<std::size_t>(character_at(printable_byte(byte), 0).code)] = static_cast<std::int16_t>(byte);
    return table;
  }();
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const character c = character_at(text, at);
    if (c.code < 0 || c.code >= 512 || byte_of[static_cast<std::size_t>(c.code)] < 0) return std::string(text);
    bytes.push_back(static_cast<char>(byte_of[static_cast<std::size_t>(c.code)]));
    at += c.bytes;
  }
  return bytes;
}

/// Joins all texts to one for further decoders.
class byte_level_decoder final : public token_decoder {
 public:
  void apply(std::vector<std::string>& texts) const override {
    std::string all;
    for (const std::string& text : texts) all += bytes_of_printable(text);
    texts.assign(1, std::move(all));
  }
};

/// <0xNN> becomes the byte.
class byte_fallback_decoder final : public token_decoder {
 public:
  void apply(std::vector<std::string>& texts) const override {
    const auto value = [](char c) {
      return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    for (std::string& text : texts)
      if (text.size() == 6 && text.starts_with("<0x") && text[5] == '>' && value(text[3]) >= 0 && value(text[4]) >= 0)
        text = std::string(1, static_cast<char>(16 * value(text[3]) + value(text[4])));
  }
};

class fuse_decoder final : public token_decoder {
 public:
  void apply(std::vector<std::string>& texts) const override {
    std::string all;
    for (const std::string& text : texts) all += text;
    texts.assign(1, std::move(all));
  }
};

/// Strips up to a number of a character from each end.
class strip_decoder final : public token_decoder {
 public:
  strip_decoder(std::string content, std::size_t start, std::size_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(std::vector<std::string>& texts) const override {
    for (std::string& text : texts) {
      std::string_view rest = text;
      for (std::size_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (std::size_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      text = std::string(rest);
    }
  }

 private:
  std::string content_;
  std::size_t start_, stop_;
};

class replace_decoder final : public token_decoder {
 public:
  replace_decoder(text_pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(std::vector<std::string>& texts) const override {
    for (std::string& text : texts) text = pattern_.replaced(text, content_);
  }

 private:
  text_pattern pattern_;
  std::string content_;
};

/// Visible spaces become spaces; the first is dropped.
class metaspace_decoder final : public token_decoder {
 public:
  metaspace_decoder(std::string sign, metaspace::prepend scheme) : sign_(std::move(sign)), scheme_(scheme) {}
  void apply(std::vector<std::string>& texts) const override {
    bool first = scheme_ != metaspace::prepend::never;
    for (std::string& text : texts) {
      replace_all(text, sign_, first ? "" : " ");
      first = false;
    }
  }

 private:
  std::string sign_;
  metaspace::prepend scheme_;
};

/// Removes English spaces before punctuation and contractions.
[[nodiscard]] inline std::string cleaned_up(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> written{{{" .", "."},
                                                                                   {" ?", "?"},
                                                                                   {" !", "!"},
                                                                                   {" ,", ","},
                                                                                   {" ' ", "'"},
                                                                                   {" n't", "n't"},
                                                                                   {" 'm", "'m"},
                                                                                   {" do not", " don't"},
                                                                                   {" 's", "'s"},
                                                                                   {" 've", "'ve"},
                                                                                   {" 're", "'re"}}};
  for (const auto& [apart, together] : written) replace_all(text, apart, together);
  return text;
}

class word_piece_decoder final : public token_decoder {
 public:
  word_piece_decoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(std::vector<std::string>& texts) const override {
    for (std::size_t i = 0; i < texts.size(); ++i) {
      std::string& text = texts[i];
      if (i > 0) {
        if (text.starts_with(prefix_)) text.erase(0, prefix_.size());
        else text.insert(0, " ");
      }
      if (cleanup_) text = cleaned_up(std::move(text));
    }
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

/// An end-of-word suffix becomes a space.
class suffix_decoder final : public token_decoder {
 public:
  explicit suffix_decoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(std::vector<std::string>& texts) const override {
    for (std::size_t i = 0; i < texts.size(); ++i) replace_all(texts[i], suffix_, i + 1 < texts.size() ? " " : "");
  }

 private:
  std::string suffix_;
};

/// CTC (speech): collapses repetitions, drops padding.
class ctc_decoder final : public token_decoder {
 public:
  ctc_decoder(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
  void apply(std::vector<std::string>& texts) const override {
    std::vector<std::string> kept;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (i > 0 && texts[i] == texts[i - 1]) continue;
      std::string text = texts[i];
      replace_all(text, pad_, "");
      if (cleanup_) {
        text = cleaned_up(std::move(text));
        replace_all(text, delimiter_, " ");
      }
      if (!text.empty()) kept.push_back(std::move(text));
    }
    texts.swap(kept);
  }

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
};

class decoder_sequence final : public token_decoder {
 public:
  explicit decoder_sequence(std::vector<std::unique_ptr<token_decoder>> steps) : steps_(std::move(steps)) {}
  void apply(std::vector<std::string>& texts) const override {
    for (const auto& step : steps_) step->apply(texts);
  }

 private:
  std::vector<std::unique_ptr<token_decoder>> steps_;
};

/// Null for null.
///   throws  config_error for what is unsupported
[[nodiscard]] inline std::unique_ptr<token_decoder> read_token_decoder(const json& step, const std::string& who) {
  if (step.is_null()) return nullptr;
  const settings_reader read(step, who, "decoder");
  const std::string type = type_of(step);
  if (type == "Sequence") {
    read.allow({"decoders"});
    std::vector<std::unique_ptr<token_decoder>> steps;
    for (const json& one : read.list("decoders")) {
      steps.push_back(read_token_decoder(one, who));
      require<config_error>(steps.back() != nullptr, read.who(), ": every step must be an object; one is null");
    }
    return std::make_unique<decoder_sequence>(std::move(steps));
  }
  if (type == "ByteLevel") {
    read.allow({"add_prefix_space", "trim_offsets", "use_regex"});
    return std::make_unique<byte_level_decoder>();
  }
  if (type == "Strip") {
    read.allow({"content", "start", "stop"});
    return std::make_unique<strip_decoder>(read.character("content", " "), read.count("start", 0), read.count("stop", 0));
  }
  if (type == "Replace") {
    read.allow({"pattern", "content"});
    return std::make_unique<replace_decoder>(text_pattern(read.member("pattern"), read.who()), read.text("content"));
  }
  if (type == "Metaspace") {
    read.allow({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
    return std::make_unique<metaspace_decoder>(read.character("replacement", "\xE2\x96\x81"), read_prepend_scheme(read));
  }
  if (type == "WordPiece") {
    read.allow({"prefix", "cleanup"});
    return std::make_unique<word_piece_decoder>(read.text("prefix", "##"), read.flag("cleanup", true));
  }
  if (type == "BPEDecoder") {
    read.allow({"suffix"});
    return std::make_unique<suffix_decoder>(read.text("suffix", "</w>"));
  }
  if (type == "CTC") {
    read.allow({"pad_token", "word_delimiter_token", "cleanup"});
    return std::make_unique<ctc_decoder>(read.text("pad_token", "<pad>"), read.text("word_delimiter_token", "|"),
                                         read.flag("cleanup", true));
  }
  read.allow({});
  if (type == "ByteFallback") return std::make_unique<byte_fallback_decoder>();
  if (type == "Fuse") return std::make_unique<fuse_decoder>();
  fail<config_error>(who, ": the decoder must be one that this library knows; given '", type, "'");
}

}  // namespace xtrain::detail
