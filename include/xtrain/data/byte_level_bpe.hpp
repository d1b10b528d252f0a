// Byte-pair encoding over bytes, as GPT-2 uses it.                        [Sennrich et al. 2016; Radford et al. 2019]
// Component 'text': needs PCRE2.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/data/byte_tokenizer.hpp>
#include <xtrain/data/tokenizer.hpp>

namespace xtrain {

namespace detail {

/// Cuts text into words by a pattern. Bytes that are not UTF-8 match nothing and are given out as they are.
class word_pattern {
 public:
  /// throws config_error when the pattern is not one
  explicit word_pattern(const std::string& pattern) {
    int problem = 0;
    PCRE2_SIZE where = 0;
    code_.reset(::pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &problem, &where, nullptr));
    require<config_error>(code_ != nullptr, "tokenizer: the pattern that cuts words must be a regular expression; it is not, at place ",
                          where);
    ::pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without it matching is slower, not different
  }

  /// visit(begin, end) for every word, and for whatever lies between words; together they are the whole text.
  template <class Visit>
  void for_each_word(std::string_view text, Visit&& visit) const {
    const std::unique_ptr<pcre2_match_data, deleter> match(::pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    std::size_t at = 0;
    while (at < text.size()) {
      const int found =
          ::pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, PCRE2_NOTEMPTY, match.get(), nullptr);
      if (found < 0) break;
      const PCRE2_SIZE* place = ::pcre2_get_ovector_pointer(match.get());
      if (place[0] > at) visit(at, place[0]);
      visit(place[0], place[1]);
      at = place[1];
    }
    if (at < text.size()) visit(at, text.size());
  }

 private:
  struct deleter {
    void operator()(pcre2_code* code) const { ::pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const { ::pcre2_match_data_free(match); }
  };
  std::unique_ptr<pcre2_code, deleter> code_;
};

}  // namespace detail

/// Contractions, words, numbers, signs and spaces: how GPT-2 cuts text before merging.
inline constexpr const char* gpt2_pattern = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// What a byte-level BPE is made of.
struct byte_level_bpe_options {
  std::vector<std::pair<std::string, token>> vocabulary{};    // written with GPT-2's printable bytes
  std::vector<std::pair<std::string, std::string>> merges{};  // best first
  std::vector<std::pair<std::string, token>> added{};         // found in the text as they are written
  std::string pattern = gpt2_pattern;                         // empty: the text is one word
  bool add_prefix_space = false;
  std::vector<std::pair<std::string, std::string>> files{};  // name and contents, to be saved again
  std::string who = "tokenizer";                             // names the source in errors
};

class byte_level_bpe final : public tokenizer_model {
 public:
  /// throws config_error when vocabulary and merges contradict each other
  explicit byte_level_bpe(byte_level_bpe_options o) : files_(std::move(o.files)), prefix_space_(o.add_prefix_space) {
    if (!o.pattern.empty()) pattern_ = std::make_unique<detail::word_pattern>(o.pattern);
    std::unordered_map<std::string, std::uint8_t> byte_of;
    for (unsigned byte = 0; byte < 256; ++byte) byte_of.emplace(detail::printable_byte(byte), static_cast<std::uint8_t>(byte));
    std::unordered_map<std::string, token> id_of;
    for (const auto& [text, id] : o.vocabulary) {
      require<config_error>(id >= 0, o.who, ": tokens must not be negative; '", text, "' is ", id);
      require<config_error>(id < largest_vocabulary, o.who, ": tokens must be below ", largest_vocabulary, "; '", text, "' is ", id);
      require_few_holes(o, text, id);
      id_of.emplace(text, id);
      put_bytes(o.who, id, bytes_of(text, byte_of));
    }
    single_.fill(-1);
    for (const auto& [text, byte] : byte_of)
      if (const auto at = id_of.find(text); at != id_of.end()) single_[byte] = at->second;
    for (unsigned byte = 0; byte < 256; ++byte)
      require<config_error>(single_[byte] >= 0, o.who, ": every byte must have a token; byte ", byte, " has none");
    std::uint32_t rank = 0;
    for (const auto& [left, right] : o.merges) {
      const auto a = id_of.find(left), b = id_of.find(right), both = id_of.find(left + right);
      require<config_error>(a != id_of.end() && b != id_of.end() && both != id_of.end(), o.who, ": merge ", rank + 1, " ('", left, "' '",
                            right, "') must join two tokens into a third; one of them is not in the vocabulary");
      merges_.emplace(key(a->second, b->second), merge{rank++, both->second});
    }
    for (const auto& [text, id] : o.added) {
      require<config_error>(id >= 0 && id < largest_vocabulary, o.who, ": tokens must lie in [0, ", largest_vocabulary, "); '", text,
                            "' is ", id);
      if (text.empty()) continue;
      require_few_holes(o, text, id);
      added_.emplace_back(text, id);
      put_bytes(o.who, id, text);
    }
    std::sort(added_.begin(), added_.end(), [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  }

  void encode(std::string_view text, std::vector<placed_token>& tokens) const override {
    std::size_t begin = 0;
    while (begin < text.size()) {
      const auto [at, added] = next_added(text, begin);
      encode_plain(text, begin, at, tokens);
      if (added == nullptr) break;
      tokens.push_back({added->second, at, at + added->first.size()});
      begin = at + added->first.size();
    }
  }

  [[nodiscard]] std::string decode(std::span<const token> tokens) const override {
    std::string text;
    for (const token t : tokens)
      if (t >= 0 && static_cast<std::size_t>(t) < bytes_.size()) text += bytes_[static_cast<std::size_t>(t)];
    return text;
  }
  [[nodiscard]] std::size_t vocabulary() const override { return bytes_.size(); }
  void save(const std::string& folder) const override {
    for (const auto& [name, contents] : files_) write_file(folder + "/" + name, contents);
  }

 private:
  static constexpr token largest_vocabulary = 1 << 24;

  struct merge {
    std::uint32_t rank;
    token result;
  };
  static std::uint64_t key(token left, token right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }

  /// A vocabulary entry's bytes; what is not written with printable bytes stands for itself.
  static std::string bytes_of(const std::string& text, const std::unordered_map<std::string, std::uint8_t>& byte_of) {
    std::string bytes;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t length = (static_cast<unsigned char>(text[i]) & 0xE0U) == 0xC0U ? 2 : 1;
      const auto at = byte_of.find(text.substr(i, length));
      if (at == byte_of.end()) return text;
      bytes.push_back(static_cast<char>(at->second));
      i += length;
    }
    return bytes;
  }
  /// Memory is taken for every token up to the largest: a small file must not ask for much of it.
  static void require_few_holes(const byte_level_bpe_options& o, const std::string& text, token id) {
    const std::size_t most = 65536 + 16 * (o.vocabulary.size() + o.added.size());
    require<config_error>(static_cast<std::size_t>(id) < most, o.who, ": tokens of a vocabulary of ", o.vocabulary.size() + o.added.size(),
                          " must be below ", most, "; '", text, "' is ", id);
  }
  /// One token cannot stand for two texts; the same text may be in the vocabulary and among the added tokens.
  void put_bytes(const std::string& who, token id, std::string bytes) {
    if (bytes_.size() <= static_cast<std::size_t>(id)) bytes_.resize(static_cast<std::size_t>(id) + 1);
    std::string& place = bytes_[static_cast<std::size_t>(id)];
    require<config_error>(place.empty() || place == bytes, who, ": token ", id, " must stand for one text; it is '", place, "' and '",
                          bytes, "'");
    place = std::move(bytes);
  }

  [[nodiscard]] std::pair<std::size_t, const std::pair<std::string, token>*> next_added(std::string_view text, std::size_t begin) const {
    std::size_t first = text.size();
    const std::pair<std::string, token>* which = nullptr;
    for (const auto& added : added_) {  // longest first: of two at one place the longer counts
      const std::size_t at =
          text.substr(0, std::min(text.size(), which == nullptr ? text.size() : first + added.first.size())).find(added.first, begin);
      if (at != std::string_view::npos && at < first) {
        first = at;
        which = &added;
      }
    }
    return {first, which};
  }

  void encode_plain(std::string_view text, std::size_t begin, std::size_t end, std::vector<placed_token>& tokens) const {
    if (begin == end) return;
    const std::string_view part = text.substr(begin, end - begin);
    if (prefix_space_ && begin == 0 && part.front() != ' ') {  // the space is not part of the text: places are moved back
      const std::string spaced = concat(" ", part);
      std::vector<placed_token> moved;
      encode_words(spaced, 0, moved);
      for (const placed_token& t : moved) tokens.push_back({t.id, t.begin == 0 ? 0 : t.begin - 1, t.end - 1});
      return;
    }
    encode_words(part, begin, tokens);
  }
  void encode_words(std::string_view text, std::size_t offset, std::vector<placed_token>& tokens) const {
    if (!pattern_) return merge_word(text, offset, tokens);
    pattern_->for_each_word(
        text, [&](std::size_t begin, std::size_t end) { merge_word(text.substr(begin, end - begin), offset + begin, tokens); });
  }

  /// Joins the pair that was learned first, again and again. Candidates wait in a heap, so a word of n bytes costs n log n.
  void merge_word(std::string_view word, std::size_t offset, std::vector<placed_token>& tokens) const {
    struct symbol {
      token id;
      std::size_t begin, end;
      std::int64_t previous, next;
    };
    struct candidate {
      std::uint32_t rank;
      std::size_t left;
      token left_id, right_id, result;
    };
    const auto later = [](const candidate& a, const candidate& b) { return a.rank != b.rank ? a.rank > b.rank : a.left > b.left; };
    std::vector<symbol> symbols;
    symbols.reserve(word.size());
    const auto n = static_cast<std::int64_t>(word.size());
    for (std::int64_t i = 0; i < n; ++i) {
      const auto place = static_cast<std::size_t>(i);
      symbols.push_back({single_[static_cast<unsigned char>(word[place])], place, place + 1, i - 1, i + 1 < n ? i + 1 : -1});
    }
    std::vector<candidate> heap;
    const auto consider = [&](std::int64_t left) {
      if (left < 0) return;
      const symbol& a = symbols[static_cast<std::size_t>(left)];
      if (a.next < 0) return;
      const symbol& b = symbols[static_cast<std::size_t>(a.next)];
      const auto found = merges_.find(key(a.id, b.id));
      if (found == merges_.end()) return;
      heap.push_back({found->second.rank, static_cast<std::size_t>(left), a.id, b.id, found->second.result});
      std::push_heap(heap.begin(), heap.end(), later);
    };
    for (std::int64_t i = 0; i + 1 < n; ++i) consider(i);
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), later);
      const candidate best = heap.back();
      heap.pop_back();
      symbol& a = symbols[best.left];
      if (a.id != best.left_id || a.next < 0 || symbols[static_cast<std::size_t>(a.next)].id != best.right_id)
        continue;  // joined meanwhile
      symbol& b = symbols[static_cast<std::size_t>(a.next)];
      a.id = best.result;
      a.end = b.end;
      b.id = -1;
      a.next = b.next;
      if (b.next >= 0) symbols[static_cast<std::size_t>(b.next)].previous = static_cast<std::int64_t>(best.left);
      consider(a.previous);
      consider(static_cast<std::int64_t>(best.left));
    }
    for (std::int64_t i = n > 0 ? 0 : -1; i >= 0; i = symbols[static_cast<std::size_t>(i)].next) {
      const symbol& s = symbols[static_cast<std::size_t>(i)];
      tokens.push_back({s.id, offset + s.begin, offset + s.end});
    }
  }

  std::vector<std::pair<std::string, std::string>> files_;
  bool prefix_space_;
  std::unique_ptr<detail::word_pattern> pattern_;
  std::array<token, 256> single_{};
  std::vector<std::string> bytes_;  // of every token; empty for tokens that are not text
  std::unordered_map<std::uint64_t, merge> merges_;
  std::vector<std::pair<std::string, token>> added_;
};

}  // namespace xtrain
