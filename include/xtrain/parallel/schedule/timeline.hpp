#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <xtrain/parallel/schedule/schedule.hpp>

namespace xtrain {

/// start, end   since the beginning of the step, in any unit. A buffered send ends when its message arrives; a receive begins when the rank is
///                ready for it.
struct timed_action {
  pipeline_action action;
  double start = 0, end = 0;
};

/// The actions of each rank.
struct pipeline_timeline {
  std::vector<std::vector<timed_action>> ranks;

  [[nodiscard]] double step_time() const {
    double last = 0;
    for (const auto& rank : ranks)
      for (const timed_action& timed : rank) last = std::max(last, timed.end);
    return last;
  }

  [[nodiscard]] double work_time(std::size_t rank) const {
    double sum = 0;
    for (const timed_action& timed : ranks[rank])
      if (is_work(timed.action.kind)) sum += timed.end - timed.start;
    return sum;
  }

  /// The idle fraction of a rank's step (the bubble).
  [[nodiscard]] double bubble(std::size_t rank) const {
    const double step = step_time();
    return step > 0 ? 1 - work_time(rank) / step : 0;
  }

  [[nodiscard]] double bubble() const {
    double work = 0;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) work += work_time(rank);
    const double all = step_time() * static_cast<double>(ranks.size());
    return all > 0 ? 1 - work / all : 0;
  }
};

}  // namespace xtrain
