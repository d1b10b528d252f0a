// Cost of offload to files: a llama with everything in memory, with the optimizer state in a file, and with weights, gradients, optimizer state and stash in
// files. Also run it in a control group with less memory than the run needs:
//
//   offload none|optimizer|everything [HIDDEN_SIZE] [NUM_LAYERS] [FOLDER]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <xtrain/models/llama.hpp>
#include <xtrain/xtrain.hpp>

#include "processors.hpp"

namespace {

using namespace xtrain;

template <class Offload>
struct recipe : defaults {
  using offload = Offload;
};

template <class Offload>
void measure(std::size_t width, std::size_t layers, const typename Offload::config& where) {
  constexpr std::size_t b = 2, t = 256;
  llama<recipe<Offload>> model(
      {.vocab_size = 4096, .hidden_size = width, .num_layers = layers, .num_heads = width / 64, .max_position_embeddings = t}, {},
      {.offload = where});
  trainer trainer(model, {.max_steps = 1, .micro_batch_size = b});
  host_batch rows{.b = b, .t = t};
  for (auto* values : {&rows.tokens, &rows.targets, &rows.positions}) values->assign(b * t, 1);
  rows.starts.assign(b * t, 0);
  rows.target_count = rows.token_count = b * t;
  std::vector<double> times;
  for (int i = 0; i < 6; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    (void)trainer.step(std::span<const host_batch>(&rows, 1), 1e-4);
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin() + 1, times.end());  // the first step is an outlier
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  std::printf("%zu parameters  in memory %s  in files %s  %.3f s per step  anonymous and mapped memory at most %.0f MiB  pages read %ld\n",
              model.parameters().count(), bytes_text(trainer.plan().total()).c_str(), bytes_text(trainer.plan().total_in_files()).c_str(),
              times[3], static_cast<double>(used.ru_maxrss) / 1024, used.ru_majflt);
}

}  // namespace

int main(int argc, char** argv) try {
  const processors_report processors;
  const std::string_view what = argc > 1 ? argv[1] : "none";
  const std::size_t width = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 1024, layers = argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 12;
  const char* const folder = argc > 4 ? argv[4] : "";
  if (what == "optimizer") measure<offload_to_file<memory_role::optimizer>>(width, layers, {folder});
  else if (what == "everything")
    measure<offload_to_file<memory_role::weights, memory_role::gradients, memory_role::optimizer, memory_role::stash>>(width, layers, {folder});
  else measure<no_offload>(width, layers, {});
  return 0;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "offload: %s\n", problem.what());
  return 1;
}
