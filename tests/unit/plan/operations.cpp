// A plan's operations against formulas derived by hand; everything is a dry run.
#include <doctest/doctest.h>

#include <string_view>

#include <xtrain/adapt/lora.hpp>
#include "planned_run.hpp"

using namespace xtrain;

namespace {

struct recipe : defaults {};
struct full_recipe : defaults {
  using recompute = recompute_full;
};
struct selective_recipe : defaults {
  using recompute = recompute_selective<attention_outputs>;
};
struct adapted_recipe : defaults {
  using adapter = lora;
};

constexpr double layers = 3, width = 32, inner = 48, vocabulary = 65, b = 3, t = 12, micro_batches = 2;
constexpr double tokens = micro_batches * b * t;
/// A triangle of t · (t + 1) / 2 pairs of tokens per sequence; num_heads · head_dim is the hidden size.
constexpr double pairs = micro_batches * b * t * (t + 1) / 2;

template <class Model>
dry_run planned(decoder_config sizes = planned_run::sizes(), const typename Model::options& options = {}) {
  sizes.attention_dropout = sizes.residual_dropout = 0;
  return plan<trainer<Model>>(sizes, options, planned_run::settings(2), cpu::properties{1});
}

decoder_config gpt2_sizes() {
  decoder_config sizes = planned_run::sizes();
  sizes.num_kv_heads = 0;
  return sizes;
}

/// Operations of all runs of a kernel.
double operations(const dry_run& plan, std::string_view kernel) {
  for (const kernel_count& count : plan.record.kernels)
    if (count.name == kernel) return count.operations;
  return 0;
}
std::size_t runs(const dry_run& plan, std::string_view kernel) {
  for (const kernel_count& count : plan.record.kernels)
    if (count.name == kernel) return count.runs;
  return 0;
}

/// llama's linear weights without the head: queries, keys and values (two of four heads), output; gate, up, down.
constexpr double llama_weights = layers * (width * (width + width) + width * width + 3 * width * inner);
/// gpt2's: queries, keys and values, output; up, down.
constexpr double gpt2_weights = layers * (4 * width * width + 2 * width * inner);
constexpr double head = width * vocabulary;

}  // namespace

TEST_CASE("a step multiplies 6 numbers per weight and token, head included: 2 forth, 4 back") {
  const dry_run llama_plan = planned<llama<recipe>>(), gpt2_plan = planned<gpt2<recipe>>(gpt2_sizes());
  CHECK(operations(llama_plan, "matmul") == 6 * llama_weights * tokens);
  CHECK(operations(gpt2_plan, "matmul") == 6 * gpt2_weights * tokens);
  for (const dry_run& plan : {llama_plan, gpt2_plan}) CHECK(operations(plan, "linear_cross_entropy") == 6 * head * tokens);
  // one run each for forward, weight gradient and input gradient; llama and gpt2 have 4 matrices per layer
  CHECK(runs(llama_plan, "matmul") == 2 * 3 * 3 * 4);
  CHECK(runs(gpt2_plan, "matmul") == 2 * 3 * 3 * 4);
}

TEST_CASE("attention multiplies over pairs of places: two products forth, five back") {
  for (const dry_run& plan : {planned<llama<recipe>>(), planned<gpt2<recipe>>(gpt2_sizes())}) {
    CHECK(operations(plan, "attention") == 2 * 2 * layers * width * pairs);
    CHECK(operations(plan, "attention_backward") == 5 * 2 * layers * width * pairs);
  }
}

TEST_CASE("matrices and attention are all that counts: the rest is proportional to tokens and weights alone") {
  const dry_run plan = planned<llama<recipe>>();
  const double known = 6 * (llama_weights + head) * tokens + 7 * 2 * layers * width * pairs;
  const double rest = plan.record.operations() - known;
  // adamw: 14 per weight, and 2 for the norm's square; per token, channel and layer less than 100 for norms, activations, rotary embeddings and residuals
  CHECK(rest > 14.0 * static_cast<double>(plan.parameters));
  CHECK(rest < 20.0 * static_cast<double>(plan.parameters) + 100 * layers * (width + inner) * tokens);
  CHECK(operations(plan, "adamw") == 14.0 * static_cast<double>(plan.parameters));
}

TEST_CASE("recomputing everything costs one more forward of the blocks, and only that") {
  const dry_run kept = planned<llama<recipe>>(), full = planned<llama<full_recipe>>();
  CHECK(operations(full, "matmul") == 8 * llama_weights * tokens);
  for (const std::string_view kernel : {"attention", "swiglu"}) {
    CAPTURE(kernel);
    CHECK(operations(full, kernel) == 2 * operations(kept, kernel));
    CHECK(runs(full, kernel) == 2 * runs(kept, kernel));
  }
  // two norms recomputed in each of three layers, not the final norm: 2 micro-batches of 7 norms and 6 more
  CHECK(runs(kept, "rms_norm") == 2 * 7);
  CHECK(runs(full, "rms_norm") == 2 * 13);
  for (const std::string_view kernel : {"linear_cross_entropy", "embedding", "attention_backward", "swiglu_backward", "adamw"}) {
    CAPTURE(kernel);
    CHECK(operations(kept, kernel) + static_cast<double>(runs(kept, kernel)) > 0);
    CHECK(operations(full, kernel) == operations(kept, kernel));
    CHECK(runs(full, kernel) == runs(kept, kernel));
  }
}

TEST_CASE("recomputing attention alone costs attention's forward, and no matrix product") {
  const dry_run kept = planned<llama<recipe>>(), selective = planned<llama<selective_recipe>>();
  CHECK(operations(selective, "attention") == 2 * operations(kept, "attention"));
  CHECK(selective.record.operations() == kept.record.operations() + operations(kept, "attention"));
}

TEST_CASE("an adapter saves the gradients of frozen weights and adds its own products") {
  constexpr double rank = 4;
  const dry_run plan = planned<llama<adapted_recipe>>(planned_run::sizes(), {.adapter = {.rank = 4}});
  // in addition to q_proj [32, 32] and v_proj [16, 32]: products with A in the forward, the recomputation, weight gradient and input gradient; with B in the
  // forward, weight gradient and input gradient
  const double a = 2 * rank * width, both_b = rank * (32 + 16);
  CHECK(operations(plan, "matmul") == (4 * llama_weights + layers * (8 * a + 6 * both_b)) * tokens);
  CHECK(operations(plan, "linear_cross_entropy") == 4 * head * tokens);
  CHECK(plan.trained == static_cast<std::size_t>(layers * (a + both_b)));
  CHECK(operations(plan, "adamw") == 14 * layers * (a + both_b));
}
