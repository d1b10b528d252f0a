// The dry device has exactly the kernels of the device it replaces, returns addresses without memory, and counts requests.
#include <doctest/doctest.h>

#include <set>
#include <span>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/device/dry/dry.hpp>
#include <xtrain/device/with_host_fallback.hpp>
#include <xtrain/testing/archetypes.hpp>
#include <xtrain/testing/isolated.hpp>

using namespace xtrain;

namespace {

using device_type = dry<cpu>;
using memory = device_type::memory;

// it can stand in for wrapped devices too
static_assert(device<dry<testing::isolated<cpu>>> && device<dry<with_host_fallback<testing::bare_device>>>);
template <class Device>
using matmul_on = kernel::matmul<typename Device::memory, float>;
static_assert(runs_kernel<dry<testing::isolated<cpu>>, matmul_on<dry<testing::isolated<cpu>>>>);
static_assert(runs_kernel<dry<with_host_fallback<testing::bare_device>>, matmul_on<dry<with_host_fallback<testing::bare_device>>>>);
static_assert(!runs_kernel<dry<testing::bare_device>, matmul_on<dry<testing::bare_device>>>);
static_assert(is_dry<device_type> && !is_dry<cpu>);

kernel::matmul<memory, float> product(std::size_t m, std::size_t n, std::size_t k) {
  const auto span = [](std::size_t size) { return span_of<float, memory>(nullptr, size); };
  return {.m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n, .a = span(m * k), .b = span(k * n), .c = span(m * n)};
}

}  // namespace

TEST_CASE("memory that no machine has is given out, counted by role and taken back") {
  const device_type::context on(cpu::properties{2});
  constexpr std::size_t tebibyte = std::size_t{1} << 40;
  {
    const buffer<device_type> weights(on, 300 * tebibyte, memory_role::weights), more(on, 5, memory_role::stash);
    CHECK(on.memory().of(memory_role::weights) == 300 * tebibyte);
    CHECK(on.memory().total_now == 300 * tebibyte + 5);
  }
  CHECK(on.memory().total_now == 0);
  CHECK(on.memory().total_peak == 300 * tebibyte + 5);
  CHECK(on.memory_limit() == ~std::size_t{0});
}

TEST_CASE("addresses are different, and what is given out does not overlap") {
  const device_type::context on(cpu::properties{1});
  std::vector<buffer<device_type>> all;
  for (const std::size_t bytes : {1UL, 4096UL, 4097UL, 100'000UL}) all.emplace_back(on, bytes, memory_role::other);
  for (std::size_t i = 1; i < all.size(); ++i) CHECK(all[i].as<std::byte>().raw() >= all[i - 1].as<std::byte>().raw() + all[i - 1].bytes());
}

TEST_CASE("runs, operations and bytes are summed by kernel; the device's own scratch memory is known") {
  const device_type::context on(cpu::properties{2});
  device_type::stream stream(on);
  run_kernel(stream, product(3, 5, 7), {});
  run_kernel(stream, product(2, 2, 2), {});
  run_kernel(stream,
             kernel::add<memory, float>{.n = 10, .x_n = span_of<float, memory>(nullptr, 10), .y_n = span_of<float, memory>(nullptr, 10)},
             {});
  const dry_record& record = on.record();
  REQUIRE(record.kernels.size() == 2);
  CHECK(record.kernels[0].name == "matmul");
  CHECK(record.kernels[0].runs == 2);
  CHECK(record.kernels[0].operations == 2 * (3 * 5 * 7 + 2 * 2 * 2));
  // a and b are read once; c, which may be accumulated into, is read and written
  CHECK(record.kernels[0].bytes == 4 * (3 * 7 + 7 * 5 + 2 * 3 * 5) + 4 * (4 + 4 + 2 * 4));
  CHECK(record.runs() == 3);
  CHECK(record.operations() == 2 * (105 + 8) + 10);
  const kernel::matmul<host_memory, float> on_cpu{.m = 300, .n = 200, .k = 100, .lda = 100, .ldb = 200, .ldc = 200};
  CHECK(scratch_bytes(on.properties(), product(300, 200, 100)) == scratch_bytes(cpu::properties{2}, on_cpu));
  CHECK(scratch_bytes(on.properties(), product(300, 200, 100)) > 0);
}

TEST_CASE("copies and synchronisations are counted, and the host gets zeros") {
  const device_type::context on(cpu::properties{1});
  device_type::stream stream(on);
  const buffer<device_type> there(on, 40, memory_role::other);
  std::vector<float> host(10, 3.0f);
  copy_to_device(stream, there.as<float>(), host);
  copy_to_host(stream, std::span<float>(host), there.as<float>());
  copy_within(stream, there.as<float>(), device_span<const float, memory>(there.as<float>()));
  fill_zero(stream, there.as<float>());
  stream.wait(stream.record());
  stream.record().synchronize();
  stream.synchronize();
  CHECK(host == std::vector<float>(10, 0.0f));
  CHECK(on.record().bytes_from_host == 40);
  CHECK(on.record().bytes_to_host == 40);
  CHECK(on.record().synchronisations == 1);
  CHECK(on.record().operations() == 0);
  CHECK(on.record().kernels[0].name == "copy");
  CHECK(on.record().kernels[0].bytes == 80);
  CHECK(on.record().kernels[1].bytes == 40);
}
