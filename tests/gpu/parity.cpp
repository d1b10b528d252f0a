// Fifty AdamW steps, each on its own sequences: losses of the GPU, the cpu, and PyTorch (tests/golden).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <xtrain/io.hpp>

#include "gpu.hpp"
#include "../support/golden.hpp"

namespace gpu {

namespace {

using namespace xtrain;

template <class Device, class Precision>
struct recipe : defaults {
  using device = Device;
  using precision = Precision;
};

template <class Model>
std::vector<double> losses(const std::string& folder, const typename Model::context_type& on, bool captures) {
  const safetensors_file expected(folder + "/expected.safetensors");
  const auto inputs = golden::numbers(expected, "steps.inputs"), targets = golden::numbers(expected, "steps.targets");
  auto model = Model::from_pretrained(folder, on);
  trainer trainer(model, {.max_steps = 50,
                          .micro_batch_size = 4,
                          .seq_length = 16,
                          .optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
                          .max_grad_norm = 1.0,
                          .capture_steps = captures});
  std::vector<double> all;
  for (std::size_t step = 0; step < 50; ++step) {
    const host_batch rows = golden::batch(inputs, targets, step * 64, 4, 16);
    all.push_back(trainer.step(std::span<const host_batch>(&rows, 1), 2e-3).loss);
  }
  return all;
}

double largest_difference(const std::vector<double>& one, const std::vector<double>& other) {
  double most = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    const double difference = std::abs(one[i] - other[i]);
    if (!(difference <= most)) most = difference;  // NaN too
  }
  return most;
}

/// Bounds: derived in tests/train/parity.cpp.
template <template <class> class Family, class Precision>
bool check(const std::string& folder, const char* name, double allowed) {
  const auto on = open();
  const auto of_gpu = losses<Family<recipe<cuda, Precision>>>(folder, on, false), captured = losses<Family<recipe<cuda, Precision>>>(folder, on, true);
  const auto of_cpu = losses<Family<recipe<cpu, Precision>>>(folder, {}, false);
  const safetensors_file expected(folder + "/expected.safetensors");
  const auto of_pytorch = golden::numbers(expected, "steps.losses");
  const double from_cpu = largest_difference(of_gpu, of_cpu), from_pytorch = largest_difference(of_gpu, of_pytorch);
  const bool good = from_cpu < allowed && from_pytorch < allowed && of_gpu == captured;
  std::printf("%-28s %-10s loss %.4f to %.4f; from the cpu's %.2e, from PyTorch's fp32 %.2e, allowed %.0e; captured: %s; %s\n", name,
              std::string(Precision::name).c_str(), of_gpu.front(), of_gpu.back(), from_cpu, from_pytorch, allowed,
              of_gpu == captured ? "the same bits" : "OTHER LOSSES", good ? "ok" : "FAILED");
  std::fflush(stdout);
  return good;
}

}  // namespace

int compare_losses(const char* golden) {
  const std::string at = golden;
  bool good = true;
  good = check<llama, fp32>(at + "/llama_grouped_untied", "llama_grouped_untied", 1e-4) && good;
  good = check<llama, bf16_mixed>(at + "/llama_grouped_untied", "llama_grouped_untied", 0.07) && good;
  good = check<gpt2, fp32>(at + "/gpt2", "gpt2", 1e-4) && good;
  good = check<gpt2, bf16_mixed>(at + "/gpt2", "gpt2", 0.07) && good;
  return good ? 0 : 1;
}

}  // namespace gpu
