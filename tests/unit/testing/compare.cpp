// The comparison of all numerical tests.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <xtrain/testing/compare.hpp>

using namespace xtrain;
using testing::comparison;
using testing::tolerance;

namespace {

comparison compared(const std::vector<double>& got, const std::vector<double>& expected, tolerance allowed) {
  return testing::compare<double, double>(std::span<const double>(got), std::span<const double>(expected), allowed);
}

constexpr double infinity = std::numeric_limits<double>::infinity();
const double nan_value = std::nan("");

}  // namespace

TEST_CASE("equal numbers agree without any tolerance") {
  const comparison found = compared({1, -2, 0}, {1, -2, 0}, {});
  CHECK(found);
  CHECK(found.problem.empty());
  CHECK(found.largest_error == 0);
  CHECK(compared({0.0}, {-0.0}, {}));
}

TEST_CASE("the first index, the values, the count and both largest errors are reported") {
  const comparison found = compared({1, 2.5, 3, 8, 5}, {1, 2, 3, 4, 5}, {.absolute = 0.25, .relative = 0.01});
  CHECK(!found);
  CHECK(found.problem ==
        "2 of 5 elements differ; the first at 1: got 2.5, expected 2; largest error 4 absolute, 0.5 relative; allowed 0.25 + 0.01 * "
        "magnitude");
}

TEST_CASE("the bound is absolute plus relative times the larger magnitude, and reaching it is allowed") {
  CHECK(compared({10}, {12}, {.absolute = 2}));
  CHECK(!compared({10}, {12.001}, {.absolute = 2}));
  CHECK(compared({6}, {8}, {.relative = 0.25}));
  CHECK(!compared({5.9}, {8}, {.relative = 0.25}));
  CHECK(compared({-8}, {-5}, {.absolute = 1, .relative = 0.25}));  // 1 + 0.25 · 8 = 3
  CHECK(!compared({-8}, {-4.9}, {.absolute = 1, .relative = 0.25}));
}

TEST_CASE("the largest error is a share of what is allowed, whether or not it is too much") {
  CHECK(compared({1, 2}, {1.25, 2.5}, {.absolute = 1}).largest_error == 0.5);
  CHECK(compared({1, 2}, {1.25, 6}, {.absolute = 2}).largest_error == 2);
}

TEST_CASE("NaN agrees with NaN alone, an infinity with itself alone, whatever is allowed") {
  const tolerance anything{.absolute = 1e300, .relative = 1};
  CHECK(compared({nan_value, infinity, -infinity}, {nan_value, infinity, -infinity}, {}));
  struct pair {
    double got, expected;
  };
  for (const pair& p : {pair{nan_value, 1.0}, {1.0, nan_value}, {infinity, 1.0}, {1.0, -infinity}, {infinity, -infinity}}) {
    CAPTURE(p.got);
    CAPTURE(p.expected);
    const comparison found = compared({0, p.got}, {0, p.expected}, anything);
    CHECK(!found);
    CHECK(found.problem.find("1 of 2 elements differ; the first at 1: ") == 0);
    CHECK(found.largest_error == infinity);
  }
}

TEST_CASE("different lengths are told apart from different numbers") {
  CHECK(compared({1, 2}, {1, 2, 3}, {.absolute = 100}).problem == "got 2 elements, expected 3");
  CHECK(compared({}, {}, {}));
}

TEST_CASE("numbers of different types are compared by value") {
  const std::vector<bf16> got{bf16(1.0f), bf16(3.1415926f)};
  const std::vector<float> expected{1.0f, 3.1415926f};
  // rounding to bf16 is off by at most 2^-9 of the value; half of it is not enough
  const auto with = [&](double relative) {
    return testing::compare<bf16, float>(std::span<const bf16>(got), std::span<const float>(expected), {.relative = relative});
  };
  CHECK(with(0x1p-9));
  CHECK(!with(0x1p-12));
  CHECK(with(0x1p-12).problem.find("the first at 1: got 3.140625, expected 3.14159") != std::string::npos);
}
