// A text as tokens, of which some are learned: those that come from given bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <xtrain/core/number.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/text_span.hpp>
#include <xtrain/data/tokenizer.hpp>

namespace xtrain {

namespace detail {

/// A sample in the making.
struct learned_text {
  std::vector<token> tokens;
  std::vector<bool> learned;

  void clear() {
    tokens.clear();
    learned.clear();
  }
  void add(token id, bool learn) {
    tokens.push_back(id);
    learned.push_back(learn);
  }
  /// The tokens of `text`, whose first byte is byte `at` of what `answers` speak of: a token with even one byte of an answer is
  /// learned, whatever the answer says. Answers come one behind the other.
  void add(std::string_view text, std::size_t at, std::span<const text_span> answers, const tokenizer& with) {
    std::size_t next = 0;
    for (const placed_token& t : with.encode_placed(text)) {
      while (next < answers.size() && answers[next].end <= at + t.begin) ++next;
      add(t.id, next < answers.size() && answers[next].begin < at + t.end);
    }
  }
  /// Becomes a sample; all of it is learned if `everything`.
  void add_to(dataset& all, bool everything) const {
    all.add(tokens, [&](std::size_t i) { return everything || learned[i]; });
  }
};

}  // namespace detail

}  // namespace xtrain
