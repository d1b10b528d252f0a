// SentencePiece's segmentation of normalized text. [Kudo & Richardson 2018; Kudo 2018; Sennrich et al. 2016]
// Segments whole texts and sums scores in float: equal to the library, with ties and rounding. A tokenizer.json's models (unigram.hpp, bpe.hpp) segment words
// in double. Component 'text'.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/text/byte_trie.hpp>
#include <xtrain/text/merges.hpp>
#include <xtrain/text/sentencepiece_file.hpp>
#include <xtrain/text/sentencepiece_normalizer.hpp>
#include <xtrain/text/unicode.hpp>
#include <xtrain/text/vocabulary.hpp>
#include <xtrain/text/word_model.hpp>

namespace xtrain::detail {

/// Tokens by text.
class piece_numbers {
 public:
  /// throws file_error if pieces of a namespace have equal texts
  piece_numbers(const sentencepiece_file& file, const std::string& who) : text_(texts_of(file, true), who), apart_(texts_of(file, false), who) {
    for (std::size_t i = 0; i < file.pieces.size(); ++i) {
      const bool is_text = file.pieces[i].is_text();
      auto& ids = is_text ? text_ids_ : apart_ids_;
      const token place = (is_text ? text_ : apart_).find(file.pieces[i].text);
      require<file_error>(place == static_cast<token>(ids.size()), who, ": every piece must have a text of its own; '", file.pieces[i].text,
                          "' is the text of two");
      ids.push_back(static_cast<token>(i));
      if (is_text) unused_.push_back(file.pieces[i].kind == piece_kind::unused);
    }
    unknown_ = file.unknown;
  }

  /// The unknown token for no piece, or one that cannot occur in text (control, byte, unused).
  [[nodiscard]] token in_text(std::string_view text) const {
    const token place = text_.find(text);
    return place >= 0 && !unused_[static_cast<std::size_t>(place)] ? text_ids_[static_cast<std::size_t>(place)] : unknown_;
  }
  /// Pieces that cannot occur in text come first; else the unknown token.
  [[nodiscard]] token find(std::string_view text) const {
    if (const token place = apart_.find(text); place >= 0) return apart_ids_[static_cast<std::size_t>(place)];
    const token place = text_.find(text);
    return place >= 0 ? text_ids_[static_cast<std::size_t>(place)] : unknown_;
  }

 private:
  [[nodiscard]] static std::vector<std::pair<std::string, token>> texts_of(const sentencepiece_file& file, bool is_text) {
    std::vector<std::pair<std::string, token>> texts;
    for (const sentence_piece& one : file.pieces)
      if (one.is_text() == is_text) texts.emplace_back(one.text, static_cast<token>(texts.size()));
    return texts;
  }

  vocabulary_table text_, apart_;  // text to index in token lists
  std::vector<token> text_ids_, apart_ids_;
  std::vector<bool> unused_;
  token unknown_ = -1;
};

class piece_cutter {
 public:
  virtual ~piece_cutter() = default;
  /// Appends consecutive pieces. Text without a piece becomes unknown tokens of one or more characters.
  virtual void cut(std::string_view text, word_memory& memory, std::vector<word_token>& pieces) const = 0;
};

/// Highest sum of scores; ties: longest last pieces.
class unigram_cutter final : public piece_cutter {
 public:
  unigram_cutter(const sentencepiece_file& file, const std::string& who) : unknown_(file.unknown) {
    std::vector<std::pair<std::string, std::int32_t>> texts;
    float lowest = std::numeric_limits<float>::max();
    for (std::size_t i = 0; i < file.pieces.size(); ++i) {
      const sentence_piece& one = file.pieces[i];
      const bool user_defined = one.kind == piece_kind::user_defined;  // better than learned pieces; longer is better
      scores_.push_back(user_defined ? static_cast<float>(0.1 * static_cast<double>(one.text.size() - 1)) : one.score);
      if (one.kind == piece_kind::normal) lowest = std::min(lowest, one.score);
      if (one.is_text() && one.kind != piece_kind::unused) texts.emplace_back(one.text, static_cast<std::int32_t>(i));
    }
    unknown_score_ = lowest - 10.0F;
    trie_ = byte_trie(std::move(texts), who);
  }

  void cut(std::string_view text, word_memory& memory, std::vector<word_token>& pieces) const override {
    constexpr std::uint32_t unreached = std::numeric_limits<std::uint32_t>::max();
    auto& path = memory.scratch().path;
    path.assign(text.size() + 1, path_step{0.0, -1, unreached});
    path[0].begin = 0;
    std::size_t furthest = 0;
    for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
      length = promised_bytes(text, at);
      if (path[at].score < -largest_sum || path[at].score > largest_sum) count_from_zero(path, at, furthest);
      const auto here = static_cast<float>(path[at].score);
      bool has_character = false;
      trie_.for_each_prefix(text, at, [&](std::size_t bytes, token id) {
        path_step& to = path[at + bytes];
        const float score = scores_[static_cast<std::size_t>(id)] + here;
        if (to.begin == unreached || score > static_cast<float>(to.score)) to = {score, id, static_cast<std::uint32_t>(at)};
        has_character = has_character || bytes == length;
        furthest = std::max(furthest, at + bytes);
      });
      if (has_character) continue;
      path_step& to = path[at + length];
      furthest = std::max(furthest, at + length);
      const float score = unknown_score_ + here;
      if (to.begin == unreached || score > static_cast<float>(to.score)) to = {score, unknown_, static_cast<std::uint32_t>(at)};
    }
    const std::size_t first = pieces.size();
    for (auto end = static_cast<std::uint32_t>(text.size()); end > 0; end = path[end].begin)
      pieces.push_back({path[end].id, path[end].begin, end});
    std::reverse(pieces.begin() + static_cast<std::ptrdiff_t>(first), pieces.end());
  }

 private:
  static constexpr double largest_sum = 100000.0;  // larger sums in float cannot distinguish pieces

  /// Subtracts the score of `at` from its path and paths beyond it.
  static void count_from_zero(std::vector<path_step>& path, std::size_t at, std::size_t furthest) {
    const auto sum = static_cast<float>(path[at].score);
    for (std::size_t i = at; i <= furthest; ++i)
      if (path[i].id >= 0) path[i].score = static_cast<float>(path[i].score) - sum;
  }

  byte_trie trie_;
  std::vector<float> scores_;
  float unknown_score_ = 0.0F;
  token unknown_;
};

/// Merges adjacent symbols that form a piece, highest score first. User-defined pieces are matched first and never merged; a resulting unused piece is
/// split again.
class bpe_cutter final : public piece_cutter {
 public:
  bpe_cutter(const sentencepiece_file& file, const byte_trie& user_defined, const piece_numbers& numbers, const std::string& who)
      : user_defined_(&user_defined), words_(file, numbers, who) {
    for (const sentence_piece& one : file.pieces) has_unused_ = has_unused_ || one.kind == piece_kind::unused;
    for (const sentence_piece& one : file.pieces) user_numbers_.push_back(numbers.in_text(one.text));
  }

  void cut(std::string_view text, word_memory& memory, std::vector<word_token>& pieces) const override {
    if (has_unused_) return words_.cut_with_unused(text, *user_defined_, user_numbers_, memory.scratch(), pieces);
    std::size_t begin = 0;
    const auto cut_until = [&](std::size_t end) {
      if (begin == end) return;
      const std::size_t offset = begin;
      memory.encode(words_, text.substr(begin, end - begin), [&](token id, std::size_t from, std::size_t to) {
        pieces.push_back({id, static_cast<std::uint32_t>(offset + from), static_cast<std::uint32_t>(offset + to)});
      });
      begin = end;
    };
    std::int32_t before = -1;
    for (std::size_t at = 0; at < text.size();) {
      if (!user_defined_->empty())
        if (const auto [bytes, id] = user_defined_at(*user_defined_, user_numbers_, text, at); bytes > 0) {
          cut_until(at);
          begin = at + bytes;
          pieces.push_back({id, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(begin)});
          at = begin;
          continue;
        }
      const std::int32_t code = character_at(text, at).code;
      if (at > begin && !words_.together(before, code)) cut_until(at);  // in no piece together
      before = code;
      at += promised_bytes(text, at);
    }
    cut_until(text.size());
  }

 private:
  /// Longest user-defined piece at an offset: bytes (0: none) and token.
  [[nodiscard]] static std::pair<std::size_t, token> user_defined_at(const byte_trie& pieces, const std::vector<token>& numbers,
                                                                     std::string_view text, std::size_t at) {
    std::pair<std::size_t, token> found{0, -1};
    if (pieces.begins_with(text[at]))
      pieces.for_each_prefix(text, at, [&](std::size_t bytes, std::int32_t id) { found = {bytes, numbers[static_cast<std::size_t>(id)]}; });
    return found;
  }

  /// Text that does not merge with its surroundings.
  class words final : public word_model {
   public:
    words(const sentencepiece_file& file, const piece_numbers& numbers, const std::string& who)
        : symbols_(symbols_of(file), who), pieces_(pieces_of(file)), merges_(merges_of(file)), unknown_(file.unknown) {
      for (token id = 0; static_cast<std::size_t>(id) < symbols_.size(); ++id) {
        const auto i = static_cast<std::size_t>(id);
        numbers_.push_back(numbers.in_text(symbols_.text(id)));
        unused_.push_back(i < pieces_.size() && file.pieces[pieces_[i]].kind == piece_kind::unused);
        if (i < pieces_.size()) neighbours_.add(symbols_.text(id));
      }
      neighbours_.finish();
      for (unsigned byte = 0; byte < 128; ++byte) single_[byte] = symbol_of(std::string(1, static_cast<char>(byte)));
    }

    [[nodiscard]] bool together(std::int32_t left, std::int32_t right) const { return neighbours_.together(left, right); }

    void encode(std::string_view word, word_scratch& scratch) const override {
      begin(scratch);
      for (std::size_t at = 0; at < word.size();) at = add_symbol(word, at, scratch);
      const std::size_t first = scratch.tokens.size();
      join_symbols(merges_, scratch);
      for (std::size_t i = first; i < scratch.tokens.size(); ++i) scratch.tokens[i].id = number_of(scratch.tokens[i].id);
    }
    [[nodiscard]] const vocabulary_table& vocabulary() const override { return symbols_; }

    /// The whole text at once: an unused piece splits into the last pair that formed it, anywhere in the text.
    void cut_with_unused(std::string_view text, const byte_trie& user_defined, const std::vector<token>& user_numbers, word_scratch& scratch,
                         std::vector<word_token>& pieces) const {
      begin(scratch);
      const token frozen = static_cast<token>(symbols_.size()) + 1;  // frozen + id: user-defined pieces, which never merge
      for (std::size_t at = 0; at < text.size();) {
        const auto [bytes, id] = user_defined_at(user_defined, user_numbers, text, at);
        if (bytes > 0) {
          scratch.ids.push_back(frozen + id);
          scratch.begins.push_back(static_cast<std::uint32_t>(at));
          scratch.ends.push_back(static_cast<std::uint32_t>(at + bytes));
        }
        at = bytes > 0 ? at + bytes : add_symbol(text, at, scratch);
      }
      std::unordered_map<token, std::pair<token, token>> made_of;
      const std::size_t first = scratch.tokens.size();
      join_many(merges_, scratch, [&](std::uint32_t left, std::uint32_t right, token result) {
        if (unused_[static_cast<std::size_t>(result)]) made_of[result] = {scratch.ids[left], scratch.ids[right]};
      });
      const std::vector<word_token> joined(scratch.tokens.begin() + static_cast<std::ptrdiff_t>(first), scratch.tokens.end());
      scratch.tokens.resize(first);
      std::vector<word_token> left_apart;
      for (const word_token& one : joined) {
        left_apart.assign(1, one);
        while (!left_apart.empty()) {
          const word_token t = left_apart.back();
          left_apart.pop_back();
          if (t.id >= frozen) {
            pieces.push_back({t.id - frozen, t.begin, t.end});
            continue;
          }
          const auto at = static_cast<std::size_t>(t.id) < unused_.size() && unused_[static_cast<std::size_t>(t.id)] ? made_of.find(t.id)
                                                                                                                   : made_of.end();
          if (at == made_of.end()) {
            pieces.push_back({number_of(t.id), t.begin, t.end});
            continue;
          }
          const auto middle = t.begin + static_cast<std::uint32_t>(symbols_.text(at->second.first).size());
          left_apart.push_back({at->second.second, middle, t.end});
          left_apart.push_back({at->second.first, t.begin, middle});
        }
      }
    }

   private:
    /// Pieces made by merging, in order.
    [[nodiscard]] static std::vector<std::size_t> pieces_of(const sentencepiece_file& file) {
      std::vector<std::size_t> pieces;
      for (std::size_t i = 0; i < file.pieces.size(); ++i)
        if (file.pieces[i].is_text() && file.pieces[i].kind != piece_kind::user_defined) pieces.push_back(i);
      return pieces;
    }
    /// Their texts, then single characters in them that are no pieces.
    [[nodiscard]] static std::vector<std::pair<std::string, token>> symbols_of(const sentencepiece_file& file) {
      std::vector<std::pair<std::string, token>> symbols;
      std::vector<std::string> characters, known;
      for (const std::size_t i : pieces_of(file)) {
        const std::string& text = file.pieces[i].text;
        symbols.emplace_back(text, static_cast<token>(symbols.size()));
        const bool single = promised_bytes(text, 0) == text.size();
        if (single) known.push_back(text);
        for (std::size_t at = 0, bytes = 0; !single && at < text.size(); at += bytes) {
          bytes = promised_bytes(text, at);
          characters.push_back(text.substr(at, bytes));
        }
      }
      const auto sort_once = [](std::vector<std::string>& texts) {
        std::sort(texts.begin(), texts.end());
        texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
      };
      sort_once(known);
      sort_once(characters);
      for (const std::string& text : characters)
        if (!std::binary_search(known.begin(), known.end(), text)) symbols.emplace_back(text, static_cast<token>(symbols.size()));
      return symbols;
    }
    /// Symbols whose concatenation is a piece; equal scores have equal rank and merge from the left.
    [[nodiscard]] merge_table merges_of(const sentencepiece_file& file) const {
      std::vector<float> scores;
      for (const std::size_t i : pieces_) scores.push_back(file.pieces[i].score);
      std::sort(scores.begin(), scores.end(), std::greater<>());
      scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
      std::vector<std::uint32_t> ranks;
      for (const std::size_t i : pieces_) {
        const auto at = std::lower_bound(scores.begin(), scores.end(), file.pieces[i].score, std::greater<>());
        ranks.push_back(static_cast<std::uint32_t>(at - scores.begin()));
      }
      std::size_t count = 0;
      for_each_split(symbols_, [&](token, token, token) { ++count; });
      merge_table table(count);
      for_each_split(symbols_, [&](token left, token right, token both) { table.put(left, right, {ranks[static_cast<std::size_t>(both)], both}); });
      return table;
    }
    [[nodiscard]] token symbol_of(std::string_view text) const {
      const token id = symbols_.find(text);
      return id >= 0 ? id : static_cast<token>(symbols_.size());  // no piece: never merges
    }
    [[nodiscard]] token number_of(token symbol) const {
      return static_cast<std::size_t>(symbol) < numbers_.size() ? numbers_[static_cast<std::size_t>(symbol)] : unknown_;
    }
    static void begin(word_scratch& scratch) {
      scratch.ids.clear();
      scratch.begins.clear();
      scratch.ends.clear();
    }
    std::size_t add_symbol(std::string_view text, std::size_t at, word_scratch& scratch) const {
      const std::size_t bytes = promised_bytes(text, at);
      const auto first = static_cast<unsigned char>(text[at]);
      scratch.ids.push_back(first < 128 ? single_[first] : symbol_of(text.substr(at, bytes)));
      scratch.begins.push_back(static_cast<std::uint32_t>(at));
      scratch.ends.push_back(static_cast<std::uint32_t>(at + bytes));
      return at + bytes;
    }

    vocabulary_table symbols_;
    std::vector<std::size_t> pieces_;
    merge_table merges_;
    neighbour_table neighbours_;
    std::vector<token> numbers_;  // final token of a symbol
    std::vector<bool> unused_;
    std::array<token, 128> single_{};
    token unknown_;
  };

  const byte_trie* user_defined_;
  std::vector<token> user_numbers_;
  bool has_unused_ = false;
  words words_;
};

/// Pieces: characters and user-defined pieces.
class character_cutter final : public piece_cutter {
 public:
  character_cutter(const byte_trie& user_defined, const piece_numbers& numbers) : user_defined_(&user_defined), numbers_(&numbers) {}
  void cut(std::string_view text, word_memory&, std::vector<word_token>& pieces) const override {
    for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
      const std::size_t user = longest_prefix(*user_defined_, text, at);
      end = at + (user > 0 ? user : promised_bytes(text, at));
      pieces.push_back({numbers_->in_text(text.substr(at, end - at)), static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(end)});
    }
  }

 private:
  const byte_trie* user_defined_;
  const piece_numbers* numbers_;
};

/// Pieces: words with the space before.
class word_piece_cutter final : public piece_cutter {
 public:
  explicit word_piece_cutter(const piece_numbers& numbers) : numbers_(&numbers) {}
  void cut(std::string_view text, word_memory&, std::vector<word_token>& pieces) const override {
    for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
      end = std::min(text.find(visible_space, at + 1), text.size());
      pieces.push_back({numbers_->in_text(text.substr(at, end - at)), static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(end)});
    }
  }

 private:
  const piece_numbers* numbers_;
};

/// The arguments must outlive it.
[[nodiscard]] inline std::unique_ptr<piece_cutter> make_piece_cutter(const sentencepiece_file& file, const byte_trie& user_defined,
                                                                     const piece_numbers& numbers, const std::string& who) {
  switch (file.model) {
    case piece_model::unigram:
      return std::make_unique<unigram_cutter>(file, who);
    case piece_model::bpe:
      return std::make_unique<bpe_cutter>(file, user_defined, numbers, who);
    case piece_model::character:
      return std::make_unique<character_cutter>(user_defined, numbers);
    case piece_model::word:
      break;
  }
  return std::make_unique<word_piece_cutter>(numbers);
}

}  // namespace xtrain::detail
