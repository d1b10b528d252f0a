// Runs of training objectives against PyTorch, trl and torchtune (tests/golden/make_objective_runs.py): the first step's gradients, losses of fifty AdamW
// steps, and final weights. Also steps with other programs' arithmetic (make_training_steps.py).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "objective_runs.hpp"

namespace {

using namespace objective_runs;

template <class Objective>
struct recipe_for : defaults {
  using objective = Objective;
};
template <class Objective>
using model_for = llama<recipe_for<Objective>>;

void check_next_token(const std::string& name, const next_token::config& objective) { check_run<model_for<next_token>>(expected_run(name), objective); }

/// The reference's log-probabilities from a second model, and from the batches.
void check_dpo(const std::string& name, const dpo::config& objective) {
  expected_run expected(name);
  auto frozen = llama<defaults>::from_pretrained(golden::folder(base));
  reference_model source(frozen, {.micro_batch_size = b, .seq_length = t});
  check_run<model_for<dpo>>(expected, objective, [&](auto& trainer) { trainer.use_reference(source); });
  const auto reference = expected["reference"];
  for (std::size_t i = 0; i < expected.batches.size(); ++i) expected.batches[i].reference_log_probs = part(reference, i, b);
  check_run<model_for<dpo>>(expected, objective);
}

void check_distillation(const std::string& name, const distillation::config& objective) {
  auto knows = llama<defaults>::from_pretrained(golden::folder("objectives/teacher"));
  teacher_model source(knows, {.micro_batch_size = b, .seq_length = t});
  check_run<model_for<distillation>>(expected_run(name), objective, [&](auto& trainer) { trainer.use_teacher(source); });
}

/// Twenty steps on the runs' micro-batches, in turn. settings: those not common to all runs
void check_training_steps(const std::string& name, training_config<adamw> settings) {
  CAPTURE(name);
  const safetensors_file file(golden::folder("training_steps/" + name) + ".safetensors");
  const auto losses = golden::numbers(file, "losses"), rates = golden::numbers(file, "rates"), norms = golden::numbers(file, "norms");
  const expected_run data("next_token_z");
  settings.max_steps = losses.size();
  settings.micro_batch_size = b;
  settings.seq_length = t;
  settings.learning_rate = 2e-3;
  settings.warmup_steps = 5;
  settings.lr_from_zero = true;
  settings.optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  settings.weight_decay_of = decayed_parameters::all;
  auto model = model_for<next_token>::from_pretrained(golden::folder(base));
  trainer trainer(model, settings);
  const learning_rate_schedule schedule = detail::lr_schedule_for(trainer.settings(), settings.max_steps);
  std::size_t next = 0;
  double error = 0;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    CHECK(schedule.at(step) == doctest::Approx(rates[step]).epsilon(1e-6));  // the file has fp32
    std::vector<host_batch> batches;
    for (std::size_t m = 0; m < settings.gradient_accumulation_steps; ++m) batches.push_back(data.batches[next++ % data.batches.size()]);
    const step_done done = trainer.step(std::span<const host_batch>(batches), schedule.at(step));
    error = std::max(error, std::abs(done.loss - losses[step]));
    CHECK(done.gradient_norm == doctest::Approx(norms[step]).epsilon(1e-3));
  }
  MESSAGE(name, ": largest difference of a step's loss from PyTorch's: ", error);
  CHECK(error < 1e-4);
  std::size_t compared = 0;
  for (const auto& entry : model.parameters().entries()) {
    if (file.find("final." + entry.spec.name) == nullptr) continue;
    require_close(doubles(model.parameters().value(entry).host()), golden::numbers(file, "final." + entry.spec.name), {.absolute = 2e-5, .relative = 1e-4},
                  name + ": " + entry.spec.name + " after the last step");
    ++compared;
  }
  CHECK(compared == 2);
}

}  // namespace

TEST_CASE("means of micro-batches, weight decay of all parameters, schedules from zero and gradients that are kept train as in PyTorch") {
  check_training_steps("micro_batch_means", {.gradient_accumulation_steps = 2, .average_loss = loss_average::micro_batch});
  check_training_steps("kept_gradients", {.lr_schedule = lr_schedule_kind::linear, .keep_gradients = true});
}

TEST_CASE("label smoothing, z-loss and token weights train as in PyTorch") {
  check_next_token("next_token_smoothed", {.label_smoothing = 0.1});
  check_next_token("next_token_z", {.z_loss = 1e-2});
  check_next_token("next_token_weights", {});
}

TEST_CASE("direct preference optimization trains as in trl, and conservative DPO as in torchtune") {
  check_dpo("dpo", {.beta = 0.1});
  check_dpo("dpo_ipo", {.kind = preference_kind::ipo, .beta = 0.1});
  check_dpo("dpo_smoothed", {.beta = 0.1, .label_smoothing = 0.1});
  check_run<model_for<dpo>>(expected_run("dpo_reference_free"), {.beta = 0.1, .reference_free = true});
}

TEST_CASE("distillation trains as in PyTorch") {
  check_distillation("distil_forward", {.ratio = 1.0});
  check_distillation("distil_reverse", {.kind = divergence_kind::reverse, .ratio = 1.0});
  check_distillation("distil_mixed", {.ratio = 0.5, .temperature = 2.0});
  check_run<model_for<distillation>>(expected_run("distil_topk"), {.ratio = 1.0, .top_k = top});
}
