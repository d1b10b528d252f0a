// A group's ranks and the messages that collectives are built from.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <xtrain/comm/message_scratch.hpp>
#include <xtrain/comm/native_lane.hpp>
#include <xtrain/comm/traffic.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain::detail {

/// Members are ranks 0, 1, ...; messages use one channel and are counted.
class point_to_point {
 public:
  static constexpr std::uint32_t pair_channels = 2048;  ///< first channel of pairs of members; a transport's groups use lower ones

  /// `members`: transport ranks in group order.
  ///   throws  config_error when this rank is not a member, or is listed twice
  point_to_point(std::shared_ptr<transport> network, std::vector<std::size_t> members, std::uint32_t channel)
      : network_(std::move(network)), members_(std::move(members)), channel_(channel) {
    require<config_error>(std::count(members_.begin(), members_.end(), network_->rank()) == 1, "group: rank ", network_->rank(),
                          " creates it and must be a member, once");
    for (const std::size_t member : members_)
      require<config_error>(member < network_->size(), "group: members must be below the ", network_->size(), " ranks there are; given ", member);
    rank_ = static_cast<std::size_t>(std::find(members_.begin(), members_.end(), network_->rank()) - members_.begin());
  }

  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] std::size_t size() const { return members_.size(); }
  [[nodiscard]] const std::shared_ptr<transport>& network() const { return network_; }
  /// Native collectives for these streams; null: none.
  template <class Stream>
  [[nodiscard]] native_collectives* native() {
    if (!carries()) return nullptr;
    if (!has_asked_) native_ = network_->native(members_, channel_);
    has_asked_ = true;
    return native_ && native_->stream_type() == typeid(Stream) ? native_.get() : nullptr;
  }
  /// Messages on a second stream; null: no native collectives for such streams, or no second stream.
  template <class Stream>
  [[nodiscard]] native_lane<Stream>* lane(Stream& main) {
    if constexpr (opens_beside<Stream>) {
      if (native<Stream>() == nullptr) return nullptr;
      return &lane_of(main, size(), size(), [&] { return native_; });
    } else {
      return nullptr;
    }
  }
  /// For messages between two members, including this rank, with a separate communicator: they must not wait for others. Connects all neighbors at the first
  /// message, in an order equal on all ranks: connecting may wait.
  template <class Stream>
  [[nodiscard]] native_lane<Stream>* lane(Stream& main, std::size_t from, std::size_t to) {
    if constexpr (opens_beside<Stream>) {
      if (native<Stream>() == nullptr) return nullptr;
      const std::size_t unconnected = has_pairs_ ? 0 : size();
      has_pairs_ = true;
      for (std::size_t one = 0; one < unconnected; ++one) {
        const std::size_t next = (one + 1) % size();
        if ((one != rank_ && next != rank_) || one == next) continue;
        (void)pair_lane(main, one, next);
        (void)pair_lane(main, next, one);
      }
      return &pair_lane(main, from, to);
    } else {
      return nullptr;
    }
  }
  /// False in a dry run: messages are only counted; scratch memory is empty.
  [[nodiscard]] bool carries() const { return network_->carries(); }

  // ---- messages ----

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
  /// send() of n elements in scratch memory.
  template <class T>
  void send_some(std::size_t to, std::span<T> values, std::size_t n) {
    if (carries()) send(to, std::span<const T>(values));
    else count_each(1, n * sizeof(T));
  }
  static void wait(const pending_message& begun) {
    if (begun) begun->wait();
  }
  static void wait_all(const std::vector<pending_message>& begun) {
    for (const pending_message& one : begun) wait(one);
  }
  /// Starts at rank + 1: ranks begin with different partners.
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

  // ---- counts: a dry run counts without a loop over messages, as there may be thousands of ranks ----

  [[nodiscard]] const traffic& sent() const { return sent_; }
  void count(const traffic& more) { sent_ += more; }
  void count_each(std::size_t messages, std::size_t bytes_of_each) { sent_ += {messages, messages * bytes_of_each}; }
  void count_rounds(std::size_t rounds) { sent_.rounds += rounds; }
  void count_collective() { ++sent_.collectives; }

  // ---- memory for messages ----

  void takes_scratch(std::size_t bytes) { sent_.scratch = std::max(sent_.scratch, bytes); }
  template <class T>
  [[nodiscard]] std::vector<T>& scratch(std::size_t n) {
    return scratch_.of<T>(carries() ? n : 0);
  }
  template <class T>
  [[nodiscard]] std::span<T> some(std::vector<T>& memory, std::size_t first, std::size_t n) const {
    return carries() ? std::span<T>(memory).subspan(first, n) : std::span<T>();
  }

 private:
  template <class Stream>
  [[nodiscard]] native_lane<Stream>& pair_lane(Stream& main, std::size_t from, std::size_t to) {
    return lane_of(main, from, to, [&] {
      const std::size_t pair[] = {members_[from], members_[to]};
      return std::shared_ptr<native_collectives>(network_->native(pair, pair_channels + channel_));
    });
  }
  template <class Stream, class Make>
  [[nodiscard]] native_lane<Stream>& lane_of(Stream& main, std::size_t from, std::size_t to, Make&& make) {
    for (const lane_between& one : lanes_)
      if (one.from == from && one.to == to && *one.stream == typeid(Stream)) return *static_cast<native_lane<Stream>*>(one.lane.get());
    const auto made = std::make_shared<native_lane<Stream>>(make(), main);
    lanes_.push_back({from, to, &typeid(Stream), made});
    return *made;
  }
  struct lane_between {
    std::size_t from = 0, to = 0;
    const std::type_info* stream = nullptr;
    std::shared_ptr<void> lane{};
  };

  std::shared_ptr<transport> network_;
  std::vector<std::size_t> members_;
  std::uint32_t channel_;
  std::size_t rank_ = 0;
  std::shared_ptr<native_collectives> native_{};
  bool has_asked_ = false, has_pairs_ = false;
  std::vector<lane_between> lanes_;
  traffic sent_{};
  message_scratch scratch_;
};

}  // namespace xtrain::detail
