// Tokens with a loss mask by byte ranges.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/text_span.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

namespace detail {

/// A sample under construction.
struct text_with_loss_mask {
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
  void shorten(std::size_t size) {
    tokens.resize(size);
    learned.resize(size);
  }
  /// Appends tokens of `text`, whose first byte has offset `at` in the coordinates of `answers` (ordered). A token that overlaps an answer is a target.
  void add(std::string_view text, std::size_t at, std::span<const text_span> answers, const tokenizer& with) {
    add(with.encode_placed(text), at, answers);
  }
  /// For tokens with places relative to `at`.
  void add(std::span<const placed_token> text, std::size_t at, std::span<const text_span> answers) {
    std::size_t next = 0;
    for (const placed_token& t : text) {
      while (next < answers.size() && answers[next].end <= at + t.begin) ++next;
      add(t.id, next < answers.size() && answers[next].begin < at + t.end);
    }
  }
  /// Appends the sample; `everything`: all tokens are targets.
  void add_to(dataset& all, bool everything) const {
    all.add(tokens, [&](std::size_t i) { return everything || learned[i]; });
  }
};

}  // namespace detail

}  // namespace xtrain
