// A step is queued while the device still runs earlier work: number of host waits for every strategy, and results equal to the cpu's, bit for bit.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include <xtrain/data/sentence_dataset.hpp>
#include <xtrain/models/bert.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/optim/adamw_8bit.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/testing/isolated.hpp>
#include <xtrain/testing/recorded_transport.hpp>
#include <xtrain/train/add_log_probs.hpp>
#include <xtrain/train/checkpoint.hpp>
#include <xtrain/train/optimizer_file.hpp>
#include <xtrain/train/reward_scorer.hpp>
#include "ranks.hpp"
#include "scratch.hpp"

namespace {

template <class Device, class Parallel, class Precision = fp32, class Adapter = no_adapter>
struct on_device : defaults {
  using device = Device;
  using parallel = Parallel;
  using precision = Precision;
  using adapter = Adapter;
};
using isolated = testing::isolated<cpu>;
static_assert(clause::device_prepares_kernels<isolated> && clause::device_marks_host_failures<isolated>);
static_assert(!clause::device_prepares_kernels<cpu> && !clause::device_marks_host_failures<cpu>);

/// A few manual steps on one of several ranks, and the host waits of the last.
struct steps_taken {
  std::vector<double> losses, norms, weights;
  testing::host_waits waits{};
  std::size_t planned = 0, allocated = 0;  // bytes
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
  taken.planned = trainer.plan().total();
  taken.allocated = model.context().memory().total_peak;
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

/// The step waits once, for its end; no copy blocks the host; results equal the cpu's; memory is as planned.
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
    if (waits == 1) CHECK(there[rank].allocated == there[rank].planned);  // memory that grows with unbalanced experts is not planned
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

TEST_CASE("collectives of an accelerator's own library, which a transport provides: the same calls on every rank, and the same results") {
  // host_bytes: sent by way of the host in 3 steps by all ranks: target and token counts, no arrays
  const auto run = [&]<class Model>(const Model*, std::size_t ranks, const decoder_config& shape, typename Model::recipe::parallel::config layout,
                                    std::size_t host_bytes, std::size_t waits = 1) {
    using model_type = Model;
    CAPTURE(std::string(Model::recipe::parallel::name));
    std::vector<steps_taken> sent(ranks), native(ranks);
    const auto ledgers = std::make_shared<testing::call_ledgers>();
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      auto own = layout;
      own.ranks = network;
      sent[network->rank()] = take_steps<model_type>(shape, {.parallel = own}, 4);
      own.ranks = std::make_shared<testing::recorded_transport<isolated>>(network, ledgers);
      native[network->rank()] = take_steps<model_type>(shape, {.parallel = own}, 4);
    });
    CHECK(ledgers->calls() + ledgers->native_messages >= 3);  // at least one per step
    CHECK_NOTHROW(ledgers->require_complete());
    CHECK(ledgers->host_bytes.load() == host_bytes);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      CHECK(native[rank].losses == sent[rank].losses);
      CHECK(native[rank].weights == sent[rank].weights);
      CHECK(native[rank].waits.synchronizations + native[rank].waits.event_waits == waits);
    }
  };
  const auto llama_on = [&]<class Parallel>(Parallel, std::size_t ranks, const typename Parallel::config& layout, std::size_t host_bytes) {
    run(static_cast<const llama<on_device<isolated, Parallel>>*>(nullptr), ranks, sizes(false), layout, host_bytes);
  };
  llama_on(data_parallel{}, 2, {}, 144);
  llama_on(zero<2>{}, 2, {}, 144);
  llama_on(zero<3>{}, 3, {}, 432);
  llama_on(tensor_parallel{}, 2, {.tensor_parallel_size = 2}, 0);
  llama_on(parallel<zero<2>, sequence_parallel>{}, 4, {.tensor_parallel_size = 2}, 288);
  llama_on(context_parallel{}, 2, {.context_parallel_size = 2}, 0);
  llama_on(ring_context_parallel{}, 2, {.context_parallel_size = 2}, 0);
  llama_on(ring_context_parallel{}, 4, {.context_parallel_size = 4}, 0);
  llama_on(pipeline<one_forward_one_backward>{}, 2, {}, 0);
  llama_on(pipeline<zero_bubble, zero<1>>{}, 4, {.data_parallel_size = 2}, 288);
  // the library gets message sizes from the host, which waits for the counts: of 2 experts of the other rank, in each of 3 layers and 4 micro-batches
  run(static_cast<const mixtral<on_device<isolated, expert_parallel>>*>(nullptr), 2, experts(), {.expert_parallel_size = 2, .expert_waits = true},
      1296, 1 + 3 * 4);
}

namespace {

/// A network that fails from some message on.
class failing_transport final : public transport {
 public:
  explicit failing_transport(std::shared_ptr<transport> of) : of_(std::move(of)) {}

  void fail_after(int messages) { left_ = messages; }
  [[nodiscard]] std::string_view name() const override { return "failing"; }
  [[nodiscard]] std::size_t rank() const override { return of_->rank(); }
  [[nodiscard]] std::size_t size() const override { return of_->size(); }
  [[nodiscard]] pending_message send(std::size_t to, std::uint32_t channel, std::span<const std::byte> bytes) override {
    if (left_ >= 0 && left_-- == 0) {
      left_ = 0;
      throw comm_error("the network has failed");
    }
    return of_->send(to, channel, bytes);
  }
  [[nodiscard]] pending_message receive(std::size_t from, std::uint32_t channel, std::span<std::byte> bytes) override {
    return of_->receive(from, channel, bytes);
  }

 private:
  std::shared_ptr<transport> of_;
  std::atomic<int> left_{-1};
};

using device_state = std::vector<std::vector<std::byte>>;
/// Weights and optimizer state, through another stream: the model's may have failed.
template <class Model, class Trainer, class Visit>
void visit_state(Model& model, Trainer& trainer, Visit&& visit) {
  isolated::stream beside(model.context());
  std::size_t index = 0;
  const auto one = [&](auto span) { visit(beside, index++, span_of<std::byte, isolated::memory>(reinterpret_cast<std::byte*>(span.raw()), span.bytes())); };
  one(model.parameters().trained_values());
  trainer.visit_optimizer([&](std::string_view, const auto& array, const auto&...) { one(array); });
  beside.synchronize();
}
template <class Model, class Trainer>
[[nodiscard]] device_state state_of(Model& model, Trainer& trainer) {
  device_state all;
  visit_state(model, trainer, [&](isolated::stream& beside, std::size_t, auto bytes) {
    copy_to_host(beside, std::span<std::byte>(all.emplace_back(bytes.size())), bytes);
    beside.synchronize();
  });
  return all;
}

/// A step of two ranks fails after rank 1 sent `messages` messages.
template <template <class> class Family, class Parallel>
void step_fails(int messages, const decoder_config& shape, const typename Parallel::config& layout = {}) {
  using model_type = Family<on_device<isolated, Parallel>>;
  CAPTURE(std::string(Parallel::name));
  CAPTURE(messages);
  const training_config<adamw> settings{.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .seq_length = 16, .max_grad_norm = 0.5};
  const auto step = [](auto& trainer, std::size_t rank, std::size_t number) {
    const std::vector<host_batch> batches = batches_of(2, number + 5 * rank);
    return trainer.step(std::span<const host_batch>(batches), 1e-2).loss;
  };
  const auto on_ranks = [&](auto&& work) {
    run_ranks(2, [&](const std::shared_ptr<transport>& network) {
      const auto failing = std::make_shared<failing_transport>(network);
      auto own = layout;
      own.ranks = failing;
      model_type model(shape, isolated::context{}, {.parallel = own});
      trainer trainer(model, settings);
      work(*failing, model, trainer, model.parallel().data().rank());
    });
  };
  device_state saved[2];
  training_progress progress[2];
  std::vector<double> losses[2], uninterrupted[2], weights[2], uninterrupted_weights[2];
  on_ranks([&](failing_transport& network, model_type& model, auto& trainer, std::size_t data) {
    const std::size_t rank = network.rank();
    losses[rank].push_back(step(trainer, data, 0));
    (void)all_weights(model);  // weights may still be gathered outside the stream
    saved[rank] = state_of(model, trainer);
    progress[rank] = trainer.progress();
    if (rank == 1) network.fail_after(messages);
    CHECK_THROWS_WITH_AS(step(trainer, data, 1), doctest::Contains(rank == 1 ? "the network has failed" : "that rank has returned"), comm_error);
    CHECK(state_of(model, trainer) == saved[rank]);
    CHECK(trainer.progress().step == 1);
    CHECK(trainer.progress().updates == 1);
    CHECK_THROWS_WITH_AS(step(trainer, data, 1), doctest::Contains("Create new ranks, and load the last checkpoint"), comm_error);
  });
  // a run resumed from the failed ranks' memory equals one without failure
  on_ranks([&](failing_transport& network, model_type& model, auto& trainer, std::size_t data) {
    const std::size_t rank = network.rank();
    visit_state(model, trainer, [&](isolated::stream& beside, std::size_t index, auto bytes) {
      copy_to_device(beside, bytes, std::span<const std::byte>(saved[rank][index]));
      beside.synchronize();
    });
    trainer.restore(progress[rank]);
    for (std::size_t number = 1; number < 3; ++number) losses[rank].push_back(step(trainer, data, number));
    weights[rank] = all_weights(model);
  });
  on_ranks([&](failing_transport& network, model_type& model, auto& trainer, std::size_t data) {
    for (std::size_t number = 0; number < 3; ++number) uninterrupted[network.rank()].push_back(step(trainer, data, number));
    uninterrupted_weights[network.rank()] = all_weights(model);
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(losses[rank] == uninterrupted[rank]);
    CHECK(weights[rank] == uninterrupted_weights[rank]);
  }
}

}  // namespace

TEST_CASE("a step whose messages fail changes nothing, although the device goes on with it, and the run can be resumed") {
  for (const int messages : {1, 2, 3}) step_fails<llama, data_parallel>(messages, sizes(false));
  step_fails<llama, zero<2>>(2, sizes(false));
  step_fails<llama, tensor_parallel>(5, sizes(false), {.tensor_parallel_size = 2});
  step_fails<llama, pipeline<one_forward_one_backward>>(1, sizes(false));
  for (const int messages : {2, 3, 9}) step_fails<mixtral, expert_parallel>(messages, experts(), {.expert_parallel_size = 2});
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

TEST_CASE("with expert parallelism messages are queued before their sizes are known, and there is room for all rows that may come") {
  waits_once<mixtral, expert_parallel>("two experts on each rank", 2, experts(), {.expert_parallel_size = 2});
  waits_once<mixtral, expert_parallel>("one, and two copies of it", 8, experts(), {.expert_parallel_size = 4});
  // where the host waits for sizes: once per expert layer and micro-batch
  waits_once<mixtral, expert_parallel>("as much memory as needed", 2, experts(), {.expert_parallel_size = 2, .expert_waits = true}, 1 + 3 * 4);
  // room for balanced experts, but they are not balanced
  const auto without_room = [](const std::shared_ptr<transport>& network) {
    const rank_layout layout{.ranks = network, .expert_parallel_size = 2, .expert_capacity = 1.0};
    (void)take_steps<mixtral<on_device<isolated, expert_parallel>>>(experts(), {.parallel = layout}, 1);
  };
  CHECK_THROWS_WITH_AS(run_ranks(2, without_room), doctest::Contains("expert: the experts of a rank must be given at most 64 tokens in layer"), memory_error);
  const rank_layout too_small{.expert_capacity = 0.5};
  CHECK_THROWS_WITH_AS(expert_parallel::state<isolated>{too_small},
                       doctest::Contains("expert_capacity must be at least 1, the rows that come on average, or 0"), config_error);
}

TEST_CASE("with late metrics the device always has work, and losses, weights and events are the same") {
  const dataset data = sentences();
  const auto run = [&]<class Device>(Device, bool late) {
    using model_type = llama<on_device<Device, single>>;
    struct reader final : observer {
      [[nodiscard]] bool reads_weights_after(std::size_t step) const override { return step == 5; }
    };
    model_type model(sizes(false));
    trainer trainer(model, {.max_steps = 8, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .learning_rate = 1e-3, .late_metrics = late});
    history seen;
    reader reads;
    trainer.attach(seen);
    trainer.attach(reads);
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
  CHECK(late_waits.drains == 2);  // before weights are read, and at the end
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

namespace {

struct scoring : on_device<isolated, single> {
  using objective = reward;
};
struct with_8_bits : on_device<isolated, zero<1>> {
  using optimizer = adamw_8bit;
};

/// What the host waited for in work().
template <class Model, class Work>
[[nodiscard]] testing::host_waits waits_in(Model& model, Work&& work) {
  const testing::host_waits before = model.context().waits();
  work();
  return model.context().waits().since(before);
}

}  // namespace

TEST_CASE("log-probabilities, scores and optimizer state come to the host through pinned memory; the host waits once for the check of all weights") {
  const host_batch batch = batches_of(1, 0)[0];
  llama<on_device<cpu, single>> here(sizes(false));
  llama<on_device<isolated, single>> model(sizes(false));
  {
    const training_config<adamw> settings{.max_steps = 4, .micro_batch_size = 2, .seq_length = 16};
    trainer on_cpu(here, settings);
    trainer trainer(model, settings);
    CHECK(waits_in(model, [&] { CHECK(trainer.token_log_probs(batch) == on_cpu.token_log_probs(batch)); }).blocking_copies == 0);
    const testing::host_waits checked = waits_in(model, [&] { trainer.require_finite_weights(); });
    CHECK(model.parameters().entries().size() > 10);
    CHECK(checked.synchronizations + checked.event_waits == 1);
    CHECK(checked.blocking_copies == 0);
  }
  dataset data = sentences();
  CHECK(waits_in(model, [&] { add_reference_log_probs(model, data); }).blocking_copies == 0);
  CHECK(waits_in(model, [&] { add_teacher_log_probs(model, data, {.top_k = 5}); }).blocking_copies == 0);

  llama<scoring> scores(sizes(true));
  reward_scorer scorer(scores, {.micro_batch_size = 2});
  const std::vector<std::vector<token>> sequences{{1, 2, 3}, {4, 5, 6, 7}, {8}};
  CHECK(waits_in(scores, [&] { CHECK(scorer(sequences).size() == 3); }).blocking_copies == 0);

  const scratch_folder scratch;
  for (const std::size_t ranks : {std::size_t{1}, std::size_t{2}})
    run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
      llama<with_8_bits> trained(sizes(false), {}, {.parallel = {.ranks = network}});
      trainer trainer(trained, {.max_steps = 1, .micro_batch_size = 2, .optimizer = {.min_8bit_size = 256}});
      const std::string folder = scratch / concat(ranks);
      make_folder(folder);
      CHECK(waits_in(trained, [&] { (void)write_optimizer(trainer, folder + "/alone", nullptr); }).blocking_copies == 0);
      checkpoint_folder checkpoints(trainer, folder + "/together", {.save_steps = 1});
      trainer.attach(checkpoints);
      CHECK(waits_in(trained, [&] { trainer.fit(sentences()); }).blocking_copies == 0);
      CHECK(waits_in(trained, [&] { (void)checkpoints.resume(); }).blocking_copies == 1);  // the loss scale's state, 1 struct
    });
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
  CHECK_THROWS_WITH_AS((void)second.evaluate(sentences()), doctest::Contains("evaluate() must not be called while steps are queued"), config_error);
  two.push_back(second.finish_step().loss);
  CHECK_THROWS_AS((void)second.finish_step(), config_error);
  CHECK(one == two);
  CHECK(all_weights(model) == all_weights(other));
  // a restored run ignores steps queued before
  const std::vector<host_batch> more = batches_of(1, 0);
  second.queue_step(std::span<const host_batch>(more), 1e-2);
  const training_progress saved = first.progress();
  second.restore(saved);
  CHECK(second.queued_steps() == 0);
  CHECK(second.progress().step == saved.step);
}

namespace {

/// Steps of the isolated device, captured or not: the host's launches in the last step.
template <class Model>
steps_taken steps_in_turn(const decoder_config& shape, const typename Model::options& options, bool captures) {
  Model model(shape, typename Model::context_type{}, options);
  trainer trainer(model, {.max_steps = 8,
                          .micro_batch_size = 2,
                          .gradient_accumulation_steps = 3,
                          .seq_length = 24,
                          .max_grad_norm = 0.5,
                          .loss_scale = {.start = 1e9, .growth_window = 2, .hysteresis = 1},
                          .capture_steps = captures});
  steps_taken taken;
  const auto add = [&](const step_done& done) {
    taken.losses.push_back(done.loss);
    taken.norms.push_back(std::isfinite(done.gradient_norm) ? done.gradient_norm : -1.0);
  };
  for (std::size_t step = 0; step < 8; ++step) {
    std::vector<host_batch> batches = batches_of(3, step);
    batches[1].targets[step] = -1;  // the number of targets differs from step to step
    for (std::size_t i = 0; i < step; ++i) batches[2].targets[i] = -1;
    batches[1].target_count -= 1;
    batches[2].target_count -= step;
    const testing::host_waits before = model.context().waits();
    trainer.queue_step(std::span<const host_batch>(batches), 1e-2 / static_cast<double>(1 + step));
    taken.waits = model.context().waits().since(before);
    const std::size_t left = step >= 4 && step < 7 ? 1 : 0;  // one of these stays queued
    while (trainer.queued_steps() > left) add(trainer.finish_step());
  }
  taken.weights = all_weights(model);
  const testing::host_waits before = model.context().waits();
  trainer.require_finite_weights();  // as before a checkpoint is written
  taken.losses.push_back(trainer.evaluate(sentences()).loss);
  CHECK(model.context().waits().since(before).blocking_copies == 0);
  const testing::kernel_preparation kernels = model.context().prepared();
  if (captures) {
    CHECK(kernels.captured > 100);
    CHECK(kernels.prepared > 10);
    CHECK(4 * kernels.prepared < kernels.captured);  // two captures for each of two slots; layers are alike
  } else {
    CHECK(kernels.prepared == 0);
  }
  CHECK(kernels.unprepared == 0);
  CHECK(kernels.again == 0);
  return taken;
}

}  // namespace

TEST_CASE("a step that is captured once and replayed is the same step, in one launch: with other random numbers every time") {
  const auto compare = [&]<class Model>(const Model*, const char* name, const decoder_config& shape, const typename Model::options& options = {}) {
    CAPTURE(name);
    const steps_taken queued = steps_in_turn<Model>(shape, options, false), replayed = steps_in_turn<Model>(shape, options, true);
    CHECK(queued.losses == replayed.losses);
    CHECK(queued.norms == replayed.norms);
    CHECK(queued.weights == replayed.weights);
    CHECK(queued.waits.launches > 100);
    CHECK(replayed.waits.launches == 0);
    CHECK(replayed.waits.replays == 1);
    CHECK(replayed.waits.synchronizations + replayed.waits.event_waits + replayed.waits.blocking_copies == 0);
  };
  compare(static_cast<llama<on_device<isolated, single>>*>(nullptr), "llama", sizes(false));
  compare(static_cast<llama<on_device<isolated, single, fp16_mixed>>*>(nullptr), "with loss scaling", sizes(false));
  compare(static_cast<llama<on_device<isolated, single, bf16_pure, lora>>*>(nullptr), "with stochastic rounding, and LoRA", sizes(true),
          {.adapter = {.rank = 2, .dropout = 0.1}});
  compare(static_cast<mixtral<on_device<isolated, single>>*>(nullptr), "experts", experts());
}

TEST_CASE("kernels are prepared before a capture, once for each shape, also those of a layout that comes later") {
  llama<on_device<isolated, single>> model(sizes(false));
  trainer trainer(model, {.max_steps = 8, .micro_batch_size = 2, .seq_length = 16, .capture_steps = true});
  const auto prepared_by = [&](std::size_t t, std::size_t step) {
    std::vector<host_batch> batches = batches_of(1, step);
    batches[0].t = t;
    for (auto* values : {&batches[0].tokens, &batches[0].targets, &batches[0].positions, &batches[0].starts}) values->resize(2 * t);
    for (std::size_t i = 0; i < 2 * t; ++i) batches[0].positions[i] = static_cast<token>(i % t);
    batches[0].target_count = batches[0].token_count = 2 * t;
    const testing::kernel_preparation before = model.context().prepared();
    (void)trainer.step(std::span<const host_batch>(batches), 1e-2);
    const testing::kernel_preparation after = model.context().prepared();
    CHECK(after.unprepared == 0);
    CHECK(after.again == 0);
    return after.prepared - before.prepared;
  };
  CHECK(prepared_by(16, 0) > 10);
  CHECK(prepared_by(16, 1) <= 2);  // the other slot: only kernels whose operands there have another alignment
  CHECK(prepared_by(16, 2) == 0);
  CHECK(prepared_by(8, 3) > 10);
  CHECK(prepared_by(8, 4) <= 2);
  CHECK(prepared_by(16, 5) == 0);
}

TEST_CASE("steps are captured for each layout of batches, beside evaluations") {
  using model_type = llama<on_device<isolated, single>>;
  const auto fitted = [&](bool captures) {
    model_type model(sizes(false));
    trainer trainer(model, {.max_steps = 12, .micro_batch_size = 2, .eval_steps = 3, .late_metrics = true, .capture_steps = captures});
    history seen;
    trainer.attach(seen);
    const dataset data = sentences(), held_out = sentences();
    trainer.fit(data, &held_out);
    return std::pair(std::vector<double>(seen.losses().begin(), seen.losses().end()), all_weights(model));
  };
  CHECK(fitted(false) == fitted(true));

  llama<on_device<cpu, single>> here(sizes(false));
  CHECK_THROWS_WITH_AS(trainer(here, {.micro_batch_size = 2, .capture_steps = true}),
                       doctest::Contains("the device must be able to capture work; cpu is not"), config_error);
}

TEST_CASE("whether steps can be captured is known before a trainer is made, from settings and data") {
  const auto can = []<class Model>(const Model*, const decoder_config& shape, const training_config<adamw>& c = {}) {
    return can_capture_steps<Model>(shape, typename Model::options{}, c);
  };
  using model_type = llama<on_device<isolated, single>>;
  const model_type* model = nullptr;
  const decoder_config shape = sizes(false);
  CHECK(can(model, shape));
  CHECK(!can(static_cast<llama<on_device<cpu, single>>*>(nullptr), shape));
  CHECK(!can(model, shape, {.neftune_noise_alpha = 5.0}));
  CHECK(!can(model, shape, {.average_loss = loss_average::micro_batch}));
  CHECK(!can(model, shape, {.keep_gradients = true}));
  using lora_experts = mixtral<on_device<isolated, single, fp32, lora>>;
  CHECK(can(static_cast<mixtral<on_device<isolated, single>>*>(nullptr), experts()));
  CHECK(!can(static_cast<lora_experts*>(nullptr), experts()));
  CHECK(has_few_layouts(dataset("text", sequence_layout::stream)));
  CHECK(has_few_layouts(dataset("packed samples", sequence_layout::packed)));
  CHECK(!has_few_layouts(sentences()));  // padded to the longest of each step
}

TEST_CASE("a program that captures wherever the settings allow it trains an encoder with labels of sequences") {
  using model_type = bert_pretraining<on_device<isolated, single>>;
  const encoder_config shape{.vocab_size = 30, .hidden_size = 24, .num_layers = 1, .num_heads = 2, .intermediate_size = 32, .max_position_embeddings = 16};
  sentence_dataset data("numbers");
  for (token row = 0; row < 8; ++row) {
    sentence_row one;
    one.label = row % 2;
    for (const token word : {2, 5 + row, 3}) one.add(word, true);
    data.add(one);
  }
  data.finish();
  model_type model(shape);
  training_config<adamw> settings{.max_steps = 2, .micro_batch_size = 4, .seq_length = 16};
  settings.capture_steps = true;
  CHECK_THROWS_WITH_AS(trainer(model, settings).fit(data), "capture_steps: steps with labels of sequences cannot be captured", config_error);
  settings.capture_steps = can_capture_steps<model_type>(shape, {}, settings);
  trainer trainer(model, settings);
  trainer.fit(data);
  CHECK(trainer.progress().step == 2);
  CHECK(can_capture_steps<llama<on_device<isolated, single>>>(sizes(false), {}, training_config<adamw>{}));
  CHECK_FALSE(can_capture_steps<llama<on_device<cpu, single>>>(sizes(false), {}, training_config<adamw>{}));
}

TEST_CASE("work that is not the same in two steps is not captured, and says which launch differs") {
  const isolated::context on;
  isolated::stream stream(on);
  const batch_memory<isolated> staged(on, 32);
  batch_staging<isolated> staging(on, 32, 2);
  xtrain::detail::captured_steps<isolated> steps;
  const buffer<isolated> values(on, 64 * sizeof(float), memory_role::other);
  arena<isolated> workspace(on, 64, memory_role::workspace);
  const auto x_n = values.template as<float>();
  fill_zero(stream, x_n);
  const std::vector<host_batch> batches = batches_of(1, 0);
  const batch_view view(batches[0]);
  const auto queue = [&](std::span<const batch_view>, std::uint32_t number) {  // a setting contains the step number
    const kernel::dropout<isolated::memory, float> drops{.n = 64, .probability = 0.5, .random = {.step = number}, .x_n = x_n, .y_n = x_n};
    execution<isolated> where{stream, workspace, on.properties()};
    ops::launch(where, drops);
  };
  for (int time = 0; time < 2; ++time)
    CHECK_THROWS_WITH_AS(steps.prepare(stream, staged, staging, 0, std::span(&view, 1), 7, queue),
                         doctest::Contains("is dropout and dropout, with other settings or operands. What differs from step to step must be in device memory"),
                         config_error);
  stream.synchronize();  // queued work uses the buffer
}
