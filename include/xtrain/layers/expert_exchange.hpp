// Dispatch of tokens to the ranks that own their experts, and the combine that returns the results.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <xtrain/comm/group.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// Number of tokens per expert.
using expert_counts = std::array<std::size_t, max_experts>;

/// For ranks that own equal parts of e experts. Outgoing rows (copies of tokens) are sorted by expert, so each expert's are one range;
/// incoming rows are sorted by expert, then by source rank, so each expert's are one matrix again. No token is dropped.
class expert_exchange {
 public:
  /// Each rank tells every other how many rows it sends to each of its experts.
  ///   leaving   this rank's rows, per expert (all experts)
  ///   throws    comm_error when another rank sends an implausible count
  template <class Ranks>
  expert_exchange(Ranks& ranks, std::size_t experts, const expert_counts& leaving) : expert_exchange(ranks.size(), experts) {
    sent_ = leaving;
    std::array<std::uint64_t, max_experts> to_others{}, from_others{};
    std::copy_n(leaving.begin(), experts, to_others.begin());
    ranks.all_to_all(std::span<const std::uint64_t>(to_others.data(), experts), std::span<std::uint64_t>(from_others.data(), experts));
    if (!ranks.network()->carries()) from_others = to_others;  // dry run: assume that the others send what this rank sends
    for (std::size_t i = 0; i < experts; ++i) {
      require<comm_error>(from_others[i] < max_rows, "expert: rank ", i / own_, " must send fewer than ", max_rows, " tokens; it says ",
                          from_others[i]);
      received_[i] = static_cast<std::size_t>(from_others[i]);
    }
    list_parts();
  }

  /// Restores the state that the forward saved in the stash.
  template <class Ranks, class Device>
  [[nodiscard]] static expert_exchange popped(Ranks& ranks, std::size_t experts, stash<Device>& from) {
    expert_exchange back(ranks.size(), experts);
    for (std::size_t i = experts; i-- > 0;) {
      back.received_[i] = from.pop_number();
      back.sent_[i] = from.pop_number();
    }
    back.list_parts();
    return back;
  }
  template <class Device>
  void push(stash<Device>& to) const {
    for (std::size_t i = 0; i < experts_; ++i) {
      to.push_number(sent_[i]);
      to.push_number(received_[i]);
    }
  }

  /// Rows received for all experts of this rank.
  [[nodiscard]] std::size_t rows() const { return rows_; }
  /// Rows received per expert.
  [[nodiscard]] const expert_counts& counts() const { return counts_; }

  /// The source ranks of the rows of this rank's i-th expert.
  [[nodiscard]] dispatched_rows origin(std::size_t i, std::size_t rank) const {
    dispatched_rows from{.ranks = ranks_, .rank = rank};
    for (std::size_t r = 0; r < ranks_; ++r) from.counts[r] = received_[r * own_ + i];
    return from;
  }

  /// Dispatch: slots [rows sent, hidden_size] read, there [rows(), hidden_size] written
  template <class Stream, class Ranks, class T, class Memory>
  void dispatch(Stream& stream, Ranks& ranks, matrix_view<const T, Memory> slots, matrix_view<T, Memory> there) const {
    ranks.exchange(stream, slots.span(), leaves(), there.span(), arrives(), slots.shape(1));
  }
  /// Combine, the reverse direction: there read, slots written.
  template <class Stream, class Ranks, class T, class Memory>
  void combine(Stream& stream, Ranks& ranks, matrix_view<const T, Memory> there, matrix_view<T, Memory> slots) const {
    ranks.exchange(stream, there.span(), arrives(), slots.span(), leaves(), slots.shape(1));
  }

 private:
  static constexpr std::uint64_t max_rows = std::uint64_t{1} << 31;  // row indices are stored as tokens, which are 32-bit

  expert_exchange(std::size_t ranks, std::size_t experts) : ranks_(ranks), experts_(experts), own_(experts / ranks) {}

  [[nodiscard]] std::span<const message_part> leaves() const { return {leaves_.data(), experts_}; }
  [[nodiscard]] std::span<const message_part> arrives() const { return {arrives_.data(), experts_}; }

  void list_parts() {
    std::size_t first = 0;
    for (std::size_t e = 0; e < experts_; first += sent_[e++]) leaves_[e] = {e / own_, first, sent_[e]};
    for (std::size_t i = 0; i < own_; ++i)
      for (std::size_t r = 0; r < ranks_; ++r) {
        const std::size_t count = received_[r * own_ + i];
        arrives_[i * ranks_ + r] = {r, rows_, count};
        counts_[i] += count;
        rows_ += count;
      }
  }

  std::size_t ranks_, experts_, own_, rows_ = 0;
  expert_counts sent_{}, received_{};  // by expert; by source rank, then by this rank's experts
  expert_counts counts_{};
  std::array<message_part, max_experts> leaves_{}, arrives_{};
};

}  // namespace xtrain
