// Simulated GPUs and NCCL, for programs built with XTRAIN_GPU_REHEARSAL.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <xtrain/testing/fake_cuda.hpp>
#include <xtrain/testing/fake_nccl.hpp>
#ifdef XTRAIN_MUSA_REHEARSAL
#include <xtrain/testing/fake_musa.hpp>
#endif

namespace command_line {

/// This process's. Calls that a runtime or NCCL would reject are reported at the program's end, with status 70. XTRAIN_REHEARSAL_FAILURE=N in the environment:
/// the N-th work on the GPUs fails, like an illegal address. XTRAIN_REHEARSAL_COUNTS=1: the last line is the number of launched captured steps.
struct gpu_rehearsal {
  [[nodiscard]] static gpu_rehearsal& here() {
    static gpu_rehearsal one;
    return one;
  }

#ifdef XTRAIN_MUSA_REHEARSAL
  xtrain::testing::fake_musa gpus{{.devices = 8, .memory = std::size_t{2} << 30}};
  static constexpr const char* graph_launch = "musaGraphLaunch";
#else
  xtrain::testing::fake_cuda gpus{{.devices = 8, .memory = std::size_t{2} << 30}};
  static constexpr const char* graph_launch = "cudaGraphLaunch";
#endif
  xtrain::testing::fake_nccl nccl{gpus};

  gpu_rehearsal(const gpu_rehearsal&) = delete;
  gpu_rehearsal& operator=(const gpu_rehearsal&) = delete;

 private:
  gpu_rehearsal() {
    if (const char* const number = std::getenv("XTRAIN_REHEARSAL_FAILURE"); number != nullptr)
      gpus.fail_work(std::strtoul(number, nullptr, 10), xtrain::cuda_status::illegal_address);
  }
  ~gpu_rehearsal() {
    if (std::getenv("XTRAIN_REHEARSAL_COUNTS") != nullptr) std::fprintf(stderr, "captured steps launched: %zu\n", gpus.calls_of(graph_launch));
    const std::string wrong = gpus.violations() + gpus.leaks() + nccl.violations() + nccl.leaks();
    if (wrong.empty()) return;
    std::fprintf(stderr, "rehearsal: %s\n", wrong.c_str());
    std::fflush(nullptr);
    ::_exit(70);
  }
};

}  // namespace command_line
