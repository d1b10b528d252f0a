// What the places of a text may see and where they stand, where the tokens say so themselves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/number.hpp>

namespace xtrain {

/// Which places a place sees besides itself.
struct sight {
  enum class rule : std::uint8_t {
    causal,     ///< those before it
    prefix,     ///< those before it, and everything before the begin token: the context       [Du et al. 2022, section 2.1]
    everything  ///< its whole sample                                                         [Devlin et al. 2019, section 3]
  };
  rule kind = rule::causal;
  token begin = -1;               ///< prefix: the token from which on a text is generated
  token gap = -1, word_gap = -1;  ///< prefix: the token that what is generated stands in for, and the one to look for if there is none

  friend bool operator==(const sight&, const sight&) = default;

  /// Where a place stands, counted twice, and one past the last place that it sees.
  struct place {
    std::size_t position = 0, within = 0, end = 0;
  };
  /// Where a text's context ends, and which of its places is the gap.
  struct context_end {
    std::size_t begin = 0, gap = 0;

    /// A place of the context has its own position; what is generated has the gap's, and is counted within it from 1 on.
    ///                                                                      [Du et al. 2022, section 2.1.2]
    [[nodiscard]] place at(std::size_t i) const { return i < begin ? place{i, 0, begin} : place{gap, i - begin + 1, i + 1}; }
  };

  /// A text without a begin token has no context: everything is generated. A context without a gap has it at its first place.
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

/// What a model's places see: sees() of a model that has it; others are causal.
template <class Model>
[[nodiscard]] sight sight_of(const Model& model) {
  if constexpr (requires { model.sees(); }) return model.sees();
  else return {};
}

/// Places as a rule other than the causal one lays them out; memory for them is taken once. What a rule does not have is empty.
class laid_out_places {
 public:
  laid_out_places(const sight& rule, std::size_t places) : sees_(rule) {
    for (std::vector<token>* values : {&positions, &withins, &ends, &segments, &labels, &firsts}) values->reserve(places);
  }

  std::vector<token> positions, ends;
  std::vector<token> withins;           // of a prefix
  std::vector<token> segments, labels;  // where everything is seen: one sentence, nothing to predict of rows
  std::vector<token> firsts;            // likewise: the first place of each row

  /// Rows of t tokens; `starts` says where in its row each place's sample begins, or is empty.
  const laid_out_places& lay_out(std::span<const token> tokens, std::span<const token> starts, std::size_t t) {
    const std::size_t n = tokens.size();
    positions.resize(n);
    ends.resize(n);
    if (sees_.kind == sight::rule::prefix) {
      withins.resize(n);
    } else {
      segments.assign(n, 0);
      labels.assign(n / t, -1);
      firsts.resize(n / t);
      for (std::size_t row = 0; row < n / t; ++row) firsts[row] = static_cast<token>(row * t);
    }
    for (std::size_t first = 0, last = 0; first < n; first = last) {  // a sample: places of one row with the same start
      const std::size_t row = first / t * t;
      for (last = first + 1; last < row + t && (starts.empty() || starts[last] == starts[first]);) ++last;
      lay_out_sample(tokens.subspan(first, last - first), first, first - row);
    }
    return *this;
  }

 private:
  void lay_out_sample(std::span<const token> sample, std::size_t first, std::size_t start) {
    const bool prefix = sees_.kind == sight::rule::prefix;
    const auto context = prefix ? sees_.context_of(sample) : sight::context_end{};
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const sight::place at = prefix ? context.at(i) : sight::place{i, 0, sample.size()};
      positions[first + i] = static_cast<token>(at.position);
      ends[first + i] = static_cast<token>(start + at.end);
      if (prefix) withins[first + i] = static_cast<token>(at.within);
    }
  }

  sight sees_;
};

}  // namespace xtrain
