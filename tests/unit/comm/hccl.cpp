// HCCL as the collectives of a run, on an HCCL and NPUs that stand in for real ones: results, what it demands of callers, lost ranks, errors at every call.
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <xtrain/comm/hccl/hccl.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/testing/communicator_conformance.hpp>
#include <xtrain/testing/fake_hccl.hpp>

using namespace xtrain;
using namespace std::chrono_literals;
using testing::fake_ascend;
using testing::fake_hccl;

namespace {

using problems = std::vector<std::string>;
using in_fp32 = device_span<const float, npu_memory>;

void check_clean(const fake_ascend& cards, const fake_hccl& hccl) {
  CHECK(cards.violations() == "");
  CHECK(cards.leaks() == "");
  CHECK(hccl.violations() == "");
  CHECK(hccl.leaks() == "");
}

/// One rank of a run, with an NPU of its own.
struct rank_on_npu {
  rank_on_npu(const fake_ascend& cards, const fake_hccl& hccl, const std::shared_ptr<transport>& network, hccl_options options = {})
      : on(cards.open(static_cast<int>(network->rank()))), values(on, n * sizeof(float), memory_role::other),
        ranks(with_hccl(network, on, with(options, hccl))), stream(on) {
    fill_zero(stream, values.as<float>());
  }
  static hccl_options with(hccl_options options, const fake_hccl& hccl) {
    options.library = &hccl.library();
    return options;
  }
  void all_reduce() { ranks.all_reduce(stream, values.as<float>(), reduction::sum); }

  static constexpr std::size_t n = 64;
  npu_context on;
  buffer<npu> values;
  group ranks;
  npu_stream stream;  // last: what is queued is done before the rest goes
};

/// What each rank says in the end; run_ranks rethrows only one of them.
template <class Work>
std::vector<std::string> said(std::size_t ranks, Work&& work) {
  std::vector<std::string> all(ranks, "nothing");
  try {
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      try {
        work(network);
      } catch (const std::exception& e) {
        all[network->rank()] = e.what();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  return all;
}

}  // namespace

TEST_CASE("HCCL's collectives pass the suite, in the order of the stream, with sums of 16 bits of either kind, and the host sends nothing") {
  for (const std::size_t ranks : {2U, 3U})
    for (const hccl_sums_of_16_bits sums : {hccl_sums_of_16_bits::in_fp32, hccl_sums_of_16_bits::by_hccl}) {
      CAPTURE(ranks);
      fake_ascend cards({.devices = static_cast<int>(ranks), .is_late = sums == hccl_sums_of_16_bits::in_fp32});
      fake_hccl hccl(cards);
      run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
        const npu_context on = cards.open(static_cast<int>(network->rank()));
        group all(with_hccl(network, on, {.sums = sums, .library = &hccl.library()}));
        CHECK(testing::communicator_conformance<npu>(on, all) == problems{});
        CHECK(all.sent().messages == 0);
        CHECK(on.memory_of_communicators() == std::size_t{400} << 20);
      });
      CHECK(hccl.calls_of("HcclAllReduce") > 0);
      CHECK(hccl.calls_of("HcclAlltoAll") > 0);
      CHECK(hccl.calls_of("HcclBatchSendRecv") > 0);
      CHECK(hccl.calls_of("HcclCommDestroy") == ranks);
      check_clean(cards, hccl);
    }
  CHECK(std::getenv("HCCL_DETERMINISTIC") == std::string("true"));
}

TEST_CASE("sums of 16 bits are rounded once, as on the host, in parts of any length; by HCCL they are rounded at every hop") {
  constexpr std::size_t ranks = 3;
  for (const std::size_t n : {2U, 1003U}) {
    std::vector<std::vector<float>> once(ranks), hops(ranks), host(ranks);
    fake_ascend cards({.devices = ranks});
    fake_hccl hccl(cards);
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      const std::size_t me = network->rank();
      const npu_context on = cards.open(static_cast<int>(me));
      npu_stream stream(on);
      const hccl_options with{.library = &hccl.library()};
      hccl_options raw = with;
      raw.sums = hccl_sums_of_16_bits::by_hccl;
      group by_us(with_hccl(network, on, with), 0), by_hccl(with_hccl(network, on, raw), 1), by_host(network, 2);
      const buffer<npu> values(on, n * sizeof(bf16), memory_role::other);
      const auto sum_of = [&](group& all) {
        std::vector<bf16> x(n);
        for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<bf16>(1.0F / static_cast<float>(1 + (i * 7 + me * 31) % 97));
        copy_to_device(stream, values.as<bf16>(), x);
        all.all_reduce(stream, values.as<bf16>(), reduction::sum);
        copy_to_host(stream, std::span<bf16>(x), values.as<bf16>());
        stream.synchronize();
        return std::vector<float>(x.begin(), x.end());
      };
      once[me] = sum_of(by_us);
      hops[me] = sum_of(by_hccl);
      host[me] = sum_of(by_host);
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CHECK(once[rank] == once[0]);
      CHECK(hops[rank] == hops[0]);
      CHECK(once[rank] == host[rank]);
    }
    if (n > 1000) CHECK(hops[0] != once[0]);
    check_clean(cards, hccl);
  }
}

TEST_CASE("groups of the same ranks share a communicator, whose calls on several streams are done in their order; its memory is counted") {
  fake_ascend cards({.devices = 2, .memory = std::size_t{500} << 20});
  fake_hccl hccl(cards);
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    const npu_context on = cards.open(static_cast<int>(network->rank()));
    const auto shared = with_hccl(network, on, {.library = &hccl.library()});
    group one(shared, 0), other(shared, 1);
    npu_stream stream(on), beside(on);
    const buffer<npu> x(on, 64, memory_role::other), y(on, 64, memory_role::other);
    fill_zero(stream, x.as<float>());
    fill_zero(beside, y.as<float>());
    one.all_reduce(stream, x.as<float>(), reduction::sum);
    other.all_reduce(beside, y.as<float>(), reduction::sum);
    one.all_reduce(stream, x.as<float>(), reduction::sum);
    stream.synchronize();
    beside.synchronize();
    CHECK(static_cast<const hccl_transport&>(*shared).communicators() == 1);
    std::string why;
    try {
      const buffer<npu> more(on, std::size_t{200} << 20, memory_role::stash);
    } catch (const memory_error& e) {
      why = e.what();
    }
    CHECK(why == "npu: stash needs 200.00 MiB; in use are 128 B (other 128 B) of 500.00 MiB, of which HCCL's communicators have 400.00 MiB");
  });
  CHECK(hccl.calls_of("HcclCommInitRootInfo") == 2);
  check_clean(cards, hccl);
}

TEST_CASE("messages of a pair have a communicator of their own, which pairs of the same ranks share") {
  fake_ascend cards({.devices = 2});
  fake_hccl hccl(cards);
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    const npu_context on = cards.open(static_cast<int>(network->rank()));
    hccl_transport with(network, on, {.library = &hccl.library()});
    const std::size_t pair[] = {0, 1}, back[] = {1, 0};
    const std::uint32_t pairs = detail::point_to_point::pair_channels;
    const auto all = with.native(pair, 3), one = with.native(pair, pairs + 3), same = with.native(pair, pairs + 4), other = with.native(back, pairs + 3);
    CHECK(with.communicators() == 3);
  });
  CHECK(hccl.calls_of("HcclCommInitRootInfo") == 6);
  check_clean(cards, hccl);
}

TEST_CASE("sums on two streams use the same memory one after the other, whichever stream is waited for first") {
  fake_ascend cards({.devices = 2});
  fake_hccl hccl(cards);
  constexpr std::size_t n = 64;
  const auto check = [&]<class T>(group& all, const npu_context& on, T) {
    npu_stream first(on), second(on);
    const buffer<npu> x(on, n * sizeof(T), memory_role::other), y(on, n * sizeof(T), memory_role::other);
    std::vector<T> from_x(n, static_cast<T>(1.0f + static_cast<float>(all.rank()))), from_y(n, static_cast<T>(10.0f + static_cast<float>(all.rank())));
    copy_to_device(first, x.as<T>(), std::span<const T>(from_x));
    copy_to_device(second, y.as<T>(), std::span<const T>(from_y));
    all.all_reduce(first, x.as<T>(), reduction::sum);
    all.all_reduce(second, y.as<T>(), reduction::sum);
    copy_to_host(second, std::span<T>(from_y), y.as<T>());
    second.synchronize();
    copy_to_host(first, std::span<T>(from_x), x.as<T>());
    first.synchronize();
    for (std::size_t i = 0; i < n; ++i) {
      CHECK(static_cast<double>(from_x[i]) == 3);
      CHECK(static_cast<double>(from_y[i]) == 21);
    }
  };
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    const npu_context on = cards.open(static_cast<int>(network->rank()));
    group all(with_hccl(network, on, {.library = &hccl.library()}));
    check(all, on, bf16());
    check(all, on, double());
  });
  check_clean(cards, hccl);
}

TEST_CASE("where the runtime refuses to say whether an event is reached, waits with a time limit do; without these the wait for a call ends with an error") {
  for (const bool has_timed_waits : {true, false}) {
    CAPTURE(has_timed_waits);
    fake_ascend cards({.devices = 2});
    fake_hccl hccl(cards);
    const auto all = said(2, [&](const std::shared_ptr<transport>& network) {
      npu_runtime silent = cards.runtime();
      if (network->rank() == 0) silent.query_event = [](void*, std::int32_t*) { return npu_status::runtime_parameter; };
      if (!has_timed_waits) silent.synchronize_event_for = nullptr;
      const npu_context on(npu_config{.device = static_cast<int>(network->rank()), .runtime = &silent});
      group ranks(with_hccl(network, on, {.timeout = 5s, .library = &hccl.library()}));
      const buffer<npu> x(on, 64, memory_role::other);
      npu_stream stream(on);
      fill_zero(stream, x.as<float>());
      ranks.all_reduce(stream, x.as<float>(), reduction::sum);
      std::this_thread::sleep_for(200ms);
      stream.synchronize();
    });
    if (has_timed_waits) {
      CHECK(all == std::vector<std::string>(2, "nothing"));
      check_clean(cards, hccl);
    } else {
      CHECK(all[0].starts_with("hccl: rank 0 (of ranks 0 and 1) waits for HcclAllReduce of 16 fp32, its call 1, and the NPU does not say whether it is done: "
                               "npu: aclrtQueryEventStatus on device 0 failed: "));
    }
    CHECK(cards.leaks() == "");
    CHECK(hccl.leaks() == "");
  }
  // a rank that does not come is noticed either way
  fake_ascend cards({.devices = 2});
  fake_hccl hccl(cards);
  const auto late = said(2, [&](const std::shared_ptr<transport>& network) {
    npu_runtime silent = cards.runtime();
    silent.query_event = [](void*, std::int32_t*) { return npu_status::not_supported; };
    const npu_context on(npu_config{.device = static_cast<int>(network->rank()), .runtime = &silent});
    group ranks(with_hccl(network, on, {.timeout = 100ms, .library = &hccl.library()}));
    const buffer<npu> x(on, 64, memory_role::other);
    npu_stream stream(on);
    fill_zero(stream, x.as<float>());
    ranks.all_reduce(stream, x.as<float>(), reduction::sum);
    stream.synchronize();
    if (network->rank() == 0) ranks.all_reduce(stream, x.as<float>(), reduction::sum);
    if (network->rank() == 1) std::this_thread::sleep_for(400ms);
    stream.synchronize();
  });
  CHECK(late[0].starts_with("hccl: rank 0 (of ranks 0 and 1) has waited 0.1 s for HcclAllReduce of 16 fp32, its call 2; another of these ranks is lost"));
  CHECK(late[1] == "nothing");
  check_clean(cards, hccl);
}

TEST_CASE("a rank that does not come ends the wait of the others at the timeout, with the ranks, the call and the variables in the error") {
  fake_ascend cards({.devices = 2});
  fake_hccl hccl(cards);
  const auto all = said(2, [&](const std::shared_ptr<transport>& network) {
    rank_on_npu rank(cards, hccl, network, {.timeout = 100ms});
    rank.all_reduce();
    rank.stream.synchronize();
    if (network->rank() == 0) rank.all_reduce();
    if (network->rank() == 1) std::this_thread::sleep_for(400ms);
    rank.stream.synchronize();
  });
  CHECK(all[0] == "hccl: rank 0 (of ranks 0 and 1) has waited 0.1 s for HcclAllReduce of 64 fp32, its call 2; another of these ranks is lost, hangs, or "
                  "makes other calls; HCCL_EXEC_TIMEOUT (1836 s) is how long HCCL waits for another rank");
  CHECK(all[1] == "nothing");
  CHECK(cards.calls_of("aclrtStreamAbort") == 1);
  check_clean(cards, hccl);
}

TEST_CASE("a rank that stops with an error ends the wait of the others at once, and they say why it stopped") {
  for (const bool before_connecting : {false, true}) {
    CAPTURE(before_connecting);
    fake_ascend cards({.devices = 3});
    fake_hccl hccl(cards);
    const auto all = said(3, [&](const std::shared_ptr<transport>& network) {
      if (before_connecting && network->rank() == 1) throw std::runtime_error("disk: full");
      rank_on_npu rank(cards, hccl, network);
      rank.all_reduce();
      if (network->rank() == 1) throw std::runtime_error("disk: full");
      rank.all_reduce();
      rank.stream.synchronize();
    });
    for (const std::size_t other : {0U, 2U}) {
      INFO(all[other]);
      CHECK(all[other].find("disk: full") != std::string::npos);
      if (!before_connecting) CHECK(all[other].starts_with(concat("hccl: rank ", other, " (of ranks 0, 1 and 2) waits for ")));
    }
    check_clean(cards, hccl);
  }
}

TEST_CASE("ranks that make different calls, an NPU of two ranks, and ranks that cannot connect end in errors that say so") {
  const auto run = [](int devices, auto&& work) {
    fake_ascend cards({.devices = devices});
    fake_hccl hccl(cards, 200ms);
    const auto all = said(2, [&](const std::shared_ptr<transport>& network) { work(cards, hccl, network); });
    CHECK(cards.leaks() == "");
    CHECK(hccl.leaks() == "");
    return std::pair(all, hccl.violations());
  };
  const auto [different, told] = run(2, [](const fake_ascend& cards, const fake_hccl& hccl, const std::shared_ptr<transport>& network) {
    rank_on_npu rank(cards, hccl, network, {.timeout = 5s});
    if (network->rank() == 0) rank.all_reduce();
    else rank.ranks.broadcast(rank.stream, rank.values.as<float>(), 1);
    rank.stream.synchronize();
  });
  CHECK(told.starts_with("ranks make different calls; call 1 of rank "));
  for (const std::string& one : different) CHECK(one.starts_with("hccl: "));
  const auto [shared, none] = run(1, [](const fake_ascend& cards, const fake_hccl& hccl, const std::shared_ptr<transport>& network) {
    const npu_context on = cards.open(0);
    npu_stream stream(on);
    group all(with_hccl(network, on, {.library = &hccl.library()}));
    const buffer<npu> values(on, 64, memory_role::other);
    all.all_reduce(stream, values.as<float>(), reduction::sum);
  });
  for (const std::string& one : shared) {
    INFO(one);
    CHECK((one.find("each rank must have an NPU of its own") != std::string::npos || one.find("has stopped") != std::string::npos));
    CHECK(one.find("HCCL_CONNECT_TIMEOUT") != std::string::npos);
  }
  CHECK(none.find("both on device 0") != std::string::npos);
}

TEST_CASE("an error that HCCL reports later reaches the one who waits, and every later call") {
  fake_ascend cards({.devices = 2});
  fake_hccl hccl(cards);
  const auto all = said(2, [&](const std::shared_ptr<transport>& network) {
    rank_on_npu rank(cards, hccl, network, {.timeout = 5s});
    rank.all_reduce();
    rank.stream.synchronize();
    if (network->rank() == 1) return std::this_thread::sleep_for(200ms);
    rank.all_reduce();
    hccl.fail_rank(0, hccl_status::remote);
    CHECK_THROWS_AS(rank.stream.synchronize(), comm_error);
    rank.all_reduce();
  });
  CHECK(all[0] == "hccl: rank 0 (of ranks 0 and 1) waits for HcclAllReduce of 64 fp32, its call 2, which has failed: another rank has failed (21); "
                  "HCCL_EXEC_TIMEOUT (1836 s) is how long HCCL waits for another rank");
  check_clean(cards, hccl);
}

TEST_CASE("wherever a call of HCCL or of the runtime fails, both ranks end, with an error of ours, and nothing is lost") {
  const auto work = [](const fake_ascend& cards, const fake_hccl& hccl, const std::shared_ptr<transport>& network) {
    rank_on_npu rank(cards, hccl, network, {.timeout = 2s});
    rank.all_reduce();
    const std::size_t other = 1 - network->rank();
    rank.ranks.send_receive(rank.stream, in_fp32(rank.values.as<float>().subspan(0, 32)), other, rank.values.as<float>().subspan(32, 32), other);
    rank.ranks.broadcast(rank.stream, rank.values.as<float>(), 1);
    rank.stream.synchronize();
  };
  const auto run = [&](auto&& inject) {
    fake_ascend cards({.devices = 2});
    fake_hccl hccl(cards, 200ms);
    inject(cards, hccl);
    const auto all = said(2, [&](const std::shared_ptr<transport>& network) { work(cards, hccl, network); });
    INFO(all[0], " | ", all[1]);
    check_clean(cards, hccl);
    return std::pair(all, hccl.calls());
  };
  const auto [first, calls] = run([](fake_ascend&, fake_hccl& hccl) { hccl.fail_call(0, 0); });
  CHECK(first == std::vector<std::string>{"nothing", "nothing"});
  std::size_t errors = 0;
  for (std::size_t at = 1; at <= calls; ++at) {
    CAPTURE(at);
    for (const std::string& one : run([&](fake_ascend&, fake_hccl& hccl) { hccl.fail_call(at, hccl_status::network); }).first) errors += one != "nothing";
  }
  CHECK(errors + 4 >= 2 * calls);  // all but the calls that destroy
  for (std::size_t at = 1; at <= 60; at += 7) {
    CAPTURE(at);
    for (const std::string& one : run([&](fake_ascend& cards, fake_hccl&) { cards.fail_call(at, npu_status::ai_core_exception); }).first)
      CHECK((one == "nothing" || one.starts_with("npu:") || one.starts_with("hccl:") || one.starts_with("threads:")));
  }
}

TEST_CASE("groups of calls are not nested and of one stream; types, streams of another NPU and a missing library are refused; the rank itself gets a copy") {
  fake_ascend cards({.devices = 3});
  fake_hccl hccl(cards);
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    const std::size_t me = network->rank();
    const npu_context on = cards.open(static_cast<int>(me)), elsewhere = cards.open(2);
    const buffer<npu> values(on, 256, memory_role::other);
    npu_stream stream(on), beside(on), far(elsewhere);
    const device_array some{values.as<float>().raw(), 16, "fp32"}, more{values.as<float>().raw() + 16, 16, "fp32"};
    fill_zero(stream, values.as<float>());
    const auto with = std::make_shared<hccl_transport>(network, on, hccl_options{.library = &hccl.library()});
    const std::size_t both[] = {0, 1};
    const auto calls = with->native(both, 9);
    CHECK_THROWS_WITH_AS(calls->group_end(), "hccl: a group of calls must begin before it ends", comm_error);
    calls->group_start();
    CHECK_THROWS_WITH_AS(calls->group_start(), "hccl: groups of calls must not be nested", comm_error);
    calls->send(&stream, some, 1 - me);
    calls->send(&stream, some, 1 - me);  // a second one: another batch
    calls->send(&stream, some, me);
    CHECK_THROWS_WITH_AS(calls->receive(&beside, some, 1 - me), "hccl: calls of a group must be queued on one stream", comm_error);
    calls->receive(&stream, more, 1 - me);
    calls->receive(&stream, {values.as<float>().raw() + 32, 16, "fp32"}, me);
    calls->group_end();
    CHECK_THROWS_WITH_AS(calls->broadcast(&stream, {some.data, 16, "fp8"}, 0), "hccl: elements must be of fp32, fp64, bf16, fp16 or int32; given fp8",
                         comm_error);
    CHECK_THROWS_WITH_AS(calls->broadcast(&far, some, 0), doctest::Contains("must be queued on streams of its NPU, device"), comm_error);
    stream.synchronize();
  });
  check_clean(cards, hccl);
  CHECK_THROWS_WITH_AS((void)load_hccl("libno_such_hccl.so"), doctest::Contains("hccl: CANN must be installed, and its environment set"), config_error);
}
