// Byte-pair encoding: of the pairs in a word, the one that was learned first is joined, again and again.
//                                                                          [Sennrich et al. 2016; Radford et al. 2019]
// Component 'text'.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/data/byte_tokenizer.hpp>
#include <xtrain/data/byte_trie.hpp>
#include <xtrain/data/unicode.hpp>
#include <xtrain/data/word_model.hpp>

namespace xtrain {

/// What a byte-pair encoding is made of.
struct bpe_options {
  std::vector<std::pair<std::string, token>> vocabulary{};
  std::vector<std::pair<std::string, std::string>> merges{};  ///< best first
  bool merges_by_rank = false;                                ///< instead: any two tokens that make a third; the smallest third first
  bool bytes = false;               ///< words are bytes, which the vocabulary writes with GPT-2's printable characters
  bool ignore_merges = false;       ///< a word that is a token is that token, however merging would go
  bool byte_fallback = false;       ///< what is no token becomes the tokens of its bytes, <0xNN>
  std::string unknown{};            ///< what is no token becomes this; where it is empty, nothing
  bool fuse_unknown = false;        ///< several unknown characters are one token
  std::string continuing_prefix{};  ///< written before every character of a word but the first
  std::string end_suffix{};         ///< written behind the last character of a word
  std::string who = "tokenizer";    ///< names the source in errors
};

namespace detail {

/// Pairs of tokens that are joined: how soon, and into what.
class merge_table {
 public:
  struct merge {
    std::uint32_t rank = none;
    token result = -1;
  };
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  explicit merge_table(std::size_t merges) {
    std::size_t slots = 256;
    while (slots < 2 * merges + 2) slots *= 2;
    slots_.resize(slots);
    shift_ = 64;
    for (std::size_t s = slots; s > 1; s /= 2) --shift_;
  }
  /// A pair that comes again counts as it comes last.
  void put(token left, token right, merge value) { slots_[place_of(key_of(left, right))] = {key_of(left, right), value}; }
  [[nodiscard]] merge find(token left, token right) const { return slots_[place_of(key_of(left, right))].value; }

 private:
  struct slot {
    std::uint64_t key = empty;
    merge value;
  };
  static constexpr std::uint64_t empty = std::numeric_limits<std::uint64_t>::max();  // no pair: tokens are not negative
  [[nodiscard]] static std::uint64_t key_of(token left, token right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] std::size_t place_of(std::uint64_t key) const {
    std::size_t i = static_cast<std::size_t>(key * 0x9E3779B97F4A7C15U >> shift_);
    while (slots_[i].key != key && slots_[i].key != empty) i = (i + 1) & (slots_.size() - 1);
    return i;
  }
  std::vector<slot> slots_;
  int shift_ = 0;
};

/// Pairs of neighbouring characters that some token has inside. Between others no merge can reach: a word may be cut there.
class neighbour_table {
 public:
  void add(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
      const character left = character_at(text, at);
      at += left.bytes;
      if (at < text.size()) pairs_.push_back(key_of(left.code, character_at(text, at).code));
    }
  }
  void finish() {
    std::sort(pairs_.begin(), pairs_.end());
    pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
    std::size_t slots = 256;
    while (slots < 4 * pairs_.size()) slots *= 2;
    std::vector<std::uint64_t> table(slots, empty);
    for (const std::uint64_t key : pairs_) {
      std::size_t i = start_of(key, slots);
      while (table[i] != empty) i = (i + 1) & (slots - 1);
      table[i] = key;
    }
    pairs_.swap(table);
  }
  [[nodiscard]] bool together(std::int32_t left, std::int32_t right) const {
    const std::uint64_t key = key_of(left, right);
    for (std::size_t i = start_of(key, pairs_.size());; i = (i + 1) & (pairs_.size() - 1)) {
      if (pairs_[i] == key) return true;
      if (pairs_[i] == empty) return false;
    }
  }

 private:
  static constexpr std::uint64_t empty = std::numeric_limits<std::uint64_t>::max() - 1;
  [[nodiscard]] static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] static std::size_t start_of(std::uint64_t key, std::size_t slots) {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15U) >> 32) & (slots - 1);
  }
  std::vector<std::uint64_t> pairs_;
};

/// "<0xNN>", as vocabularies with byte fallback write a byte.
[[nodiscard]] inline std::string byte_token_text(unsigned byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return {'<', '0', 'x', digits[byte >> 4], digits[byte & 0xFU], '>'};
}

}  // namespace detail

class bpe final : public detail::word_model {
 public:
  /// throws config_error when vocabulary and merges contradict each other
  explicit bpe(const bpe_options& o)
      : vocabulary_(o.vocabulary, o.who), bytes_(o.bytes), ignore_merges_(o.ignore_merges), fuse_unknown_(o.fuse_unknown),
        cuts_(!o.ignore_merges && o.continuing_prefix.empty() && o.end_suffix.empty()), continuing_prefix_(o.continuing_prefix),
        end_suffix_(o.end_suffix), merges_(o.merges_by_rank ? joins_by_rank(vocabulary_) : joins_of(o, vocabulary_)) {
    if (!o.unknown.empty()) {
      unknown_ = vocabulary_.find(o.unknown);
      require<config_error>(unknown_ >= 0, o.who, ": the unknown token must be in the vocabulary; '", o.unknown, "' is not");
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
      single_[byte] = bytes_        ? vocabulary_.find(detail::printable_byte(byte))
                      : byte < 0x80 ? vocabulary_.find(std::string(1, static_cast<char>(byte)))
                                    : -1;
      fallback_[byte] = o.byte_fallback ? vocabulary_.find(detail::byte_token_text(byte)) : -1;
    }
    for (token id = 0; cuts_ && static_cast<std::size_t>(id) < vocabulary_.size(); ++id) neighbours_.add(vocabulary_.text(id));
    neighbours_.finish();
    for (unsigned left = 0; bytes_ && left < 256; ++left)
      for (unsigned right = 0; right < 256; ++right)
        byte_pairs_[256 * left + right] = neighbours_.together(detail::character_at(detail::printable_byte(left), 0).code,
                                                               detail::character_at(detail::printable_byte(right), 0).code);
  }

  void encode(std::string_view word, detail::word_scratch& scratch) const override {
    if (ignore_merges_)
      if (const token whole = bytes_ ? vocabulary_.find(printable(word, scratch.text)) : vocabulary_.find(word); whole >= 0) {
        scratch.tokens.push_back({whole, 0, static_cast<std::uint32_t>(word.size())});
        return;
      }
    scratch.ids.clear();
    scratch.begins.clear();
    scratch.ends.clear();
    if (bytes_) begin_with_bytes(word, scratch);
    else begin_with_characters(word, scratch);
    if (scratch.ids.size() <= few) join_few(scratch);
    else join_many(scratch);
  }
  [[nodiscard]] const detail::vocabulary_table& vocabulary() const override { return vocabulary_; }

  /// Words without spaces may be as long as the text. They are cut where no token reaches across.
  [[nodiscard]] std::size_t part_end(std::string_view word, std::size_t begin) const override {
    if (!cuts_) return word.size();
    if (bytes_) {
      if (word.size() - begin <= few) return word.size();
      for (std::size_t i = begin + 1; i < word.size(); ++i) {
        const auto left = static_cast<unsigned char>(word[i - 1]), right = static_cast<unsigned char>(word[i]);
        if (!byte_pairs_[256U * left + right] && single_[left] >= 0 && single_[right] >= 0) return i;
      }
      return word.size();
    }
    detail::character left = detail::character_at(word, begin);
    for (std::size_t i = begin + left.bytes; i < word.size();) {
      const detail::character right = detail::character_at(word, i);
      if (!neighbours_.together(left.code, right.code) && vocabulary_.find(word.substr(i - left.bytes, left.bytes)) >= 0 &&
          vocabulary_.find(word.substr(i, right.bytes)) >= 0)
        return i;
      left = right;
      i += right.bytes;
    }
    return word.size();
  }

 private:
  using merge = detail::merge_table::merge;
  static constexpr std::uint32_t none = detail::merge_table::none;
  static constexpr std::size_t few = 40;

  [[nodiscard]] static detail::merge_table joins_of(const bpe_options& o, const detail::vocabulary_table& vocabulary) {
    detail::merge_table table(o.merges.size());
    std::uint32_t rank = 0;
    for (const auto& [left, right] : o.merges) {
      const bool prefixed = !o.continuing_prefix.empty() && right.starts_with(o.continuing_prefix);
      const token a = vocabulary.find(left), b = vocabulary.find(right),
                  both = vocabulary.find(left + (prefixed ? right.substr(o.continuing_prefix.size()) : right));
      require<config_error>(a >= 0 && b >= 0 && both >= 0, o.who, ": merge ", rank + 1, " ('", left, "' '", right,
                            "') must join two tokens into a third; one of them is not in the vocabulary");
      table.put(a, b, {rank++, both});
    }
    return table;
  }
  /// Every two tokens that make a third are joined; what the third is says how soon.
  [[nodiscard]] static detail::merge_table joins_by_rank(const detail::vocabulary_table& vocabulary) {
    std::size_t count = 0;
    for_each_split(vocabulary, [&](token, token, token) { ++count; });
    detail::merge_table table(count);
    for_each_split(vocabulary, [&](token left, token right, token both) {
      table.put(left, right, {static_cast<std::uint32_t>(both), both});
    });
    return table;
  }

 public:
  /// visit(left, right, both) for every way to make a token of two others, in the order of the tokens that are made.
  template <class Visit>
  static void for_each_split(const detail::vocabulary_table& vocabulary, Visit&& visit) {
    for (token both = 0; static_cast<std::size_t>(both) < vocabulary.size(); ++both) {
      const std::string_view text = vocabulary.text(both);
      if (text.size() > detail::byte_trie::longest) continue;
      for (std::size_t at = 0; at < text.size();) {
        at += detail::character_at(text, at).bytes;
        if (at >= text.size()) break;
        const token left = vocabulary.find(text.substr(0, at));
        if (left < 0) continue;
        if (const token right = vocabulary.find(text.substr(at)); right >= 0) visit(left, right, both);
      }
    }
  }

 private:
  /// The word as the vocabulary writes it.
  [[nodiscard]] static std::string_view printable(std::string_view word, std::string& text) {
    text.clear();
    for (const char c : word) text += detail::printable_byte(static_cast<unsigned char>(c));
    return text;
  }

  static void begin_symbol(detail::word_scratch& scratch, token id, std::size_t begin, std::size_t end) {
    scratch.ids.push_back(id);
    scratch.begins.push_back(static_cast<std::uint32_t>(begin));
    scratch.ends.push_back(static_cast<std::uint32_t>(end));
  }
  void begin_with_bytes(std::string_view word, detail::word_scratch& scratch) const {
    for (std::size_t i = 0; i < word.size(); ++i) {
      const token id = single_[static_cast<unsigned char>(word[i])];
      if (id >= 0) begin_symbol(scratch, id, i, i + 1);
      else begin_unknown(scratch, i, i + 1);
    }
  }
  void begin_with_characters(std::string_view word, detail::word_scratch& scratch) const {
    const bool decorated = !continuing_prefix_.empty() || !end_suffix_.empty();
    for (std::size_t i = 0, end = 0; i < word.size(); i = end) {
      end = i + detail::character_at(word, i).bytes;
      std::string_view text = word.substr(i, end - i);
      token id = -1;
      if (decorated) {
        scratch.text = i > 0 ? continuing_prefix_ : std::string{};
        scratch.text += text;
        if (end == word.size()) scratch.text += end_suffix_;
        text = scratch.text;
        id = vocabulary_.find(text);
      } else {
        id = text.size() == 1 ? single_[static_cast<unsigned char>(text[0])] : vocabulary_.find(text);
      }
      if (id >= 0) begin_symbol(scratch, id, i, end);
      else if (std::all_of(text.begin(), text.end(), [&](char c) { return fallback_[static_cast<unsigned char>(c)] >= 0; }))
        for (std::size_t b = 0; b < text.size(); ++b)
          begin_symbol(scratch, fallback_[static_cast<unsigned char>(text[b])], std::min(i + b, end - 1), std::min(i + b + 1, end));
      else begin_unknown(scratch, i, end);
    }
  }
  void begin_unknown(detail::word_scratch& scratch, std::size_t begin, std::size_t end) const {
    if (unknown_ < 0) return;
    if (fuse_unknown_ && !scratch.ids.empty() && scratch.ids.back() == unknown_ && scratch.ends.back() == begin)
      scratch.ends.back() = static_cast<std::uint32_t>(end);
    else begin_symbol(scratch, unknown_, begin, end);
  }

  /// A word of few symbols is searched through for the best pair.
  void join_few(detail::word_scratch& scratch) const {
    token* ids = scratch.ids.data();
    std::uint32_t *begins = scratch.begins.data(), *ends = scratch.ends.data();
    std::size_t n = scratch.ids.size();
    std::array<merge, few> pairs;  // of symbols i and i + 1
    for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = merges_.find(ids[i], ids[i + 1]);
    while (n > 1) {
      std::size_t best = 0;
      for (std::size_t i = 1; i + 1 < n; ++i)
        if (pairs[i].rank < pairs[best].rank) best = i;
      if (pairs[best].rank == none) break;
      ids[best] = pairs[best].result;
      ends[best] = ends[best + 1];
      for (std::size_t i = best + 1; i + 1 < n; ++i) {
        ids[i] = ids[i + 1];
        begins[i] = begins[i + 1];
        ends[i] = ends[i + 1];
        pairs[i - 1] = pairs[i];
      }
      --n;
      if (best > 0) pairs[best - 1] = merges_.find(ids[best - 1], ids[best]);
      if (best + 1 < n) pairs[best] = merges_.find(ids[best], ids[best + 1]);
    }
    for (std::size_t i = 0; i < n; ++i) scratch.tokens.push_back({ids[i], begins[i], ends[i]});
  }

  /// In a long word candidates wait in a heap: n symbols cost n log n.
  void join_many(detail::word_scratch& scratch) const {
    constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();
    auto& ids = scratch.ids;
    auto &next = scratch.next, &previous = scratch.previous;
    auto& heap = scratch.heap;
    const auto n = static_cast<std::uint32_t>(ids.size());
    next.resize(n);
    previous.resize(n);
    heap.clear();
    const auto consider = [&](std::uint32_t left) {
      if (left == nowhere || next[left] == nowhere) return;
      const merge found = merges_.find(ids[left], ids[next[left]]);
      if (found.rank == none) return;
      heap.push_back(static_cast<std::uint64_t>(found.rank) << 32 | left);  // of equal ranks the leftmost comes first
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    };
    for (std::uint32_t i = 0; i < n; ++i) {
      previous[i] = i > 0 ? i - 1 : nowhere;
      next[i] = i + 1 < n ? i + 1 : nowhere;
    }
    for (std::uint32_t i = 0; i + 1 < n; ++i) consider(i);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      const auto rank = static_cast<std::uint32_t>(heap.back() >> 32), left = static_cast<std::uint32_t>(heap.back());
      heap.pop_back();
      if (ids[left] < 0 || next[left] == nowhere) continue;  // joined meanwhile
      const std::uint32_t right = next[left];
      const merge found = merges_.find(ids[left], ids[right]);
      if (found.rank != rank) continue;
      ids[left] = found.result;
      scratch.ends[left] = scratch.ends[right];
      ids[right] = -1;
      next[left] = next[right];
      if (next[right] != nowhere) previous[next[right]] = left;
      consider(previous[left]);
      consider(left);
    }
    for (std::uint32_t i = n > 0 ? 0 : nowhere; i != nowhere; i = next[i])
      scratch.tokens.push_back({ids[i], scratch.begins[i], scratch.ends[i]});
  }

  detail::vocabulary_table vocabulary_;
  bool bytes_, ignore_merges_, fuse_unknown_, cuts_;
  std::string continuing_prefix_, end_suffix_;
  token unknown_ = -1;
  std::array<token, 256> single_{}, fallback_{};  // of bytes: the token of the character, and <0xNN>
  std::array<bool, 65536> byte_pairs_{};
  detail::merge_table merges_;
  detail::neighbour_table neighbours_;
};

}  // namespace xtrain
