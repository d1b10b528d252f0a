// Measures a rank's step times until the first rank gathers them.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/comm/waiting.hpp>

namespace xtrain::detail {

class rank_stopwatch {
 public:
  /// Seconds and waiting time of a step, its tokens, peak memory so far.
  using figures = std::array<double, 4>;

  void begin() {
    began_ = clock::now();
    waited_ = time_waited();
  }
  /// Ends a step; observers' time is not included.
  void end(std::size_t tokens) {
    seconds_ += clock::now() - began_;
    waiting_ += time_waited() - waited_;
    tokens_ += tokens;
    ++steps_;
  }
  [[nodiscard]] figures take(std::size_t peak_memory) {
    const auto steps = static_cast<double>(std::max<std::size_t>(steps_, 1));
    const figures taken{seconds_.count() / steps, waiting_.count() / steps, static_cast<double>(tokens_) / steps, static_cast<double>(peak_memory)};
    seconds_ = waiting_ = {};
    tokens_ = steps_ = 0;
    return taken;
  }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point began_{};
  clock::duration waited_{};
  std::chrono::duration<double> seconds_{}, waiting_{};
  std::size_t tokens_ = 0, steps_ = 0;
};

/// Gathers `own` of every rank on the first rank, in rank order; on other ranks `all` is unspecified.
template <class Communicator, std::size_t N>
void gather_at_first(Communicator& ranks, const std::array<double, N>& own, std::span<double> all) {
  if constexpr (clause::communicator_gathers<Communicator>) {
    ranks.gather(std::span<const double>(own), all, std::size_t{0});
  } else {  // a minimal communicator has only sums
    std::fill(all.begin(), all.end(), 0.0);
    std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(N * ranks.rank()));
    ranks.all_reduce(all, reduction::sum);
  }
}

}  // namespace xtrain::detail
