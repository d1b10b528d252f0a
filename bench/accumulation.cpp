// What rounding costs where gradients are added up over many micro-batches: the same run in fp32, in bf16_mixed (gradients accumulate in fp32)
// and with bf16_gradients (rounded after every micro-batch), each with 16 sequences at once and in 16 micro-batches of one.
//
//   accumulation TEXT [STEPS] [WIDTH]        300 steps, width 128; the loss is on the last tenth of the text, which is not trained on
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <xtrain/core/file.hpp>
#include <xtrain/xtrain.hpp>

namespace {

template <class Precision>
struct recipe : xtrain::defaults {
  using precision = Precision;
};

struct settings {
  std::size_t steps = 300, width = 128;
};

template <class Precision>
double held_out_loss(const xtrain::dataset& text, const xtrain::dataset& held_out, const settings& chosen, std::size_t micro_batches) {
  xtrain::llama<recipe<Precision>> model({.vocabulary = 257, .width = chosen.width, .layers = 4, .heads = 4, .context = 128});
  xtrain::trainer trainer(model, {.steps = chosen.steps, .batch = 16 / micro_batches, .accumulate = micro_batches, .learning_rate = 1e-3});
  trainer.fit(text);
  return trainer.evaluate(held_out).loss;
}

template <class Precision>
void show(const xtrain::dataset& text, const xtrain::dataset& held_out, const settings& chosen) {
  const double at_once = held_out_loss<Precision>(text, held_out, chosen, 1);
  std::printf("%-15s %.4f", std::string(Precision::name).c_str(), at_once);
  std::fflush(stdout);
  std::printf("  %.4f\n", held_out_loss<Precision>(text, held_out, chosen, 16));
}

}  // namespace

int main(int argc, char** argv) try {
  xtrain::require<xtrain::config_error>(argc > 1, "accumulation: a text must be given");
  settings chosen;
  if (argc > 2) chosen.steps = std::strtoul(argv[2], nullptr, 10);
  if (argc > 3) chosen.width = std::strtoul(argv[3], nullptr, 10);
  const auto tokenizer = xtrain::byte_tokenizer();
  const xtrain::mapped_file file(argv[1]);
  const std::string_view all = file.text();
  const auto part = [&](std::string_view bytes, const char* name) {
    xtrain::dataset data(name, xtrain::row_layout::stream);
    data.add(tokenizer.encode(bytes), [](std::size_t) { return true; });
    data.finish();
    return data;
  };
  const std::size_t cut = all.size() / 10 * 9;
  const xtrain::dataset text = part(all.substr(0, cut), "text"), held_out = part(all.substr(cut, 100000), "held out");
  std::printf("held-out loss   at once, in 16 micro-batches\n");
  show<xtrain::fp32>(text, held_out, chosen);
  show<xtrain::bf16_mixed>(text, held_out, chosen);
  show<xtrain::bf16_gradients>(text, held_out, chosen);
} catch (const std::exception& problem) {
  std::fprintf(stderr, "accumulation: %s\n", problem.what());
  return 1;
}
