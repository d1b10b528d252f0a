// The conformance suite for one dtype, chosen by the build.
#include <cstdio>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/testing/conformance.hpp>

#include "gpu.hpp"

namespace gpu {

namespace {

using fp32 = float;
using xtrain::bf16, xtrain::fp16;

template <class Suite>
int report(const Suite& suite) {
  std::fputs(suite.text().c_str(), stdout);
  std::fflush(stdout);
  return suite.passed() ? 0 : 1;
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
  return report(suite);
}

}  // namespace gpu
