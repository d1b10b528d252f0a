#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/schedule.hpp>
#include <xtrain/parallel/schedule/simulate.hpp>

namespace xtrain {

/// Reorders messages for rendezvous sends, which wait for their receives. All lists become parts of one total order in which a send and its receive are one
/// event, at the earliest time of the send if a forward takes 1, a backward 2 and a message 0. The first event of the order can always run, so no rank
/// deadlocks, whatever the real durations.
///   throws  config_error when the schedule is not correct
[[nodiscard]] inline pipeline_schedule with_rendezvous(pipeline_schedule schedule) {
  struct event {
    double time;
    bool is_message;
    action_place place;
  };
  const pipeline_timeline timeline = simulate_schedule(schedule, {.stages = {{{1, 0}, {1, 0}, {1, 0}, 0}}});

  std::vector<event> events;
  for (std::size_t rank = 0; rank < schedule.ranks(); ++rank)
    for (std::size_t i = 0; i < timeline.ranks[rank].size(); ++i) {
      const timed_action& timed = timeline.ranks[rank][i];
      if (!is_receive(timed.action.kind)) events.push_back({timed.start, is_send(timed.action.kind), {rank, i}});
    }
  std::stable_sort(events.begin(), events.end(),
                   [](const event& a, const event& b) { return a.time < b.time || (!(b.time < a.time) && a.is_message && !b.is_message); });

  std::vector<std::vector<pipeline_action>> lists(schedule.ranks());
  for (const event& next : events) {
    const std::size_t rank = next.place.rank;
    const pipeline_action& action = schedule.actions[rank][next.place.index];
    lists[rank].push_back(action);
    if (!next.is_message) continue;
    const action_kind receive = action.kind == action_kind::send_forward ? action_kind::receive_forward : action_kind::receive_backward;
    lists[action.peer].push_back({receive, action.micro_batch, action.peer_chunk, rank, action.chunk});
  }
  schedule.actions = std::move(lists);
  return schedule;
}

}  // namespace xtrain
