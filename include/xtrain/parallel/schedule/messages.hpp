#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <xtrain/parallel/schedule/schedule.hpp>

namespace xtrain {

namespace detail {

struct message_in_order {
  pipeline_action receive;
  std::size_t before;  // index of the receiver's work that needs it
};

/// The index of each piece of work in its rank's list; the list's length if it is missing.
class work_places {
 public:
  explicit work_places(const pipeline_schedule& work)
      : work_(&work), forward_(work.stages() * work.micro_batches()), backward_(forward_.size()) {
    for (std::size_t rank = 0; rank < work.ranks(); ++rank) {
      const auto& list = work.actions[rank];
      for (std::size_t chunk = 0; chunk < work.chunks; ++chunk)
        for (std::size_t i = 0; i < work.micro_batches(); ++i) forward_[at(rank, chunk, i)] = backward_[at(rank, chunk, i)] = list.size();
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind == action_kind::forward) forward_[at(rank, list[i].chunk, list[i].micro_batch)] = i;
        if (makes_input_gradient(list[i].kind)) backward_[at(rank, list[i].chunk, list[i].micro_batch)] = i;
      }
    }
  }

  [[nodiscard]] std::size_t user_of(std::size_t rank, const pipeline_action& receive) const {
    const auto& places = receive.kind == action_kind::receive_forward ? forward_ : backward_;
    return places[at(rank, receive.chunk, receive.micro_batch)];
  }

 private:
  [[nodiscard]] std::size_t at(std::size_t rank, std::size_t chunk, std::size_t micro_batch) const {
    return work_->stage_of(rank, chunk) * work_->micro_batches() + micro_batch;
  }

  const pipeline_schedule* work_;
  std::vector<std::size_t> forward_, backward_;
};

/// The send of an action's result; without a send, the action itself.
[[nodiscard]] inline pipeline_action send_after(const pipeline_schedule& work, std::size_t rank, const pipeline_action& action) {
  if (action.kind != action_kind::forward && !makes_input_gradient(action.kind)) return action;
  const action_kind kind = action.kind == action_kind::forward ? action_kind::send_forward : action_kind::send_backward;
  const message_end end = other_end(work, rank, action.chunk, kind);
  if (!end.exists) return action;
  return {kind, action.micro_batch, action.chunk, end.rank, end.chunk};
}

/// The receives of every rank, sorted by the work that needs them. A channel's messages are received in the order of their sends: if a later message is needed
/// earlier, both are received early. Both have been sent by then, so no rank waits longer.
[[nodiscard]] inline std::vector<std::vector<message_in_order>> receives_of(const pipeline_schedule& work) {
  const work_places places(work);
  std::vector<std::vector<message_in_order>> channels(2 * work.ranks()), receives(work.ranks());
  for (std::size_t from = 0; from < work.ranks(); ++from) {
    for (const pipeline_action& action : work.actions[from]) {
      const pipeline_action send = send_after(work, from, action);
      if (!is_send(send.kind)) continue;
      const action_kind kind = send.kind == action_kind::send_forward ? action_kind::receive_forward : action_kind::receive_backward;
      const pipeline_action receive{kind, send.micro_batch, send.peer_chunk, from, send.chunk};
      channels[channel_of(work, from, send.peer)].push_back({receive, places.user_of(send.peer, receive)});
    }
    for (const std::size_t to : {(from + 1) % work.ranks(), (from + work.ranks() - 1) % work.ranks()}) {
      auto& channel = channels[channel_of(work, from, to)];
      for (std::size_t i = channel.size(); i-- > 1;) channel[i - 1].before = std::min(channel[i - 1].before, channel[i].before);
      receives[to].insert(receives[to].end(), channel.begin(), channel.end());
      channel.clear();  // with two ranks, both neighbors are the same rank
    }
  }
  for (auto& list : receives) std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.before < b.before; });
  return receives;
}

}  // namespace detail

/// Completes a schedule of forwards and backwards: sends results at once, receives them where needed, and reduces a chunk after its last backward. For
/// buffered sends; rendezvous.hpp reorders messages for sends that wait for their receive.
///   throws  config_error when an action is not work, or its micro-batch or chunk does not exist
[[nodiscard]] inline pipeline_schedule with_messages(pipeline_schedule work) {
  for (std::size_t rank = 0; rank < work.ranks(); ++rank)
    for (std::size_t i = 0; i < work.actions[rank].size(); ++i) {
      const pipeline_action& action = work.actions[rank][i];
      if (!is_work(action.kind) || action.micro_batch >= work.micro_batches() || action.chunk >= work.chunks) [[unlikely]]
        fail<config_error>(work.name, ": a list of work must hold forwards and backwards of ", work.micro_batches(), " micro-batches on ",
                           work.chunks, " chunks; given rank ", rank, ", action ", i, ": ", action_text(action));
    }

  const auto receives = detail::receives_of(work);
  for (std::size_t rank = 0; rank < work.ranks(); ++rank) {
    std::vector<pipeline_action> list;
    std::vector<std::size_t> ended(work.chunks);
    auto next = receives[rank].begin();
    for (std::size_t i = 0; i < work.actions[rank].size(); ++i) {
      const pipeline_action& action = work.actions[rank][i];
      for (; next != receives[rank].end() && next->before == i; ++next) list.push_back(next->receive);
      list.push_back(action);
      const pipeline_action send = detail::send_after(work, rank, action);
      if (is_send(send.kind)) list.push_back(send);
      if (makes_weight_gradient(action.kind) && ++ended[action.chunk] == work.micro_batches())
        list.push_back({action_kind::reduce, 0, action.chunk, 0, 0});
    }
    for (; next != receives[rank].end(); ++next) list.push_back(next->receive);
    work.actions[rank] = std::move(list);
  }
  return work;
}

}  // namespace xtrain
