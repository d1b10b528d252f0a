// Offload to files: equal results, and runs larger than their memory limit.
#include <doctest/doctest.h>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include <xtrain/device/cuda/cuda.hpp>
#include <xtrain/parallel/zero.hpp>
#include <xtrain/plan/plan.hpp>
#include <xtrain/testing/fake_cuda.hpp>
#include "ranks.hpp"
#include "scratch.hpp"

namespace {

using everything = offload_to_file<memory_role::weights, memory_role::gradients, memory_role::optimizer, memory_role::stash>;

template <class Offload, class Parallel = single>
struct offloading : defaults {
  using offload = Offload;
  using parallel = Parallel;
};

const training_config<adamw> settings{.max_steps = 6, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .learning_rate = 1e-3};

}  // namespace

TEST_CASE("a run whose memory is in files comes to the same, bit for bit") {
  const scratch_folder scratch;
  const dataset data = sentences();
  const outcome expected = train<llama<offloading<no_offload>>>(data, sizes(false), settings, {});
  const auto check = [&]<class Offload>(Offload) {
    const outcome found = train<llama<offloading<Offload>>>(data, sizes(false), settings, {.offload = {.folder = scratch / ""}});
    CHECK(found.losses == expected.losses);
    CHECK(found.weights == expected.weights);
    CHECK(found.held_out == expected.held_out);
  };
  check(offload_to_file<memory_role::optimizer>{});
  check(everything{});
  CHECK(std::filesystem::is_empty(scratch / ""));  // files are unnamed
}

TEST_CASE("what is in files is planned, and is not the device's memory") {
  const cpu::context on;
  const llama<offloading<everything>> model(sizes(false), on);
  using model_type = llama<offloading<everything>>;
  model_type trained(sizes(false), on);
  const trainer trainer(trained, settings);
  const dry_run& plan = trainer.plan();
  CHECK(on.memory().of(memory_role::optimizer) == 0);
  CHECK(on.memory().of(memory_role::weights) == 0);
  CHECK(on.memory_in_files().of(memory_role::optimizer) == plan.of(memory_role::optimizer));
  CHECK(on.memory_in_files().of(memory_role::stash) == plan.of(memory_role::stash));
  CHECK(on.memory().total_now == plan.total());
  CHECK(plan.total_in_files() ==
        plan.of(memory_role::weights) + plan.of(memory_role::gradients) + plan.of(memory_role::optimizer) + plan.of(memory_role::stash));
  CHECK(plan_text(plan).find("  in files     ") != std::string::npos);
}

TEST_CASE("a limit of memory is for what is not in files; a folder that cannot hold them is refused with its name") {
  const decoder_config shape{.vocab_size = 97, .hidden_size = 128, .num_layers = 4, .num_heads = 4, .max_position_embeddings = 24};
  const cpu::context tight({.memory_limit = std::size_t{6} << 20});
  CHECK_THROWS_AS(([&] {
                    llama<offloading<no_offload>> model(shape, tight);
                    const trainer trainer(model, settings);
                  }()),
                  memory_error);
  {
    llama<offloading<everything>> model(shape, tight);
    trainer trainer(model, settings);
    CHECK(trainer.plan().total_in_files() > std::size_t{12} << 20);
    trainer.fit(sentences());
  }
  std::string said;
  try {
    const llama<offloading<everything>> model(shape, tight, {.offload = {.folder = "/nowhere"}});
  } catch (const memory_error& problem) {
    said = problem.what();
  }
  CHECK(said.starts_with("offload: weights must fit a file in '/nowhere'; making one of "));
}

TEST_CASE("a process that the system allows less memory than the run has trains it") {
  // in a child process with limited memory
  const auto trains_within = []<class Offload>(Offload, std::size_t bytes) {
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit limit{bytes, bytes};
      ::setrlimit(RLIMIT_DATA, &limit);
      try {
        llama<offloading<Offload, zero<3>>> model(
            {.vocab_size = 97, .hidden_size = 512, .num_layers = 4, .num_heads = 4, .max_position_embeddings = 24},
            cpu::context({.threads = 1}));
        trainer trainer(model, training_config<adamw>{.max_steps = 2, .micro_batch_size = 2});
        trainer.fit(sentences());
        ::_exit(0);
      } catch (const std::exception&) {
        ::_exit(1);
      }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  };
  // 12.7 million weights, 16 bytes each: 203 MB
  CHECK_FALSE(trains_within(no_offload{}, std::size_t{160} << 20));
  CHECK(trains_within(everything{}, std::size_t{160} << 20));
}

namespace {

template <class Offload>
struct on_gpu : offloading<Offload> {
  using device = cuda;
};

}  // namespace

TEST_CASE("a GPU's optimizer state, weights and activations in pinned host memory: the same bits, planned, and no pageable copy in a step") {
  const dataset data = sentences();
  std::vector<double> expected;
  const auto run = [&]<class Offload>(Offload) {
    const testing::fake_cuda gpu({.seed = 5});
    std::vector<double> losses;
    {
      const cuda_context on = gpu.open();
      llama<on_gpu<Offload>> model(sizes(false), on);
      auto captured = settings;
      captured.max_steps = 2;
      captured.gradient_accumulation_steps = 1;
      captured.capture_steps = true;  // a captured copy from or to pageable memory is a violation
      trainer trainer(model, captured);
      history seen;
      trainer.attach(seen);
      trainer.fit(data);
      losses.assign(seen.losses().begin(), seen.losses().end());
      const dry_run& plan = trainer.plan();
      CHECK(on.memory().total_peak == plan.total());
      CHECK(on.memory_on_host().total_peak == plan.total_in_files());
      for (const memory_role role : {memory_role::weights, memory_role::gradients, memory_role::optimizer, memory_role::stash}) {
        if (!Offload::roles.has(role)) continue;
        CHECK(on.memory().of(role) == 0);
        CHECK(on.memory_on_host().peak_of(role) == plan.of(role));
      }
      const bool offloads = plan.total_in_files() > 0;
      CHECK((plan_text(plan).find(" on the host\n  ") != std::string::npos) == offloads);
      CHECK(plan.total_host() >= plan.total_in_files());
    }
    CHECK(gpu.violations() == "");
    CHECK(gpu.leaks() == "");
    if (expected.empty()) expected = losses;
    else
      CHECK(losses == expected);
  };
  run(no_offload{});
  REQUIRE(expected.size() == 2);
  run(offload_to_host<memory_role::optimizer>{});
  run(offload_to_host<memory_role::weights, memory_role::gradients, memory_role::optimizer, memory_role::stash>{});
}
