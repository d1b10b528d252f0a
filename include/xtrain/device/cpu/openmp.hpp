// OpenMP's threads as the cpu's executor.
#pragma once

#ifndef _OPENMP
#error "xtrain openmp: the compiler's OpenMP must be on; link xtrain::openmp, or compile with -fopenmp; see device/README.md"
#endif

#include <omp.h>

#include <algorithm>
#include <cstddef>
#include <memory>

#include <xtrain/device/host_threads.hpp>

namespace xtrain {

/// cpu::context device{{.executor = xtrain::openmp_team()}};
class openmp_executor final : public executor {
 public:
  [[nodiscard]] std::size_t threads() const override { return static_cast<std::size_t>(::omp_get_max_threads()); }
  void run(std::size_t parts, std::size_t threads, parallel_task task) override {
    const int team = static_cast<int>(std::min(parts, threads));
    if (team <= 1 || ::omp_in_parallel() != 0) {
      for (std::size_t part = 0; part < parts; ++part) task(part, 0);
      return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
    for (std::size_t part = 0; part < parts; ++part) task(part, static_cast<std::size_t>(::omp_get_thread_num()));
  }
};

[[nodiscard]] inline std::shared_ptr<executor> openmp_team() { return std::make_shared<openmp_executor>(); }

}  // namespace xtrain
