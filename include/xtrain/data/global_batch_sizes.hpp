// Sequences per step when the global batch grows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <xtrain/core/error.hpp>

namespace xtrain {

/// The global batch grows from `start` by `increment` during the first `samples` sequences: Megatron-LM's --rampup-batch-size.
struct batch_size_rampup {
  std::size_t start = 0;      ///< sequences of the first step, all ranks; 0: no ramp-up
  std::size_t increment = 0;  ///< repeated up to the full batch
  std::size_t samples = 0;

  [[nodiscard]] explicit operator bool() const { return start > 0; }
  friend bool operator==(const batch_size_rampup&, const batch_size_rampup&) = default;
};

/// Sequences of each step, and of all earlier steps.
class global_batch_sizes {
 public:
  global_batch_sizes() = default;
  /// With n = (full - start) / increment, the batch after c sequences is start + ⌊c / (samples / n)⌋ · increment, and `full` after more than `samples`.
  ///                                                                          [Megatron-LM, RampupBatchsizeNumMicroBatchesCalculator.update]
  ///   full      sequences per step after the ramp-up
  ///   multiple  micro-batch size x data-parallel ranks, a divisor of every size (Megatron-LM stops the run instead)
  ///   throws    config_error
  global_batch_sizes(std::size_t full, const batch_size_rampup& rampup, std::size_t multiple) : full_(full) {
    if (!rampup) return;
    const auto must = [](bool holds, const auto&... what) { require<config_error>(holds, "rampup_batch_size: ", what...); };
    must(rampup.start < full, "must start below the global batch size, ", full, "; given ", rampup.start);
    must(rampup.increment > 0 && (full - rampup.start) % rampup.increment == 0, "the increment must divide the global batch size minus the start, ", full,
         " - ", rampup.start, "; given ", rampup.increment);
    must(multiple > 0 && rampup.start % multiple == 0 && rampup.increment % multiple == 0,
         "start and increment must be divisible by micro-batch size x data-parallel ranks, ", multiple, "; given ", rampup.start, " and ", rampup.increment);
    must(rampup.samples > 0 && rampup.samples < (std::size_t{1} << 53U), "must be over a positive number of samples below 2^53; given ", rampup.samples);
    const double samples = static_cast<double>(rampup.samples), increments = static_cast<double>((full - rampup.start) / rampup.increment);
    const auto size_after = [&](std::size_t consumed) {
      if (consumed > rampup.samples) return full;
      return rampup.start + static_cast<std::size_t>(static_cast<double>(consumed) / (samples / increments)) * rampup.increment;
    };
    part now{.first_step = 0, .before = 0, .size = rampup.start};
    while (now.size < full) {
      parts_.push_back(now);
      // sizes never fall: bisection gives the steps of this size
      std::size_t few = 0, many = (rampup.samples - std::min(rampup.samples, now.before)) / now.size + 1;  // then the size is `full`
      while (few + 1 < many) {
        const std::size_t middle = few + (many - few) / 2;
        (size_after(now.before + middle * now.size) == now.size ? few : many) = middle;
      }
      now.first_step += many;
      now.before += many * now.size;
      now.size = size_after(now.before);
    }
    parts_.push_back(now);
  }

  /// Steps count from 0.
  [[nodiscard]] std::size_t of(std::size_t step) const { return parts_.empty() ? full_ : at_step(step).size; }
  /// Sequences before this step.
  [[nodiscard]] std::size_t before(std::size_t step) const {
    if (parts_.empty()) return step * full_;
    const part& one = at_step(step);
    return one.before + (step - one.first_step) * one.size;
  }
  /// Steps that `sequences` fill.
  [[nodiscard]] std::size_t whole_steps(std::size_t sequences) const {
    if (parts_.empty()) return full_ > 0 ? sequences / full_ : 0;
    const part& one = *(std::upper_bound(parts_.begin() + 1, parts_.end(), sequences, [](std::size_t n, const part& p) { return n < p.before; }) - 1);
    return one.first_step + (sequences - one.before) / one.size;
  }

 private:
  struct part {
    std::size_t first_step = 0, before = 0, size = 0;
  };
  [[nodiscard]] const part& at_step(std::size_t step) const {
    return *(std::upper_bound(parts_.begin() + 1, parts_.end(), step, [](std::size_t n, const part& p) { return n < p.first_step; }) - 1);
  }

  std::size_t full_ = 0;
  std::vector<part> parts_;  // empty: all steps are equal
};

}  // namespace xtrain
