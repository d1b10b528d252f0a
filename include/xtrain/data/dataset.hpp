// Tokenized samples. Memory stays bounded for any source size: what does not fit lies in an unnamed file.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/data/spill.hpp>

namespace xtrain {

namespace detail {
struct dataset_parts;  // once_per_host.hpp

}

/// How samples become sequences of a batch.
enum class sequence_layout : std::uint8_t {
  stream,    ///< all samples concatenated and cut into sequences of the sequence length: pre-training
  separate,  ///< one sample per sequence, padded to the longest of the step
  packed     ///< several samples per sequence; each attends only to itself, its positions begin at 0
};

/// What happens to a sample longer than the sequence length.
enum class overlong : std::uint8_t { refuse, truncate, leave_out };

/// Samples of tokens with a loss mask: each token is a target or ignored by the loss.
class dataset {
 public:
  explicit dataset(std::string source, sequence_layout layout) : source_(std::move(source)), layout_(layout) { begins_.push_back(0); }

  /// Appends a sample. `learned(i)` says whether token i is a target (the loss mask).
  ///   throws  data_error if a token is negative or at least 2^30
  template <class Learned>
  void add(std::span<const token> tokens, Learned&& learned) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      require_token(tokens[i]);
      largest_ = std::max(largest_, tokens[i]);
      tokens_.push_back(tokens[i] | (learned(i) ? target_bit : 0));
      if (i > 0 && learned(i)) ++targets_;
    }
    begins_.push_back(tokens_.size());
  }
  void add(std::span<const token> tokens);
  /// Appends tokens to the current sample: documents too large for memory arrive in pieces.
  void extend(std::span<const token> tokens);
  /// Ends a sample built by `extend`.
  void end_sample();
  /// Call once, after the last sample.
  ///   throws  data_error if no token is a target
  void finish();

  [[nodiscard]] std::size_t size() const { return begins_.size() - 1; }
  [[nodiscard]] std::size_t tokens() const { return tokens_.size(); }
  [[nodiscard]] std::size_t length(std::size_t sample) const { return static_cast<std::size_t>(begins_[sample + 1] - begins_[sample]); }
  [[nodiscard]] std::size_t begin(std::size_t sample) const { return static_cast<std::size_t>(begins_[sample]); }
  /// Token i of the whole dataset, and whether it is a target.
  [[nodiscard]] token at(std::size_t i) const { return tokens_[i] & ~target_bit; }
  [[nodiscard]] bool is_target(std::size_t i) const { return (tokens_[i] & target_bit) != 0; }
  /// Length of the longest sample, in tokens.
  [[nodiscard]] std::size_t longest() const;
  [[nodiscard]] token largest_token() const { return largest_; }
  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] sequence_layout layout() const { return layout_; }

  /// What happens to samples longer than the sequence length; refused by default.
  overlong when_too_long = overlong::refuse;
  /// So many consecutive samples stay together, in order, and are left out together: 2 for pairs of a chosen and a rejected answer.
  std::size_t group_size = 1;

 private:
  friend struct detail::dataset_parts;
  static constexpr token target_bit = token{1} << 30;
  void require_token(token t) const;

  std::string source_;
  sequence_layout layout_;
  spilled_array<token> tokens_;
  spilled_array<std::uint64_t> begins_;
  std::size_t targets_ = 0;
  token largest_ = -1;
  bool extended_ = false;
};

/// throws data_error unless every token of the data is below the vocabulary size
void require_tokens_below(const dataset& data, std::size_t vocabulary);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/dataset_impl.hpp>
#endif
