// A predicted step is the sum of its parts (kernels, messages, bubbles), checked by hand and by papers' formulas.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <xtrain/parallel.hpp>
#include <xtrain/parallel/schedule/bubble.hpp>
#include <xtrain/plan/machines.hpp>
#include <xtrain/plan/measure_machine.hpp>
#include <xtrain/plan/predict.hpp>

#include "planned_run.hpp"

using namespace xtrain;

namespace {

/// Round numbers: 1e6 operations and 1e6 bytes per second, fully reached; links of 1e3 and 1e2 bytes per second, four devices per node.
machine round_numbers() {
  machine m{.name = "round", .fp32 = 1e6, .memory_bandwidth = 1e6, .memory = 1000, .devices_per_node = 4, .inside = {1e3, 0}, .between = {1e2, 0}};
  m.matmul_share = m.bandwidth_share = m.link_share = 1;
  m.message = 0;
  return m;
}
/// A rank that computes for this many seconds.
dry_run working(double seconds) {
  dry_run r;
  r.record.count("matmul", 1e6 * seconds, 1);
  return r;
}

struct stages : defaults {
  using parallel = pipeline<interleaved, xtrain::parallel<zero<1>, tensor_parallel>>;
  using recompute = recompute_full;
};
struct orthogonal : defaults {
  using optimizer = muon;
};
struct rows : defaults {
  using parallel = zero<3>;
};
struct places : defaults {
  using parallel = xtrain::parallel<zero<1>, tensor_parallel, context_parallel>;
};
struct experts : defaults {
  using parallel = expert_parallel;
};
struct staged_experts : defaults {
  using parallel = pipeline<one_forward_one_backward, xtrain::parallel<zero<2>, expert_parallel>>;
};
struct sequence : defaults {
  using parallel = sequence_parallel;
};

double close(double value) { return 1e-9 * std::abs(value); }  // sums of a few hundred products: far above n · 2^-53
#define CHECK_CLOSE(a, b) CHECK(std::abs((a) - (b)) <= close(b))

}  // namespace

TEST_CASE("a kernel takes as long as its operations or its bytes, whichever is more, and its launch") {
  machine m = round_numbers();
  m.launch = 0.5;
  dry_run r;
  r.record.count("matmul", 3e6, 1e6);   // 3 s of operations
  r.record.count("swiglu", 1e6, 2e6);   // 2 s of bytes
  r.record.count("adamw", 1e5, 4e6);    // 4 s of bytes, once
  const predicted_step step = predict(r, {}, m, "fp32");
  CHECK_CLOSE(step.passes, 3 + 2 + 2 * 0.5);
  CHECK_CLOSE(step.update, 4 + 0.5);
  CHECK_CLOSE(step.seconds, 10.5);
  CHECK(step.layers + step.exchange == 0);
  CHECK_CLOSE(step.share_of_peak(3e6, 1, 1e6), 3 / 10.5);
  m.launch = 0;
  m.matmul_share = m.bandwidth_share = 0.5;
  CHECK_CLOSE(predict(r, {}, m, "fp32").seconds, 18.0);
  m.bf16 = 2 * m.fp32;  // products only
  CHECK_CLOSE(predict(r, {}, m, "bf16").seconds, 15.0);
  dry_run of_experts;
  of_experts.record.count("grouped_matmul", 3e6, 1);
  CHECK_CLOSE(predict(of_experts, {}, m, "bf16").seconds, 3.0);
  const std::string text = prediction_text(predict(r, {}, m, "fp32"));
  CHECK(text == "step           18000.0 ms\n  passes       10000.0 ms  55.6 %\n  update       8000.0 ms  44.4 %\n");
}

TEST_CASE("bubbles are those of the papers") {
  for (const std::size_t ranks : {2U, 4U, 8U})
    for (const std::size_t m : {8U, 32U}) {
      run_layout layout{.mesh = {.pipeline_parallel_size = ranks}, .micro_batches = m};
      const predicted_step one = predict(working(6), layout, round_numbers(), "fp32");
      CHECK_CLOSE(one.bubble / one.seconds, one_forward_one_backward_bubble(ranks, m));
      layout.chunks = 2;
      layout.schedule = interleaved::make;
      const predicted_step two = predict(working(6), layout, round_numbers(), "fp32");
      CHECK_CLOSE(two.bubble / two.seconds, interleaved_bubble(ranks, 2, m));
      layout.chunks = 1;
      layout.schedule = zero_bubble::make;
      const predicted_step parts = predict(working(6), layout, round_numbers(), "fp32");
      CHECK_CLOSE(parts.bubble / parts.seconds, zero_bubble_bubble(ranks, m, 1, 1, 1));
    }
}

TEST_CASE("the slowest stage sets the pace") {
  const std::vector<dry_run> ranks{working(8), working(8), working(16)};
  const run_layout layout{.mesh = {.pipeline_parallel_size = 4}, .micro_batches = 8};
  const predicted_step step = predict(ranks, layout, round_numbers(), "fp32");
  CHECK_CLOSE(step.passes, 16.0);
  CHECK_CLOSE(step.bubble, 3 * 1.0);  // three stages before it run forward and backward once: a second each
}

TEST_CASE("messages take the link that joins their ranks") {
  dry_run r = working(3);
  r.sent.of(traffic_role::tensor_parallel) = {3, 1000};  // to three others
  CHECK_CLOSE(predict(r, {.mesh = {.tensor_parallel_size = 4}}, round_numbers(), "fp32").layers, 1.0);
  r.sent.of(traffic_role::tensor_parallel) = {7, 700};  // to seven ranks: three in the node, 0.3 s; four outside, 4 s
  CHECK_CLOSE(predict(r, {.mesh = {.tensor_parallel_size = 8}}, round_numbers(), "fp32").layers, 4.0);
  machine slow = round_numbers();
  slow.between.latency = 2;
  r.sent.of(traffic_role::tensor_parallel).rounds = 1;
  CHECK_CLOSE(predict(r, {.mesh = {.tensor_parallel_size = 8}}, slow, "fp32").layers, 6.0);
  slow.message = 0.25;  // each of seven messages occupies the processor
  CHECK_CLOSE(predict(r, {.mesh = {.tensor_parallel_size = 8}}, slow, "fp32").layers, 7.75);
  machine wide = round_numbers();  // 128 ranks: seven halvings, seven latencies per piece
  wide.devices_per_node = 1;
  wide.between.latency = 0.5;
  r.sent.of(traffic_role::tensor_parallel) = {7, 100, 7, 1};
  CHECK_CLOSE(predict(r, {.mesh = {.tensor_parallel_size = 128}}, wide, "fp32").layers, 1.0 + 7 * 0.5);
  r.sent.of(traffic_role::tensor_parallel) = {60, 100, 60, 10};  // ten collectives of 64 ranks
  CHECK_CLOSE(predict(r, {.mesh = {.tensor_parallel_size = 64}}, wide, "fp32").layers, 1.0 + 60 * 0.5);
  // of 1500 bytes of 16 ranks, 800 and 400 go to neighbors in a node of four, 200 and 100 to other nodes, in successive rounds
  r.sent.of(traffic_role::tensor_parallel) = {4, 1500, 4, 1};
  CHECK_CLOSE(predict(r, {.mesh = {.tensor_parallel_size = 16}}, round_numbers(), "fp32").layers, 1.2 + 3.0);
  machine distant = round_numbers();
  distant.between.latency = 2;
  distant.inside.latency = 1;
  CHECK_CLOSE(predict(r, {.mesh = {.tensor_parallel_size = 16}}, distant, "fp32").layers, 1.2 + 3.0 + 2 * 1 + 2 * 2);
  r.sent = {};
  r.sent.of(traffic_role::context_parallel) = {3, 1000};  // context-parallel ranks four ranks apart are on different nodes
  CHECK_CLOSE(predict(r, {.mesh = {.context_parallel_size = 4}}, round_numbers(), "fp32").layers, 1.0);
  CHECK_CLOSE(predict(r, {.mesh = {.tensor_parallel_size = 4, .context_parallel_size = 4}}, round_numbers(), "fp32").layers, 10.0);
  r.sent = {};
  r.sent.of(traffic_role::expert_parallel) = {3, 1000};
  CHECK_CLOSE(predict(r, {.mesh = {.expert_parallel_size = 4}}, round_numbers(), "fp32").layers, 1.0);
  CHECK_CLOSE(predict(r, {.mesh = {.tensor_parallel_size = 4, .expert_parallel_size = 4}}, round_numbers(), "fp32").layers, 10.0);
  r.sent.of(traffic_role::expert_parallel) = {15, 1500};  // direct messages to 15 expert-parallel ranks, three on the node
  CHECK_CLOSE(predict(r, {.mesh = {.expert_parallel_size = 16}}, round_numbers(), "fp32").layers, 12.0);
  r.sent = {};
  r.sent.of(traffic_role::pipeline_parallel) = {4, 400};  // two micro-batches, both directions
  const double near = predict(r, {.mesh = {.pipeline_parallel_size = 2}, .micro_batches = 2}, round_numbers(), "fp32").seconds;
  const double far = predict(r, {.mesh = {.tensor_parallel_size = 4, .pipeline_parallel_size = 2}, .micro_batches = 2}, round_numbers(), "fp32").seconds;
  CHECK_CLOSE(near, 4.5 + 2 * 0.1);  // once forward, once backward: the rest overlaps compute
  CHECK_CLOSE(far, 4.5 + 2 * 1.0);
  r.sent.of(traffic_role::pipeline_parallel) = {8, 400};  // each in two messages
  CHECK_CLOSE(predict(r, {.mesh = {.pipeline_parallel_size = 2}, .micro_batches = 2, .stage_messages = 2}, round_numbers(), "fp32").seconds, near);
}

TEST_CASE("gradients are exchanged during the last backward, and what is left of them behind it") {
  dry_run r = working(6);  // two micro-batches: 1 s forward, 2 s backward
  run_layout layout{.mesh = {.data_parallel_size = 2}, .micro_batches = 2};
  r.sent.of(traffic_role::gradients) = {1, 2000};
  CHECK(predict(r, layout, round_numbers(), "fp32").exchange <= 1e-12);
  r.sent.of(traffic_role::gradients) = {1, 5000};
  CHECK_CLOSE(predict(r, layout, round_numbers(), "fp32").exchange, 3.0);
  SUBCASE("weights come back during the first forward of the next step") {
    layout.zero_stage = 1;
    r.sent.of(traffic_role::weights) = {1, 1000};
    CHECK_CLOSE(predict(r, layout, round_numbers(), "fp32").exchange, 3.0);
    r.sent.of(traffic_role::weights) = {1, 1500};  // complete after 1 s
    CHECK_CLOSE(predict(r, layout, round_numbers(), "fp32").exchange, 3.5);
    layout.zero_stage = 2;
    CHECK_CLOSE(predict(r, layout, round_numbers(), "fp32").exchange, 1.0 + 0.5);
  }
  SUBCASE("of every micro-batch") {
    layout.zero_stage = 2;
    CHECK_CLOSE(predict(r, layout, round_numbers(), "fp32").exchange, 1.0);  // of 4 s of backwards
  }
  SUBCASE("weights come before every pass") {
    layout.zero_stage = 3;
    r.sent.of(traffic_role::weights) = {2, 2000};
    CHECK_CLOSE(predict(r, layout, round_numbers(), "fp32").exchange, 1.0);  // of 6 s of passes
  }
}

TEST_CASE("weights are waited for where a stage's first forward would be done before they are back") {
  const dry_run light = working(6);
  dry_run heavy = light;  // 1 s forward
  heavy.sent.of(traffic_role::weights) = {1, 3000};
  run_layout layout{.mesh = {.data_parallel_size = 2, .pipeline_parallel_size = 2}, .micro_batches = 2, .zero_stage = 1};
  CHECK_CLOSE(predict(std::vector{heavy, heavy}, layout, round_numbers(), "fp32").exchange, 2.0);
  CHECK_CLOSE(predict(std::vector{light, heavy}, layout, round_numbers(), "fp32").exchange, 1.0);  // 2 s after the step began
  layout.chunks = 2;  // half a second forward; the first stage's second chunk is done after 1.5 s
  layout.schedule = interleaved::make;
  CHECK_CLOSE(predict(heavy, layout, round_numbers(), "fp32").exchange, 1.5);
}

TEST_CASE("gradients of what neighbours with other experts all have are added up among these, others among those that hold the same") {
  dry_run r = working(6);                         // 4 s backward
  r.sent.of(traffic_role::partial_sums) = {3, 2000};     // to three adjacent ranks
  r.sent.of(traffic_role::gradients) = {1, 300};  // to the other node
  const run_layout layout{.mesh = {.data_parallel_size = 2, .expert_parallel_size = 4}};
  CHECK_CLOSE(predict(r, layout, round_numbers(), "fp32").exchange, 2.0 + 3.0 - 4.0);
}

TEST_CASE("keys and values go round while attention is computed, but in the last turn") {
  dry_run r;
  r.record.count("attention_block", 3e6, 1);
  r.record.count("attention_block_backward", 1e6, 1);
  r.sent.of(traffic_role::context_parallel) = {2, 3000};
  run_layout layout{.mesh = {.context_parallel_size = 2}, .ring = true};
  const predicted_step near = predict(r, layout, round_numbers(), "fp32");
  CHECK_CLOSE(near.passes, 4.0);
  CHECK_CLOSE(near.layers, 3.0 - 4.0 / 2);
  layout.mesh.tensor_parallel_size = 4;  // neighbors in the ring are on other nodes
  CHECK_CLOSE(predict(r, layout, round_numbers(), "fp32").layers, 30.0 - 4.0 / 2);
  layout.mesh = {.context_parallel_size = 8};  // some are
  CHECK_CLOSE(predict(r, layout, round_numbers(), "fp32").layers, 30.0 - 4.0 * 7 / 8);
  layout.mesh = {.context_parallel_size = 2};
  layout.ring = false;
  CHECK_CLOSE(predict(r, layout, round_numbers(), "fp32").layers, 3.0);
  machine m = round_numbers();
  m.bf16 = 2 * m.fp32;
  CHECK_CLOSE(predict(r, layout, m, "bf16").passes, 2.0);  // products
}

TEST_CASE("a rehearsal of some micro-batches tells of many") {
  using trainer_type = trainer<llama<defaults>>;
  const auto planned = [](std::size_t m) {
    return plan<trainer_type>(planned_run::sizes(), {}, planned_run::settings(m), cpu::properties{1});
  };
  const dry_run two = planned(2), eight = planned(8);
  const machine m = round_numbers();
  const predicted_step whole = predict(eight, {.micro_batches = 8}, m, "fp32");
  const predicted_step scaled = predict(std::span<const dry_run>(&two, 1), {.micro_batches = 8}, m, "fp32", 2);
  CHECK_CLOSE(scaled.update, whole.update);
  // gradients are zeroed once per step, here four times: 1/1000 of a pass's bytes
  CHECK(scaled.passes >= whole.passes);
  CHECK(scaled.passes <= 1.01 * whole.passes);
}

TEST_CASE("what muon multiplies is counted once per step, however many micro-batches the rehearsal has") {
  const auto planned = [](std::size_t m) {
    return plan<trainer<llama<orthogonal>>>(planned_run::sizes(), {},
                                            training_config<muon>{.max_steps = 3, .micro_batch_size = 3, .gradient_accumulation_steps = m},
                                            cpu::properties{1});
  };
  const dry_run one = planned(1), eight = planned(8), many = planned(64);
  CHECK(one.update.of("matmul").runs == 5 * 3 * 7 * 3);  // of five iterations, for seven matrices of three layers
  CHECK(many.update.of("matmul").operations == one.update.of("matmul").operations);
  const machine m = round_numbers();
  const predicted_step whole = predict(eight, {.micro_batches = 8}, m, "fp32");
  const predicted_step scaled = predict(std::span<const dry_run>(&one, 1), {.micro_batches = 8}, m, "fp32", 1);
  CHECK_CLOSE(scaled.update, whole.update);
  CHECK(scaled.update > predict(plan<trainer<llama<defaults>>>(planned_run::sizes(), {}, planned_run::settings(1), cpu::properties{1}), {}, m, "fp32").update);
  CHECK(scaled.passes >= whole.passes);
  CHECK(scaled.passes <= 1.02 * whole.passes);  // gradients are zeroed once per step, here eight times
}

TEST_CASE("recipes say how they divide a run") {
  const run_layout deep = layout_of<stages>(
      {.ranks = std::make_shared<dry_transport>(0, 48), .data_parallel_size = 2, .tensor_parallel_size = 4, .chunks = 3}, 12);
  CHECK(deep.mesh == mesh_sizes{.data_parallel_size = 2, .tensor_parallel_size = 4, .pipeline_parallel_size = 6});
  CHECK(deep.chunks == 3);
  CHECK(deep.zero_stage == 1);
  CHECK(deep.micro_batches == 12);
  CHECK(deep.forward_share == 0.25);
  CHECK((deep.schedule == interleaved::make));
  CHECK(layout_of<rows>({.ranks = std::make_shared<dry_transport>(0, 6)}, 1).mesh == mesh_sizes{.data_parallel_size = 6});
  CHECK(layout_of<rows>({}, 1).zero_stage == 3);
  CHECK(layout_of<places>({.ranks = std::make_shared<dry_transport>(0, 24), .tensor_parallel_size = 2, .context_parallel_size = 3}, 1).mesh ==
        mesh_sizes{.data_parallel_size = 4, .tensor_parallel_size = 2, .context_parallel_size = 3});
  CHECK(layout_of<experts>({.ranks = std::make_shared<dry_transport>(0, 24), .expert_parallel_size = 8}, 1).mesh ==
        mesh_sizes{.data_parallel_size = 3, .expert_parallel_size = 8});
  CHECK(layout_of<staged_experts>({.ranks = std::make_shared<dry_transport>(0, 24), .data_parallel_size = 12, .expert_parallel_size = 4}, 1).mesh ==
        mesh_sizes{.data_parallel_size = 3, .pipeline_parallel_size = 2, .expert_parallel_size = 4});
  CHECK(layout_of<sequence>({.ranks = std::make_shared<dry_transport>(0, 4), .tensor_parallel_size = 4}, 1).has_sequence_parallel);
  CHECK(!layout_of<places>({}, 1).has_sequence_parallel);
  CHECK(layout_of<defaults>({}, 1).mesh.ranks() == 1);
  CHECK_THROWS_AS((void)layout_of<stages>({.ranks = std::make_shared<dry_transport>(0, 6), .tensor_parallel_size = 4}, 1), config_error);
}

TEST_CASE("machines that are known make sense, and one can be measured") {
  for (const char* name : {"a100", "h100", "h200", "910b", "s4000"}) {
    const machine m = machine_named(name);
    CHECK(m.name == name);
    CHECK_NOTHROW(require_machine(m));
    CHECK(m.peak("bf16") > m.peak("fp32"));
    CHECK(m.inside.bandwidth > m.between.bandwidth);
  }
  CHECK_THROWS_WITH_AS((void)machine_named("tpu"), "machine: must be a100, h100, h200, 910b or s4000; given tpu", config_error);
  const machine here = measure_machine(cpu::context());
  CHECK_NOTHROW(require_machine(here));
  CHECK(here.memory > 0);
}

TEST_CASE("what makes no sense is refused") {
  machine m = round_numbers();
  CHECK_THROWS_WITH_AS((void)predict(working(1), {}, m, "fp16"), "machine round: must compute in fp16; it does not", config_error);
  CHECK_THROWS_WITH_AS((void)predict(std::span<const dry_run>(), {}, m, "fp32"),
                       "predict: dry runs must be of at least one rank, and at most of the 1 ranks of a pipeline; given 0", config_error);
  m.link_share = 0;
  CHECK_THROWS_WITH_AS(require_machine(m), "machine round: link_share must be above 0 and at most 1; given 0", config_error);
  m = round_numbers();
  m.memory_bandwidth = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(require_machine(m), config_error);
  m = round_numbers();
  m.between.bandwidth = 0;
  dry_run r = working(1);
  r.sent.of(traffic_role::gradients) = {7, 700};
  CHECK_THROWS_WITH_AS((void)predict(r, {.mesh = {.data_parallel_size = 8}}, m, "fp32"),
                       "machine round: must have a link for what ranks send; its bandwidth is 0", config_error);
}
