// A pipeline schedule is data: every rank's ordered actions in a step. See schedule/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>

namespace xtrain {

/// backward = backward_input (B) + backward_weight (W): a micro-batch has backward, or both parts. reduce begins to sum a chunk's gradients over
/// data-parallel ranks; only the end of the step waits for it.
enum class action_kind : std::uint8_t {
  forward,
  backward,
  backward_input,
  backward_weight,
  send_forward,
  receive_forward,
  send_backward,
  receive_backward,
  reduce
};
/// The number of action kinds.
inline constexpr std::size_t action_kinds = 9;

[[nodiscard]] constexpr std::string_view name_of(action_kind kind) {
  constexpr std::string_view names[action_kinds] = {"forward",         "backward",         "backward_input",
                                                    "backward_weight", "send_forward",     "receive_forward",
                                                    "send_backward",   "receive_backward", "reduce"};
  return static_cast<std::size_t>(kind) < action_kinds ? names[static_cast<std::size_t>(kind)] : "unknown kind of action";
}

/// Whether an action sends.
[[nodiscard]] constexpr bool is_send(action_kind kind) { return kind == action_kind::send_forward || kind == action_kind::send_backward; }
/// Whether an action receives.
[[nodiscard]] constexpr bool is_receive(action_kind kind) {
  return kind == action_kind::receive_forward || kind == action_kind::receive_backward;
}
/// Whether an action sends or receives.
[[nodiscard]] constexpr bool is_message(action_kind kind) { return is_send(kind) || is_receive(kind); }
/// Forwards and backwards.
[[nodiscard]] constexpr bool is_work(action_kind kind) { return static_cast<std::size_t>(kind) <= 3; }
/// Computes the input gradient for the previous stage.
[[nodiscard]] constexpr bool makes_input_gradient(action_kind kind) {
  return kind == action_kind::backward || kind == action_kind::backward_input;
}
/// Finishes a micro-batch on a stage: frees its saved activations.
[[nodiscard]] constexpr bool makes_weight_gradient(action_kind kind) {
  return kind == action_kind::backward || kind == action_kind::backward_weight;
}

/// One action of a rank.
struct pipeline_action {
  action_kind kind = action_kind::forward;
  std::size_t micro_batch = 0;  // 0 for reduce
  std::size_t chunk = 0;        // index among this rank's stages
  std::size_t peer = 0;         // the other rank of a message
  std::size_t peer_chunk = 0;   // the message's chunk on that rank

  friend bool operator==(const pipeline_action&, const pipeline_action&) = default;
};

/// "send_forward of micro-batch 3 on chunk 0, to chunk 0 of rank 2"
[[nodiscard]] inline std::string action_text(const pipeline_action& action) {
  if (action.kind == action_kind::reduce) return concat("reduce of chunk ", action.chunk);
  std::string text = concat(name_of(action.kind), " of micro-batch ", action.micro_batch, " on chunk ", action.chunk);
  if (is_send(action.kind)) text += concat(", to chunk ", action.peer_chunk, " of rank ", action.peer);
  if (is_receive(action.kind)) text += concat(", from chunk ", action.peer_chunk, " of rank ", action.peer);
  return text;
}

/// The model has ranks() · chunks stages of consecutive layers, assigned round-robin: chunk 0 of every rank, then chunk 1, ... With a single rank, adjacent
/// stages pass data without messages.
struct pipeline_schedule {
  std::string name;
  std::size_t chunks = 1;                             // stages on each rank
  std::vector<std::size_t> rows;                      // sequences of each micro-batch
  std::vector<std::vector<pipeline_action>> actions;  // of each rank, in order

  [[nodiscard]] std::size_t ranks() const { return actions.size(); }
  [[nodiscard]] std::size_t micro_batches() const { return rows.size(); }
  [[nodiscard]] std::size_t stages() const { return ranks() * chunks; }

  [[nodiscard]] std::size_t stage_of(std::size_t rank, std::size_t chunk) const { return chunk * ranks() + rank; }
  [[nodiscard]] std::size_t rank_of(std::size_t stage) const { return stage % ranks(); }
  [[nodiscard]] std::size_t chunk_of(std::size_t stage) const { return stage / ranks(); }
};

/// throws config_error for a size of 0, or too long lists
inline void require_schedule_sizes(std::string_view name, std::size_t ranks, std::size_t chunks, const std::vector<std::size_t>& rows) {
  constexpr std::size_t most = std::size_t{1} << 22;  // forwards of all stages: far above any real step
  require<config_error>(ranks > 0 && chunks > 0 && !rows.empty(), name, ": ranks, chunks and micro-batches must be at least 1; given ",
                        ranks, ", ", chunks, " and ", rows.size());
  require<config_error>(ranks <= most && chunks <= most / ranks && rows.size() <= most / (ranks * chunks), name,
                        ": ranks x chunks x micro-batches must be at most ", most, "; given ", ranks, " x ", chunks, " x ", rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    require<config_error>(rows[i] > 0 && rows[i] >> 32 == 0, name,
                          ": a micro-batch must have at least one sequence, and fewer than 2^32; given ", rows[i], " sequences of micro-batch ", i);
}

/// A schedule without actions.
///   throws  config_error as require_schedule_sizes does
[[nodiscard]] inline pipeline_schedule empty_schedule(std::string name, std::size_t ranks, std::size_t chunks,
                                                      std::vector<std::size_t> rows) {
  require_schedule_sizes(name, ranks, chunks, rows);
  pipeline_schedule schedule{std::move(name), chunks, std::move(rows), {}};
  schedule.actions.resize(ranks);
  return schedule;
}

/// The other end of a message at this stage. exists is false at the first or last stage, or between two stages of a single rank.
struct message_end {
  bool exists = false;
  std::size_t rank = 0, chunk = 0;
};
/// As message_end.
[[nodiscard]] inline message_end other_end(const pipeline_schedule& schedule, std::size_t rank, std::size_t chunk, action_kind kind) {
  const bool next = kind == action_kind::send_forward || kind == action_kind::receive_backward;
  const std::size_t stage = schedule.stage_of(rank, chunk);
  if (schedule.ranks() == 1 || (next ? stage + 1 == schedule.stages() : stage == 0)) return {};
  const std::size_t other = next ? stage + 1 : stage - 1;
  return {true, schedule.rank_of(other), schedule.chunk_of(other)};
}

/// Messages from one rank to another stay in order. A rank has two channels, one per neighbor; with two ranks, both lead to the same rank.
[[nodiscard]] inline std::size_t channel_of(const pipeline_schedule& schedule, std::size_t from, std::size_t to) {
  return 2 * from + (to == (from + 1) % schedule.ranks() ? 0 : 1);
}

}  // namespace xtrain
