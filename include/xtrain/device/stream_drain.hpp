// The host waits for a stream before what its queued work uses goes away: by destruction, or by assignment. An object that refers to another, whose
// stream it uses, can ask whether that is still where it was.
#pragma once

#include <memory>
#include <optional>
#include <utility>

namespace xtrain::detail {

/// A member of an object that others refer to. It goes along when the object's content is moved, and ends with it.
class lifetime {
 public:
  lifetime() = default;
  lifetime(lifetime&& from) noexcept { take(from); }
  lifetime& operator=(lifetime&& from) noexcept {
    if (this == &from) return *this;
    end();
    take(from);
    return *this;
  }
  ~lifetime() { end(); }

 private:
  friend class lifetime_watch;
  void end() {
    if (now_ != nullptr) *now_ = nullptr;
    now_.reset();
  }
  void take(lifetime& from) {
    now_ = std::move(from.now_);
    from.now_.reset();
    if (now_ != nullptr) *now_ = this;
  }
  mutable std::shared_ptr<const lifetime*> now_;  // where the content is now; made for the first who asks
};

/// What an object that refers to another knows of it.
class lifetime_watch {
 public:
  explicit lifetime_watch(const lifetime& of) : then_(&of) {
    if (of.now_ == nullptr) of.now_ = std::make_shared<const lifetime*>(&of);
    now_ = of.now_;
  }
  [[nodiscard]] bool is_unmoved() const { return *now_ == then_; }
  [[nodiscard]] bool is_destroyed() const { return *now_ == nullptr; }

 private:
  std::shared_ptr<const lifetime*> now_;
  const lifetime* then_;
};

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
  stream_drain(Stream& stream, const lifetime& owner) : stream_(&stream), owner_(owner) {}
  stream_drain(stream_drain&& from) noexcept : stream_(std::exchange(from.stream_, nullptr)), owner_(std::move(from.owner_)) {}
  stream_drain& operator=(stream_drain&& from) noexcept {
    stream_ = std::exchange(from.stream_, nullptr);
    owner_ = std::move(from.owner_);
    return *this;
  }
  ~stream_drain() {
    if (stream_ != nullptr && !(owner_ && owner_->is_destroyed())) drain(stream_);
  }

 private:
  Stream* stream_;
  std::optional<lifetime_watch> owner_;
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
