// Overlap of communication and computation: how much of the exchange of gradients and weights is hidden. Two ranks, one thread each, with a
// transport of limited latency and bandwidth. Printed for each strategy: the step time without the slow transport, with it, the time of a
// step's messages alone, and the fraction of that time that did not lengthen the step. Context-parallel ranks share one sequence of 1024
// tokens and train adapters, so that they exchange mostly activations; other ranks have four sequences of 128 tokens each.
//
//   overlap [megabytes per second] [latency in microseconds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <vector>

#include <xtrain/models/llama.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/testing/slow_transport.hpp>
#include <xtrain/xtrain.hpp>

#include "processors.hpp"

namespace {

using namespace xtrain;

template <class Parallel>
struct recipe : defaults {
  using parallel = Parallel;
};
template <class Parallel>
struct adapted_recipe : recipe<Parallel> {
  using adapter = lora;
};

struct seconds_and_bytes {
  double seconds = 0;  // median of steps
  double bytes = 0, messages = 0;
};

template <class Parallel>
seconds_and_bytes steps_over(const testing::slow_network& how, bool slow) {
  constexpr bool shares = has_context_parallel<recipe<Parallel>>;
  constexpr std::size_t b = shares ? 1 : 4, t = shares ? 1024 : 128;
  seconds_and_bytes found;
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    const std::shared_ptr<transport> used = slow ? std::make_shared<testing::slow_transport>(network, how) : network;
    const cpu::context on({.threads = 1});
    llama<std::conditional_t<shares, adapted_recipe<Parallel>, recipe<Parallel>>> model(
        {.vocab_size = 4096,
         .hidden_size = 256,
         .num_layers = 12,
         .num_heads = 8,
         .max_position_embeddings = t,
         .tie_word_embeddings = false},
        on, {.parallel = {.ranks = used, .context_parallel_size = shares ? 2 : 1}});
    trainer trainer(model, {.max_steps = 1, .micro_batch_size = b});
    host_batch rows{.b = b, .t = t};
    for (auto* values : {&rows.tokens, &rows.targets, &rows.positions}) values->assign(b * t, 1);
    rows.starts.assign(b * t, 0);
    rows.target_count = rows.token_count = b * t;
    rows.first_sequence = shares ? 0 : b * network->rank();
    std::vector<double> times;
    step_traffic before{};
    for (int i = 0; i < 8; ++i) {
      if (i == 1) before = traffic_of(model.parallel());
      const auto begin = std::chrono::steady_clock::now();
      (void)trainer.step(std::span<const host_batch>(&rows, 1), 1e-4);
      if (i > 0) times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    if (network->rank() != 0) return;
    std::sort(times.begin(), times.end());
    const traffic sent = traffic_of(model.parallel()).since(before).total();
    found = {times[times.size() / 2], static_cast<double>(sent.bytes) / static_cast<double>(times.size()),
             static_cast<double>(sent.messages) / static_cast<double>(times.size())};
  });
  return found;
}

template <class Parallel>
void show(const testing::slow_network& how) {
  const seconds_and_bytes fast = steps_over<Parallel>(how, false), slow = steps_over<Parallel>(how, true);
  const double alone = slow.bytes / how.bytes_per_second;
  std::printf("%-14s %8.0f ms %8.0f ms %8.0f ms %8.1f MB %6.0f messages %6.0f %% hidden\n", std::string(Parallel::name).c_str(), 1e3 * fast.seconds,
              1e3 * slow.seconds, 1e3 * alone, slow.bytes / 1e6, slow.messages, 100 * (1 - (slow.seconds - fast.seconds) / alone));
}

}  // namespace

int main(int argc, char** argv) {
  const processors_report processors;
  const double megabytes = argc > 1 ? std::atof(argv[1]) : 300, microseconds = argc > 2 ? std::atof(argv[2]) : 100;
  const xtrain::testing::slow_network how{.latency = std::chrono::duration<double>(1e-6 * microseconds), .bytes_per_second = 1e6 * megabytes};
  std::printf("%.0f MB/s, %.0f us\nstrategy       without     with        messages alone\n", megabytes, microseconds);
  show<xtrain::data_parallel>(how);
  show<xtrain::zero<1>>(how);
  show<xtrain::zero<2>>(how);
  show<xtrain::zero<3>>(how);
  show<xtrain::context_parallel>(how);
  show<xtrain::ring_context_parallel>(how);
}
