// Sentence sequences in shuffled order: a step's micro-batches with masked words.
#pragma once

#include <cstddef>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/data/sentence_dataset.hpp>
#include <xtrain/data/word_masking.hpp>

namespace xtrain {

/// A `loader` for bidirectional encoders: an epoch's order and masking are functions of (seed, epoch); every sequence occurs once per epoch, padded to the
/// longest of its step. Steps are built on request, in negligible time.
class sentence_loader {
 public:
  ///   throws  config_error if a size is 0, data_error if a sequence exceeds the sequence length
  sentence_loader(const sentence_dataset& from, const loader_config& settings);
  sentence_loader(const sentence_dataset&&, const loader_config&) = delete;  // the dataset must outlive the loader

  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::size_t sequences_per_step() const { return config_.sequences_per_step(); }
  [[nodiscard]] global_batch_sizes batch_sizes() const { return config_.batch_sizes(); }
  [[nodiscard]] std::size_t steps_per_epoch() const { return config_.steps_per_epoch(rows()); }
  [[nodiscard]] const loader_config& config() const { return config_; }
  /// throws  config_error when it was moved, assigned to or destroyed
  [[nodiscard]] const sentence_dataset& data() const {
    (void)hold_data();
    return *data_;
  }

  [[nodiscard]] loader_state state() const { return state_; }
  ///   throws  config_error if the state does not fit data and sizes
  void restore(const loader_state& state);

  /// The next step's micro-batches, valid until the next call.
  ///   throws  config_error when the dataset was moved, assigned to or destroyed
  [[nodiscard]] std::span<const host_batch> next();

  /// Builds any step's micro-batches.
  void fill(const loader_state& at, std::vector<host_batch>& batches) const;

 private:
  /// Padding attends only to its sequence's first token.
  void clear(host_batch& batch, std::size_t t) const;

  void put_row(std::size_t row, std::size_t r, std::size_t epoch, host_batch& batch) const;

  void mask_row(std::size_t begin, std::size_t length, std::size_t to, const detail::masking_draw& draw, host_batch& batch) const;

  [[nodiscard]] std::shared_lock<std::shared_mutex> hold_data() const { return data_life_.hold("sentence_loader", "dataset"); }

  const sentence_dataset* data_;
  detail::read_watch data_life_;
  std::size_t rows_;
  loader_config config_;
  loader_state state_;
  std::vector<host_batch> current_;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/sentence_loader_impl.hpp>
#endif
