// Whether a step takes as long as its kernels: on a device that works beside the host, whose kernels take 1 ms and whose launches take the host
// 20 us, the host must stay ahead, and communication must overlap. Launches keep a processor busy: with launches of 0 us, ranks that share
// processors do not wait for each other's hosts.
//
//   launch_ahead [kernel microseconds] [steps] [launch microseconds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string_view>
#include <vector>

#include <xtrain/parallel.hpp>
#include <xtrain/testing/isolated.hpp>
#include <xtrain/xtrain.hpp>

#include "processors.hpp"

namespace {

using device = xtrain::testing::isolated<xtrain::cpu>;

template <class Parallel>
struct recipe : xtrain::defaults {
  using device = ::device;
  using parallel = Parallel;
};

std::vector<xtrain::host_batch> batches(std::size_t count, std::size_t rank) {
  std::vector<xtrain::host_batch> all(count);
  for (std::size_t m = 0; m < count; ++m) {
    all[m].b = 1;
    all[m].t = 16;
    for (std::size_t i = 0; i < 16; ++i) {
      all[m].tokens.push_back(static_cast<xtrain::token>((i * 5 + m + rank) % 64));
      all[m].targets.push_back(static_cast<xtrain::token>((i * 5 + m + rank + 1) % 64));
      all[m].positions.push_back(static_cast<xtrain::token>(i));
      all[m].starts.push_back(0);
    }
    all[m].target_count = all[m].token_count = 16;
    all[m].first_sequence = m;
  }
  return all;
}

/// The ratio of a step's time to the time that the device spends in its kernels, on the slowest rank; with metrics read a step late.
template <class Parallel>
void measure(const char* name, std::size_t ranks, const xtrain::testing::isolated_timing& timing, std::size_t steps, typename Parallel::config layout = {}) {
  std::vector<double> step_seconds(ranks), kernel_seconds(ranks);
  xtrain::run_ranks(ranks, [&](const std::shared_ptr<xtrain::transport>& network) {
    typename Parallel::config own = layout;
    if constexpr (requires { own.ranks = network; }) own.ranks = network;
    const device::context on(xtrain::cpu::context({.threads = 1}), timing);
    using model_type = xtrain::llama<recipe<Parallel>>;
    model_type model({.vocab_size = 64, .hidden_size = 16, .num_layers = 2, .num_heads = 2, .max_position_embeddings = 16}, on, {.parallel = own});
    xtrain::trainer trainer(model, {.max_steps = steps + 2, .micro_batch_size = 1, .gradient_accumulation_steps = 2});
    const std::vector<xtrain::host_batch> data = batches(2, network->rank());
    const auto queue = [&] { trainer.queue_step(std::span<const xtrain::host_batch>(data), 1e-3); };
    queue();
    (void)trainer.finish_step();
    queue();  // from here on, there is always a step queued
    const auto before = model.context().waits();
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < steps; ++i) {
      queue();
      (void)trainer.finish_step();
    }
    const auto waits = model.context().waits().since(before);
    step_seconds[network->rank()] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / static_cast<double>(steps);
    kernel_seconds[network->rank()] = waits.kernel_seconds / static_cast<double>(steps);
    (void)trainer.finish_step();
  });
  const double step = *std::max_element(step_seconds.begin(), step_seconds.end()), kernels = *std::max_element(kernel_seconds.begin(), kernel_seconds.end());
  std::printf("%-28s %zu ranks: a step takes %.1f ms, its kernels %.1f ms, ratio %.3f\n", name, ranks, 1e3 * step, 1e3 * kernels, step / kernels);
}

}  // namespace

int main(int count, char** words) {
  const processors_report processors;
  try {
    if (count > 1 && std::string_view(words[1]) == "--help") return std::puts("usage: launch_ahead [kernel microseconds] [steps] [launch microseconds]"), 0;
    const std::chrono::microseconds kernel(count > 1 ? std::atol(words[1]) : 1000), launch(count > 3 ? std::atol(words[3]) : 20);
    const std::size_t steps = count > 2 ? static_cast<std::size_t>(std::atol(words[2])) : 10;
    const xtrain::testing::isolated_timing timing{.is_late = false, .launch = launch, .kernel = kernel};
    measure<xtrain::single>("single", 1, timing, steps);
    measure<xtrain::data_parallel>("data_parallel", 4, timing, steps);
    measure<xtrain::zero<2>>("zero<2>", 4, timing, steps);
    measure<xtrain::zero<3>>("zero<3>", 4, timing, steps);
    return 0;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "launch_ahead: %s\n", problem.what());
    return 1;
  }
}
