// The value of overlap when computation and messages do not compete for a processor: a layer's forward pass is a sleep of eight
// milliseconds and its backward pass one of sixteen, and the transport has limited latency and bandwidth. Printed for each strategy: the
// step time without the slow transport; with it, when every exchange is waited for at once; with it and overlap; the time of the messages
// between ranks with the same layers alone; the best possible step time; and the fraction of the hideable time that is hidden.
//
//   paced_overlap [megabytes per second]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include <xtrain/models/llama.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/testing/slow_transport.hpp>
#include <xtrain/xtrain.hpp>

#include "processors.hpp"

namespace {

using namespace xtrain;

constexpr std::chrono::milliseconds forward_time{8}, backward_time{16};
constexpr std::size_t layers = 8, tokens = 16;

bool exchanges_wait = false;

/// The strategy, with sleeping layers.
template <class Strategy>
struct paced : Strategy {
  template <class Device>
  struct state : Strategy::template state<Device> {
    using base = typename Strategy::template state<Device>;
    using stream = typename base::stream_type;
    using base::base;

    template <class Store>
    void block_begins(stream& on, Store& store, std::size_t block, block_visit visit) {
      base::block_begins(on, store, block, visit);
      const bool is_layer = block != 0 && block + 1 != store.blocks();
      if (is_layer && counts_of(on) == nullptr) std::this_thread::sleep_for(visit == block_visit::backward ? backward_time : forward_time);
    }
    template <class Store>
    void gradients_ready(stream& on, Store& store, std::size_t block, bool last_of_step) {
      base::gradients_ready(on, store, block, last_of_step);
      if (exchanges_wait) base::finish_gradients(on, store);
    }
    template <class Store>
    void weights_changed(stream& on, Store& store) {
      base::weights_changed(on, store);
      if (exchanges_wait) (void)store.stored_values();  // reading them waits for the exchange
    }
  };
};

template <class Parallel>
struct recipe : defaults {
  using parallel = Parallel;
};

struct seconds_and_traffic {
  double seconds = 0;                // median of steps
  double gradients = 0, weights = 0;  // bytes per step
};

template <class Parallel>
seconds_and_traffic steps_over(std::size_t ranks, const typename Parallel::config& layout, std::size_t micro_batches, const testing::slow_network& how) {
  seconds_and_traffic found;
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Parallel::config own = layout;
    own.ranks = std::make_shared<testing::slow_transport>(network, how);
    const cpu::context on({.threads = 1});
    llama<recipe<Parallel>> model({.vocab_size = 64,
                                   .hidden_size = 64,
                                   .num_layers = layers,
                                   .num_heads = 2,
                                   .max_position_embeddings = tokens,
                                   .tie_word_embeddings = false},
                                  on, {.parallel = own});
    trainer trainer(model, {.max_steps = 1, .micro_batch_size = 1, .gradient_accumulation_steps = micro_batches});
    host_batch rows{.b = 1, .t = tokens};
    for (auto* values : {&rows.tokens, &rows.targets, &rows.positions}) values->assign(tokens, 1);
    rows.starts.assign(tokens, 0);
    rows.target_count = rows.token_count = tokens;
    const std::vector<host_batch> batches(micro_batches, rows);
    std::vector<double> times;
    step_traffic before{};
    for (int i = 0; i < 8; ++i) {
      if (i == 1) before = traffic_of(model.parallel());
      const auto begin = std::chrono::steady_clock::now();
      (void)trainer.step(std::span<const host_batch>(batches), 1e-4);
      if (i > 0) times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    if (network->rank() != 0) return;
    std::sort(times.begin(), times.end());
    const step_traffic sent = traffic_of(model.parallel()).since(before);
    const auto steps = static_cast<double>(times.size());
    found = {times[times.size() / 2], static_cast<double>(sent.of(traffic_role::gradients).bytes) / steps,
             static_cast<double>(sent.of(traffic_role::weights).bytes) / steps};
  });
  return found;
}

/// Gradients become available during the backward pass, and updated weights are needed during the forward pass, a third of the time; in a
/// pipeline, and where weights are gathered in both passes, messages can be anywhere.
template <class Parallel>
double at_best(double without, double gradients, double weights) {
  if constexpr (requires { Parallel::stage; })
    if (Parallel::stage != detail::zero_stage::parameters) return std::max(2 * without / 3, gradients) + std::max(without / 3, weights);
  return std::max(without, gradients + weights);
}

template <class Parallel>
void show(const char* name, std::size_t ranks, const typename Parallel::config& layout, std::size_t micro_batches, const testing::slow_network& how) {
  exchanges_wait = false;
  const double fast = steps_over<Parallel>(ranks, layout, micro_batches, {}).seconds;
  const seconds_and_traffic slow = steps_over<Parallel>(ranks, layout, micro_batches, how);
  exchanges_wait = true;
  const double waiting = steps_over<Parallel>(ranks, layout, micro_batches, how).seconds;
  const double gradients = slow.gradients / how.bytes_per_second, weights = slow.weights / how.bytes_per_second;
  const double alone = gradients + weights, best = at_best<Parallel>(fast, gradients, weights);
  std::printf("%-34s %8.0f ms %8.0f ms %8.0f ms %8.0f ms %8.0f ms %6.0f %%\n", name, 1e3 * fast, 1e3 * waiting, 1e3 * slow.seconds, 1e3 * alone,
              1e3 * best, 100 * (waiting - slow.seconds) / (waiting - best));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const processors_report processors;
  const double megabytes = argc > 1 ? std::atof(argv[1]) : 10;
  const testing::slow_network how{.latency = std::chrono::microseconds(100), .bytes_per_second = 1e6 * megabytes};
  std::printf("%.0f MB/s\n", megabytes);
  std::printf("%-34s without     waiting     as it is    alone       at best     hidden\n", "strategy");
  show<paced<data_parallel>>("data_parallel", 2, {}, 1, how);
  show<paced<zero<1>>>("zero<1>", 2, {}, 1, how);
  show<paced<zero<2>>>("zero<2>", 2, {}, 1, how);
  show<paced<zero<3>>>("zero<3>", 2, {}, 1, how);
  const pipeline_ranks two{.data_parallel_size = 2}, chunks{.data_parallel_size = 2, .chunks = 2}, more{.data_parallel_size = 2, .chunks = 4};
  show<pipeline<one_forward_one_backward, paced<data_parallel>>>("one_forward_one_backward", 4, two, 4, how);
  show<pipeline<interleaved, paced<data_parallel>>>("interleaved, 2 chunks", 4, chunks, 4, how);
  show<pipeline<all_in_all_out, paced<data_parallel>>>("all_in_all_out, 2 chunks", 4, chunks, 4, how);
  show<pipeline<all_in_all_out, paced<data_parallel>>>("all_in_all_out, 4 chunks", 4, more, 4, how);
  show<pipeline<all_in_all_out, paced<zero<1>>>>("all_in_all_out, 4 chunks, zero<1>", 4, more, 4, how);
}
