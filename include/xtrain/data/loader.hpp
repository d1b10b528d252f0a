// Sequences of a dataset in shuffled order: the micro-batches of a step at a time, prepared in the background.
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

/// A micro-batch on the host: b sequences of t tokens. Empty arrays: not in the data.
struct host_batch {
  std::size_t b = 0, t = 0;
  std::vector<token> tokens{};
  std::vector<token> targets{};  ///< next token; negative: ignored by the loss; padding_target: padding
  std::vector<token> positions{};
  std::vector<token> starts{};
  std::vector<token> ends{};      ///< bidirectional attention: end of each token's visible range, within its sequence
  std::vector<token> segments{};  ///< token type ids: sentence of each token
  std::vector<token> labels{};    ///< per sequence; negative: none
  std::vector<float> token_weights{};         ///< per token: weight of its loss; empty: 1
  std::vector<token> teacher_tokens{};        ///< per token: the teacher's k most probable next tokens
  std::vector<float> teacher_log_probs{};     ///< their log-probabilities
  std::vector<double> reference_log_probs{};  ///< per sequence, by a reference model
  std::vector<double> advantages{};           ///< per sequence (grpo) or token (ppo)
  std::vector<float> old_log_probs{};         ///< per token: log-probability of its target by the generating model
  std::vector<float> reference_token_log_probs{};  ///< per token, by a reference model
  std::vector<float> old_values{}, returns{};      ///< per token, for ppo_value: values before this step, and their targets
  std::size_t target_count = 0;    ///< non-negative targets, the divisor of the loss; checked by a step
  std::size_t token_count = 0;     ///< without padding
  std::size_t first_sequence = 0;  ///< within the step
};

/// Position in the data, for resuming.
struct loader_state {
  std::size_t epoch = 0;
  std::size_t step = 0;  ///< within the epoch

  friend bool operator==(const loader_state&, const loader_state&) = default;
};

/// Samples without effect on training.
struct unused_samples {
  std::size_t all = 0;
  std::size_t left_out = 0;         ///< too long or below two tokens, or their group has such a sample or a sample that loses all targets
  std::size_t without_targets = 0;  ///< in sequences, but without target by loss mask or sequence length
};

/// Settings of a loader.
struct loader_config {
  std::size_t micro_batch_size = 8;             ///< sequences
  std::size_t gradient_accumulation_steps = 1;  ///< micro-batches per step
  std::size_t seq_length = 0;                   ///< in tokens; longer samples: see dataset::when_too_long
  bool shuffle = true;
  std::uint64_t seed = 42;
  token pad_token_id = 0;  ///< fills padding
  /// Data-parallel ranks, each with `micro_batch_size` sequences of every micro-batch. A step has the same sequences in the same order as on one rank
  /// with `ranks` times as many micro-batches.
  std::size_t ranks = 1;
  std::size_t rank = 0;
  std::size_t pad_to_multiple_of = 8;               ///< of sequences with one sample
  /// Different sizes: `gradient_accumulation_steps` values with sum micro_batch_size x gradient_accumulation_steps.
  std::vector<std::size_t> micro_batch_sizes = {};
  bool drop_last = false;  ///< omits sequences that do not fill a step (others in every epoch)
  std::size_t max_steps_per_epoch = 0;  ///< ends an epoch early; 0: off
  batch_size_rampup rampup = {};        ///< fewer micro-batches at first; for data of an entire run (sample_source)

  /// After the ramp-up.
  [[nodiscard]] std::size_t sequences_per_step() const { return micro_batch_size * gradient_accumulation_steps * ranks; }
  [[nodiscard]] global_batch_sizes batch_sizes() const { return {sequences_per_step(), rampup, micro_batch_size * ranks}; }
  /// For `rows` sequences.
  [[nodiscard]] std::size_t steps_per_epoch(std::size_t rows) const {
    const global_batch_sizes sizes = batch_sizes();
    std::size_t whole = sizes.whole_steps(rows);
    if (!drop_last && sizes.before(whole) < rows) ++whole;
    return max_steps_per_epoch > 0 ? std::min(whole, max_steps_per_epoch) : whole;
  }
};

/// Sequences of a dataset. An epoch's order is a function of (seed, epoch), or is the sample_source's. Every sequence occurs once per epoch, unless epochs
/// are cut; the last step of an epoch may have fewer sequences with targets.
class loader {
 public:
  /// throws config_error if a size is 0; data_error if a sample exceeds the sequence length, or no target is within it
  loader(const dataset& from, const loader_config& settings);
  loader(const dataset&&, const loader_config&) = delete;  // the dataset must outlive the loader
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
  /// 0 for a stream.
  [[nodiscard]] const unused_samples& unused() const { return unused_; }

  [[nodiscard]] loader_state state() const { return state_; }
  /// Resumes; discards prepared batches.
  ///   throws  config_error if the state does not fit data and sizes
  void restore(const loader_state& state);

  /// The next step's micro-batches, valid until the next call.
  ///   throws  config_error when the dataset was moved, assigned to or destroyed
  [[nodiscard]] std::span<const host_batch> next();

  /// Builds any step's micro-batches, synchronously.
  void fill(const loader_state& at, std::vector<host_batch>& batches) const;

 private:
  [[nodiscard]] std::size_t inputs_of(std::size_t sample) const { return data_->length(sample) - 1; }
  [[nodiscard]] std::size_t limited(std::size_t inputs) const { return std::min(inputs, config_.seq_length); }

  void lay_out_sequences();
  /// throws data_error when stored values do not belong to the sample as read here
  void require_values_of(std::size_t sample) const;
  /// Groups are used or left out as a unit; left out: a sample loses all targets by truncation.
  ///   throws  data_error when a sample has fewer than two tokens
  [[nodiscard]] bool keeps_group(std::size_t first) const;

  [[nodiscard]] std::size_t row_length(std::size_t row) const;

  /// Sequences of a micro-batch, and of all earlier ones.
  [[nodiscard]] std::size_t micro_batch_size(std::size_t m) const {
    return config_.micro_batch_sizes.empty() ? config_.micro_batch_size : config_.micro_batch_sizes[m];
  }
  [[nodiscard]] std::size_t rows_before(std::size_t m) const;

  void clear(host_batch& batch, std::size_t b, std::size_t t) const;
  void clear_values(host_batch& batch) const;

  void put_row(std::size_t row, std::size_t r, host_batch& batch) const;
  /// From the sample_source.
  void put_sample(std::size_t sample, std::size_t r, host_batch& batch) const;

  /// Writes `inputs` tokens from `first` on to batch index `to`; their sample begins at position `start` of the sequence.
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
  spilled_array<std::uint64_t> samples_;     // of all sequences, in order; unused for a stream
  spilled_array<std::uint64_t> row_begins_;  // begin of each sequence in samples_

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
