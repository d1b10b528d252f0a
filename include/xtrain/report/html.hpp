// Text for HTML pages, without markup.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <xtrain/core/utf8.hpp>

namespace xtrain::detail {

/// Valid UTF-8 without control characters, replaced by U+FFFD; cut with '…' after about `most` bytes.
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t most = 4096) {
  std::string all;
  for (std::size_t at = 0; at < text.size();) {
    if (all.size() >= most) return all + "\xE2\x80\xA6";
    const auto [code, bytes] = character_at(text, at);
    if (code == '\n' || code == '\t') all += ' ';
    else if (code < 0x20 || (code >= 0x7F && code < 0xA0)) all += "\xEF\xBF\xBD";  // invalid or a control character
    else all.append(text.substr(at, bytes));
    at += bytes;
  }
  return all;
}

/// For an element or a quoted attribute.
[[nodiscard]] inline std::string escaped(std::string_view text, std::size_t most = 4096) {
  std::string all;
  for (const char c : printable(text, most)) {
    switch (c) {
      case '&': all += "&amp;"; break;
      case '<': all += "&lt;"; break;
      case '>': all += "&gt;"; break;
      case '"': all += "&quot;"; break;
      case '\'': all += "&#39;"; break;
      default: all += c;
    }
  }
  return all;
}

}  // namespace xtrain::detail
