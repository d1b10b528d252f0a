// Ranks that sleep instead of computing execute every schedule: dependencies first, without deadlock.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <xtrain/parallel/schedule/fold3d.hpp>
#include <xtrain/parallel/schedule/gpipe.hpp>
#include <xtrain/parallel/schedule/rendezvous.hpp>
#include <xtrain/parallel/schedule/variable_micro_batch.hpp>
#include <xtrain/parallel/schedule/zero_bubble.hpp>
#include <xtrain/testing/delayed_schedule.hpp>

using namespace xtrain;

namespace {

const pipeline_costs a_moment{.stages = {{.forward = {1e-4, 1e-5}, .backward_input = {1e-4, 1e-5}, .backward_weight = {1e-4, 1e-5}}}};

const timed_action& find(const pipeline_timeline& timeline, std::size_t rank, std::size_t chunk, std::size_t micro_batch, bool forth) {
  for (const timed_action& timed : timeline.ranks[rank]) {
    const pipeline_action& action = timed.action;
    if (action.chunk == chunk && action.micro_batch == micro_batch && (forth ? action.kind == action_kind::forward : makes_input_gradient(action.kind)))
      return timed;
  }
  FAIL("an action is missing");
  return timeline.ranks[0][0];
}

void is_in_order(const pipeline_schedule& schedule, const pipeline_timeline& timeline) {
  REQUIRE(timeline.ranks.size() == schedule.ranks());
  for (std::size_t rank = 0; rank < schedule.ranks(); ++rank) {
    REQUIRE(timeline.ranks[rank].size() == schedule.actions[rank].size());
    double before = 0;
    for (std::size_t i = 0; i < timeline.ranks[rank].size(); ++i) {
      const timed_action& timed = timeline.ranks[rank][i];
      REQUIRE(timed.action == schedule.actions[rank][i]);
      REQUIRE(timed.start >= before);
      REQUIRE(timed.end >= timed.start);
      if (is_work(timed.action.kind)) REQUIRE(timed.end - timed.start >= 1e-4);  // no sleep is shorter than requested
      before = timed.end;
    }
  }
  for (std::size_t i = 0; i < schedule.micro_batches(); ++i)
    for (std::size_t stage = 0; stage + 1 < schedule.stages(); ++stage) {
      const auto at = [&](std::size_t s, bool forth) { return find(timeline, schedule.rank_of(s), schedule.chunk_of(s), i, forth); };
      REQUIRE(at(stage, true).end <= at(stage + 1, true).start);
      REQUIRE(at(stage + 1, false).end <= at(stage, false).start);
    }
}

}  // namespace

TEST_CASE("every schedule ends, its actions in order, whether sends wait or not") {
  const std::vector<std::size_t> rows(8, 1);
  for (const pipeline_schedule& schedule :
       {gpipe_schedule(4, rows), one_forward_one_backward_schedule(4, rows), zero_bubble_schedule(4, rows), interleaved_schedule(4, 2, rows),
        fifo_schedule(4, 2, rows), all_in_all_out_schedule(4, 2, rows), variable_micro_batch_schedule(4, manual_micro_batches(4), 64, 4)}) {
    CAPTURE(schedule.name);
    is_in_order(schedule, testing::run_on_delays(schedule, a_moment));
    const pipeline_schedule moved = with_rendezvous(schedule);
    is_in_order(moved, testing::run_on_delays(moved, a_moment, send_mode::rendezvous));
  }
}

TEST_CASE("lists that would wait for ever are refused, not begun") {
  CHECK_THROWS_WITH_AS((void)testing::run_on_delays(interleaved_schedule(4, 2, std::vector<std::size_t>(8, 1)), a_moment, send_mode::rendezvous),
                       doctest::Contains("sends that wait must meet their receives"), config_error);
}
