// One training loop, nine recipes: what each costs a rank in memory and messages, and that all give the same result.
//
//   distributed [ranks]      default 4; ranks are threads of this process
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <vector>

#include <xtrain/parallel.hpp>
#include <xtrain/xtrain.hpp>

namespace {

template <class Parallel>
struct recipe : xtrain::defaults {
  using parallel = Parallel;
};

constexpr std::size_t rows = 8;  // global batch size in sequences, independent of the number of ranks

xtrain::dataset some_text() {
  const auto tokenizer = xtrain::byte_tokenizer();
  std::string text;
  for (int i = 0; i < 400; ++i) text += "a rank alone can do what many do together, if it has the memory and the time. ";
  xtrain::dataset data("text", xtrain::sequence_layout::stream);
  data.add(tokenizer.encode(text), [](std::size_t) { return true; });
  data.finish();
  return data;
}

xtrain::decoder_config sizes() {
  return {.vocab_size = 257,
          .hidden_size = 128,
          .num_layers = 8,
          .num_heads = 8,
          .num_kv_heads = 4,
          .max_position_embeddings = 64,
          .tie_word_embeddings = false};
}

/// Memory and result of one rank.
struct result {
  xtrain::memory_count memory;
  double loss = 0;
};

template <class Parallel, class Layout>
void show(const char* what, std::size_t ranks, std::size_t data_ranks, const Layout& layout) {
  const xtrain::dataset data = some_text();
  std::vector<result> results(ranks);
  xtrain::run_ranks(ranks, [&](const std::shared_ptr<xtrain::transport>& network) {
    const xtrain::cpu::context on;
    typename xtrain::llama<recipe<Parallel>>::options options;
    if constexpr (requires { options.parallel.ranks; }) {
      options.parallel = layout;
      options.parallel.ranks = network;
    }
    xtrain::llama<recipe<Parallel>> model(sizes(), on, options);
    xtrain::trainer trainer(model, {.max_steps = 20, .micro_batch_size = 1, .gradient_accumulation_steps = rows / data_ranks, .learning_rate = 1e-3});
    xtrain::history seen;
    trainer.attach(seen);
    trainer.fit(data);
    results[network->rank()] = {on.memory(), seen.losses().back()};
  });
  const auto mebibytes = [&](xtrain::memory_role role) {
    std::size_t most = 0;
    for (const result& one : results) most = std::max(most, one.memory.of(role));
    return static_cast<double>(most) / (1 << 20);
  };
  std::printf("%-34s %7.2f %9.2f %9.2f %8.2f %10.6f\n", what, mebibytes(xtrain::memory_role::weights), mebibytes(xtrain::memory_role::gradients),
              mebibytes(xtrain::memory_role::optimizer), mebibytes(xtrain::memory_role::stash), results[0].loss);
}

}  // namespace

int main(int argc, char** argv) try {
  using namespace xtrain;
  if (argc > 1 && std::string_view(argv[1]) == "--help") return std::puts("usage: distributed [ranks]\nranks: 2, 4 (default) or 8"), 0;
  const std::size_t n = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 4;
  require<config_error>(n == 2 || n == 4 || n == 8, "ranks must be 2, 4 or 8; given ", argc > 1 ? argv[1] : "");
  std::printf("MiB on the rank that needs most      weights gradients optimizer    stash  last loss\n");
  show<single>("single", 1, 1, rank_layout{});
  show<data_parallel>("data_parallel", n, n, rank_layout{});
  show<zero<1>>("zero<1>", n, n, rank_layout{});
  show<zero<2>>("zero<2>", n, n, rank_layout{});
  show<zero<3>>("zero<3>", n, n, rank_layout{});
  show<tensor_parallel>("tensor_parallel", n, 1, rank_layout{.tensor_parallel_size = n});
  show<parallel<zero<2>, tensor_parallel>>("parallel<zero<2>, tensor_parallel>", n, n / 2, rank_layout{.tensor_parallel_size = 2});
  show<pipeline<>>("pipeline<>", n, 1, pipeline_ranks{});
  show<pipeline<all_in_all_out>>("pipeline<all_in_all_out>, 2 chunks", n == 8 ? 4 : n, 1, pipeline_ranks{.chunks = 2});
} catch (const std::exception& problem) {
  std::fprintf(stderr, "distributed: %s\n", problem.what());
  return 1;
}
