// Compares plans with runs.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/xtrain.hpp>

namespace planned_run {

/// Parameter sizes are multiples of 32: no padding, so closed formulas are exact.
inline xtrain::decoder_config sizes() {
  return {.vocab_size = 65,
          .hidden_size = 32,
          .num_layers = 3,
          .num_heads = 4,
          .num_kv_heads = 2,
          .intermediate_size = 48,
          .max_position_embeddings = 12,
          .attention_dropout = 0.1,
          .residual_dropout = 0.2};
}

/// Sequences of the model's maximum length and shorter ones.
inline const xtrain::dataset& data() {
  static const xtrain::dataset all = [] {
    xtrain::dataset d("numbers", xtrain::sequence_layout::separate);
    for (std::size_t s = 0; s < 10; ++s) {
      std::vector<xtrain::token> tokens;
      for (std::size_t i = 0; i < 4 + s; ++i) tokens.push_back(static_cast<xtrain::token>((s * 31 + i * i * 5) % 65));
      d.add(tokens);
    }
    d.finish();
    return d;
  }();
  return all;
}

inline xtrain::training_config<xtrain::adamw> settings(std::size_t accumulate = 1) {
  return {.max_steps = 3, .micro_batch_size = 3, .gradient_accumulation_steps = accumulate, .eval_steps = 1};
}

inline xtrain::host_batch full_rows(std::size_t b, std::size_t t) {
  xtrain::host_batch rows{.b = b, .t = t};
  for (std::size_t i = 0; i < b * t; ++i) {
    rows.tokens.push_back(static_cast<xtrain::token>(i % 65));
    rows.targets.push_back(static_cast<xtrain::token>((i + 1) % 65));
    rows.positions.push_back(static_cast<xtrain::token>(i % t));
    rows.starts.push_back(0);
  }
  rows.target_count = rows.token_count = b * t;
  return rows;
}

/// Bytes of device memory per value.
struct bytes_per_number {
  std::size_t weight = 0, gradient = 0, optimizer = 0;
};

/// Plans a run, runs it with an evaluation after every step, and compares peak memory by role and in total, to the byte.
template <class Model>
xtrain::dry_run check_memory(const bytes_per_number& each, const typename Model::options& options = {}, std::size_t accumulate = 1,
                               const typename Model::context_type& on = {}) {
  using xtrain::memory_role;
  using trainer_type = xtrain::trainer<Model>;
  const typename trainer_type::config how = settings(accumulate);
  const xtrain::dry_run plan = xtrain::plan<trainer_type>(sizes(), options, how, on.properties());
  CHECK(on.memory().allocations == 0);

  Model model(sizes(), on, options);
  trainer_type trainer(model, how);
  trainer.fit(data(), &data());
  CHECK(trainer.evaluate(data()).targets == 75);  // 10 samples of 4 to 13 tokens, less one each
  const xtrain::memory_count used = on.memory();
  CHECK(plan.total() == used.total_peak);
  for (std::size_t r = 0; r < xtrain::memory_roles; ++r) {
    CAPTURE(xtrain::name_of(static_cast<memory_role>(r)));
    CHECK(plan.bytes[r] == used.peak[r]);
  }

  // known without running; the rotary table is fp32 and counted as weights
  const xtrain::decoder_config& c = model.config();
  CHECK(plan.parameters == model.parameters().count());
  CHECK(plan.trained == model.parameters().trained_count());
  CHECK(plan.of(memory_role::weights) == plan.parameters * each.weight + c.max_position_embeddings * c.head_dim * sizeof(float));
  CHECK(plan.of(memory_role::gradients) == plan.trained * each.gradient);
  CHECK(plan.of(memory_role::optimizer) == plan.trained * each.optimizer);
  CHECK(plan.passes.layer_inputs == (c.num_layers + 1) * how.micro_batch_size * c.max_position_embeddings * c.hidden_size * each.weight);
  CHECK(plan.of(memory_role::stash) == plan.passes.layer_inputs + plan.passes.saved);

  // the arenas fit a pass over full sequences exactly: smaller ones throw
  const xtrain::host_batch rows = full_rows(how.micro_batch_size, c.max_position_embeddings);
  xtrain::pass_memory<Model> passes(model, plan.passes);
  const xtrain::batch_memory<typename Model::device> batch(on, rows.token_count);
  const xtrain::tensor<typename Model::accumulate, 1, typename Model::device> losses(on, {rows.token_count}, memory_role::batch);
  auto p = passes.new_pass(xtrain::pass_mode::training);
  p.batch = batch.upload(model.stream(), rows);
  model.forward(p, passes.layer_inputs(), {losses.span(), {rows.token_count}});
  model.backward(p, passes.layer_inputs(), true);
  model.stream().synchronize();
  CHECK(passes.high_water().layer_inputs == plan.passes.layer_inputs);
  CHECK(passes.high_water().saved == plan.passes.saved);
  CHECK(passes.high_water().workspace == plan.passes.workspace);
  return plan;
}

}  // namespace planned_run
