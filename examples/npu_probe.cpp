// What an Ascend NPU and its CANN do where the documentation leaves it open: a line for each question, then the kernels compared with plain formulas, and
// the gradients of a small model with the cpu's, parameter by parameter.
//
//     npu_probe [device]
//
// Kernels are compared as compositions of elementary operators, and then with CANN's fused ones. On a 910A, which has no bf16, fp16 is compared.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <xtrain/device/npu/npu.hpp>
#include <xtrain/testing/conformance.hpp>
#include <xtrain/testing/gradient_parity.hpp>
#include <xtrain/testing/npu_probe.hpp>
#include <xtrain/xtrain.hpp>

namespace {

struct on_cpu : xtrain::defaults {
  using precision = xtrain::bf16_mixed;
};
struct on_npu : on_cpu {
  using device = xtrain::npu;
};

/// Compares the kernels with plain formulas.
///   returns  whether all are within their tolerances
bool compare_kernels(const xtrain::npu_context& on, const char* which) {
  xtrain::testing::conformance<xtrain::npu> suite(on);
  suite.check<float>();
  suite.check<xtrain::fp16>();
  if (on.properties().generation != xtrain::npu_generation::first) suite.check<xtrain::bf16>();
  std::printf("kernels, %s\n%s%s", which, suite.text().c_str(), on.host_runs_text().c_str());
  return suite.passed();
}
/// Compares the gradients of a small model with the cpu's, by parameter.
void compare_model(const xtrain::npu_context& on, const char* which) {
  using namespace xtrain;
  llama<on_npu> model({.vocab_size = 257, .hidden_size = 128, .num_layers = 4, .num_heads = 4, .max_position_embeddings = 64}, on);
  llama<on_cpu> right(model.config());
  host_batch rows{.b = 2, .t = 64};
  for (std::size_t i = 0; i < rows.b * rows.t; ++i) {
    rows.tokens.push_back(static_cast<token>(i * i % 257));
    rows.targets.push_back(static_cast<token>((i + 1) * (i + 1) % 257));
    rows.positions.push_back(static_cast<token>(i % rows.t));
  }
  rows.target_count = rows.token_count = rows.b * rows.t;
  std::printf("a step of a LLaMA in bf16, %s; errors above 5 %% are marked\n%s", which, testing::compare_gradients(model, right, rows).text(0.05).c_str());
}

}  // namespace

int main(int count, char** arguments) {
  using namespace xtrain;
  try {
    npu_config settings{.device = count > 1 ? std::atoi(arguments[1]) : npu_config::local, .accepts_unknown_cards = true};
    const npu_context on(settings);
    std::printf("%s\n%s", on.description().c_str(), on.operators_text().c_str());
    const npu_generation card = on.properties().generation;
    if (card == npu_generation::other) std::printf("FAIL  this device was not written for such a card: what passes below is no promise\n");
    const auto answers = testing::probe_npu(on);
    std::printf("%s%s", testing::text_of(answers).c_str(), testing::unverified_operators(on).c_str());
    const char *const composed = "composed of elementary operators", *const by_fused = "with fused operators";
    bool passed = compare_kernels(on, composed) && card != npu_generation::other;
    if (card != npu_generation::first) {
      compare_model(on, composed);
      settings.operator_settings.is_fused = true;
      const npu_context fused(settings);
      passed = compare_kernels(fused, by_fused) && passed;
      compare_model(fused, by_fused);
    }
    for (const auto& one : answers) passed = passed && one.passed;
    return passed ? 0 : 1;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "npu_probe: %s\n", problem.what());
    return 2;
  }
}
