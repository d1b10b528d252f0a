// Work beside the main stream: communication that overlaps with compute. On a device that works asynchronously it is queued on a stream of
// its own, and streams wait for each other's events; on a device that computes before it returns, a background thread does it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <xtrain/comm/background.hpp>
#include <xtrain/comm/host_staging.hpp>
#include <xtrain/device/dry_run.hpp>

namespace xtrain::detail {

template <class Device>
class side_stream {
 public:
  using stream_type = typename Device::stream;
  static constexpr bool is_queued = runs_host_functions<stream_type>;

  side_stream() = default;
  side_stream(const side_stream&) = delete;
  side_stream& operator=(const side_stream&) = delete;
  ~side_stream() { drain(); }

  /// Queues work(stream), to run after what is on the main stream now and what has begun here before; in a dry run it runs at once.
  template <class Work>
  void begin(const typename Device::context& device, stream_type& main, Work work) {
    if (counts_of(main) != nullptr) return work(main);
    if (!own_) own_.emplace(device);
    if constexpr (is_queued) {
      own_->wait(main.record());
      work(*own_);
      if (events_.empty()) events_.resize(remembered);
      events_[begun_ % remembered] = own_->record();
    } else {
      behind_.begin([this, event = main.record(), work = std::move(work)] {
        event.synchronize();
        work(*own_);
        own_->synchronize();
      });
    }
    ++begun_;
  }
  /// How many items have begun: wait(main, begun()) waits for all of them.
  [[nodiscard]] std::size_t begun() const { return begun_; }

  /// What is queued on the main stream next runs after the first `count` items are done. Without a queue, the host waits.
  ///   throws  what an item threw
  void wait([[maybe_unused]] stream_type& main, std::size_t count) {
    if constexpr (is_queued) {
      // an older event has been overwritten by a later one of the same stream
      if (count > waited_for_) main.wait(*events_[(std::max(count, begun_ > remembered ? begun_ - remembered + 1 : 1) - 1) % remembered]);
      waited_for_ = std::max(waited_for_, count);
    } else {
      behind_.finish(count);
    }
  }
  /// The host waits for everything.
  ///   throws  what an item threw
  void finish() {
    if constexpr (is_queued) {
      if (own_) own_->synchronize();
    } else {
      behind_.finish();
    }
  }
  /// The same; errors are reported elsewhere.
  void drain() noexcept {
    try {
      finish();
    } catch (...) {  // other ranks have stopped; the training loop reports it
    }
  }

 private:
  using event = decltype(std::declval<stream_type&>().record());
  static constexpr std::size_t remembered = 256;

  std::optional<stream_type> own_;
  std::vector<std::optional<event>> events_;  // of the last items
  std::size_t begun_ = 0, waited_for_ = 0;
  background behind_;  // last: destroyed before what its work uses
};

}  // namespace xtrain::detail
