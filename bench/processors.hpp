// How many processors a benchmark used: the processor time of all its threads, divided by the time that passed.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <cstdio>

#include <xtrain/device/host_threads.hpp>

/// Seconds of all threads of this process on processors. Threads that spin count, too.
[[nodiscard]] inline double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

class processor_watch {
 public:
  /// The average number of processors since the watch began.
  [[nodiscard]] double used() const {
    const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    return passed > 0 ? (processor_seconds() - before_) / passed : 0;
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double before_ = processor_seconds();
};

/// In main: prints the processors of the entire program, set-up included, at its end.
class processors_report {
 public:
  processors_report() = default;
  processors_report(const processors_report&) = delete;
  processors_report& operator=(const processors_report&) = delete;
  ~processors_report() {
    const cpu_set_t all = xtrain::detail::processors_of_process();
    std::printf("processors: %.2f used on average; the process may use %d; the shared pool has %zu threads\n", watch_.used(), CPU_COUNT(&all),
                xtrain::thread_pool::shared()->threads());
  }

 private:
  processor_watch watch_{};
};
