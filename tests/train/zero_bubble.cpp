// Zero-bubble pipelines (backwards in two parts) equal one device, use the promised memory, and are planned to the byte.
#include <doctest/doctest.h>

#include <mutex>

#include <xtrain/models/gpt2.hpp>
#include "capped_llama.hpp"
#include "pipelines.hpp"

namespace {

/// The test's action list; backwards may be in two parts.
struct chosen_parts : chosen {
  static constexpr bool splits_backwards = true;
};
using piped = pipeline<chosen_parts>;
static_assert(piped::splits_backwards && !pipeline<chosen>::splits_backwards);
static_assert(pipeline<zero_bubble, zero<3>>::splits_backwards && !pipeline<one_forward_one_backward, zero<3>>::splits_backwards);

template <class Parallel>
struct recomputing_lora : lora_recipe<Parallel> {
  using recompute = recompute_full;
};

run_config settings(std::size_t accumulate) {
  return {.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = accumulate, .learning_rate = 1e-3, .max_grad_norm = 0};
}

void is_the_same(const piped_outcome& one, const piped_outcome& other) {
  CHECK(one.losses == other.losses);
  CHECK(one.weights == other.weights);
  CHECK(one.held_out == other.held_out);
}

/// Two parts, all W after all B: the maximum is deferred.
pipeline_schedule all_deferred(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) {
  pipeline_schedule work = empty_schedule("all_put_off", ranks, chunks, std::move(rows));
  for (auto& list : work.actions)
    for (const action_kind kind : {action_kind::forward, action_kind::backward_input, action_kind::backward_weight})
      for (std::size_t chunk = 0; chunk < chunks; ++chunk)
        for (std::size_t i = 0; i < work.micro_batches(); ++i)
          list.push_back({kind, i, kind == action_kind::forward ? chunk : chunks - 1 - chunk});
  return with_messages(std::move(work));
}

}  // namespace

TEST_CASE("llama with dropout on two and four ranks: bit for bit, also where everything is put off, over two chunks") {
  const dataset data = sentences();
  const piped_outcome one = run_here<llama<recipe<single>>>(data, layers(8, false), settings(4), {});
  for (const std::size_t ranks : {2U, 4U})
    for (const auto& [make, chunks] :
         {std::pair<make_schedule, std::size_t>{zero_bubble::make, 1}, {all_deferred, 1}, {all_deferred, 2}, {one_forward_one_backward::make, 1}}) {
      chosen_schedule = make;
      const std::string what = concat(make(ranks, chunks, std::vector<std::size_t>(4, 1)).name, " on ", ranks, " ranks, ", chunks, " chunks");
      CAPTURE(what);
      is_the_same(one, run_pipeline<llama<recipe<piped>>>(ranks, data, layers(8, false), settings(4), {.parallel = {.chunks = chunks}}));
    }
  chosen_schedule = zero_bubble::make;
  // fewer micro-batches than ranks
  is_the_same(run_here<llama<recipe<single>>>(data, layers(8, false), settings(2), {}),
              run_pipeline<llama<recipe<piped>>>(4, data, layers(8, false), settings(2)));
  decoder_config capped = layers(4, false);  // softcaps, windows in some layers, output norms
  capped.sliding_window = 4;
  capped.windowed_layers = {true, false, false, true};
  capped.attn_logit_softcapping = 0.5;
  capped.final_logit_softcapping = 2.0;
  is_the_same(run_here<capped_llama<recipe<single>>>(data, capped, settings(2), {}),
              run_pipeline<capped_llama<recipe<piped>>>(2, data, capped, settings(2)));
  chosen_schedule = one_forward_one_backward::make;
}

TEST_CASE("gpt2, whose head is tied and whose layers have biases, with clipping") {
  const dataset data = sentences();
  run_config clipped = settings(4);
  clipped.max_grad_norm = 0.5;
  const piped_outcome one = run_here<gpt2<recipe<single>>>(data, layers(8, true), clipped, {});
  chosen_schedule = zero_bubble::make;
  const auto near = [&](const piped_outcome& other) {  // a tied table's gradient is a sum of two sums, in fp32
    CHECK(difference(one.losses, other.losses) < 2e-5);
    CHECK(difference(one.weights, other.weights) < 2e-5);
  };
  for (const std::size_t ranks : {2U, 4U}) near(run_pipeline<gpt2<recipe<piped>>>(ranks, data, layers(8, true), clipped));
  // the same sequences in two parallel pipelines
  run_config half = clipped;
  half.gradient_accumulation_steps = 2;
  near(run_pipeline<gpt2<recipe<piped>>>(4, data, layers(8, true), half, {.parallel = {.data_parallel_size = 2}}));
  chosen_schedule = one_forward_one_backward::make;
}

TEST_CASE("LoRA and recomputation: what adapters train is made at once") {
  const dataset data = sentences();
  const lora_config adapter{.rank = 4, .dropout = 0.1};
  const piped_outcome one = run_here<gpt2<recomputing_lora<single>>>(data, layers(4, true), settings(4), {.adapter = adapter});
  chosen_schedule = zero_bubble::make;
  is_the_same(one, run_pipeline<gpt2<recomputing_lora<piped>>>(4, data, layers(4, true), settings(4), {.adapter = adapter}));
  chosen_schedule = one_forward_one_backward::make;
}

TEST_CASE("what is put off is planned to the byte, and a step allocates nothing") {
  const decoder_config shape = layers(8, false);
  const run_config run{.micro_batch_size = 2, .gradient_accumulation_steps = 8, .learning_rate = 1e-3};
  chosen_schedule = zero_bubble::make;
  const dataset data = sentences();
  std::mutex mutex;
  std::vector<std::size_t> deferred(4);
  run_ranks(4, [&](const std::shared_ptr<transport>& network) {
    const cpu::context on;
    llama<recipe<piped>> model(shape, on, {.parallel = {.ranks = network}});
    trainer trainer(model, run);
    loader rows(data, trainer.loader_settings());
    (void)trainer.step(rows.next(), 1e-3);
    const std::size_t before = on.memory().allocations;
    (void)trainer.step(rows.next(), 1e-3);
    const std::lock_guard lock(mutex);
    CHECK(on.memory().allocations == before);
    for (std::size_t role = 0; role < memory_roles; ++role) CHECK(on.memory().now[role] == trainer.plan().bytes[role]);
    deferred[network->rank()] = trainer.plan().passes.deferred;
  });
  chosen_schedule = one_forward_one_backward::make;
  CHECK(deferred[0] == 0);  // no stage waits for the first stage's B
  // for two layers, both factors of all products
  const std::size_t num_tokens = 2 * shape.max_position_embeddings, c = shape.hidden_size, f = shape.intermediate_size;
  CHECK(deferred[1] == 2 * sizeof(float) * num_tokens * ((c + 3 * c) + (c + c) + (c + 2 * f) + (f + c)));
  CHECK(deferred[2] == deferred[1]);
  CHECK(deferred[3] == deferred[1]);
}

namespace {

template <class Beside>
using divided = gpt2<recipe<pipeline<chosen_parts, Beside>>>;

}  // namespace

TEST_CASE("ZeRO's second and third stage, the head tied or not, equal one device and one another") {
  const dataset data = sentences();
  run_config half = settings(2);
  half.max_grad_norm = 0.5;
  run_config whole = half;
  whole.gradient_accumulation_steps = 4;
  for (const bool tied : {false, true}) {
    const piped_outcome one = run_here<gpt2<recipe<single>>>(data, layers(8, tied), whole, {});
    for (const auto& [make, chunks] : {std::pair<make_schedule, std::size_t>{zero_bubble::make, 1}, {all_deferred, 1}, {all_deferred, 2}}) {
      chosen_schedule = make;
      const std::string what = concat(make(2, chunks, std::vector<std::size_t>(2, 1)).name, ", ", chunks, " chunks", tied ? ", tied" : "");
      CAPTURE(what);
      const pipeline_ranks two{.data_parallel_size = 2, .chunks = chunks};
      const piped_outcome gradients = run_pipeline<divided<zero<2>>>(4, data, layers(8, tied), half, {.parallel = two});
      const piped_outcome weights = run_pipeline<divided<zero<3>>>(4, data, layers(8, tied), half, {.parallel = two});
      is_the_same(gradients, weights);
      CHECK(difference(one.losses, gradients.losses) < 2e-5);
      CHECK(difference(one.weights, gradients.weights) < 2e-5);
      for (std::size_t i = 0; i < one.norms.size(); ++i) CHECK(one.norms[i] == doctest::Approx(gradients.norms[i]).epsilon(1e-4));
    }
  }
  chosen_schedule = one_forward_one_backward::make;
}

namespace {

/// Two stages of four layers, two ranks each, everything deferred: memory, traffic and allocations in the second step.
template <class Beside>
void keeps_its_promises(std::size_t micro_batches) {
  const decoder_config shape = layers(8, false);
  chosen_schedule = all_deferred;
  std::mutex mutex;
  run_ranks(4, [&](const std::shared_ptr<transport>& network) {
    const cpu::context on;
    divided<Beside> model(shape, on, {.parallel = {.ranks = network, .data_parallel_size = 2}});
    trainer trainer(model, run_config{.micro_batch_size = 2, .gradient_accumulation_steps = micro_batches, .seq_length = 24});
    host_batch rows{.b = 2, .t = 24};
    for (auto* values : {&rows.tokens, &rows.targets, &rows.positions, &rows.starts}) values->assign(48, 0);
    rows.target_count = rows.token_count = 48;
    const std::vector<host_batch> batches(micro_batches, rows);
    (void)trainer.step(std::span<const host_batch>(batches), 1e-3);
    const step_traffic before = traffic_of(model.parallel());
    const std::size_t allocations = on.memory().allocations;
    (void)trainer.step(std::span<const host_batch>(batches), 1e-3);
    const step_traffic sent = traffic_of(model.parallel()).since(before);
    const auto& store = model.parameters();
    std::size_t stage = 0;  // bytes of the rank's blocks, with padding
    for (std::size_t b = 0; b < store.blocks(); ++b) stage += (store.block(b).end - store.block(b).begin) * sizeof(float);

    const std::lock_guard lock(mutex);
    const dry_run& plan = trainer.plan();
    CHECK(on.memory().allocations == allocations);
    for (std::size_t role = 0; role < memory_roles; ++role) CHECK(on.memory().now[role] == plan.bytes[role]);
    for (const traffic_role role : {traffic_role::gradients, traffic_role::weights, traffic_role::pipeline_parallel})
      CHECK(sent.of(role).bytes == plan.sent.of(role).bytes);
    CHECK(sent.of(traffic_role::gradients).bytes == micro_batches * stage / 2);  // once per micro-batch, as for unsplit backwards
    // for four layers: both factors of all products, gradients of norms and biases
    const std::size_t num_tokens = 2 * shape.max_position_embeddings, c = shape.hidden_size, f = shape.intermediate_size;
    const std::size_t factors = sizeof(float) * num_tokens * ((c + 3 * c) + (c + c) + (c + f) + (f + c));
    const std::size_t aside = sizeof(float) * (4 * c + 3 * c + c + 32 + c);  // f = 24 is stored as two cache lines
    CHECK(plan.passes.deferred == 4 * (factors + aside));
  });
  chosen_schedule = one_forward_one_backward::make;
}

}  // namespace

TEST_CASE("ZeRO's second and third stage: gradients go away once a micro-batch, and memory is planned to the byte") {
  keeps_its_promises<zero<2>>(3);
  keeps_its_promises<zero<3>>(3);
}

TEST_CASE("a rank of zero_bubble keeps and puts off no more than there are ranks and one") {
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const auto list = with_whole_backwards(with_rendezvous(zero_bubble_schedule(4, std::vector<std::size_t>(8, 1))).actions[rank]);
    const pipeline_memory most = memory_of(list);
    CHECK(most.saved == 4 - rank);
    CHECK(most.deferred == (rank == 0 ? 0 : rank + 1));
  }
}
