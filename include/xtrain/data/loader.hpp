// Sequences of a dataset in shuffled order, the micro-batches of one step at a time, prepared in the background.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/data/dataset.hpp>

namespace xtrain {

/// One micro-batch on the host: b sequences of t tokens.
struct host_batch {
  std::size_t b = 0, t = 0;
  std::vector<token> tokens{};
  std::vector<token> targets{};  // next token to predict; negative: ignored by the loss
  std::vector<token> positions{};
  std::vector<token> starts{};
  std::vector<token> ends{};      // for bidirectional attention: end of the attended range of each token, within its sequence
  std::vector<token> segments{};  // token type ids: which sentence of its sequence each token belongs to
  std::vector<token> labels{};    // per sequence: the label to predict; negative: none
  std::size_t target_count = 0;
  std::size_t token_count = 0;  // without padding
  std::size_t first_row = 0;    // within the step
};

/// A loader's position in the data: enough to resume from.
struct loader_state {
  std::size_t epoch = 0;
  std::size_t step = 0;  // within the epoch

  friend bool operator==(const loader_state&, const loader_state&) = default;
};

struct loader_config {
  std::size_t batch = 8;       ///< micro-batch size, in sequences
  std::size_t accumulate = 1;  ///< gradient accumulation: micro-batches per step
  std::size_t context = 0;     ///< sequence length: longest sequence, in tokens
  bool shuffle = true;
  std::uint64_t seed = 42;
  token padding = 0;  ///< token that fills padded positions
  /// Data-parallel ranks: each gets `batch` sequences of every micro-batch. The sequences of a step, and their order, are those that
  /// one rank would have with `ranks` times as many micro-batches.
  std::size_t ranks = 1;
  std::size_t rank = 0;
  std::size_t multiple = 8;            ///< sequences of one sample each are padded to a multiple of this
  std::vector<std::size_t> rows = {};  ///< size of each micro-batch, if they differ: `accumulate` numbers whose sum is batch · accumulate
};

/// The sequences of a dataset. The order of an epoch is a function of (seed, epoch); every sequence occurs once per epoch, and
/// the last step of an epoch may have fewer sequences with targets.
class loader {
 public:
  /// throws config_error if a size is 0, data_error if a sample is longer than the sequence length
  loader(const dataset& from, const loader_config& settings) : data_(&from), config_(settings) {
    require<config_error>(settings.batch > 0 && settings.accumulate > 0 && settings.context > 0,
                          "loader: batch, accumulate and context must be positive; given ", settings.batch, ", ", settings.accumulate, ", ",
                          settings.context);
    const std::size_t all = settings.batch * settings.accumulate;
    require<config_error>(settings.rows.empty() || (settings.rows.size() == settings.accumulate && rows_before(settings.accumulate) == all),
                          "loader: rows must be given for ", settings.accumulate, " micro-batches and be ", all, " together; given ",
                          settings.rows.size(), " with ", rows_before(settings.rows.size()));
    require<config_error>(settings.multiple > 0, "loader: rows must be padded to a multiple of 1 at least; given ", settings.multiple);
    require<config_error>(settings.rank < settings.ranks, "loader: rank must be below the ", settings.ranks, " ranks; given ", settings.rank);
    lay_out_rows();
    for (std::vector<host_batch>* batches : {&current_, &prepared_, &scratch_}) {  // allocate all memory a step needs
      batches->resize(settings.accumulate);
      for (std::size_t m = 0; m < batches->size(); ++m) clear((*batches)[m], rows_of(m), settings.context);
    }
  }
  ~loader() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (worker_.joinable()) worker_.join();
  }
  loader(const loader&) = delete;
  loader& operator=(const loader&) = delete;

  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::size_t rows_per_step() const { return config_.batch * config_.accumulate * config_.ranks; }
  [[nodiscard]] std::size_t steps_per_epoch() const { return (rows_ + rows_per_step() - 1) / rows_per_step(); }
  [[nodiscard]] const loader_config& config() const { return config_; }
  [[nodiscard]] const dataset& data() const { return *data_; }

  /// The position of the next step.
  [[nodiscard]] loader_state state() const { return state_; }
  /// Resumes from a saved position. Prepared batches are discarded.
  ///   throws  config_error if the state does not fit this data and these sizes
  void restore(const loader_state& state) {
    require<config_error>(state.step < steps_per_epoch(), "loader: the saved place must exist in the data; step ", state.step, " of ",
                          steps_per_epoch(), " in an epoch. Are data, batch and context those of the interrupted run?");
    const std::lock_guard lock(mutex_);
    state_ = state;
    prepared_valid_ = false;
    ++generation_;
  }

  /// The micro-batches of the next step, valid until the next call.
  [[nodiscard]] std::span<const host_batch> next() {
    std::unique_lock lock(mutex_);
    if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
    wanted_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return prepared_valid_ || problem_; });
    if (problem_) std::rethrow_exception(std::exchange(problem_, nullptr));
    std::swap(current_, prepared_);
    prepared_valid_ = false;
    state_ = after(state_);
    changed_.notify_all();
    return current_;
  }

  /// Builds the micro-batches of any step, synchronously.
  void fill(const loader_state& at, std::vector<host_batch>& batches) const {
    batches.resize(config_.accumulate);
    const shuffled_order order(rows_, config_.seed, static_cast<std::uint32_t>(at.epoch));
    const std::size_t first = at.step * rows_per_step();
    const auto row = [&](std::size_t i) { return config_.shuffle ? order[i] : i; };
    std::size_t t = config_.context;
    if (data_->layout() == row_layout::separate) {  // padded to the longest sequence of the step
      t = 1;
      for (std::size_t i = first; i < std::min(rows_, first + rows_per_step()); ++i) t = std::max(t, row_length(row(i)));
      t = std::min(config_.context, (t + config_.multiple - 1) / config_.multiple * config_.multiple);
    }
    for (std::size_t m = 0; m < batches.size(); ++m) {
      host_batch& batch = batches[m];
      clear(batch, rows_of(m), t);
      batch.first_row = rows_before(m) * config_.ranks + config_.rank * batch.b;
      for (std::size_t r = 0; r < batch.b; ++r) {
        const std::size_t i = first + batch.first_row + r;
        if (i < rows_) put_row(row(i), r, batch);
      }
    }
  }

 private:
  /// Number of inputs of a sample: one fewer than its tokens.
  [[nodiscard]] std::size_t inputs_of(std::size_t sample) const { return data_->length(sample) - 1; }
  [[nodiscard]] std::size_t limited(std::size_t inputs) const { return std::min(inputs, config_.context); }

  void lay_out_rows() {
    const std::size_t context = config_.context;
    if (data_->layout() == row_layout::stream) {
      rows_ = (data_->tokens() - 1 + context - 1) / context;
      return;
    }
    std::size_t room = 0;
    for (std::size_t s = 0; s < data_->size(); ++s) {
      const std::size_t length = data_->length(s);
      if (length < 2) continue;  // no target
      if (length - 1 > context) {
        if (data_->when_too_long == overlong::leave_out) continue;
        require<data_error>(data_->when_too_long == overlong::truncate, data_->source(), ": samples must fit the context of ", context,
                            " tokens; sample ", s + 1, " has ", length,
                            ". Raise the context, or choose to truncate or leave out such samples");
      }
      const std::size_t inputs = limited(length - 1);
      if (data_->layout() == row_layout::separate || inputs > room) {
        row_begins_.push_back(samples_.size());
        room = context;
      }
      room -= inputs;
      samples_.push_back(s);
    }
    rows_ = row_begins_.size();
    row_begins_.push_back(samples_.size());
    samples_.finish();
    row_begins_.finish();
    require<data_error>(rows_ > 0, data_->source(), ": must hold samples that fit the context of ", context, " tokens; none does");
  }

  [[nodiscard]] std::size_t row_length(std::size_t row) const {
    std::size_t length = 0;
    for (std::size_t i = row_begins_[row]; i < row_begins_[row + 1]; ++i) length += limited(inputs_of(samples_[i]));
    return length;
  }

  /// Sequences of a micro-batch, and of all micro-batches before it.
  [[nodiscard]] std::size_t rows_of(std::size_t m) const { return config_.rows.empty() ? config_.batch : config_.rows[m]; }
  [[nodiscard]] std::size_t rows_before(std::size_t m) const {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < m; ++i) sum += rows_of(i);
    return sum;
  }

  void clear(host_batch& batch, std::size_t b, std::size_t t) const {
    const std::size_t n = b * t;
    batch.b = b;
    batch.t = t;
    batch.target_count = batch.token_count = 0;
    batch.tokens.assign(n, config_.padding);
    batch.targets.assign(n, -1);
    batch.positions.resize(n);
    batch.starts.assign(n, 0);
    for (std::size_t i = 0; i < n; ++i) batch.positions[i] = static_cast<token>(i % t);
  }

  void put_row(std::size_t row, std::size_t r, host_batch& batch) const {
    if (data_->layout() == row_layout::stream) {
      const std::size_t first = row * config_.context;
      put(first, std::min(config_.context, data_->tokens() - 1 - first), r * batch.t, 0, batch);
      return;
    }
    std::size_t at = 0;
    for (std::size_t i = row_begins_[row]; i < row_begins_[row + 1]; ++i) {
      const std::size_t sample = samples_[i];
      const std::size_t inputs = limited(inputs_of(sample));
      put(data_->begin(sample), inputs, r * batch.t + at, at, batch);
      at += inputs;
    }
    // padding is a sample of its own: it attends only to itself, and no other token attends to it
    for (std::size_t i = at; i < batch.t; ++i) {
      batch.starts[r * batch.t + i] = static_cast<token>(at);
      batch.positions[r * batch.t + i] = static_cast<token>(i - at);
    }
  }

  /// Writes `inputs` tokens from token `first` on to index `to` of the batch; their sample begins at position `start` of the sequence.
  void put(std::size_t first, std::size_t inputs, std::size_t to, std::size_t start, host_batch& batch) const {
    for (std::size_t i = 0; i < inputs; ++i) {
      batch.tokens[to + i] = data_->at(first + i);
      batch.positions[to + i] = static_cast<token>(i);
      batch.starts[to + i] = static_cast<token>(start);
      if (!data_->learned(first + i + 1)) continue;
      batch.targets[to + i] = data_->at(first + i + 1);
      ++batch.target_count;
    }
    batch.token_count += inputs;
  }

  [[nodiscard]] loader_state after(const loader_state& state) const {
    return state.step + 1 < steps_per_epoch() ? loader_state{state.epoch, state.step + 1} : loader_state{state.epoch + 1, 0};
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || (wanted_ && !prepared_valid_ && !problem_); });
      if (stopping_) return;
      const loader_state at = state_;
      const std::size_t generation = generation_;
      lock.unlock();
      std::exception_ptr problem;
      try {
        fill(at, scratch_);
      } catch (...) {
        problem = std::current_exception();
      }
      lock.lock();
      if (generation != generation_) continue;  // restored meanwhile: discard this step
      problem_ = problem;
      if (!problem) {
        std::swap(prepared_, scratch_);
        prepared_valid_ = true;
      }
      changed_.notify_all();
    }
  }

  const dataset* data_;
  loader_config config_;
  std::size_t rows_ = 0;
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
