// Ranks that are processes. mpirun starts them; every rank runs every case.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <xtrain/comm/background.hpp>
#include <xtrain/comm/group.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/mpi.hpp>
#include <xtrain/testing/communicator_conformance.hpp>
#include <xtrain/testing/isolated.hpp>
#include <xtrain/testing/slow_transport.hpp>
#include <xtrain/testing/transport_conformance.hpp>

using namespace xtrain;

namespace {

using network = std::shared_ptr<transport>;

/// No case needs that long: a hanging rank must not hold the others for ten minutes.
constexpr mpi_options watched{.timeout = std::chrono::seconds(60)};

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const comm_error& problem) {
    return problem.what();
  }
  return "nothing was thrown";
}

/// Sums of values that depend on the order of additions.
std::vector<float> sums(const network& w, std::size_t n) {
  group all(w);
  std::vector<float> values(n), part(n), rounded;
  for (std::size_t i = 0; i < n; ++i) values[i] = 1.0F / static_cast<float>(1 + i * 7 + w->rank());
  const std::vector<float> mine = values;
  all.all_reduce(std::span<float>(values), reduction::sum);
  std::vector<float> whole(n * w->size());
  all.all_gather(std::span<const float>(mine), std::span<float>(whole));
  all.reduce_scatter(std::span<const float>(whole), std::span<float>(part), reduction::sum);
  values.insert(values.end(), part.begin(), part.end());
  std::vector<bf16> narrow(mine.begin(), mine.end());
  all.all_reduce(std::span<bf16>(narrow), reduction::sum);
  for (const bf16 x : narrow) values.push_back(static_cast<float>(x));
  return values;
}

}  // namespace

TEST_CASE("ranks that are processes pass the conformance suite") {
  mpi_session session(watched);
  session.run([](const network& w) {
    CHECK(testing::transport_conformance(w) == std::vector<std::string>{});
    group ranks(w);
    CHECK(testing::communicator_conformance<cpu>(cpu::context{}, ranks) == std::vector<std::string>{});
    CHECK(testing::communicator_conformance<testing::isolated<cpu>>(testing::isolated<cpu>::context{}, ranks) == std::vector<std::string>{});
  });
}

TEST_CASE("sums of processes are the bits of sums of threads") {
  mpi_session session(watched);
  session.run([&](const network& w) {
    for (const std::size_t n : {37U, 3001U, 300001U}) {
      const std::vector<float> of_processes = sums(w, n);
      std::vector<float> of_threads;
      run_ranks(w->size(), [&](const network& t) {
        const std::vector<float> values = sums(t, n);
        if (t->rank() == w->rank()) of_threads = values;
      });
      CHECK(of_processes == of_threads);
    }
  });
}

TEST_CASE("threads of a rank communicate at the same time, each on a channel") {
  mpi_session session(watched);
  session.run([](const network& w) {
    constexpr std::uint32_t channels = 4;
    const auto delayed = std::make_shared<testing::slow_transport>(w, testing::slow_network{.jitter = std::chrono::microseconds(300)});
    std::vector<double> sums(channels);
    std::vector<background> behind(channels);
    for (std::uint32_t c = 0; c < channels; ++c)
      behind[c].begin([&, c] {
        group on_channel(c % 2 == 0 ? w : delayed, c);
        for (std::size_t i = 0; i < 100; ++i) {
          std::vector<double> values(i % 3 == 0 ? 3000 : 1, static_cast<double>(c + i));
          on_channel.all_reduce(std::span<double>(values), reduction::sum);
          sums[c] += values.back();
        }
      });
    for (std::uint32_t c = 0; c < channels; ++c) {
      behind[c].finish();
      CHECK(sums[c] == static_cast<double>(w->size()) * (100.0 * c + 4950.0));
    }
  });
}

TEST_CASE("messages of any length arrive, in pieces too") {
  mpi_session session({.timeout = watched.timeout, .piece = 1000});
  session.run([](const network& w) {
    const std::size_t next = (w->rank() + 1) % w->size(), before = (w->rank() + w->size() - 1) % w->size();
    for (const std::size_t n : {0U, 1U, 999U, 4096U, 4097U, 5000U, 5001U, 123456U}) {
      std::vector<std::byte> out(n), in(n);
      for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>(i * 31 + w->rank());
      const pending_message receive = w->receive(before, 3, in), send = w->send(next, 3, out);
      receive->wait();
      send->wait();
      bool same = true;
      for (std::size_t i = 0; i < n; ++i) same = same && in[i] == static_cast<std::byte>(i * 31 + before);
      CHECK(same);
    }
  });
}

TEST_CASE("sends may be waited for before receives") {
  mpi_session session(watched);
  session.run([](const network& w) {
    const std::size_t next = (w->rank() + 1) % w->size(), before = (w->rank() + w->size() - 1) % w->size();
    std::vector<std::byte> out(1 << 22, std::byte{5}), in(1 << 22);
    const pending_message receive = w->receive(before, 3, in), send = w->send(next, 3, out);
    send->wait();
    receive->wait();
    CHECK(in == out);
  });
}

TEST_CASE("a message of another length is noticed, told to all, and writes nothing") {
  struct lengths {
    std::size_t sent, asked;
  };
  for (const lengths& a : {lengths{7, 5}, lengths{5, 7}, lengths{0, 1}, lengths{5, 100'000}, lengths{100'000, 5}, lengths{100'000, 4097},
                           lengths{1 << 24, 1 << 20}, lengths{1 << 20, 1 << 24}}) {
    mpi_session session(watched);
    const bool alone = session.size() == 1;
    std::vector<std::byte> bytes(1 << 24);
    const std::string told = message_of([&] {
      session.run([&](const network& w) {
        if (w->rank() == 0 && !alone) w->receive(1, 0, std::span(bytes).first(a.asked))->wait();
        if (w->rank() != 1) return;
        bytes.assign(a.sent, std::byte{3});
        w->send(0, 0, bytes)->wait();
      });
    });
    if (alone) continue;
    CHECK(told.find(concat("rank 1 sends ", a.sent, " bytes, and rank 0 asks for ", a.asked, ": ranks must call the same operations")) !=
          std::string::npos);
    if (session.rank() == 0) CHECK(std::count(bytes.begin(), bytes.end(), std::byte{0}) == 1 << 24);
  }
}

TEST_CASE("a message that is not waited for is taken back") {
  mpi_session session(watched);
  session.run([](const network& w) {
    if (w->size() == 1) return;
    group all(w, 1);
    for (const std::size_t n : {1U, 1U << 20}) {
      std::vector<std::byte> bytes(n), other(n);
      if (w->rank() == 0) {
        { const pending_message never_came = w->receive(1, 0, other); }
        const pending_message first = w->receive(1, 0, bytes);
        all.barrier();
        first->wait();
        all.barrier();
        { const pending_message has_come = w->receive(1, 0, other); }
        const pending_message last = w->receive(1, 0, other);
        last->wait();
        CHECK(bytes == std::vector<std::byte>(n, std::byte{7}));
        CHECK(other.back() == std::byte{9});
      } else {
        all.barrier();
        if (w->rank() != 1) {
          all.barrier();
          continue;
        }
        const std::vector<std::byte> sevens(n, std::byte{7}), eights(n, std::byte{8}), nines(n, std::byte{9});
        w->send(0, 0, sevens)->wait();
        const pending_message unwanted = w->send(0, 0, eights), wanted = w->send(0, 0, nines);
        all.barrier();
        unwanted->wait();
        wanted->wait();
      }
    }
  });
}

TEST_CASE("what cannot be addressed is refused") {
  mpi_session session(watched);
  std::vector<std::byte> one(1);
  CHECK_THROWS_AS((void)session.network()->send(session.size(), 0, one), config_error);
  CHECK_THROWS_AS((void)session.network()->send(0, 0xFFFF'FFFF, one), config_error);
  CHECK_THROWS_AS(mpi_session({.piece = 0}), config_error);
  session.run([](const network&) {});
  CHECK_THROWS_WITH_AS(session.run([](const network&) {}), "mpi_session: run must be called once; do later work in the same call", config_error);
}

TEST_CASE("an MPI that threads may not use is refused") {
  int level = MPI_THREAD_MULTIPLE;
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_SERIALIZED) return;
  CHECK_THROWS_WITH_AS(mpi_session(),
                       "mpi_session: MPI must let several threads communicate (MPI_THREAD_MULTIPLE or MPI_THREAD_SERIALIZED); the program has initialized "
                       "it with less",
                       config_error);
}

TEST_CASE("ranks that cut messages differently notice") {
  mpi_session session;
  mpi_session cut({.timeout = watched.timeout, .piece = session.rank() == 0 ? std::size_t{1000} : std::size_t{2000}});
  if (session.size() == 1) return;
  const std::string told = message_of([&] {
    cut.run([](const network& w) {
      std::vector<float> values(10'000);
      group(w).all_reduce(std::span<float>(values), reduction::sum);
    });
  });
  CHECK(told.find("all ranks must send in pieces of the same size") != std::string::npos);
}

TEST_CASE("a rank that fails is named to all, with its reason") {
  mpi_session session(watched);
  if (session.size() == 1) return session.run([](const network&) {});
  const std::string told = message_of([&] {
    session.run([](const network& w) {
      group all(w);
      all.barrier();
      if (w->rank() == 1) fail<comm_error>("disk: full");
      all.barrier();
    });
  });
  if (session.rank() == 1)
    CHECK(told == "disk: full");
  else if (session.rank() == 0)
    CHECK(told == "mpi: rank 0 waits for rank 1 for a message, but that rank has stopped: disk: full");
  else
    CHECK(told.find("has stopped: disk: full") != std::string::npos);
}

TEST_CASE("a rank that fails is named to those who have returned") {
  mpi_session session(watched);
  if (session.size() == 1) return session.run([](const network&) {});
  const auto work = [&] {
    session.run([](const network& w) {
      if (w->rank() != 1) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      throw 7;
    });
  };
  if (session.rank() == 1)
    CHECK_THROWS_AS(work(), int);
  else
    CHECK(message_of(work).find("has returned, but rank 1 has stopped: its exception has no message") != std::string::npos);
}

TEST_CASE("a large message to a rank that fails holds nobody") {
  mpi_session session(watched);
  if (session.size() == 1) return session.run([](const network&) {});
  const auto began = std::chrono::steady_clock::now();
  std::string told;
  std::vector<std::byte> large(1 << 24);
  told = message_of([&] {
    session.run([&](const network& w) {
      if (w->rank() == 1) fail<comm_error>("disk: full");
      w->send(1, 0, large)->wait();
    });
  });
  CHECK(told.find("disk: full") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - began < mpi_options().grace);
}

TEST_CASE("a rank that has returned is named to those who wait for it") {
  mpi_session session(watched);
  const std::string told = message_of([&] {
    session.run([&](const network& w) {
      if (w->rank() == 0 && w->size() > 1) group(w).barrier();
    });
  });
  if (session.size() == 1)
    CHECK(told == "nothing was thrown");
  else
    CHECK(told.find("mpi: rank 0 waits for rank 1 for a message, but that rank has returned") != std::string::npos);
}

TEST_CASE("patience has an end between processes") {
  mpi_session session({.timeout = std::chrono::milliseconds(30)});
  const std::string told = message_of([&] {
    session.run([](const network& w) {
      if (w->rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
      group(w).barrier();
    });
  });
  CHECK((session.size() == 1 || told.find(" has waited 0.03 s for rank ") != std::string::npos));
}
