// Tokenized samples. Memory stays bounded for any source size: what does not fit lies in an unnamed file.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/read_lifetime.hpp>
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

/// What a sample may have beside its tokens, for objectives: every sample of a dataset has the same of these.
struct sample_values {
  std::optional<token> label{};                   ///< of the sample
  std::optional<double> reference_log_prob{};     ///< by a reference model: the sum over the sample's targets
  std::span<const float> token_weights{};         ///< of each token: weight of its loss where it is a target
  std::span<const token> teacher_tokens{};        ///< of each token: the k tokens that a teacher finds most probable after it
  std::span<const float> teacher_log_probs{};     ///< and their log-probabilities
};

/// Samples of equal length that are read from somewhere when a batch needs them, in the order of training.
class sample_source {
 public:
  virtual ~sample_source() = default;
  [[nodiscard]] virtual std::size_t size() const = 0;
  /// Every sample has seq_length() + 1 tokens, each but the first a target.
  [[nodiscard]] virtual std::size_t seq_length() const = 0;
  /// Every token that read() returns is below this.
  [[nodiscard]] virtual std::size_t vocab_size() const = 0;
  /// Tokens of a sample from its token `first` on; may be called from several threads.
  ///   throws  data_error naming the place of a token that is not below vocab_size()
  virtual void read(std::size_t sample, std::size_t first, std::span<token> into) const = 0;
  /// Precedes a checksum of contents at the end of identity().
  static constexpr std::string_view checksum_follows = "; checksum ";
  /// What decides the samples and their order: files, seed, number of samples. A checkpoint records it. Empty: not known.
  [[nodiscard]] virtual std::string identity() const { return {}; }
};

/// Samples of tokens with a loss mask: each token is a target or ignored by the loss.
class dataset {
 public:
  explicit dataset(std::string source, sequence_layout layout) : source_(std::move(source)), layout_(layout) { begins_.push_back(0); }
  /// A finished dataset of layout `stream` that holds no tokens: a loader reads its samples, in their order. add(), extend(), begin(), at() and is_target()
  /// are a config_error.
  dataset(std::string source, std::shared_ptr<const sample_source> samples);
  dataset(dataset&&) = default;
  dataset& operator=(dataset&&) = default;
  ~dataset() { lifetime_.end(); }

  /// Appends a sample. `learned(i)` says whether token i is a target (the loss mask); it is called once for each token, in order.
  ///   throws  data_error if a token is negative or at least 2^30, and what `learned` throws; the dataset is then as it was, without the sample;
  ///           config_error after finish()
  template <std::predicate<std::size_t> Learned>
  void add(std::span<const token> tokens, Learned&& learned) {
    require_unfinished("add()");
    addition adding(*this);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      require_token(tokens[i]);
      const bool is_target = learned(i);
      largest_ = std::max(largest_, tokens[i]);
      tokens_.push_back(tokens[i] | (is_target ? target_bit : 0));
      if (i > 0 && is_target) ++targets_;
    }
    begins_.push_back(tokens_.size());
    adding.is_whole = true;
  }
  void add(std::span<const token> tokens);
  /// Appends a sample with values for objectives.
  ///   throws  data_error if arrays have another size than the tokens, or the teacher's k is not that of the samples before; also as above
  template <std::predicate<std::size_t> Learned>
  void add(std::span<const token> tokens, Learned&& learned, const sample_values& values) {
    require_unfinished("add()");
    addition adding(*this);
    append_values(tokens.size(), values);
    add(tokens, learned);
    adding.is_whole = true;
  }
  /// Appends tokens to the current sample: documents too large for memory arrive in pieces.
  ///   throws  data_error if a token is negative or at least 2^30; none of these tokens is then appended
  void extend(std::span<const token> tokens);
  /// Ends a sample built by `extend`.
  void end_sample();
  /// Call once, after the last sample: loaders refuse data that is not finished.
  ///   throws  data_error if no token is a target, or only some samples have a label, a reference log-probability, weights, or a teacher's tokens; if a
  ///           teacher's k tokens of one token are not different, or their log-probabilities are positive or NaN (all NaN where nothing follows: at the end of
  ///           a sample, in a stream of all samples; or in the whole sample, which must not be trained on)
  void finish();
  /// Values for all samples of a finished dataset, in place of those that it has. NaN: the sample has none, and must not be trained on.
  ///   seq_length   that samples were truncated to for them; 0: they are of whole samples, and samples must not be truncated in training
  ///   throws       data_error when there are not as many as samples (or k for every token), or a teacher's are none: see finish()
  void set_reference_log_probs(spilled_array<double> values, std::size_t seq_length = 0);
  void set_teacher_log_probs(spilled_array<token> tokens, spilled_array<float> log_probs, std::size_t k, std::size_t seq_length = 0);

  [[nodiscard]] std::size_t size() const { return samples_ ? samples_->size() : begins_.size() - 1; }
  [[nodiscard]] std::size_t tokens() const { return samples_ ? samples_->size() * samples_->seq_length() : tokens_.size(); }
  [[nodiscard]] std::size_t length(std::size_t sample) const {
    return samples_ ? samples_->seq_length() + 1 : static_cast<std::size_t>(begins_[sample + 1] - begins_[sample]);
  }
  [[nodiscard]] std::size_t begin(std::size_t sample) const {
    require_own_tokens("begin()");
    return static_cast<std::size_t>(begins_[sample]);
  }
  /// Token i of the whole dataset, and whether it is a target.
  [[nodiscard]] token at(std::size_t i) const {
    require_own_tokens("at()");
    return tokens_[i] & ~target_bit;
  }
  [[nodiscard]] bool is_target(std::size_t i) const {
    require_own_tokens("is_target()");
    return (tokens_[i] & target_bit) != 0;
  }
  /// Where a loader reads samples from; none: the dataset holds their tokens.
  [[nodiscard]] const sample_source* samples() const { return samples_.get(); }
  /// throws config_error if samples are read from a sample_source
  void require_own_tokens(const char* who) const {
    if (samples_) [[unlikely]]
      refuse_sample_source(who);
  }
  /// throws config_error before finish(), error when it was moved from
  void require_finished() const {
    require<error>(!lifetime_.is_moved_from(), "dataset: must not be used after it was moved from; use the dataset that it was moved to");
    require<config_error>(finished_, source_, ": finish() must be called after the last sample; ", size(), " samples were added");
  }
  /// Length of the longest sample, in tokens.
  [[nodiscard]] std::size_t longest() const;
  [[nodiscard]] token largest_token() const { return samples_ ? static_cast<token>(samples_->vocab_size()) - 1 : largest_; }
  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] sequence_layout layout() const { return layout_; }

  // What samples have beside tokens: a value per sample, or (k) per token of the whole dataset; empty: the dataset has none.
  [[nodiscard]] std::span<const token> labels() const { return labels_.values(); }
  [[nodiscard]] std::span<const double> reference_log_probs() const { return reference_log_probs_.values(); }
  [[nodiscard]] std::span<const float> token_weights() const { return token_weights_.values(); }
  [[nodiscard]] std::span<const token> teacher_tokens() const { return teacher_tokens_.values(); }
  [[nodiscard]] std::span<const float> teacher_log_probs() const { return teacher_log_probs_.values(); }
  /// A teacher's log-probabilities per token; 0: none.
  [[nodiscard]] std::size_t top_k() const { return top_k_; }
  /// The sequence length that samples were truncated to when a model computed these values; 0: they were not.
  [[nodiscard]] std::size_t reference_seq_length() const { return reference_seq_length_; }
  [[nodiscard]] std::size_t teacher_seq_length() const { return teacher_seq_length_; }
  /// A checksum of tokens, loss mask, samples and groups: whether values that lie in a file belong to this data.
  [[nodiscard]] std::uint64_t fingerprint() const;
  /// What a run that is resumed is compared by: source, sizes, and a checksum of some of the tokens and the number of targets; or what the sample_source
  /// says of itself.
  [[nodiscard]] std::string identity() const;
  /// For those who refer to it: whether it is still here.
  [[nodiscard]] const detail::read_lifetime& lifetime() const { return lifetime_; }

 private:
  detail::read_lifetime lifetime_;  // before what is read: it is moved first

 public:
  /// What happens to samples longer than the sequence length; refused by default.
  overlong when_too_long = overlong::refuse;
  /// So many consecutive samples stay together, in order, and are left out together: 2 for pairs of a chosen and a rejected answer.
  std::size_t group_size = 1;

 private:
  friend struct detail::dataset_parts;
  static constexpr token target_bit = token{1} << 30;
  /// Takes back what was appended since it was made, unless it is whole.
  struct addition {
    explicit addition(dataset& to);
    ~addition();
    addition(const addition&) = delete;
    addition& operator=(const addition&) = delete;
    bool is_whole = false;

   private:
    dataset& to_;
    std::size_t tokens_, begins_, labels_, reference_log_probs_, token_weights_, teacher_tokens_, teacher_log_probs_, top_k_, targets_;
    token largest_;
  };
  [[noreturn]] void refuse_sample_source(const char* who) const;
  void require_unfinished(const char* who) const {
    require_own_tokens(who);
    require<config_error>(!finished_, source_, ": ", who, " must be called before finish(): a finished dataset does not change");
    // an array that lies in a file does not grow
  }
  void require_token(token t) const;
  void append_values(std::size_t tokens, const sample_values& values);
  void require_values_of_all() const;
  void require_teacher_values(std::span<const token> all_tokens, std::span<const float> all_log_probs, std::size_t k, std::size_t seq_length) const;

  std::string source_;
  sequence_layout layout_;
  std::shared_ptr<const sample_source> samples_;
  spilled_array<token> tokens_;
  spilled_array<std::uint64_t> begins_;
  spilled_array<token> labels_, teacher_tokens_;
  spilled_array<double> reference_log_probs_;
  spilled_array<float> token_weights_, teacher_log_probs_;
  std::size_t top_k_ = 0, reference_seq_length_ = 0, teacher_seq_length_ = 0;
  std::size_t targets_ = 0;
  token largest_ = -1;
  bool extended_ = false, finished_ = false;
};

/// throws data_error unless every token of the data is below the vocabulary size
void require_tokens_below(const dataset& data, std::size_t vocabulary);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/dataset_impl.hpp>
#endif
