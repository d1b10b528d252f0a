// Words to tokens, with a cache.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/text/vocabulary.hpp>

namespace xtrain::detail {

/// A token and its bytes in the word.
struct word_token {
  token id = 0;
  std::uint32_t begin = 0, end = 0;
};

/// Best segmentation up to a byte: score, last piece.
struct path_step {
  double score = 0.0;
  token id = -1;
  std::uint32_t begin = 0;
};

/// Scratch memory of a model.
struct word_scratch {
  std::vector<word_token> tokens;
  std::vector<token> ids;
  std::vector<std::uint32_t> begins, ends, next, previous;
  std::vector<std::uint64_t> heap;
  std::vector<path_step> path;
  std::string text;
  std::vector<std::uint32_t> origins;  // per byte of `text`
  std::vector<word_token> pieces;      // of `text`
};

/// Encodes words: no token crosses their ends.
class word_model {
 public:
  virtual ~word_model() = default;
  /// Appends to scratch.tokens.
  virtual void encode(std::string_view word, word_scratch& scratch) const = 0;
  [[nodiscard]] virtual const vocabulary_table& vocabulary() const = 0;
  /// Where a part of a long word may end: its tokens do not depend on the rest.
  [[nodiscard]] virtual std::size_t part_end(std::string_view word, std::size_t begin) const {
    (void)begin;
    return word.size();
  }
};

/// Fixed size; a new word replaces the old in its slot.
class word_memory {
 public:
  word_memory() : slots_(count) {}

  /// emit(token, begin, end) with bytes in the word.
  template <class Emit>
  void encode(const word_model& model, std::string_view word, Emit&& emit) {
    if (word.size() > longest) {
      scratch_.tokens.clear();
      model.encode(word, scratch_);
      for (const word_token& t : scratch_.tokens) emit(t.id, t.begin, t.end);
      return;
    }
    slot& s = slots_[hash_of(word) >> (64 - count_bits)];
    if (s.length != word.size() || std::memcmp(s.text.data(), word.data(), word.size()) != 0) {
      scratch_.tokens.clear();
      model.encode(word, scratch_);
      if (!remember(s, word)) {
        for (const word_token& t : scratch_.tokens) emit(t.id, t.begin, t.end);
        return;
      }
    }
    std::uint32_t begin = 0;
    for (std::size_t i = 0; i < s.tokens; ++i) {
      emit(s.ids[i], begin, s.ends[i]);
      begin = s.ends[i];
    }
  }
  /// For words that are not cached.
  [[nodiscard]] word_scratch& scratch() { return scratch_; }

 private:
  static constexpr std::size_t count_bits = 15, count = std::size_t{1} << count_bits;
  static constexpr std::size_t longest = 32, max_tokens = 6;

  struct slot {
    std::uint8_t length = 0, tokens = 0;
    std::array<std::uint8_t, max_tokens> ends{};
    std::array<char, longest> text{};
    std::array<token, max_tokens> ids{};
  };

  /// Caches words of few adjacent tokens.
  bool remember(slot& s, std::string_view word) {
    if (scratch_.tokens.size() > max_tokens) return false;
    std::uint32_t end = 0;
    for (const word_token& t : scratch_.tokens) {
      if (t.begin != end) return false;
      end = t.end;
    }
    s.length = static_cast<std::uint8_t>(word.size());
    std::memcpy(s.text.data(), word.data(), word.size());
    s.tokens = static_cast<std::uint8_t>(scratch_.tokens.size());
    for (std::size_t i = 0; i < s.tokens; ++i) {
      s.ids[i] = scratch_.tokens[i].id;
      s.ends[i] = static_cast<std::uint8_t>(scratch_.tokens[i].end);
    }
    return true;
  }

  std::vector<slot> slots_;
  word_scratch scratch_;
};

/// Caches, each lent to one thread at a time; as many as threads ever encoded at once.
class word_memories {
 public:
  class lent {
   public:
    explicit lent(word_memories& from) : from_(&from), memory_(from.take()) {}
    ~lent() { from_->give_back(std::move(memory_)); }
    lent(const lent&) = delete;
    lent& operator=(const lent&) = delete;
    [[nodiscard]] word_memory& operator*() const { return *memory_; }

   private:
    word_memories* from_;
    std::unique_ptr<word_memory> memory_;
  };

 private:
  std::unique_ptr<word_memory> take() {
    {
      const std::lock_guard guard(mutex_);
      if (!idle_.empty()) {
        auto one = std::move(idle_.back());
        idle_.pop_back();
        return one;
      }
    }
    return std::make_unique<word_memory>();
  }
  void give_back(std::unique_ptr<word_memory> one) {
    const std::lock_guard guard(mutex_);
    idle_.push_back(std::move(one));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<word_memory>> idle_;
};

}  // namespace xtrain::detail
