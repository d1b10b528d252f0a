// The conformance suite for one dtype of the build: streams, and every kernel against the reference, at aligned and unaligned addresses, on the cpu device and
// optionally with isolated memory.
#include <doctest/doctest.h>

#include <type_traits>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/cpu/kernels.hpp>
#include <xtrain/testing/conformance.hpp>
#include <xtrain/testing/isolated.hpp>

using namespace xtrain;

namespace {

using fp32 = float;
using fp64 = double;

template <class Device>
void check_device() {
  testing::conformance<Device> suite;
  suite.check_stream();
  suite.template check<CONFORMANCE_DTYPE>();
  suite.begin_operands_at(1);
  suite.template check<CONFORMANCE_DTYPE>();
  INFO(suite.text());
  CHECK(suite.passed());
  CHECK(suite.results().size() == 90 + (std::is_same_v<CONFORMANCE_DTYPE, float> ? 2 : 0));  // tokens are chosen from fp32
}

}  // namespace

TEST_CASE("every kernel of the cpu device agrees with the reference device") { check_device<cpu>(); }
#ifdef CONFORMANCE_ISOLATED
TEST_CASE("every kernel agrees when memory is isolated and the stream works late") { check_device<testing::isolated<cpu>>(); }
#endif
