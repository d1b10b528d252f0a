#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <xtrain/comm/background.hpp>
#include <xtrain/comm/group.hpp>
#include <xtrain/comm/mesh.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/device/cpu/cpu.hpp>
#include <xtrain/testing/isolated.hpp>
#include <xtrain/testing/slow_transport.hpp>
#include <xtrain/testing/transport_conformance.hpp>
#include "no_new_threads.hpp"

using namespace xtrain;

namespace {

using network = std::shared_ptr<transport>;

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const comm_error& problem) {
    return problem.what();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("ranks that are threads pass the conformance suite") {
  for (const std::size_t ranks : {1U, 2U, 3U, 4U, 8U}) {
    std::vector<std::string> problems;
    std::mutex mutex;
    run_ranks(ranks, [&](const network& w) {
      for (const std::string& problem : testing::transport_conformance(w)) {
        const std::lock_guard lock(mutex);
        problems.push_back(problem);
      }
    });
    CHECK(problems == std::vector<std::string>{});
  }
}

TEST_CASE("a sum is the same bits however it is cut and however messages are delayed") {
  constexpr std::size_t ranks = 4, n = 3001;
  std::vector<std::vector<float>> results;
  for (const double jitter : {0.0, 0.002}) {
    std::vector<float> result(n);
    run_ranks(ranks, [&](const network& w) {
      group all(std::make_shared<testing::slow_transport>(w, testing::slow_network{.jitter = std::chrono::duration<double>(jitter)}));
      std::vector<float> values(n);
      for (std::size_t i = 0; i < n; ++i) values[i] = 1.0F / static_cast<float>(1 + i * 7 + w->rank());
      for (const std::size_t part : {std::size_t{1000}, std::size_t{1}, std::size_t{2000}}) {  // one after the other: all 3001
        static_assert(n == 3001);
        const std::size_t begin = part == 1000 ? 0 : part == 1 ? 1000 : 1001;
        all.all_reduce(std::span<float>(values).subspan(begin, part), reduction::sum);
      }
      if (w->rank() == 2) result = values;
    });
    results.push_back(result);
  }
  run_ranks(ranks, [&](const network& w) {
    group all(w);
    std::vector<float> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = 1.0F / static_cast<float>(1 + i * 7 + w->rank());
    all.all_reduce(std::span<float>(values), reduction::sum);
    if (w->rank() == 0) results.push_back(values);
  });
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
}

namespace {

/// The sum over ranks in the rounds of recursive halving, written independently: digits in ascending order, neighbors first.
template <class Sum>
Sum sum_in_rounds(std::vector<Sum> values) {
  const recursive_halving tree(values.size());
  for (std::size_t i = tree.active(); i < values.size(); ++i) values[i - tree.active()] = static_cast<Sum>(values[i - tree.active()] + values[i]);
  values.resize(tree.active());
  for (const halving_round& round : tree.rounds()) {
    std::vector<Sum> sums;
    for (std::size_t i = 0; i < values.size(); i += round.ranks) {
      Sum sum = values[i];
      for (std::size_t d = 1; d < round.ranks; ++d) sum = static_cast<Sum>(sum + values[i + d]);
      sums.push_back(sum);
    }
    values = sums;
  }
  return values[0];
}

/// Messages of a rank per piece: one per digit step, and two of ranks that stand aside.
std::size_t max_messages(std::size_t ranks) {
  const recursive_halving tree(ranks);
  std::size_t all = tree.aside() > 0 ? 1 : 0;
  for (const halving_round& round : tree.rounds()) all += round.ranks - 1;
  return all;
}

/// Every rank's values, and their sum in the rounds' order, computed in Sum and rounded once.
template <class T, class Sum>
void check_many_ranks(std::size_t ranks, std::size_t n) {
  CAPTURE(ranks);
  CAPTURE(n);
  const auto number = [](std::size_t rank, std::size_t i) { return static_cast<T>(1.0F / static_cast<float>(1 + (i * 7 + rank * 13) % 1009)); };
  std::vector<T> expected(n);
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<Sum> numbers(ranks);
    for (std::size_t r = 0; r < ranks; ++r) numbers[r] = static_cast<Sum>(number(r, i));
    expected[i] = static_cast<T>(sum_in_rounds(numbers));
  }
  std::atomic<std::size_t> wrong = 0, dear = 0;
  run_ranks(ranks, [&](const network& w) {
    group all(w), parts(w, 1), few(w, 2), one(w, 3);
    const auto unreal = std::make_shared<dry_transport>(w->rank(), ranks);
    group dry(unreal), dry_parts(unreal), dry_few(unreal), dry_one(unreal);
    std::vector<T> values(n);
    for (std::size_t i = 0; i < n; ++i) values[i] = number(w->rank(), i);
    std::vector<T> small(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(n, 100))), at_root = small;
    const std::size_t part = n / ranks;
    std::vector<T> mine(part);
    parts.reduce_scatter(std::span<const T>(values).first(part * ranks), std::span<T>(mine), reduction::sum);
    all.all_reduce(std::span<T>(values), reduction::sum);
    few.all_reduce(std::span<T>(small), reduction::sum);
    bool right = values == expected && std::equal(small.begin(), small.end(), expected.begin());
    for (std::size_t i = 0; i < part; ++i) right = right && mine[i] == expected[w->rank() * part + i];
    for (const std::size_t root : {std::size_t{0}, ranks / 2, ranks - 1}) {
      std::vector<T> copy = at_root;
      one.reduce(std::span<T>(copy), reduction::sum, root);
      right = right && copy == (w->rank() == root ? small : at_root);
      dry_one.reduce(std::span<T>(copy), reduction::sum, root);
      std::vector<T> told(at_root.size(), static_cast<T>(static_cast<float>(w->rank())));
      one.broadcast(std::span<T>(told), root);
      right = right && told == std::vector<T>(told.size(), static_cast<T>(static_cast<float>(root)));
      if (w->rank() == root) dry_one.broadcast(std::span<T>(told), root);
    }
    std::vector<T> nowhere(n), nowhere_part(part);
    dry.all_reduce(std::span<T>(nowhere), reduction::sum);
    dry_parts.reduce_scatter(std::span<const T>(nowhere).first(part * ranks), std::span<T>(nowhere_part), reduction::sum);
    dry_few.all_reduce(std::span<T>(nowhere).first(small.size()), reduction::sum);
    right = right && dry.sent() == all.sent() && dry_parts.sent() == parts.sent() && dry_few.sent() == few.sent();
    // pieces of 32 MiB of all parts together
    const std::size_t length = (std::size_t{1} << 25) / sizeof(Sum) / ranks, pieces = (part + length - 1) / length;
    if (!recursive_halving(ranks).is_direct() && (parts.sent().messages > pieces * max_messages(ranks) || few.sent().messages > max_messages(ranks))) ++dear;
    std::vector<T> largest(3);
    for (std::size_t i = 0; i < 3; ++i) largest[i] = static_cast<T>(static_cast<float>(w->rank() * (i + 1)));
    largest.resize(3 * 2000, largest[0]);
    all.all_reduce(std::span<T>(largest), reduction::largest);
    right = right && largest[2] == static_cast<T>(static_cast<float>((ranks - 1) * 3)) && largest[5999] == static_cast<T>(static_cast<float>(ranks - 1));
    if (!right) ++wrong;
  });
  CHECK(wrong == 0);
  CHECK(dear == 0);
}

}  // namespace

TEST_CASE("sums of many ranks are made in rounds: the same bits in every collective, as the plan counts them, and in few messages") {
  check_many_ranks<float, float>(64, 20011);
  check_many_ranks<float, float>(66, 5000);
  check_many_ranks<float, float>(37, 70000);    // one stands aside; the last ranks have no part
  check_many_ranks<bf16, float>(41, 30007);     // five stand aside
  check_many_ranks<bf16, float>(12, 5007);
  check_many_ranks<double, double>(70, 70 * 1200);
  check_many_ranks<float, float>(9, 9000007);   // two pieces
  check_many_ranks<float, float>(31, 3100);     // one round: each sends to each
  check_many_ranks<float, float>(12, 25);
}

TEST_CASE("many ranks pass the conformance suite") {
  for (const std::size_t ranks : {9U, 10U}) {
    std::vector<std::string> problems;
    std::mutex mutex;
    run_ranks(ranks, [&](const network& w) {
      for (const std::string& problem : testing::transport_conformance(w)) {
        const std::lock_guard lock(mutex);
        problems.push_back(problem);
      }
    });
    CHECK(problems == std::vector<std::string>{});
  }
}

TEST_CASE("rounds of a collective: the factors of the number of ranks, neighbours first; few stand aside") {
  const auto bases = [](std::size_t ranks) {
    const recursive_halving tree(ranks);
    std::vector<std::size_t> all;
    for (const halving_round& round : tree.rounds()) all.push_back(round.ranks);
    return all;
  };
  CHECK(bases(1).empty());
  CHECK(bases(8) == std::vector<std::size_t>{8});
  CHECK(bases(12) == std::vector<std::size_t>{2, 2, 3});
  CHECK(bases(1280) == std::vector<std::size_t>{2, 2, 2, 2, 2, 2, 2, 2, 5});
  CHECK(recursive_halving(10'240).aside() == 0);
  CHECK(recursive_halving(521).aside() == 1);
  for (std::size_t ranks = 1; ranks <= 2000; ++ranks) {
    const recursive_halving tree(ranks);
    CHECK(tree.aside() * 8 <= ranks);
    std::vector<bool> seen(tree.active());
    for (std::size_t position = 0; position < tree.active(); ++position) seen[tree.rank_at(position)] = true;
    CHECK(std::find(seen.begin(), seen.end(), false) == seen.end());
  }
}

TEST_CASE("a barrier, a norm and a stop take a rank of thousands a few messages") {
  for (const std::size_t rank : {0U, 5'000U, 10'239U}) {
    group dry(std::make_shared<dry_transport>(rank, 10'240));
    dry.barrier();
    CHECK(dry.sent() == traffic{15, 15, 12, 1, 6});  // eleven rounds of two ranks and one of five
  }
  group dry(std::make_shared<dry_transport>(0, 512));
  std::vector<float> values(512 * 1000);
  dry.share_ranges(std::span<float>(values));
  CHECK(dry.sent() == traffic{9, 511 * 4000, 9, 1, 512 * 4000});
  dry.broadcast(std::span<float>(values).first(10), 0);
  CHECK(dry.sent().messages == 9 + 9);
}

TEST_CASE("what is sent is what the formulas say") {
  constexpr std::size_t ranks = 4, n = 1 << 16;
  run_ranks(ranks, [&](const network& w) {
    group all(w), scatters(w, 1), gathers(w, 2);
    std::vector<float> values(n), part(n / ranks);
    all.all_reduce(std::span<float>(values), reduction::sum);
    CHECK(all.sent().bytes == 2 * (ranks - 1) * n / ranks * sizeof(float));
    scatters.reduce_scatter(std::span<const float>(values), std::span<float>(part), reduction::sum);
    CHECK(scatters.sent().bytes == (ranks - 1) * n / ranks * sizeof(float));
    gathers.all_gather(std::span<const float>(part), std::span<float>(values));
    CHECK(gathers.sent().bytes == (ranks - 1) * n / ranks * sizeof(float));

    // a dry run counts the same traffic
    group dry_all(std::make_shared<dry_transport>(w->rank(), ranks));
    dry_all.all_reduce(std::span<float>(values), reduction::sum);
    CHECK(dry_all.sent().bytes == all.sent().bytes);
    CHECK(dry_all.sent().messages == all.sent().messages);
  });
}

TEST_CASE("parts of any length and order go to the ranks they are for") {
  using device = testing::isolated<cpu>;
  constexpr std::size_t ranks = 3, length = 2;
  run_ranks(ranks, [](const network& w) {
    const device::context on;
    device::stream stream(on);
    group all(w);
    const std::size_t rank = w->rank(), sent_rows = 2 * ranks;
    std::vector<float> rows(sent_rows * length);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(100 * rank + i);
    // two parts to the next rank, the later first, and one to this rank
    const std::size_t next = (rank + 1) % ranks, previous = (rank + 2) % ranks;
    const std::vector<message_part> sends{{next, 3, 2}, {rank, 0, 1}, {next, 1, 1}, {previous, 0, 0}};
    const std::vector<message_part> receives{{previous, 2, 2}, {previous, 0, 1}, {rank, 1, 1}};
    std::vector<float> got(4 * length);
    all.exchange(std::span<const float>(rows), sends, std::span<float>(got), receives, length);
    const auto base = static_cast<float>(100 * previous);
    const auto own = static_cast<float>(100 * rank);
    const std::vector<float> expected{base + 2, base + 3, own, own + 1, base + 6, base + 7, base + 8, base + 9};
    CHECK(got == expected);
    CHECK(all.sent().bytes == 3 * length * sizeof(float));

    buffer<device> from(on, sizeof(float) * rows.size(), memory_role::other), to(on, sizeof(float) * got.size(), memory_role::other);
    copy_to_device(stream, from.as<float>(), std::span<const float>(rows));
    all.exchange(stream, device_span<const float, device::memory>(from.as<float>()), sends, to.as<float>(), receives, length);
    std::fill(got.begin(), got.end(), 0.0F);
    copy_to_host(stream, std::span<float>(got), to.as<float>());
    stream.synchronize();
    CHECK(got == expected);

    const std::vector<message_part> outside{{next, 5, 2}}, nothing;
    CHECK_THROWS_AS(all.exchange(std::span<const float>(rows), outside, std::span<float>(got), nothing, length), shape_error);
    const std::vector<message_part> unanswered{{rank, 0, 1}};
    CHECK_THROWS_AS(all.exchange(std::span<const float>(rows), unanswered, std::span<float>(got), nothing, length), shape_error);
  });
}

TEST_CASE("device memory that the host cannot reach is brought there and back") {
  using device = testing::isolated<cpu>;
  run_ranks(2, [](const network& w) {
    const device::context on;
    device::stream stream(on);
    group all(w);
    const std::vector<float> mine{1.0F + static_cast<float>(w->rank()), 10.0F};
    buffer<device> values(on, sizeof(float) * 2, memory_role::other), whole(on, sizeof(float) * 4, memory_role::other);
    copy_to_device(stream, values.as<float>(), mine);
    all.all_gather(stream, device_span<const float, device::memory>(values.as<float>()), whole.as<float>());
    all.all_reduce(stream, values.as<float>(), reduction::sum);
    std::vector<float> sum(2), parts(4);
    copy_to_host(stream, std::span<float>(sum), values.as<float>());
    copy_to_host(stream, std::span<float>(parts), whole.as<float>());
    stream.synchronize();
    CHECK(sum == std::vector<float>{3, 20});
    CHECK(parts == std::vector<float>{1, 10, 2, 10});
    all.reduce_scatter(stream, device_span<const float, device::memory>(whole.as<float>()), values.as<float>(), reduction::sum);
    copy_to_host(stream, std::span<float>(sum), values.as<float>());
    stream.synchronize();
    CHECK(sum == (w->rank() == 0 ? std::vector<float>{2, 20} : std::vector<float>{4, 20}));
  });
}

TEST_CASE("a rank that fails is named to those who wait for it") {
  std::string told;
  const std::string cause = message_of([&] {
    run_ranks(3, [&](const network& w) {
      group all(w);
      all.barrier();
      if (w->rank() == 1) fail<comm_error>("disk: full");
      if (w->rank() == 0) told = message_of([&] { all.barrier(); });
    });
  });
  CHECK(cause == "disk: full");
  CHECK(told == "threads: rank 0 waits for rank 1 for a message, but that rank has stopped: disk: full");

  // one rank returned early, one calls another operation
  CHECK(message_of([] {
          run_ranks(2, [](const network& w) {
            if (w->rank() == 1) return;
            group(w).barrier();
          });
        }).find("but that rank has returned") != std::string::npos);
  CHECK(message_of([] {
          run_ranks(2, [](const network& w) {
            std::vector<float> values(w->rank() == 0 ? 3 : 4);
            group(w).all_reduce(std::span<float>(values), reduction::sum);
          });
        }).find("ranks must call the same operations in the same order") != std::string::npos);
}

TEST_CASE("patience has an end") {
  const std::string told = message_of([] {
    run_ranks(
        2,
        [](const network& w) {
          if (w->rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
          group(w).barrier();
        },
        {.timeout = std::chrono::milliseconds(30)});
  });
  CHECK(told.find("has waited 0.03 s for rank 1") != std::string::npos);
}

TEST_CASE("a mesh gives every rank its place and its neighbours") {
  const auto at = [](std::size_t rank, const mesh_sizes& sizes) { return mesh(std::make_shared<dry_transport>(rank, sizes.ranks()), sizes); };
  const mesh_sizes sizes{.data_parallel_size = 2, .tensor_parallel_size = 4, .pipeline_parallel_size = 3};
  for (std::size_t rank = 0; rank < sizes.ranks(); ++rank) {
    const mesh here = at(rank, sizes);
    CHECK(here.place(axis::tensor) == rank % 4);
    CHECK(here.place(axis::data) == rank / 4 % 2);
    CHECK(here.place(axis::pipeline) == rank / 8);
    CHECK(here.along(axis::tensor).rank() == rank % 4);
    CHECK(here.along(axis::pipeline).size() == 3);
    CHECK(here.along(axis::context).size() == 1);
  }
  CHECK_THROWS_WITH_AS(at(0, {.data_parallel_size = 0}), "mesh: the axis 'data' must have at least one rank", config_error);
  CHECK_THROWS_AS(mesh(std::make_shared<dry_transport>(0, 5), {.data_parallel_size = 2, .tensor_parallel_size = 2}), config_error);
}

TEST_CASE("background work is done in order, and its problem is thrown where it is waited for") {
  background behind;
  std::vector<int> done;
  for (int i = 0; i < 100; ++i) behind.begin([&done, i] { done.push_back(i); });
  behind.finish();
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(done == expected);
  behind.begin([] { fail<comm_error>("cut"); });
  behind.begin([&done] { done.clear(); });
  CHECK_THROWS_WITH_AS(behind.finish(), "cut", comm_error);
  CHECK(done.size() == 100);
}

TEST_CASE("where a rank gets no thread, no rank runs, and the error says how many there are") {
  const no_new_threads none;
  std::atomic<int> ran{0};
  try {
    run_ranks(3, [&](const std::shared_ptr<transport>&) { ran.fetch_add(1); });
    FAIL("must be refused");
  } catch (const comm_error& problem) {
    CHECK(std::string(problem.what()).starts_with("run_ranks: each of 3 ranks must have a thread; the system started 0 beside the caller's, then said: "));
  }
  CHECK(ran == 0);
  run_ranks(1, [&](const std::shared_ptr<transport>&) { ran.fetch_add(1); });  // a single rank needs no thread
  CHECK(ran == 1);
}
