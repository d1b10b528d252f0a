// NCCL as the collectives of a run, on an NCCL and GPUs that stand in for real ones: results, what it demands of callers, lost ranks, errors at every call.
#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <xtrain/comm/mccl/mccl.hpp>
#include <xtrain/comm/nccl/nccl.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/testing/communicator_conformance.hpp>
#include <xtrain/testing/fake_musa.hpp>
#include <xtrain/testing/fake_nccl.hpp>

using namespace xtrain;
using namespace std::chrono_literals;
using testing::fake_cuda;
using testing::fake_nccl;

namespace {

using problems = std::vector<std::string>;
using in_fp32 = device_span<const float, cuda_memory>;

void check_clean(const fake_cuda& gpus, const fake_nccl& nccl) {
  CHECK(gpus.violations() == "");
  CHECK(gpus.leaks() == "");
  CHECK(nccl.violations() == "");
  CHECK(nccl.leaks() == "");
}

/// One rank of a run, with a GPU of its own.
struct rank_on_gpu {
  rank_on_gpu(const fake_cuda& gpus, const fake_nccl& nccl, const std::shared_ptr<transport>& network, nccl_options options = {})
      : on(gpus.open(static_cast<int>(network->rank()))), values(on, n * sizeof(float), memory_role::other),
        ranks(with_nccl(network, on, with(options, nccl))), stream(on) {
    fill_zero(stream, values.as<float>());
  }
  static nccl_options with(nccl_options options, const fake_nccl& nccl) {
    options.library = &nccl.library();
    return options;
  }
  void all_reduce() { ranks.all_reduce(stream, values.as<float>(), reduction::sum); }

  static constexpr std::size_t n = 64;
  cuda_context on;
  buffer<cuda> values;
  group ranks;
  cuda_stream stream;  // last: what is queued is done before the rest goes
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

TEST_CASE("NCCL's collectives pass the suite, in the order of the stream, with sums of 16 bits of either kind, and the host sends nothing") {
  for (const std::size_t ranks : {2U, 3U, 5U})
    for (const sums_of_16_bits sums : {sums_of_16_bits::in_fp32, sums_of_16_bits::by_nccl}) {
      CAPTURE(ranks);
      fake_cuda gpus({.devices = static_cast<int>(ranks), .is_late = sums == sums_of_16_bits::in_fp32});
      fake_nccl nccl(gpus);
      run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
        const cuda_context on = gpus.open(static_cast<int>(network->rank()));
        group all(with_nccl(network, on, {.sums = sums, .library = &nccl.library()}));
        CHECK(testing::communicator_conformance<cuda>(on, all) == problems{});
        CHECK(all.sent().messages == 0);
      });
      CHECK(nccl.calls_of("ncclAllReduce") > 0);
      CHECK(nccl.calls_of("ncclCommDestroy") == ranks);
      check_clean(gpus, nccl);
    }
}

TEST_CASE("sums of 16 bits are rounded once, in parts of any length; by NCCL they are rounded at every hop") {
  constexpr std::size_t ranks = 5;
  for (const std::size_t n : {3U, 1003U}) {
    std::vector<std::vector<float>> once(ranks), hops(ranks), host(ranks);
    fake_cuda gpus({.devices = ranks});
    fake_nccl nccl(gpus);
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      const std::size_t me = network->rank();
      const cuda_context on = gpus.open(static_cast<int>(me));
      cuda_stream stream(on);
      const nccl_options with{.library = &nccl.library()};
      nccl_options raw = with;
      raw.sums = sums_of_16_bits::by_nccl;
      group by_us(with_nccl(network, on, with), 0), by_nccl(with_nccl(network, on, raw), 1), by_host(network, 2);
      const buffer<cuda> values(on, n * sizeof(bf16), memory_role::other);
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
      hops[me] = sum_of(by_nccl);
      host[me] = sum_of(by_host);
    });
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CHECK(once[rank] == once[0]);
      CHECK(hops[rank] == hops[0]);
      CHECK(once[rank] == host[rank]);
    }
    if (n > 1000) CHECK(hops[0] != once[0]);
    check_clean(gpus, nccl);
  }
}

TEST_CASE("a rank that does not come ends the wait of the others at the timeout, with the ranks and the call in the error") {
  fake_cuda gpus({.devices = 2});
  fake_nccl nccl(gpus);
  const auto all = said(2, [&](const std::shared_ptr<transport>& network) {
    rank_on_gpu rank(gpus, nccl, network, {.timeout = 100ms});
    rank.all_reduce();
    rank.stream.synchronize();
    if (network->rank() == 0) rank.all_reduce();
    if (network->rank() == 1) std::this_thread::sleep_for(400ms);
    rank.stream.synchronize();
  });
  CHECK(all[0] == "nccl: rank 0 (of ranks 0 and 1) has waited 0.1 s for ncclAllReduce of 64 fp32, its call 2; another of these ranks is lost, hangs, or "
                  "makes other calls");
  CHECK(all[1] == "nothing");
  check_clean(gpus, nccl);
}

TEST_CASE("a rank that stops with an error ends the wait of the others at once, and they say why it stopped") {
  for (const bool before_connecting : {false, true}) {
    CAPTURE(before_connecting);
    fake_cuda gpus({.devices = 3});
    fake_nccl nccl(gpus);
    const auto all = said(3, [&](const std::shared_ptr<transport>& network) {
      if (before_connecting && network->rank() == 1) throw std::runtime_error("disk: full");
      rank_on_gpu rank(gpus, nccl, network);
      rank.all_reduce();
      if (network->rank() == 1) throw std::runtime_error("disk: full");
      rank.all_reduce();
      rank.stream.synchronize();
    });
    for (const std::size_t other : {0U, 2U}) {
      INFO(all[other]);
      CHECK(all[other].find("disk: full") != std::string::npos);
      if (!before_connecting) CHECK(all[other].starts_with(concat("nccl: rank ", other, " (of ranks 0, 1 and 2) waits for ")));
    }
    check_clean(gpus, nccl);
  }
}

TEST_CASE("ranks that make different calls, and a GPU of two ranks, end in errors that say so") {
  const auto run = [](int devices, auto&& work) {
    fake_cuda gpus({.devices = devices});
    fake_nccl nccl(gpus);
    const auto all = said(2, [&](const std::shared_ptr<transport>& network) { work(gpus, nccl, network); });
    CHECK(gpus.leaks() == "");
    CHECK(nccl.leaks() == "");
    return std::pair(all, nccl.violations());
  };
  const auto [different, told] = run(2, [](const fake_cuda& gpus, const fake_nccl& nccl, const std::shared_ptr<transport>& network) {
    rank_on_gpu rank(gpus, nccl, network, {.timeout = 5s});
    if (network->rank() == 0) rank.all_reduce();
    else rank.ranks.broadcast(rank.stream, rank.values.as<float>(), 1);
    rank.stream.synchronize();
  });
  CHECK(told.find("ranks make different calls; call 1 of rank ") == 0);
  for (const std::string& one : different) CHECK(one.substr(0, 5) == "nccl:");
  const auto [shared, none] = run(1, [](const fake_cuda& gpus, const fake_nccl& nccl, const std::shared_ptr<transport>& network) {
    const cuda_context on = gpus.open(0);
    cuda_stream stream(on);
    group all(with_nccl(network, on, {.library = &nccl.library()}));
    const buffer<cuda> values(on, 64, memory_role::other);
    all.all_reduce(stream, values.as<float>(), reduction::sum);
  });
  for (const std::string& one : shared) {
    INFO(one);
    CHECK(one.find("Duplicate GPU detected") != std::string::npos);
    CHECK(one.find("each rank must have a GPU of its own") != std::string::npos);
  }
  CHECK(none == "");
}

TEST_CASE("an error that NCCL reports later reaches the one who waits, and every later call") {
  fake_cuda gpus({.devices = 2});
  fake_nccl nccl(gpus);
  const auto all = said(2, [&](const std::shared_ptr<transport>& network) {
    rank_on_gpu rank(gpus, nccl, network, {.timeout = 5s});
    rank.all_reduce();
    rank.stream.synchronize();
    if (network->rank() == 1) return std::this_thread::sleep_for(200ms);
    rank.all_reduce();
    nccl.fail_rank(0, nccl_status::remote_error);
    CHECK_THROWS_AS(rank.stream.synchronize(), comm_error);
    rank.all_reduce();
  });
  CHECK(all[0] == "nccl: rank 0 (of ranks 0 and 1) waits for ncclAllReduce of 64 fp32, its call 2, which has failed: remote process exited or there was a "
                  "network error");
  check_clean(gpus, nccl);
}

TEST_CASE("wherever a call of NCCL or of the runtime fails, both ranks end, with an error of ours, and nothing is lost") {
  const auto work = [](const fake_cuda& gpus, const fake_nccl& nccl, const std::shared_ptr<transport>& network) {
    rank_on_gpu rank(gpus, nccl, network, {.timeout = 2s});
    rank.all_reduce();
    const std::size_t other = 1 - network->rank();
    rank.ranks.send_receive(rank.stream, in_fp32(rank.values.as<float>().subspan(0, 32)), other, rank.values.as<float>().subspan(32, 32), other);
    rank.ranks.broadcast(rank.stream, rank.values.as<float>(), 1);
    rank.stream.synchronize();
  };
  const auto run = [&](auto&& inject) {
    fake_cuda gpus({.devices = 2});
    fake_nccl nccl(gpus);
    inject(gpus, nccl);
    const auto all = said(2, [&](const std::shared_ptr<transport>& network) { work(gpus, nccl, network); });
    INFO(all[0], " | ", all[1]);
    check_clean(gpus, nccl);
    return std::pair(all, std::pair(gpus.calls(), nccl.calls()));
  };
  const auto [first, calls] = run([](fake_cuda& gpus, fake_nccl& nccl) {
    gpus.fail_call(0, 0);
    nccl.fail_call(0, 0);
  });
  CHECK(first == std::vector<std::string>{"nothing", "nothing"});
  std::size_t errors = 0;
  for (std::size_t at = 1; at <= calls.second; ++at) {
    CAPTURE(at);
    const auto all = run([&](fake_cuda&, fake_nccl& nccl) { nccl.fail_call(at, nccl_status::system_error); }).first;
    for (const std::string& one : all) {
      errors += one != "nothing";
      if (one.find("unhandled system error") == std::string::npos && one != "nothing") CHECK(one.find("has stopped") != std::string::npos);
    }
  }
  CHECK(errors > calls.second);
  for (std::size_t at = 1; at <= calls.first; at += 3) {
    CAPTURE(at);
    for (const std::string& one : run([&](fake_cuda& gpus, fake_nccl&) { gpus.fail_call(at, cuda_status::launch_failure); }).first)
      CHECK((one == "nothing" || one.substr(0, 5) == "cuda:" || one.substr(0, 5) == "nccl:" || one.substr(0, 8) == "threads:"));
  }
}

TEST_CASE("groups of calls are not nested and of one stream; types, streams of another GPU, captures and a missing library are refused") {
  fake_cuda gpus({.devices = 3});
  fake_nccl nccl(gpus);
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    const std::size_t me = network->rank();
    const cuda_context on = gpus.open(static_cast<int>(me)), elsewhere = gpus.open(2);
    const buffer<cuda> values(on, 64, memory_role::other);
    cuda_stream stream(on), beside(on), far(elsewhere);
    const device_array some{values.as<float>().raw(), 16, "fp32"};
    nccl_collectives calls(on, network, {0, 1}, 9, {.library = &nccl.library()});
    CHECK_THROWS_WITH_AS(calls.group_end(), "nccl: a group of calls must begin before it ends", comm_error);
    calls.group_start();
    CHECK_THROWS_WITH_AS(calls.group_start(), "nccl: groups of calls must not be nested", comm_error);
    calls.send(&stream, some, 1 - me);
    CHECK_THROWS_WITH_AS(calls.receive(&beside, some, 1 - me), "nccl: calls of a group must be queued on one stream", comm_error);
    calls.receive(&stream, {values.as<float>().raw(), 16, "fp32"}, 1 - me);
    calls.group_end();
    CHECK_THROWS_WITH_AS(calls.broadcast(&stream, {some.data, 16, "fp8"}, 0), "nccl: elements must be of fp32, fp64, bf16, fp16 or int32; given fp8",
                         comm_error);
    CHECK_THROWS_WITH_AS(calls.broadcast(&far, some, 0), doctest::Contains("must be queued on streams of its GPU, device"), comm_error);
    stream.begin_capture();
    CHECK_THROWS_WITH_AS(calls.broadcast(&stream, some, 0), doctest::Contains("another library queued work"), config_error);
    stream.synchronize();
  });
  check_clean(gpus, nccl);
  CHECK_THROWS_WITH_AS((void)load_nccl("libno_such_nccl.so.2"), doctest::Contains("nccl: NCCL must be installed where the loader finds it"), config_error);
}

namespace {

/// The fake of NCCL under MCCL's names: communicators are made by a call that waits for the other ranks.
const nccl_library* under_mccl = nullptr;
nccl_library mccl_of(const fake_nccl& nccl, const std::string& missing = "") {
  under_mccl = &nccl.library();
  return detail::make_mccl(
      [&](std::string_view name) -> void* {
        if (name == missing || name == "mcclCommFinalize" || name == "mcclGetLastError") return nullptr;
        if (name == "mcclCommInitRank")
          return reinterpret_cast<void*>(+[](nccl_handle* made, int ranks, nccl_unique_id id, int rank) {
            nccl_config config;
            int status = under_mccl->comm_init_rank_config(made, ranks, id, rank, &config);
            while (status == nccl_status::in_progress) {
              std::this_thread::sleep_for(100us);
              (void)under_mccl->comm_get_async_error(*made, &status);
            }
            return status;
          });
        void* found = nullptr;
        detail::for_each_nccl_entry(nccl.library(), [&](auto* entry, std::string_view of_nccl) {
          if (name.substr(4) == of_nccl.substr(4)) found = reinterpret_cast<void*>(entry);
        });
        return found;
      },
      "a fake");
}

}  // namespace

TEST_CASE("ranks on musa use MCCL: NCCL's code under other names; what an S80 or the library lacks is refused") {
  {
    testing::fake_musa gpus({.devices = 3});
    fake_nccl nccl(gpus);
    const nccl_library mccl = mccl_of(nccl);
    run_ranks(3, [&](const std::shared_ptr<transport>& network) {
      const musa_context on = gpus.open(static_cast<int>(network->rank()));
      group all(with_nccl(network, on, {.library = &mccl}));
      const buffer<musa> values(on, 64 * sizeof(float), memory_role::other);
      cuda_stream stream(on);
      std::vector<float> host(64, static_cast<float>(network->rank() + 1));
      stream.copy_from_host(values.as<float>().raw(), host.data(), 64 * sizeof(float));
      all.all_reduce(stream, values.as<float>(), reduction::sum);
      stream.copy_to_host(host.data(), values.as<float>().raw(), 64 * sizeof(float));
      stream.synchronize();
      CHECK(host[63] == 6);
    });
    CHECK(nccl.calls_of("ncclAllReduce") == 3);
    const std::string lost = said(3, [&](const std::shared_ptr<transport>& network) {
      const musa_context on = gpus.open(static_cast<int>(network->rank()));
      const buffer<musa> values(on, 64, memory_role::other);
      cuda_stream stream(on);
      group all(with_mccl(network, on, {.library = &mccl}));
      all.all_reduce(stream, values.as<float>(), reduction::sum);
      stream.synchronize();
      if (network->rank() == 1) throw config_error("disk: full");
      all.all_reduce(stream, values.as<float>(), reduction::sum);
      stream.synchronize();
    })[0];
    INFO(lost);
    CHECK(lost.find("mccl: rank 0 (of ranks 0, 1 and 2) waits for mcclAllReduce of 16 fp32, its call 2, but rank 1") == 0);
  }
  testing::fake_musa gpus({.architecture = 21, .warp_width = 128});
  fake_nccl nccl(gpus);
  const nccl_library mccl = mccl_of(nccl);
  const auto refusal = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const config_error& e) {
      return e.what();
    }
    return "nothing";
  };
  CHECK(refusal([&] { (void)with_mccl(nullptr, gpus.open(), {.library = &mccl}); }) ==
        "mccl: the GPU must be mp_22 (S4000) or newer; it is mp_21 (S80, S3000), for which there is no MCCL; messages can go through the host");
  CHECK(refusal([&] { (void)mccl_of(nccl, "mcclAllGather"); }) == "mccl: MCCL must have the entries that are called; a fake lacks mcclAllGather");
  CHECK(refusal([] { (void)load_mccl("libnone.so"); }).substr(0, 67) == "mccl: MCCL must be installed where the loader finds it; libnone.so ");
}
