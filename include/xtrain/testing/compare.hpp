// Compares values within a derived tolerance; the message says where they differ and by how much.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/text.hpp>

namespace xtrain::testing {

/// Allowed difference of two results: |a − b| ≤ absolute + relative · max(|a|, |b|).
struct tolerance {
  double absolute = 0;
  double relative = 0;
};

/// Result of a comparison. Empty `problem` means agreement.
struct comparison {
  std::string problem;
  double largest_error = 0;  // as a fraction of the tolerance: above 1 fails

  explicit operator bool() const { return problem.empty(); }
};

/// Compares element by element. NaN agrees with NaN, an infinity with itself.
template <class A, class B>
[[nodiscard]] comparison compare(std::span<const A> got, std::span<const B> expected, tolerance allowed) {
  comparison found;
  if (got.size() != expected.size()) {
    found.problem = concat("got ", got.size(), " elements, expected ", expected.size());
    return found;
  }
  std::size_t first = got.size(), wrong = 0;
  double absolute = 0, relative = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const auto a = static_cast<double>(static_cast<accumulate_t<A>>(got[i]));
    const auto b = static_cast<double>(static_cast<accumulate_t<B>>(expected[i]));
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double error = std::abs(a - b);
    const double bound = allowed.absolute + allowed.relative * std::max(std::abs(a), std::abs(b));
    found.largest_error = std::max(found.largest_error, std::isfinite(error) ? error / bound : INFINITY);
    if (std::isfinite(error) && error <= bound) continue;  // the tolerance of an infinity is infinite too
    if (wrong++ == 0) first = i;
    absolute = std::max(absolute, error);
    relative = std::max(relative, error / std::max(std::abs(a), std::abs(b)));
  }
  if (wrong != 0)
    found.problem = concat(wrong, " of ", got.size(), " elements differ; the first at ", first, ": got ",
                           static_cast<double>(static_cast<accumulate_t<A>>(got[first])), ", expected ",
                           static_cast<double>(static_cast<accumulate_t<B>>(expected[first])), "; largest error ", absolute, " absolute, ",
                           relative, " relative; allowed ", allowed.absolute, " + ", allowed.relative, " * magnitude");
  return found;
}

}  // namespace xtrain::testing
