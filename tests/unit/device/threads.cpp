#include <doctest/doctest.h>

#include <sched.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <xtrain/device/cpu/cpu.hpp>
#include "no_new_threads.hpp"

using namespace xtrain;

namespace {

/// Affinity masks of two threads that work at the same time.
std::array<cpu_set_t, 2> masks_of_two_threads(executor& pool) {
  std::array<cpu_set_t, 2> masks{};
  std::atomic<int> inside{0};
  const auto meet = [&](std::size_t part, std::size_t) {
    inside.fetch_add(1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (inside < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    if (inside < 2) FAIL("no other thread took part");
    masks[part] = detail::processors_of_thread();
  };
  pool.run(2, 2, meet);
  return masks;
}

}  // namespace

TEST_CASE("the shared pool has the processors of the process, even if the thread that opens the first context is pinned to one of them") {
  const cpu_set_t all = detail::processors_of_thread();
  if (CPU_COUNT(&all) < 2 || detail::usable_processors(all) < 2) {
    MESSAGE("skipped: this process may use one processor");
    return;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int processor = 0; CPU_COUNT(&one) == 0; ++processor)
    if (CPU_ISSET(processor, &all)) CPU_SET(processor, &one);
  REQUIRE(::sched_setaffinity(0, sizeof(one), &one) == 0);
  const cpu::context on;  // the first, if only this test runs
  const std::size_t threads = on.properties().threads;
  thread_pool own;  // default: the caller's processors
  thread_pool given(2, all);
  const auto shared = masks_of_two_threads(*on.executor()), by_given = masks_of_two_threads(given);
  REQUIRE(::sched_setaffinity(0, sizeof(all), &all) == 0);
  CHECK(threads == detail::usable_processors(all));
  for (const auto& masks : {shared, by_given}) {  // the worker's affinity is set, the caller's is not
    const bool first = CPU_EQUAL(&masks[0], &one) && CPU_EQUAL(&masks[1], &all), second = CPU_EQUAL(&masks[1], &one) && CPU_EQUAL(&masks[0], &all);
    CHECK((first || second));
  }
  if (std::getenv("XTRAIN_THREADS") == nullptr) CHECK(own.threads() == 1);
}

TEST_CASE("every part is done once, and parts that run at once have different workers") {
  thread_pool pool(4);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<std::atomic<int>> done(37);
    std::array<std::atomic<int>, 4> busy{};
    std::atomic<bool> clash{false};
    const auto task = [&](std::size_t part, std::size_t worker) {
      if (busy[worker].fetch_add(1) != 0) clash = true;
      done[part].fetch_add(1);
      busy[worker].fetch_sub(1);
    };
    pool.run(done.size(), 4, task);
    for (const auto& count : done) REQUIRE(count == 1);
    REQUIRE(!clash);
  }
}

TEST_CASE("what a part throws comes to the caller when nothing runs any more, whoever had the part, and the pool goes on") {
  thread_pool pool(4);
  for (std::size_t bad : {std::size_t{0}, std::size_t{1}, std::size_t{20}, std::size_t{36}}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::atomic<int> running{0}, done{0};
      const auto task = [&](std::size_t part, std::size_t) {
        running.fetch_add(1);
        if (part == bad) {
          running.fetch_sub(1);
          throw std::runtime_error("part " + std::to_string(part));
        }
        done.fetch_add(1);
        running.fetch_sub(1);
      };
      CHECK_THROWS_WITH_AS(pool.run(37, 4, task), ("part " + std::to_string(bad)).c_str(), std::runtime_error);
      CHECK(running == 0);
      CHECK(done < 37);
      std::atomic<int> inside{0};  // a pool stuck as busy would run both parts on its caller
      const auto meet = [&](std::size_t, std::size_t) {
        inside.fetch_add(1);
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (inside < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        if (inside < 2) FAIL("no other thread took part");
      };
      pool.run(2, 4, meet);
    }
  }
  // all parts throw at once; with several callers, each gets its own exception
  std::vector<std::thread> callers;
  std::atomic<int> right{0};
  for (int c = 0; c < 3; ++c)
    callers.emplace_back([&, c] {
      const auto task = [&](std::size_t, std::size_t) { throw c; };
      for (int repeat = 0; repeat < 200; ++repeat) {
        try {
          pool.run(9, 4, task);
        } catch (int caught) {
          if (caught == c) right.fetch_add(1);
        }
      }
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(right == 600);
}

TEST_CASE("where the system starts no thread, a pool works on its caller's alone") {
  const no_new_threads none;
  thread_pool pool(8);
  CHECK(pool.threads() == 1);
  std::size_t sum = 0;
  const auto task = [&](std::size_t part, std::size_t worker) { sum += part + worker; };
  pool.run(10, 8, task);
  CHECK(sum == 45);
}

TEST_CASE("at most the threads that are asked for take part") {
  thread_pool pool(4);
  std::atomic<std::size_t> highest{0};
  const auto task = [&](std::size_t, std::size_t worker) {
    std::size_t seen = highest;
    while (seen < worker && !highest.compare_exchange_weak(seen, worker)) {
    }
  };
  for (int repeat = 0; repeat < 50; ++repeat) pool.run(64, 2, task);
  CHECK(highest < 2);
}

TEST_CASE("several callers share one pool without waiting for one another's parts forever") {
  thread_pool pool(3);
  std::atomic<std::size_t> total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      const auto task = [&](std::size_t, std::size_t) { total.fetch_add(1); };
      for (int repeat = 0; repeat < 300; ++repeat) pool.run(10, 3, task);
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(total == 4 * 300 * 10);
}

TEST_CASE("a task may use the pool itself") {
  thread_pool pool(2);
  std::atomic<int> inner{0};
  const auto nested = [&](std::size_t, std::size_t) { inner.fetch_add(1); };
  const auto outer = [&](std::size_t, std::size_t) { pool.run(5, 2, nested); };
  pool.run(4, 2, outer);
  CHECK(inner == 20);
}

TEST_CASE("ranges are cut the same way whatever the number of threads") {
  const auto ranges_with = [](std::size_t threads) {
    const cpu::context on({.threads = threads});
    const cpu::stream stream(on);
    std::vector<std::pair<std::size_t, std::size_t>> seen(4);
    stream.parallel_ranges(100, 30, [&](std::size_t begin, std::size_t end) { seen[begin / 30] = {begin, end}; });
    return seen;
  };
  CHECK(ranges_with(1) == ranges_with(2));
  CHECK(ranges_with(1).back() == std::pair<std::size_t, std::size_t>{90, 100});
}

TEST_CASE("a host program's own executor is used") {
  struct counting final : executor {
    std::size_t runs = 0;
    [[nodiscard]] std::size_t threads() const override { return 3; }
    void run(std::size_t parts, std::size_t, parallel_task task) override {
      ++runs;
      for (std::size_t part = 0; part < parts; ++part) task(part, 0);
    }
  };
  const auto mine = std::make_shared<counting>();
  const cpu::context on({.executor = mine});
  CHECK(on.properties().threads == 3);
  cpu::stream stream(on);
  std::vector<float> x(100000, 1.0f), y(100000, 2.0f);
  run_kernel(stream,
             kernel::add<host_memory, float>{.n = x.size(), .x_n = span_of(std::span<const float>(x)), .y_n = span_of(std::span<float>(y))},
             {});
  CHECK(y.back() == 3.0f);
  CHECK(mine->runs == 1);
}
