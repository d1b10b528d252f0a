// Sequences of a dataset in shuffled order, the micro-batches of one step at a time, prepared in the background.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <thread>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/global_batch_sizes.hpp>

namespace xtrain {

/// One micro-batch on the host: b sequences of t tokens.
struct host_batch {
  std::size_t b = 0, t = 0;
  std::vector<token> tokens{};
  std::vector<token> targets{};  ///< next token to predict; negative: ignored by the loss; padding_target: of padding
  std::vector<token> positions{};
  std::vector<token> starts{};
  std::vector<token> ends{};      ///< for bidirectional attention: end of the attended range of each token, within its sequence
  std::vector<token> segments{};  ///< token type ids: which sentence of its sequence each token belongs to
  std::vector<token> labels{};    ///< per sequence: its label; negative: none
  std::vector<float> token_weights{};         ///< per token: weight of its loss; empty: all 1
  std::vector<token> teacher_tokens{};        ///< per token: the k most probable next tokens by a teacher; empty: not in the data
  std::vector<float> teacher_log_probs{};     ///< and their log-probabilities
  std::vector<double> reference_log_probs{};  ///< per sequence: log-probability by a reference model; empty: not in the data
  std::vector<double> advantages{};           ///< per sequence, for grpo, or per token, for ppo; empty: not in the data
  std::vector<float> old_log_probs{};         ///< per token: log-probability of its target by the model that generated it; empty: not in the data
  std::vector<float> reference_token_log_probs{};  ///< per token: the same by a reference model; empty: not in the data
  std::vector<float> old_values{}, returns{};      ///< per token, for ppo_value: values before this step, and what they should be; empty: not in the data
  std::size_t target_count = 0;    ///< targets that are not negative: the loss is the mean over so many, and a step refuses another number
  std::size_t token_count = 0;     ///< without padding
  std::size_t first_sequence = 0;  ///< within the step
};

/// A loader's position in the data: enough to resume from.
struct loader_state {
  std::size_t epoch = 0;
  std::size_t step = 0;  ///< within the epoch

  friend bool operator==(const loader_state&, const loader_state&) = default;
};

/// Samples of a dataset that training learns nothing from.
struct unused_samples {
  std::size_t all = 0;              ///< samples of the dataset
  std::size_t left_out = 0;         ///< too long, or with less than two tokens; or another sample of their group is, or loses all its targets
  std::size_t without_targets = 0;  ///< in the sequences, but the loss mask, or the sequence length, leaves them no target
};

/// How a loader makes batches of a dataset.
struct loader_config {
  std::size_t micro_batch_size = 8;             ///< in sequences
  std::size_t gradient_accumulation_steps = 1;  ///< micro-batches per step
  std::size_t seq_length = 0;                   ///< in tokens; longer samples are truncated, left out or refused, see dataset::when_too_long
  bool shuffle = true;
  std::uint64_t seed = 42;
  token pad_token_id = 0;  ///< token that fills padded positions
  /// Data-parallel ranks: each gets `micro_batch_size` sequences of every micro-batch. The sequences of a step, and their order, are those that
  /// one rank would have with `ranks` times as many micro-batches.
  std::size_t ranks = 1;
  std::size_t rank = 0;
  std::size_t pad_to_multiple_of = 8;               ///< sequences of one sample each are padded to a multiple of this
  /// The size of each micro-batch, if they differ: `gradient_accumulation_steps` sizes, whose sum is micro_batch_size times as much.
  std::vector<std::size_t> micro_batch_sizes = {};
  bool drop_last = false;  ///< an epoch ends with its last whole step: sequences that do not fill one are left out, others in every epoch
  std::size_t max_steps_per_epoch = 0;  ///< an epoch ends after so many steps; 0: it is not cut
  batch_size_rampup rampup = {};        ///< steps have fewer micro-batches at first; for data whose samples are those of a whole run (sample_source)

  /// Of a step after the ramp-up, if there is one.
  [[nodiscard]] std::size_t sequences_per_step() const { return micro_batch_size * gradient_accumulation_steps * ranks; }
  [[nodiscard]] global_batch_sizes batch_sizes() const { return {sequences_per_step(), rampup, micro_batch_size * ranks}; }
  /// Of `rows` sequences.
  [[nodiscard]] std::size_t steps_per_epoch(std::size_t rows) const {
    const global_batch_sizes sizes = batch_sizes();
    std::size_t whole = sizes.whole_steps(rows);
    if (!drop_last && sizes.before(whole) < rows) ++whole;
    return max_steps_per_epoch > 0 ? std::min(whole, max_steps_per_epoch) : whole;
  }
};

/// The sequences of a dataset. The order of an epoch is a function of (seed, epoch), or that of the dataset's sample_source, which is never shuffled;
/// every sequence occurs once per epoch, unless epochs are cut, and the last step of an epoch may have fewer sequences with targets.
class loader {
 public:
  /// throws config_error if a size is 0; data_error if a sample is longer than the sequence length, or no target is within it
  loader(const dataset& from, const loader_config& settings);
  loader(const dataset&&, const loader_config&) = delete;  // the dataset must outlive it
  ~loader();
  loader(const loader&) = delete;
  loader& operator=(const loader&) = delete;

  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::size_t sequences_per_step() const { return config_.sequences_per_step(); }
  [[nodiscard]] std::size_t steps_per_epoch() const { return steps_per_epoch_; }
  [[nodiscard]] const global_batch_sizes& batch_sizes() const { return batch_sizes_; }
  [[nodiscard]] const loader_config& config() const { return config_; }
  /// throws  config_error when it was moved, assigned to or destroyed
  [[nodiscard]] const dataset& data() const {
    (void)hold_data();
    return *data_;
  }
  /// Counted where samples are sequences of their own, or packed; 0 of a stream.
  [[nodiscard]] const unused_samples& unused() const { return unused_; }

  /// The position of the next step.
  [[nodiscard]] loader_state state() const { return state_; }
  /// Resumes from a saved position. Prepared batches are discarded.
  ///   throws  config_error if the state does not fit this data and these sizes
  void restore(const loader_state& state);

  /// The micro-batches of the next step, valid until the next call.
  ///   throws  config_error when the dataset was moved, assigned to or destroyed
  [[nodiscard]] std::span<const host_batch> next();

  /// Builds the micro-batches of any step, synchronously.
  void fill(const loader_state& at, std::vector<host_batch>& batches) const;

 private:
  /// Number of inputs of a sample: one fewer than its tokens.
  [[nodiscard]] std::size_t inputs_of(std::size_t sample) const { return data_->length(sample) - 1; }
  [[nodiscard]] std::size_t limited(std::size_t inputs) const { return std::min(inputs, config_.seq_length); }

  void lay_out_sequences();
  /// throws data_error when values that a model computed are not those of the sample as it is read here
  void require_values_of(std::size_t sample) const;
  /// Whether the group of samples that begins with this one is used: it is, or is not, as a whole. A group of which a sample loses all its
  /// targets by truncation is not.
  ///   throws  data_error when one of them has fewer than two tokens
  [[nodiscard]] bool keeps_group(std::size_t first) const;

  [[nodiscard]] std::size_t row_length(std::size_t row) const;

  /// Sequences of a micro-batch, and of all micro-batches before it.
  [[nodiscard]] std::size_t micro_batch_size(std::size_t m) const {
    return config_.micro_batch_sizes.empty() ? config_.micro_batch_size : config_.micro_batch_sizes[m];
  }
  [[nodiscard]] std::size_t rows_before(std::size_t m) const;

  void clear(host_batch& batch, std::size_t b, std::size_t t) const;
  void clear_values(host_batch& batch) const;

  void put_row(std::size_t row, std::size_t r, host_batch& batch) const;
  /// A sample that is read from the dataset's sample_source.
  void put_sample(std::size_t sample, std::size_t r, host_batch& batch) const;

  /// Writes `inputs` tokens from token `first` on to index `to` of the batch; their sample begins at position `start` of the sequence.
  void put(std::size_t first, std::size_t inputs, std::size_t to, std::size_t start, host_batch& batch) const;
  void put_token_values(std::size_t first, std::size_t inputs, std::size_t to, host_batch& batch) const;

  [[nodiscard]] loader_state after(const loader_state& state) const;

  void work();

  [[nodiscard]] std::shared_lock<std::shared_mutex> hold_data() const { return data_life_.hold("loader", "dataset"); }

  const dataset* data_;
  detail::read_watch data_life_;
  loader_config config_;
  global_batch_sizes batch_sizes_;
  std::size_t rows_ = 0, steps_per_epoch_ = 0;
  unused_samples unused_{};
  spilled_array<std::uint64_t> samples_;     // samples of all sequences, in order; not used for a stream
  spilled_array<std::uint64_t> row_begins_;  // start of each sequence's samples in samples_

  loader_state state_;
  std::vector<host_batch> current_, prepared_, scratch_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread worker_;
  std::exception_ptr problem_;
  std::size_t generation_ = 0;
  bool prepared_valid_ = false;
  bool wanted_ = false;
  bool stopping_ = false;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/loader_impl.hpp>
#endif
