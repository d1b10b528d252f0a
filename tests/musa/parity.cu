// Fifty AdamW steps of a GPT-2 in fp32 and a LLaMA in bf16 on the device `musa`, with MUSA's names for CUDA's (shim): the kernels that mcc is to compile, with
// products by lanes, on an NVIDIA GPU. Losses are the cpu's within the bounds of tests/train/parity.cpp.
//
// Exit status: 0 they are; 1 they are not; 3 there is no GPU.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <xtrain/device/cuda/launch.cuh>
#include <xtrain/device/musa/musa.hpp>
#include <xtrain/xtrain.hpp>

#include "shim/cuda_entries.hpp"

namespace {

using namespace xtrain;

template <class Device, class Precision>
struct recipe : defaults {
  using device = Device;
  using precision = Precision;
};

constexpr std::size_t rows = 4, places = 16;

host_batch batch_of(std::size_t step) {
  host_batch batch;
  batch.b = rows;
  batch.t = places;
  for (std::size_t i = 0; i < rows * places; ++i) {
    const std::size_t at = step * rows * places + i;
    batch.tokens.push_back(static_cast<token>(at * at % 61));
    batch.targets.push_back(static_cast<token>((at + 1) * (at + 1) % 61));
    batch.positions.push_back(static_cast<token>(i % places));
  }
  batch.target_count = batch.token_count = rows * places;
  return batch;
}

decoder_config sizes() {
  decoder_config c;
  c.vocab_size = 61;
  c.hidden_size = 32;
  c.num_layers = 2;
  c.num_heads = 4;
  c.max_position_embeddings = places;
  return c;
}

template <class Model>
std::vector<double> losses(Model& model) {
  training_config<adamw> settings;
  settings.max_steps = 50;
  settings.micro_batch_size = rows;
  settings.seq_length = places;
  settings.max_grad_norm = 1.0;
  trainer<Model> run(model, settings);
  std::vector<double> all;
  for (std::size_t step = 0; step < 50; ++step) {
    const host_batch batch = batch_of(step);
    all.push_back(run.step(std::span<const host_batch>(&batch, 1), 2e-3).loss);
  }
  return all;
}

template <template <class> class Family, class Precision>
bool check(const musa_context& on, const char* name, double allowed) {
  Family<recipe<musa, Precision>> model(sizes(), on);
  Family<recipe<cpu, Precision>> expected(sizes());
  const auto got = losses(model), right = losses(expected);
  double most = 0;
  for (std::size_t i = 0; i < right.size(); ++i)
    if (!(std::abs(got[i] - right[i]) <= most)) most = std::abs(got[i] - right[i]);  // NaN too
  const bool good = most < allowed;
  std::printf("musa %-6s loss %.4f to %.4f; from the cpu's %.2e, allowed %.0e; %s\n", name, got.front(), got.back(), most, allowed, good ? "ok" : "FAILED");
  std::fflush(stdout);
  return good;
}

}  // namespace

int main() {
  const cuda_runtime table = xtrain::detail::make_musa_runtime(&entry_of, &musa_kernels::library());
  if (const std::string why = xtrain::detail::why_no_gpu(&table, moore_threads); !why.empty()) return std::printf("%s\n", why.c_str()), 3;
  try {
    const musa_context on(musa_config{.device = 0, .runtime = &table});
    std::printf("%s\n", on.description().c_str());
    const bool first = check<gpt2, fp32>(on, "GPT-2", 1e-4), second = check<llama, bf16_mixed>(on, "LLaMA", 0.07);
    return first && second ? 0 : 1;
  } catch (const std::exception& problem) {
    return std::printf("%s\n", problem.what()), 1;
  }
}
