// Runs of tests/golden/make_objective_runs.py, and this library's.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "parity.hpp"

namespace objective_runs {

using namespace parity;

inline constexpr const char* base = "llama_grouped_untied";
inline constexpr std::size_t b = 4, t = 12, top = 8;

[[nodiscard]] inline std::vector<double> part(const std::vector<double>& all, std::size_t index, std::size_t size) {
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(index * size);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}
template <class T>
[[nodiscard]] std::vector<T> converted(const std::vector<double>& values) {
  std::vector<T> all;
  for (const double value : values) all.push_back(static_cast<T>(value));
  return all;
}

class expected_run {
 public:
  explicit expected_run(const std::string& name) : name_(name), file_(golden::folder("objectives/runs/" + name) + ".safetensors") {
    const auto inputs = (*this)["inputs"], targets = (*this)["targets"], lengths = (*this)["lengths"];
    for (std::size_t i = 0; i < inputs.size() / (b * t); ++i) {
      host_batch batch = golden::batch(inputs, targets, i * b * t, b, t);
      batch.token_count = 0;
      for (std::size_t s = 0; s < b; ++s) {
        const auto length = static_cast<std::size_t>(lengths[i * b + s]);
        batch.token_count += length;
        for (std::size_t j = length; j < t; ++j) {  // padding is a separate sample
          batch.starts[s * t + j] = static_cast<token>(length);
          batch.positions[s * t + j] = static_cast<token>(j - length);
        }
      }
      if (has("labels")) batch.labels = converted<token>(part((*this)["labels"], i, b));
      if (has("token_weights")) batch.token_weights = converted<float>(part((*this)["token_weights"], i, b * t));
      if (has("topk_ids")) {
        batch.teacher_tokens = converted<token>(part((*this)["topk_ids"], i, b * t * top));
        batch.teacher_log_probs = converted<float>(part((*this)["topk_log_probs"], i, b * t * top));
      }
      batches.push_back(batch);
    }
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool has(const std::string& tensor) const { return file_.find(tensor) != nullptr; }
  [[nodiscard]] std::vector<double> operator[](const std::string& tensor) const { return golden::numbers(file_, tensor); }

  std::vector<host_batch> batches{};  // used in turn

 private:
  std::string name_;
  safetensors_file file_;
};

/// Without a reference model or teacher, or with their log-probabilities in the batches.
struct from_the_batch {
  template <class Trainer>
  void operator()(Trainer&) const {}
};

/// PyTorch's fp32 differs from its fp64 by up to 2e-5 in these losses and 4e-6 in the last weights (make_objective_runs.py prints it): our fp32, in another
/// order, may differ from either by a few times that.
///   prepare  gets the trainer before its first step
///   bound    of a step loss's difference
template <class Model, class Prepare = from_the_batch>
void check_run(const expected_run& expected, const typename Model::recipe::objective::config& objective, Prepare&& prepare = {}, double bound = 1e-4) {
  CAPTURE(expected.name());
  {
    auto model = Model::from_pretrained(golden::folder(base));
    trainer trainer(model, {.max_steps = 1, .micro_batch_size = b, .seq_length = t, .objective = objective, .max_grad_norm = 0.0});
    prepare(trainer);
    (void)trainer.step(std::span<const host_batch>(expected.batches.data(), 1), 0.0);
    std::size_t compared = 0;
    for (const auto& entry : model.parameters().entries()) {
      if (!expected.has("grad." + entry.spec.name)) continue;
      require_close(doubles(model.parameters().gradient(entry).host()), expected["grad." + entry.spec.name], fp32_gradients,
                    expected.name() + ": gradient of " + entry.spec.name);
      ++compared;
    }
    CHECK(compared == 4);
  }
  auto model = Model::from_pretrained(golden::folder(base));
  trainer trainer(model, {.max_steps = 50,
                          .micro_batch_size = b,
                          .seq_length = t,
                          .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
                          .objective = objective,
                          .max_grad_norm = 1.0});
  prepare(trainer);
  const auto reference = expected["losses"];
  double error = 0;
  for (std::size_t step = 0; step < 50; ++step) {
    const host_batch& batch = expected.batches[step % expected.batches.size()];
    const double loss = trainer.step(std::span<const host_batch>(&batch, 1), 2e-3).loss;
    CHECK(std::isfinite(loss));
    error = std::max(error, std::abs(loss - reference[step]));
  }
  MESSAGE(expected.name(), ": largest difference of a step's loss from PyTorch's: ", error);
  CHECK(error < bound);
  std::size_t compared = 0;
  for (const auto& entry : model.parameters().entries()) {
    if (!expected.has("final." + entry.spec.name)) continue;
    require_close(doubles(model.parameters().value(entry).host()), expected["final." + entry.spec.name], {.absolute = 2e-5, .relative = 1e-4},
                  expected.name() + ": " + entry.spec.name + " after the last step");
    ++compared;
  }
  CHECK(compared == 2);
}

}  // namespace objective_runs
