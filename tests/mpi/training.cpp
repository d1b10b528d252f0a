// Training on processes equals training on threads, bit for bit.
#include <doctest/doctest.h>

#include <xtrain/models/llama.hpp>
#include <xtrain/mpi.hpp>
#include <xtrain/parallel/zero.hpp>
#include "ranks.hpp"

namespace {

using network = std::shared_ptr<transport>;

/// A run on all processes, and on as many threads in each.
template <class Parallel>
void equals_threads(std::size_t tensor) {
  mpi_session session({.timeout = std::chrono::seconds(60)});
  const dataset data = sentences();
  const run_config settings{.max_steps = 5, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .learning_rate = 1e-3};
  const auto on = [&](const network& ranks) {
    return train<llama<recipe<Parallel>>>(data, sizes(false), settings, {.parallel = {.ranks = ranks, .tensor_parallel_size = tensor}});
  };
  outcome of_processes, of_threads;
  session.run([&](const network& ranks) { of_processes = on(ranks); });
  run_ranks(session.size(), [&](const network& ranks) {
    const outcome one = on(ranks);
    if (ranks->rank() == session.rank()) of_threads = one;
  });
  CHECK(of_processes.losses.size() == 5);
  CHECK(of_processes.losses == of_threads.losses);
  CHECK(of_processes.weights == of_threads.weights);
  CHECK(of_processes.held_out == of_threads.held_out);
}

/// The first rank's figures of all ranks.
class rank_figures final : public observer {
 public:
  using observer::on;
  void on(const rank_measured& one) override { all.push_back(one); }
  std::vector<rank_measured> all;
};

}  // namespace

TEST_CASE("the first rank hears what every rank's steps took, when it is time, and the others hear nothing") {
  mpi_session session({.timeout = std::chrono::seconds(60)});
  const dataset data = sentences();
  rank_figures heard;
  session.run([&](const network& ranks) {
    const cpu::context on;
    llama<recipe<data_parallel>> model(sizes(false), on, {.parallel = {.ranks = ranks}});
    run_config settings{.max_steps = 5, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .learning_rate = 1e-3};
    settings.measure_ranks_every = 2;
    trainer trainer(model, settings);
    trainer.attach(heard);
    trainer.fit(data);
  });
  if (session.rank() != 0) {
    CHECK(heard.all.empty());
    return;
  }
  REQUIRE(heard.all.size() == 2 * session.size());
  for (std::size_t i = 0; i < heard.all.size(); ++i) {
    const rank_measured& one = heard.all[i];
    CHECK(one.step == 2 + i / session.size() * 2);
    CHECK(one.rank == i % session.size());
    CHECK(one.ranks == session.size());
    CHECK(one.seconds > 0);
    CHECK(one.waiting >= 0);
    CHECK(one.waiting <= one.seconds);
    CHECK((session.size() == 1 || one.waiting > 0));
    CHECK(one.tokens > 0);
    CHECK(one.tokens <= 4 * 24);  // sequences of a step x sequence length
    CHECK(one.peak_memory == heard.all[0].peak_memory);  // all ranks store the same amount
  }
}

TEST_CASE("every rank has all weights, or its part of them") {
  equals_threads<data_parallel>(1);
  equals_threads<zero<3>>(1);
}

TEST_CASE("two ranks divide every layer") {
  const mpi_session session;
  if (session.size() % 2 == 0) equals_threads<parallel<zero<2>, tensor_parallel>>(2);
}
