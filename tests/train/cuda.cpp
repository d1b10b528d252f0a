// Training on the device `cuda`, on a runtime that stands in for a GPU's: the kernels of device/simt/, run on the host.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/comm/nccl/nccl.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/device/cuda/cuda.hpp>
#include <xtrain/io.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/testing/fake_cuda.hpp>
#include <xtrain/testing/fake_nccl.hpp>

using namespace xtrain;
using testing::fake_cuda;

namespace {

struct on_cpu : defaults {
  using precision = bf16_mixed;
};
struct on_cpus : on_cpu {
  using parallel = data_parallel;
};
struct on_gpus : on_cpus {
  using device = cuda;
};
struct on_cuda : defaults {
  using device = cuda;
  using precision = bf16_mixed;
};

const dataset& data() {
  static const dataset all = [] {
    dataset d("numbers", sequence_layout::stream);
    std::vector<token> tokens;
    for (token i = 0; i < 400; ++i) tokens.push_back(i * i % 61);
    d.add(tokens);
    d.finish();
    return d;
  }();
  return all;
}

const decoder_config llama_sizes{.vocab_size = 61,
                                 .hidden_size = 32,
                                 .num_layers = 2,
                                 .num_heads = 4,
                                 .num_kv_heads = 2,
                                 .intermediate_size = 48,
                                 .max_position_embeddings = 24};
const decoder_config gpt2_sizes{.vocab_size = 61, .hidden_size = 32, .num_layers = 2, .num_heads = 4, .max_position_embeddings = 24};

/// The losses of some steps, and of an evaluation.
template <class Model>
std::vector<double> losses(Model& model, bool captures) {
  trainer trainer(model,
                  {.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .learning_rate = 3e-3, .capture_steps = captures});
  history seen;
  trainer.attach(seen);
  trainer.fit(data());
  std::vector<double> all(seen.losses().begin(), seen.losses().end());
  all.push_back(trainer.evaluate(data()).loss);
  return all;
}

template <template <class> class Family>
void check(const decoder_config& sizes) {
  Family<on_cpu> expected(sizes);
  const auto right = losses(expected, false);
  std::vector<std::vector<double>> got;
  for (const bool captures : {false, true}) {
    const fake_cuda gpu({.seed = 3});
    {
      Family<on_cuda> model(sizes, gpu.open());
      got.push_back(losses(model, captures));
    }
    CHECK(gpu.violations() == "");
    CHECK(gpu.leaks() == "");
    if (captures) CHECK(gpu.calls_of("cudaGraphLaunch") == 4);
  }
  CHECK(got[0] == got[1]);
  REQUIRE(got[0].size() == right.size());
  // as in simt.cpp: a rounding to bf16 that falls the other way
  for (std::size_t i = 0; i < right.size(); ++i) CHECK(std::abs(got[0][i] - right[i]) < right[i] * 0x1p-9);
}

}  // namespace

TEST_CASE("a LLaMA and a GPT-2 in bf16 train on cuda to the cpu's losses, captured and not") {
  check<llama>(llama_sizes);
  check<gpt2>(gpt2_sizes);
}

TEST_CASE("wherever the runtime or the GPU fails in a run, the run ends in an error of ours, and nothing is lost") {
  const auto run = [](const fake_cuda& gpu) {
    llama<on_cuda> model(llama_sizes, gpu.open());
    trainer trainer(model, {.max_steps = 2, .micro_batch_size = 1, .learning_rate = 3e-3, .capture_steps = true});
    trainer.fit(data());
  };
  std::size_t calls = 0, works = 0;
  {
    fake_cuda gpu;
    gpu.fail_call(0, 0);
    gpu.fail_work(0, 0);
    run(gpu);
    calls = gpu.calls();
    works = gpu.works();
  }
  const auto check = [&](auto&& inject) {
    fake_cuda gpu;
    inject(gpu);
    std::string said = "nothing";
    try {
      run(gpu);
    } catch (const error& e) {
      said = e.what();
    }
    INFO(said);
    CHECK(gpu.violations() == "");
    CHECK(gpu.leaks() == "");
    return said;
  };
  // a prime number of places in the run, each at another kind of call
  for (std::size_t i = 1; i < 17; ++i) {
    const std::size_t at = calls * i / 17;
    CHECK(check([&](fake_cuda& gpu) { gpu.fail_call(at, cuda_status::out_of_memory); }).substr(0, 6) == "cuda: ");
    CHECK(check([&](fake_cuda& gpu) { gpu.fail_work(works * i / 17, cuda_status::illegal_address); }).find("illegal memory access") != std::string::npos);
  }
}

TEST_CASE("two ranks with a GPU each train over NCCL to the losses of two ranks on the cpu; a rank that stops ends the other's training") {
  std::vector<std::vector<double>> right(2), got(2);
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    llama<on_cpus> model(llama_sizes, {}, {.parallel = {.ranks = network}});
    right[network->rank()] = losses(model, false);
  });
  fake_cuda gpus({.devices = 2});
  testing::fake_nccl nccl(gpus);
  const auto train = [&](const std::shared_ptr<transport>& network, auto&& work) {
    const cuda_context gpu = gpus.open(static_cast<int>(network->rank()));
    llama<on_gpus> model(llama_sizes, gpu, {.parallel = {.ranks = with_nccl(network, gpu, {.library = &nccl.library()})}});
    work(model, network->rank());
  };
  run_ranks(2, [&](const std::shared_ptr<transport>& network) {
    train(network, [&](auto& model, std::size_t rank) { got[rank] = losses(model, false); });
  });
  CHECK(nccl.calls_of("ncclAllReduce") > 0);
  CHECK(got[0] == got[1]);
  for (std::size_t i = 0; i < right[0].size(); ++i) CHECK(std::abs(got[0][i] - right[0][i]) < right[0][i] * 0x1p-9);

  std::string said;
  try {
    run_ranks(2, [&](const std::shared_ptr<transport>& network) {
      train(network, [&](auto& model, std::size_t rank) {
        try {
          if (rank == 1) throw config_error("disk: full");
          (void)losses(model, false);
        } catch (const error& e) {
          if (rank == 0) said = e.what();
          throw;
        }
      });
    });
  } catch (const error&) {
  }
  CHECK(said.find("has stopped: disk: full") != std::string::npos);
  CHECK(gpus.violations() == "");
  CHECK(gpus.leaks() == "");
  CHECK(nccl.violations() == "");
  CHECK(nccl.leaks() == "");
}
