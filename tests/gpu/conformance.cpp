// The conformance suite for one dtype, chosen by the build.
#include <algorithm>
#include <cstdio>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/testing/conformance.hpp>

#include "gpu.hpp"

namespace gpu {

namespace {

using fp32 = float;
using xtrain::bf16, xtrain::fp16;

/// Kernels that nvcc does not compile, because no precision launches them: most of fp16 gradients and states, and a softcap in 16 bits.
template <class Suite>
int report(const Suite& suite) {
  std::fputs(suite.text().c_str(), stdout);
  std::fflush(stdout);
  const auto is_well = [](const xtrain::testing::conformance_result& r) {
    return r.failed == 0 && (!r.missing || r.dtype == "fp16" || r.kernel == "softcap");
  };
  const auto& all = suite.results();
  return !all.empty() && std::all_of(all.begin(), all.end(), is_well) ? 0 : 1;
}

}  // namespace

int GPU_CHECK(bool large) {
  const auto on = open();
  std::printf("%s\n", on.description().c_str());
  if (large) {
    xtrain::testing::conformance<xtrain::cuda, xtrain::cpu> suite(on);
    suite.check_large<GPU_DTYPE>();
    return report(suite);
  }
  xtrain::testing::conformance<xtrain::cuda> suite(on);
  suite.check_stream();
  suite.check<GPU_DTYPE>();
  suite.begin_operands_at(1);
  suite.check<GPU_DTYPE>();
  return report(suite);
}

}  // namespace gpu
