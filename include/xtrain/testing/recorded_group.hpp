// A communicator with the requirements of NCCL, MCCL and HCCL, without hardware: calls are queued on a stream; all ranks make equal calls in equal order; sends
// and receives that wait for each other are grouped. Where these libraries hang or corrupt memory, this reports the differing call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/comm/group.hpp>
#include <xtrain/comm/host_staging.hpp>
#include <xtrain/comm/transport.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/device/concepts.hpp>

namespace xtrain::testing {

/// A collective call, equal on all ranks.
struct recorded_call {
  std::string_view what{}, dtype{};
  std::size_t elements = 0;  ///< of the whole array
  std::size_t root = 0;
  reduction op = reduction::sum;

  friend bool operator==(const recorded_call&, const recorded_call&) = default;
  [[nodiscard]] std::string text() const {
    return concat(what, " of ", elements, " ", dtype, what == "broadcast" ? concat(" from rank ", root) : std::string(),
                  op == reduction::largest ? ", largest" : "");
  }
};

/// The calls of all ranks of one group; shared.
class call_ledger {
 public:
  explicit call_ledger(std::size_t ranks) : made_(ranks) {}

  /// throws comm_error when another rank's call of the same number differs
  void record(std::size_t rank, const recorded_call& call) {
    const std::lock_guard lock(mutex_);
    const std::size_t number = made_[rank]++;
    if (number == calls_.size()) {
      calls_.push_back({call, rank});
      return;
    }
    const first_call& first = calls_[number];
    require<comm_error>(first.call == call, "recorded_group: all ranks must make the same calls in the same order; call ", number + 1, " of rank ", rank,
                        " is ", call.text(), ", of rank ", first.rank, " ", first.call.text());
  }
  /// At the end of a run: all ranks have made all calls.
  ///   throws  comm_error
  void require_complete() const {
    const std::lock_guard lock(mutex_);
    for (std::size_t rank = 0; rank < made_.size(); ++rank)
      require<comm_error>(made_[rank] == calls_.size(), "recorded_group: all ranks must make the same calls; rank ", rank, " has made ", made_[rank], " of ",
                          calls_.size(), "; the next is ", made_[rank] < calls_.size() ? calls_[made_[rank]].call.text() : std::string());
  }
  [[nodiscard]] std::size_t calls() const {
    const std::lock_guard lock(mutex_);
    return calls_.size();
  }

 private:
  struct first_call {
    recorded_call call;
    std::size_t rank = 0;
  };
  mutable std::mutex mutex_;
  std::vector<first_call> calls_;
  std::vector<std::size_t> made_;
};

/// Runs collectives through a group; records calls when they are queued.
class recorded_group {
 public:
  recorded_group(std::shared_ptr<call_ledger> ledger, std::shared_ptr<transport> network, std::uint32_t channel = 0)
      : ledger_(std::move(ledger)), inner_(std::move(network), channel) {}
  recorded_group(std::shared_ptr<call_ledger> ledger, std::shared_ptr<transport> network, std::vector<std::size_t> members, std::uint32_t channel)
      : ledger_(std::move(ledger)), inner_(std::move(network), std::move(members), channel) {}

  [[nodiscard]] std::size_t rank() const { return inner_.rank(); }
  [[nodiscard]] std::size_t size() const { return inner_.size(); }
  void all_reduce(std::span<double> values, reduction op) { inner_.all_reduce(values, op); }
  void barrier() { inner_.barrier(); }

  template <class Stream, class T, class Memory>
  void all_reduce(Stream& stream, device_span<T, Memory> values, reduction op) {
    record<T>("all_reduce", values.size(), 0, op);
    inner_.all_reduce(stream, values, op);
  }
  template <class Stream, class T, class Memory>
  void all_gather(Stream& stream, device_span<const T, Memory> part, device_span<T, Memory> whole) {
    record<T>("all_gather", whole.size(), 0, reduction::sum);
    inner_.all_gather(stream, part, whole);
  }
  template <class Stream, class T, class Memory>
  void reduce_scatter(Stream& stream, device_span<const T, Memory> whole, device_span<T, Memory> part, reduction op) {
    record<T>("reduce_scatter", whole.size(), 0, op);
    inner_.reduce_scatter(stream, whole, part, op);
  }
  template <class Stream, class T, class Memory>
  void broadcast(Stream& stream, device_span<T, Memory> values, std::size_t root) {
    record<T>("broadcast", values.size(), root, reduction::sum);
    inner_.broadcast(stream, values, root);
  }

  template <class Stream, class T, class Memory>
  void all_to_all(Stream& stream, device_span<const T, Memory> from, device_span<T, Memory> to) {
    const std::size_t part = from.size() / size();
    record<T>("all_to_all", from.size(), 0, reduction::sum);
    begin_group();
    for (std::size_t r = 0; r < size(); ++r) {
      receive(stream, r, to.subspan(r * part, part));
      send(stream, r, from.subspan(r * part, part));
    }
    end_group(stream);
  }

  // Point to point. An ungrouped call holds the stream until the other rank's call; grouped calls run together: ranks may send to each other, and to
  // themselves.

  void begin_group() {
    require<comm_error>(!grouped_, "recorded_group: begin_group must not be called twice without end_group");
    grouped_ = true;
  }
  template <class Stream, class T, class Memory>
  void send(Stream& stream, std::size_t to, device_span<const T, Memory> values) {
    require<comm_error>(to < size() && (grouped_ || to != rank()), "recorded_group: a rank must send to another of the ", size(), " ranks; rank ",
                        rank(), " sends to ", to);
    if (!grouped_) return inner_.send(stream, to, values);
    const auto staged = inner_.staging().template take<T>(stream, 2 + pending_.size(), values.size());
    copy_to_host(stream, staged.values, values);
    pending_.push_back({[this, to, held = staged] { return inner_.begin_send(to, std::span<const T>(held.values)); }, true});
  }
  template <class Stream, class T, class Memory>
  void receive(Stream& stream, std::size_t from, device_span<T, Memory> values) {
    require<comm_error>(from < size() && (grouped_ || from != rank()), "recorded_group: a rank must receive from another of the ", size(),
                        " ranks; rank ", rank(), " receives from ", from);
    if (!grouped_) return inner_.receive(stream, from, values);
    const auto staged = inner_.staging().template take<T>(stream, 2 + pending_.size(), values.size());
    pending_.push_back({[this, from, held = staged] { return inner_.begin_receive(from, held.values); }, false});
    after_.push_back([&stream, values, held = staged] { copy_to_device(stream, values, std::span<const T>(held.values)); });
    held_.push_back(staged.memory);
  }
  /// A group without calls.
  void end_empty_group() {
    require<comm_error>(grouped_ && pending_.empty(), "recorded_group: end_empty_group must follow begin_group");
    grouped_ = false;
  }
  template <class Stream>
  void end_group(Stream& stream) {
    require<comm_error>(grouped_, "recorded_group: end_group must follow begin_group");
    grouped_ = false;
    xtrain::detail::in_stream_order(stream, [calls = std::move(pending_)] {
      std::vector<pending_message> begun;
      for (const bool sends : {false, true})  // a receive is posted before any send may wait for it
        for (const auto& one : calls)
          if (one.is_send == sends) begun.push_back(one.begin());
      for (const pending_message& one : begun)
        if (one) one->wait();
    });
    pending_.clear();
    for (const auto& copy : after_) copy();
    after_.clear();
    xtrain::detail::hold(stream, std::move(held_));
    held_.clear();
  }

 private:
  struct pending_call {
    std::function<pending_message()> begin;
    bool is_send = false;
  };
  template <class T>
  void record(std::string_view what, std::size_t elements, std::size_t root, reduction op) {
    ledger_->record(rank(), {what, dtype_traits<T>::name, elements, root, op});
  }

  std::shared_ptr<call_ledger> ledger_;
  group inner_;
  bool grouped_ = false;
  std::vector<pending_call> pending_;
  std::vector<std::function<void()>> after_;
  std::vector<std::shared_ptr<std::byte>> held_;  // until received values are copied
};

static_assert(communicator<recorded_group>);

}  // namespace xtrain::testing
