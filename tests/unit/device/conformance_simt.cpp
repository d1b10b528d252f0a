// The conformance suite for one dtype, chosen by the build, on the GPU's kernels run on the host. Kernels that are not written in the dialect yet are missing.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include <xtrain/device/simt/simt.hpp>
#include <xtrain/testing/conformance.hpp>

using namespace xtrain;

namespace {

using fp32 = float;

}  // namespace

TEST_CASE("every kernel of the simt device agrees with the reference device") {
  testing::conformance<simt_device> suite(simt_context({.seed = 7}));
  suite.check<CONFORMANCE_DTYPE>();
  INFO(suite.text());
  const auto& results = suite.results();
  CHECK(std::none_of(results.begin(), results.end(), [](const auto& r) { return r.failed != 0; }));
  // what is missing: objectives and their parts, experts, quantized weights, attention over a cache and over blocks, optimizers of matrices and of 8 bits
  CHECK(std::count_if(results.begin(), results.end(), [](const auto& r) { return !r.missing; }) == CONFORMANCE_KERNELS);
  CHECK(simt::host::runner::here().counts.bank_conflicts == 0);
}
