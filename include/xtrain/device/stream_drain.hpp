// The host waits for a stream before what its queued work uses goes away: by destruction, or by assignment.
#pragma once

#include <memory>
#include <utility>

#include <xtrain/core/lifetime.hpp>

namespace xtrain::detail {

/// What the work throws is reported by whoever waits for its result.
template <class Stream>
void drain(Stream* stream) noexcept {
  if (stream == nullptr) return;
  try {
    stream->synchronize();
  } catch (...) {
  }
}

/// The last member of an object: destroyed first.
template <class Stream>
class stream_drain {
 public:
  explicit stream_drain(Stream& stream) : stream_(&stream) {}
  /// The stream of another object, which waits for it itself when it is destroyed.
  stream_drain(Stream& stream, watched owner) : stream_(&stream), owner_(std::move(owner)) {}
  stream_drain(stream_drain&& from) noexcept : stream_(std::exchange(from.stream_, nullptr)), owner_(std::move(from.owner_)) {}
  stream_drain& operator=(stream_drain&& from) noexcept {
    stream_ = std::exchange(from.stream_, nullptr);
    owner_ = std::move(from.owner_);
    return *this;
  }
  ~stream_drain() {
    if (stream_ != nullptr && !owner_.is_destroyed()) drain(stream_);
  }

 private:
  Stream* stream_;
  watched owner_;
};

/// A stream owned before everything that its work uses: that is still there when another stream is assigned.
template <class Stream>
class owned_stream {
 public:
  explicit owned_stream(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
  owned_stream(owned_stream&&) noexcept = default;
  owned_stream& operator=(owned_stream&& from) noexcept {
    drain(stream_.get());
    stream_ = std::move(from.stream_);
    return *this;
  }
  ~owned_stream() = default;

  [[nodiscard]] Stream& operator*() const { return *stream_; }

 private:
  std::unique_ptr<Stream> stream_;
};

}  // namespace xtrain::detail
