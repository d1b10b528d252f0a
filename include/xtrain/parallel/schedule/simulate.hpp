#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/check.hpp>
#include <xtrain/parallel/schedule/schedule.hpp>
#include <xtrain/parallel/schedule/timeline.hpp>
#include <xtrain/parallel/schedule/walk.hpp>

namespace xtrain {

/// fixed + rows · per_row, in seconds or any other unit.
struct row_cost {
  double fixed = 0, per_row = 0;

  [[nodiscard]] double of(std::size_t rows) const { return fixed + static_cast<double>(rows) * per_row; }
};

/// Durations of a stage for a micro-batch. An unsplit backward takes as long as its two parts.
struct stage_cost {
  row_cost forward = {}, backward_input = {}, backward_weight = {};
  double reduce = 0;  // of all gradients of the stage
};

/// stages    one entry per stage, or a single one for all
///   message   fixed: latency; latencies overlap. per_row: messages of a channel are sent one after the other
struct pipeline_costs {
  std::vector<stage_cost> stages = {};
  row_cost message = {};
};

namespace detail {

inline void require_costs(const pipeline_schedule& schedule, const pipeline_costs& costs) {
  require<config_error>(costs.stages.size() == 1 || costs.stages.size() == schedule.stages(), schedule.name,
                        ": costs must be given for one stage, or for each of ", schedule.stages(), "; given ", costs.stages.size());
  const auto check = [&](double value, std::string_view what) {
    require<config_error>(std::isfinite(value) && value >= 0, schedule.name, ": the cost of a ", what,
                          " must be non-negative; given ", value);
  };
  const auto check_both = [&](const row_cost& cost, std::string_view what) {
    check(cost.fixed, what);
    check(cost.per_row, what);
  };
  check_both(costs.message, "message");
  for (const stage_cost& stage : costs.stages) {
    check_both(stage.forward, "forward");
    check_both(stage.backward_input, "backward_input");
    check_both(stage.backward_weight, "backward_weight");
    check(stage.reduce, "reduce");
  }
}

[[nodiscard]] inline const stage_cost& cost_of(const pipeline_schedule& schedule, const pipeline_costs& costs, std::size_t rank,
                                               const pipeline_action& action) {
  return costs.stages.size() == 1 ? costs.stages[0] : costs.stages[schedule.stage_of(rank, action.chunk)];
}
[[nodiscard]] inline double work_time_of(const pipeline_schedule& schedule, const pipeline_costs& costs, std::size_t rank,
                                         const pipeline_action& action) {
  const stage_cost& cost = cost_of(schedule, costs, rank, action);
  const std::size_t rows = schedule.rows[action.micro_batch];
  switch (action.kind) {
    case action_kind::forward:
      return cost.forward.of(rows);
    case action_kind::backward_input:
      return cost.backward_input.of(rows);
    case action_kind::backward_weight:
      return cost.backward_weight.of(rows);
    default:
      return cost.backward_input.of(rows) + cost.backward_weight.of(rows);
  }
}

/// Every rank has one clock for compute and one for the reductions that overlap it.
class simulated_step {
 public:
  simulated_step(const pipeline_schedule& schedule, const pipeline_costs& costs)
      : schedule_(&schedule), costs_(&costs), clock_(schedule.ranks()), reduce_clock_(schedule.ranks()),
        channel_clock_(2 * schedule.ranks()), arrivals_(2 * schedule.ranks()) {
    timeline_.ranks.resize(schedule.ranks());
  }

  void work(std::size_t rank, const pipeline_action& action) { advance(rank, action, clock_[rank] + work_time_of(*schedule_, *costs_, rank, action)); }

  void reduce(std::size_t rank, const pipeline_action& action) {
    const double start = std::max(clock_[rank], reduce_clock_[rank]);
    reduce_clock_[rank] = start + cost_of(*schedule_, *costs_, rank, action).reduce;
    timeline_.ranks[rank].push_back({action, start, reduce_clock_[rank]});
  }

  void send(std::size_t rank, const pipeline_action& action) {
    const std::size_t channel = channel_of(*schedule_, rank, action.peer);
    const double begun = std::max(clock_[rank], channel_clock_[channel]);
    channel_clock_[channel] = begun + costs_->message.per_row * static_cast<double>(schedule_->rows[action.micro_batch]);
    arrivals_[channel].push_back(channel_clock_[channel] + costs_->message.fixed);
    timeline_.ranks[rank].push_back({action, clock_[rank], arrivals_[channel].back()});
  }

  void receive(std::size_t rank, const pipeline_action& action) {
    auto& arrivals = arrivals_[channel_of(*schedule_, action.peer, rank)];
    advance(rank, action, std::max(clock_[rank], arrivals.front()));
    arrivals.pop_front();
  }

  /// A send and its receive, both blocking.
  void meet(std::size_t from, const pipeline_action& send, std::size_t to, const pipeline_action& receive) {
    const double end = std::max(clock_[from], clock_[to]) + costs_->message.of(schedule_->rows[send.micro_batch]);
    advance(from, send, end);
    advance(to, receive, end);
  }

  [[nodiscard]] pipeline_timeline take() { return std::move(timeline_); }

 private:
  void advance(std::size_t rank, const pipeline_action& action, double end) {
    timeline_.ranks[rank].push_back({action, clock_[rank], end});
    clock_[rank] = end;
  }

  const pipeline_schedule* schedule_;
  const pipeline_costs* costs_;
  std::vector<double> clock_, reduce_clock_, channel_clock_;
  std::vector<std::deque<double>> arrivals_;
  pipeline_timeline timeline_;
};

}  // namespace detail

/// Begin and end of every action. Every rank runs its list in order; receives block, sends block depending on `mode`, reduces overlap later actions.
///   throws  config_error when the schedule is not correct (check.hpp), its sends would deadlock, or a cost is negative
[[nodiscard]] inline pipeline_timeline simulate_schedule(const pipeline_schedule& schedule, const pipeline_costs& costs,
                                                         send_mode mode = send_mode::buffered) {
  (void)detail::check_lists(schedule);
  schedule_walk walked = detail::walk_to_the_end(schedule);
  if (mode == send_mode::rendezvous) walked = walk(schedule, mode);
  require<config_error>(
      walked.finished(schedule), schedule.name,
      ": sends that wait must meet their receives; this schedule is for sends with buffers. Is with_rendezvous what you want?");
  detail::require_costs(schedule, costs);

  detail::simulated_step step(schedule, costs);
  const auto& order = walked.order;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto [rank, index] = order[i];
    const pipeline_action& action = schedule.actions[rank][index];
    if (is_work(action.kind)) step.work(rank, action);
    else if (action.kind == action_kind::reduce) step.reduce(rank, action);
    else if (mode == send_mode::rendezvous) {
      const auto [peer, place] = order[++i];  // a send is followed by its receive
      step.meet(rank, action, peer, schedule.actions[peer][place]);
    } else if (is_send(action.kind)) step.send(rank, action);
    else step.receive(rank, action);
  }
  return step.take();
}

}  // namespace xtrain
