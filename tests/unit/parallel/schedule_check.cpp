// The checker, given incorrect schedules: errors name rank, action and rule.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/check.hpp>
#include <xtrain/parallel/schedule/fold3d.hpp>
#include <xtrain/parallel/schedule/gpipe.hpp>
#include <xtrain/parallel/schedule/interleaved.hpp>
#include <xtrain/parallel/schedule/simulate.hpp>
#include <xtrain/parallel/schedule/zero_bubble.hpp>

using namespace xtrain;

namespace {

std::string verdict(const pipeline_schedule& schedule) {
  try {
    (void)check_schedule(schedule);
  } catch (const config_error& problem) {
    return problem.what();
  }
  return "right";
}

bool says(const std::string& verdict, const std::string& part) { return verdict.find(part) != std::string::npos; }

std::string place_text(std::size_t rank, std::size_t index, const pipeline_action& action) {
  return concat("rank ", rank, ", action ", index, ": ", action_text(action));
}

/// A few of each kind, small enough to break each action.
std::vector<pipeline_schedule> some_schedules() {
  const std::vector<std::size_t> rows = {1, 2, 3, 4};
  return {gpipe_schedule(3, rows),
          one_forward_one_backward_schedule(3, rows),
          interleaved_schedule(2, 2, rows),
          interleaved_schedule(4, 3, rows),
          all_in_all_out_schedule(2, 3, rows),
          all_in_all_out_schedule(1, 3, rows),
          zero_bubble_schedule(4, rows),
          zero_bubble_schedule(1, rows)};
}

template <class Visit>
void for_each_action(Visit&& visit) {
  for (const pipeline_schedule& schedule : some_schedules())
    for (std::size_t rank = 0; rank < schedule.ranks(); ++rank)
      for (std::size_t i = 0; i < schedule.actions[rank].size(); ++i) {
        CAPTURE(concat(schedule.name, ", ", place_text(rank, i, schedule.actions[rank][i])));
        visit(schedule, rank, i);
      }
}

auto at(std::vector<pipeline_action>& list, std::size_t index) { return list.begin() + static_cast<std::ptrdiff_t>(index); }

std::size_t first(const pipeline_schedule& schedule, std::size_t rank, action_kind kind) {
  const auto& list = schedule.actions[rank];
  std::size_t i = 0;
  while (list[i].kind != kind) ++i;
  return i;
}

}  // namespace

TEST_CASE("a dropped action is missed, whichever it is") {
  for_each_action([](pipeline_schedule schedule, std::size_t rank, std::size_t index) {
    auto& list = schedule.actions[rank];
    list.erase(at(list, index));
    const std::string what = verdict(schedule);
    REQUIRE(what != "right");
    REQUIRE(says(what, concat("rank ", rank)));
  });
}

TEST_CASE("an action that comes twice is refused, whichever it is") {
  for_each_action([](pipeline_schedule schedule, std::size_t rank, std::size_t index) {
    auto& list = schedule.actions[rank];
    const pipeline_action twice = list[index];
    list.insert(at(list, index), twice);
    REQUIRE(verdict(schedule) == concat(schedule.name, ": an action must come once; given ", place_text(rank, index + 1, twice)));
  });
}

TEST_CASE("a misplaced action is refused, or does no harm") {
  std::size_t refused = 0, harmless = 0;
  for_each_action([&](pipeline_schedule schedule, std::size_t rank, std::size_t index) {
    auto& list = schedule.actions[rank];
    for (const std::size_t to : {std::size_t{0}, index / 2, index + 1, list.size() - 1}) {
      if (to >= list.size() || to == index) continue;
      pipeline_schedule other = schedule;
      std::swap(other.actions[rank][index], other.actions[rank][to]);
      if (verdict(other) != "right") {
        ++refused;
        continue;
      }
      ++harmless;
      const pipeline_timeline timeline =
          simulate_schedule(other, {.stages = {{.forward = {1, 0}, .backward_input = {1, 0}, .backward_weight = {1, 0}}}});
      for (std::size_t i = 0; i < other.ranks(); ++i) REQUIRE(timeline.ranks[i].size() == other.actions[i].size());
    }
  });
  CHECK(refused > 1000);
  CHECK(harmless > 100);
}

TEST_CASE("an action of a micro-batch, chunk or kind that does not exist is refused, whichever it is") {
  for_each_action([](const pipeline_schedule& schedule, std::size_t rank, std::size_t index) {
    for (const std::size_t wrong : {schedule.chunks, schedule.micro_batches(), ~std::size_t{0}}) {
      pipeline_schedule other = schedule;
      pipeline_action& action = other.actions[rank][index];
      if (wrong >= schedule.micro_batches()) {
        action.micro_batch = wrong;
        REQUIRE(says(verdict(other), concat("micro-batches and chunks must exist; given rank ", rank, ", action ", index)));
      }
      if (wrong >= schedule.chunks) {
        action = schedule.actions[rank][index];
        action.chunk = wrong;
        REQUIRE(says(verdict(other), concat("micro-batches and chunks must exist; given rank ", rank, ", action ", index)));
      }
    }
    pipeline_schedule other = schedule;
    other.actions[rank][index].kind = static_cast<action_kind>(200);
    REQUIRE(says(verdict(other), concat("rank ", rank, ", action ", index, ": unknown kind of action")));
  });
}

TEST_CASE("a message to anyone but a neighbouring stage is refused") {
  for_each_action([](const pipeline_schedule& schedule, std::size_t rank, std::size_t index) {
    if (!is_message(schedule.actions[rank][index].kind)) return;
    for (const bool wrong_rank : {true, false}) {
      pipeline_schedule other = schedule;
      pipeline_action& action = other.actions[rank][index];
      ++(wrong_rank ? action.peer : action.peer_chunk);
      REQUIRE(verdict(other) == concat(schedule.name, ": a message must go to the next stage, or to the one before; given ",
                                       place_text(rank, index, action)));
    }
  });
}

TEST_CASE("each rule has its sentence") {
  SUBCASE("the input first") {
    pipeline_schedule schedule = gpipe_schedule(2, {1, 1});
    std::swap(schedule.actions[1][0], schedule.actions[1][1]);
    CHECK(verdict(schedule) == "gpipe: a forward must come after its input; given rank 1, action 0: forward of micro-batch 0 on chunk 0");
  }
  SUBCASE("the input first, where the stage before is on the same rank") {
    pipeline_schedule schedule = all_in_all_out_schedule(1, 2, {1});
    std::swap(schedule.actions[0][0], schedule.actions[0][1]);
    CHECK(verdict(schedule) ==
          "all_in_all_out: a forward must come after its input; given rank 0, action 0: forward of micro-batch 0 on chunk 1");
  }
  SUBCASE("the forward first") {
    pipeline_schedule schedule = gpipe_schedule(1, {1});
    std::swap(schedule.actions[0][0], schedule.actions[0][1]);
    CHECK(verdict(schedule) ==
          "gpipe: a backward must come after its forward; given rank 0, action 0: backward of micro-batch 0 on chunk 0");
  }
  SUBCASE("the gradient of the output first") {
    pipeline_schedule schedule = gpipe_schedule(2, {1});
    const std::size_t i = first(schedule, 0, action_kind::receive_backward);
    std::swap(schedule.actions[0][i], schedule.actions[0][i + 1]);
    CHECK(verdict(schedule) == concat("gpipe: a backward must come after the gradient of its output; given rank 0, action ", i,
                                      ": backward of micro-batch 0 on chunk 0"));
  }
  SUBCASE("gradients of inputs first") {
    pipeline_schedule schedule = zero_bubble_schedule(1, {1});
    std::swap(schedule.actions[0][1], schedule.actions[0][2]);
    CHECK(
        verdict(schedule) ==
        "zero_bubble: gradients of weights must come after those of inputs; given rank 0, action 1: backward_weight of micro-batch 0 on chunk 0");
  }
  SUBCASE("computed, then sent") {
    pipeline_schedule schedule = gpipe_schedule(2, {1});
    std::swap(schedule.actions[0][0], schedule.actions[0][1]);
    CHECK(
        verdict(schedule) ==
        "gpipe: what is sent must be computed before; given rank 0, action 0: send_forward of micro-batch 0 on chunk 0, to chunk 0 of rank 1");
  }
  SUBCASE("complete, then reduced") {
    pipeline_schedule schedule = gpipe_schedule(1, {1, 1});
    std::swap(schedule.actions[0][3], schedule.actions[0][4]);
    CHECK(verdict(schedule) == "gpipe: a chunk must be reduced after its last backward; given rank 0, action 3: reduce of chunk 0");
  }
  SUBCASE("no message beyond the ends") {
    pipeline_schedule schedule = gpipe_schedule(2, {1});
    schedule.actions[0].insert(schedule.actions[0].begin(), {action_kind::receive_forward, 0, 0, 1, 0});
    CHECK(verdict(schedule) ==
          "gpipe: a message must have a stage at its other end; given rank 0, action 0: receive_forward of micro-batch 0 on "
          "chunk 0, from chunk 0 of rank 1");
  }
  SUBCASE("nothing missing") {
    pipeline_schedule schedule = gpipe_schedule(2, {1, 1});
    schedule.actions[1].clear();
    CHECK(verdict(schedule) == "gpipe: the schedule must be complete; rank 1 does no forward of micro-batch 0 on chunk 0 in its 0 actions");
    schedule = gpipe_schedule(1, {1});
    schedule.actions[0].pop_back();
    CHECK(verdict(schedule) == "gpipe: the schedule must be complete; rank 0 does no reduce of chunk 0 in its 2 actions");
  }
  SUBCASE("as received, so sent") {
    pipeline_schedule schedule = gpipe_schedule(2, {1, 1});
    auto& list = schedule.actions[0];  // forward, send, forward, send, ...
    list = {list[0], list[2], list[3], list[1], list[4], list[5], list[6], list[7], list[8]};
    CHECK(
        verdict(schedule) ==
        "gpipe: messages from one rank to another must be received in the order they are sent; given rank 0, action 2: send_forward of micro-batch 1 on "
        "chunk 0, to chunk 0 of rank 1, and rank 1, action 0: receive_forward of micro-batch 0 on chunk 0, from chunk 0 of rank 0");
  }
  SUBCASE("nobody waits for ever") {
    pipeline_schedule schedule = gpipe_schedule(2, {1});
    auto& list = schedule.actions[0];  // the gradient is received before its forward
    list = {list[2], list[0], list[1], list[3], list[4]};
    CHECK(
        verdict(schedule) ==
        "gpipe: ranks must not deadlock; given rank 0, action 0: receive_backward of micro-batch 0 on chunk 0, from chunk 0 of rank 1");
  }
}

TEST_CASE("sizes that do not fit the lists are refused before memory is taken for them") {
  pipeline_schedule schedule = gpipe_schedule(2, {1, 1});
  schedule.chunks = ~std::size_t{0};
  CHECK(says(verdict(schedule), "ranks x chunks x micro-batches must be at most 4194304"));
  schedule.chunks = 0;
  CHECK(says(verdict(schedule), "must be at least 1; given 2, 0 and 2"));
  schedule = gpipe_schedule(2, {1, 1});
  schedule.rows = {};
  CHECK(says(verdict(schedule), "must be at least 1; given 2, 1 and 0"));
  schedule.rows = {1, 0};
  CHECK(says(verdict(schedule), "given 0 sequences of micro-batch 1"));
  CHECK(says(verdict({}), "must be at least 1; given 0, 1 and 0"));
}

TEST_CASE("what a rank keeps is counted in micro-batches and in rows") {
  const schedule_report report = check_schedule(one_forward_one_backward_schedule(3, {1, 2, 3, 10, 1}));
  CHECK(report.stashed == std::vector<std::size_t>{3, 2, 1});
  CHECK(report.stashed_rows == std::vector<std::size_t>{15, 13, 10});
  CHECK(check_schedule(gpipe_schedule(2, {1, 2, 3})).rendezvous_safe);
  CHECK_FALSE(check_schedule(one_forward_one_backward_schedule(2, {1, 2, 3})).rendezvous_safe);
}
