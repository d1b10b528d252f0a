// OpenMP's thread team as the cpu device's executor.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <xtrain/openmp.hpp>
#include <xtrain/xtrain.hpp>

using namespace xtrain;

namespace {

struct recipe : defaults {};

const dataset& data() {
  static const dataset all = [] {
    dataset d("numbers", sequence_layout::stream);
    std::vector<token> tokens;
    for (token i = 0; i < 600; ++i) tokens.push_back(i * i % 97);
    d.add(tokens);
    d.finish();
    return d;
  }();
  return all;
}

/// Losses, then weights; kernels are large enough to be split.
std::vector<double> run(const cpu::context& on) {
  llama<recipe> model({.vocab_size = 97,
                       .hidden_size = 64,
                       .num_layers = 2,
                       .num_heads = 4,
                       .intermediate_size = 160,
                       .max_position_embeddings = 48,
                       .residual_dropout = 0.1},
                      on);
  trainer trainer(model, {.max_steps = 4, .micro_batch_size = 4, .learning_rate = 1e-2});
  history seen;
  trainer.attach(seen);
  trainer.fit(data());
  std::vector<double> all(seen.losses().begin(), seen.losses().end());
  const auto weights = model.parameters().trained_values().host();
  all.insert(all.end(), weights.begin(), weights.end());
  return all;
}

/// Counts parallel runs.
struct counting_team final : executor {
  std::shared_ptr<executor> team = openmp_team();
  std::atomic<std::size_t> shared_runs{0};
  [[nodiscard]] std::size_t threads() const override { return team->threads(); }
  void run(std::size_t parts, std::size_t threads, parallel_task task) override {
    if (parts > 1 && threads > 1) ++shared_runs;
    team->run(parts, threads, task);
  }
};

}  // namespace

TEST_CASE("training on OpenMP's threads is training on the library's own, bit for bit, whatever their number") {
  const std::vector<double> expected = run(cpu::context{});
  for (const int threads : {1, 2, 3}) {
    CAPTURE(threads);
    ::omp_set_num_threads(threads);
    const auto team = std::make_shared<counting_team>();
    const cpu::context on({.executor = team});
    CHECK(on.properties().threads == static_cast<std::size_t>(threads));
    CHECK(run(on) == expected);
    CHECK((team->shared_runs > 0) == (threads > 1));  // the team did the work
  }
}

TEST_CASE("the shared pool has the processors of the process, even if OpenMP's library has pinned the first thread before main") {
  const char* const expected = std::getenv("XTRAIN_TEST_PROCESSORS");
  const cpu_set_t thread = detail::processors_of_thread(), process = detail::processors_of_process();
  if (expected != nullptr) {  // started by the loop below
    MESSAGE("the first thread has ", CPU_COUNT(&thread), " processors, the process ", CPU_COUNT(&process));
    CHECK(std::to_string(CPU_COUNT(&process)) == expected);
    CHECK(thread_pool::shared()->threads() == detail::usable_processors(process));
    return;
  }
  const std::string all = std::to_string(CPU_COUNT(&thread)), program = std::filesystem::read_symlink("/proc/self/exe").string();
  int first = 0;
  while (!CPU_ISSET(first, &thread)) ++first;
  // without a variable, with all processors as places, and with one place, which is a choice: libgomp pins the first thread to it, clang's library does not
#if defined __clang__
  const std::string of_one_place = all;
#else
  const std::string of_one_place = "1";
#endif
  struct start {
    std::string variables, count;
  };
  for (const start& one : {start{"OMP_WAIT_POLICY=passive", all}, start{"OMP_PROC_BIND=close", all}, start{"OMP_PROC_BIND=true OMP_PLACES=threads", all},
                           start{concat("OMP_PROC_BIND=true OMP_PLACES={", first, "}"), of_one_place}}) {
    CAPTURE(one.variables);
    const std::string variables = concat("env ", one.variables, " XTRAIN_TEST_PROCESSORS=", one.count);
    const std::string command = concat(variables, " '", program, "' --test-case='the shared pool*' > /dev/null");
    CHECK(std::system(command.c_str()) == 0);
  }
}

TEST_CASE("every part is done once, and parts that run at once have different workers below the number asked for") {
  ::omp_set_num_threads(4);
  const auto team = openmp_team();
  CHECK(team->threads() == 4);
  for (const std::size_t asked : {1UL, 2UL, 4UL}) {
    std::vector<std::atomic<int>> done(53);
    std::array<std::atomic<int>, 4> busy{};
    std::atomic<bool> clash{false};
    const auto task = [&](std::size_t part, std::size_t worker) {
      if (worker >= asked || busy[worker].fetch_add(1) != 0) clash = true;
      done[part].fetch_add(1);
      busy[worker].fetch_sub(1);
    };
    for (int repeat = 0; repeat < 20; ++repeat) team->run(done.size(), asked, task);
    for (const auto& count : done) REQUIRE(count == 20);
    CHECK(!clash);
  }
  std::size_t called = 0;
  const auto never = [&](std::size_t, std::size_t) { ++called; };
  team->run(0, 4, never);
  CHECK(called == 0);
}

TEST_CASE("a task may use the team itself, and several callers may use it at once") {
  ::omp_set_num_threads(2);
  const auto team = openmp_team();
  std::atomic<int> inner{0};
  const auto nested = [&](std::size_t, std::size_t worker) {
    if (worker == 0) inner.fetch_add(1);
  };
  const auto outer = [&](std::size_t, std::size_t) { team->run(5, 2, nested); };
  team->run(4, 2, outer);
  CHECK(inner == 20);  // nested in the team, parts run sequentially on the calling worker
  std::atomic<std::size_t> total{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c)
    callers.emplace_back([&] {
      const auto task = [&](std::size_t, std::size_t) { total.fetch_add(1); };
      for (int repeat = 0; repeat < 50; ++repeat) team->run(10, 2, task);
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(total == 3 * 50 * 10);
}
