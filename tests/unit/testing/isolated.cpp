// Code that lacks a copy, synchronization or initialization gives a different result on the isolated device, every time.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <type_traits>

#include <xtrain/device/reference/reference.hpp>
#include <xtrain/testing/isolated.hpp>

using namespace xtrain;

namespace {

using device_type = testing::isolated<reference>;
using memory = device_type::memory;
using add = kernel::add<memory, float>;

static_assert(device<device_type> && !host_addressable<device_type>);
// only the stream takes host memory: no conversion to a host span, no pointer to follow
template <class Span>
concept has_a_host_span = requires(Span span) {
  span.host();
};
template <class Span>
concept can_be_followed = requires(Span span) {
  *span.data();
};
static_assert(has_a_host_span<device_span<float, host_memory>> && can_be_followed<device_span<float, host_memory>>);
static_assert(!has_a_host_span<device_span<float, memory>> && !can_be_followed<device_span<float, memory>>);
// isolated memory differs per device, and from the host's
static_assert(!std::is_convertible_v<device_span<float, memory>, device_span<float, host_memory>>);
static_assert(!std::is_convertible_v<device_span<float, host_memory>, device_span<float, memory>>);
// kernels exist only for isolated memory
static_assert(runs_kernel<device_type, add> && !runs_kernel<device_type, kernel::add<host_memory, float>>);

constexpr std::size_t n = 5;

struct bench {
  device_type::context on;
  device_type::stream stream{on};
  buffer<device_type> x{on, n * sizeof(float), memory_role::other}, y{on, n * sizeof(float), memory_role::other};
  std::array<float, n> host{1, 2, 3, 4, 5};

  /// y += x
  void queue_add(device_type::stream& on_stream) const {
    run_kernel(on_stream, add{.n = n, .x_n = x.as<float>(), .y_n = y.as<float>()}, scratch_span<memory>{});
  }
  void queue_inputs() {
    copy_to_device(stream, x.as<float>(), host);
    copy_to_device(stream, y.as<float>(), host);
  }
  [[nodiscard]] std::array<float, n> fetched() {
    std::array<float, n> back{};
    copy_to_host(stream, std::span<float>(back), y.as<float>());
    stream.synchronize();
    return back;
  }
};

}  // namespace

TEST_CASE("code that does everything right computes what the device behind the wall computes") {
  bench b;
  b.queue_inputs();
  b.queue_add(b.stream);
  CHECK(b.fetched() == std::array<float, n>{2, 4, 6, 8, 10});
}

TEST_CASE("a result that is read before the stream is synchronised is not there") {
  bench b;
  b.queue_inputs();
  b.queue_add(b.stream);
  std::array<float, n> back{};
  copy_to_host(b.stream, std::span<float>(back), b.y.as<float>());
  CHECK(back == std::array<float, n>{});  // the mistake: read too early
  b.stream.synchronize();
  CHECK(back == std::array<float, n>{2, 4, 6, 8, 10});
}

TEST_CASE("host memory that is reused before the copy is made is copied as it is by then") {
  bench b;
  b.queue_inputs();
  b.host.fill(100);  // the mistake
  b.queue_add(b.stream);
  CHECK(b.fetched() == std::array<float, n>{200, 200, 200, 200, 200});
}

TEST_CASE("memory that nobody has initialised poisons what is computed from it") {
  bench b;
  copy_to_device(b.stream, b.x.as<float>(), b.host);  // the mistake: y has no value yet
  b.queue_add(b.stream);
  for (const float value : b.fetched()) CHECK(std::isnan(value));
  // reused memory contains no old values either
  { const buffer<device_type> old(b.on, n * sizeof(float), memory_role::other); }
  const buffer<device_type> again(b.on, n * sizeof(float), memory_role::other);
  std::array<float, n> back{};
  copy_to_host(b.stream, std::span<float>(back), again.as<float>());
  b.stream.synchronize();
  for (const float value : back) CHECK(std::isnan(value));
}

TEST_CASE("a stream that does not wait for another reads what is not there yet; with an event it waits") {
  for (const bool waits : {false, true}) {
    CAPTURE(waits);
    bench b;
    device_type::stream second(b.on);
    b.queue_inputs();
    const auto copied = b.stream.record();
    if (waits) second.wait(copied);
    b.queue_add(second);
    second.synchronize();
    std::array<float, n> back{};
    copy_to_host(second, std::span<float>(back), b.y.as<float>());
    second.synchronize();
    if (waits) CHECK(back == std::array<float, n>{2, 4, 6, 8, 10});
    else CHECK(std::isnan(back[0]));
    b.stream.synchronize();
  }
}

TEST_CASE("an event waits for what was queued before it, and for no more") {
  bench b;
  std::array<float, n> early{}, late{};
  b.queue_inputs();
  copy_to_host(b.stream, std::span<float>(early), b.y.as<float>());
  const auto event = b.stream.record();
  b.queue_add(b.stream);
  copy_to_host(b.stream, std::span<float>(late), b.y.as<float>());
  event.synchronize();
  CHECK(early == b.host);
  CHECK(late == std::array<float, n>{});
  b.stream.synchronize();
  CHECK(late == std::array<float, n>{2, 4, 6, 8, 10});
}

TEST_CASE("work is done in the order it was given, and none is lost when the stream ends") {
  std::array<float, n> back{};
  bench b;
  {
    device_type::stream stream(b.on);
    fill_zero(stream, b.y.as<float>());
    for (int i = 0; i < 100; ++i) {
      copy_to_device(stream, b.x.as<float>(), b.host);
      b.queue_add(stream);
      if (i == 49) copy_within(stream, b.x.as<float>(), device_span<const float, memory>(b.y.as<float>()));
      if (i == 49) b.queue_add(stream);  // y = 2 · 50 · host
    }
    copy_to_host(stream, std::span<float>(back), b.y.as<float>());
  }
  CHECK(back == std::array<float, n>{150, 300, 450, 600, 750});
}

TEST_CASE("the limit and the tally are those of the device behind the wall") {
  const device_type::context on(reference::context({.memory_limit = 100}));
  const buffer<device_type> some(on, 60, memory_role::weights);
  CHECK(on.memory().of(memory_role::weights) == 60);
  CHECK_THROWS_AS(buffer<device_type>(on, 60, memory_role::weights), memory_error);
}
