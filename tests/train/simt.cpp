// Training on the GPU's kernels, run on the host.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include <xtrain/device/simt/simt.hpp>
#include <xtrain/io.hpp>

using namespace xtrain;

namespace {

struct on_cpu : defaults {
  using precision = bf16_mixed;
};
struct on_simt : defaults {
  using device = with_host_fallback<simt_device>;
  using precision = bf16_mixed;
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

/// The losses of some steps.
template <class Model>
std::vector<double> losses(Model& model) {
  trainer trainer(model, {.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .learning_rate = 3e-3});
  history seen;
  trainer.attach(seen);
  trainer.fit(data());
  std::vector<double> all(seen.losses().begin(), seen.losses().end());
  all.push_back(trainer.evaluate(data()).loss);
  return all;
}

template <template <class> class Family>
void check(const decoder_config& sizes) {
  Family<on_cpu> expected(sizes);
  const typename on_simt::device::context device(simt_context({.seed = 3}));
  Family<on_simt> model(sizes, device);
  const auto right = losses(expected), got = losses(model);
  REQUIRE(got.size() == right.size());
  // a rounding to bf16 that falls the other way, after sums in another order, changes an activation by 2⁻⁸ of it; the loss is a mean over 96
  // tokens, in which such changes do not all point one way: half of that is allowed
  for (std::size_t i = 0; i < right.size(); ++i) CHECK(std::abs(got[i] - right[i]) < right[i] * 0x1p-9);
  INFO(device.report());
  CHECK(device.fallbacks().empty());
}

}  // namespace

TEST_CASE("a LLaMA and a GPT-2 in bf16 train on the GPU's kernels to the cpu's losses, without a kernel of the host") {
  check<llama>({.vocab_size = 61,
                .hidden_size = 32,
                .num_layers = 2,
                .num_heads = 4,
                .num_kv_heads = 2,
                .intermediate_size = 48,
                .max_position_embeddings = 24});
  check<gpt2>({.vocab_size = 61, .hidden_size = 32, .num_layers = 2, .num_heads = 4, .max_position_embeddings = 24});
}
