// Pipelines with every schedule equal one device with the same global batch.
#include <doctest/doctest.h>

#include <xtrain/adapt/qlora.hpp>
#include <xtrain/models/bloom.hpp>
#include <xtrain/models/gpt2.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/testing/isolated.hpp>
#include "pipelines.hpp"

namespace {

template <class Parallel>
struct everything_recipe : lora_recipe<Parallel> {
  using recompute = recompute_full;
};
template <class Parallel>
struct four_bit_recipe : recipe<Parallel> {
  using adapter = qlora;
};
template <class Parallel>
struct walled_recipe : recipe<Parallel> {
  using device = testing::isolated<cpu>;
};

run_config settings(std::size_t accumulate) {
  return {.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = accumulate, .learning_rate = 1e-3, .max_grad_norm = 0};
}

/// Calls work(ranks, chunks) with every schedule on two and four ranks.
template <class Work>
void with_every_schedule(Work&& work) {
  for (const std::size_t ranks : {2U, 4U}) {
    for (const auto& [make, chunks] : {std::pair<make_schedule, std::size_t>{gpipe::make, 1}, {one_forward_one_backward::make, 1},
                                       {interleaved::make, 1}, {interleaved::make, 2}, {all_in_all_out::make, 1}, {all_in_all_out::make, 2}}) {
      chosen_schedule = make;
      const std::string what = concat(make(ranks, chunks, std::vector<std::size_t>(4, 1)).name, " on ", ranks, " ranks, ", chunks, " chunks");
      CAPTURE(what);
      work(ranks, chunks);
    }
  }
  chosen_schedule = one_forward_one_backward::make;
}

/// Equal sums in equal order: bit for bit, loss included. Only norms are summed in another order.
void is_the_same(const piped_outcome& one, const piped_outcome& other) {
  CHECK(one.losses == other.losses);
  CHECK(one.weights == other.weights);
  CHECK(one.held_out == other.held_out);
  for (std::size_t i = 0; i < one.norms.size(); ++i) CHECK(one.norms[i] == doctest::Approx(other.norms[i]).epsilon(1e-6));
}
/// A tied table's gradient is a sum of two sums, in fp32.
void is_near(const piped_outcome& one, const piped_outcome& other) {
  CHECK(difference(one.losses, other.losses) < 2e-5);
  CHECK(difference(one.weights, other.weights) < 2e-5);
  CHECK(std::abs(one.held_out - other.held_out) < 2e-5);
  for (std::size_t i = 0; i < one.norms.size(); ++i) CHECK(one.norms[i] == doctest::Approx(other.norms[i]).epsilon(1e-4));
}

}  // namespace

TEST_CASE("llama with dropout, every schedule on two and four ranks: bit for bit") {
  const dataset data = sentences();
  const piped_outcome one = run_here<llama<recipe<single>>>(data, layers(8, false), settings(4), {});
  with_every_schedule([&](std::size_t ranks, std::size_t chunks) {
    is_the_same(one, run_pipeline<llama<recipe<pipeline<chosen>>>>(ranks, data, layers(8, false), settings(4), {.parallel = {.chunks = chunks}}));
  });
  run_config means = settings(4);  // micro-batches with different numbers of targets
  means.average_loss = loss_average::micro_batch;
  const piped_outcome other = run_here<llama<recipe<single>>>(data, layers(8, false), means, {});
  CHECK(difference(one.losses, other.losses) > 1e-4);
  is_the_same(other, run_pipeline<llama<recipe<pipeline<chosen>>>>(2, data, layers(8, false), means, {}));
  // one rank is a pipeline with any number of chunks
  is_the_same(one, run_pipeline<llama<recipe<pipeline<chosen>>>>(1, data, layers(8, false), settings(4), {.parallel = {.chunks = 2}}));
}

TEST_CASE("gpt2, whose head is tied, with clipping") {
  const dataset data = sentences();
  run_config clipped = settings(4);
  clipped.max_grad_norm = 0.5;
  const piped_outcome one = run_here<gpt2<recipe<single>>>(data, layers(8, true), clipped, {});
  CHECK(one.norms[0] > 0.5);
  with_every_schedule([&](std::size_t ranks, std::size_t chunks) {
    is_near(one, run_pipeline<gpt2<recipe<pipeline<chosen>>>>(ranks, data, layers(8, true), clipped, {.parallel = {.chunks = chunks}}));
  });
}

TEST_CASE("LoRA and recomputation, on every stage and on one alone") {
  const dataset data = sentences();
  using piped = gpt2<everything_recipe<pipeline<chosen>>>;
  using alone = gpt2<everything_recipe<single>>;
  lora_config adapter{.rank = 4, .dropout = 0.1};
  const piped_outcome all = run_here<alone>(data, layers(8, true), settings(4), {.adapter = adapter});
  with_every_schedule([&](std::size_t ranks, std::size_t chunks) {
    is_the_same(all, run_pipeline<piped>(ranks, data, layers(8, true), settings(4), {.adapter = adapter, .parallel = {.chunks = chunks}}));
  });
  adapter.layers = {5};  // three of four ranks have no trainable parameters
  const piped_outcome one = run_here<alone>(data, layers(8, true), settings(4), {.adapter = adapter});
  is_the_same(one, run_pipeline<piped>(4, data, layers(8, true), settings(4), {.adapter = adapter}));
  adapter.layers = {};
  adapter.targets = {"c_attn", "wte"};  // an adapter on the embedding table; the head reads the table without it
  const piped_outcome table = run_here<alone>(data, layers(8, true), settings(4), {.adapter = adapter});
  is_the_same(table, run_pipeline<piped>(2, data, layers(8, true), settings(4), {.adapter = adapter}));
}

TEST_CASE("two pipelines beside one another, also with ZeRO's first stage") {
  const dataset data = sentences();
  run_config clipped = settings(2);
  clipped.max_grad_norm = 0.5;
  run_config whole = clipped;
  whole.gradient_accumulation_steps = 4;
  const piped_outcome one = run_here<gpt2<recipe<single>>>(data, layers(4, true), whole, {});
  const auto beside = [&]<class Beside>(Beside) {
    return run_pipeline<gpt2<recipe<pipeline<one_forward_one_backward, Beside>>>>(4, data, layers(4, true), clipped, {.parallel = {.data_parallel_size = 2}});
  };
  const piped_outcome replicated = beside(data_parallel{}), sliced = beside(zero<1>{});
  is_near(one, replicated);
  is_near(one, sliced);
  is_the_same(run_pipeline<gpt2<recipe<pipeline<one_forward_one_backward>>>>(4, data, layers(4, true), clipped, {.parallel = {.data_parallel_size = 4}}),
              run_pipeline<gpt2<recipe<data_parallel>>>(4, data, layers(4, true), clipped));
}

TEST_CASE("stages of any number of layers, micro-batches of any number of rows") {
  const dataset data = sentences();
  const piped_outcome one = run_here<llama<recipe<single>>>(data, layers(8, false), settings(4), {});
  for (const std::vector<std::size_t>& split : {std::vector<std::size_t>{5, 3}, {1, 7}, {0, 8}, {8, 0}})
    is_the_same(one, run_pipeline<llama<recipe<pipeline<chosen>>>>(2, data, layers(8, false), settings(4), {.parallel = {.stage_layers = split}}));
  const piped_outcome uneven =
      run_pipeline<llama<recipe<pipeline<chosen>>>>(2, data, layers(8, false), settings(4), {.parallel = {.micro_batch_sizes = {1, 2, 4, 1}}});
  is_near(one, uneven);
  CHECK(one.weights != uneven.weights);  // micro-batches are split at other sequences
  const piped_outcome beside = run_pipeline<llama<recipe<pipeline<chosen>>>>(
      4, data, layers(8, false), settings(2), {.parallel = {.data_parallel_size = 2, .micro_batch_sizes = {1, 3}}});
  is_near(one, beside);
}

TEST_CASE("in bf16; in four bits; a norm behind the embedding; experts, balanced or not; a device whose memory is elsewhere and whose stream is late") {
  const dataset data = sentences();
  using in_bf16 = llama<bf16_recipe<pipeline<chosen>>>;
  is_the_same(run_here<llama<bf16_recipe<single>>>(data, layers(4, false), settings(4), {}),
              run_pipeline<in_bf16>(4, data, layers(4, false), settings(4)));
  is_the_same(run_here<llama<four_bit_recipe<single>>>(data, layers(4, false), settings(2), {}),
              run_pipeline<llama<four_bit_recipe<pipeline<chosen>>>>(2, data, layers(4, false), settings(2)));
  decoder_config wide = layers(4, true);
  wide.intermediate_size = 4 * wide.hidden_size;
  is_near(run_here<bloom<recipe<single>>>(data, wide, settings(2), {}),
          run_pipeline<bloom<recipe<pipeline<chosen>>>>(2, data, wide, settings(2)));
  decoder_config experts = layers(4, false);
  experts.num_experts = 4;
  experts.num_experts_per_token = 2;
  for (const bool balances : {false, true}) {
    experts.balances_experts = balances;
    experts.router_aux_loss_coef = balances ? 0.02 : 0;
    for (const loss_average average : {loss_average::step, loss_average::micro_batch}) {
      run_config how = settings(2);
      how.average_loss = average;
      is_the_same(run_here<mixtral<recipe<single>>>(data, experts, how, {}), run_pipeline<mixtral<walled_recipe<pipeline<chosen>>>>(2, data, experts, how));
    }
  }
  chosen_schedule = interleaved::make;
  is_the_same(run_here<llama<recipe<single>>>(data, layers(4, false), settings(4), {}),
              run_pipeline<llama<walled_recipe<pipeline<chosen>>>>(2, data, layers(4, false), settings(4), {.parallel = {.chunks = 2}}));
  chosen_schedule = one_forward_one_backward::make;
}
