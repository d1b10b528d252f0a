// A process group and its collectives. Every collective is built from point-to-point messages and reduces in an order that follows from
// the number of ranks alone (recursive_halving.hpp): its result has the same bits on every rank and over every transport, however messages
// are delayed and however an array is split. 16-bit values are summed in fp32 and rounded once.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
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
#include <xtrain/comm/recursive_halving.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
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
  std::size_t rounds = 0;       ///< of collectives, one after the other: each costs one latency
  std::size_t collectives = 0;  ///< calls
  std::size_t scratch = 0;      ///< bytes of host memory in which messages are made, at most

  traffic& operator+=(const traffic& more) {
    messages += more.messages;
    bytes += more.bytes;
    rounds += more.rounds;
    collectives += more.collectives;
    scratch += more.scratch;
    return *this;
  }
  /// What was sent since `before`, with the scratch memory of now.
  [[nodiscard]] traffic since(const traffic& before) const {
    return {messages - before.messages, bytes - before.bytes, rounds - before.rounds, collectives - before.collectives, scratch};
  }
  /// The same n times; scratch memory is not needed n times.
  [[nodiscard]] traffic times(std::size_t n) const { return {messages * n, bytes * n, rounds * n, collectives * n, 0}; }

  friend bool operator==(const traffic&, const traffic&) = default;
};

/// The type in which values of T are summed: fp32 for 16-bit types, T itself for all others.
template <class T>
struct accumulate_dtype {
  using type = T;
};
template <>
struct accumulate_dtype<bf16> {
  using type = float;
};
template <>
struct accumulate_dtype<fp16> {
  using type = float;
};

/// A communicator. Only one thread at a time may use a group. Two groups of the same ranks on different channels are independent.
class group {
 public:
  /// `members`: ranks of the transport, in group rank order. Every member constructs the group with the same members and channel.
  ///   throws  config_error when this rank is not a member, or is listed twice
  group(std::shared_ptr<transport> network, std::vector<std::size_t> members, std::uint32_t channel)
      : network_(std::move(network)), members_(std::move(members)), channel_(channel), tree_(members_.size()) {
    require<config_error>(std::count(members_.begin(), members_.end(), network_->rank()) == 1, "group: rank ", network_->rank(),
                          " creates it and must be a member, once");
    for (const std::size_t member : members_)
      require<config_error>(member < network_->size(), "group: members must be below the ", network_->size(), " ranks there are; given ", member);
    rank_ = static_cast<std::size_t>(std::find(members_.begin(), members_.end(), network_->rank()) - members_.begin());
  }
  /// All ranks of the transport.
  explicit group(std::shared_ptr<transport> network, std::uint32_t channel = 0) : group(network, all_of(network->size()), channel) {}

  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] const traffic& sent() const { return sent_; }
  [[nodiscard]] const std::shared_ptr<transport>& network() const { return network_; }

  // ---- point-to-point messages ----

  template <class T>
  [[nodiscard]] pending_message begin_send(std::size_t to, std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    ++sent_.messages;
    sent_.bytes += values.size_bytes();
    return network_->send(members_[to], channel_, std::as_bytes(values));
  }
  template <class T>
  [[nodiscard]] pending_message begin_receive(std::size_t from, std::span<T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    return network_->receive(members_[from], channel_, std::as_writable_bytes(values));
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
    ++sent_.collectives;
    if (values.size_bytes() <= small) return reduce_whole(values, how);
    const std::size_t part = part_of(values.size());
    reduce_scatter_to(std::span<const T>(values), range(values, rank_, part), part, how);
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
    if (size() == 1) return;
    ++sent_.collectives;
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
    ++sent_.collectives;
    reduce_scatter_to(whole, part, part.size(), how);
  }

  /// Every rank gets the values of `root`.
  template <class T>
  void broadcast(std::span<T> values, std::size_t root) {
    if (size() == 1) return;
    ++sent_.collectives;
    if (values.size_bytes() <= small) return broadcast_whole(values, root);
    // the root sends everything once, one part to each rank; the ranks then all-gather their parts
    const std::size_t part = part_of(values.size());
    ++sent_.rounds;
    if (rank_ == root) {
      const auto sends = to_all_others([&](std::size_t to) { return begin_send(to, std::span<const T>(range(values, to, part))); });
      wait_all(sends);
    } else {
      receive(root, range(values, rank_, part));
    }
    all_gather_ranges(values, part, root);
  }

  /// Only `root` gets the reduction, in place, with the bits of all_reduce; the values of the other ranks are unchanged.
  template <class T>
  void reduce(std::span<T> values, reduction how, std::size_t root) {
    if (size() == 1) return;
    ++sent_.collectives;
    reduce_whole(values, how, root);
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
    require<shape_error>(from.size() == to.size() && from.size() % size() == 0, "group: all_to_all must have ",
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
    if (size() > 1) sent_ += {0, 0, 1, 1};
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
    if (size() > 1) sent_ += {0, 0, 1, 1};
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
    if (size() == 1) return;
    ++sent_.collectives;
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
    ++sent_.collectives;
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
  static constexpr std::size_t small = 4096;            // bytes; up to here, sending everything in each round is faster than twice the rounds
  static constexpr std::size_t piece_bytes = 1U << 20;  // of a direct message: smaller messages cost time, larger ones scratch memory
  static constexpr std::size_t tree_bytes = 1U << 25;   // of the parts of all ranks that go through the rounds at a time

  /// The host can dereference the pointers, or (in a dry run) nothing ever does.
  template <class Memory>
  static constexpr bool directly = clause::memory_is_host_addressable<Memory> || is_dry_memory<Memory>;

  static std::vector<std::size_t> all_of(std::size_t size) {
    std::vector<std::size_t> all(size);
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
  }
  [[nodiscard]] bool carries() const { return network_->carries(); }
  /// Elements per rank when parts may differ in length; the last parts may be shorter, or empty.
  [[nodiscard]] std::size_t part_of(std::size_t n) const { return (n + size() - 1) / size(); }
  template <class T>
  [[nodiscard]] static std::span<T> range(std::span<T> whole, std::size_t rank, std::size_t part) {
    const std::size_t begin = std::min(whole.size(), rank * part);
    return whole.subspan(begin, std::min(part, whole.size() - begin));
  }
  /// Some of the scratch memory, where there is any.
  template <class T>
  [[nodiscard]] std::span<T> some(std::vector<T>& memory, std::size_t first, std::size_t n) const {
    return carries() ? std::span<T>(memory).subspan(first, n) : std::span<T>();
  }
  void require_parts(std::size_t part, std::size_t whole) const {
    require<shape_error>(part * size() == whole, "group: ", size(), " ranks' shards must make up the whole array; a shard has ", part,
                         " elements and the array ", whole);
  }

  void require_in(const message_part& part, std::size_t elements, std::size_t length) const {
    const std::size_t rows = elements / std::max<std::size_t>(length, 1);
    require<shape_error>(part.rank < size() && part.first <= rows && part.count <= rows - part.first, "group: a part must be one of ", size(),
                         " ranks' and in an array of ", rows, " rows; given rank ", part.rank, ", row ", part.first, " and ", part.count, " rows");
  }

  /// send() of n elements in scratch memory.
  template <class T>
  void send_some(std::size_t to, std::span<T> values, std::size_t n) {
    if (carries()) send(to, std::span<const T>(values));
    else count(1, n * sizeof(T));
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

  void takes_scratch(std::size_t bytes) { sent_.scratch = std::max(sent_.scratch, bytes); }
  template <class T>
  [[nodiscard]] std::vector<T>& scratch(std::size_t n) {
    static_assert(std::is_trivially_copyable_v<T>);
    auto& memory = std::get<std::vector<T>>(scratch_);
    if (carries() && memory.size() < n) memory.resize(n);
    return memory;
  }

  // ---- direct messages: each rank to each ----

  /// result[i] = parts[0][i] + parts[1][i] + ..., in this order
  template <class T, class Sum>
  static void reduce_parts(std::span<const T* const> parts, std::span<Sum> result, reduction how) {
    using sum = typename accumulate_dtype<T>::type;
    constexpr std::size_t block = 256;
    std::array<sum, block> acc;
    for (std::size_t begin = 0; begin < result.size(); begin += block) {
      const std::size_t n = std::min(block, result.size() - begin);
      for (std::size_t r = 0; r < parts.size(); ++r) {
        const T* from = parts[r] + begin;
        if (r == 0)
          for (std::size_t i = 0; i < n; ++i) acc[i] = static_cast<sum>(from[i]);
        else if (how == reduction::sum)
          for (std::size_t i = 0; i < n; ++i) acc[i] = static_cast<sum>(acc[i] + static_cast<sum>(from[i]));
        else
          for (std::size_t i = 0; i < n; ++i) acc[i] = std::max(acc[i], static_cast<sum>(from[i]));
      }
      for (std::size_t i = 0; i < n; ++i) result[begin + i] = static_cast<Sum>(acc[i]);
    }
  }

  /// Part r of the whole (`part` elements, or what is left of them) is reduced to rank r, into `mine`.
  template <class T>
  void reduce_scatter_to(std::span<const T> whole, std::span<T> mine, std::size_t part, reduction how) {
    if (part == 0) return;
    if (!tree_.is_direct()) return reduce_scatter_in_rounds(whole, mine, part, how);
    const std::size_t piece = std::max(piece_bytes, 4 * piece_bytes / size()) / sizeof(T);
    sent_.rounds += (part + piece - 1) / piece;
    takes_scratch(std::min(piece, size_of_part(rank_, whole.size(), part)) * size() * sizeof(T));
    if (!carries()) return count_pieces(whole, part, piece);
    std::vector<const T*> parts(size());
    for (std::size_t begin = 0; begin < part; begin += piece) {
      const auto piece_of = [&](std::size_t rank) {
        const std::span<const T> theirs = range(whole, rank, part);
        const std::size_t first = std::min(begin, theirs.size());
        return theirs.subspan(first, std::min(piece, theirs.size() - first));
      };
      const std::span<const T> own = piece_of(rank_);
      std::vector<T>& all = scratch<T>(own.size() * size());
      const auto receives = to_all_others([&](std::size_t from) {
        return own.empty() ? nullptr : begin_receive(from, std::span<T>(all).subspan(from * own.size(), own.size()));
      });
      const auto sends = to_all_others([&](std::size_t to) {
        const std::span<const T> theirs = piece_of(to);
        return theirs.empty() ? nullptr : begin_send(to, theirs);
      });
      wait_all(receives);
      for (std::size_t r = 0; r < size(); ++r) parts[r] = r == rank_ ? own.data() : all.data() + r * own.size();
      if (!own.empty()) reduce_parts(std::span<const T* const>(parts), mine.subspan(begin, own.size()), how);
      wait_all(sends);
    }
  }

  /// Part r of `values` belongs to rank r, who sends it to every rank but `except`, which has it already.
  template <class T>
  void all_gather_ranges(std::span<T> values, std::size_t part, std::size_t except = ~std::size_t{0}) {
    if (size() == 1 || part == 0) return;
    if (!tree_.is_direct()) return all_gather_in_rounds(values, part);
    ++sent_.rounds;
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

  // ---- rounds: a rank exchanges with those that differ from it in one digit ----

  /// This rank's digit in a round.
  [[nodiscard]] std::size_t digit(const halving_round& round) const { return rank_ / round.stride % round.ranks; }
  /// The rank that differs from this one in this digit only.
  [[nodiscard]] std::size_t with_digit(const halving_round& round, std::size_t value) const {
    return rank_ - digit(round) * round.stride + value * round.stride;
  }
  [[nodiscard]] bool is_aside() const { return rank_ >= tree_.active(); }
  /// The rank set aside that gives this one its data; ~0: none.
  [[nodiscard]] std::size_t beside() const { return tree_.active() + rank_ < size() ? tree_.active() + rank_ : ~std::size_t{0}; }

  /// An all-reduce of few values, or a reduce to `root`: all values go through every round.
  template <class T>
  void reduce_whole(std::span<T> values, reduction how, std::size_t root = ~std::size_t{0}) {
    using sum = typename accumulate_dtype<T>::type;
    const bool everybody = root == ~std::size_t{0};
    const std::size_t n = values.size(), target = everybody ? 0 : root % tree_.active();
    sent_.rounds += tree_.depth();
    std::size_t widest = 1;
    for (const halving_round& round : tree_.rounds()) widest = std::max(widest, round.ranks);
    takes_scratch(n * (tree_.is_direct() ? widest * sizeof(T) : (widest + 1) * sizeof(sum)));
    if (tree_.is_direct()) {  // as they are
      const std::size_t only = everybody ? rank_ : root;
      const std::span<T> all(scratch<T>(n * widest));
      reduce_digits(tree_.rounds()[0], std::span<const T>(values), all, values, how, everybody, only);
      return;
    }
    std::vector<sum>& memory = scratch<sum>(n * (widest + 1));
    const std::span<sum> acc = some(memory, 0, n), others = some(memory, n, n * widest);
    if (carries()) std::transform(values.begin(), values.end(), acc.begin(), [](T value) { return static_cast<sum>(value); });
    const auto finish = [&] {
      if (carries()) std::transform(acc.begin(), acc.end(), values.begin(), [](sum value) { return static_cast<T>(value); });
    };
    if (is_aside()) {
      send_some(rank_ - tree_.active(), acc, n);
      if (!everybody && root != rank_) return;
      receive(rank_ - tree_.active(), acc);
      return finish();
    }
    if (const std::size_t other = beside(); other < size()) {
      receive(other, others.first(carries() ? n : 0));
      const std::array<const sum*, 2> parts{acc.data(), others.data()};
      if (carries()) reduce_parts(std::span<const sum* const>(parts), acc, how);
    }
    for (const halving_round& round : tree_.rounds()) {
      const std::size_t wanted = everybody ? digit(round) : target / round.stride % round.ranks;
      reduce_digits(round, std::span<const sum>(acc), others, acc, how, everybody, with_digit(round, wanted), n);
      if (wanted != digit(round)) return;
    }
    if (const std::size_t other = beside(); other < size() && (everybody || other == root)) {
      send_some(other, acc, n);
      if (!everybody) return;
    }
    finish();
  }
  /// One round of it. `only`: the rank that gets the sums, unless everybody does.
  template <class T>
  void reduce_digits(const halving_round& round, std::span<const T> own, std::span<T> others, std::span<T> result, reduction how, bool everybody,
                     std::size_t only, std::size_t count_of_dry = ~std::size_t{0}) {
    const std::size_t n = count_of_dry == ~std::size_t{0} ? own.size() : count_of_dry, mine = digit(round);
    if (!carries()) return count(everybody ? round.ranks - 1 : only == rank_ ? 0 : 1, n * sizeof(T));
    std::vector<pending_message> receives, sends;
    if (!everybody && only != rank_) return send(only, own);
    for (std::size_t i = 1; i < round.ranks; ++i) {
      const std::size_t other = (mine + i) % round.ranks;
      receives.push_back(begin_receive(with_digit(round, other), others.subspan(other * n, n)));
    }
    for (std::size_t i = 1; i < round.ranks && everybody; ++i) sends.push_back(begin_send(with_digit(round, (mine + i) % round.ranks), own));
    wait_all(receives);
    wait_all(sends);  // the result may be where they came from
    std::vector<const T*> parts(round.ranks);
    for (std::size_t i = 0; i < round.ranks; ++i) parts[i] = i == mine ? own.data() : others.data() + i * n;
    reduce_parts(std::span<const T* const>(parts), result, how);
  }

  /// A broadcast of few values, down a binomial tree.
  template <class T>
  void broadcast_whole(std::span<T> values, std::size_t root) {
    if (tree_.is_direct()) {
      ++sent_.rounds;
      if (rank_ != root) return receive(root, values);
      const auto sends = to_all_others([&](std::size_t to) { return begin_send(to, std::span<const T>(values)); });
      return wait_all(sends);
    }
    const std::size_t from_root = (rank_ + size() - root) % size();
    sent_.rounds += static_cast<std::size_t>(std::bit_width(size() - 1));
    std::size_t bit = 1;
    for (; bit < size() && (from_root & bit) == 0; bit *= 2) {
    }
    if (from_root != 0) receive((rank_ + size() - bit) % size(), values);
    std::vector<pending_message> sends;
    for (bit /= 2; bit > 0; bit /= 2)
      if (from_root + bit < size()) sends.push_back(begin_send((rank_ + bit) % size(), std::span<const T>(values)));
    wait_all(sends);
  }

  /// The layout of one piece in scratch memory: the parts in the order of recursive_halving::rank_at, each followed by that of the rank set
  /// aside beside it, so that what a rank sends in a round is contiguous. Calls visit(owner, first in the whole, first here, count) for every
  /// part that is not empty.
  ///   first   written: where the parts of each position begin, and the end
  template <class Visit>
  void lay_out(std::size_t n, std::size_t part, std::size_t begin, std::size_t length, std::vector<std::size_t>& first, Visit&& visit) const {
    first.clear();
    std::size_t here = 0;
    const auto add = [&](std::size_t owner) {
      const std::size_t from = std::min(n, owner * part + begin), until = std::min({n, (owner + 1) * part, owner * part + begin + length});
      if (until > from) visit(owner, from, here, until - from);
      here += until > from ? until - from : 0;
    };
    for (std::size_t position = 0; position < tree_.active(); ++position) {
      const std::size_t owner = tree_.rank_at(position);
      first.push_back(here);
      add(owner);
      if (owner + tree_.active() < size()) add(owner + tree_.active());
    }
    first.push_back(here);
  }
  /// Before a round this rank has the positions from `begin` on, `width` for each value of the digit.
  struct halving_range {
    std::size_t begin, width;
  };
  [[nodiscard]] std::vector<halving_range> ranges_of_rounds() const {
    std::vector<halving_range> ranges;
    std::size_t begin = 0, width = tree_.active();
    for (const halving_round& round : tree_.rounds()) {
      width /= round.ranks;
      ranges.push_back({begin, width});
      begin += digit(round) * width;
    }
    return ranges;
  }
  /// Values of each rank's part in one piece.
  template <class Number>
  [[nodiscard]] std::size_t length_of_pieces(std::size_t part) const {
    return std::clamp<std::size_t>(tree_bytes / sizeof(Number) / size(), 1, part);
  }

  // A dry run counts these rounds in closed form.

  /// Values in the parts of active ranks that are `residue` modulo `stride`, and of the ranks set aside beside them.
  [[nodiscard]] std::size_t numbers_of(std::size_t residue, std::size_t stride, std::size_t n, std::size_t part) const {
    const std::size_t whole = n / part, rest = n % part, active = tree_.active();
    const auto below = [&](std::size_t limit) { return limit > residue ? (limit - residue - 1) / stride + 1 : 0; };
    std::size_t parts = below(std::min(whole, active)), more = whole < active && whole % stride == residue ? rest : 0;
    if (whole > active) parts += below(std::min(whole - active, tree_.aside()));
    if (whole >= active && whole < size() && (whole - active) % stride == residue) more += rest;
    return parts * part + more;
  }
  [[nodiscard]] static std::size_t pieces_of(std::size_t rank, std::size_t n, std::size_t part, std::size_t length) {
    const std::size_t begin = std::min(n, rank * part), count = std::min(part, n - begin);
    return (count + length - 1) / length;
  }
  [[nodiscard]] static std::size_t size_of_part(std::size_t rank, std::size_t n, std::size_t part) {
    return std::min(part, n - std::min(n, rank * part));
  }

  /// Recursive halving, in pieces of tree_bytes. In each round a rank sends the parts of the ranks that differ from it in the round's digit,
  /// and adds what it receives to its own. 16-bit values travel as they are in the first round, then in fp32.
  template <class T>
  void reduce_scatter_in_rounds(std::span<const T> whole, std::span<T> mine, std::size_t part, reduction how) {
    using sum = typename accumulate_dtype<T>::type;
    constexpr bool is_exact = std::is_same_v<sum, T>;
    const std::size_t n = whole.size(), length = length_of_pieces<sum>(part), other = beside();
    const bool begins_as_sums = is_exact || tree_.aside() > 0;
    sent_.rounds += pieces_of(0, n, part, length) * tree_.depth();
    takes_scratch(2 * std::min(n, length * size()) * (sizeof(T) + (is_exact ? 0 : sizeof(sum))));
    if (!carries()) {
      if (is_aside()) {
        sent_ += {pieces_of(0, n, part, length), n * sizeof(T)};
        return;
      }
      bool as_sums = begins_as_sums;
      for (const halving_round& round : tree_.rounds()) {
        for (std::size_t i = 0; i < round.ranks; ++i)
          if (i != digit(round)) {
            const std::size_t residue = rank_ % round.stride + i * round.stride;
            sent_ += {pieces_of(residue, n, part, length), numbers_of(residue, round.stride * round.ranks, n, part) * (as_sums ? sizeof(sum) : sizeof(T))};
          }
        as_sums = true;
      }
      if (other < size()) sent_ += {pieces_of(other, n, part, length), size_of_part(other, n, part) * sizeof(T)};
      return;
    }
    const std::vector<halving_range> ranges = is_aside() ? std::vector<halving_range>{} : ranges_of_rounds();
    std::vector<std::size_t> first;
    std::vector<pending_message> sends;
    for (std::size_t begin = 0; begin < part && begin < n; begin += length) {
      lay_out(n, part, begin, length, first, [](std::size_t, std::size_t, std::size_t, std::size_t) {});
      const std::size_t total = first.back();
      std::size_t received = other < size() ? total : 0;  // at once
      for (std::size_t k = 0; k < ranges.size(); ++k) {
        const halving_round& round = tree_.rounds()[k];
        const std::size_t at = ranges[k].begin + digit(round) * ranges[k].width;
        received = std::max(received, (round.ranks - 1) * (first[at + ranges[k].width] - first[at]));
      }
      std::vector<T>& memory = scratch<T>(total + received);
      const std::span<T> values(memory.data(), total), arrived(memory.data() + total, received);
      lay_out(n, part, begin, length, first, [&](std::size_t, std::size_t from, std::size_t here, std::size_t count) {
        std::copy_n(whole.data() + from, count, values.data() + here);
      });
      const std::span<T> own = mine.subspan(std::min(begin, mine.size()), std::min(length, mine.size() - std::min(begin, mine.size())));
      if (is_aside()) {
        send(rank_ - tree_.active(), std::span<const T>(values));
        if (!own.empty()) receive(rank_ - tree_.active(), own);
        continue;
      }
      std::span<sum> sums, arrived_sums;
      if constexpr (is_exact) {
        sums = values;
        arrived_sums = arrived;
      } else {
        std::vector<sum>& more = scratch<sum>(total + received);
        sums = std::span<sum>(more.data(), total);
        arrived_sums = std::span<sum>(more.data() + total, received);
      }
      if (other < size()) {
        receive(other, arrived.first(total));
        const std::array<const T*, 2> parts{values.data(), arrived.data()};
        reduce_parts(std::span<const T* const>(parts), sums, how);
      } else if (begins_as_sums && !is_exact) {
        std::transform(values.begin(), values.end(), sums.begin(), [](T value) { return static_cast<sum>(value); });
      }
      for (std::size_t k = 0; k < ranges.size(); ++k) {
        if (k == 0 && !begins_as_sums) halve(k, ranges[k], first, std::span<const T>(values), arrived, sums, how, sends);
        else halve(k, ranges[k], first, std::span<const sum>(sums), arrived_sums, sums, how, sends);
      }
      const std::size_t at = first[ranges.empty() ? 0 : ranges.back().begin + digit(tree_.rounds().back()) * ranges.back().width];
      const auto rounded = [](sum value) { return static_cast<T>(value); };
      std::transform(sums.begin() + static_cast<std::ptrdiff_t>(at), sums.begin() + static_cast<std::ptrdiff_t>(at + own.size()), own.begin(), rounded);
      if (other < size() && begin < size_of_part(other, n, part)) {
        const std::size_t count = std::min(length, size_of_part(other, n, part) - begin);
        const std::span<const sum> theirs = sums.subspan(at + own.size(), count);
        std::transform(theirs.begin(), theirs.end(), values.begin() + static_cast<std::ptrdiff_t>(at + own.size()), rounded);
        send(other, std::span<const T>(values.subspan(at + own.size(), count)));
      }
      wait_all(sends);
      sends.clear();
    }
  }
  /// A round of it.
  ///   from     read: this rank's values, in the layout of the piece
  ///   arrived  written: what is received, one rank after the other
  ///   to       written: the sums that this rank keeps, in the same layout; may be `from`
  ///   sends    added to: sends that are still reading `from`
  template <class In, class Sum>
  void halve(std::size_t k, const halving_range& range, std::span<const std::size_t> first, std::span<const In> from, std::span<In> arrived,
             std::span<Sum> to, reduction how, std::vector<pending_message>& sends) {
    const halving_round& round = tree_.rounds()[k];
    const std::size_t mine = digit(round);
    const auto begin_of = [&](std::size_t i) { return first[range.begin + i * range.width]; };
    const std::size_t count = begin_of(mine + 1) - begin_of(mine);
    std::vector<pending_message> receives;
    std::vector<const In*> parts(round.ranks);
    const In* next = arrived.data();
    for (std::size_t i = 0; i < round.ranks; ++i) parts[i] = i == mine ? from.data() + begin_of(mine) : std::exchange(next, next + count);
    for (std::size_t i = 1; i < round.ranks; ++i) {
      const std::size_t other = (mine + i) % round.ranks;
      if (count > 0) receives.push_back(begin_receive(with_digit(round, other), arrived.subspan(static_cast<std::size_t>(parts[other] - arrived.data()), count)));
    }
    for (std::size_t i = 1; i < round.ranks; ++i) {
      const std::size_t other = (mine + i) % round.ranks, begin = begin_of(other), end = begin_of(other + 1);
      if (end > begin) sends.push_back(begin_send(with_digit(round, other), from.subspan(begin, end - begin)));
    }
    wait_all(receives);
    if (count > 0) reduce_parts(std::span<const In* const>(parts), to.subspan(begin_of(mine), count), how);
  }

  /// Recursive doubling, in pieces of tree_bytes: the same rounds backwards. A rank sends what it has gathered so far to those that differ
  /// from it in the round's digit.
  template <class T>
  void all_gather_in_rounds(std::span<T> values, std::size_t part) {
    const std::size_t n = values.size(), length = length_of_pieces<T>(part), other = beside();
    const auto& rounds = tree_.rounds();
    sent_.rounds += pieces_of(0, n, part, length) * tree_.depth();
    takes_scratch(std::min(n, length * size()) * sizeof(T));
    if (!carries()) {
      if (is_aside()) {
        sent_ += {pieces_of(rank_, n, part, length), size_of_part(rank_, n, part) * sizeof(T)};
        return;
      }
      for (const halving_round& round : rounds) {
        const std::size_t all = round.stride * round.ranks, residue = rank_ % all, bytes = numbers_of(residue, all, n, part) * sizeof(T);
        sent_ += {(round.ranks - 1) * pieces_of(residue, n, part, length), (round.ranks - 1) * bytes};
      }
      if (other < size()) sent_ += {pieces_of(0, n, part, length), n * sizeof(T)};
      return;
    }
    const std::vector<halving_range> ranges = is_aside() ? std::vector<halving_range>{} : ranges_of_rounds();
    std::vector<std::size_t> first;
    std::vector<pending_message> sends, receives;
    for (std::size_t begin = 0; begin < part && begin < n; begin += length) {
      lay_out(n, part, begin, length, first, [](std::size_t, std::size_t, std::size_t, std::size_t) {});
      const std::span<T> all(scratch<T>(first.back()).data(), first.back());
      const std::size_t held = size_of_part(rank_, n, part);
      const std::span<const T> own = std::span<const T>(range(values, rank_, part)).subspan(std::min(begin, held), std::min(length, held - std::min(begin, held)));
      if (is_aside()) {
        if (!own.empty()) send(rank_ - tree_.active(), own);
        receive(rank_ - tree_.active(), all);
      } else {
        const std::size_t at = first[ranges.empty() ? 0 : ranges.back().begin + digit(rounds.back()) * ranges.back().width];
        std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(at));
        if (other < size() && begin < size_of_part(other, n, part))
          receive(other, all.subspan(at + own.size(), std::min(length, size_of_part(other, n, part) - begin)));
        for (std::size_t k = ranges.size(); k-- > 0;) {
          const halving_round& round = rounds[k];
          const std::size_t mine = digit(round);
          const auto block = [&](std::size_t i) {
            const std::size_t from = first[ranges[k].begin + i * ranges[k].width];
            return all.subspan(from, first[ranges[k].begin + (i + 1) * ranges[k].width] - from);
          };
          for (std::size_t i = 1; i < round.ranks; ++i) {
            const std::size_t from = (mine + i) % round.ranks;
            if (!block(from).empty()) receives.push_back(begin_receive(with_digit(round, from), block(from)));
          }
          for (std::size_t i = 1; i < round.ranks && !block(mine).empty(); ++i)
            sends.push_back(begin_send(with_digit(round, (mine + i) % round.ranks), std::span<const T>(block(mine))));
          wait_all(receives);
          receives.clear();
        }
        if (other < size()) sends.push_back(begin_send(other, std::span<const T>(all)));
      }
      lay_out(n, part, begin, length, first, [&](std::size_t owner, std::size_t from, std::size_t here, std::size_t count) {
        if (owner != rank_) std::copy_n(all.data() + here, count, values.data() + from);
      });
      wait_all(sends);
      sends.clear();
    }
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

  std::shared_ptr<transport> network_;
  std::vector<std::size_t> members_;
  std::uint32_t channel_;
  recursive_halving tree_;
  std::size_t rank_ = 0;
  traffic sent_{};
  std::tuple<std::vector<float>, std::vector<double>, std::vector<bf16>, std::vector<fp16>, std::vector<std::uint8_t>, std::vector<std::int32_t>,
             std::vector<std::int64_t>, std::vector<std::uint32_t>, std::vector<std::uint64_t>>
      scratch_;
};

static_assert(communicator<group>);

}  // namespace xtrain
