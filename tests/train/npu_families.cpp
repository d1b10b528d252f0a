// The families of the Ascend documents on CANN's operators and HCCL, which stand in for a card's: results against the cpu's, what a step costs, lost ranks.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <xtrain/comm/hccl/hccl.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/device/npu/npu.hpp>
#include <xtrain/io.hpp>
#include <xtrain/models/families.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/plan/run_layout.hpp>
#include <xtrain/testing/fake_ascend_card.hpp>
#include <xtrain/testing/fake_hccl.hpp>
#include <xtrain/train/checkpoint.hpp>
#include <xtrain/xtrain.hpp>
#include "scratch.hpp"

using namespace xtrain;
using testing::fake_ascend_card;
using testing::fake_hccl;

namespace {

struct on_cpu : defaults {
  using precision = bf16_mixed;
};
using sharded = parallel<zero<3>, tensor_parallel>;
struct on_npu : on_cpu {
  using device = npu;
  using parallel = sharded;
};
struct lora_on_cpu : on_cpu {
  using adapter = lora;
};
struct lora_on_npu : lora_on_cpu {
  using device = npu;
};

/// Sizes that four ranks divide.
template <class Family>
decoder_config sizes() {
  return {.vocab_size = 64,
          .hidden_size = 32,
          .num_layers = 2,
          .num_heads = 4,
          .intermediate_size = 128,
          .max_position_embeddings = 24,
          .family = &info_of<Family>};
}
decoder_config grouped(decoder_config of) {
  of.num_kv_heads = 2;
  return of;
}
/// Baichuan-13B: ALiBi; Baichuan 2: a normalized head and a z-loss.
decoder_config baichuan_13b() {
  decoder_config of = sizes<baichuan_family>();
  of.alibi = of.normalized_head = true;
  of.tie_word_embeddings = false;
  of.z_loss = 2e-4;
  return of;
}

host_batch batch_of(std::size_t number) {
  host_batch batch{.b = 2, .t = 12};
  batch.target_count = 24;
  for (std::size_t i = 0; i < 24; ++i) {
    batch.tokens.push_back(static_cast<token>((i * i + number) % 61));
    batch.targets.push_back(static_cast<token>((i * i + 2 * i + 1 + number) % 61));
    batch.positions.push_back(static_cast<token>(i % 12));
  }
  return batch;
}

const training_config<adamw> steps_of_a_run{.max_steps = 8, .micro_batch_size = 2, .gradient_accumulation_steps = 1, .seq_length = 12};

template <class Trainer>
double step(Trainer& trainer, std::size_t number) {
  const host_batch rows = batch_of(number);
  return trainer.step(std::span<const host_batch>(&rows, 1), 2e-3).loss;
}
/// The losses of some steps with the same batch, on every rank.
///   before_last   called before the last step
template <class Model>
std::vector<double> losses(Model& model, std::size_t steps = 4, const std::function<void()>& before_last = {}) {
  trainer trainer(model, steps_of_a_run);
  std::vector<double> all;
  for (std::size_t number = 0; number < steps; ++number) {
    if (number + 1 == steps && before_last) before_last();
    all.push_back(step(trainer, 0));
  }
  return all;
}

/// Kernels round where the cpu's do, but sum in another order: an element of an activation may round to a neighbor in bf16, and parts of products that ranks
/// add are rounded to bf16 once more.
void check_close(const std::vector<double>& got, const std::vector<double>& right, double roundings) {
  REQUIRE(got.size() == right.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(got[i] - right[i]) <= roundings * dtype_traits<bf16>::unit_roundoff * right[i]);
  }
}
/// The host computes the scalars of a step; of ranks also sums of a few numbers, and softmax over a vocabulary that they divide.
void check_host_runs(const npu_context& on, bool is_rank = false) {
  for (const npu_host_runs& one : on.host_runs()) {
    CAPTURE(one.kernel);
    CHECK((one.kernel == "update_step_scalars" || one.kernel == "adam_corrections" ||
           (is_rank && (one.kernel == "sum" || one.kernel == "softmax_part" || one.kernel == "softmax_of_parts"))));
  }
}

/// One NPU, composed and with fused operators.
template <class Npu, class Cpu>
void check_one(const decoder_config& of, const typename any_decoder<Npu>::options& options = {}, const typename any_decoder<Cpu>::options& right_options = {}) {
  CAPTURE(std::string(of.family->name));
  any_decoder<Cpu> expected(of, {}, right_options);
  const auto right = losses(expected);
  CHECK(right.back() < right.front());
  std::size_t composed = 0;
  for (const bool is_fused : {false, true}) {
    CAPTURE(is_fused);
    fake_ascend_card card;
    std::size_t launches = 0, waits = 0;
    {
      const npu_context on = card.open({.is_fused = is_fused, .workspace_floor = 8192});
      any_decoder<Npu> model(of, on, options);
      check_close(losses(model, right.size(),
                         [&] {
                           launches = card.operators().launches();
                           waits = card.runtime().host_waits();
                         }),
                  right, 1);
      launches = card.operators().launches() - launches;
      waits = card.runtime().host_waits() - waits;
      check_host_runs(on);
    }
    MESSAGE(std::string(of.family->name), is_fused ? std::string(", fused: ") : std::string(", composed: "), launches, " operators in a step");
    CHECK(waits <= 1);  // none is counted where the host looks again after a while, and all is done
    if (is_fused) CHECK(launches < composed);
    composed = launches;
    CHECK(card.violations() == "");
    CHECK(card.leaks() == "");
  }
}

struct ranks_cost {
  std::size_t launches = 0, waits = 0, hccl_calls = 0;
};

/// Ranks with an NPU each: the same batches on all, so losses are one rank's.
void check_ranks(const decoder_config& of, std::size_t ranks, std::size_t tensor_parallel_size, double roundings) {
  CAPTURE(std::string(of.family->name));
  any_decoder<on_cpu> expected(of);
  const auto right = losses(expected);
  fake_ascend_card cards({.devices = static_cast<int>(ranks), .memory = std::size_t{2} << 30});
  fake_hccl hccl(cards.runtime());
  std::vector<std::vector<double>> got(ranks);
  ranks_cost before, after;
  const auto count = [&] { return ranks_cost{cards.operators().launches(), cards.runtime().host_waits(), hccl.calls()}; };
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    const npu_context on = cards.open({.workspace_floor = 8192}, static_cast<int>(network->rank()));
    group all(network);
    const auto together = [&](ranks_cost& into) {
      all.barrier();
      if (network->rank() == 0) into = count();
      all.barrier();
    };
    any_decoder<on_npu> model(of, on,
                              {.parallel = {.ranks = with_hccl(network, on, {.library = &hccl.library()}), .tensor_parallel_size = tensor_parallel_size}});
    got[network->rank()] = losses(model, right.size(), [&] { together(before); });
    together(after);
    check_host_runs(on, true);
  });
  for (const auto& one : got) check_close(one, right, roundings);
  MESSAGE(std::string(of.family->name), ", ", ranks, " ranks, tensor parallel ", tensor_parallel_size, ": of a rank in a step ",
          (after.launches - before.launches) / ranks, " operators, ", (after.hccl_calls - before.hccl_calls) / ranks, " calls of HCCL");
  CHECK(after.waits - before.waits <= ranks);
  const mesh_sizes mesh{.data_parallel_size = ranks / tensor_parallel_size, .tensor_parallel_size = tensor_parallel_size};
  CHECK(hccl.calls_of("HcclCommInitRootInfo") == ranks * xtrain::detail::communicators_of(mesh, 0));
  CHECK(after.hccl_calls > before.hccl_calls);
  CHECK(cards.violations() == "");
  CHECK(cards.leaks() == "");
  CHECK(hccl.violations() == "");
  CHECK(hccl.leaks() == "");
}

}  // namespace

TEST_CASE("LLaMA, Baichuan-13B, Qwen2, Bloom and ChatGLM train on CANN's operators, to one rounding in bf16; a step makes the host wait once") {
  check_one<on_npu, on_cpu>(grouped(sizes<llama_family>()));
  check_one<on_npu, on_cpu>(baichuan_13b());
  check_one<on_npu, on_cpu>(grouped(sizes<qwen2_family>()));
  check_one<on_npu, on_cpu>(sizes<bloom_family>());
  check_one<on_npu, on_cpu>(grouped(sizes<chatglm_family>()));
}

TEST_CASE("ChatGLM and Baichuan train with LoRA on CANN's operators, to one rounding in bf16") {
  check_one<lora_on_npu, lora_on_cpu>(grouped(sizes<chatglm_family>()), {.adapter = {.rank = 4}}, {.adapter = {.rank = 4}});
  check_one<lora_on_npu, lora_on_cpu>(baichuan_13b(), {.adapter = {.rank = 4}}, {.adapter = {.rank = 4}});
}

TEST_CASE("ZeRO-3 on two NPUs, tensor parallelism on four, and both, train on CANN's operators over HCCL to the cpu's losses; each rank waits once a step") {
  check_ranks(grouped(sizes<qwen2_family>()), 2, 1, 1);
  check_ranks(sizes<bloom_family>(), 4, 4, 2);
  check_ranks(baichuan_13b(), 4, 4, 2);
  check_ranks(sizes<llama_family>(), 4, 2, 2);
}

namespace {

enum class fault { none, memory, call, rank, stream, device };

/// What an entry of the runtime does when memory has run out.
struct stingy_runtime {
  explicit stingy_runtime(const npu_runtime& real) : table(real) {
    allocate() = real.allocate;
    is_full() = false;
    table.allocate = [](void** memory, std::size_t bytes, std::int32_t policy) {
      return is_full() ? npu_status::out_of_memory : allocate()(memory, bytes, policy);
    };
  }
  static std::atomic<bool>& is_full() {
    static std::atomic<bool> one{false};
    return one;
  }
  static int (*&allocate())(void**, std::size_t, std::int32_t) {
    static int (*one)(void**, std::size_t, std::int32_t) = nullptr;
    return one;
  }
  npu_runtime table;
};

struct run_seen {
  std::vector<std::string> said{"", ""};  // by each rank, at its end
  std::vector<double> losses{};           // of rank 0
};

/// Two ranks with ZeRO-3, four steps, a checkpoint after the second; a fault in the third step, or in the save that follows it.
run_seen run_two(const scratch_folder& folder, fault kind, bool in_save, bool resumes) {
  run_seen seen;
  fake_ascend_card cards({.devices = 2, .memory = std::size_t{2} << 30});
  fake_hccl hccl(cards.runtime());
  const stingy_runtime runtime(cards.runtime().runtime());
  const auto arm = [&] {
    switch (kind) {
      case fault::memory: stingy_runtime::is_full() = true; break;
      case fault::call: hccl.fail_call(2, hccl_status::timeout); break;
      case fault::rank: hccl.fail_rank(1, hccl_status::remote); break;
      case fault::stream: cards.runtime().fail_work(in_save ? 1 : 100, npu_status::vector_core_exception); break;
      case fault::device: cards.runtime().lose_device(in_save ? 1 : 100); break;
      case fault::none: break;
    }
  };
  try {
    run_ranks(2, [&](const std::shared_ptr<transport>& network) {
      const std::size_t rank = network->rank();
      try {
        group all(network);
        const auto arm_at = [&](bool now) {
          if (!now || kind == fault::none) return;
          all.barrier();
          if (rank == 0) arm();
          all.barrier();
        };
        const npu_context on(npu_config{.device = static_cast<int>(rank),
                                        .operator_settings = {.workspace_floor = 8192},
                                        .runtime = &runtime.table,
                                        .operators = &cards.operators().table()});
        any_decoder<on_npu> model(sizes<qwen2_family>(), on, {.parallel = {.ranks = with_hccl(network, on, {.library = &hccl.library()})}});
        trainer trainer(model, steps_of_a_run);
        checkpoint_folder files(trainer, folder.path());
        if (resumes) CHECK(files.resume());
        if (kind == fault::memory) files.save();  // HCCL's sums get their memory in the first step
        arm_at(kind == fault::memory);
        for (std::size_t number = trainer.progress().updates; number < 4; ++number) {
          arm_at(number == 2 && !in_save && kind != fault::memory);
          const double loss = step(trainer, number);
          if (rank == 0) seen.losses.push_back(loss);
          if (number == 1 && !resumes) files.save();
          arm_at(number == 2 && in_save);
          if (number == 2 && in_save) files.save();
        }
      } catch (const std::exception& problem) {
        seen.said[rank] = problem.what();
        throw;
      }
    });
  } catch (const std::exception&) {
  }
  stingy_runtime::is_full() = false;
  CHECK(cards.violations() == "");
  CHECK(cards.leaks() == "");
  CHECK(hccl.violations() == "");
  CHECK(hccl.leaks() == "");
  return seen;
}

}  // namespace

TEST_CASE("two ranks over HCCL: memory that runs out, HCCL that gives up, a rank or a stream that fails, a lost device, in a step or a save, end both ranks "
          "with errors; the checkpoint before stays whole") {
  const scratch_folder whole;
  const run_seen right = run_two(whole, fault::none, false, false);
  CHECK(right.said == std::vector<std::string>(2));
  REQUIRE(right.losses.size() == 4);
  const auto check = [&](fault kind, bool in_save, const std::string& sentence) {
    CAPTURE(static_cast<int>(kind));
    CAPTURE(in_save);
    const scratch_folder folder;
    const run_seen cut = run_two(folder, kind, in_save, false);
    for (const std::string& one : cut.said) CHECK(one != "");
    CHECK_MESSAGE((cut.said[0].find(sentence) != std::string::npos || cut.said[1].find(sentence) != std::string::npos), cut.said[0], "\n", cut.said[1]);
    const std::size_t saved = kind == fault::memory ? 0 : 2;
    CHECK(folder.files() == std::vector<std::string>{concat("checkpoint-", saved)});
    const run_seen resumed = run_two(folder, fault::none, false, true);
    CHECK(resumed.said == std::vector<std::string>(2));
    CHECK(resumed.losses == std::vector<double>(right.losses.begin() + static_cast<std::ptrdiff_t>(saved), right.losses.end()));
  };
  check(fault::memory, false, "npu: ");
  check(fault::call, false, "hccl: ");
  check(fault::rank, false, "hccl: ");
  for (const bool in_save : {false, true}) {
    check(fault::stream, in_save, "exception of a vector core (507035)");
    check(fault::device, in_save, "error of the driver (507899)");
  }
}
