// Reads a metrics log of json_lines_record: curves in little memory, settings, events. Component 'io'.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/device/memory.hpp>
#include <xtrain/report/step_bins.hpp>

namespace xtrain {

/// A number per step.
struct run_curve {
  step_bins bins{};
  step_value last{}, least{};
  std::size_t count = 0;
  std::size_t not_finite = 0;  ///< null in the log, or above step_bins::max_value

  void add(std::size_t step, double value) {
    bins.add(step, value);
    if (count == 0 || step >= last.step) last = {step, value};
    if (count == 0 || value < least.value || (value <= least.value && step < least.step)) least = {step, value};
    ++count;
  }
};

/// The first rank's measurements of a rank, averaged.
struct rank_log {
  std::size_t measurements = 0;
  double seconds = 0, waiting = 0;  ///< per step
  double tokens = 0;                ///< per step
  std::size_t peak_memory = 0;
};

/// From a start or resumption to the next.
struct run_part {
  std::size_t line = 0;       ///< in the file
  std::size_t first_step = 0;  ///< steps before
  std::size_t unix_time = 0;   ///< begin; 0: not recorded
};

/// A remark on a line.
struct line_note {
  std::size_t line = 0;
  std::string text{};
};

/// A run.
struct run_log {
  std::string path{};
  std::size_t lines = 0;

  std::map<std::string, run_curve> curves{};  ///< per number of a step: "loss", "lr", "grad_norm", "tokens_per_second", objective statistics
  run_curve held_out{};                       ///< loss
  running_median tokens_per_second{};
  double tokens = 0, seconds = 0;  ///< of all steps
  std::size_t last_step = 0;

  std::vector<run_part> parts{};  ///< in order; empty: no beginning in the file
  std::size_t max_steps = 0, parameters = 0, trainable_parameters = 0, global_batch_size = 0, seq_length = 0;
  bool has_end = false, stopped = false;
  std::size_t skipped = 0;
  std::vector<line_note> skips{};  ///< first ones: step and reason
  std::size_t checkpoints = 0, last_checkpoint = 0;
  double checkpoint_seconds = 0;  ///< waiting time of training

  std::size_t peak_memory = 0;                                         ///< of any recorded rank's device
  std::array<std::size_t, memory_roles> planned{}, allocated{}, peak{};  ///< bytes by role on the first rank: planned, at the beginning, peak
  std::map<std::size_t, rank_log> ranks{};
  run_curve rank_seconds{};  ///< per step, all ranks

  std::vector<std::pair<std::string, std::string>> settings{};  ///< "recipe.precision", "settings.learning_rate", ...
  std::vector<std::string> changes{};                           ///< settings that earlier parts had otherwise

  std::size_t replaced = 0;        ///< lines that a later part replaced
  std::size_t unknown_events = 0;  ///< of other programs or later versions
  std::deque<line_note> problems{};  ///< unusable lines, the first max_problems
  std::size_t problem_count = 0;

  static constexpr std::size_t max_problems = 20, max_skips = 20, max_changes = 50, max_settings = 500, max_curves = 40, max_ranks = 65536;

  /// Null: none.
  [[nodiscard]] const run_curve* curve(const std::string& name) const {
    const auto at = curves.find(name);
    return at == curves.end() || at->second.count == 0 ? nullptr : &at->second;
  }
  /// Empty: none.
  [[nodiscard]] std::string setting(const std::string& name) const {
    for (const auto& [key, value] : settings)
      if (key == name) return value;
    return {};
  }
};

/// Reads a log backwards, once, in memory independent of its length. Of repeated steps (after a resumption) the last counts; a run from step 0 replaces
/// everything before. Cut or invalid lines are noted in `problems`.
///   throws  file_error when the file cannot be read or holds no event of a run
[[nodiscard]] run_log read_run_log(const std::string& path);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/report/run_log_impl.hpp>
#endif
