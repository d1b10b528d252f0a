// Rounding error of gradient accumulation over many micro-batches: the same run in fp32, in bf16_mixed (gradients accumulate in fp32)
// and with bf16_gradients (rounded after every micro-batch), each with one batch of 16 sequences and with 16 micro-batches of one.
//
//   accumulation TEXT [STEPS] [HIDDEN_SIZE]    300 steps, hidden size 128; the loss is on the last tenth of the text, which is not trained on
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/xtrain.hpp>

#include "processors.hpp"

namespace {

template <class Precision>
struct recipe : xtrain::defaults {
  using precision = Precision;
};

struct settings {
  std::size_t steps = 300, width = 128;
};

struct outcome {
  double held_out = 0;
  std::vector<double> losses{};  // of every step
};

template <class Precision>
outcome train(const xtrain::dataset& text, const xtrain::dataset& held_out, const settings& chosen, std::size_t micro_batches) {
  xtrain::llama<recipe<Precision>> model({.vocab_size = 257, .hidden_size = chosen.width, .num_layers = 4, .num_heads = 4, .max_position_embeddings = 128});
  xtrain::trainer trainer(model, {.max_steps = chosen.steps,
                                  .micro_batch_size = 16 / micro_batches,
                                  .gradient_accumulation_steps = micro_batches,
                                  .learning_rate = 1e-3});
  xtrain::history seen;
  trainer.attach(seen);
  trainer.fit(text);
  const auto& losses = seen.losses();
  return {trainer.evaluate(held_out).loss, std::vector<double>(losses.begin(), losses.end())};
}

/// Root mean square difference of the losses of all steps.
double difference(const outcome& a, const outcome& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.losses.size(); ++i) squares += (a.losses[i] - b.losses[i]) * (a.losses[i] - b.losses[i]);
  return std::sqrt(squares / static_cast<double>(a.losses.size()));
}

template <class Precision>
outcome show(const xtrain::dataset& text, const xtrain::dataset& held_out, const settings& chosen, const outcome* exact) {
  const outcome at_once = train<Precision>(text, held_out, chosen, 1), in_16 = train<Precision>(text, held_out, chosen, 16);
  std::printf("| `%s` | %.4f | %.4f | %.1e | %.1e |\n", std::string(Precision::name).c_str(), at_once.held_out, in_16.held_out, difference(at_once, in_16),
              difference(in_16, exact == nullptr ? in_16 : *exact));
  std::fflush(stdout);
  return in_16;
}

}  // namespace

int main(int argc, char** argv) try {
  const processors_report processors;
  xtrain::require<xtrain::config_error>(argc > 1, "accumulation: a text must be given");
  settings chosen;
  if (argc > 2) chosen.steps = std::strtoul(argv[2], nullptr, 10);
  if (argc > 3) chosen.width = std::strtoul(argv[3], nullptr, 10);
  const auto tokenizer = xtrain::byte_tokenizer();
  const xtrain::mapped_file file(argv[1]);
  const std::string_view all = file.text();
  const auto part = [&](std::string_view bytes, const char* name) {
    xtrain::dataset data(name, xtrain::sequence_layout::stream);
    data.add(tokenizer.encode(bytes), [](std::size_t) { return true; });
    data.finish();
    return data;
  };
  const std::size_t cut = all.size() / 10 * 9;
  const xtrain::dataset text = part(all.substr(0, cut), "text"), held_out = part(all.substr(cut, 100000), "held out");
  std::printf(
      "| precision | held-out loss, 16 at once | 16 micro-batches | steps' losses, one from the other | 16 micro-batches, from fp32 |\n"
      "|---|---|---|---|---|\n");
  const outcome exact = show<xtrain::fp32>(text, held_out, chosen, nullptr);
  (void)show<xtrain::bf16_mixed>(text, held_out, chosen, &exact);
  (void)show<xtrain::bf16_gradients>(text, held_out, chosen, &exact);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "accumulation: %s\n", problem.what());
  return 1;
}
