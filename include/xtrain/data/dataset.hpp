// Tokenized samples in bounded memory: large arrays are in an unnamed file.
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

/// How samples become sequences.
enum class sequence_layout : std::uint8_t {
  stream,    ///< samples concatenated, cut at the sequence length: pre-training
  separate,  ///< a sample per sequence, padded to the longest of the step
  packed     ///< several samples per sequence, each with separate attention and positions from 0
};

/// Treatment of samples longer than the sequence length.
enum class overlong : std::uint8_t { refuse, truncate, leave_out };

/// Values of a sample besides tokens, for objectives; all samples of a dataset have the same kinds.
struct sample_values {
  std::optional<token> label{};
  std::optional<double> reference_log_prob{};     ///< by a reference model, summed over targets
  std::span<const float> token_weights{};         ///< per token: weight of its loss as target
  std::span<const token> teacher_tokens{};        ///< per token: the teacher's k most probable next tokens
  std::span<const float> teacher_log_probs{};     ///< and their log-probabilities
};

/// Samples of equal length, read on demand in training order.
class sample_source {
 public:
  virtual ~sample_source() = default;
  [[nodiscard]] virtual std::size_t size() const = 0;
  /// Samples have seq_length() + 1 tokens; all but the first are targets.
  [[nodiscard]] virtual std::size_t seq_length() const = 0;
  /// Tokens of read() are below this.
  [[nodiscard]] virtual std::size_t vocab_size() const = 0;
  /// A sample's tokens from `first` on; thread-safe.
  ///   throws  data_error with the place of a token not below vocab_size()
  virtual void read(std::size_t sample, std::size_t first, std::span<token> into) const = 0;
  /// Precedes the checksum at the end of identity().
  static constexpr std::string_view checksum_follows = "; checksum ";
  /// What decides samples and order (files, seed, number of samples), for checkpoints. Empty: unknown.
  [[nodiscard]] virtual std::string identity() const { return {}; }
};

/// Samples of tokens with a loss mask.
class dataset {
 public:
  explicit dataset(std::string source, sequence_layout layout) : source_(std::move(source)), layout_(layout) { begins_.push_back(0); }
  /// A finished `stream` dataset without tokens: a loader reads samples in their order. add(), extend(), begin(), at() and is_target() throw config_error.
  dataset(std::string source, std::shared_ptr<const sample_source> samples);
  dataset(dataset&&) = default;
  dataset& operator=(dataset&&) = default;
  ~dataset() { lifetime_.end(); }

  /// Appends a sample. learned(i): token i is a target; called once per token, in order.
  ///   throws  data_error if a token is negative or at least 2^30, and errors of `learned`: the dataset is unchanged; config_error after finish()
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
  /// With values for objectives.
  ///   throws  also data_error if array sizes do not match the tokens, or the teacher's k differs
  template <std::predicate<std::size_t> Learned>
  void add(std::span<const token> tokens, Learned&& learned, const sample_values& values) {
    require_unfinished("add()");
    addition adding(*this);
    append_values(tokens.size(), values);
    add(tokens, learned);
    adding.is_whole = true;
  }
  /// Appends tokens to the current sample, for documents larger than memory.
  ///   throws  data_error if a token is negative or at least 2^30: none is appended
  void extend(std::span<const token> tokens);
  void end_sample();
  /// Call once after the last sample: loaders require it.
  ///   throws  data_error if no token is a target, only some samples have a kind of value, a teacher's k tokens of a token are equal, or log-probabilities are
  ///           positive or NaN (allowed: NaN for all k where nothing follows, or for a sample that must not be trained on)
  void finish();
  /// Replaces the values of a finished dataset. NaN: no value; the sample must not be trained on.
  ///   seq_length   truncation of the samples they belong to; 0: none, also not in training
  ///   throws       data_error when sizes do not match the samples (tokens x k), or for invalid teacher values: see finish()
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
  [[nodiscard]] token at(std::size_t i) const {
    require_own_tokens("at()");
    return tokens_[i] & ~target_bit;
  }
  [[nodiscard]] bool is_target(std::size_t i) const {
    require_own_tokens("is_target()");
    return (tokens_[i] & target_bit) != 0;
  }
  /// Null: the dataset holds tokens.
  [[nodiscard]] const sample_source* samples() const { return samples_.get(); }
  /// throws config_error with a sample_source
  void require_own_tokens(const char* who) const {
    if (samples_) [[unlikely]]
      refuse_sample_source(who);
  }
  /// throws config_error before finish(), error when it was moved from
  void require_finished() const {
    require<error>(!lifetime_.is_moved_from(), "dataset: must not be used after it was moved from; use the dataset that it was moved to");
    require<config_error>(finished_, source_, ": finish() must be called after the last sample; ", size(), " samples were added");
  }
  [[nodiscard]] std::size_t longest() const;
  [[nodiscard]] token largest_token() const { return samples_ ? static_cast<token>(samples_->vocab_size()) - 1 : largest_; }
  [[nodiscard]] const std::string& source() const { return source_; }
  [[nodiscard]] sequence_layout layout() const { return layout_; }

  // One value per sample, or (k) per token of the dataset; empty: none.
  [[nodiscard]] std::span<const token> labels() const { return labels_.values(); }
  [[nodiscard]] std::span<const double> reference_log_probs() const { return reference_log_probs_.values(); }
  [[nodiscard]] std::span<const float> token_weights() const { return token_weights_.values(); }
  [[nodiscard]] std::span<const token> teacher_tokens() const { return teacher_tokens_.values(); }
  [[nodiscard]] std::span<const float> teacher_log_probs() const { return teacher_log_probs_.values(); }
  /// Log-probabilities per token by a teacher; 0: none.
  [[nodiscard]] std::size_t top_k() const { return top_k_; }
  /// Truncation of samples when a model computed these values; 0: none.
  [[nodiscard]] std::size_t reference_seq_length() const { return reference_seq_length_; }
  [[nodiscard]] std::size_t teacher_seq_length() const { return teacher_seq_length_; }
  /// Checksum of tokens, loss mask, samples and groups, for matching files of values.
  [[nodiscard]] std::uint64_t fingerprint() const;
  /// For resuming: source, sizes, a checksum of some tokens, number of targets; or the sample_source's.
  [[nodiscard]] std::string identity() const;
  /// For those who refer to it: whether it is still here.
  [[nodiscard]] const detail::read_lifetime& lifetime() const { return lifetime_; }

 private:
  detail::read_lifetime lifetime_;  // before what is read: it is moved first

 public:
  overlong when_too_long = overlong::refuse;
  /// Consecutive samples that stay together, in order, or are left out together: 2 for chosen and rejected answers.
  std::size_t group_size = 1;

 private:
  friend struct detail::dataset_parts;
  static constexpr token target_bit = token{1} << 30;
  /// Reverts appends since its construction, unless is_whole.
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
    // mapped arrays cannot grow
    require<config_error>(!finished_, source_, ": ", who, " must be called before finish(): a finished dataset does not change");
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

/// throws data_error unless every token is below the vocabulary size
void require_tokens_below(const dataset& data, std::size_t vocabulary);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/dataset_impl.hpp>
#endif
