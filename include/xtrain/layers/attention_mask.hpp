#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain {

/// Which tokens a token attends to besides itself.
struct attention_mask {
  enum class rule : std::uint8_t {
    causal,        ///< previous tokens
    prefix,        ///< previous tokens and the context: all before the begin token [Du et al. 2022, section 2.1]
    bidirectional  ///< the sample [Devlin et al. 2019, section 3]
  };
  rule kind = rule::causal;
  token begin = -1;               ///< prefix: first token of the generated span
  token gap = -1, word_gap = -1;  ///< prefix: the mask token that the span replaces, and its fallback
  std::size_t virtual_tokens = 0;  ///< prefix: an adapter's keys and values before every sequence, visible to every token

  friend bool operator==(const attention_mask&, const attention_mask&) = default;

  /// A token's two positions, and the end of what it attends to.
  struct place {
    std::size_t position = 0, within = 0, end = 0;
  };
  /// End of the context, and index of its gap (mask token).
  struct context_end {
    std::size_t begin = 0, gap = 0;

    /// Context tokens have their index; generated tokens the gap's, and a second position from 1. [Du et al. 2022, section 2.1.2]
    [[nodiscard]] place at(std::size_t i) const { return i < begin ? place{i, 0, begin} : place{gap, i - begin + 1, i + 1}; }
  };

  /// Everything is generated without a begin token. The gap's default index is 0.
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

/// A model's mask() with its tokens_before(); causal without mask().
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

/// Positions and masks of a non-causal mask; memory is allocated once. Arrays that the kind lacks are empty.
class token_layout {
 public:
  token_layout(const attention_mask& rule, std::size_t num_tokens) : mask_(rule) {
    for (std::vector<token>* values : {&positions, &withins, &segments, &labels, &firsts}) values->reserve(num_tokens);
    ends.reserve(num_tokens * (1 + rule.virtual_tokens));
  }

  std::vector<token> positions;
  std::vector<token> ends;               // per sequence: virtual tokens, then tokens
  std::vector<token> withins;
  std::vector<token> segments, labels;  // bidirectional: one segment, no label per sequence
  std::vector<token> firsts;            // bidirectional: index of each sequence's first token

  /// Sequences of t tokens; `starts`: index in the sequence where a token's sample starts, or empty.
  const token_layout& lay_out(std::span<const token> tokens, std::span<const token> starts, std::size_t t) {
    const std::size_t n = tokens.size();
    positions.resize(n);
    ends.assign(n + n / t * mask_.virtual_tokens, 1);  // virtual tokens' ends are unused
    if (mask_.kind == attention_mask::rule::prefix) {
      withins.resize(n);
    } else {
      segments.assign(n, 0);
      labels.assign(n / t, -1);
      firsts.resize(n / t);
      for (std::size_t row = 0; row < n / t; ++row) firsts[row] = static_cast<token>(row * t);
    }
    for (std::size_t first = 0, last = 0; first < n; first = last) {  // a sample: tokens of a sequence with equal starts
      const std::size_t row = first / t * t;
      for (last = first + 1; last < row + t && (starts.empty() || starts[last] == starts[first]);) ++last;
      lay_out_sample(tokens.subspan(first, last - first), first, first - row, t);
    }
    return *this;
  }

 private:
  /// A sample from token `first` of all and `start` of its sequence.
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
