// Merge table and merging of byte-pair encodings. Component 'text'.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/text/byte_trie.hpp>
#include <xtrain/text/unicode.hpp>
#include <xtrain/text/vocabulary.hpp>
#include <xtrain/text/word_model.hpp>

namespace xtrain::detail {

/// Pairs that merge: rank and resulting token.
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
  /// Of duplicates the last.
  void put(token left, token right, merge value) { slots_[slot_of(key_of(left, right))] = {key_of(left, right), value}; }
  [[nodiscard]] merge find(token left, token right) const { return slots_[slot_of(key_of(left, right))].value; }

 private:
  struct slot {
    std::uint64_t key = empty;
    merge value;
  };
  static constexpr std::uint64_t empty = std::numeric_limits<std::uint64_t>::max();  // not a pair: tokens are non-negative
  [[nodiscard]] static std::uint64_t key_of(token left, token right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] std::size_t slot_of(std::uint64_t key) const {
    std::size_t i = static_cast<std::size_t>(key * 0x9E3779B97F4A7C15U >> shift_);
    while (slots_[i].key != key && slots_[i].key != empty) i = (i + 1) & (slots_.size() - 1);
    return i;
  }
  std::vector<slot> slots_;
  int shift_ = 0;
};

/// Adjacent characters inside tokens: a word may be cut between others.
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

/// visit(left, right, both) for every split of a token into two, in order of `both`.
template <class Visit>
void for_each_split(const vocabulary_table& vocabulary, Visit&& visit) {
  for (token both = 0; static_cast<std::size_t>(both) < vocabulary.size(); ++both) {
    const std::string_view text = vocabulary.text(both);
    if (text.size() > byte_trie::longest) continue;
    for (std::size_t at = 0; at < text.size();) {
      at += character_at(text, at).bytes;
      if (at >= text.size()) break;
      const token left = vocabulary.find(text.substr(0, at));
      if (left < 0) continue;
      if (const token right = vocabulary.find(text.substr(at)); right >= 0) visit(left, right, both);
    }
  }
}

inline constexpr std::size_t few_symbols = 40;

/// Few symbols: linear search.
inline void join_few(const merge_table& merges, word_scratch& scratch) {
  token* ids = scratch.ids.data();
  std::uint32_t *begins = scratch.begins.data(), *ends = scratch.ends.data();
  std::size_t n = scratch.ids.size();
  std::array<merge_table::merge, few_symbols> pairs;  // of symbols i and i + 1
  for (std::size_t i = 0; i + 1 < n; ++i) pairs[i] = merges.find(ids[i], ids[i + 1]);
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == merge_table::none) break;
    ids[best] = pairs[best].result;
    ends[best] = ends[best + 1];
    for (std::size_t i = best + 1; i + 1 < n; ++i) {
      ids[i] = ids[i + 1];
      begins[i] = begins[i + 1];
      ends[i] = ends[i + 1];
      pairs[i - 1] = pairs[i];
    }
    --n;
    if (best > 0) pairs[best - 1] = merges.find(ids[best - 1], ids[best]);
    if (best + 1 < n) pairs[best] = merges.find(ids[best], ids[best + 1]);
  }
  for (std::size_t i = 0; i < n; ++i) scratch.tokens.push_back({ids[i], begins[i], ends[i]});
}

/// Many symbols: a heap, O(n log n).
///   seen(left, right, result)  called when a pair that can merge becomes adjacent: indices into scratch.ids, resulting token
template <class Seen>
void join_many(const merge_table& merges, word_scratch& scratch, Seen&& seen) {
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
    const merge_table::merge found = merges.find(ids[left], ids[next[left]]);
    if (found.rank == merge_table::none) return;
    seen(left, next[left], found.result);
    heap.push_back(static_cast<std::uint64_t>(found.rank) << 32 | left);  // equal ranks: leftmost first
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
    if (ids[left] < 0 || next[left] == nowhere) continue;  // merged meanwhile
    const std::uint32_t right = next[left];
    const merge_table::merge found = merges.find(ids[left], ids[right]);
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

/// Merges scratch.ids, .begins, .ends by lowest rank, then leftmost, until no pair merges; appends to scratch.tokens.
inline void join_symbols(const merge_table& merges, word_scratch& scratch) {
  if (scratch.ids.size() <= few_symbols) join_few(merges, scratch);
  else join_many(merges, scratch, [](std::uint32_t, std::uint32_t, token) {});
}

}  // namespace xtrain::detail
