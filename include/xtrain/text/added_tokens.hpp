// Added tokens: matched literally before text is split. Component 'text'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/text/aligned_text.hpp>
#include <xtrain/text/byte_trie.hpp>
#include <xtrain/text/normalizer.hpp>
#include <xtrain/text/unicode.hpp>

namespace xtrain {

/// Ordinary text, or special: begin of text, padding, a role.
struct added_token {
  std::string content{};
  token id = -1;
  bool single_word = false;  ///< no word character before or after
  bool lstrip = false;       ///< includes spaces before
  bool rstrip = false;       ///< includes spaces after
  bool normalized = false;   ///< matched in normalized text
  bool special = false;      ///< decoding may skip it
};

namespace detail {

class added_tokens {
 public:
  added_tokens() = default;
  /// throws config_error for equal ids, or a token that the normalizer makes empty
  added_tokens(std::vector<added_token> all, const normalizer* normal, const std::string& who) : all_(std::move(all)) {
    std::vector<std::pair<std::string, std::int32_t>> as_written, as_normalized;
    decoded_.resize(all_.size());
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const added_token& one = all_[i];
      if (one.content.empty()) continue;
      const auto [at, fresh] = by_id_.emplace(one.id, i);
      require<config_error>(fresh || all_[at->second].content == one.content, who, ": token ", one.id, " must have one text; it is '",
                            all_[at->second].content, "' and '", one.content, "'");
      by_content_[one.content] = one.id;
      decoded_[i] = one.content;
      if (!one.normalized || normal == nullptr) {
        (one.normalized ? as_normalized : as_written).emplace_back(one.content, static_cast<std::int32_t>(i));
        continue;
      }
      aligned_text content(one.content, 0);
      normal->apply(content);
      decoded_[i] = content.view();
      // the tokenizers library would match it between all characters
      require<config_error>(!content.view().empty(), who, ": an added token must not be empty when it is normalized; '", one.content,
                            "' is. Give it \"normalized\": false");
      as_normalized.emplace_back(std::string(content.view()), static_cast<std::int32_t>(i));
    }
    as_written_ = byte_trie(std::move(as_written), who);
    as_normalized_ = byte_trie(std::move(as_normalized), who);
  }

  /// visit(begin, end, id) for added tokens and the text between (negative id). Spaces after a token may belong to it and be tokens: both are visited, as in
  /// the tokenizers library.
  ///   normalized     the text is normalized: other tokens are matched
  ///   find_special   match special tokens
  template <class Visit>
  void for_each_part(std::string_view text, bool normalized, bool find_special, Visit&& visit) const {
    const byte_trie& trie = normalized ? as_normalized_ : as_written_;
    std::size_t covered = 0;
    if (!trie.empty())
      for (std::size_t at = 0; at < text.size();) {
        std::size_t length = 0;
        std::int32_t which = -1;
        if (trie.begins_with(text[at]))
          trie.for_each_prefix(text, at, [&](std::size_t bytes, std::int32_t found) {  // longest match
            length = bytes;
            which = found;
          });
        if (which < 0) {
          ++at;
          continue;
        }
        const added_token& one = all_[static_cast<std::size_t>(which)];
        std::size_t begin = at, end = at + length;
        at = end;
        if (one.special && !find_special) continue;
        if (one.single_word &&
            ((begin > 0 && is_word(character_before(text, begin).code)) || (end < text.size() && is_word(character_at(text, end).code))))
          continue;
        while (one.lstrip && begin > covered && is_space(character_before(text, begin).code)) begin -= character_before(text, begin).bytes;
        if (one.lstrip) begin = std::max(begin, covered);
        while (one.rstrip && end < text.size() && is_space(character_at(text, end).code)) end += character_at(text, end).bytes;
        if (end <= begin) continue;
        if (begin > covered) visit(covered, begin, token{-1});
        visit(begin, end, one.id);
        covered = end;  // a token with spaces may overlap the next, which is found too
      }
    if (covered < text.size()) visit(covered, text.size(), token{-1});
  }
  [[nodiscard]] bool any_in_normalized_text() const { return !as_normalized_.empty(); }

  [[nodiscard]] const std::vector<added_token>& all() const { return all_; }
  /// Or null.
  [[nodiscard]] const added_token* find(token id) const {
    const auto at = by_id_.find(id);
    return at == by_id_.end() ? nullptr : &all_[at->second];
  }
  /// A token's decoded text, normalized if it is matched in normalized text.
  [[nodiscard]] const std::string& decoded(const added_token& one) const { return decoded_[static_cast<std::size_t>(&one - all_.data())]; }
  /// Is a special token.
  [[nodiscard]] bool is_special_text(const std::string& text) const {
    const added_token* one = find(find(text));
    return one != nullptr && one->special;
  }
  [[nodiscard]] token find(const std::string& content) const {
    const auto at = by_content_.find(content);
    return at == by_content_.end() ? -1 : at->second;
  }

 private:
  std::vector<added_token> all_;
  std::vector<std::string> decoded_;
  std::unordered_map<token, std::size_t> by_id_;
  std::unordered_map<std::string, token> by_content_;
  byte_trie as_written_, as_normalized_;
};

}  // namespace detail

}  // namespace xtrain
