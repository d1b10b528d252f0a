// A step is queued while the device still works on what was queued before: how often the host waits, with every strategy, and that results
// are those of the cpu, bit for bit.
#include <doctest/doctest.h>

#include <array>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include <xtrain/models/mixtral.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/testing/isolated.hpp>
#include "ranks.hpp"

namespace {

template <class Device, class Parallel, class Precision = fp32, class Adapter = no_adapter>
struct on_device : defaults {
  using device = Device;
  using parallel = Parallel;
  using precision = Precision;
  using adapter = Adapter;
};
using isolated = testing::isolated<cpu>;

/// A few steps by hand on one rank of several, and how often the host waited in the last one.
struct steps_taken {
  std::vector<double> losses, norms, weights;
  testing::host_waits waits{};
};

[[nodiscard]] std::vector<host_batch> batches_of(std::size_t count, std::size_t number) {
  std::vector<host_batch> all(count);
  for (std::size_t m = 0; m < count; ++m) {
    host_batch& batch = all[m];
    batch.b = 2;
    batch.t = 16;
    for (std::size_t i = 0; i < batch.b * batch.t; ++i) {
      batch.tokens.push_back(static_cast<token>((i * i * 5 + m * 11 + number * 17) % 97));
      batch.targets.push_back(static_cast<token>((i * 3 + m * 7 + number * 29) % 97));
      batch.positions.push_back(static_cast<token>(i % batch.t));
      batch.starts.push_back(0);
    }
    batch.target_count = batch.token_count = batch.b * batch.t;
    batch.first_sequence = m * batch.b;
  }
  return all;
}

template <class Model>
steps_taken take_steps(const decoder_config& shape, const typename Model::options& options, std::size_t accumulate) {
  Model model(shape, typename Model::context_type{}, options);
  trainer trainer(model, {.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = accumulate, .seq_length = 16, .max_grad_norm = 0.5});
  steps_taken taken;
  for (std::size_t step = 0; step < 3; ++step) {
    const std::vector<host_batch> batches = batches_of(accumulate, step + 5 * model.parallel().data().rank());
    testing::host_waits before;
    if constexpr (requires { model.context().waits(); }) before = model.context().waits();
    const step_done done = trainer.step(std::span<const host_batch>(batches), 1e-2);
    if constexpr (requires { model.context().waits(); }) taken.waits = model.context().waits().since(before);
    taken.losses.push_back(done.loss);
    taken.norms.push_back(done.gradient_norm);
  }
  taken.weights = all_weights(model);
  return taken;
}

[[nodiscard]] decoder_config experts() {
  decoder_config shape = sizes(false);
  shape.num_experts = 4;
  shape.num_experts_per_token = 2;
  shape.balances_experts = true;
  shape.router_aux_loss_coef = 0.02;
  return shape;
}

/// The step waits once, for its own end; no copy makes the host wait; and everything is as on the cpu.
template <template <class> class Family, class Parallel, class Precision = fp32, class Adapter = no_adapter>
void waits_once(const char* name, std::size_t ranks, const decoder_config& shape, typename Parallel::config layout = {},
                std::size_t waits = 1) {
  CAPTURE(name);
  std::vector<steps_taken> here(ranks), there(ranks);
  const auto run = [&](const std::shared_ptr<transport>& network) {
    typename Parallel::config own = layout;
    if constexpr (requires { own.ranks = network; }) own.ranks = network;
    const std::size_t rank = network->rank();
    here[rank] = take_steps<Family<on_device<cpu, Parallel, Precision, Adapter>>>(shape, {.parallel = own}, 4);
    there[rank] = take_steps<Family<on_device<isolated, Parallel, Precision, Adapter>>>(shape, {.parallel = own}, 4);
  };
  run_ranks(ranks, run);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    CHECK(there[rank].losses == here[rank].losses);
    CHECK(there[rank].norms == here[rank].norms);
    CHECK(there[rank].weights == here[rank].weights);
    CHECK(there[rank].waits.synchronizations + there[rank].waits.event_waits == waits);
    CHECK(there[rank].waits.blocking_copies == waits - 1);
  }
}

}  // namespace

TEST_CASE("on one rank the host waits once per step: micro-batches, clipping, loss scaling, experts, adapters") {
  waits_once<llama, single>("llama", 1, sizes(false));
  waits_once<llama, single, fp16_mixed>("with loss scaling", 1, sizes(false));
  waits_once<llama, single, bf16_mixed, lora>("with LoRA", 1, sizes(true));
  waits_once<mixtral, single>("experts", 1, experts());
  waits_once<mixtral, single, fp32, lora>("experts with LoRA", 1, experts());
}

TEST_CASE("data parallelism and ZeRO") {
  waits_once<llama, data_parallel>("data", 2, sizes(false));
  waits_once<llama, zero<1>>("zero-1", 2, sizes(false));
  waits_once<llama, zero<2>>("zero-2", 2, sizes(false));
  waits_once<llama, zero<3>>("zero-3", 3, sizes(true));
}

TEST_CASE("sharded layers and sequences") {
  waits_once<llama, tensor_parallel>("tensor", 2, sizes(false), {.tensor_parallel_size = 2});
  waits_once<llama, parallel<zero<2>, sequence_parallel>>("zero-2 x sequence", 4, sizes(false), {.tensor_parallel_size = 2});
  waits_once<llama, context_parallel>("context", 2, sizes(false), {.context_parallel_size = 2});
  waits_once<llama, ring_context_parallel>("ring", 2, sizes(false), {.context_parallel_size = 2});
}

TEST_CASE("pipelines") {
  waits_once<llama, pipeline<one_forward_one_backward>>("1F1B", 2, sizes(true));
  waits_once<llama, pipeline<zero_bubble, zero<1>>>("zero bubble x zero-1", 4, sizes(false), {.data_parallel_size = 2});
  waits_once<mixtral, pipeline<one_forward_one_backward>>("balanced experts", 2, experts());
}

TEST_CASE("pipelines with several chunks per rank, sequences of growing length, and two steps queued") {
  const auto run = [&]<class Parallel, class Device>(Parallel, Device, typename Parallel::config layout) {
    std::vector<std::vector<double>> losses(2);
    run_ranks(2, [&](const std::shared_ptr<transport>& network) {
      typename Parallel::config own = layout;
      own.ranks = network;
      decoder_config shape = sizes(false);
      shape.num_layers = 8;
      llama<on_device<Device, Parallel>> model(shape, typename Device::context{}, {.parallel = own});
      trainer trainer(model, {.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 4, .seq_length = 16});
      std::vector<std::vector<host_batch>> steps;
      for (std::size_t step = 0; step < 4; ++step) {
        steps.push_back(batches_of(4, step));
        for (host_batch& batch : steps.back()) {  // 4, 8, 12 and 16 tokens
          batch.t = 4 * (step + 1);
          for (auto* values : {&batch.tokens, &batch.targets, &batch.positions, &batch.starts}) values->resize(batch.b * batch.t);
          for (std::size_t i = 0; i < batch.positions.size(); ++i) batch.positions[i] = static_cast<token>(i % batch.t);
          batch.target_count = batch.token_count = batch.b * batch.t;
        }
      }
      for (std::size_t step = 0; step < 4; ++step) {
        trainer.queue_step(std::span<const host_batch>(steps[step]), 1e-2);
        for (host_batch& batch : steps[step]) batch.tokens.assign(batch.tokens.size(), 0);  // staged: the batch may be overwritten
        if (step > 0) losses[network->rank()].push_back(trainer.finish_step().loss);
      }
      losses[network->rank()].push_back(trainer.finish_step().loss);
    });
    CHECK(losses[0] == losses[1]);
    return losses[0];
  };
  using three_chunks = pipeline<interleaved>;
  const three_chunks::config layout{.chunks = 3};
  CHECK(run(three_chunks{}, cpu{}, layout) == run(three_chunks{}, isolated{}, layout));
  const rank_layout ring{.context_parallel_size = 2};
  CHECK(run(ring_context_parallel{}, cpu{}, ring) == run(ring_context_parallel{}, isolated{}, ring));
}

TEST_CASE("with expert parallelism the host waits for the sizes of messages, once per layer with experts and micro-batch") {
  waits_once<mixtral, expert_parallel>("expert", 2, experts(), {.expert_parallel_size = 2}, 1 + 3 * 4);
}

TEST_CASE("with late metrics the device always has work, and losses, weights and events are the same") {
  const dataset data = sentences();
  const auto run = [&]<class Device>(Device, bool late) {
    using model_type = llama<on_device<Device, single>>;
    model_type model(sizes(false));
    trainer trainer(model, {.max_steps = 8,
                            .micro_batch_size = 2,
                            .gradient_accumulation_steps = 2,
                            .learning_rate = 1e-3,
                            .eval_steps = 5,
                            .late_metrics = late});
    history seen;
    trainer.attach(seen);
    testing::host_waits before;
    if constexpr (requires { model.context().waits(); }) before = model.context().waits();
    trainer.fit(data);
    testing::host_waits waits;
    if constexpr (requires { model.context().waits(); }) waits = model.context().waits().since(before);
    CHECK(trainer.progress().updates == 8);
    return std::pair(outcome{{seen.losses().begin(), seen.losses().end()}, all_weights(model), 0}, waits);
  };
  const auto [here, none] = run(cpu{}, false);
  const auto [now, waits] = run(isolated{}, false);
  const auto [late, late_waits] = run(isolated{}, true);
  CHECK(here.losses == now.losses);
  CHECK(here.losses == late.losses);
  CHECK(here.weights == now.weights);
  CHECK(here.weights == late.weights);
  CHECK(waits.drains == 8);
  CHECK(late_waits.drains == 2);  // before the evaluation, and at the end
  CHECK(late_waits.event_waits == 8);
}

TEST_CASE("a step that is skipped is skipped on the device, before the host knows") {
  using model_type = llama<on_device<isolated, single, fp16_mixed>>;
  const auto run = [&](bool late) {
    model_type model(sizes(false));
    // the first scale overflows, so some steps are skipped
    trainer trainer(model, {.max_steps = 12,
                            .micro_batch_size = 2,
                            .learning_rate = 1e-3,
                            .loss_scale = {.start = 1e9, .growth_window = 4, .hysteresis = 1},
                            .late_metrics = late});
    history seen;
    trainer.attach(seen);
    trainer.fit(sentences());
    CHECK(trainer.progress().skipped > 0);
    CHECK(trainer.progress().updates + trainer.progress().skipped == 12);
    return std::tuple(std::vector<double>(seen.losses().begin(), seen.losses().end()), all_weights(model), trainer.progress().skipped,
                      trainer.progress().loss_scale.scale);
  };
  CHECK(run(false) == run(true));
}

TEST_CASE("a model that is assigned to is not left with work of the old one") {
  using model_type = llama<on_device<isolated, single>>;
  model_type model(sizes(false));
  { fill_zero(model.stream(), model.parameters().trained_values()); }
  model = model_type(sizes(true));
  trainer trainer(model, {.max_steps = 1, .micro_batch_size = 2});
  CHECK(trainer.step(std::span<const host_batch>(batches_of(1, 0)), 1e-2).loss > 0);
}

TEST_CASE("at most two steps may be queued, and every result is that of its step") {
  using model_type = llama<on_device<isolated, single>>;
  model_type model(sizes(false)), other(sizes(false));
  trainer first(model, {.max_steps = 4, .micro_batch_size = 2}), second(other, {.max_steps = 4, .micro_batch_size = 2});
  std::vector<double> one, two;
  for (std::size_t step = 0; step < 4; ++step) one.push_back(first.step(std::span<const host_batch>(batches_of(1, step)), 1e-2).loss);
  for (std::size_t step = 0; step < 4; ++step) {
    const std::vector<host_batch> batches = batches_of(1, step);
    second.queue_step(std::span<const host_batch>(batches), 1e-2);
    if (step == 1) {
      CHECK(second.queued_steps() == 2);
      CHECK_THROWS_AS(second.queue_step(std::span<const host_batch>(batches), 1e-2), config_error);
    }
    if (step > 0) two.push_back(second.finish_step().loss);
  }
  CHECK_THROWS_WITH_AS((void)second.step(std::span<const host_batch>(batches_of(1, 0)), 1e-2), doctest::Contains("while steps are queued"), config_error);
  two.push_back(second.finish_step().loss);
  CHECK_THROWS_AS((void)second.finish_step(), config_error);
  CHECK(one == two);
  CHECK(all_weights(model) == all_weights(other));
  // a run that is restored knows nothing of steps queued before
  const std::vector<host_batch> more = batches_of(1, 0);
  second.queue_step(std::span<const host_batch>(more), 1e-2);
  const training_progress saved = first.progress();
  second.restore(saved);
  CHECK(second.queued_steps() == 0);
  CHECK(second.progress().step == saved.step);
}
