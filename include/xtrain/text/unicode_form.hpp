// NFC, NFD, NFKC, NFKD. [Unicode Standard Annex 15] Component 'text'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/text/aligned_text.hpp>
#include <xtrain/text/unicode.hpp>

namespace xtrain::detail {

/// Rewrites only ranges that change; bytes that are not UTF-8 stay.
class unicode_form {
 public:
  unicode_form(bool composed, bool compatibility) : composed_(composed), compatibility_(compatibility) {}

  void apply(aligned_text& text) const {
    const std::string_view view = text.view();
    text_rewriter rewriter(text);
    std::vector<part> parts;
    for (std::size_t at = ascii_end(view, 0); at < view.size(); at = ascii_end(view, at)) {
      const character first = character_at(view, at);
      if (first.code < 0) {
        ++at;
        continue;
      }
      std::size_t begin = at, end = at + first.bytes;
      if (at > 0 && static_cast<unsigned char>(view[at - 1]) < 0x80U && !begins_alone(first.code)) --begin;  // a mark on an ASCII letter
      while (end < view.size()) {  // up to a character that is independent of preceding ones
        const character c = character_at(view, end);
        if (c.code < 0 || begins_alone(c.code)) break;
        end += c.bytes;
      }
      if (begin < at || end > at + first.bytes || !stays(first.code)) rewrite(view, begin, end, parts, rewriter);
      at = end;
    }
    rewriter.finish();
  }

 private:
  struct part {
    std::int32_t code;
    int order;
    std::size_t begin, end;  // bytes of the text
  };

  /// Neither composes with the preceding character nor moves before it.
  [[nodiscard]] static bool begins_alone(std::int32_t code) {
    if (code < 0x300) return true;
    if (combining_class(code) != 0) return false;
    const auto between = [&](std::int32_t first, std::int32_t last) { return code >= first && code <= last; };
    // common scripts without such characters
    return between(0x370, 0x482) || between(0x48A, 0x52F) || between(0x5D0, 0x5EA) || between(0x620, 0x64A) || between(0x671, 0x6D3) ||
           between(0x904, 0x939) || between(0xE01, 0xE30) || between(0x1E00, 0x1FFF) || between(0x2010, 0x2BFF) ||
           between(0x3001, 0x3029) || between(0x3041, 0x3096) || between(0x30A1, 0x30FA) || between(0x4E00, 0x9FFF) ||
           between(0xAC00, 0xD7A3) || between(0xFF00, 0xFF9D) || between(0x1F300, 0x1FAFF);
  }
  /// Common unchanged characters: fast path.
  [[nodiscard]] bool stays(std::int32_t code) const {
    const auto between = [&](std::int32_t first, std::int32_t last) { return code >= first && code <= last; };
    if (between(0x4E00, 0x9FFF)) return true;
    if (!composed_) return false;
    if (between(0x410, 0x44F) || between(0x5D0, 0x5EA) || between(0x620, 0x64A) || between(0x3041, 0x3096) || between(0x30A1, 0x30FA) ||
        between(0xAC00, 0xD7A3))
      return true;
    return !compatibility_ && (between(0xA0, 0x17F) || between(0x2010, 0x2027) || between(0x3001, 0x3029) || between(0xFF01, 0xFF5E));
  }

  void rewrite(std::string_view view, std::size_t begin, std::size_t end, std::vector<part>& parts, text_rewriter& rewriter) const {
    parts.clear();
    for (std::size_t at = begin; at < end;) {
      const character c = character_at(view, at);
      std::int32_t pieces[32];
      const std::size_t count = decompose(c.code, compatibility_, pieces);
      for (std::size_t i = 0; i < count; ++i) parts.push_back({pieces[i], combining_class(pieces[i]), at, at + c.bytes});
      at += c.bytes;
    }
    put_in_order(parts);
    if (composed_) join(parts);
    write(view, begin, end, parts, rewriter);
  }

  /// By combining class, stably.
  static void put_in_order(std::vector<part>& parts) {
    for (auto begin = parts.begin(); begin != parts.end();) {
      if (begin->order == 0) {
        ++begin;
        continue;
      }
      const auto end = std::find_if(begin, parts.end(), [](const part& p) { return p.order == 0; });
      std::stable_sort(begin, end, [](const part& a, const part& b) { return a.order < b.order; });
      begin = end;
    }
  }

  /// Composes marks with the last starter, unless a mark of the same or a higher class is between.
  static void join(std::vector<part>& parts) {
    std::size_t kept = 0, starter = parts.size();
    int last_order = -1;  // class of the character between starter and next part; -1: none
    for (const part p : parts) {
      if (starter < kept && (last_order < 0 || (last_order != 0 && last_order < p.order))) {
        const std::int32_t both = compose(parts[starter].code, p.code);
        if (both >= 0) {
          parts[starter].code = both;
          parts[starter].begin = std::min(parts[starter].begin, p.begin);
          parts[starter].end = std::max(parts[starter].end, p.end);
          continue;
        }
      }
      if (p.order == 0) {
        starter = kept;
        last_order = -1;
      } else {
        last_order = p.order;
      }
      parts[kept++] = p;
    }
    parts.resize(kept);
  }

  static void write(std::string_view view, std::size_t begin, std::size_t end, const std::vector<part>& parts, text_rewriter& rewriter) {
    std::string text;
    for (const part& p : parts) append_character(text, p.code);
    if (text == view.substr(begin, end - begin)) return;
    rewriter.keep(begin);
    std::size_t until = begin;
    text.clear();
    for (std::size_t i = 0; i < parts.size(); ++i) {  // parts with overlapping or reordered bytes are replaced together
      until = std::max(until, parts[i].end);
      append_character(text, parts[i].code);
      const bool apart = i + 1 == parts.size() || parts[i + 1].begin >= until;
      if (!apart) continue;
      if (i + 1 == parts.size()) until = end;
      rewriter.replace(until, text);
      text.clear();
    }
  }

  bool composed_, compatibility_;
};

}  // namespace xtrain::detail
