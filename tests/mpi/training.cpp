// Training on ranks that are processes is training on ranks that are threads, bit for bit.
#include <doctest/doctest.h>

#include <xtrain/models/llama.hpp>
#include <xtrain/mpi.hpp>
#include <xtrain/parallel/zero.hpp>
#include "ranks.hpp"

namespace {

using wires = std::shared_ptr<transport>;

/// A run on all processes, and on as many threads in each of them.
template <class Parallel>
void equals_threads(std::size_t tensor) {
  mpi_session session({.patience = std::chrono::seconds(60)});
  const dataset data = sentences();
  const run_config settings{.steps = 5, .batch = 2, .accumulate = 2, .learning_rate = 1e-3};
  const auto on = [&](const wires& ranks) {
    return train<llama<recipe<Parallel>>>(data, sizes(false), settings, {.parallel = {.ranks = ranks, .tensor = tensor}});
  };
  outcome of_processes, of_threads;
  session.run([&](const wires& ranks) { of_processes = on(ranks); });
  run_ranks(session.size(), [&](const wires& ranks) {
    const outcome one = on(ranks);
    if (ranks->rank() == session.rank()) of_threads = one;
  });
  CHECK(of_processes.losses.size() == 5);
  CHECK(of_processes.losses == of_threads.losses);
  CHECK(of_processes.weights == of_threads.weights);
  CHECK(of_processes.held_out == of_threads.held_out);
}

}  // namespace

TEST_CASE("every rank has all weights, or its part of them") {
  equals_threads<data_parallel>(1);
  equals_threads<zero<3>>(1);
}

TEST_CASE("two ranks divide every layer") {
  const mpi_session session;
  if (session.size() % 2 == 0) equals_threads<parallel<zero<2>, tensor_parallel>>(2);
}
