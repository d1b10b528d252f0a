// A model folder of 1.1 billion weights, with TinyLlama's sizes: time and memory of loading it, of fine-tuning adapters on it, and of
// converting it. The weights are random; the folder has 2.2 GB and is created first.
//
//   folders make FOLDER                                      bf16, in files of at most 500 MB
//   folders load FOLDER [cold]                               until the first logits; cold: files dropped from the page cache first
//   folders lora|qlora FOLDER [MICRO_BATCH_SIZE] [SEQ_LENGTH] [STEPS]
//                                                            time and memory of training adapters: 1, 256 and 4 by default
//   folders watch PROGRAM ARGUMENT...                        seconds and memory of any program: `convert --from ... --dtype fp32`
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/io.hpp>

#include "processors.hpp"
#include "resident_memory.hpp"

namespace {

struct bf16_run : xtrain::defaults {
  using precision = xtrain::bf16_mixed;
};
struct lora_run : bf16_run {
  using adapter = xtrain::lora;
};
struct qlora_run : bf16_run {
  using adapter = xtrain::qlora;
};

const xtrain::decoder_config llama_1100m{.vocab_size = 32000,
                                         .hidden_size = 2048,
                                         .num_layers = 22,
                                         .num_heads = 32,
                                         .num_kv_heads = 4,
                                         .intermediate_size = 5632,
                                         .max_position_embeddings = 2048,
                                         .tie_word_embeddings = false};

class stopwatch {
 public:
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void make(const std::string& folder) {
  const xtrain::llama<bf16_run> model(llama_1100m);
  xtrain::save_pretrained(model, folder, {.shard_bytes = 500'000'000});
  std::printf("%zu weights\n", model.parameters().count());
}

/// Drops a folder's files from the page cache.
void forget(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const xtrain::detail::descriptor file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    ::fsync(file.get());
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

void load(const std::string& folder, bool cold) {
  if (cold) forget(folder);
  const memory_watch memory(::getpid());
  const stopwatch watch;
  auto model = xtrain::llama<bf16_run>::from_pretrained(folder);
  const double loaded = watch.seconds();
  const xtrain::array<xtrain::token, 2> tokens = {{1}};
  const auto logits_btv = xtrain::logits(model, tokens);
  std::printf("%s   loaded after %.2f s, first logits after %.2f s (%.3f)   weights %.0f MiB, taken at most %.0f MiB\n",
              cold ? "from disk  " : "from memory", loaded, watch.seconds(), static_cast<double>(logits_btv(0, 0, 0)),
              static_cast<double>(model.parameters().count()) * 2.0 / 1048576.0, memory.taken_mebibytes());
}

struct step_log final : xtrain::observer {
  using observer::on;
  void on(const xtrain::step_done& done) override {
    losses.push_back(done.loss);
    seconds.push_back(done.seconds);
  }
  std::vector<double> losses{}, seconds{};
};

template <class Recipe>
void finetune(const std::string& folder, std::size_t rows, std::size_t context, std::size_t steps) {
  const memory_watch memory(::getpid());
  const stopwatch watch;
  auto model = xtrain::llama<Recipe>::from_pretrained(folder, {}, {.adapter = {.rank = 16, .alpha = 32, .target_pattern = "all-linear"}});
  const double loaded = watch.seconds(), after_loading = memory.taken_mebibytes();
  xtrain::trainer trainer(model, {.max_steps = steps, .micro_batch_size = rows, .seq_length = context, .learning_rate = 1e-3});
  xtrain::dataset data("numbers", xtrain::sequence_layout::stream);
  std::vector<xtrain::token> tokens(rows * context * (steps + 1) + 1);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<xtrain::token>(i % 1000);  // something to learn
  data.add(tokens);
  data.finish();
  step_log log;
  trainer.attach(log);
  trainer.fit(data);

  const double planned = static_cast<double>(trainer.plan().total()) / 1048576.0, taken = memory.taken_mebibytes();
  std::printf("%-5s B%zu T%zu   loaded after %.2f s, %.0f MiB   planned %.1f MiB   taken %.1f MiB   %+.1f %%\n",
              std::string(Recipe::adapter::name).c_str(), rows, context, loaded, after_loading, planned, taken,
              100.0 * (taken / planned - 1.0));
  for (std::size_t i = 0; i < log.losses.size(); ++i)
    std::printf("  step %zu   loss %.4f   %.2f s\n", i + 1, log.losses[i], log.seconds[i]);
}

int watch(char** arguments) {
  const stopwatch seconds;
  const pid_t child = ::fork();
  if (child == 0) {
    ::execvp(arguments[0], arguments);
    std::perror(arguments[0]);
    std::_Exit(127);
  }
  const memory_watch memory(child);
  int status = 0;
  ::waitpid(child, &status, 0);
  std::printf("%.2f s   at most %.1f MiB that no file backs\n", seconds.seconds(), memory.max_mebibytes());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

std::size_t number(int argc, char** argv, int index, std::size_t otherwise) {
  return argc > index ? static_cast<std::size_t>(std::strtoull(argv[index], nullptr, 10)) : otherwise;
}

}  // namespace

int main(int argc, char** argv) try {
  const processors_report processors;
  const std::string_view what = argc > 2 ? argv[1] : "";
  const std::size_t rows = number(argc, argv, 3, 1), context = number(argc, argv, 4, 256), steps = number(argc, argv, 5, 4);
  if (what == "make") make(argv[2]);
  else if (what == "load") load(argv[2], argc > 3 && std::string_view(argv[3]) == "cold");
  else if (what == "lora") finetune<lora_run>(argv[2], rows, context, steps);
  else if (what == "qlora") finetune<qlora_run>(argv[2], rows, context, steps);
  else if (what == "watch") return watch(argv + 2);
  else {
    std::fprintf(stderr, "usage: folders make|load|lora|qlora FOLDER ..., or folders watch PROGRAM ...\n");
    return 2;
  }
  return 0;
} catch (const std::exception& problem) {
  std::fprintf(stderr, "folders: %s\n", problem.what());
  return 1;
}
