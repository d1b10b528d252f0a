// WordPiece: greedy longest match, as BERT; and word-level models. [Schuster & Nakajima 2012] Component 'text'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/text/byte_trie.hpp>
#include <xtrain/text/unicode.hpp>
#include <xtrain/text/word_model.hpp>

namespace xtrain {

/// Settings of a WordPiece or word-level model.
struct word_piece_options {
  std::vector<std::pair<std::string, token>> vocabulary{};
  std::string unknown = "[UNK]";
  std::string continuing_prefix = "##";  ///< of pieces after a word's first
  std::size_t longest_word = 100;        ///< characters; longer words are unknown
  std::string who = "tokenizer";
};

/// BERT's WordPiece.
class word_piece final : public detail::word_model {
 public:
  /// throws config_error
  explicit word_piece(const word_piece_options& o)
      : vocabulary_(o.vocabulary, o.who), longest_word_(o.longest_word), unknown_(vocabulary_.find(o.unknown)), who_(o.who) {
    require<config_error>(!o.vocabulary.empty(), o.who, ": the vocabulary must have tokens; it is empty");
    std::vector<std::pair<std::string, token>> inside;
    for (const auto& [text, id] : o.vocabulary)
      if (text.starts_with(o.continuing_prefix)) inside.emplace_back(text.substr(o.continuing_prefix.size()), id);
    first_ = detail::byte_trie(o.vocabulary, o.who);
    inside_ = detail::byte_trie(std::move(inside), o.who);
  }

  /// throws data_error for an unknown word without an unknown token
  void encode(std::string_view word, detail::word_scratch& scratch) const override {
    const std::size_t before = scratch.tokens.size();
    std::size_t characters = 0;
    for (std::size_t i = 0; i < word.size() && characters <= longest_word_; ++characters) i += detail::character_at(word, i).bytes;
    bool known = characters <= longest_word_;
    for (std::size_t begin = 0; known && begin < word.size();) {
      std::size_t end = begin;
      token id = -1;
      (begin == 0 ? first_ : inside_).for_each_prefix(word, begin, [&](std::size_t bytes, token found) {
        end = begin + bytes;
        id = found;
      });
      known = id >= 0;
      if (known) scratch.tokens.push_back({id, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
      begin = end;
    }
    if (known) return;
    require<data_error>(unknown_ >= 0, who_, ": every word must be in the vocabulary, or there must be an unknown token");
    scratch.tokens.resize(before);
    scratch.tokens.push_back({unknown_, 0, static_cast<std::uint32_t>(word.size())});
  }
  [[nodiscard]] const detail::vocabulary_table& vocabulary() const override { return vocabulary_; }

 private:
  detail::vocabulary_table vocabulary_;
  detail::byte_trie first_, inside_;
  std::size_t longest_word_;
  token unknown_;
  std::string who_;
};

/// A word is a token, or unknown.
class word_level final : public detail::word_model {
 public:
  explicit word_level(const word_piece_options& o) : vocabulary_(o.vocabulary, o.who), unknown_(vocabulary_.find(o.unknown)), who_(o.who) {
    require<config_error>(!o.vocabulary.empty(), o.who, ": the vocabulary must have tokens; it is empty");
  }
  /// throws data_error for an unknown word without an unknown token
  void encode(std::string_view word, detail::word_scratch& scratch) const override {
    token id = vocabulary_.find(word);
    if (id < 0) id = unknown_;
    require<data_error>(id >= 0, who_, ": every word must be in the vocabulary, or there must be an unknown token");
    scratch.tokens.push_back({id, 0, static_cast<std::uint32_t>(word.size())});
  }
  [[nodiscard]] const detail::vocabulary_table& vocabulary() const override { return vocabulary_; }

 private:
  detail::vocabulary_table vocabulary_;
  token unknown_;
  std::string who_;
};

}  // namespace xtrain
