// Executes a pipeline schedule with ranks that sleep instead of computing: real messages and waits on any number of cores. Compare with simulate.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/threads.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/parallel/schedule/check.hpp>
#include <xtrain/parallel/schedule/simulate.hpp>
#include <xtrain/parallel/schedule/timeline.hpp>

namespace xtrain::testing {

/// One rank's action list. Messages carry their identity: a rank detects a wrong one.
class delayed_rank {
 public:
  /// `costs` in seconds. Message costs are the transport's; a reduce takes no time.
  delayed_rank(const pipeline_schedule& schedule, const pipeline_costs& costs, std::shared_ptr<transport> network, send_mode mode)
      : schedule_(&schedule), costs_(&costs), all_(std::move(network)), mode_(mode) {}

  /// Start and end of each action, in seconds of a clock that all ranks of a process share.
  ///   throws  comm_error when a message differs from the list
  [[nodiscard]] std::vector<timed_action> run() {
    std::vector<timed_action> times;
    times.reserve(schedule_->actions[all_.rank()].size());
    all_.barrier();
    for (const pipeline_action& action : schedule_->actions[all_.rank()]) {
      const double start = now();
      if (is_work(action.kind)) work(action);
      else if (is_send(action.kind)) send(action);
      else if (is_receive(action.kind)) receive(action);
      times.push_back({action, start, now()});
    }
    for (sent_message& one : sent_) one.pending->wait();
    return times;
  }

 private:
  struct sent_message {
    std::vector<std::uint64_t> numbers;
    pending_message pending;  // last member: destroyed before the memory it uses
  };

  [[nodiscard]] static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
  void work(const pipeline_action& action) const {
    std::this_thread::sleep_for(std::chrono::duration<double>(xtrain::detail::work_time_of(*schedule_, *costs_, all_.rank(), action)));
  }
  void send(const pipeline_action& action) {
    sent_message& one = sent_.emplace_back();
    one.numbers = numbers_of(action, action.peer_chunk);
    one.pending = all_.begin_send(action.peer, std::span<const std::uint64_t>(one.numbers));
    if (mode_ == send_mode::rendezvous) one.pending->wait();
  }
  void receive(const pipeline_action& action) {
    const std::vector<std::uint64_t> expected = numbers_of(action, action.chunk);
    std::vector<std::uint64_t> numbers(expected.size());
    all_.receive(action.peer, std::span<std::uint64_t>(numbers));
    require<comm_error>(numbers == expected, "delayed_schedule: a message must be what the list says; given another for ", action_text(action));
  }
  /// One value per sequence of the micro-batch, which encodes direction, destination chunk and micro-batch.
  [[nodiscard]] std::vector<std::uint64_t> numbers_of(const pipeline_action& action, std::size_t to_chunk) const {
    const bool forth = action.kind == action_kind::send_forward || action.kind == action_kind::receive_forward;
    const std::size_t number = (action.micro_batch * schedule_->chunks + to_chunk) * 2 + (forth ? 1 : 0);
    return std::vector<std::uint64_t>(schedule_->rows[action.micro_batch], number);
  }

  const pipeline_schedule* schedule_;
  const pipeline_costs* costs_;
  group all_;
  send_mode mode_;
  std::deque<sent_message> sent_;
};

/// Runs all ranks of a schedule, one thread each; returns start and end of every action, relative to the first.
///   throws  config_error when the schedule is invalid, or its sends would deadlock
[[nodiscard]] inline pipeline_timeline run_on_delays(const pipeline_schedule& schedule, const pipeline_costs& costs,
                                                     send_mode mode = send_mode::buffered) {
  (void)simulate_schedule(schedule, costs, mode);
  pipeline_timeline timeline;
  timeline.ranks.resize(schedule.ranks());
  run_ranks(schedule.ranks(), [&](const std::shared_ptr<transport>& network) {
    timeline.ranks[network->rank()] = delayed_rank(schedule, costs, network, mode).run();
  });
  double begin = std::numeric_limits<double>::infinity();
  for (const auto& rank : timeline.ranks) begin = std::min(begin, rank.front().start);
  for (auto& rank : timeline.ranks)
    for (timed_action& timed : rank) timed.start -= begin, timed.end -= begin;
  return timeline;
}

}  // namespace xtrain::testing
