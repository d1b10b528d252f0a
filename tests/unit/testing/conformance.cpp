// The conformance suite on the reference device with a mistake in each of several kernels: each is found and located, no other kernel is reported.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include <xtrain/testing/conformance.hpp>
#include <xtrain/testing/isolated.hpp>

// a user's device folder, in one place
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
/// The base device's kernel.
template <class Kernel>
void run_rightly(device::stream& stream, const Kernel& k) {
  run_kernel(static_cast<xtrain::reference_stream&>(stream), k, scratch_span<host_memory>{});
}

/// Ignores accumulation.
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
/// Clears a read-only operand.
template <class T>
void run_kernel(device::stream& stream, const kernel::swiglu_backward<host_memory, T>& k, scratch_span<host_memory>) {
  run_rightly(stream, k);
  const_cast<T*>(k.dy_nf.raw())[0] = T(7);
}
/// Writes infinity instead of a finite number.
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
/// Begins at row 0.
template <class T>
void run_kernel(device::stream& stream, const kernel::in_rows<kernel::geglu<host_memory, T>, host_memory>& k, scratch_span<host_memory>) {
  run_rightly(stream, k.whole.rows(0, static_cast<std::size_t>(k.range_2.raw()[1]), k.total));
}
/// Ignores the sum of squares.
inline void run_kernel(device::stream& stream, const kernel::update_step_scalars<host_memory>& k, scratch_span<host_memory>) {
  run_rightly(stream, k);
  if (std::isfinite(*k.loss_1.raw())) k.scalars_1.raw()->applies = 1;
}
/// Also counts padding targets: divides by one more.
inline void run_kernel(device::stream& stream, const kernel::step_gradient_scale<host_memory>& k, scratch_span<host_memory>) {
  run_rightly(stream, k);
  *k.gradient_scale_1.raw() *= k.inputs_1.raw()->targets / (k.inputs_1.raw()->targets + 1);
}
/// In place, reads overwritten values.
template <class T>
void run_kernel(device::stream& stream, const kernel::fake_quantize<host_memory, T>& k, scratch_span<host_memory>) {
  if (k.y_n.raw() == k.x_n.raw()) k.y_n.raw()[k.n - 1] = T(3);
  run_rightly(stream, k);
}
/// Not written yet.
template <class T>
void run_kernel(device::stream&, const kernel::cached_attention<host_memory, T>&, scratch_span<host_memory>) = delete;

/// Fills words of eight bytes, copies words of four within the device.
struct device_of_words : xtrain::reference {
  static constexpr std::string_view name = "acme";
  struct stream : xtrain::reference_stream {
    using xtrain::reference_stream::reference_stream;
    void fill_zero(void* to, std::size_t bytes) { xtrain::reference_stream::fill_zero(to, bytes / 8 * 8); }
    void copy_within(void* to, const void* from, std::size_t bytes) { xtrain::reference_stream::copy_within(to, from, (bytes + 3) / 4 * 4); }
  };
};
/// An asynchronous device whose streams do not wait for each other.
struct hasty_device : xtrain::testing::isolated<xtrain::reference> {
  static constexpr std::string_view name = "acme";
  struct stream : xtrain::testing::isolated<xtrain::reference>::stream {
    using xtrain::testing::isolated<xtrain::reference>::stream::stream;
    void wait(const event&) {}
  };
};

}  // namespace acme

using namespace xtrain;

namespace {

/// The suite's findings for a kernel.
const testing::conformance_result& of(const testing::conformance<acme::device>& suite, std::string_view kernel) {
  const auto at = std::find_if(suite.results().begin(), suite.results().end(), [&](const auto& r) { return r.kernel == kernel; });
  REQUIRE(at != suite.results().end());
  return *at;
}

/// Runs the suite once.
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

TEST_CASE("a range of rows that begins at another row is found, and the kernel itself is not blamed") {
  fails("geglu in rows", cases::some, "case 12, operand 1: ");
  CHECK(of(checked(), "geglu").passed());
}

TEST_CASE("scalars of a step are compared member by member") {
  fails("update_step_scalars", cases::some, "1 of 5 elements differ; the first at 3: got 1, expected 0");
  fails("step_gradient_scale", cases::some, "case 2, operand 2: 1 of 1 elements differ");  // without targets both are 0
}

TEST_CASE("a kernel that is wrong in place, and only there, is found") { fails("fake_quantize", cases::some, "case 2, operand 1: "); }

TEST_CASE("copies and fills of bytes that no word divides are found") {
  testing::conformance<acme::device_of_words> suite;
  suite.check_stream();
  REQUIRE(suite.results().size() == 3);
  INFO(suite.text());
  CHECK(suite.results()[0].first_problem == "case 17, copy_within of 1 bytes to offset 0: byte 1, outside of it, was written");
  CHECK(suite.results()[1].first_problem == "case 5, fill_zero of 1 bytes to offset 0: byte 0 is wrong");
  CHECK(suite.results()[2].passed());
  CHECK(suite.text().find("  events ........................... ok, ") != std::string::npos);
}

TEST_CASE("streams that do not wait for each other are found") {
  testing::conformance<acme::hasty_device> suite;
  suite.check_stream();
  REQUIRE(suite.results().size() == 3);
  INFO(suite.text());
  CHECK(suite.results()[0].passed());
  CHECK(suite.results()[1].passed());
  CHECK(suite.results()[2].first_problem.starts_with("case 1, wait, read after write: the other stream's work, and it alone, must be seen"));
}

TEST_CASE("the sizes of a model are checked like those of the suite") {
  testing::conformance<acme::device> suite;
  suite.check_large<float>({.b = 2, .t = 9, .c = 24, .f = 40, .h = 4, .k = 2, .d = 6, .v = 101});
  INFO(suite.text());
  CHECK(suite.results().size() == 11);
  CHECK(std::count_if(suite.results().begin(), suite.results().end(), [](const auto& r) { return r.passed(); }) == 10);
  CHECK(suite.results()[0].kernel == "matmul");
  CHECK(suite.results()[0].cases == 9);
  CHECK(suite.results()[0].failed == 3);  // accumulating cases
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
  CHECK(std::count_if(suite.results().begin(), suite.results().end(), [](const auto& r) { return r.passed(); }) == 89 - 11);
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
  CHECK(text.ends_with("78 agree, 10 fail, 1 missing\n"));
}
