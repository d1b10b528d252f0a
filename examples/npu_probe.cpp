// What an Ascend NPU and its CANN do where the documentation leaves it open: a line for each question, then the kernels compared with plain formulas.
//
//     npu_probe [device]
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <xtrain/device/npu/npu.hpp>
#include <xtrain/testing/conformance.hpp>
#include <xtrain/testing/npu_probe.hpp>

int main(int count, char** arguments) {
  using namespace xtrain;
  try {
    const npu_context on(npu_config{.device = count > 1 ? std::atoi(arguments[1]) : npu_config::local});
    std::printf("%s\n", on.description().c_str());
    const auto answers = testing::probe_npu(on);
    std::printf("%s", testing::text_of(answers).c_str());
    testing::conformance<npu> suite(on);
    suite.check<float>();
    suite.check<bf16>();
    std::printf("%s%s", suite.text().c_str(), on.host_runs_text().c_str());
    for (const auto& one : answers)
      if (!one.passed) return 1;
    return suite.passed() ? 0 : 1;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "npu_probe: %s\n", problem.what());
    return 2;
  }
}
