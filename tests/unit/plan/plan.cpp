// The plan of an fp32 run equals the run, allocates nothing, can be printed, and refuses what does not fit.
#include <doctest/doctest.h>

#include <sys/resource.h>

#include <string>

#include <xtrain/testing/isolated.hpp>

#include "planned_run.hpp"

using namespace xtrain;

namespace {

struct recipe : defaults {};
using model_type = llama<recipe>;
using trainer_type = trainer<model_type>;

dry_run small_plan() { return plan<trainer_type>(planned_run::sizes(), {}, planned_run::settings(), cpu::properties{1}); }

}  // namespace

TEST_CASE("the plan of an fp32 run is what the run takes, whatever the number of threads and micro-batches") {
  constexpr planned_run::bytes_per_number each{.weight = 4, .gradient = 4, .optimizer = 8};
  const dry_run one = planned_run::check_memory<model_type>(each, {}, 1, cpu::context({.threads = 1}));
  const dry_run three = planned_run::check_memory<model_type>(each, {}, 3, cpu::context({.threads = 1}));
  const dry_run threads =
      planned_run::check_memory<model_type>(each, {}, 1, cpu::context({.executor = std::make_shared<thread_pool>(3)}));
  CHECK(one.bytes == three.bytes);  // micro-batches reuse the same memory
  CHECK(three.num_tokens == 3 * one.num_tokens);
  CHECK(threads.of(memory_role::stash) == one.of(memory_role::stash));
}

TEST_CASE("planning allocates nothing: a model that no machine holds is planned") {
  const decoder_config enormous{.vocab_size = 128'256,
                                .hidden_size = 16'384,
                                .num_layers = 126,
                                .num_heads = 128,
                                .num_kv_heads = 8,
                                .intermediate_size = 53'248,
                                .max_position_embeddings = 8'192,
                                .tie_word_embeddings = false};
  const auto resident = [] {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss;  // KiB
  };
  const long before = resident();
  const cpu::context on;
  const dry_run plan = xtrain::plan<trainer_type>(enormous, {}, {.max_steps = 1, .micro_batch_size = 1}, on.properties());
  CHECK(on.memory().allocations == 0);
  // host memory: one batch and the rotary table of 8192 · 128 fp32 values, 4 MiB; more with a sanitizer. Weights would be 1.5 TiB
  CHECK(resident() - before < 256 * 1024);
  // 405,853,388,800 parameters: embedding and head; per layer four matrices of attention, three of feed-forward, two norms
  const std::size_t c = 16'384, kv = 8 * 128, f = 53'248, v = 128'256;
  CHECK(plan.parameters == 2 * v * c + 126 * (2 * c * c + 2 * c * kv + 3 * c * f + 2 * c) + c);
  CHECK(plan.of(memory_role::weights) == 4 * plan.parameters + 8'192 * 128 * 4);
  CHECK(plan.of(memory_role::optimizer) == 8 * plan.parameters);
}

TEST_CASE("a run that does not fit is refused with what is needed, by role, and what there is") {
  const dry_run plan = small_plan();
  CHECK_NOTHROW(require_fit(plan, plan.total()));
  CHECK_THROWS_AS(require_fit(plan, plan.total() - 1), memory_error);
  const std::string needed = bytes_text(plan.total());
  CHECK_THROWS_WITH_AS(require_fit(plan, 100'000),
                       doctest::Contains(("memory: the run must fit 97.66 KiB; it needs " + needed + ":\n").c_str()), memory_error);
  for (const memory_role role :
       {memory_role::weights, memory_role::gradients, memory_role::optimizer, memory_role::stash, memory_role::workspace}) {
    CHECK_THROWS_WITH_AS(require_fit(plan, 100'000), doctest::Contains(bytes_text(plan.of(role)).c_str()), memory_error);
  }
}

TEST_CASE("the plan's text names every role that takes memory, with its bytes") {
  const dry_run plan = small_plan();
  const std::string text = plan_text(plan);
  INFO(text);
  std::size_t roles = 0;
  for (std::size_t r = 0; r < memory_roles; ++r) {
    const std::string line = concat("  ", name_of(static_cast<memory_role>(r)), " ");
    const std::size_t at = text.find("\n" + line);
    CHECK((at != std::string::npos) == (plan.bytes[r] > 0));
    if (at == std::string::npos) continue;
    ++roles;
    CHECK(text.substr(at + 1, text.find('\n', at + 1) - at - 1).ends_with(" " + bytes_text(plan.bytes[r])));
  }
  CHECK(roles == 6);  // weights, gradients, optimizer, stash, workspace, batch
  CHECK(text.starts_with(concat("parameters     ", plan.parameters, " (")));
  CHECK(text.find(concat("  total        ", bytes_text(plan.total()), "\n")) != std::string::npos);
  CHECK(text.find("a step of 36 tokens\n") != std::string::npos);  // 3 sequences of 12 tokens
  CHECK(text.find("\n    matmul ") != std::string::npos);
}

TEST_CASE("settings that contradict the sizes are refused by the plan as by the run") {
  training_config<adamw> how = planned_run::settings();
  how.seq_length = 100;
  CHECK_THROWS_WITH_AS((void)plan<trainer_type>(planned_run::sizes(), {}, how, cpu::properties{1}),
                       "seq_length: must not be longer than the model's 12 tokens; given 100", config_error);
  decoder_config wrong = planned_run::sizes();
  wrong.num_kv_heads = 3;
  CHECK_THROWS_WITH_AS((void)plan<trainer_type>(wrong, {}, planned_run::settings(), cpu::properties{1}),
                       "llama: num_heads (4) must be divisible by num_kv_heads (3)", config_error);
}

TEST_CASE("planning many micro-batches takes no longer than a few, and comes to the same as one after the other") {
  const auto planned = [](std::size_t accumulate) {
    return plan<trainer_type>(planned_run::sizes(), {}, planned_run::settings(accumulate), cpu::properties{1});
  };
  const dry_run eight = planned(8), nine = planned(9), many = planned(1000000);
  CHECK(nine.bytes == eight.bytes);
  CHECK(many.bytes == eight.bytes);
  CHECK(many.num_tokens == 1000000 * (nine.num_tokens - eight.num_tokens));
  REQUIRE(many.record.kernels.size() == eight.record.kernels.size());
  for (std::size_t i = 0; i < many.record.kernels.size(); ++i) {
    const kernel_count &a = eight.record.kernels[i], &b = nine.record.kernels[i], &c = many.record.kernels[i];
    CAPTURE(a.name);
    CHECK(c.runs == a.runs + (1000000 - 8) * (b.runs - a.runs));
    CHECK(c.operations == doctest::Approx(a.operations + (1e6 - 8) * (b.operations - a.operations)).epsilon(1e-12));
  }
}

TEST_CASE("what the host keeps is planned beside the device, and refused with it where they share memory") {
  const dry_run plan = small_plan();
  const std::size_t rows = 2 * (4 * sizeof(token) * 36 + sizeof(host_batch) + sizeof(batch_view));  // of two steps, each 3 sequences of 12
  CHECK(plan.host == rows);
  CHECK(plan_text(plan).find(concat("\n  host         ", bytes_text(rows), "\n")) != std::string::npos);
  const std::size_t all = plan.total() + plan.host;
  CHECK_NOTHROW(require_host_fit<cpu>(plan, 0, all));
  CHECK_THROWS_WITH_AS(
      require_host_fit<cpu>(plan, 0, all - 1),
      concat("memory: the run must fit the host's ", bytes_text(all - 1), "; batches of two steps and messages need ", bytes_text(rows),
             " of it, weights and passes ", bytes_text(plan.total()), ". Lower micro_batch_size, gradient_accumulation_steps or seq_length")
          .c_str(),
      memory_error);
  CHECK_THROWS_AS(require_host_fit<cpu>(plan, 1, all), memory_error);
  using apart = testing::isolated<cpu>;
  CHECK_NOTHROW(require_host_fit<apart>(plan, 0, plan.host));
  CHECK_THROWS_AS(require_host_fit<apart>(plan, 0, plan.host - 1), memory_error);
}

TEST_CASE("rows that the host cannot hold are refused before anything is made") {
  training_config<adamw> how = planned_run::settings();
  const auto refused = [&](std::size_t batch, std::size_t accumulate) {
    how.micro_batch_size = batch;
    how.gradient_accumulation_steps = accumulate;
    CHECK_THROWS_WITH_AS((void)plan<trainer_type>(planned_run::sizes(), {}, how, cpu::properties{1}),
                         doctest::Contains("memory: the global batch must fit the host's "), memory_error);
    model_type model(planned_run::sizes());
    CHECK_THROWS_AS(trainer_type(model, how), memory_error);
  };
  refused(1000000000000, 1);
  refused(1, 1000000000000);
  refused(~std::size_t{0}, ~std::size_t{0});
}
