// Draws a run that a strategy supports on the given number of ranks: a function of the seed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <xtrain/core/random.hpp>
#include "bound.hpp"
#include "run.hpp"

namespace equality {

class dice {
 public:
  dice(std::uint64_t seed, std::size_t number) : at_{.seed = seed, .step = static_cast<std::uint32_t>(number), .site = 0, .first = 0} {}
  /// A number from 0 to n - 1.
  std::size_t below(std::size_t n) { return random_word(at_, thrown_++) % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  template <class T>
  const T& of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

 private:
  random_site at_;
  std::uint64_t thrown_ = 0;
};

/// Assigns the number of ranks' prime factors to axes: each axis gets one before any gets two. Factors of three go to data or stages, which accept any divisor.
[[nodiscard]] inline drawn_mesh draw_mesh(dice& throws, const sharded_axes& axes, std::size_t ranks) {
  drawn_mesh mesh;
  mesh.ranks = ranks;
  std::vector<std::size_t*> all;
  if (axes.tensor) all.push_back(&mesh.tensor);
  if (axes.context) all.push_back(&mesh.context);
  if (axes.expert) all.push_back(&mesh.expert);
  if (axes.stages) all.push_back(&mesh.depth);
  all.push_back(&mesh.data);
  if (axes.stages && throws.one_in(3)) all = {&mesh.depth};  // stages only: most of these must be equal bit for bit
  std::size_t left = ranks;
  for (; left % 3 == 0; left /= 3) (axes.stages && (all.size() == 1 || throws.one_in(2)) ? mesh.depth : mesh.data) *= 3;
  const std::size_t first = throws.below(all.size());
  for (std::size_t i = 0; left > 1; left /= 2, ++i) *all[i < all.size() ? (first + i) % all.size() : throws.below(all.size())] *= 2;
  if (axes.expert) mesh.data *= mesh.expert;  // expert-parallel ranks have different sequences of the batch
  if (axes.states && !axes.stages) {
    const std::size_t alike = ranks / mesh.tensor / mesh.expert;
    std::vector<std::size_t> shards{0};
    for (std::size_t n = 1; n <= alike; ++n)
      if (alike % n == 0) shards.push_back(n);
    mesh.shards = throws.of(shards);
  }
  return mesh;
}

[[nodiscard]] inline drawn_run draw_run(std::uint64_t seed, std::size_t number, const combination& of, std::size_t ranks) {
  dice throws(seed, number);
  drawn_run run;
  run.what = of.kinds[number % of.kinds.size()];
  drawn_mesh& mesh = run.mesh = draw_mesh(throws, of.axes, ranks);
  if (of.axes.stages) {
    mesh.schedule = throws.below(std::size(schedules) - !of.axes.backwards);
    if (schedules[mesh.schedule].has_chunks) mesh.chunks = 1 + throws.below(mesh.depth <= 4 ? 2 : 1);
  }
  const std::size_t stages = mesh.depth * mesh.chunks;
  const std::vector<std::size_t> kv_heads = {8, 4, 2};
  run.shape = {.vocab_size = 97,
               .hidden_size = 32,
               .num_layers = std::max<std::size_t>(stages, 2) + throws.below(2),
               .num_heads = 8,
               .num_kv_heads = run.what == kind::gpt2_recomputing ? 8 : throws.of(kv_heads),
               .intermediate_size = 48,
               .max_position_embeddings = 24,
               .tie_word_embeddings = run.what == kind::gpt2_recomputing,
               .initializer_range = 0.06};
  if (!throws.one_in(4)) {
    run.shape.embedding_dropout = 0.1;
    run.shape.attention_dropout = 0.1;
    run.shape.residual_dropout = 0.2;
  }
  if (has_experts(run.what)) {
    run.shape.num_experts = 8;
    run.shape.num_experts_per_token = 2;
    run.shape.balances_experts = !throws.one_in(3);
    run.shape.router_aux_loss_coef = 0.05;
  }
  if (is_adapted(run.what)) {
    run.adapter.rank = 4;
    const bool drops = !((of.axes.tensor || of.axes.context) && has_experts(run.what));  // unsupported combinations are refused
    if (drops && throws.one_in(2)) run.adapter.dropout = 0.3;
    if (has_experts(run.what)) run.adapter.targets = {"q_proj", "w1", "w2", "w3"};
  }
  run.layout = throws.one_in(2) ? sequence_layout::packed : sequence_layout::separate;
  if (mesh.context == 8) {  // a ring of eight has sixteen chunks: it would pad separate samples more than one device does
    run.layout = sequence_layout::packed;
    run.shape.max_position_embeddings = 32;
  }
  run.settings = {.max_steps = 10,
                  .micro_batch_size = 1 + throws.below(2),
                  .gradient_accumulation_steps = 1 + throws.below(3),
                  .learning_rate = 1e-3,
                  .lr_schedule = lr_schedule_kind::constant};
  run.settings.optimizer.epsilon = epsilon;
  run.settings.max_grad_norm = throws.one_in(2) ? 0.5 : 0.0;
  run.settings.seed = 1 + throws.below(1000);
  if (of.axes.stages) {
    run.settings.gradient_accumulation_steps *= schedules[mesh.schedule].groups ? mesh.depth : 2;
    // The first micro-batch has one sequence less, the last one more. Not with experts: other micro-batches change the load-balancing loss, and dropout of LoRA
    // inside an expert, which indexes its tokens within the micro-batch; also on one device.
    if (run.settings.micro_batch_size == 2 && !has_experts(run.what) && throws.one_in(3)) {
      mesh.rows.assign(run.settings.gradient_accumulation_steps, 2);
      if (run.settings.gradient_accumulation_steps > 1) --mesh.rows.front(), ++mesh.rows.back();
    }
  }
  return run;
}

/// No sum is split or ordered differently from one device: stages add micro-batch by micro-batch. Exceptions: a tied table's gradient sums two stages, the
/// load-balancing loss covers all stages, clipping needs the sum of squares of all stages.
[[nodiscard]] inline bool is_exact(const drawn_run& run) {
  const drawn_mesh& mesh = run.mesh;
  const bool divided = mesh.data * mesh.tensor * mesh.context > 1;
  return !divided && run.what != kind::gpt2_recomputing && !run.shape.balances_experts && run.settings.max_grad_norm == 0 && mesh.rows.empty();
}

}  // namespace equality
