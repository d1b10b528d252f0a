// Training on the device `npu`, on an AscendCL that stands in for a card's.
#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <xtrain/device/npu/npu.hpp>
#include <xtrain/io.hpp>
#include <xtrain/testing/fake_ascend.hpp>
#include <xtrain/xtrain.hpp>

using namespace xtrain;
using testing::fake_ascend;

namespace {

struct on_cpu : defaults {
  using precision = bf16_mixed;
};
struct on_npu : on_cpu {
  using device = npu;
};

const dataset& data() {
  static const dataset all = [] {
    dataset d("numbers", sequence_layout::stream);
    std::vector<token> tokens;
    for (token i = 0; i < 400; ++i) tokens.push_back(i * i % 61);
    d.add(tokens);
    d.finish();
    return d;
  }();
  return all;
}

const decoder_config llama_sizes{.vocab_size = 61,
                                 .hidden_size = 32,
                                 .num_layers = 2,
                                 .num_heads = 4,
                                 .num_kv_heads = 2,
                                 .intermediate_size = 48,
                                 .max_position_embeddings = 24};
const decoder_config gpt2_sizes{.vocab_size = 61, .hidden_size = 32, .num_layers = 2, .num_heads = 4, .max_position_embeddings = 24};

/// The losses of some steps and of an evaluation, then the weights.
template <class Model>
std::vector<double> run(Model& model) {
  trainer trainer(model, {.max_steps = 3, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .learning_rate = 3e-3});
  history seen;
  trainer.attach(seen);
  trainer.fit(data());
  std::vector<double> all(seen.losses().begin(), seen.losses().end());
  all.push_back(trainer.evaluate(data()).loss);
  std::vector<bf16> weights(model.parameters().trained_values().size());
  copy_to_host(model.stream(), std::span<bf16>(weights), model.parameters().trained_values());
  model.stream().synchronize();
  for (const bf16 w : weights) all.push_back(static_cast<double>(static_cast<float>(w)));
  return all;
}

template <template <class> class Family>
void check(const decoder_config& sizes) {
  Family<on_cpu> expected(sizes);
  const auto right = run(expected);
  for (const bool has_callbacks : {true, false}) {
    const fake_ascend card({.has_callbacks = has_callbacks});
    {
      const npu_context on = card.open();
      Family<on_npu> model(sizes, on);
      CHECK(run(model) == right);
      CHECK(on.host_runs_text().find("  linear_cross_entropy: ") != std::string::npos);
    }
    CHECK(card.violations() == "");
    CHECK(card.leaks() == "");
  }
}

}  // namespace

TEST_CASE("a LLaMA and a GPT-2 in bf16 train on npu with every kernel left to the host, to the cpu's bits") {
  check<llama>(llama_sizes);
  check<gpt2>(gpt2_sizes);
}
