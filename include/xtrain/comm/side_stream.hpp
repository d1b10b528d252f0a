// Communication that overlaps with compute: on a second stream, synchronized by events; or, on a device that computes before it returns, on a background
// thread.
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

  /// Queues work(stream) after the main stream's present work and earlier items; a dry run calls it at once.
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
  /// Number of items: wait(main, begun()) waits for all.
  [[nodiscard]] std::size_t begun() const { return begun_; }

  /// Later work on the main stream runs after the first `count` items. Without a queue, the host waits.
  ///   throws  errors of items
  void wait([[maybe_unused]] stream_type& main, std::size_t count) {
    if constexpr (is_queued) {
      // a later event has overwritten an older one of this stream
      if (count > waited_for_) main.wait(*events_[(std::max(count, begun_ > remembered ? begun_ - remembered + 1 : 1) - 1) % remembered]);
      waited_for_ = std::max(waited_for_, count);
    } else {
      behind_.finish(count);
    }
  }
  /// The host waits for everything.
  ///   throws  errors of items
  void finish() {
    if constexpr (is_queued) {
      if (own_) own_->synchronize();
    } else {
      behind_.finish();
    }
  }
  /// Without errors, which are reported elsewhere.
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
