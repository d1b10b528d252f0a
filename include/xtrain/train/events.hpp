// What a trainer tells whoever watches it. The library itself writes nothing to the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <xtrain/device/memory.hpp>

namespace xtrain {

/// A run is about to begin.
struct run_began {
  std::size_t first_step = 0;  ///< 0, or where an interrupted run goes on
  std::size_t steps = 0;       ///< of the whole run
  std::size_t steps_per_epoch = 0;
  std::size_t parameters = 0;  ///< of the model
  std::size_t trained = 0;     ///< of them
  std::size_t rows_per_step = 0;
  std::size_t context = 0;
  double operations_per_step = 0;  ///< floating-point operations of a full step, as planned
  memory_count memory{};
};

/// An optimizer step is done.
struct step_done {
  std::size_t step = 0;   ///< counted from 1
  std::size_t steps = 0;  ///< of the whole run
  double epoch = 0;       ///< passes over the data so far
  double loss = 0;        ///< mean over the step's targets, natural logarithm
  double learning_rate = 0;
  double gradient_norm = 0;  ///< before clipping
  std::size_t tokens = 0;    ///< of this step, without padding
  std::size_t targets = 0;
  double seconds = 0;     ///< this step took
  double operations = 0;  ///< of this step
  double loss_scale = 1;
  std::size_t peak_memory = 0;  ///< of the device, in bytes

  [[nodiscard]] double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

/// What one rank's steps took, mean over those since all ranks were asked last. The first rank hears of every rank, in their order; the
/// others of none.
struct rank_measured {
  std::size_t step = 0;  ///< counted from 1
  std::size_t rank = 0, ranks = 1;
  double seconds = 0;  ///< of a step, with its rows and its messages
  double waiting = 0;  ///< of those: for messages of other ranks
  double tokens = 0;   ///< of a step, in this rank's rows, without padding
  std::size_t peak_memory = 0;  ///< of its device, in bytes
};

/// A step changed nothing, because something was not finite.
struct step_skipped {
  std::size_t step = 0;   ///< counted from 1
  std::string reason{};   ///< which tensor, in which layer
  bool overflow = false;  ///< expected now and then where the loss is scaled
  std::size_t in_a_row = 0;
};

struct evaluation_done {
  std::size_t step = 0;
  double loss = 0;
  double perplexity = 0;
  std::size_t targets = 0;
  double seconds = 0;
};

/// A checkpoint has its name, and is on the disk.
struct checkpoint_written {
  std::size_t step = 0;
  double seconds = 0;       ///< training waited
  std::size_t writers = 1;  ///< ranks that wrote its arrays: all of them, or the first
};

struct run_ended {
  std::size_t step = 0;  ///< steps done
  std::size_t steps = 0;
  bool stopped = false;  ///< asked to stop before the end
  double seconds = 0;
  std::size_t skipped = 0;  ///< steps that changed nothing
  memory_count memory{};
};

/// Watches a run. Override what is of interest.
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
};

}  // namespace xtrain
