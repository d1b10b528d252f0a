#include <doctest/doctest.h>

#include <cstdint>
#include <memory>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/dry/dry.hpp>
#include <xtrain/device/kernel/elementwise.hpp>
#include <xtrain/device/with_host_fallback.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/testing/isolated.hpp>

using namespace xtrain;

static_assert(device<cpu> && device<dry<cpu>> && device<testing::isolated<cpu>> && device<testing::bare_device> &&
              device<with_host_fallback<testing::bare_device>>);
static_assert(host_addressable<cpu> && !host_addressable<dry<cpu>> && !host_addressable<testing::isolated<cpu>>);

// dereferencing a pointer compiles only if the host can access the memory
template <class Memory>
concept pointer_can_be_followed = requires(device_ptr<float, Memory> p) {
  *p;
};
template <class Memory>
concept span_can_be_read = requires(device_span<float, Memory> s) {
  s.host();
};
template <class Memory>
concept can_be_followed = pointer_can_be_followed<Memory> || span_can_be_read<Memory>;
static_assert(can_be_followed<host_memory>);
static_assert(!can_be_followed<testing::isolated_memory<cpu>> && !can_be_followed<dry_memory<cpu>>);

// availability is checked per kernel
template <class Device>
using add_on = kernel::add<typename Device::memory, float>;
static_assert(runs_kernel<cpu, add_on<cpu>> && runs_kernel<dry<cpu>, add_on<dry<cpu>>>);
static_assert(!runs_kernel<testing::bare_device, add_on<testing::bare_device>>);
static_assert(!runs_kernel<dry<testing::bare_device>, add_on<dry<testing::bare_device>>>);
static_assert(runs_kernel<with_host_fallback<testing::bare_device>, add_on<testing::bare_device>>);

TEST_CASE("memory is counted by role, and given back") {
  const cpu::context on;
  {
    const buffer<cpu> weights(on, 1000, memory_role::weights);
    const buffer<cpu> stash_memory(on, 500, memory_role::stash);
    CHECK(on.memory().of(memory_role::weights) == 1000);
    CHECK(on.memory().total_now == 1500);
    CHECK(on.memory().allocations == 2);
  }
  CHECK(on.memory().total_now == 0);
  CHECK(on.memory().total_peak == 1500);
  CHECK(on.memory().peak_of(memory_role::stash) == 500);
}

TEST_CASE("memory begins on a cache line, large memory on a huge page") {
  const cpu::context on;
  const buffer<cpu> small(on, 100, memory_role::other), large(on, std::size_t{5} << 20, memory_role::other);
  CHECK(reinterpret_cast<std::uintptr_t>(small.as<std::byte>().raw()) % 64 == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(large.as<std::byte>().raw()) % (std::size_t{2} << 20) == 0);
}

TEST_CASE("more than the limit is refused with the numbers") {
  const cpu::context on({.memory_limit = 1000});
  const buffer<cpu> first(on, 700, memory_role::weights);
  CHECK_THROWS_WITH_AS(buffer<cpu>(on, 400, memory_role::stash), "device memory: stash needs 400 B more; 700 B of 1000 B are in use",
                       memory_error);
  CHECK_THROWS_AS(buffer<cpu>(on, ~std::size_t{0}, memory_role::stash), memory_error);
  CHECK(on.memory().total_now == 700);
}

TEST_CASE("a buffer that was moved from gives nothing back twice") {
  const cpu::context on;
  buffer<cpu> a(on, 64, memory_role::other);
  buffer<cpu> b(std::move(a));
  a = std::move(b);
  CHECK(on.memory().total_now == 64);
}

TEST_CASE("the isolated device works only when somebody waits, and its fresh memory is NaN") {
  using device_type = testing::isolated<cpu>;
  const device_type::context on;
  device_type::stream stream(on);
  const buffer<device_type> memory(on, 4 * sizeof(float), memory_role::other);
  const auto span = memory.as<float>();
  std::array<float, 4> host{1, 2, 3, 4}, back{};
  copy_to_host(stream, std::span<float>(back), span);
  CHECK(back[0] == 0);  // not yet copied
  stream.synchronize();
  CHECK(std::isnan(back[0]));
  copy_to_device(stream, span, host);
  const auto copied = stream.record();
  host.fill(9);  // too early: the copy has not happened yet
  copied.synchronize();
  copy_to_host(stream, std::span<float>(back), span);
  stream.synchronize();
  CHECK(back[0] == 9);
}

TEST_CASE("the dry device counts and computes nothing") {
  using device_type = dry<cpu>;
  const device_type::context on(cpu::properties{2});
  device_type::stream stream(on);
  const buffer<device_type> x(on, 400, memory_role::other), y(on, 400, memory_role::other);
  run_kernel(stream, add_on<device_type>{.n = 100, .x_n = x.as<float>(), .y_n = y.as<float>()}, scratch_span<device_type::memory>{});
  CHECK(on.record().runs() == 1);
  CHECK(on.record().operations() == 100);
  CHECK(on.record().kernels[0].name == "add");
  CHECK(on.record().kernels[0].bytes == 1200);  // x read, y read and written
  CHECK(on.memory().total_now == 800);
}

TEST_CASE("what a device lacks runs on the host, is counted and reported") {
  using device_type = with_host_fallback<testing::bare_device>;
  const device_type::context on;
  device_type::stream stream(on);
  const buffer<device_type> x(on, 16, memory_role::other), y(on, 16, memory_role::other);
  std::array<float, 4> host{1, 2, 3, 4};
  copy_to_device(stream, x.as<float>(), host);
  copy_to_device(stream, y.as<float>(), host);
  for (int i = 0; i < 3; ++i)
    run_kernel(stream, add_on<testing::bare_device>{.n = 4, .x_n = x.as<float>(), .y_n = y.as<float>()},
               scratch_span<testing::bare_device::memory>{});
  copy_to_host(stream, std::span<float>(host), y.as<float>());
  stream.synchronize();
  CHECK(host[3] == 16);
  REQUIRE(on.fallbacks().size() == 1);
  CHECK(on.fallbacks()[0].kernel == "add");
  CHECK(on.fallbacks()[0].runs == 3);
  CHECK(on.report().find("bare lacks kernels:\n  add: 3 runs on the host") == 0);
}
