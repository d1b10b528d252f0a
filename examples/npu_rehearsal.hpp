// Simulated NPUs and HCCL, for programs built with XTRAIN_NPU_REHEARSAL.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <xtrain/testing/fake_ascend.hpp>
#include <xtrain/testing/fake_hccl.hpp>

namespace command_line {

/// This process's. Calls that CANN would reject are reported at the program's end, with status 70. XTRAIN_REHEARSAL_FAILURE=N in the environment: the N-th work
/// on the NPUs fails, like a core's exception.
struct npu_rehearsal {
  [[nodiscard]] static npu_rehearsal& here() {
    static npu_rehearsal one;
    return one;
  }

  xtrain::testing::fake_ascend cards{{.devices = 8, .memory = std::size_t{2} << 30}};
  xtrain::testing::fake_hccl hccl{cards};

  npu_rehearsal(const npu_rehearsal&) = delete;
  npu_rehearsal& operator=(const npu_rehearsal&) = delete;

 private:
  npu_rehearsal() {
    if (const char* const number = std::getenv("XTRAIN_REHEARSAL_FAILURE"); number != nullptr)
      cards.fail_work(std::strtoul(number, nullptr, 10), xtrain::npu_status::vector_core_exception);
  }
  ~npu_rehearsal() {
    const std::string wrong = cards.violations() + cards.leaks() + hccl.violations() + hccl.leaks();
    if (wrong.empty()) return;
    std::fprintf(stderr, "rehearsal: %s\n", wrong.c_str());
    std::fflush(nullptr);
    ::_exit(70);
  }
};

}  // namespace command_line
