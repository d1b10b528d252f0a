// Dispatch of tokens to ranks that own their experts, and combine of the results.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <xtrain/comm/group.hpp>
#include <xtrain/comm/host_staging.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/view.hpp>

namespace xtrain {

/// Tokens per expert.
using expert_counts = std::array<std::size_t, max_experts>;

/// For ranks with equal parts of e experts. Outgoing rows (copies of tokens) are sorted by expert; incoming rows by expert, then source rank: an expert's
/// rows are contiguous. No token is dropped.
class expert_exchange {
 public:
  expert_exchange(std::size_t ranks, std::size_t experts) : ranks_(ranks), experts_(experts), own_(experts / ranks) {}
  /// Ranks exchange their counts.
  ///   leaving   this rank's rows per expert (all experts)
  ///   throws    comm_error when a rank sends an implausible count
  template <class Ranks>
  expert_exchange(Ranks& ranks, std::size_t experts, const expert_counts& leaving) : expert_exchange(ranks.size(), experts) {
    sent_ = leaving;
    std::array<std::uint64_t, max_experts> to_others{}, from_others{};
    std::copy_n(leaving.begin(), experts, to_others.begin());
    ranks.all_to_all(std::span<const std::uint64_t>(to_others.data(), experts), std::span<std::uint64_t>(from_others.data(), experts));
    if (!ranks.network()->carries()) from_others = to_others;  // dry run: as this rank
    for (std::size_t i = 0; i < experts; ++i) {
      require<comm_error>(from_others[i] < max_rows, "expert: rank ", i / own_, " must send fewer than ", max_rows, " tokens; it says ",
                          from_others[i]);
      received_[i] = static_cast<std::size_t>(from_others[i]);
    }
    list_parts();
  }

  /// Restores the state that the forward saved.
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

  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] const expert_counts& counts() const { return counts_; }

  /// Source ranks of the i-th expert's rows.
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
  /// Combine: there read, slots written.
  template <class Stream, class Ranks, class T, class Memory>
  void combine(Stream& stream, Ranks& ranks, matrix_view<const T, Memory> there, matrix_view<T, Memory> slots) const {
    ranks.exchange(stream, there.span(), arrives(), slots.span(), leaves(), slots.shape(1));
  }

  // ---- the host does not know the counts: the stream fills `later`, queued work reads it ----

  /// Ranges of rows: each expert's in `chunks` ranges of at most `chunk` rows.
  struct row_ranges {
    std::size_t chunk = 0, chunks = 0;
    std::size_t most = 0;   ///< rows with memory
    std::size_t layer = 0;  ///< for messages
  };
  /// Queues the constructor's exchange.
  ///   count_e     read: this rank's rows per expert (all experts)
  ///   range_m2    written: first row and count of every range, by expert; last, all rows
  ///   throws      in the stream: comm_error as the constructor; memory_error when more rows come than fit
  template <class Stream, class Ranks, class Memory>
  static void queue(Stream& stream, Ranks& ranks, expert_exchange& later, device_span<const token, Memory> count_e, device_span<token, Memory> range_m2,
                    const row_ranges& how) {
    detail::on_host(stream, ranks.staging(), count_e, range_m2, [&ranks, &later, how](std::span<const token> counts, std::span<token> ranges) {
      std::fill(ranges.begin(), ranges.end(), token{0});  // empty if this throws
      expert_counts leaving{};
      for (std::size_t e = 0; e < counts.size(); ++e) leaving[e] = static_cast<std::size_t>(counts[e]);
      later = expert_exchange(ranks, counts.size(), leaving);
      require<memory_error>(later.rows() <= how.most, "expert: the experts of a rank must be given at most ", how.most, " tokens in layer ", how.layer,
                            ", which it has memory for; those of rank ", ranks.rank(), " are given ", later.rows(),
                            ". Make expert_capacity larger, or 0; see parallel/README.md");
      later.write_ranges(how, ranges);
    }, true);  // kernels run after an error: ranges must be inside their arrays
  }
  /// Queues dispatch(): slots read; the first rows of there written.
  template <class Stream, class Ranks, class T, class Memory>
  static void queue_dispatch(Stream& stream, Ranks& ranks, const expert_exchange& later, matrix_view<const T, Memory> slots, matrix_view<T, Memory> there) {
    detail::on_host(stream, ranks.staging(), slots.span(), there.span(), [&ranks, &later, c = slots.shape(1)](std::span<const T> from, std::span<T> to) {
      ranks.exchange(from, later.leaves(), to, later.arrives(), c);
    });
  }
  template <class Stream, class Ranks, class T, class Memory>
  static void queue_combine(Stream& stream, Ranks& ranks, const expert_exchange& later, matrix_view<const T, Memory> there, matrix_view<T, Memory> slots) {
    detail::on_host(stream, ranks.staging(), there.span(), slots.span(), [&ranks, &later, c = slots.shape(1)](std::span<const T> from, std::span<T> to) {
      ranks.exchange(from, later.arrives(), to, later.leaves(), c);
    });
  }

 private:
  static constexpr std::uint64_t max_rows = std::uint64_t{1} << 31;  // rows are indexed by 32-bit tokens

  [[nodiscard]] std::span<const message_part> leaves() const { return {leaves_.data(), experts_}; }
  [[nodiscard]] std::span<const message_part> arrives() const { return {arrives_.data(), experts_}; }

  void write_ranges(const row_ranges& how, std::span<token> ranges) const {
    std::size_t first = 0, at = 0;
    const auto write = [&](std::size_t begin, std::size_t count) {
      ranges[at++] = static_cast<token>(begin);
      ranges[at++] = static_cast<token>(count);
    };
    for (std::size_t i = 0; i < own_; ++i) {
      std::size_t left = counts_[i];
      for (std::size_t chunk = 0; chunk < how.chunks; ++chunk) {
        const std::size_t count = std::min(left, how.chunk);
        write(first, count);
        first += count;
        left -= count;
      }
    }
    write(0, rows_);
  }
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
  expert_counts sent_{}, received_{};  // by expert; by source rank, then this rank's expert
  expert_counts counts_{};
  std::array<message_part, max_experts> leaves_{}, arrives_{};
};

}  // namespace xtrain
