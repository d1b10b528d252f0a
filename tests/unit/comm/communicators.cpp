// Collectives on device memory: every communicator, on synchronous devices and an asynchronous one; NCCL's requirements.
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
#include <xtrain/comm/ring_shift.hpp>
#include <xtrain/parallel/pipeline/stage_message.hpp>
#include <xtrain/testing/recorded_group.hpp>
#include <xtrain/testing/recorded_transport.hpp>

using namespace xtrain;

namespace {

using isolated = testing::isolated<cpu>;
using problems = std::vector<std::string>;

template <class Device>
void conforms(std::size_t ranks) {
  CAPTURE(ranks);
  const auto ledger = std::make_shared<testing::call_ledger>(ranks);
  const auto ledgers = std::make_shared<testing::call_ledgers>();
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    const typename Device::context on;
    group plain(network, 0);
    CHECK(testing::communicator_conformance<Device>(on, plain) == problems{});
    testing::recorded_group recorded(ledger, network, 1);
    CHECK(testing::communicator_conformance<Device>(on, recorded) == problems{});
    group native(std::make_shared<testing::recorded_transport<Device>>(network, ledgers), 2);
    CHECK(testing::communicator_conformance<Device>(on, native) == problems{});
  });
  ledger->require_complete();
  CHECK(ledger->calls() > 0);
  CHECK_NOTHROW(ledgers->require_complete());
  CHECK(ledgers->host_messages == 0);
  if (ranks > 1) CHECK(ledgers->native_messages > 0);
}

/// Native collectives; the all-reduce rounds partial sums at every hop of a ring, as NCCL's.
class ring_sums final : public testing::recorded_collectives<isolated> {
 public:
  ring_sums(std::shared_ptr<testing::call_ledgers> ledgers, const std::shared_ptr<transport>& network, std::vector<std::size_t> members, std::uint32_t channel)
      : recorded_collectives(std::move(ledgers), network, members, channel), ranks_(network, std::move(members), 100 + channel) {}

  void all_reduce(void* stream, const device_array& values, reduction op) override {
    typed(values, [&]<class T>(device_span<T, isolated::memory> span) {
      xtrain::detail::on_host(of(stream), ranks_.staging(), span, true, [this, op](std::span<T> host) {
        const std::size_t size = ranks_.size(), n = host.size();
        std::vector<T> all(n * size);
        ranks_.all_gather(std::span<const T>(host), std::span<T>(all));
        for (std::size_t i = 0; i < n; ++i) {
          const std::size_t first = i * size / n;  // of the chunk
          host[i] = all[first * n + i];
          for (std::size_t k = 1; k < size; ++k) {
            const T next = all[(first + k) % size * n + i];
            host[i] = static_cast<T>(op == reduction::sum ? host[i] + next : std::max(host[i], next));
          }
        }
      });
    });
  }

 private:
  group ranks_;
};
class ring_sum_transport final : public testing::recorded_transport<isolated> {
 public:
  using recorded_transport::recorded_transport;
  [[nodiscard]] std::unique_ptr<native_collectives> native(std::span<const std::size_t> members, std::uint32_t channel) override {
    return std::make_unique<ring_sums>(ledgers_, network_, std::vector<std::size_t>(members.begin(), members.end()), channel);
  }
};

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

TEST_CASE("a library that rounds the sum at every hop stays within the bound of the suite, and gives other bits than one that rounds once") {
  constexpr std::size_t ranks = 5, n = 1000;
  const auto ledgers = std::make_shared<testing::call_ledgers>();
  std::vector<std::vector<float>> once(ranks), hops(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    const isolated::context on;
    isolated::stream stream(on);
    group plain(network, 0), ring(std::make_shared<ring_sum_transport>(network, ledgers), 1);
    CHECK(testing::communicator_conformance<isolated>(on, ring) == problems{});
    const buffer<isolated> values(on, n * sizeof(bf16), memory_role::other);
    const auto sum_of = [&](group& all) {
      std::vector<bf16> host(n);
      for (std::size_t i = 0; i < n; ++i) host[i] = static_cast<bf16>(1.0F / static_cast<float>(1 + (i * 7 + network->rank() * 31) % 97));
      copy_to_device(stream, values.as<bf16>(), host);
      all.all_reduce(stream, values.as<bf16>(), reduction::sum);
      copy_to_host(stream, std::span<bf16>(host), values.as<bf16>());
      stream.synchronize();
      return std::vector<float>(host.begin(), host.end());
    };
    once[network->rank()] = sum_of(plain);
    hops[network->rank()] = sum_of(ring);
  });
  CHECK(hops[0] == hops[4]);
  CHECK(hops[0] != once[0]);
}

TEST_CASE("ring exchanges and messages between stages go through the accelerator's library beside the stream; the host sends nothing and does not wait") {
  for (const std::size_t ranks : {2U, 3U, 4U}) {
    CAPTURE(ranks);
    const auto ledgers = std::make_shared<testing::call_ledgers>();
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      const isolated::context on;
      isolated::stream stream(on);
      group all(std::make_shared<testing::recorded_transport<isolated>>(network, ledgers));
      using in = device_span<const float, isolated::memory>;
      const std::size_t me = all.rank(), next = (me + 1) % ranks, previous = (me + ranks - 1) % ranks;
      const auto rank_value = [](std::size_t rank) { return std::vector<float>(64, static_cast<float>(rank)); };
      std::vector<buffer<isolated>> arrays;
      for (int i = 0; i < 6; ++i) arrays.emplace_back(on, 64 * sizeof(float), memory_role::other);
      const auto at = [&](std::size_t i) { return arrays[i].as<float>(); };
      const std::vector<float> own = rank_value(me);
      copy_to_device(stream, at(0), own);
      const testing::host_waits before = on.waits();
      // two shifts in flight; both ranks of a pair send first, and wait for both messages later
      ring_shift<float, isolated::memory> one(0), two(1);
      one.begin(stream, all, in(at(0)), at(1));
      two.begin(stream, all, in(at(0)), at(2));
      one.finish(stream);
      two.finish(stream);
      stage_message<isolated, float> there, back, from_previous, from_next;
      there.send(stream, all, next, in(at(1)));
      back.send(stream, all, previous, in(at(2)));
      from_next.receive(stream, all, next, at(4));
      from_previous.receive(stream, all, previous, at(3));
      for (auto* message : {&from_previous, &from_next, &there, &back}) message->wait(stream);
      const testing::host_waits waits = on.waits().since(before);
      CHECK(waits.synchronizations + waits.event_waits + waits.blocking_copies == 0);
      for (const auto& [array, rank] : {std::pair{1, previous}, {2, previous}, {3, (me + ranks - 2) % ranks}, {4, me}}) {
        std::vector<float> found(64);
        copy_to_host(stream, std::span<float>(found), in(at(static_cast<std::size_t>(array))));
        stream.synchronize();
        CHECK(found == rank_value(rank));
      }
    });
    CHECK(ledgers->host_messages == 0);
    CHECK(ledgers->native_messages == ranks * 4);
  }
}
