// The plan equals the run with recomputation and with an adapter, and shows the saving.
#include <doctest/doctest.h>

#include <xtrain/adapt/lora.hpp>
#include "planned_run.hpp"

using namespace xtrain;

namespace {

struct full_recipe : defaults {
  using recompute = recompute_full;
};
struct selective_recipe : defaults {
  using recompute = recompute_selective<norm_outputs, activation_outputs, attention_outputs>;
};
struct adapted_recipe : defaults {
  using precision = bf16_mixed;
  using adapter = lora;
};

constexpr planned_run::bytes_per_number fp32_bytes{.weight = 4, .gradient = 4, .optimizer = 8};

}  // namespace

TEST_CASE("the plan of a run that recomputes blocks or pieces is what the run takes, and less is kept") {
  const dry_run kept = plan<trainer<llama<defaults>>>(planned_run::sizes(), {}, planned_run::settings(), cpu::context().properties());
  const dry_run full = planned_run::check_memory<llama<full_recipe>>(fp32_bytes);
  const dry_run selective = planned_run::check_memory<llama<selective_recipe>>(fp32_bytes);
  CHECK(full.passes.layer_inputs == kept.passes.layer_inputs);
  // Saved activations of a block per token, in fp32 channels: both branches' inputs and the stream between them (3 · 32), queries, keys, values (64), attention
  // output (32) and statistics (4 heads), gate and up (96), their product (48), two norms' statistics (2). The head saves its gradient (32), the final norm its
  // statistic (1).
  constexpr std::size_t block = 3 * 32 + 64 + 32 + 4 + 96 + 48 + 2, end = 32 + 1, num_tokens = 3 * 12;
  // stash entries begin on cache lines: statistics of 36 tokens take 144 bytes and occupy 192
  constexpr std::size_t gap = 192 - 144;
  CHECK(kept.passes.saved == 4 * num_tokens * (3 * block + end) + (3 * 2 + 1) * gap);
  // one block at a time, after the final norm's statistic and the head's gradient are popped
  CHECK(full.passes.saved == 4 * num_tokens * block + 2 * gap);
  CHECK(selective.passes.saved == 4 * num_tokens * (3 * (32 + 64 + 96 + 2) + end) + (3 * 2 + 1) * gap);
}

TEST_CASE("the plan of a LoRA run on bf16 weights is what the run takes: gradients and optimizer state of the adapter alone") {
  const dry_run plan = planned_run::check_memory<llama<adapted_recipe>>({.weight = 2, .gradient = 4, .optimizer = 12},
                                                                          {.adapter = {.rank = 4, .dropout = 0.1}}, 2);
  CHECK(plan.trained == 3 * 4 * ((32 + 32) + (32 + 16)));
  CHECK(plan.parameters > 10 * plan.trained);
}
