// Collectives on device memory: every communicator, on devices that compute before they return and on one that does not; what NCCL would demand.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include <xtrain/comm/launch.hpp>
#include <xtrain/comm/self.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/testing/communicator_conformance.hpp>
#include <xtrain/testing/isolated.hpp>
#include <xtrain/testing/recorded_group.hpp>

using namespace xtrain;

namespace {

using isolated = testing::isolated<cpu>;
using problems = std::vector<std::string>;

template <class Device>
void conforms(std::size_t ranks) {
  CAPTURE(ranks);
  const auto ledger = std::make_shared<testing::call_ledger>(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    const typename Device::context on;
    group plain(network, 0);
    CHECK(testing::communicator_conformance<Device>(on, plain) == problems{});
    testing::recorded_group recorded(ledger, network, 1);
    CHECK(testing::communicator_conformance<Device>(on, recorded) == problems{});
  });
  ledger->require_complete();
  CHECK(ledger->calls() > 0);
}

}  // namespace

TEST_CASE("self, groups and recorded groups give what each rank computes itself, in the order of the stream") {
  const cpu::context on;
  const isolated::context beside;
  self alone;
  CHECK(testing::communicator_conformance<cpu>(on, alone) == problems{});
  CHECK(testing::communicator_conformance<isolated>(beside, alone) == problems{});
  for (const std::size_t ranks : {1U, 2U, 3U, 5U}) {
    conforms<cpu>(ranks);
    conforms<isolated>(ranks);
  }
}

TEST_CASE("a collective does not make the host wait") {
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    const isolated::context on;
    isolated::stream stream(on);
    group ranks(network);
    const buffer<isolated> values(on, 64 * sizeof(float), memory_role::other), whole(on, 128 * sizeof(float), memory_role::other);
    fill_zero(stream, values.as<float>());
    const testing::host_waits before = on.waits();
    for (int i = 0; i < 3; ++i) {
      ranks.all_reduce(stream, values.as<float>(), reduction::sum);
      ranks.all_gather(stream, device_span<const float, isolated::memory>(values.as<float>()), whole.as<float>());
      ranks.reduce_scatter(stream, device_span<const float, isolated::memory>(whole.as<float>()), values.as<float>(), reduction::sum);
      ranks.broadcast(stream, values.as<float>(), 1);
    }
    const testing::host_waits waits = on.waits().since(before);
    CHECK(waits.synchronizations + waits.event_waits + waits.blocking_copies == 0);
    stream.synchronize();
  });
}

TEST_CASE("ranks that make different calls are told which") {
  testing::call_ledger ledger(2);
  ledger.record(0, {"all_reduce", "fp32", 8, 0, reduction::sum});
  ledger.record(0, {"all_gather", "fp32", 16, 0, reduction::sum});
  ledger.record(1, {"all_reduce", "fp32", 8, 0, reduction::sum});
  CHECK_THROWS_WITH_AS(ledger.require_complete(), doctest::Contains("rank 1 has made 1 of 2; the next is all_gather of 16 fp32"), comm_error);
  CHECK_THROWS_WITH_AS(ledger.record(1, {"broadcast", "bf16", 16, 1, reduction::sum}),
                       "recorded_group: all ranks must make the same calls in the same order; call 2 of rank 1 is broadcast of 16 bf16 from rank 1, of "
                       "rank 0 all_gather of 16 fp32",
                       comm_error);
}

TEST_CASE("ranks that send to each other do it in a group") {
  for (const std::size_t ranks : {2U, 4U}) {
    const auto ledger = std::make_shared<testing::call_ledger>(ranks);
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      const isolated::context on;
      isolated::stream stream(on);
      testing::recorded_group group(ledger, network);
      const std::size_t next = (group.rank() + 1) % ranks, previous = (group.rank() + ranks - 1) % ranks;
      std::vector<float> mine(100, static_cast<float>(group.rank())), theirs(100);
      const buffer<isolated> sent(on, 400, memory_role::other), received(on, 400, memory_role::other);
      copy_to_device(stream, sent.as<float>(), mine);
      group.begin_group();
      CHECK_THROWS_AS(group.begin_group(), comm_error);
      group.send(stream, next, device_span<const float, isolated::memory>(sent.as<float>()));
      group.receive(stream, previous, received.as<float>());
      group.end_group(stream);
      copy_to_host(stream, std::span<float>(theirs), received.as<float>());
      stream.synchronize();
      CHECK(theirs == std::vector<float>(100, static_cast<float>(previous)));
      CHECK_THROWS_AS(group.end_group(stream), comm_error);
      CHECK_THROWS_WITH_AS(group.send(stream, group.rank(), device_span<const float, isolated::memory>(sent.as<float>())),
                           doctest::Contains("must send to another"), comm_error);
    });
  }
}
