// The conformance suite for one dtype, chosen by the build, on the GPU's kernels run on the host.
#include <doctest/doctest.h>

#include <type_traits>

#include <xtrain/device/simt/simt.hpp>
#include <xtrain/testing/conformance.hpp>

using namespace xtrain;

namespace {

using fp32 = float;

}  // namespace

TEST_CASE("every kernel of the simt device agrees with the reference device") {
  testing::conformance<simt_device> suite(simt_context({.seed = 7}));
  simt::logit_elements = 1;  // the loss of 360 rows has three chunks, of 128 rows
  suite.check_stream();
  suite.check<CONFORMANCE_DTYPE>();
  INFO(suite.text());
  CHECK(suite.passed());
  CHECK(suite.results().size() == 89 + (std::is_same_v<CONFORMANCE_DTYPE, float> ? 2 : 0));  // tokens are chosen from fp32
  CHECK(simt::host::runner::here().counts.bank_conflicts == 0);
}
