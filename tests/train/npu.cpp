// Training on the device `npu`, on an AscendCL that stands in for a card's.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <xtrain/comm/hccl/hccl.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/device/npu/npu.hpp>
#include <xtrain/io.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/plan/run_layout.hpp>
#include <xtrain/testing/fake_ascend.hpp>
#include <xtrain/testing/fake_ascend_card.hpp>
#include <xtrain/testing/fake_hccl.hpp>
#include <xtrain/testing/gradient_parity.hpp>
#include <xtrain/train/checkpoint.hpp>
#include <xtrain/xtrain.hpp>
#include "device_runs.hpp"
#include "scratch.hpp"

using namespace xtrain;
using testing::fake_ascend;

namespace {

struct on_cpu : defaults {
  using precision = bf16_mixed;
};
struct on_npu : on_cpu {
  using device = npu;
};

using device_runs::data, device_runs::gpt2_sizes, device_runs::llama_sizes;

/// The losses of some steps and of an evaluation, then the weights.
template <class Model>
std::vector<double> run(Model& model) {
  std::vector<double> all = device_runs::losses(model, false, 3);
  std::vector<bf16> weights(model.parameters().trained_values().size());
  copy_to_host(model.stream(), std::span<bf16>(weights), model.parameters().trained_values());
  model.stream().synchronize();
  for (const bf16 w : weights) all.push_back(static_cast<double>(static_cast<float>(w)));
  return all;
}

template <template <class> class Family>
void check(const decoder_config& sizes) {
  Family<on_cpu> expected(sizes);
  const auto right = run(expected);
  for (const bool has_callbacks : {true, false}) {
    const fake_ascend card({.has_callbacks = has_callbacks});
    {
      const npu_context on = card.open();
      Family<on_npu> model(sizes, on);
      CHECK(run(model) == right);
      CHECK(on.host_runs_text().find("  linear_cross_entropy: ") != std::string::npos);
    }
    CHECK(card.violations() == "");
    CHECK(card.leaks() == "");
  }
}

}  // namespace

TEST_CASE("a LLaMA and a GPT-2 in bf16 train on npu with every kernel left to the host, to the cpu's bits") {
  check<llama>(llama_sizes);
  check<gpt2>(gpt2_sizes);
}

namespace {

template <class Parallel>
struct cpus : on_cpu {
  using parallel = Parallel;
};
template <class Parallel>
struct npus : on_npu {
  using parallel = Parallel;
};

/// The losses of some steps and of an evaluation.
template <class Model>
std::vector<double> losses(Model& model) {
  trainer trainer(model, {.max_steps = 3, .micro_batch_size = 2, .gradient_accumulation_steps = 1, .learning_rate = 3e-3});
  history seen;
  trainer.attach(seen);
  trainer.fit(data());
  std::vector<double> all(seen.losses().begin(), seen.losses().end());
  all.push_back(trainer.evaluate(data()).loss);
  return all;
}

/// Ranks with an NPU each, over HCCL, train to the bits of ranks on the cpu.
///   communicators   of a rank; 0: any number
template <class Parallel>
void check_ranks(std::size_t ranks, typename Parallel::config layout, std::size_t communicators = 0) {
  std::vector<std::vector<double>> right(ranks), got(ranks);
  const auto run = [&](const std::shared_ptr<transport>& network, auto&& of) {
    auto own = layout;
    own.ranks = network;
    return of(own);
  };
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    right[network->rank()] = run(network, [&](const auto& own) {
      llama<cpus<Parallel>> model(llama_sizes, {}, {.parallel = own});
      return losses(model);
    });
  });
  fake_ascend cards({.devices = static_cast<int>(ranks), .memory = std::size_t{2} << 30});
  testing::fake_hccl hccl(cards);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    const npu_context on = cards.open(static_cast<int>(network->rank()));
    got[network->rank()] = run(with_hccl(network, on, {.library = &hccl.library()}), [&](const auto& own) {
      llama<npus<Parallel>> model(llama_sizes, on, {.parallel = own});
      return losses(model);
    });
  });
  CHECK(got == right);
  CHECK(hccl.calls() > 0);
  if (communicators != 0) {
    CHECK(hccl.calls_of("HcclCommInitRootInfo") == ranks * communicators);
    CHECK(xtrain::detail::communicators_of({.pipeline_parallel_size = ranks}, 0) == communicators);
  }
  CHECK(cards.violations() == "");
  CHECK(cards.leaks() == "");
  CHECK(hccl.violations() == "");
  CHECK(hccl.leaks() == "");
}

std::vector<host_batch> batches(std::size_t number) {
  std::vector<host_batch> all;
  host_batch& batch = all.emplace_back(host_batch{.b = 2, .t = 12});
  batch.target_count = 24;
  for (std::size_t i = 0; i < 24; ++i) {
    batch.tokens.push_back(static_cast<token>((i * i + number) % 61));
    batch.targets.push_back(static_cast<token>(i % 61));
    batch.positions.push_back(static_cast<token>(i % 12));
  }
  return all;
}

}  // namespace

TEST_CASE("two ranks with ZeRO-3, and four with ZeRO and tensor parallelism, train on NPUs over HCCL to the bits of the cpu's ranks") {
  check_ranks<zero<3>>(2, {});
  check_ranks<parallel<zero<2>, tensor_parallel>>(4, {.tensor_parallel_size = 2});
}

TEST_CASE("a pipeline of two stages trains on NPUs over HCCL to the cpu's bits, with a communicator for each direction between the stages") {
  check_ranks<pipeline<>>(2, {}, 3);
}

TEST_CASE("a step makes the host wait once, and its copies are of pinned memory") {
  const fake_ascend card;
  {
    llama<on_npu> model(llama_sizes, card.open());
    trainer trainer(model, {.max_steps = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 1, .seq_length = 12});
    std::size_t before = 0;
    for (std::size_t number = 0; number < 3; ++number) {
      before = card.host_waits();
      const auto all = batches(number);
      (void)trainer.step(std::span<const host_batch>(all), 1e-2);
    }
    CHECK(card.host_waits() <= before + 1);  // none is counted where the host looks again after a while, and all is done
  }
  CHECK(card.violations() == "");
  CHECK(card.leaks() == "");
}

TEST_CASE("memory that runs out, a stream that fails, and a device that is lost in a step or in a save are clear errors; the checkpoint before stays whole") {
  enum class fault { memory, stream, device };
  for (const bool in_save : {false, true})
    for (const fault kind : {fault::memory, fault::stream, fault::device}) {
      CAPTURE(in_save);
      CAPTURE(static_cast<int>(kind));
      if (in_save && kind == fault::memory) continue;  // a save allocates nothing on the device
      const scratch_folder folder;
      std::vector<double> right, resumed;
      fake_ascend card;
      {
        llama<on_npu> model(llama_sizes, card.open());
        trainer trainer(model, {.max_steps = 6, .micro_batch_size = 2, .gradient_accumulation_steps = 1, .seq_length = 12});
        const auto step = [&](std::size_t number) {
          const auto all = batches(number);
          return trainer.step(std::span<const host_batch>(all), 1e-2).loss;
        };
        checkpoint_folder files(trainer, folder.path());
        (void)step(0);
        files.save();
        if (kind == fault::memory) {
          CHECK_THROWS_WITH_AS((buffer<npu>(model.context(), std::size_t{2} << 30, memory_role::stash)), doctest::Contains("npu: stash needs 2.00 GiB"),
                               memory_error);
        } else {
          if (kind == fault::stream) card.fail_work(in_save ? 1 : 20, npu_status::vector_core_exception);
          else card.lose_device(in_save ? 1 : 20);
          if (in_save) {
            CHECK_THROWS_AS(files.save(), error);
          } else {
            CHECK_THROWS_WITH_AS((void)step(1), doctest::Contains(kind == fault::stream ? "exception of a vector core" : "error of the driver"), npu_error);
          }
          CHECK_THROWS_AS((void)step(2), error);  // not a silent wrong result
        }
      }
      CHECK(card.violations() == "");
      CHECK(card.leaks() == "");
      CHECK(folder.files() == std::vector<std::string>{"checkpoint-1"});
    }
  // what is left is what was saved
  const scratch_folder folder;
  const auto train = [&](bool fails, bool resumes, std::vector<double>& seen) {
    fake_ascend card;
    llama<on_npu> model(llama_sizes, card.open());
    trainer trainer(model, {.max_steps = 6, .micro_batch_size = 2, .gradient_accumulation_steps = 1, .seq_length = 12});
    checkpoint_folder files(trainer, folder.path());
    if (resumes) (void)files.resume();
    for (std::size_t number = trainer.progress().updates; number < 4; ++number) {
      if (fails && number == 2) card.lose_device(30);
      const auto all = batches(number);
      seen.push_back(trainer.step(std::span<const host_batch>(all), 1e-2).loss);
      if (number == 1 && !resumes) files.save();
    }
  };
  std::vector<double> whole, cut, resumed;
  CHECK_THROWS_AS(train(true, false, cut), npu_error);
  train(false, true, resumed);
  std::filesystem::remove_all(folder / "checkpoint-2");
  train(false, false, whole);
  CHECK(cut == std::vector<double>(whole.begin(), whole.begin() + 2));
  CHECK(resumed == std::vector<double>(whole.begin() + 2, whole.end()));
}

namespace {

/// Trains on CANN's operators. Kernels round where the cpu's do, but sum in another order: an element may round to a neighbor in bf16.
template <template <class> class Family>
void check_operators(const decoder_config& sizes) {
  Family<on_cpu> expected(sizes);
  const auto right = losses(expected);
  std::size_t composed = 0;
  for (const bool is_fused : {false, true}) {
    testing::fake_ascend_card card;
    {
      const npu_context on = card.open({.is_fused = is_fused, .workspace_floor = 8192});
      Family<on_npu> model(sizes, on);
      const auto got = losses(model);
      REQUIRE(got.size() == right.size());
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - right[i]) <= dtype_traits<bf16>::unit_roundoff * right[i]);
      // the host computes the scalars of a step, and nothing else
      for (const npu_host_runs& one : on.host_runs()) CHECK((one.kernel == "update_step_scalars" || one.kernel == "adam_corrections"));
    }
    const std::size_t launches = card.operators().launches();
    MESSAGE((is_fused ? "fused" : "composed"), ": operators of three steps and an evaluation: ", launches);
    if (is_fused) CHECK(launches < composed);
    composed = launches;
    CHECK(card.violations() == "");
    CHECK(card.leaks() == "");
  }
}

}  // namespace

TEST_CASE("a LLaMA and a GPT-2 train on CANN's operators: losses differ from the cpu's by less than one rounding in bf16") {
  check_operators<llama>(llama_sizes);
  check_operators<gpt2>(gpt2_sizes);
}

TEST_CASE("gradients are compared by parameter: none where the host runs the kernels, roundings on operators; what differs is marked") {
  const host_batch rows = batches(0)[0];
  for (const bool has_operators : {false, true}) {
    testing::fake_ascend_card card;
    const npu_context on = has_operators ? card.open() : card.runtime().open();
    llama<on_npu> model(llama_sizes, on);
    llama<on_cpu> right(llama_sizes);
    const testing::gradient_parity found = testing::compare_gradients(model, right, rows);
    INFO(found.text(0.05));
    CHECK(found.parameters.size() > 10);
    if (has_operators) CHECK(found.largest() < 0.05);  // of sums of products that were rounded to bf16 (2^-9) in a few places
    else CHECK(found.largest() == 0);
    CHECK(found.text(0.05).find("!!!") == std::string::npos);
  }
  llama<on_cpu> right(llama_sizes), other(llama_sizes, {}, {.seed = 2});
  CHECK(testing::compare_gradients(other, right, rows).text(0.05).find("  !!! ") != std::string::npos);
}
