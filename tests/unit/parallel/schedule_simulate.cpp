// Simulated timelines with messages, unequal stages, reductions and invalid costs.
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include <xtrain/parallel/schedule/fold3d.hpp>
#include <xtrain/parallel/schedule/gpipe.hpp>
#include <xtrain/parallel/schedule/one_forward_one_backward.hpp>
#include <xtrain/parallel/schedule/simulate.hpp>
#include <xtrain/parallel/schedule/zero_bubble.hpp>

using namespace xtrain;

namespace {

std::vector<std::size_t> equal_batch_sizes(std::size_t micro_batches, std::size_t rows = 1) {
  return std::vector<std::size_t>(micro_batches, rows);
}

stage_cost stage(double forward, double input, double weight, double reduce = 0) {
  return {.forward = {forward, 0}, .backward_input = {input, 0}, .backward_weight = {weight, 0}, .reduce = reduce};
}

std::string refusal(const pipeline_schedule& schedule, const pipeline_costs& costs, send_mode mode = send_mode::buffered) {
  try {
    (void)simulate_schedule(schedule, costs, mode);
  } catch (const config_error& problem) {
    return problem.what();
  }
  return "not refused";
}

}  // namespace

TEST_CASE("one micro-batch takes every stage and every message, one after the other") {
  const pipeline_timeline timeline =
      simulate_schedule(gpipe_schedule(3, {5}), {.stages = {stage(1, 2, 0), stage(10, 20, 0), stage(100, 200, 0)}, .message = {0.5, 0.1}});
  CHECK(timeline.step_time() == doctest::Approx(333 + 4 * (0.5 + 5 * 0.1)));
  CHECK(timeline.bubble(2) == doctest::Approx(1 - 300.0 / 337.0));
  // the first rank waits for its gradient once its output is sent
  const timed_action& wait = timeline.ranks[0][2];
  CHECK(wait.action.kind == action_kind::receive_backward);
  CHECK(wait.start == 1);
  CHECK(wait.end == doctest::Approx(335));
}

TEST_CASE("every action of every rank is timed, in order, and after what it needs") {
  const pipeline_schedule schedule = interleaved_schedule(4, 3, {3, 1, 4, 1, 5, 9, 2, 6});
  const pipeline_timeline timeline = simulate_schedule(
      schedule,
      {.stages = {{.forward = {.2, 1}, .backward_input = {.3, 1.1}, .backward_weight = {.1, .9}, .reduce = 7}}, .message = {.4, .05}});
  for (std::size_t rank = 0; rank < schedule.ranks(); ++rank) {
    REQUIRE(timeline.ranks[rank].size() == schedule.actions[rank].size());
    double clock = 0;
    for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
      const timed_action& timed = timeline.ranks[rank][i];
      REQUIRE(timed.action == schedule.actions[rank][i]);
      REQUIRE(timed.end >= timed.start);
      REQUIRE(timed.start >= clock);
      if (is_work(timed.action.kind) || is_receive(timed.action.kind)) clock = timed.end;
      if (!is_receive(timed.action.kind)) continue;
      bool sent = false;  // it has arrived when the receive ends, or earlier
      for (const timed_action& other : timeline.ranks[timed.action.peer])
        sent = sent ||
               (is_send(other.action.kind) && other.action.peer == rank && other.action.micro_batch == timed.action.micro_batch &&
                other.action.chunk == timed.action.peer_chunk && other.action.peer_chunk == timed.action.chunk && other.end <= timed.end);
      REQUIRE(sent);
    }
  }
}

TEST_CASE("messages of a channel follow one another, their latencies overlap") {
  // the first rank sends three micro-batches at 0: each occupies the link for 10, and arrives 3 later
  const pipeline_timeline timeline = simulate_schedule(gpipe_schedule(2, {1, 1, 1}), {.stages = {stage(0, 0, 0)}, .message = {3, 10}});
  std::vector<double> arrivals;
  for (const timed_action& timed : timeline.ranks[1])
    if (timed.action.kind == action_kind::receive_forward) arrivals.push_back(timed.end);
  CHECK(arrivals == std::vector<double>{13, 23, 33});
}

TEST_CASE("the slowest stage sets the pace") {
  const std::size_t count = 100;
  const pipeline_timeline timeline = simulate_schedule(one_forward_one_backward_schedule(3, equal_batch_sizes(count)),
                                                       {.stages = {stage(1, 1, 1), stage(2, 2, 2), stage(1, 1, 1)}});
  CHECK(timeline.step_time() == 6 * count + 4);  // a forward before its first, 1 until its first gradient, a backward after its last
  CHECK(timeline.bubble(1) < 0.02);
  CHECK(timeline.bubble(0) > 0.5);
}

TEST_CASE("all_in_all_out hides all reductions but the last") {
  const auto time = [](const pipeline_schedule& schedule, double reduce) {
    return simulate_schedule(schedule, {.stages = {stage(1, 1, 1, reduce)}}).step_time();
  };
  const std::size_t ranks = 4, chunks = 4;
  const double without = time(all_in_all_out_schedule(ranks, chunks, equal_batch_sizes(8)), 0);
  CHECK(time(all_in_all_out_schedule(ranks, chunks, equal_batch_sizes(8)), 16) == without + 16);      // 8 backwards of 2 hide each reduction
  CHECK(time(all_in_all_out_schedule(ranks, chunks, equal_batch_sizes(8)), 17) == without + 17 + 3);  // not completely hidden
  // the same stages in one chunk: all reductions at the end
  CHECK(simulate_schedule(one_forward_one_backward_schedule(ranks, equal_batch_sizes(8)), {.stages = {stage(4, 4, 4, 4 * 16)}}).step_time() ==
        12 * (8 + 3) + 4 * 16);
}

TEST_CASE("a time line without time has no bubble") {
  const pipeline_timeline timeline = simulate_schedule(zero_bubble_schedule(2, equal_batch_sizes(2)), {.stages = {stage(0, 0, 0)}});
  CHECK(timeline.step_time() == 0);
  CHECK(timeline.bubble() == 0);
  CHECK(timeline.bubble(1) == 0);
}

TEST_CASE("costs that are none are refused") {
  const pipeline_schedule schedule = one_forward_one_backward_schedule(3, equal_batch_sizes(4));
  CHECK(refusal(schedule, {}) == "one_forward_one_backward: costs must be given for one stage, or for each of 3; given 0");
  CHECK(refusal(schedule, {.stages = {stage(1, 1, 1), stage(1, 1, 1)}}).find("for each of 3; given 2") != std::string::npos);
  CHECK(refusal(schedule, {.stages = {stage(1, -1, 1)}}) ==
        "one_forward_one_backward: the cost of a backward_input must be non-negative; given -1");
  CHECK(refusal(schedule, {.stages = {stage(1, 1, 1, std::numeric_limits<double>::infinity())}}).find("cost of a reduce") !=
        std::string::npos);
  CHECK(
      refusal(schedule, {.stages = {stage(1, 1, 1)}, .message = {0, std::numeric_limits<double>::quiet_NaN()}}).find("cost of a message") !=
      std::string::npos);
}

TEST_CASE("sends that wait are refused where they would wait for ever") {
  CHECK(refusal(one_forward_one_backward_schedule(3, equal_batch_sizes(4)), {.stages = {stage(1, 1, 1)}}, send_mode::rendezvous)
            .find("with_rendezvous") != std::string::npos);
}
