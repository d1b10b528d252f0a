#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/schedule.hpp>

namespace xtrain {

/// buffered: a send completes at once. rendezvous: it waits for its receive. A receive always blocks.
enum class send_mode : std::uint8_t { buffered, rendezvous };

/// An action of a schedule: rank, and index in the rank's list.
struct action_place {
  std::size_t rank, index;
};

/// The order of a walk through a schedule, and where each rank stopped.
struct schedule_walk {
  std::vector<action_place> order;   // in rendezvous mode, a send is followed by its receive
  std::vector<std::size_t> stopped;  // the index each rank has reached at the end

  [[nodiscard]] bool finished(const pipeline_schedule& schedule) const {
    for (std::size_t rank = 0; rank < stopped.size(); ++rank)
      if (stopped[rank] < schedule.actions[rank].size()) return false;
    return true;
  }
};

namespace detail {

class schedule_walker {
 public:
  schedule_walker(const pipeline_schedule& schedule, send_mode mode)
      : schedule_(&schedule), mode_(mode), arrived_(2 * schedule.ranks()), awake_(schedule.ranks()) {
    walk_.stopped.resize(schedule.ranks());
    for (std::size_t rank = 0; rank < schedule.ranks(); ++rank) awake_[rank] = rank;
  }

  [[nodiscard]] schedule_walk run() {
    while (!awake_.empty()) {
      const std::size_t rank = awake_.back();
      awake_.pop_back();
      while (advance(rank)) {
      }
    }
    return std::move(walk_);
  }

 private:
  /// Runs one action, or both ends of a message. False: the rank must wait, or is done.
  bool advance(std::size_t rank) {
    if (is_done(rank)) return false;
    const pipeline_action& action = current(rank);
    if (is_send(action.kind)) {
      if (mode_ == send_mode::rendezvous) return meet(rank, action.peer, action.peer);
      ++arrived_[channel_of(*schedule_, rank, action.peer)];
      awake_.push_back(action.peer);
    } else if (is_receive(action.kind)) {
      if (mode_ == send_mode::rendezvous) return meet(action.peer, rank, action.peer);
      std::size_t& arrived = arrived_[channel_of(*schedule_, action.peer, rank)];
      if (arrived == 0) return false;
      --arrived;
    }
    step(rank);
    return true;
  }

  bool meet(std::size_t from, std::size_t to, std::size_t other) {
    if (is_done(from) || is_done(to)) return false;
    const pipeline_action &send = current(from), &receive = current(to);
    if (!is_send(send.kind) || send.peer != to || !is_receive(receive.kind) || receive.peer != from) return false;
    step(from);
    step(to);
    awake_.push_back(other);
    return true;
  }

  void step(std::size_t rank) { walk_.order.push_back({rank, walk_.stopped[rank]++}); }
  [[nodiscard]] bool is_done(std::size_t rank) const { return walk_.stopped[rank] == schedule_->actions[rank].size(); }
  [[nodiscard]] const pipeline_action& current(std::size_t rank) const { return schedule_->actions[rank][walk_.stopped[rank]]; }

  const pipeline_schedule* schedule_;
  send_mode mode_;
  schedule_walk walk_;
  std::vector<std::size_t> arrived_;  // unreceived messages of each channel
  std::vector<std::size_t> awake_;    // ranks that may be able to continue
};

}  // namespace detail

/// Peers must exist and be neighbors, which check.hpp verifies.
[[nodiscard]] inline schedule_walk walk(const pipeline_schedule& schedule, send_mode mode) {
  return detail::schedule_walker(schedule, mode).run();
}

}  // namespace xtrain
