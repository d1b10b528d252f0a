#include <doctest/doctest.h>

#include <array>
#include <vector>

#include <xtrain/comm/self.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/testing/archetypes.hpp>

using namespace xtrain;

static_assert(communicator<self> && communicator<testing::bare_communicator>);
static_assert(
    clause::communicator_moves_device_memory<self, cpu::stream, device_span<float, host_memory>, device_span<const float, host_memory>>);
struct without_size {
  std::size_t rank() const { return 0; }
  void all_reduce(std::span<double>, reduction) {}
  void barrier() {}
};
struct without_barrier {
  std::size_t rank() const { return 0; }
  std::size_t size() const { return 1; }
  void all_reduce(std::span<double>, reduction) {}
};
static_assert(!clause::communicator_knows_its_ranks<without_size> && !clause::communicator_reduces_host_numbers<without_barrier>);

TEST_CASE("with one rank a collective is a copy or nothing") {
  const cpu::context on;
  cpu::stream stream(on);
  self alone;
  CHECK(alone.rank() == 0);
  CHECK(alone.size() == 1);
  std::vector<float> a{1, 2, 3}, b(3, 0.0f);
  const auto span_a = span_of(std::span<float>(a)), span_b = span_of(std::span<float>(b));
  alone.all_reduce(stream, span_a, reduction::sum);
  CHECK(a == std::vector<float>{1, 2, 3});
  alone.all_gather(stream, device_span<const float, host_memory>(span_a), span_b);
  CHECK(b == a);
  b.assign(3, 0.0f);
  alone.reduce_scatter(stream, device_span<const float, host_memory>(span_a), span_b, reduction::largest);
  CHECK(b == a);
  std::array<double, 2> host{1.5, 2.5};
  alone.all_reduce(host, reduction::sum);
  CHECK(host[1] == 2.5);
  CHECK_THROWS_AS(alone.all_gather(stream, device_span<const float, host_memory>(span_a), span_b.subspan(0, 2)), shape_error);
}
