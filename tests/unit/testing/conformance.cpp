// The conformance suite on a device under development: the reference device, with one mistake in each of several
// kernels. Every mistake is found and located, and no other kernel is reported.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include <xtrain/testing/conformance.hpp>

// What a user writes: a folder of a device, here in one place.
namespace acme {

using xtrain::host_memory;
using xtrain::scratch_span;
namespace kernel = xtrain::kernel;

struct device : xtrain::reference {
  static constexpr std::string_view name = "acme";
  struct stream : xtrain::reference_stream {
    using xtrain::reference_stream::reference_stream;
  };
};
/// The kernel as the device derived from has it.
template <class Kernel>
void run_rightly(device::stream& stream, const Kernel& k) {
  run_kernel(static_cast<xtrain::reference_stream&>(stream), k, scratch_span<host_memory>{});
}

/// Ignores that the product must be added.
template <class T, class C>
void run_kernel(device::stream& stream, kernel::matmul<host_memory, T, C> k, scratch_span<host_memory>) {
  k.accumulate = false;
  run_rightly(stream, k);
}
/// Off by a hundredth in one element of the last row, for sizes that no register divides.
template <class T>
void run_kernel(device::stream& stream, const kernel::rms_norm<host_memory, T>& k, scratch_span<host_memory>) {
  run_rightly(stream, k);
  if (k.c % 8 != 0 && k.n > 3) k.y_nc.host()[k.n * k.c - 1] *= T(1.01);
}
/// Writes one element too many.
template <class T>
void run_kernel(device::stream& stream, const kernel::gelu_tanh<host_memory, T>& k, scratch_span<host_memory>) {
  run_rightly(stream, k);
  k.y_n.raw()[k.n] = T(0);
}
/// Clears an operand that is only read.
template <class T>
void run_kernel(device::stream& stream, const kernel::swiglu_backward<host_memory, T>& k, scratch_span<host_memory>) {
  run_rightly(stream, k);
  const_cast<T*>(k.dy_nf.raw())[0] = T(7);
}
/// Makes an infinity where a finite number belongs.
template <class T>
void run_kernel(device::stream& stream, const kernel::add<host_memory, T>& k, scratch_span<host_memory>) {
  run_rightly(stream, k);
  k.y_n.host()[k.n / 2] = std::numeric_limits<T>::infinity();
}
/// Counts one row too few for the last expert.
template <class T>
void run_kernel(device::stream& stream, const kernel::expert_routing<host_memory, T>& k, scratch_span<host_memory>) {
  run_rightly(stream, k);
  k.count_e.host()[k.experts - 1] -= 1;
}
/// Not written yet.
template <class T>
void run_kernel(device::stream&, const kernel::cached_attention<host_memory, T>&, scratch_span<host_memory>) = delete;

}  // namespace acme

using namespace xtrain;

namespace {

/// The suite's findings about a kernel.
const testing::conformance_result& of(const testing::conformance<acme::device>& suite, std::string_view kernel) {
  const auto at = std::find_if(suite.results().begin(), suite.results().end(), [&](const auto& r) { return r.kernel == kernel; });
  REQUIRE(at != suite.results().end());
  return *at;
}

/// Every mistake is made once, here.
const testing::conformance<acme::device>& checked() {
  static const testing::conformance<acme::device> suite = [] {
    testing::conformance<acme::device> all;
    all.check<float>();
    return all;
  }();
  return suite;
}

enum class cases { all, some };

void fails(std::string_view kernel, cases which, std::string_view problem) {
  const testing::conformance_result& found = of(checked(), kernel);
  CAPTURE(found.kernel);
  CAPTURE(found.first_problem);
  CHECK(!found.passed());
  CHECK(!found.missing);
  CHECK(found.failed > 0);
  CHECK((found.failed == found.cases) == (which == cases::all));
  CHECK(found.first_problem.find(problem) != std::string::npos);
}

}  // namespace

TEST_CASE("a product that is not added where it must be is found in the cases that add, and only in those") {
  fails("matmul", cases::some, "case 2, operand 2: 1 of 1 elements differ; the first at 0: got ");  // case 1 writes
  CHECK(of(checked(), "matmul").largest_error > 1000);
}

TEST_CASE("one element that is off is found by its index") {
  // many rows and odd columns: 33 of 130
  fails("rms_norm", cases::some, "operand 2: 1 of 4290 elements differ; the first at 4289: got ");
}

TEST_CASE("memory that is written outside an operand is found") {
  fails("gelu_tanh", cases::all, "case 1, operand 1: memory outside it was written");
}

TEST_CASE("an operand that is only read and was changed is found") {
  fails("swiglu_backward", cases::all, "case 1, operand 1 is only read but was changed");
}

TEST_CASE("an infinity in place of a number is found") {
  fails("add", cases::all, "case 1, operand 1: 1 of 1 elements differ; the first at 0: got inf, expected ");
}

TEST_CASE("a place that is off by one is found") {
  fails("expert_routing", cases::all, "case 1, operand 6: the first that differs is at 0: got 0, expected 1");
}

TEST_CASE("a kernel that is not there is missing, not failed") {
  const testing::conformance_result& found = of(checked(), "cached_attention");
  CHECK(found.missing);
  CHECK(!found.passed());
  CHECK(found.cases == 0);
  CHECK(found.failed == 0);
}

TEST_CASE("nothing else is blamed, and the report says all of it") {
  const auto& suite = checked();
  CHECK(!suite.passed());
  CHECK(std::count_if(suite.results().begin(), suite.results().end(), [](const auto& r) { return r.passed(); }) == 71 - 7);
  for (const testing::conformance_result& r : suite.results()) {
    CAPTURE(r.kernel);
    CHECK(r.dtype == "fp32");
    if (r.passed()) CHECK(r.largest_error == 0);  // the same kernels on the same values
  }
  const std::string text = suite.text();
  INFO(text);
  CHECK(text.starts_with("conformance of device acme with reference\n"));
  CHECK(text.find("  cached_attention fp32 ............ missing\n") != std::string::npos);
  CHECK(text.find("  gelu_tanh fp32 ................... FAILED in ") != std::string::npos);
  CHECK(text.find("  layer_norm fp32 .................. ok, ") != std::string::npos);
  CHECK(text.ends_with("66 agree, 6 fail, 1 missing\n"));
}
