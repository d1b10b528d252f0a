// Copies in pieces through pinned memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/pinned_pipe.hpp>
#include <xtrain/testing/isolated.hpp>

using namespace xtrain;

namespace {

using far_device = testing::isolated<cpu>;
using pipe_type = pinned_pipe<far_device>;

constexpr std::size_t piece = pipe_type::piece_bytes / sizeof(double), n = 2 * piece + 5;  // three pieces

struct bench {
  far_device::context on;
  far_device::stream stream{on};
  buffer<far_device> memory{on, n * sizeof(double), memory_role::weights};
  pipe_type pipe{on};

  [[nodiscard]] auto there() const { return memory.template as<double>(); }
};

std::vector<double> numbers() {
  std::vector<double> all(n);
  std::iota(all.begin(), all.end(), 1.0);
  return all;
}

}  // namespace

TEST_CASE("what is sent in pieces arrives whole, there and back, and no copy makes the host wait") {
  bench b;
  const std::vector<double> sent = numbers();
  b.pipe.to_device(b.stream, b.there(), std::span<const double>(sent));
  CHECK(b.on.waits().event_waits == 3);  // a piece waits for the one before the last, the end for two
  std::vector<double> got;
  b.pipe.to_host(b.stream, b.there(), [&](std::span<const double> values) { got.insert(got.end(), values.begin(), values.end()); });
  CHECK(got == sent);
  CHECK(b.on.waits().event_waits == 6);
  CHECK(b.on.waits().synchronizations + b.on.waits().blocking_copies == 0);
}

TEST_CASE("pieces of any size are taken in order") {
  bench b;
  const std::vector<double> sent = numbers();
  b.pipe.to_device(b.stream, b.there(), std::span<const double>(sent));
  const std::array<pipe_type::piece, 4> pieces{{{7, 1}, {0, 0}, {100, 1000}, {n - 2, 2}}};
  std::vector<double> got, expected;
  for (const auto& [first, count] : pieces)
    expected.insert(expected.end(), sent.begin() + static_cast<std::ptrdiff_t>(first), sent.begin() + static_cast<std::ptrdiff_t>(first + count));
  b.pipe.to_host<double>(
      b.stream, std::span<const pipe_type::piece>(pieces), [&](const auto& one) { return b.there().subspan(one.first, one.count); },
      [&](const auto& one, std::span<const double> values) {
        CHECK(values.size() == one.count);
        got.insert(got.end(), values.begin(), values.end());
      });
  CHECK(got == expected);
}

TEST_CASE("after an error in the middle, what was queued is waited for, and the pipe goes on") {
  bench b;
  const std::vector<double> sent = numbers();
  const auto fill = [&](std::size_t first, std::span<double> values) {
    if (first > 0) throw std::runtime_error("the file ends");
    std::copy_n(sent.begin(), values.size(), values.begin());
  };
  const auto copy = [&](std::size_t first, std::span<const double> values) { copy_to_device(b.stream, b.there().subspan(first, values.size()), values); };
  CHECK_THROWS_WITH((b.pipe.to_device<double>(b.stream, n, fill, copy)), "the file ends");
  b.pipe.to_device(b.stream, b.there(), std::span<const double>(sent));
  std::size_t right = 0;
  b.pipe.to_host(b.stream, b.there(), [&](std::span<const double> values) {
    for (const double value : values) {
      if (value == sent[right]) ++right;
    }
  });
  CHECK(right == n);
}

TEST_CASE("nothing is copied of nothing") {
  bench b;
  b.pipe.to_device(b.stream, b.there().subspan(0, 0), std::span<const double>());
  b.pipe.to_host(b.stream, b.there().subspan(0, 0), [](std::span<const double>) { FAIL("nothing to take"); });
  CHECK(b.on.waits().event_waits == 0);
}
