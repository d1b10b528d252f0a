// A process group and its collectives, made of point-to-point messages. Reductions have an order that depends only on the number of ranks
// (recursive_halving.hpp): equal bits on every rank and transport, for any delays and splits. 16-bit values are summed in fp32 and rounded once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <xtrain/comm/all_to_all.hpp>
#include <xtrain/comm/array_parts.hpp>
#include <xtrain/comm/collectives_in_rounds.hpp>
#include <xtrain/comm/concepts.hpp>
#include <xtrain/comm/direct_collectives.hpp>
#include <xtrain/comm/halving_position.hpp>
#include <xtrain/comm/host_staging.hpp>
#include <xtrain/comm/point_to_point.hpp>
#include <xtrain/comm/traffic.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/comm/whole_array_collectives.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/concepts.hpp>

namespace xtrain {

/// A communicator for one thread at a time. Groups of the same ranks on different channels are independent.
class group : private detail::point_to_point {
 public:
  /// `members`: transport ranks in group order; equal members and channel on every member.
  ///   throws  config_error when this rank is not a member, or is listed twice
  group(std::shared_ptr<transport> network, std::vector<std::size_t> members, std::uint32_t channel)
      : point_to_point(std::move(network), std::move(members), channel), position_(rank(), size()) {}
  explicit group(std::shared_ptr<transport> network, std::uint32_t channel = 0) : group(network, all_of(network->size()), channel) {}

  using point_to_point::network;
  using point_to_point::rank;
  using point_to_point::sent;
  using point_to_point::size;

  // ---- point-to-point messages ----

  using point_to_point::begin_receive;
  using point_to_point::begin_send;
  using point_to_point::receive;
  using point_to_point::send;

  /// For device memory, on a second stream.
  using point_to_point::lane;

  /// Host memory for messages of device memory.
  [[nodiscard]] detail::message_staging& staging() { return staging_; }

  // ---- collectives on the host ----

  void barrier();

  /// In place, on every rank.
  template <class T>
  void all_reduce(std::span<T> values, reduction op) {
    if (size() == 1) return;
    count_collective();
    if (values.size_bytes() <= detail::max_whole_bytes) return detail::reduce_whole(*this, position_, values, op);
    const std::size_t part = detail::length_of_parts(values.size(), size());
    reduce_scatter_to(std::span<const T>(values), detail::range_of_part(values, rank(), part), part, op);
    all_gather_ranges(values, part);
  }
  void all_reduce(std::span<double> values, reduction op);

  /// whole: size() parts in rank order; may contain `part` at its position.
  ///   throws  shape_error
  template <class T>
  void all_gather(std::span<const T> part, std::span<T> whole) {
    require_parts(part.size(), whole.size());
    const std::span<T> mine = whole.subspan(rank() * part.size(), part.size());
    if (carries() && mine.data() != part.data()) std::copy(part.begin(), part.end(), mine.begin());
    if (size() == 1) return;
    count_collective();
    all_gather_ranges(whole, part.size());
  }

  /// part: this rank's part of size() parts of the reduction. May alias its position in `whole`, which is otherwise unchanged.
  ///   throws  shape_error
  template <class T>
  void reduce_scatter(std::span<const T> whole, std::span<T> part, reduction op) {
    require_parts(part.size(), whole.size());
    if (size() == 1) {
      if (carries() && part.data() != whole.data()) std::copy(whole.begin(), whole.end(), part.begin());
      return;
    }
    count_collective();
    reduce_scatter_to(whole, part, part.size(), op);
  }

  template <class T>
  void broadcast(std::span<T> values, std::size_t root) {
    if (size() == 1) return;
    count_collective();
    if (values.size_bytes() <= detail::max_whole_bytes) return detail::broadcast_whole(*this, position_, values, root);
    // the root sends each rank a part; ranks all-gather the parts
    const std::size_t part = detail::length_of_parts(values.size(), size());
    count_rounds(1);
    if (rank() == root) {
      const auto sends =
          to_all_others([&](std::size_t to) { return begin_send(to, std::span<const T>(detail::range_of_part(values, to, part))); });
      wait_all(sends);
    } else {
      receive(root, detail::range_of_part(values, rank(), part));
    }
    all_gather_ranges(values, part, root);
  }

  /// In place on `root`, with the bits of all_reduce; other ranks' values are unchanged.
  template <class T>
  void reduce(std::span<T> values, reduction op, std::size_t root) {
    if (size() == 1) return;
    count_collective();
    detail::reduce_whole(*this, position_, values, op, root);
  }

  /// whole, on `root` only: parts in rank order.
  template <class T>
  void gather(std::span<const T> part, std::span<T> whole, std::size_t root) {
    if (rank() != root) return send(root, part);
    require_parts(part.size(), whole.size());
    const auto receives =
        to_all_others([&](std::size_t from) { return begin_receive(from, detail::range_of_part(whole, from, part.size())); });
    if (carries()) std::copy(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(rank() * part.size()));
    wait_all(receives);
  }

  /// part: this rank's part of the root's `whole`.
  template <class T>
  void scatter(std::span<const T> whole, std::span<T> part, std::size_t root) {
    if (rank() != root) return receive(root, part);
    require_parts(part.size(), whole.size());
    const auto sends = to_all_others([&](std::size_t to) { return begin_send(to, whole.subspan(to * part.size(), part.size())); });
    if (carries()) std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(rank() * part.size()), part.size(), part.begin());
    wait_all(sends);
  }

  /// Part i of `from` goes to rank i; part i of `to` comes from it.
  ///   throws  shape_error
  template <class T>
  void all_to_all(std::span<const T> from, std::span<T> to) {
    require<shape_error>(from.size() == to.size() && from.size() % size() == 0, "group: all_to_all must have ",
                         size(), " equal parts; given ", from.size(), " and ", to.size(), " elements");
    const std::vector<std::size_t> equal(size(), from.size() / size());
    all_to_all(from, std::span<const std::size_t>(equal), to, std::span<const std::size_t>(equal));
  }
  /// `sends[i]` elements go to rank i, `receives[i]` come from it.
  template <class T>
  void all_to_all(std::span<const T> from, std::span<const std::size_t> sends, std::span<T> to, std::span<const std::size_t> receives) {
    detail::all_to_all(*this, from, sends, to, receives);
  }

  /// Sends and receives each part in one message; between two ranks in list order. A row has `length` elements.
  ///   throws  shape_error when a part is outside its array, or parts for this rank do not match
  template <class T>
  void exchange(std::span<const T> from, std::span<const message_part> sends, std::span<T> to, std::span<const message_part> receives,
                std::size_t length = 1) {
    detail::exchange(*this, from, sends, to, receives, length);
  }

  /// In-place all-gather: every rank owns a range; ranges have equal length, the last may be shorter.
  template <class T>
  void share_ranges(std::span<T> values) {
    if (size() == 1) return;
    count_collective();
    all_gather_ranges(values, detail::length_of_parts(values.size(), size()));
  }

  // ---- collectives on device memory: queued on the stream, by native_collectives if the transport has them. Complete on return where the host can address
  // the memory, or the stream cannot run host functions. Until completion, use this group only on this stream ----

  template <class Stream, class T, class Memory>
  void all_reduce(Stream& stream, device_span<T, Memory> values, reduction op) {
    if (size() == 1) return;
    if (on_device<T>(stream, [&](auto& native) { native.all_reduce(&stream, detail::array_of(values), op); })) return;
    detail::on_host(stream, staging_, values, true, [this, op](std::span<T> host) { all_reduce(host, op); });
  }
  template <class Stream, class T, class Memory>
  void all_gather(Stream& stream, device_span<const T, Memory> part, device_span<T, Memory> whole) {
    require_parts(part.size(), whole.size());
    if (size() > 1 && on_device<T>(stream, [&](auto& native) { native.all_gather(&stream, part.raw(), detail::array_of(whole)); })) return;
    const auto mine = whole.subspan(rank() * part.size(), part.size());
    if (mine.raw() != part.raw()) copy_within(stream, mine, part);
    if (size() == 1) return;
    detail::on_host(stream, staging_, whole, true, [this, n = part.size()](std::span<T> host) {
      count_collective();
      all_gather_ranges(host, n);
    });
  }
  template <class Stream, class T, class Memory>
  void share_ranges(Stream& stream, device_span<T, Memory> values) {
    if (size() == 1) return;
    if (values.size() % size() == 0) {
      const auto mine = values.subspan(rank() * (values.size() / size()), values.size() / size());
      if (on_device<T>(stream, [&](auto& native) { native.all_gather(&stream, mine.raw(), detail::array_of(values)); })) return;
    }
    detail::on_host(stream, staging_, values, true, [this](std::span<T> host) { share_ranges(host); });
  }
  template <class Stream, class T, class Memory>
  void reduce_scatter(Stream& stream, device_span<const T, Memory> whole, device_span<T, Memory> part, reduction op) {
    require_parts(part.size(), whole.size());
    if (size() == 1) {
      if (part.raw() != whole.raw()) copy_within(stream, part, whole);
      return;
    }
    if (on_device<T>(stream, [&](auto& native) { native.reduce_scatter(&stream, detail::array_of(whole), part.raw(), op); })) return;
    detail::on_host(stream, staging_, whole, part, [this, op](std::span<const T> all, std::span<T> mine) { reduce_scatter(all, mine, op); });
  }
  /// Part i of `from` goes to rank i; part i of `to` comes from it.
  ///   throws  shape_error
  template <class Stream, class T, class Memory>
  void all_to_all(Stream& stream, device_span<const T, Memory> from, device_span<T, Memory> to) {
    if (size() > 1 && from.size() == to.size() && from.size() % size() == 0 && on_device<T>(stream, [&](auto& native) {
          native.all_to_all(&stream, detail::array_of(from), detail::array_of(to), size(), sizeof(T));
        }))
      return;
    detail::on_host(stream, staging_, from, to, [this](std::span<const T> sent, std::span<T> received) { all_to_all(sent, received); });
  }
  template <class Stream, class T, class Memory>
  void broadcast(Stream& stream, device_span<T, Memory> values, std::size_t root) {
    if (size() == 1) return;
    if (on_device<T>(stream, [&](auto& native) { native.broadcast(&stream, detail::array_of(values), root); })) return;
    detail::on_host(stream, staging_, values, true, [this, root](std::span<T> host) { broadcast(host, root); });
  }
  template <class Stream, class T, class Memory>
  void exchange(Stream& stream, device_span<const T, Memory> from, std::span<const message_part> sends, device_span<T, Memory> to,
                std::span<const message_part> receives, std::size_t length) {
    if (size() > 1 && on_device<T>(stream, [&](auto& native) { exchange_natively(native, stream, from, sends, to, receives, length); })) return;
    if constexpr (!detail::is_staged<Memory>) {
      stream.synchronize();
      return exchange(std::span<const T>(from.raw(), from.size()), sends, detail::host_span(to), receives, length);
    }
    detail::on_host(stream, staging_, from, to,
                    [this, length, s = std::vector<message_part>(sends.begin(), sends.end()),
                     r = std::vector<message_part>(receives.begin(), receives.end())](std::span<const T> sent, std::span<T> received) {
                      exchange(sent, std::span<const message_part>(s), received, std::span<const message_part>(r), length);
                    });
  }
  template <class Stream, class T, class Memory>
  void send(Stream& stream, std::size_t to, device_span<const T, Memory> values) {
    if (on_device<T>(stream, [&](auto& native) { native.send(&stream, detail::array_of(values), to); })) return;
    detail::on_host(stream, staging_, device_span<T, Memory>(device_ptr<T, Memory>(const_cast<T*>(values.raw())), values.size()), false,
                    [this, to](std::span<T> host) { send(to, std::span<const T>(host)); });
  }
  template <class Stream, class T, class Memory>
  void receive(Stream& stream, std::size_t from, device_span<T, Memory> values) {
    if (on_device<T>(stream, [&](auto& native) { native.receive(&stream, detail::array_of(values), from); })) return;
    detail::on_host(stream, staging_, values, true, [this, from](std::span<T> host) { receive(from, host); });
  }
  /// Two ranks may send to each other.
  template <class Stream, class T, class Memory>
  void send_receive(Stream& stream, device_span<const T, Memory> sent, std::size_t to, device_span<T, Memory> received, std::size_t from) {
    if (on_device<T>(stream, [&](auto& native) { native.send_receive(&stream, detail::array_of(sent), to, detail::array_of(received), from); })) return;
    detail::on_host(stream, staging_, sent, received, [this, to, from](std::span<const T> s, std::span<T> r) {
      const pending_message coming = begin_receive(from, r);
      const pending_message going = begin_send(to, s);
      wait(coming);
      wait(going);
    });
  }

 private:
  template <class Stream, class T, class Memory>
  void exchange_natively(native_collectives& native, Stream& stream, device_span<const T, Memory> from, std::span<const message_part> sends,
                         device_span<T, Memory> to, std::span<const message_part> receives, std::size_t length) {
    detail::require_parts(*this, sends, from.size(), receives, to.size(), length);
    std::vector<device_message> all;
    for (const message_part& part : receives)
      if (part.rank != rank() && part.count != 0)
        all.push_back({part.rank, detail::array_of(to.subspan(part.first * length, part.count * length)), false});
    for (const message_part& part : sends)
      if (part.rank != rank() && part.count != 0)
        all.push_back({part.rank, detail::array_of(from.subspan(part.first * length, part.count * length)), true});
    native.exchange(&stream, all);
    detail::for_own_parts(*this, sends, receives, [&](const message_part& own, const message_part& place) {
      const auto source = from.subspan(own.first * length, own.count * length);
      const auto target = to.subspan(place.first * length, place.count * length);
      if (source.raw() != target.raw()) copy_within(stream, target, source);
    });
  }
  /// Queues call(native collectives) if they exist for this stream and dtype.
  template <class T, class Stream, class Call>
  [[nodiscard]] bool on_device([[maybe_unused]] Stream& stream, [[maybe_unused]] Call&& call) {
    if constexpr (requires { dtype_traits<T>::name; }) {
      if (native_collectives* const found = native<Stream>(); found != nullptr) {
        count_collective();
        call(*found);
        return true;
      }
    }
    return false;
  }
  static std::vector<std::size_t> all_of(std::size_t size) {
    std::vector<std::size_t> all(size);
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
  }
  void require_parts(std::size_t part, std::size_t whole) const {
    require<shape_error>(part * size() == whole, "group: ", size(), " ranks' shards must make up the whole array; a shard has ", part,
                         " elements and the array ", whole);
  }

  // ---- of arrays in parts: direct for few ranks, rounds for many ----

  template <class T>
  void reduce_scatter_to(std::span<const T> whole, std::span<T> mine, std::size_t part, reduction op) {
    if (part == 0) return;
    if (position_.tree().is_direct()) return detail::reduce_scatter_directly(*this, whole, mine, part, op);
    detail::reduce_scatter_in_rounds(*this, position_, whole, mine, part, op);
  }
  /// `except` has the part; direct messages skip it.
  template <class T>
  void all_gather_ranges(std::span<T> values, std::size_t part, std::size_t except = ~std::size_t{0}) {
    if (size() == 1 || part == 0) return;
    if (position_.tree().is_direct()) return detail::all_gather_directly(*this, values, part, except);
    detail::all_gather_in_rounds(*this, position_, values, part);
  }

  detail::halving_position position_;
  detail::message_staging staging_;  // for the queuing thread
};

static_assert(communicator<group>);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/comm/group_impl.hpp>
#endif
