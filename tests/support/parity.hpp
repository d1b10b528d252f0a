// Models against PyTorch and transformers: logits, loss, every gradient, fifty AdamW steps, adapters.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include <xtrain/io.hpp>
#include <xtrain/testing/compare.hpp>
#include "golden.hpp"
#include "scratch.hpp"

namespace parity {

using namespace xtrain;

struct fp32_recipe : defaults {};
struct bf16_recipe : defaults {
  using precision = bf16_mixed;
};
struct lora_recipe : defaults {
  using adapter = lora;
};
struct prefix_recipe : defaults {
  using adapter = prefix_tuning;
};

template <class T>
std::vector<double> doubles(std::span<T> values) {
  return {values.begin(), values.end()};
}

/// Both sides sum the same products in different order: a sum of k products of magnitude m is off by eps · sqrt(k) · m, a few tens of sums follow each other,
/// values are below 10, and sums have at most 100 terms.
constexpr testing::tolerance fp32_logits{.absolute = 40 * 10.0 * 6e-8 * 10.0, .relative = 1e-5};
/// Such sums, also over all 66 tokens.
constexpr testing::tolerance fp32_gradients{.absolute = 2e-5, .relative = 1e-4};

inline void require_close(const std::vector<double>& got, const std::vector<double>& expected, testing::tolerance allowed,
                          const std::string& what) {
  const auto found = testing::compare<double, double>(got, expected, allowed);
  CHECK_MESSAGE(bool(found), what, ": ", found.problem);
}

template <class Model>
std::vector<double> logits_of(Model& model, const host_batch& rows) {
  array<token, 2> tokens(shape_of_rank<2>{rows.b, rows.t});
  std::copy(rows.tokens.begin(), rows.tokens.end(), tokens.data());
  const auto logits_btv = logits(model, tokens);
  return {logits_btv.begin(), logits_btv.end()};
}

template <template <class> class Family>
void check_family(const std::string& name, std::initializer_list<std::size_t> lengths) {
  const safetensors_file expected(golden::folder(name) + "/expected.safetensors");
  for (const std::size_t t : lengths) {
    const std::string at = concat("t", t, ".");
    auto model = Family<fp32_recipe>::from_pretrained(golden::folder(name));
    const host_batch rows = golden::batch(golden::numbers(expected, at + "inputs"), golden::numbers(expected, at + "targets"), 0, 2, t);
    require_close(logits_of(model, rows), golden::numbers(expected, at + "logits"), fp32_logits, at + "logits");

    trainer trainer(model, {.max_steps = 1, .micro_batch_size = 2, .seq_length = t, .max_grad_norm = 0.0});
    const step_done done = trainer.step(std::span<const host_batch>(&rows, 1), 0.0);
    CHECK(done.loss == doctest::Approx(golden::numbers(expected, at + "loss")[0]).epsilon(1e-5));
    if (expected.find(at + "grad." + model.parameters().entries()[0].spec.name) == nullptr) continue;
    for (const auto& entry : model.parameters().entries()) {
      std::vector<double> gradient = doubles(model.parameters().gradient(entry).host());
      std::vector<double> reference = golden::numbers(expected, at + "grad." + entry.spec.name);
      if (entry.spec.transposed_in_files) {  // PyTorch's gradient has the layout of its weight
        std::vector<double> turned(reference.size());
        const std::size_t out = entry.spec.shape[0], in = entry.spec.shape[1];
        for (std::size_t i = 0; i < in; ++i)
          for (std::size_t o = 0; o < out; ++o) turned[o * in + i] = reference[i * out + o];
        reference = turned;
      }
      if (entry.spec.rows_in_files) reference = xtrain::detail::reordered<double>(reference, *entry.spec.rows_in_files, false);
      require_close(gradient, reference, fp32_gradients, at + entry.spec.name);
    }
  }
}

/// Losses of fifty steps, each on its own sequences; settings of make_fixtures.py.
template <template <class> class Family, class Recipe>
std::vector<double> fifty_losses(const std::string& name, const safetensors_file& expected) {
  auto model = Family<Recipe>::from_pretrained(golden::folder(name));
  trainer trainer(model, {.max_steps = 50,
                          .micro_batch_size = 4,
                          .seq_length = 16,
                          .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
                          .max_grad_norm = 1.0});
  const auto inputs = golden::numbers(expected, "steps.inputs"), targets = golden::numbers(expected, "steps.targets");
  std::vector<double> losses;
  for (std::size_t step = 0; step < 50; ++step) {
    const host_batch rows = golden::batch(inputs, targets, step * 64, 4, 16);
    losses.push_back(trainer.step(std::span<const host_batch>(&rows, 1), 2e-3).loss);
  }
  return losses;
}

template <template <class> class Family>
void check_fifty_steps(const std::string& name) {
  const safetensors_file expected(golden::folder(name) + "/expected.safetensors");
  const auto reference = golden::numbers(expected, "steps.losses");
  const auto losses = fifty_losses<Family, fp32_recipe>(name, expected);
  double error = 0;
  for (std::size_t step = 0; step < 50; ++step) error = std::max(error, std::abs(losses[step] - reference[step]));
  MESSAGE(name, ": largest difference of a step's loss from PyTorch's: ", error);
  CHECK(error < 1e-4);
}
template <template <class> class Family>
void check_fifty_steps_in_bf16(const std::string& name) {
  const safetensors_file expected(golden::folder(name) + "/expected.safetensors");
  const auto reference = golden::numbers(expected, "steps.losses");
  const auto losses = fifty_losses<Family, bf16_recipe>(name, expected);
  double error = 0;
  for (std::size_t step = 0; step < 50; ++step) error = std::max(error, std::abs(losses[step] - reference[step]));
  MESSAGE(name, ": largest difference of a step's loss from PyTorch's fp32, in bf16_mixed: ", error);
  // Each of the 2 · layers branches and the head rounds its activations to bf16 (unit roundoff 2^-8, random), so a logit of
  // magnitude m is off by about m · 2^-8 · sqrt(number of roundings), here 10 · 2^-8 · sqrt(20) = 0.17; the loss averages 51
  // such errors of random sign: 0.17 / sqrt(51) · 3 (three standard deviations) = 0.07
  CHECK(error < 0.07);
}

/// An adapter: separate, saved again, merged. `check` compares outputs with peft's.
template <class Model, class Check>
void check_beside(const std::string& base, const std::string& adapter, const Check& check) {
  auto model = Model::from_pretrained(golden::folder(base), {}, {.adapter = adapter_config_of(golden::folder(adapter))});
  load_adapter(model, golden::folder(adapter));
  check(model, adapter + " beside the weights");
  const scratch_folder folder;
  save_pretrained(model, folder.path());
  CHECK(adapter_config_of(folder.path()) == model.settings().adapter);
  const safetensors_file before(golden::folder(adapter) + "/adapter_model.safetensors"),
      after(folder.path() + "/adapter_model.safetensors");
  CHECK(before.tensors().size() == after.tensors().size());
  for (const file_tensor& tensor : before.tensors()) {
    REQUIRE_MESSAGE(after.find(tensor.name) != nullptr, adapter, ": '", tensor.name, "' is not saved");
    CHECK_MESSAGE(golden::numbers(before, tensor.name) == golden::numbers(after, tensor.name), adapter, ": '", tensor.name,
                  "' is another one");
  }
  merge_adapter(model);
  check(model, adapter + " merged");
}

/// A causal model's outputs on an adapter's fixture.
inline auto says_as_peft(const std::string& adapter) {
  const safetensors_file expected(golden::folder(adapter) + "/expected.safetensors");
  const auto inputs = golden::numbers(expected, "inputs");
  const host_batch rows = golden::batch(inputs, inputs, 0, 2, 9);
  return [rows, logits = golden::numbers(expected, "logits")](auto& model, const std::string& what) {
    require_close(logits_of(model, rows), logits, fp32_logits, what);
  };
}

template <template <class> class Family>
void check_beside(const std::string& base, const std::string& adapter) {
  check_beside<Family<lora_recipe>>(base, adapter, says_as_peft(adapter));
}

/// Also merged into a model without adapter.
template <template <class> class Family>
void check_adapter(const std::string& base, const std::string& adapter) {
  check_beside<Family>(base, adapter);
  auto plain = Family<fp32_recipe>::from_pretrained(golden::folder(base));
  merge_adapter(plain, golden::folder(adapter));
  says_as_peft(adapter)(plain, adapter + " merged from its folder");
}

/// Prefix tuning. `kept`: the tensor that is saved unchanged, if any.
template <template <class> class Family>
void check_prefix(const std::string& base, const std::string& prefix, const std::string& kept = {}) {
  const safetensors_file expected(golden::folder(prefix) + "/expected.safetensors");
  const auto inputs = golden::numbers(expected, "inputs");
  const host_batch rows = golden::batch(inputs, inputs, 0, 2, 9);
  auto model = Family<prefix_recipe>::from_pretrained(golden::folder(base), {}, {.adapter = prefix_config_of(golden::folder(prefix))});
  load_adapter(model, golden::folder(prefix));
  require_close(logits_of(model, rows), golden::numbers(expected, "logits"), fp32_logits, prefix);
  if (kept.empty()) return;
  const scratch_folder folder;
  save_pretrained(model, folder.path());
  const safetensors_file before(golden::folder(prefix) + "/adapter_model.safetensors"),
      after(folder.path() + "/adapter_model.safetensors");
  CHECK(golden::numbers(before, kept) == golden::numbers(after, kept));
}

/// Loading and saving preserves every tensor's name and bytes.
template <template <class> class Family>
void check_saved_again(const std::string& name) {
  const auto model = Family<fp32_recipe>::from_pretrained(golden::folder(name));
  const scratch_folder folder;
  save_pretrained(model, folder.path());
  const safetensors_file before(golden::folder(name) + "/model.safetensors"), after(folder.path() + "/model.safetensors");
  CHECK(before.tensors().size() == after.tensors().size());
  for (const file_tensor& there : before.tensors()) {
    const std::string& tensor = there.name;
    const auto* again = after.find(tensor);
    REQUIRE_MESSAGE(again != nullptr, name, ": '", tensor, "' is not saved");
    CHECK(again->shape == there.shape);
    CHECK_MESSAGE(golden::numbers(before, tensor) == golden::numbers(after, tensor), name, ": '", tensor, "' is another one");
  }
  CHECK(Family<fp32_recipe>::from_pretrained(folder.path()).config() == model.config());
}

template <template <class> class Family>
void check_all(const std::string& name) {
  check_family<Family>(name, {1, 7, 33});
  check_fifty_steps<Family>(name);
  check_saved_again<Family>(name);
}

}  // namespace parity
