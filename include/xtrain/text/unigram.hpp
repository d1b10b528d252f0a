// Unigram language model: most likely segmentation of a word. [Kudo 2018] Component 'text'.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/text/bpe.hpp>
#include <xtrain/text/byte_trie.hpp>
#include <xtrain/text/unicode.hpp>
#include <xtrain/text/word_model.hpp>

namespace xtrain {

/// Settings of a unigram model.
struct unigram_options {
  std::vector<std::pair<std::string, double>> pieces{};  ///< log probabilities; the index is the id
  token unknown = -1;                                    ///< negative: none
  bool byte_fallback = false;                            ///< unknown characters become byte tokens, <0xNN>
  std::string who = "tokenizer";
};

/// SentencePiece's unigram model in a tokenizer.json.
class unigram final : public detail::word_model {
 public:
  /// throws config_error
  explicit unigram(const unigram_options& o)
      : vocabulary_(texts_of(o), o.who), trie_(texts_of(o), o.who), unknown_(o.unknown), who_(o.who) {
    require<config_error>(!o.pieces.empty(), o.who, ": the vocabulary must have tokens; it is empty");
    require<config_error>(o.unknown < static_cast<token>(o.pieces.size()), o.who, ": unk_id must be a token id in the vocabulary of ",
                          o.pieces.size(), "; it is ", o.unknown);
    double lowest = 0.0;
    for (const auto& [text, score] : o.pieces) {
      require<config_error>(std::isfinite(score), o.who, ": every score must be finite; that of '", text, "' is not");
      scores_.push_back(score);
      lowest = std::min(lowest, score);
    }
    unknown_score_ = lowest - 10.0;
    for (unsigned byte = 0; byte < 256; ++byte) fallback_[byte] = o.byte_fallback ? vocabulary_.find(detail::byte_token_text(byte)) : -1;
  }

  /// The best path to each byte from paths to earlier bytes. [Viterbi 1967]
  ///   throws  data_error for a character that is no piece, without an unknown token
  void encode(std::string_view word, detail::word_scratch& scratch) const override {
    constexpr std::uint32_t unreached = std::numeric_limits<std::uint32_t>::max();
    auto& path = scratch.path;
    path.assign(word.size() + 1, {0.0, -1, unreached});
    for (std::size_t at = 0, length = 0; at < word.size(); at += length) {
      length = detail::character_at(word, at).bytes;
      const double here = path[at].score;
      bool has_character = false;
      const auto reach = [&](std::size_t end, token id, double score) {
        if (path[end].begin == unreached || score > path[end].score) path[end] = {score, id, static_cast<std::uint32_t>(at)};
      };
      trie_.for_each_prefix(word, at, [&](std::size_t bytes, token id) {
        reach(at + bytes, id, scores_[static_cast<std::size_t>(id)] + here);
        has_character = has_character || bytes == length;
      });
      if (has_character) continue;
      require<data_error>(unknown_ >= 0, who_, ": every character must be a token, or there must be an unknown token; '",
                          word.substr(at, length), "' is none");
      reach(at + length, unknown_, unknown_score_ + here);
    }
    trace_back(word, scratch);
  }
  [[nodiscard]] const detail::vocabulary_table& vocabulary() const override { return vocabulary_; }
  [[nodiscard]] double score(token id) const { return scores_[static_cast<std::size_t>(id)]; }

 private:
  [[nodiscard]] static std::vector<std::pair<std::string, token>> texts_of(const unigram_options& o) {
    std::vector<std::pair<std::string, token>> texts;
    for (const auto& [text, score] : o.pieces) texts.emplace_back(text, static_cast<token>(texts.size()));
    return texts;
  }

  /// Backwards; merges adjacent unknown pieces.
  void trace_back(std::string_view word, detail::word_scratch& scratch) const {
    const std::size_t first = scratch.tokens.size();
    const auto add = [&](token id, std::uint32_t begin, std::uint32_t end) { scratch.tokens.push_back({id, begin, end}); };
    for (auto end = static_cast<std::uint32_t>(word.size()); end > 0;) {
      std::uint32_t begin = scratch.path[end].begin;
      const token id = scratch.path[end].id;
      if (id != unknown_) {
        add(vocabulary_.find(vocabulary_.text(id)), begin, end);
        end = begin;
        continue;
      }
      while (begin > 0 && scratch.path[begin].id == unknown_) begin = scratch.path[begin].begin;
      const std::string_view text = word.substr(begin, end - begin);
      if (const token whole = vocabulary_.find(text); whole >= 0) add(whole, begin, end);
      else if (std::all_of(text.begin(), text.end(), [&](char c) { return fallback_[static_cast<unsigned char>(c)] >= 0; }))
        for (std::uint32_t i = end; i > begin; --i) add(fallback_[static_cast<unsigned char>(word[i - 1])], i - 1, i);
      else add(unknown_, begin, end);
      end = begin;
    }
    std::reverse(scratch.tokens.begin() + static_cast<std::ptrdiff_t>(first), scratch.tokens.end());
  }

  detail::vocabulary_table vocabulary_;
  detail::byte_trie trie_;
  std::vector<double> scores_;
  token unknown_;
  double unknown_score_ = 0.0;
  std::array<token, 256> fallback_{};
  std::string who_;
};

}  // namespace xtrain
