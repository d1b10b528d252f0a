// Events that a trainer reports to observers. The library itself writes nothing to the terminal.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <xtrain/core/lifetime.hpp>
#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/device/memory.hpp>

namespace xtrain {

/// A run begins.
struct run_began {
  std::size_t first_step = 0;  ///< 0, or where a resumed run continues
  std::size_t max_steps = 0;
  std::size_t steps_per_epoch = 0;
  std::size_t parameters = 0;  ///< of the model
  std::size_t trained = 0;     ///< trainable parameters
  std::size_t sequences_per_step = 0;  ///< of all ranks, after a ramp-up
  std::size_t seq_length = 0;
  double operations_per_step = 0;  ///< planned FLOPs of a full step
  memory_count memory{};
  batch_size_rampup rampup{};
  global_batch_sizes batch_sizes{};  ///< sequences per step, with a ramp-up
  unused_samples unused{};

  /// Sequences of all steps before `step`, counted from 0.
  [[nodiscard]] std::size_t sequences_before(std::size_t step) const { return rampup ? batch_sizes.before(step) : step * sequences_per_step; }
};

/// An optimizer step is done.
struct step_done {
  std::size_t step = 0;   ///< counted from 1
  std::size_t steps = 0;
  double epoch = 0;       ///< passes over the data
  double loss = 0;        ///< mean over the step's targets, natural logarithm; NaN without targets, as in PyTorch
  double learning_rate = 0;
  double gradient_norm = 0;  ///< before clipping
  std::size_t tokens = 0;    ///< without padding
  std::size_t targets = 0;   ///< number of losses in the mean: targets, or pairs; with token weights their rounded sum
  double seconds = 0;
  double operations = 0;  ///< FLOPs
  double loss_scale = 1;
  std::array<double, 4> statistics{};  ///< of the objective; mean over its losses; NaN without losses
  std::span<const std::string_view> statistic_names{};
  std::size_t peak_memory = 0;  ///< of the device, in bytes

  [[nodiscard]] double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

/// Mean step times of one rank since the last measurement, for the first rank only: one event per rank, in rank order.
struct rank_measured {
  std::size_t step = 0;
  std::size_t rank = 0, ranks = 1;
  double seconds = 0;  ///< per step, data loading and communication included
  double waiting = 0;  ///< of these, waiting for messages
  double tokens = 0;   ///< per step, of this rank, without padding
  std::size_t peak_memory = 0;
};

/// A step was skipped: loss or gradients were not finite.
struct step_skipped {
  std::size_t step = 0;
  std::string reason{};   ///< tensor and block
  bool overflow = false;  ///< expected occasionally with loss scaling
  std::size_t in_a_row = 0;
};

/// An evaluation of held-out data is done.
struct evaluation_done {
  std::size_t step = 0;
  double loss = 0;
  double perplexity = 0;
  std::size_t targets = 0;
  double seconds = 0;
};

/// A checkpoint is on disk and has its final name.
struct checkpoint_written {
  std::size_t step = 0;
  double seconds = 0;       ///< time that training waited
  std::size_t writers = 1;  ///< ranks that wrote arrays: all, or the first
};

/// A run has ended, or was stopped.
struct run_ended {
  std::size_t step = 0;  ///< steps done
  std::size_t steps = 0;
  bool stopped = false;  ///< on request, before the end
  double seconds = 0;
  std::size_t skipped = 0;
  memory_count memory{};
};

/// Receives a run's events; override what you need. A destroyed observer is detached.
class observer {
 public:
  virtual ~observer() = default;
  virtual void on(const run_began&) {}
  virtual void on(const step_done&) {}
  virtual void on(const step_skipped&) {}
  virtual void on(const rank_measured&) {}
  virtual void on(const evaluation_done&) {}
  virtual void on(const checkpoint_written&) {}
  virtual void on(const run_ended&) {}
  /// Whether this observer reads weights after step `step`. With late metrics, the next step may otherwise be queued before this event, and the
  /// weights may be its result.
  [[nodiscard]] virtual bool reads_weights_after(std::size_t) const { return false; }
  /// For references to this object.
  [[nodiscard]] const detail::lifetime& lifetime() const { return lifetime_; }

 private:
  detail::address_lifetime lifetime_;
};

}  // namespace xtrain
