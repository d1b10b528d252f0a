// Attention masks, and positions computed from the tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain {

/// The attention mask: which tokens a token attends to besides itself.
struct attention_mask {
  enum class rule : std::uint8_t {
    causal,        ///< the previous tokens
    prefix,        ///< the previous tokens, and the context: all tokens before the begin token        [Du et al. 2022, section 2.1]
    bidirectional  ///< the whole sample                                                               [Devlin et al. 2019, section 3]
  };
  rule kind = rule::causal;
  token begin = -1;               ///< prefix: the token at which the generated span begins
  token gap = -1, word_gap = -1;  ///< prefix: the mask token that the generated span replaces, and the fallback if there is none
  std::size_t virtual_tokens = 0;  ///< prefix: keys and values that an adapter puts before every sequence; every token attends to them

  friend bool operator==(const attention_mask&, const attention_mask&) = default;

  /// The two positions of a token, and one past the last token it attends to.
  struct place {
    std::size_t position = 0, within = 0, end = 0;
  };
  /// Where a text's context ends, and the index of the gap (mask token) in it.
  struct context_end {
    std::size_t begin = 0, gap = 0;

    /// A token of the context has its own position; a generated one has the gap's, and a second position within the span, from 1.
    ///                                                                      [Du et al. 2022, section 2.1.2]
    [[nodiscard]] place at(std::size_t i) const { return i < begin ? place{i, 0, begin} : place{gap, i - begin + 1, i + 1}; }
  };

  /// A text without a begin token has no context: everything is generated. A context without a gap has it at its first token.
  [[nodiscard]] context_end context_of(std::span<const token> text) const {
    const auto find = [](std::span<const token> in, token what) {
      return static_cast<std::size_t>(std::find(in.begin(), in.end(), what) - in.begin());
    };
    const std::size_t at = find(text, begin);
    if (at == text.size()) return {};
    const std::span<const token> context = text.first(at);
    for (const token what : {gap, word_gap})
      if (const std::size_t found = find(context, what); found < at) return {at, found};
    return {at, 0};
  }
};

/// A model's attention mask: causal if it has no mask(), with which it has tokens_before().
template <class Model>
[[nodiscard]] attention_mask attention_mask_of(const Model&) {
  return {};
}
template <class Model>
requires requires(const Model& model) { model.mask(); }
[[nodiscard]] attention_mask attention_mask_of(const Model& model) {
  attention_mask mask = model.mask();
  if (mask.kind == attention_mask::rule::prefix) mask.virtual_tokens = model.tokens_before();
  return mask;
}

/// Positions and masks of a mask kind that is not causal; memory is allocated once. Arrays that a kind does not have are empty.
class token_layout {
 public:
  token_layout(const attention_mask& rule, std::size_t num_tokens) : mask_(rule) {
    for (std::vector<token>* values : {&positions, &withins, &segments, &labels, &firsts}) values->reserve(num_tokens);
    ends.reserve(num_tokens * (1 + rule.virtual_tokens));
  }

  std::vector<token> positions;
  std::vector<token> ends;               // of each sequence: its virtual tokens', then its tokens'
  std::vector<token> withins;           // prefix
  std::vector<token> segments, labels;  // bidirectional: one segment, no label per sequence
  std::vector<token> firsts;            // bidirectional: index of each sequence's first token

  /// Sequences of t tokens; `starts`: index in the sequence where each token's sample starts, or empty.
  const token_layout& lay_out(std::span<const token> tokens, std::span<const token> starts, std::size_t t) {
    const std::size_t n = tokens.size();
    positions.resize(n);
    ends.assign(n + n / t * mask_.virtual_tokens, 1);  // what virtual tokens attend to is not used
    if (mask_.kind == attention_mask::rule::prefix) {
      withins.resize(n);
    } else {
      segments.assign(n, 0);
      labels.assign(n / t, -1);
      firsts.resize(n / t);
      for (std::size_t row = 0; row < n / t; ++row) firsts[row] = static_cast<token>(row * t);
    }
    for (std::size_t first = 0, last = 0; first < n; first = last) {  // a sample: tokens of one sequence with the same start
      const std::size_t row = first / t * t;
      for (last = first + 1; last < row + t && (starts.empty() || starts[last] == starts[first]);) ++last;
      lay_out_sample(tokens.subspan(first, last - first), first, first - row, t);
    }
    return *this;
  }

 private:
  /// A sample that begins at token `first` of all, and at `start` of its sequence.
  void lay_out_sample(std::span<const token> sample, std::size_t first, std::size_t start, std::size_t t) {
    const std::size_t before = mask_.virtual_tokens, first_end = first + (first / t + 1) * before;
    const bool prefix = mask_.kind == attention_mask::rule::prefix;
    const auto context = prefix ? mask_.context_of(sample) : attention_mask::context_end{};
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const attention_mask::place at = prefix ? context.at(i) : attention_mask::place{i, 0, sample.size()};
      positions[first + i] = static_cast<token>(at.position);
      ends[first_end + i] = static_cast<token>(before + start + at.end);
      if (prefix) withins[first + i] = static_cast<token>(at.within);
    }
  }

  attention_mask mask_;
};

}  // namespace xtrain
