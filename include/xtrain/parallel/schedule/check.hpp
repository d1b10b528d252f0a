#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/schedule.hpp>
#include <xtrain/parallel/schedule/walk.hpp>

namespace xtrain {

/// Further properties of a correct schedule.
struct schedule_report {
  bool rendezvous_safe = false;           // no deadlock even if every send waits for its receive
  bool gradients_in_order = true;         // every stage sums micro-batches in ascending order, as a single rank does
  std::vector<std::size_t> stashed;       // maximum saved micro-batches of each rank, counted per chunk
  std::vector<std::size_t> stashed_rows;  // maximum saved sequences
};

namespace detail {

/// Checks one rank's list: an action's dependencies must come before it.
class rank_check {
 public:
  rank_check(const pipeline_schedule& schedule, std::size_t rank)
      : schedule_(&schedule), rank_(rank), happened_(schedule.chunks * schedule.micro_batches()), ended_(schedule.chunks),
        reduced_(schedule.chunks) {}

  void run() {
    const auto& list = schedule_->actions[rank_];
    for (index_ = 0; index_ < list.size(); ++index_) take(list[index_]);
    for (std::size_t chunk = 0; chunk < schedule_->chunks; ++chunk)
      for (std::size_t i = 0; i < schedule_->micro_batches(); ++i) nothing_is_missing(chunk, i);
  }

  std::size_t stashed = 0, stashed_rows = 0;
  bool gradients_in_order = true;

 private:
  enum event : std::uint8_t {
    forward = 1,
    input = 2,
    weight = 4,
    sent_forward = 8,
    received_forward = 16,
    sent_backward = 32,
    received_backward = 64
  };

  void take(const pipeline_action& action) {
    action_ = &action;
    must(static_cast<std::size_t>(action.kind) < action_kinds && action.micro_batch < schedule_->micro_batches() &&
             action.chunk < schedule_->chunks,
         "micro-batches and chunks must exist");
    if (is_message(action.kind)) check_peer();
    switch (action.kind) {
      case action_kind::forward:
        return take_forward();
      case action_kind::backward:
        take_input();
        return take_weight();
      case action_kind::backward_input:
        return take_input();
      case action_kind::backward_weight:
        return take_weight();
      case action_kind::send_forward:
        must(has(forward), "what is sent must be computed before");
        return once(sent_forward);
      case action_kind::send_backward:
        must(has(input), "what is sent must be computed before");
        return once(sent_backward);
      case action_kind::receive_forward:
        return once(received_forward);
      case action_kind::receive_backward:
        return once(received_backward);
      case action_kind::reduce:
        return take_reduce();
    }
  }

  void check_peer() {
    const message_end end = other_end(*schedule_, rank_, action_->chunk, action_->kind);
    must(end.exists, "a message must have a stage at its other end");
    must(action_->peer == end.rank && action_->peer_chunk == end.chunk, "a message must go to the next stage, or to the one before");
  }

  void take_forward() {
    must(is_there(action_kind::receive_forward, received_forward, forward), "a forward must come after its input");
    once(forward);
    rows_ += schedule_->rows[action_->micro_batch];
    stashed = std::max(stashed, ++kept_);
    stashed_rows = std::max(stashed_rows, rows_);
  }
  void take_input() {
    must(has(forward), "a backward must come after its forward");
    must(is_there(action_kind::receive_backward, received_backward, input), "a backward must come after the gradient of its output");
    once(input);
  }
  void take_weight() {
    must(has(input), "gradients of weights must come after those of inputs");
    once(weight);
    gradients_in_order = gradients_in_order && action_->micro_batch == ended_[action_->chunk];
    ++ended_[action_->chunk];
    --kept_;
    rows_ -= schedule_->rows[action_->micro_batch];
  }
  void take_reduce() {
    must(ended_[action_->chunk] == schedule_->micro_batches(), "a chunk must be reduced after its last backward");
    must(!reduced_[action_->chunk], "an action must come once");
    reduced_[action_->chunk] = true;
  }

  /// Whether an action's input from an adjacent stage is available: received, computed on this rank, or not needed.
  [[nodiscard]] bool is_there(action_kind receive, event received, event computed) const {
    if (other_end(*schedule_, rank_, action_->chunk, receive).exists) return has(received);
    const bool forth = receive == action_kind::receive_forward;
    if (schedule_->ranks() > 1 || (forth ? action_->chunk == 0 : action_->chunk + 1 == schedule_->chunks)) return true;
    return (happened_[at(forth ? action_->chunk - 1 : action_->chunk + 1, action_->micro_batch)] & computed) != 0;
  }

  void nothing_is_missing(std::size_t chunk, std::size_t micro_batch) const {
    const auto expect = [&](bool holds, std::string_view what) {
      if (!holds)
        fail<config_error>(schedule_->name, ": the schedule must be complete; rank ", rank_, " does no ", what, " of micro-batch ", micro_batch,
                           " on chunk ", chunk, " in its ", schedule_->actions[rank_].size(), " actions");
    };
    const auto seen = happened_[at(chunk, micro_batch)];
    expect((seen & forward) != 0, "forward");
    expect((seen & input) != 0, "backward");
    expect((seen & weight) != 0, "backward_weight");
    for (const auto& [kind, bit] :
         {std::pair(action_kind::send_forward, sent_forward), std::pair(action_kind::receive_forward, received_forward),
          std::pair(action_kind::send_backward, sent_backward), std::pair(action_kind::receive_backward, received_backward)})
      expect((seen & bit) != 0 || !other_end(*schedule_, rank_, chunk, kind).exists, name_of(kind));
    if (!reduced_[chunk])
      fail<config_error>(schedule_->name, ": the schedule must be complete; rank ", rank_, " does no reduce of chunk ", chunk, " in its ",
                         schedule_->actions[rank_].size(), " actions");
  }

  void must(bool holds, std::string_view sentence) const {
    if (!holds) [[unlikely]]
      fail<config_error>(schedule_->name, ": ", sentence, "; given rank ", rank_, ", action ", index_, ": ", action_text(*action_));
  }
  void once(event what) {
    must(!has(what), "an action must come once");
    happened_[at(action_->chunk, action_->micro_batch)] |= what;
  }
  [[nodiscard]] bool has(event what) const { return (happened_[at(action_->chunk, action_->micro_batch)] & what) != 0; }
  [[nodiscard]] std::size_t at(std::size_t chunk, std::size_t micro_batch) const {
    return chunk * schedule_->micro_batches() + micro_batch;
  }

  const pipeline_schedule* schedule_;
  std::size_t rank_, index_ = 0;
  const pipeline_action* action_ = nullptr;
  std::vector<unsigned> happened_;  // events of each micro-batch on each chunk
  std::vector<std::size_t> ended_;
  std::vector<bool> reduced_;
  std::size_t kept_ = 0, rows_ = 0;  // saved at present
};

/// A channel's messages at one end, as indices into the rank's list.
[[nodiscard]] inline std::vector<std::size_t> messages_between(const pipeline_schedule& schedule, std::size_t rank, std::size_t peer,
                                                               bool sent) {
  std::vector<std::size_t> places;
  const auto& list = schedule.actions[rank];
  for (std::size_t i = 0; i < list.size(); ++i)
    if ((sent ? is_send(list[i].kind) : is_receive(list[i].kind)) && list[i].peer == peer) places.push_back(i);
  return places;
}

[[nodiscard]] inline bool are_one_message(const pipeline_action& send, const pipeline_action& receive) {
  return (send.kind == action_kind::send_forward) == (receive.kind == action_kind::receive_forward) &&
         send.micro_batch == receive.micro_batch && send.chunk == receive.peer_chunk && send.peer_chunk == receive.chunk;
}

inline void check_channel(const pipeline_schedule& schedule, std::size_t from, std::size_t to) {
  const auto sends = messages_between(schedule, from, to, true), receives = messages_between(schedule, to, from, false);
  for (std::size_t i = 0; i < std::min(sends.size(), receives.size()); ++i) {
    const pipeline_action &send = schedule.actions[from][sends[i]], &receive = schedule.actions[to][receives[i]];
    if (!are_one_message(send, receive)) [[unlikely]]  // texts are made only on errors: lists are long
      fail<config_error>(schedule.name, ": messages from one rank to another must be received in the order they are sent; given rank ", from,
                         ", action ", sends[i], ": ", action_text(send), ", and rank ", to, ", action ", receives[i], ": ",
                         action_text(receive));
  }
}

[[nodiscard]] inline schedule_report check_lists(const pipeline_schedule& schedule) {
  const std::size_t ranks = schedule.ranks();
  require_schedule_sizes(schedule.name, ranks, schedule.chunks, schedule.rows);

  schedule_report report;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    rank_check check(schedule, rank);
    check.run();
    report.stashed.push_back(check.stashed);
    report.stashed_rows.push_back(check.stashed_rows);
    report.gradients_in_order = report.gradients_in_order && check.gradients_in_order;
  }
  for (std::size_t from = 0; from < ranks && ranks > 1; ++from) {
    check_channel(schedule, from, (from + 1) % ranks);
    check_channel(schedule, from, (from + ranks - 1) % ranks);
  }
  return report;
}

/// An execution order for buffered sends.
[[nodiscard]] inline schedule_walk walk_to_the_end(const pipeline_schedule& schedule) {
  schedule_walk buffered = walk(schedule, send_mode::buffered);
  for (std::size_t rank = 0; rank < schedule.ranks(); ++rank) {
    const std::size_t at = buffered.stopped[rank];
    if (at < schedule.actions[rank].size())
      fail<config_error>(schedule.name, ": ranks must not deadlock; given rank ", rank, ", action ", at, ": ",
                         action_text(schedule.actions[rank][at]));
  }
  return buffered;
}

}  // namespace detail

/// Checks that every micro-batch passes once forward and backward through every stage, after its dependencies; that messages between two ranks match
/// in order; and that no rank deadlocks with buffered sends.
///   throws  config_error with rank, index and action
[[nodiscard]] inline schedule_report check_schedule(const pipeline_schedule& schedule) {
  schedule_report report = detail::check_lists(schedule);
  (void)detail::walk_to_the_end(schedule);
  report.rendezvous_safe = walk(schedule, send_mode::rendezvous).finished(schedule);
  return report;
}

}  // namespace xtrain
