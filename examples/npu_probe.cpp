// What an Ascend NPU and its CANN do where the documentation leaves it open: a line for each question, then the kernels compared with plain formulas, and
// the gradients of a small model with the cpu's, parameter by parameter.
//
//     npu_probe [device]
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

}  // namespace

int main(int count, char** arguments) {
  using namespace xtrain;
  try {
    const npu_context on(npu_config{.device = count > 1 ? std::atoi(arguments[1]) : npu_config::local});
    std::printf("%s\n", on.description().c_str());
    const auto answers = testing::probe_npu(on);
    std::printf("%s", testing::text_of(answers).c_str());
    testing::conformance<npu> suite(on);
    suite.check<float>();
    suite.check<bf16>();
    std::printf("%s%s", suite.text().c_str(), on.host_runs_text().c_str());
    llama<on_npu> model({.vocab_size = 257, .hidden_size = 128, .num_layers = 4, .num_heads = 4, .max_position_embeddings = 64}, on);
    llama<on_cpu> right(model.config());
    host_batch rows{.b = 2, .t = 64};
    for (std::size_t i = 0; i < rows.b * rows.t; ++i) {
      rows.tokens.push_back(static_cast<token>(i * i % 257));
      rows.targets.push_back(static_cast<token>((i + 1) * (i + 1) % 257));
      rows.positions.push_back(static_cast<token>(i % rows.t));
    }
    rows.target_count = rows.token_count = rows.b * rows.t;
    std::printf("a step of a LLaMA in bf16; errors above 5 %% are marked\n%s", testing::compare_gradients(model, right, rows).text(0.05).c_str());
    for (const auto& one : answers)
      if (!one.passed) return 1;
    return suite.passed() ? 0 : 1;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "npu_probe: %s\n", problem.what());
    return 2;
  }
}
