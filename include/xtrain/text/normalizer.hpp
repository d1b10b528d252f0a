// Normalizers of a tokenizer.json. Component 'text'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/text/aligned_text.hpp>
#include <xtrain/text/byte_tokenizer.hpp>
#include <xtrain/text/charsmap.hpp>
#include <xtrain/text/settings_reader.hpp>
#include <xtrain/text/text_pattern.hpp>
#include <xtrain/text/unicode.hpp>
#include <xtrain/text/unicode_form.hpp>

namespace xtrain::detail {

class normalizer {
 public:
  virtual ~normalizer() = default;
  virtual void apply(aligned_text& text) const = 0;
};

/// Rewrites each character.
///   put(code, to)  appends the replacement, which may be empty; returns whether the character is unchanged
template <class Put>
void rewrite_characters(aligned_text& text, Put&& put) {
  const std::string_view view = text.view();
  text_rewriter rewriter(text);
  std::string written;
  for (std::size_t at = 0; at < view.size();) {
    const character c = character_at(view, at);
    written.clear();
    if (!put(c.code, written)) {
      rewriter.keep(at);
      rewriter.replace(at + c.bytes, written);
    }
    at += c.bytes;
  }
  rewriter.finish();
}

class form_normalizer final : public normalizer {
 public:
  form_normalizer(bool composed, bool compatibility) : form_(composed, compatibility) {}
  void apply(aligned_text& text) const override { form_.apply(text); }

 private:
  unicode_form form_;
};

class lowercase_normalizer final : public normalizer {
 public:
  void apply(aligned_text& text) const override {
    rewrite_characters(text, [](std::int32_t code, std::string& to) {
      if (code < 0 || (code < 0x80 && (code < 'A' || code > 'Z'))) return true;
      append_lowercase(to, code);
      return character_at(to, 0).code == code && to.size() == character_at(to, 0).bytes;
    });
  }
};

class strip_accents_normalizer final : public normalizer {
 public:
  void apply(aligned_text& text) const override {
    rewrite_characters(text, [](std::int32_t code, std::string&) { return code < 0x300 || !is_mark(code); });
  }
};

class strip_normalizer final : public normalizer {
 public:
  strip_normalizer(bool left, bool right) : left_(left), right_(right) {}
  void apply(aligned_text& text) const override {
    const std::string_view view = text.view();
    std::size_t begin = 0, end = view.size();
    while (left_ && begin < end && is_space(character_at(view, begin).code)) begin += character_at(view, begin).bytes;
    while (right_ && end > begin && is_space(character_before(view, end).code)) end -= character_before(view, end).bytes;
    text_rewriter rewriter(text);
    if (begin > 0) rewriter.replace(begin, {});
    rewriter.keep(end);
    if (end < view.size()) rewriter.replace(view.size(), {});
    rewriter.finish();
  }

 private:
  bool left_, right_;
};

class replace_normalizer final : public normalizer {
 public:
  replace_normalizer(text_pattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void apply(aligned_text& text) const override {
    text_rewriter rewriter(text);
    pattern_.for_each_match(text.view(), [&](std::size_t begin, std::size_t end, bool matches) {
      if (!matches) return;
      rewriter.keep(begin);
      rewriter.replace(end, content_);
    });
    rewriter.finish();
  }

 private:
  text_pattern pattern_;
  std::string content_;
};

/// Prepends a string to non-empty text.
class prepend_normalizer final : public normalizer {
 public:
  explicit prepend_normalizer(std::string text) : text_(std::move(text)) {}
  void apply(aligned_text& text) const override {
    if (text.view().empty()) return;
    text_rewriter rewriter(text);
    rewriter.replace(0, text_);
    rewriter.finish();
  }

 private:
  std::string text_;
};

/// Removes control characters; every space becomes U+0020.
class nmt_normalizer final : public normalizer {
 public:
  void apply(aligned_text& text) const override {
    rewrite_characters(text, [](std::int32_t code, std::string& to) {
      const auto between = [&](std::int32_t first, std::int32_t last) { return code >= first && code <= last; };
      if (between(1, 8) || code == 0xB || between(0xE, 0x1F) || code == 0x7F || code == 0x8F || code == 0x9F) return false;
      if (between(9, 0xD) || code == 0x1680 || between(0x200B, 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
          code == 0xFEFF || code == 0xFFFD) {
        to = " ";
        return false;
      }
      return true;
    });
  }
};

/// BERT: removes control characters, unifies spaces, separates ideographs, strips accents, lowercases.
class bert_normalizer final : public normalizer {
 public:
  struct options {
    bool clean = true, ideographs = true, accents = true, lowercase = true;  // accents, lowercase: to be removed
  };
  explicit bert_normalizer(options o) : options_(o) {}
  void apply(aligned_text& text) const override {
    if (options_.clean || options_.ideographs)
      rewrite_characters(text, [&](std::int32_t code, std::string& to) { return first(code, to); });
    if (options_.accents) {
      unicode_form(false, false).apply(text);
      rewrite_characters(text, [](std::int32_t code, std::string&) { return code < 0x300 || !is_nonspacing_mark(code); });
    }
    if (options_.lowercase) lowercase_normalizer().apply(text);
  }

 private:
  [[nodiscard]] bool first(std::int32_t code, std::string& to) const {
    if (code > ' ' && code < 0x7F) return true;
    if (options_.clean) {
      const bool white = code == '\t' || code == '\n' || code == '\r';
      if (code == 0 || code == 0xFFFD || (!white && is_control(code))) return false;
      if (code != ' ' && is_space(code)) {
        to = " ";
        return false;
      }
    }
    if (!options_.ideographs || !is_ideograph(code)) return true;
    to = " ";
    append_character(to, code);
    to += " ";
    return false;
  }

  options options_;
};

/// SentencePiece's replacements: of short graphemes, else characters.
class charsmap_normalizer final : public normalizer {
 public:
  explicit charsmap_normalizer(charsmap map) : map_(std::move(map)) {}
  void apply(aligned_text& text) const override {
    const std::string_view view = text.view();
    text_rewriter rewriter(text);
    const auto replaced = [&](std::size_t begin, std::size_t end) {
      std::string_view with;
      if (!map_.find(view.substr(begin, end - begin), with)) return false;
      rewriter.keep(begin);
      rewriter.replace(end, with);
      return true;
    };
    for (std::size_t begin = 0, end = 0; begin < view.size(); begin = end) {
      end = grapheme_end(view, begin);
      if (end - begin < 6 && replaced(begin, end)) continue;
      for (std::size_t at = begin, bytes = 0; at < end; at += bytes) {
        bytes = character_at(view, at).bytes;
        (void)replaced(at, at + bytes);
      }
    }
    rewriter.finish();
  }

 private:
  [[nodiscard]] static std::size_t grapheme_end(std::string_view view, std::size_t at) {
    character before = character_at(view, at);
    std::int32_t state = 0;
    for (at += before.bytes; at < view.size();) {
      const character c = character_at(view, at);
      if (before.code < 0 || c.code < 0 || (before.code < 0x80 && c.code < 0x80 && before.code != '\r') ||
          breaks_grapheme(before.code, c.code, state))
        break;
      before = c;
      at += c.bytes;
    }
    return at;
  }

  charsmap map_;
};

/// Bytes become printable characters.
class byte_normalizer final : public normalizer {
 public:
  void apply(aligned_text& text) const override {
    const std::string_view view = text.view();
    text_rewriter rewriter(text);
    for (std::size_t i = 0; i < view.size(); ++i) {
      const std::string printable = printable_byte(static_cast<unsigned char>(view[i]));
      if (printable.size() == 1 && printable[0] == view[i]) continue;
      rewriter.keep(i);
      rewriter.replace(i + 1, printable);
    }
    rewriter.finish();
  }
};

class normalizer_sequence final : public normalizer {
 public:
  explicit normalizer_sequence(std::vector<std::unique_ptr<normalizer>> steps) : steps_(std::move(steps)) {}
  void apply(aligned_text& text) const override {
    for (const auto& step : steps_) step->apply(text);
  }

 private:
  std::vector<std::unique_ptr<normalizer>> steps_;
};

/// Null for null.
///   throws  config_error for what is unsupported
[[nodiscard]] inline std::unique_ptr<normalizer> read_normalizer(const json& step, const std::string& who) {
  if (step.is_null()) return nullptr;
  const settings_reader read(step, who, "normalizer");
  const std::string type = type_of(step);
  if (type == "Sequence") {
    read.allow({"normalizers"});
    std::vector<std::unique_ptr<normalizer>> steps;
    for (const json& one : read.list("normalizers")) {
      steps.push_back(read_normalizer(one, who));
      require<config_error>(steps.back() != nullptr, read.who(), ": every step must be an object; one is null");
    }
    return std::make_unique<normalizer_sequence>(std::move(steps));
  }
  if (type == "Replace") {
    read.allow({"pattern", "content"});
    return std::make_unique<replace_normalizer>(text_pattern(read.member("pattern"), read.who()), read.text("content"));
  }
  if (type == "Prepend") {
    read.allow({"prepend"});
    return std::make_unique<prepend_normalizer>(read.text("prepend"));
  }
  if (type == "Strip") {
    read.allow({"strip_left", "strip_right"});
    return std::make_unique<strip_normalizer>(read.flag("strip_left", true), read.flag("strip_right", true));
  }
  if (type == "BertNormalizer") {
    read.allow({"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
    const bool lowercase = read.flag("lowercase", true);
    return std::make_unique<bert_normalizer>(bert_normalizer::options{.clean = read.flag("clean_text", true),
                                                                      .ideographs = read.flag("handle_chinese_chars", true),
                                                                      .accents = read.flag("strip_accents", lowercase),
                                                                      .lowercase = lowercase});
  }
  if (type == "Precompiled") {
    read.allow({"precompiled_charsmap"});
    return std::make_unique<charsmap_normalizer>(charsmap(bytes_of_base64(read.text("precompiled_charsmap"), read.who()), read.who()));
  }
  read.allow({});
  if (type == "NFC") return std::make_unique<form_normalizer>(true, false);
  if (type == "NFD") return std::make_unique<form_normalizer>(false, false);
  if (type == "NFKC") return std::make_unique<form_normalizer>(true, true);
  if (type == "NFKD") return std::make_unique<form_normalizer>(false, true);
  if (type == "Lowercase") return std::make_unique<lowercase_normalizer>();
  if (type == "StripAccents") return std::make_unique<strip_accents_normalizer>();
  if (type == "Nmt") return std::make_unique<nmt_normalizer>();
  if (type == "ByteLevel") return std::make_unique<byte_normalizer>();
  fail<config_error>(who, ": the normalizer must be one that this library knows; given '", type, "'");
}

}  // namespace xtrain::detail
