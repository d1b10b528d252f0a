// Training on the device `musa`, on a library that stands in for MUSA's: the kernels of device/simt/, run on the host.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/data/sentence_batch.hpp>
#include <xtrain/device/musa/musa.hpp>
#include <xtrain/models/bert.hpp>
#include <xtrain/models/mixtral.hpp>
#include <xtrain/testing/fake_mublas.hpp>
#include <xtrain/testing/fake_musa.hpp>
#include <xtrain/xtrain.hpp>
#include "device_runs.hpp"

using namespace xtrain;

namespace {

struct on_cpu : defaults {
  using precision = bf16_mixed;
};
struct on_musa : on_cpu {
  using device = musa;
};

using device_runs::data, device_runs::gpt2_sizes, device_runs::llama_sizes, device_runs::losses;

}  // namespace

TEST_CASE("a LLaMA and a GPT-2 in bf16 train on musa to the cpu's losses, with muBLAS, captured where graphs work; an S80 refuses bf16 before a step") {
  const auto check = [](auto&& on_a_cpu, auto&& on_a_gpu, const decoder_config& sizes) {
    auto expected = on_a_cpu(sizes);
    const auto right = losses(expected, false);
    // an S5000 with muBLAS, and an S4000 with a runtime without graphs
    for (const bool has_graphs : {true, false}) {
      testing::fake_musa_config settings{.seed = 3};
      if (!has_graphs) settings = {.architecture = 22, .warp_width = 128, .missing = {"musaStreamBeginCapture"}, .seed = 3};
      testing::fake_musa gpu(settings);
      testing::fake_mublas blas(gpu);
      {
        const musa_context on = has_graphs ? blas.open("/dev/null/none") : gpu.open();
        auto model = on_a_gpu(sizes, on);
        const auto got = losses(model, has_graphs);
        REQUIRE(got.size() == right.size());
        for (std::size_t i = 0; i < right.size(); ++i) CHECK(std::abs(got[i] - right[i]) < right[i] * 0x1p-9);
        if (!has_graphs)
          CHECK_THROWS_WITH_AS((void)losses(model, true), doctest::Contains("musa: the runtime must be able to capture"), config_error);
        CHECK(gpu.calls_of("musaGraphLaunch") == (has_graphs ? 5 : 0));  // one when the GPU is opened
      }
      CHECK((blas.calls_of("mublasGemmEx") > 50) == has_graphs);
      CHECK(gpu.violations() == "");
      CHECK(gpu.leaks() == "");
      CHECK(blas.violations() == "");
      CHECK(blas.leaks() == "");
    }
    const testing::fake_musa s80({.architecture = 21, .warp_width = 128});
    auto refused = on_a_gpu(sizes, s80.open());
    CHECK_THROWS_WITH_AS((void)losses(refused, false), doctest::Contains("in bf16 needs mp_22 or newer; this GPU is mp_21 (MTT S80)"),
                         config_error);
    CHECK(s80.calls_of("musaLaunchKernel") == 0);
  };
  check([](const auto&... of) { return llama<on_cpu>(of...); }, [](const auto&... of) { return llama<on_musa>(of...); }, llama_sizes);
  check([](const auto&... of) { return gpt2<on_cpu>(of...); }, [](const auto&... of) { return gpt2<on_musa>(of...); }, gpt2_sizes);
}

// ---- Moore Threads' demo main_hf.py, in small: BERT, GPT-2, and Mixtral with one layer, in fp32 without dropout ----

namespace {

struct demo_on_cpu : defaults {
  using precision = fp32;
};
struct demo_on_musa : demo_on_cpu {
  using device = musa;
};

constexpr std::size_t rows = 2, places = 8;
constexpr token vocabulary = 31;
const training_config<adamw> demo_settings{
    .max_steps = 50, .micro_batch_size = rows, .seq_length = places, .optimizer = {.weight_decay = 0.1}, .max_grad_norm = 1.0};

host_batch next_tokens(std::size_t step) {
  host_batch batch{.b = rows, .t = places};
  for (std::size_t i = 0; i < rows * places; ++i) {
    const std::size_t at = step * rows * places + i;
    batch.tokens.push_back(static_cast<token>(at * at % vocabulary));
    batch.targets.push_back(static_cast<token>((at + 1) * (at + 1) % vocabulary));
    batch.positions.push_back(static_cast<token>(i % places));
  }
  batch.target_count = batch.token_count = rows * places;
  return batch;
}
host_batch masked_tokens(std::size_t step) {
  host_batch batch = next_tokens(step);
  std::vector<token> targets(rows * places, -1);
  for (std::size_t i = step % 3; i < rows * places; i += 3) {
    targets[i] = batch.tokens[i];
    batch.tokens[i] = 1;  // the mask
  }
  return sentence_batch({.b = rows, .t = places, .tokens = batch.tokens, .targets = targets});
}

/// Fifty steps on the cpu and on an S4000: each loss to 1e-4, memory to the byte.
template <template <class> class Family, class Sizes>
void check_demo(const Sizes& sizes, host_batch (*batch_of)(std::size_t)) {
  const auto train = [&](auto& model) {
    trainer trainer(model, demo_settings);
    std::vector<double> all;
    for (std::size_t step = 0; step < 50; ++step) {
      const host_batch batch = batch_of(step);
      all.push_back(trainer.step(std::span<const host_batch>(&batch, 1), 2e-3).loss);
    }
    return all;
  };
  Family<demo_on_cpu> expected(sizes);
  const auto right = train(expected);
  const testing::fake_musa gpu({.architecture = 22, .warp_width = 128});
  double error = 0;
  {
    const musa_context on = gpu.open();
    using trainer_type = trainer<Family<demo_on_musa>>;
    const dry_run planned = plan<trainer_type>(sizes, {}, demo_settings, on.properties());
    Family<demo_on_musa> model(sizes, on);
    const auto got = train(model);
    for (std::size_t i = 0; i < got.size(); ++i) error = std::max(error, std::abs(got[i] - right[i]));
    CHECK(planned.total() == on.memory().total_peak);
    for (std::size_t r = 0; r < memory_roles; ++r) CHECK(planned.bytes[r] == on.memory().peak[r]);
  }
  MESSAGE(concat(Family<demo_on_cpu>::family::name, ": losses from ", right.front(), " to ", right.back(), "; largest difference ", error));
  CHECK(right.back() < right.front());
  CHECK(error < 1e-4);
  CHECK(gpu.violations() == "");
  CHECK(gpu.leaks() == "");
}

}  // namespace

TEST_CASE(
    "the demo's models, BERT, GPT-2 and Mixtral with one layer, train fifty steps on musa to the cpu's losses within 1e-4, in the memory planned") {
  const std::size_t vocab_size = vocabulary;
  check_demo<bert_masked_lm>(
      encoder_config{.vocab_size = vocab_size, .hidden_size = 16, .num_layers = 1, .num_heads = 2, .max_position_embeddings = places},
      &masked_tokens);
  check_demo<gpt2>(
      decoder_config{.vocab_size = vocab_size, .hidden_size = 16, .num_layers = 1, .num_heads = 2, .max_position_embeddings = places},
      &next_tokens);
  check_demo<mixtral>(decoder_config{.vocab_size = vocab_size,
                                     .hidden_size = 16,
                                     .num_layers = 1,
                                     .num_heads = 2,
                                     .num_kv_heads = 1,
                                     .intermediate_size = 24,
                                     .max_position_embeddings = places,
                                     .num_experts = 4,
                                     .num_experts_per_token = 2,
                                     .balances_experts = true},
                      &next_tokens);
}
