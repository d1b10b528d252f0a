// Sequence parallelism in pipelines, and with context parallelism: equals one device.
#include <doctest/doctest.h>

#include <mutex>

#include <xtrain/models/gpt2.hpp>
#include "pipelines.hpp"
#include "shared_rows.hpp"

namespace {

/// The test's action list; backwards may be in two parts.
struct chosen_parts : chosen {
  static constexpr bool splits_backwards = true;
};
template <class Parallel>
struct recomputing_lora : lora_recipe<Parallel> {
  using recompute = recompute_full;
};
using piped = pipeline<chosen_parts, parallel<zero<1>, sequence_parallel>>;
using shared = parallel<zero<2>, sequence_parallel, context_parallel>;
using everything = pipeline<chosen, parallel<zero<3>, sequence_parallel, ring_context_parallel>>;
static_assert(shared::name == "zero-2 x tensor and sequence x context");
static_assert(piped::has_sequence_parallel && piped::splits_backwards && !pipeline<chosen>::has_sequence_parallel);

/// Four micro-batches of two sequences per step, divided among `data` data-parallel ranks; with clipping.
run_config settings(std::size_t data) {
  return {.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 4 / data, .learning_rate = 1e-3, .max_grad_norm = 0.5};
}

/// Ranks' partial sums are added in another order.
void is_near(const piped_outcome& one, const piped_outcome& other) {
  CHECK(difference(one.losses, other.losses) < 2e-5);
  CHECK(difference(one.weights, other.weights) < 2e-5);
  CHECK(std::abs(one.held_out - other.held_out) < 2e-5);
  for (std::size_t i = 0; i < one.norms.size(); ++i) CHECK(one.norms[i] == doctest::Approx(other.norms[i]).epsilon(1e-4));
}

/// Two sequences of 24 tokens.
host_batch full_rows() {
  host_batch rows{.b = 2, .t = 24};
  for (auto* values : {&rows.tokens, &rows.targets, &rows.positions, &rows.starts}) values->assign(48, 0);
  rows.target_count = rows.token_count = 48;
  return rows;
}

/// Memory and traffic of a rank in a step, and the plan.
struct cost {
  memory_count held;
  dry_run plan;
  step_traffic sent;

  [[nodiscard]] std::size_t bytes(traffic_role role) const { return sent.of(role).bytes; }
  void is_as_planned() const {
    for (std::size_t role = 0; role < memory_roles; ++role) {
      CAPTURE(name_of(static_cast<memory_role>(role)));
      CHECK(held.now[role] == plan.bytes[role]);
    }
    for (std::size_t role = 0; role < traffic_roles; ++role) {
      CAPTURE(name_of(static_cast<traffic_role>(role)));
      CHECK(sent.sent[role].bytes == plan.sent.sent[role].bytes);
    }
  }
};
template <class Model>
std::vector<cost> costs_of(std::size_t ranks, const decoder_config& shape, std::size_t micro_batches, const typename Model::options& options) {
  std::vector<cost> all(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Model::options own = options;
    own.parallel.ranks = network;
    const cpu::context on;
    Model model(shape, on, own);
    trainer trainer(model, run_config{.micro_batch_size = 2, .gradient_accumulation_steps = micro_batches, .seq_length = 24});
    const std::vector<host_batch> batches(micro_batches, full_rows());
    (void)trainer.step(std::span<const host_batch>(batches), 1e-3);
    const step_traffic before = traffic_of(model.parallel());
    (void)trainer.step(std::span<const host_batch>(batches), 1e-3);
    all[network->rank()] = {on.memory(), trainer.plan(), traffic_of(model.parallel()).since(before)};
  });
  return all;
}

}  // namespace

TEST_CASE("stages of sequence-parallel ranks: gpt2 on every schedule") {
  const dataset data = sentences();
  using model = gpt2<recipe<piped>>;
  for (const bool tied : {true, false}) {
    CAPTURE(tied);
    const piped_outcome one = run_here<gpt2<recipe<single>>>(data, layers(4, tied), settings(1), {});
    CHECK(one.norms[0] > 0.5);
    for (const auto& [make, chunks] : {std::pair<make_schedule, std::size_t>{gpipe::make, 1}, {one_forward_one_backward::make, 1},
                                       {interleaved::make, 2}, {all_in_all_out::make, 2}, {zero_bubble::make, 1}}) {
      chosen_schedule = make;
      const std::string schedule = make(2, chunks, {1, 1, 1, 1}).name;
      CAPTURE(schedule);
      is_near(one, run_pipeline<model>(4, data, layers(4, tied), settings(1), {.parallel = {.tensor_parallel_size = 2, .chunks = chunks}}));
    }
    chosen_schedule = one_forward_one_backward::make;
    is_near(one, run_pipeline<model>(8, data, layers(4, tied), settings(2), {.parallel = {.data_parallel_size = 2, .tensor_parallel_size = 2}}));
    is_near(one, run_pipeline<model>(4, data, layers(4, tied), settings(2), {.parallel = {.data_parallel_size = 2, .tensor_parallel_size = 2}}));  // one stage
  }
}

TEST_CASE("beside context-parallel ranks, packed and not: parts of their parts, at the ends of rows as well") {
  for (const dataset& data : {sentences(), packed_sentences()}) {
    decoder_config shape = four_heads(true);
    shape.num_heads = 8;
    const piped_outcome one = run_here<gpt2<recipe<single>>>(data, shape, settings(1), {});
    using model = gpt2<recipe<shared>>;
    is_near(one, run_pipeline<model>(4, data, shape, settings(1), {.parallel = {.tensor_parallel_size = 2, .context_parallel_size = 2}}));
    is_near(one, run_pipeline<model>(8, data, shape, settings(1), {.parallel = {.tensor_parallel_size = 4, .context_parallel_size = 2}}));
    is_near(one, run_pipeline<model>(8, data, shape, settings(2), {.parallel = {.tensor_parallel_size = 2, .context_parallel_size = 2}}));
  }
}

TEST_CASE("everything at once: a ring, stages, LoRA, recomputation, weights divided") {
  const dataset data = packed_sentences();
  const lora_config adapter{.rank = 4};
  const decoder_config shape = layers(4, false);
  const piped_outcome one = run_here<llama<recomputing_lora<single>>>(data, shape, settings(1), {.adapter = adapter});
  const auto beside = [&](std::size_t ranks, pipeline_ranks how) {
    const std::size_t data_ranks = how.data_parallel_size;
    is_near(one, run_pipeline<llama<recomputing_lora<everything>>>(ranks, data, shape, settings(data_ranks), {.adapter = adapter, .parallel = std::move(how)}));
  };
  beside(8, {.tensor_parallel_size = 2, .context_parallel_size = 2});
  beside(8, {.data_parallel_size = 2, .tensor_parallel_size = 2});
  beside(6, {.tensor_parallel_size = 1, .context_parallel_size = 3});
  chosen_schedule = interleaved::make;
  beside(8, {.tensor_parallel_size = 2, .context_parallel_size = 2, .chunks = 2});
  chosen_schedule = one_forward_one_backward::make;
}

TEST_CASE("a stage keeps and sends slices of what flows, as planned, and as many bytes as the formulas say") {
  const decoder_config shape = layers(4, true);
  const std::size_t m = 3, c = shape.hidden_size, slice = 48 / 2 * c * sizeof(float);
  const auto all = costs_of<gpt2<recipe<piped>>>(4, shape, m, {.parallel = {.tensor_parallel_size = 2}});
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CAPTURE(rank);
    const cost& one = all[rank];
    const bool first = rank < 2;
    one.is_as_planned();
    // outputs of the embedding and of two layers; the second stage's input is in the receive buffer
    CHECK(one.plan.passes.layer_inputs == (first ? 3 : 2) * slice);
    CHECK(one.bytes(traffic_role::pipeline_parallel) == m * slice);
    // per micro-batch: halves of all-reduces of [tokens, hidden_size], ten per layer and two at an end, and three values per token for the head's loss; per
    // step: gradients of two norms per layer, of position embeddings and the last norm, and the gradient norm
    const std::size_t at_the_end = first ? 0 : m * 3 * 48 * sizeof(float);
    const std::size_t parts = (2 * 4 * c + (first ? 24 * c : 2 * c)) * sizeof(float);
    CHECK(one.bytes(traffic_role::tensor_parallel) == m * (2 * 10 + 2) * slice + at_the_end + sizeof(double));
    CHECK(one.bytes(traffic_role::partial_sums) == parts);
  }
}

TEST_CASE("beside context-parallel ranks, messages are of parts of parts; what cannot be divided is refused with the numbers") {
  const decoder_config shape = four_heads(true);
  const std::size_t l = shape.num_layers, c = shape.hidden_size, slice = 48 / 4 * c * sizeof(float);
  using model = gpt2<recipe<shared>>;
  for (const cost& one : costs_of<model>(4, shape, 1, {.parallel = {.tensor_parallel_size = 2, .context_parallel_size = 2}})) {
    one.is_as_planned();
    CHECK(one.plan.passes.layer_inputs == (l + 1) * slice);
    const std::size_t parts = (4 * l + 2 + 24) * c * sizeof(float);
    CHECK(one.bytes(traffic_role::tensor_parallel) == (10 * l + 4) * slice + 3 * 24 * sizeof(float) + sizeof(double));
    CHECK(one.bytes(traffic_role::partial_sums) == parts);
    // for half of the heads: queries, keys, values and outputs of own tokens to the other rank, forward and backward; and the loss
    CHECK(one.bytes(traffic_role::context_parallel) == 2 * l * 24 * (3 + 1) * (c / 2) / 2 * sizeof(float) + sizeof(double));
  }
  std::string said;
  try {
    run_ranks(4, [&](const std::shared_ptr<transport>& network) {
      model made(shape, {}, {.parallel = {.ranks = network, .tensor_parallel_size = 2, .context_parallel_size = 2}});
      const trainer trainer(made, run_config{.max_steps = 1, .seq_length = 22});
    });
  } catch (const config_error& problem) {
    said = problem.what();
  }
  CHECK(said == "seq_length: must be divisible by the 4 ranks that shard sequences; given 22 tokens");
}
