// A process group and its collectives. Every collective is built from point-to-point messages and reduces in rank order: its result has
// the same bits on every rank and over every transport, however messages are delayed and however an array is split. 16-bit values are
// summed in fp32 and rounded once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/number.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/dry/dry.hpp>

namespace xtrain {

/// A range of rows of an array, and the rank it is sent to or received from.
struct message_part {
  std::size_t rank = 0, first = 0, count = 0;
};

/// What a group has sent.
struct traffic {
  std::size_t messages = 0;
  std::size_t bytes = 0;

  traffic& operator+=(const traffic& more) {
    messages += more.messages;
    bytes += more.bytes;
    return *this;
  }
};

/// The type in which values of T are summed: fp32 for 16-bit types, T itself for all others.
template <class T>
struct sum_number {
  using type = T;
};
template <>
struct sum_number<bf16> {
  using type = float;
};
template <>
struct sum_number<fp16> {
  using type = float;
};

/// A communicator. Only one thread at a time may use a group. Two groups of the same ranks on different channels are independent.
class group {
 public:
  /// Up to this many ranks send every other rank its part of a reduction directly. Larger groups pass partial sums from rank to rank.
  static constexpr std::size_t most_direct = 64;

  /// `members`: ranks of the transport, in group rank order. Every member constructs the group with the same members and channel.
  ///   throws  config_error when this rank is not a member, or is listed twice
  group(std::shared_ptr<transport> wires, std::vector<std::size_t> members, std::uint32_t channel)
      : wires_(std::move(wires)), members_(std::move(members)), channel_(channel) {
    require<config_error>(std::count(members_.begin(), members_.end(), wires_->rank()) == 1, "group: rank ", wires_->rank(),
                          " makes it and must be a member, once");
    for (const std::size_t member : members_)
      require<config_error>(member < wires_->size(), "group: members must be below the ", wires_->size(), " ranks there are; given ", member);
    rank_ = static_cast<std::size_t>(std::find(members_.begin(), members_.end(), wires_->rank()) - members_.begin());
  }
  /// All ranks of the transport.
  explicit group(std::shared_ptr<transport> wires, std::uint32_t channel = 0) : group(wires, all_of(wires->size()), channel) {}

  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] const traffic& sent() const { return sent_; }
  [[nodiscard]] const std::shared_ptr<transport>& wires() const { return wires_; }

  // ---- point-to-point messages ----

  template <class T>
  [[nodiscard]] pending_message begin_send(std::size_t to, std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    ++sent_.messages;
    sent_.bytes += values.size_bytes();
    return wires_->send(members_[to], channel_, std::as_bytes(values));
  }
  template <class T>
  [[nodiscard]] pending_message begin_receive(std::size_t from, std::span<T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return wires_->receive(members_[from], channel_, std::as_writable_bytes(values));
  }
  template <class T>
  void send(std::size_t to, std::span<const T> values) {
    wait(begin_send(to, values));
  }
  template <class T>
  void receive(std::size_t from, std::span<T> values) {
    wait(begin_receive(from, values));
  }

  // ---- collectives on the host ----

  void barrier() {
    std::array<std::uint8_t, 1> nothing{};
    all_reduce(std::span<std::uint8_t>(nothing), reduction::largest);
  }

  /// Every rank gets the reduction, in place.
  template <class T>
  void all_reduce(std::span<T> values, reduction how) {
    if (size() == 1) return;
    if (values.size_bytes() <= small) {
      // one hop: every rank sends everything to every other rank
      std::vector<T>& all = scratch<T>(values.size() * size());
      gather_parts(std::span<const T>(values), all);
      reduce_parts(std::span<const T>(all.data(), carries() ? all.size() : 0), std::span<const T>(values), values, how);
      return;
    }
    const std::size_t part = part_of(values.size());
    reduce_scatter_ranges(std::span<const T>(values), values, part, how);
    all_gather_ranges(values, part);
  }
  void all_reduce(std::span<double> values, reduction how) { all_reduce<double>(values, how); }

  /// whole: size() parts, in rank order. `part` may alias its position in `whole`.
  ///   throws  shape_error
  template <class T>
  void all_gather(std::span<const T> part, std::span<T> whole) {
    require_parts(part.size(), whole.size());
    const std::span<T> mine = whole.subspan(rank_ * part.size(), part.size());
    if (carries() && mine.data() != part.data()) std::copy(part.begin(), part.end(), mine.begin());
    all_gather_ranges(whole, part.size());
  }

  /// part: this rank's part (of size() parts) of the reduction. It may alias its position in `whole`; the rest of `whole` is unchanged.
  ///   throws  shape_error
  template <class T>
  void reduce_scatter(std::span<const T> whole, std::span<T> part, reduction how) {
    require_parts(part.size(), whole.size());
    if (size() == 1) {
      if (carries() && part.data() != whole.data()) std::copy(whole.begin(), whole.end(), part.begin());
      return;
    }
    reduce_scatter_to(whole, part, part.size(), how);
  }

  /// Every rank gets the values of `root`.
  template <class T>
  void broadcast(std::span<T> values, std::size_t root) {
    if (size() == 1) return;
    if (values.size_bytes() <= small) {
      if (rank_ != root) return receive(root, values);
      const auto sends = to_all_others([&](std::size_t to) { return begin_send(to, std::span<const T>(values)); });
      return wait_all(sends);
    }
    // the root sends everything once, one part to each rank; the ranks then all-gather their parts
    const std::size_t part = part_of(values.size());
    if (rank_ == root) {
      const auto sends = to_all_others([&](std::size_t to) { return begin_send(to, std::span<const T>(range(values, to, part))); });
      wait_all(sends);
    } else {
      receive(root, range(values, rank_, part));
    }
    all_gather_ranges(values, part, root);
  }

  /// Only `root` gets the reduction, in place; the values of the other ranks are unchanged.
  template <class T>
  void reduce(std::span<T> values, reduction how, std::size_t root) {
    if (size() == 1) return;
    if (rank_ != root) return send(root, std::span<const T>(values));
    std::vector<T>& all = scratch<T>(values.size() * size());
    const auto receives = to_all_others([&](std::size_t from) { return begin_receive(from, range_of_all(all, from, values.size())); });
    wait_all(receives);
    reduce_parts(std::span<const T>(all.data(), carries() ? all.size() : 0), std::span<const T>(values), values, how);
  }

  /// whole, used on `root` only: the parts of all ranks, in rank order.
  template <class T>
  void gather(std::span<const T> part, std::span<T> whole, std::size_t root) {
    if (rank_ != root) return send(root, part);
    require_parts(part.size(), whole.size());
    const auto receives = to_all_others([&](std::size_t from) { return begin_receive(from, range(whole, from, part.size())); });
    if (carries()) std::copy(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(rank_ * part.size()));
    wait_all(receives);
  }

  /// part: this rank's part of `whole` on `root`.
  template <class T>
  void scatter(std::span<const T> whole, std::span<T> part, std::size_t root) {
    if (rank_ != root) return receive(root, part);
    require_parts(part.size(), whole.size());
    const auto sends = to_all_others([&](std::size_t to) { return begin_send(to, whole.subspan(to * part.size(), part.size())); });
    if (carries()) std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(rank_ * part.size()), part.size(), part.begin());
    wait_all(sends);
  }

  /// Part i of `from` goes to rank i; part i of `to` comes from rank i.
  ///   throws  shape_error
  template <class T>
  void all_to_all(std::span<const T> from, std::span<T> to) {
    require<shape_error>(from.size() == to.size() && from.size() % size() == 0, "group: what every rank sends to every other must be as long: ",
                         size(), " equal parts; given ", from.size(), " and ", to.size(), " elements");
    const std::vector<std::size_t> equal(size(), from.size() / size());
    all_to_all(from, std::span<const std::size_t>(equal), to, std::span<const std::size_t>(equal));
  }
  /// The same with parts of any length: `sends[i]` elements to rank i, `receives[i]` from it.
  template <class T>
  void all_to_all(std::span<const T> from, std::span<const std::size_t> sends, std::span<T> to, std::span<const std::size_t> receives) {
    const auto total = [](std::span<const std::size_t> counts) { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); };
    require<shape_error>(sends.size() == size() && receives.size() == size() && total(sends) == from.size() && total(receives) == to.size() &&
                             sends[rank_] == receives[rank_],
                         "group: lengths of parts must be given for ", size(), " ranks and add up to what is sent and received");
    std::vector<pending_message> all;
    const auto first = [&](std::span<const std::size_t> counts, std::size_t i) { return total(counts.subspan(0, i)); };
    for (std::size_t i = 0; i < size(); ++i)
      if (i != rank_ && receives[i] != 0) all.push_back(begin_receive(i, to.subspan(first(receives, i), receives[i])));
    for (std::size_t i = 0; i < size(); ++i)
      if (i != rank_ && sends[i] != 0) all.push_back(begin_send(i, from.subspan(first(sends, i), sends[i])));
    if (carries()) {
      const auto mine = from.subspan(first(sends, rank_), sends[rank_]);
      std::copy(mine.begin(), mine.end(), to.begin() + static_cast<std::ptrdiff_t>(first(receives, rank_)));
    }
    wait_all(all);
  }

  /// Each part in `sends` goes to its rank and each part in `receives` comes from its rank, one message per part; between a pair of
  /// ranks, in list order. A row has `length` elements.
  ///   throws  shape_error when a part is outside its array, or when this rank does not receive what it sends to itself
  template <class T>
  void exchange(std::span<const T> from, std::span<const message_part> sends, std::span<T> to, std::span<const message_part> receives,
                std::size_t length = 1) {
    for (const message_part& part : sends) require_in(part, from.size(), length);
    for (const message_part& part : receives) require_in(part, to.size(), length);
    std::vector<pending_message> all;
    for (const message_part& part : receives)
      if (part.rank != rank_ && part.count != 0) all.push_back(begin_receive(part.rank, to.subspan(part.first * length, part.count * length)));
    for (const message_part& part : sends)
      if (part.rank != rank_ && part.count != 0) all.push_back(begin_send(part.rank, from.subspan(part.first * length, part.count * length)));
    auto mine = receives.begin();
    for (const message_part& part : sends) {
      if (part.rank != rank_ || !carries()) continue;
      mine = std::find_if(mine, receives.end(), [&](const message_part& other) { return other.rank == rank_; });
      require<shape_error>(mine != receives.end() && mine->count == part.count, "group: rank ", rank_, " must receive what it sends to itself; ",
                           part.count, " rows");
      std::copy_n(from.data() + part.first * length, part.count * length, to.data() + mine->first * length);
      ++mine;
    }
    wait_all(all);
  }

  /// An in-place all-gather: every rank owns one range of the values and gets the ranges of the others. Ranges have equal length, except
  /// that the last ones may be shorter.
  template <class T>
  void share_ranges(std::span<T> values) {
    all_gather_ranges(values, part_of(values.size()));
  }

  // ---- collectives on device memory: they block until done, and first wait for all work queued on the stream ----

  template <class Stream, class T, class Memory>
  void all_reduce(Stream& stream, device_span<T, Memory> values, reduction how) {
    if (size() == 1) return;
    on_host(stream, values, true, [&](std::span<T> host) { all_reduce(host, how); });
  }
  template <class Stream, class T, class Memory>
  void all_gather(Stream& stream, device_span<const T, Memory> part, device_span<T, Memory> whole) {
    require_parts(part.size(), whole.size());
    const auto mine = whole.subspan(rank_ * part.size(), part.size());
    if (mine.raw() != part.raw()) copy_within(stream, mine, part);
    if (size() == 1) return;
    on_host(stream, whole, true, [&](std::span<T> host) { all_gather_ranges(host, part.size()); });
  }
  template <class Stream, class T, class Memory>
  void share_ranges(Stream& stream, device_span<T, Memory> values) {
    if (size() == 1) return;
    on_host(stream, values, true, [&](std::span<T> host) { share_ranges(host); });
  }
  template <class Stream, class T, class Memory>
  void reduce_scatter(Stream& stream, device_span<const T, Memory> whole, device_span<T, Memory> part, reduction how) {
    require_parts(part.size(), whole.size());
    if (size() == 1) {
      if (part.raw() != whole.raw()) copy_within(stream, part, whole);
      return;
    }
    if constexpr (directly<Memory>) {
      stream.synchronize();
      reduce_scatter(host_span(whole), host_span(part), how);
    } else {
      std::vector<T> host(whole.size());
      copy_to_host(stream, std::span<T>(host), whole);
      stream.synchronize();
      const std::span<T> mine = std::span<T>(host).subspan(rank_ * part.size(), part.size());
      reduce_scatter(std::span<const T>(host), mine, how);
      copy_to_device(stream, part, mine);
      stream.synchronize();
    }
  }
  /// Part i of `from` goes to rank i; part i of `to` comes from rank i.
  ///   throws  shape_error
  template <class Stream, class T, class Memory>
  void all_to_all(Stream& stream, device_span<const T, Memory> from, device_span<T, Memory> to) {
    if constexpr (directly<Memory>) {
      stream.synchronize();
      all_to_all(host_span(from), host_span(to));
    } else {
      std::vector<T> sent(from.size()), received(to.size());
      copy_to_host(stream, std::span<T>(sent), from);
      stream.synchronize();
      all_to_all(std::span<const T>(sent), std::span<T>(received));
      copy_to_device(stream, to, std::span<const T>(received));
      stream.synchronize();
    }
  }
  template <class Stream, class T, class Memory>
  void broadcast(Stream& stream, device_span<T, Memory> values, std::size_t root) {
    if (size() == 1) return;
    on_host(stream, values, true, [&](std::span<T> host) { broadcast(host, root); });
  }
  template <class Stream, class T, class Memory>
  void exchange(Stream& stream, device_span<const T, Memory> from, std::span<const message_part> sends, device_span<T, Memory> to,
                std::span<const message_part> receives, std::size_t length) {
    if constexpr (directly<Memory>) {
      stream.synchronize();
      exchange(host_span(from), sends, host_span(to), receives, length);
    } else {
      std::vector<T> sent(from.size()), received(to.size());
      copy_to_host(stream, std::span<T>(sent), from);
      stream.synchronize();
      exchange(std::span<const T>(sent), sends, std::span<T>(received), receives, length);
      copy_to_device(stream, to, std::span<const T>(received));
      stream.synchronize();
    }
  }
  template <class Stream, class T, class Memory>
  void send(Stream& stream, std::size_t to, device_span<const T, Memory> values) {
    on_host(stream, device_span<T, Memory>(device_ptr<T, Memory>(const_cast<T*>(values.raw())), values.size()), false,
            [&](std::span<T> host) { send(to, std::span<const T>(host)); });
  }
  template <class Stream, class T, class Memory>
  void receive(Stream& stream, std::size_t from, device_span<T, Memory> values) {
    on_host(stream, values, true, [&](std::span<T> host) { receive(from, host); });
  }

 private:
  static constexpr std::size_t small = 4096;           // bytes; below this, one hop is faster than two hops with half the bytes
  static constexpr std::size_t piece_bytes = 1U << 20;  // in flight at a time: smaller messages cost time, larger ones scratch memory

  /// The host can dereference the pointers, or (in a dry run) nothing ever does.
  template <class Memory>
  static constexpr bool directly = clause::memory_is_host_addressable<Memory> || is_dry_memory<Memory>;

  static std::vector<std::size_t> all_of(std::size_t size) {
    std::vector<std::size_t> all(size);
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
  }
  [[nodiscard]] bool carries() const { return wires_->carries(); }
  /// Elements per rank when parts may differ in length; the last parts may be shorter, or empty.
  [[nodiscard]] std::size_t part_of(std::size_t n) const { return (n + size() - 1) / size(); }
  template <class T>
  [[nodiscard]] static std::span<T> range(std::span<T> whole, std::size_t rank, std::size_t part) {
    const std::size_t begin = std::min(whole.size(), rank * part);
    return whole.subspan(begin, std::min(part, whole.size() - begin));
  }
  template <class T>
  [[nodiscard]] std::span<T> range_of_all(std::vector<T>& all, std::size_t rank, std::size_t part) const {
    return carries() ? std::span<T>(all).subspan(rank * part, part) : std::span<T>(all.data(), 0);
  }
  void require_parts(std::size_t part, std::size_t whole) const {
    require<shape_error>(part * size() == whole, "group: ", size(), " ranks' parts must make up the whole; a part has ", part,
                         " elements and the whole ", whole);
  }

  void require_in(const message_part& part, std::size_t elements, std::size_t length) const {
    const std::size_t rows = elements / std::max<std::size_t>(length, 1);
    require<shape_error>(part.rank < size() && part.first <= rows && part.count <= rows - part.first, "group: a part must be one of ", size(),
                         " ranks' and in an array of ", rows, " rows; given rank ", part.rank, ", row ", part.first, " and ", part.count, " rows");
  }

  static void wait(const pending_message& begun) {
    if (begun) begun->wait();
  }
  static void wait_all(const std::vector<pending_message>& begun) {
    for (const pending_message& one : begun) wait(one);
  }
  /// Begins a message with every other rank, starting at rank + 1, so that not all ranks start with the same one.
  template <class Begin>
  [[nodiscard]] std::vector<pending_message> to_all_others(Begin&& begin) {
    std::vector<pending_message> begun;
    if (carries()) begun.reserve(size());
    for (std::size_t i = 1; i < size(); ++i) {
      pending_message one = begin((rank_ + i) % size());
      if (one) begun.push_back(std::move(one));
    }
    return begun;
  }

  // Dry runs count what would be sent without a loop over messages: there may be thousands of ranks.
  void count(std::size_t messages, std::size_t bytes_of_each) { sent_ += {messages, messages * bytes_of_each}; }
  template <class T>
  void count_pieces(std::span<const T> whole, std::size_t part, std::size_t piece) {
    for (std::size_t to = 0; to < size(); ++to)
      if (const std::size_t n = range(whole, to, part).size(); to != rank_ && n > 0) sent_ += {(n + piece - 1) / piece, n * sizeof(T)};
  }

  template <class T>
  [[nodiscard]] std::vector<T>& scratch(std::size_t n) {
    static_assert(std::is_trivially_copyable_v<T>);
    auto& memory = std::get<std::vector<T>>(scratch_);
    if (carries() && memory.size() < n) memory.resize(n);
    return memory;
  }

  template <class T>
  void gather_parts(std::span<const T> part, std::vector<T>& all) {
    if (!carries()) return count(size() - 1, part.size_bytes());
    auto begun = to_all_others([&](std::size_t from) { return begin_receive(from, range_of_all(all, from, part.size())); });
    const auto sends = to_all_others([&](std::size_t to) { return begin_send(to, part); });
    wait_all(begun);
    wait_all(sends);
  }

  /// result[i] = parts[0][i] + parts[1][i] + ..., in this order; this rank's part is read from `mine`
  template <class T>
  void reduce_parts(std::span<const T> parts, std::span<const T> mine, std::span<T> result, reduction how) const {
    if (!carries()) return;
    using sum = typename sum_number<T>::type;
    constexpr std::size_t block = 256;
    std::array<sum, block> acc;
    for (std::size_t begin = 0; begin < result.size(); begin += block) {
      const std::size_t n = std::min(block, result.size() - begin);
      for (std::size_t r = 0; r < size(); ++r) {
        const T* from = (r == rank_ ? mine.data() : parts.data() + r * mine.size()) + begin;
        if (r == 0)
          for (std::size_t i = 0; i < n; ++i) acc[i] = static_cast<sum>(from[i]);
        else if (how == reduction::sum)
          for (std::size_t i = 0; i < n; ++i) acc[i] = static_cast<sum>(acc[i] + static_cast<sum>(from[i]));
        else
          for (std::size_t i = 0; i < n; ++i) acc[i] = std::max(acc[i], static_cast<sum>(from[i]));
      }
      for (std::size_t i = 0; i < n; ++i) result[begin + i] = static_cast<T>(acc[i]);
    }
  }

  /// Part r of the whole (`part` elements, or what is left of them) is reduced to rank r, into its range of `to`.
  template <class T>
  void reduce_scatter_ranges(std::span<const T> whole, std::span<T> to, std::size_t part, reduction how) {
    reduce_scatter_to(whole, range(to, rank_, part), part, how);
  }
  template <class T>
  void reduce_scatter_to(std::span<const T> whole, std::span<T> mine, std::size_t part, reduction how) {
    if (size() > most_direct) return reduce_scatter_in_chain(whole, mine, part, how);
    const std::size_t piece = std::max(piece_bytes, 4 * piece_bytes / size()) / sizeof(T);
    if (!carries()) return count_pieces(whole, part, piece);
    for (std::size_t begin = 0; begin < part; begin += piece) {
      const auto piece_of = [&](std::size_t rank) {
        const std::span<const T> theirs = range(whole, rank, part);
        const std::size_t first = std::min(begin, theirs.size());
        return theirs.subspan(first, std::min(piece, theirs.size() - first));
      };
      const std::span<const T> own = piece_of(rank_);
      std::vector<T>& all = scratch<T>(own.size() * size());
      const auto receives = to_all_others([&](std::size_t from) {
        return own.empty() ? nullptr : begin_receive(from, range_of_all(all, from, own.size()));
      });
      const auto sends = to_all_others([&](std::size_t to) {
        const std::span<const T> theirs = piece_of(to);
        return theirs.empty() ? nullptr : begin_send(to, theirs);
      });
      wait_all(receives);
      if (!own.empty()) reduce_parts(std::span<const T>(all.data(), all.size()), own, mine.subspan(begin, own.size()), how);
      wait_all(sends);
    }
  }
  /// The same for large groups, where a message to each rank with its part of a piece would be small. Pieces of the whole go from rank to
  /// rank, each rank adds its values, and the last rank sends the result to the owner ranks. Every rank sends as many bytes as with
  /// direct messages, in messages of piece_bytes, and the order of the sums is the same.
  template <class T>
  void reduce_scatter_in_chain(std::span<const T> whole, std::span<T> mine, std::size_t part, reduction how) {
    using sum = typename sum_number<T>::type;
    constexpr std::size_t piece = piece_bytes / sizeof(sum), slots = 4;
    const std::size_t n = whole.size(), last = size() - 1;
    // visit(owner, first, count) for each owner rank's part of a piece
    const auto for_each_owner = [&](std::size_t begin, std::size_t end, auto&& visit) {
      for (std::size_t at = begin; at < end;) {
        const std::size_t owner = at / part, stop = std::min(end, (owner + 1) * part);
        visit(owner, at, stop - at);
        at = stop;
      }
    };
    if (!carries()) {
      if (rank_ != last) {
        sent_ += {(n + piece - 1) / piece, n * sizeof(sum)};
        return;
      }
      for (std::size_t owner = 0; owner < last && owner * part < n; ++owner) {
        const std::size_t begin = owner * part, end = std::min(n, begin + part);
        sent_ += {(end - 1) / piece - begin / piece + 1, (end - begin) * sizeof(T)};
      }
      return;
    }
    std::vector<pending_message> results;  // of this rank's part, piece by piece; each arrives once this rank's values are in the sum
    if (rank_ != last && !mine.empty()) {
      const std::size_t begin = rank_ * part, end = begin + mine.size();
      for (std::size_t at = begin; at < end;) {
        const std::size_t stop = std::min(end, (at / piece + 1) * piece);
        results.push_back(begin_receive(last, mine.subspan(at - begin, stop - at)));
        at = stop;
      }
    }
    const std::size_t pieces = (n + piece - 1) / piece, room = std::min(n, piece);
    std::vector<sum>& sums = scratch<sum>(slots * room);
    std::array<pending_message, slots> received{};
    std::array<std::vector<pending_message>, slots> sent{};
    const auto range_of = [&](std::size_t k) { return whole.subspan(k * piece, std::min(piece, n - k * piece)); };
    const auto sum_of = [&](std::size_t k) { return std::span<sum>(sums).subspan(k % slots * room, range_of(k).size()); };
    const auto prepare = [&](std::size_t k) {  // waits until the slot is free, and begins its receive
      if (k >= pieces) return;
      wait_all(sent[k % slots]);
      sent[k % slots].clear();
      if (rank_ > 0) received[k % slots] = begin_receive(rank_ - 1, sum_of(k));
    };
    prepare(0);
    for (std::size_t k = 0; k < pieces; ++k) {
      prepare(k + 1);
      const std::span<const T> own = range_of(k);
      const std::span<sum> acc = sum_of(k);
      if (rank_ > 0) wait(received[k % slots]);
      for (std::size_t i = 0; i < own.size(); ++i) {
        const auto value = static_cast<sum>(own[i]);
        if (rank_ == 0) acc[i] = value;
        else if (how == reduction::sum) acc[i] = static_cast<sum>(acc[i] + value);
        else acc[i] = std::max(acc[i], value);
      }
      if (rank_ != last) {
        sent[k % slots].push_back(begin_send(rank_ + 1, std::span<const sum>(acc)));
        continue;
      }
      std::span<const T> result;
      if constexpr (std::is_same_v<sum, T>) {
        result = acc;
      } else {
        const std::span<T> to = std::span<T>(scratch<T>(slots * room)).subspan(k % slots * room, acc.size());
        std::transform(acc.begin(), acc.end(), to.begin(), [](sum value) { return static_cast<T>(value); });
        result = to;
      }
      for_each_owner(k * piece, k * piece + acc.size(), [&](std::size_t owner, std::size_t first, std::size_t count) {
        const auto theirs = result.subspan(first - k * piece, count);
        if (owner == rank_) std::copy(theirs.begin(), theirs.end(), mine.begin() + static_cast<std::ptrdiff_t>(first - owner * part));
        else sent[k % slots].push_back(begin_send(owner, theirs));
      });
    }
    for (const auto& all : sent) wait_all(all);
    wait_all(results);
  }
  /// Part r of `values` belongs to rank r, who sends it to every rank but `except`, which has it already.
  template <class T>
  void all_gather_ranges(std::span<T> values, std::size_t part, std::size_t except = ~std::size_t{0}) {
    if (size() == 1) return;
    const std::span<T> own = range(values, rank_, part);
    if (!carries()) return own.empty() ? void() : count(size() - 1 - (except < size() && except != rank_ ? 1 : 0), own.size_bytes());
    const auto receives = to_all_others([&](std::size_t from) {
      const std::span<T> theirs = range(values, from, part);
      return theirs.empty() || rank_ == except ? nullptr : begin_receive(from, theirs);
    });
    const auto sends =
        to_all_others([&](std::size_t to) { return own.empty() || to == except ? nullptr : begin_send(to, std::span<const T>(own)); });
    wait_all(receives);
    wait_all(sends);
  }

  template <class T, class Memory>
  [[nodiscard]] static std::span<T> host_span(device_span<T, Memory> values) {
    return {values.raw(), values.size()};
  }
  /// work(span) on memory that the host can read and write; when it `writes`, the result is copied back to the device.
  template <class Stream, class T, class Memory, class Work>
  static void on_host(Stream& stream, device_span<T, Memory> values, bool writes, Work&& work) {
    if constexpr (directly<Memory>) {
      stream.synchronize();
      work(host_span(values));
    } else {
      std::vector<T> host(values.size());
      copy_to_host(stream, std::span<T>(host), values);
      stream.synchronize();
      work(std::span<T>(host));
      if (writes) {
        copy_to_device(stream, values, std::span<const T>(host));
        stream.synchronize();
      }
    }
  }

  std::shared_ptr<transport> wires_;
  std::vector<std::size_t> members_;
  std::uint32_t channel_;
  std::size_t rank_ = 0;
  traffic sent_{};
  std::tuple<std::vector<float>, std::vector<double>, std::vector<bf16>, std::vector<fp16>, std::vector<std::uint8_t>, std::vector<std::int32_t>,
             std::vector<std::int64_t>, std::vector<std::uint32_t>, std::vector<std::uint64_t>>
      scratch_;
};

static_assert(communicator<group>);

}  // namespace xtrain
