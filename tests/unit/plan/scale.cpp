// A 7B model on 512 ranks: messages of a rank in a step, and their time.
#include <doctest/doctest.h>

#include <memory>

#include <xtrain/parallel.hpp>
#include <xtrain/plan/machines.hpp>
#include <xtrain/plan/predict.hpp>
#include <xtrain/xtrain.hpp>

using namespace xtrain;

namespace {

template <class Parallel>
struct recipe : defaults {
  using precision = bf16_mixed;
  using parallel = Parallel;
  using recompute = recompute_full;
};

decoder_config seven_billion() {
  return {.vocab_size = 32'000,
          .hidden_size = 4'096,
          .num_layers = 32,
          .num_heads = 32,
          .intermediate_size = 11'008,
          .max_position_embeddings = 2'048,
          .tie_word_embeddings = false};
}

template <class Parallel>
dry_run step_of(std::size_t rank, std::size_t ranks) {
  typename llama<recipe<Parallel>>::options options;
  options.parallel.ranks = std::make_shared<dry_transport>(rank, ranks);
  return plan<trainer<llama<recipe<Parallel>>>>(seven_billion(), options, {.max_steps = 1, .micro_batch_size = 1}, cpu::properties{1});
}
template <class Parallel>
double seconds_of(const dry_run& step, std::size_t ranks) {
  typename Parallel::config config;
  config.ranks = std::make_shared<dry_transport>(0, ranks);
  return predict(step, layout_of<recipe<Parallel>>(config, 1), h100(), "bf16").seconds;
}

/// Messages per step of the naive exchange: each rank sends each other its part, in pieces of 2^20 / ranks elements.
constexpr std::size_t once_sent = 3'300'000;

}  // namespace

TEST_CASE("a 7B model on 512 ranks: messages of a rank and step grow with the bytes and the logarithm of the ranks") {
  const dry_run rows = step_of<data_parallel>(0, 512), one = step_of<zero<1>>(0, 512), three = step_of<zero<3>>(0, 512);
  CHECK(rows.sent.total().messages == 14'994);
  CHECK(one.sent.total().messages == 11'403);
  CHECK(three.sent.total().messages == 14'913);
  CHECK(one.sent.total().messages * 250 < once_sent);
  // a norm, a target count, a loss: nine messages each
  CHECK(one.sent.of(traffic_role::scalars).messages == 3 * 9);
  // every rank sends equally many
  CHECK(step_of<zero<1>>(511, 512).sent.total().messages == one.sent.total().messages);

  // pieces of 32 MiB, fp32 gradients and bf16 weights, nine messages each; each of 34 blocks has one partial piece
  const auto pieces = [](std::size_t bytes) { return bytes / (std::size_t{1} << 25) + 34; };
  CHECK(one.sent.of(traffic_role::gradients).messages <= 9 * pieces(one.trained * 4));
  CHECK(one.sent.of(traffic_role::weights).messages <= 9 * pieces(one.trained * 2));
  CHECK(one.sent.of(traffic_role::gradients).rounds == one.sent.of(traffic_role::gradients).messages);
  CHECK(one.sent.of(traffic_role::gradients).collectives == 34);

  // twice the ranks: one more message per piece
  const dry_run twice = step_of<zero<1>>(0, 1024);
  CHECK(twice.sent.of(traffic_role::gradients).messages * 9 == one.sent.of(traffic_role::gradients).messages * 10);
}

TEST_CASE("a 7B model on 512 H100: the processor's time for messages and the latency of every round are in the prediction") {
  const dry_run step = step_of<zero<1>>(0, 512);
  const double seconds = seconds_of<zero<1>>(step, 512);
  dry_run free = step;
  for (traffic& sent : free.sent.sent) sent.rounds = 0;
  const double latency = static_cast<double>(step.sent.of(traffic_role::gradients).rounds) * (6 * h100().between.latency + 3 * h100().inside.latency) / 9;
  CHECK(seconds - seconds_of<zero<1>>(free, 512) >= latency * 0.99);
  CHECK(seconds < 0.5);  // passes take 0.19 s
}
