// An object stays while another thread reads it.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <utility>

#include <xtrain/core/error.hpp>

namespace xtrain::detail {

/// First member of an object read in the background; moves with its content. The destructor calls end() before other members end.
class read_lifetime {
 public:
  read_lifetime() : place_(std::make_shared<place>(this)) {}
  read_lifetime(read_lifetime&& from) noexcept { take(from); }
  read_lifetime& operator=(read_lifetime&& from) noexcept {
    if (this == &from) return *this;
    end();
    take(from);
    return *this;
  }
  ~read_lifetime() { end(); }

  /// Waits for readers; later watches find nothing.
  void end() noexcept {
    if (const auto ends = std::move(place_)) ends->set(nullptr);
  }
  [[nodiscard]] bool is_moved_from() const { return place_ == nullptr; }

 private:
  friend class read_watch;
  struct place {
    explicit place(const read_lifetime* at) : now(at) {}
    void set(const read_lifetime* at) {
      const std::lock_guard alone(mutex);
      now = at;
    }
    std::shared_mutex mutex{};
    const read_lifetime* now;  // where the content is
  };
  void take(read_lifetime& from) noexcept {
    place_ = std::move(from.place_);
    from.place_.reset();
    if (place_ != nullptr) place_->set(this);
  }
  std::shared_ptr<place> place_;
};

/// A reader's reference to the object.
class read_watch {
 public:
  explicit read_watch(const read_lifetime& of) : place_(of.place_), then_(&of) {}

  /// The object stays while the result is held.
  ///   throws  config_error when it moved or ended; error when `who` was moved from
  [[nodiscard]] std::shared_lock<std::shared_mutex> hold(std::string_view who, std::string_view what) const {
    if (place_ == nullptr) [[unlikely]]
      fail<error>(who, ": must not be used after it was moved from; use the ", who, " that it was moved to");
    std::shared_lock held(place_->mutex);
    if (place_->now != then_) [[unlikely]]
      fail<config_error>(who, ": its ", what, " must stay where it was when the ", who, " was made; the ", what, " has been ",
                         place_->now == nullptr ? "destroyed or assigned to" : "moved", ". Declare the ", what, " before the ", who,
                         ", and do not move it; see train/README.md");
    return held;
  }

 private:
  std::shared_ptr<read_lifetime::place> place_;
  const read_lifetime* then_;
};

}  // namespace xtrain::detail
