// Checks that referenced objects still exist.
#pragma once

#include <concepts>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <xtrain/core/error.hpp>

namespace xtrain::detail {

/// Member of a referenced object; moves and ends with its content.
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

 protected:
  void begin() { now_ = std::make_shared<const lifetime*>(this); }

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
  mutable std::shared_ptr<const lifetime*> now_;  // where the content is; made on first use or by begin()
};

/// For objects known by address: unaffected by copy, move, assignment. Thread-safe: trainers of several ranks may share an observer.
class address_lifetime : public lifetime {
 public:
  address_lifetime() { begin(); }
  address_lifetime(const address_lifetime&) : lifetime() { begin(); }
  address_lifetime& operator=(const address_lifetime&) noexcept { return *this; }
};

/// A reference to an object.
class lifetime_watch {
 public:
  explicit lifetime_watch(const lifetime& of) : then_(&of) {
    if (of.now_ == nullptr) of.now_ = std::make_shared<const lifetime*>(&of);
    now_ = of.now_;
  }
  [[nodiscard]] bool is_unmoved() const { return now_ != nullptr && *now_ == then_; }
  [[nodiscard]] bool is_destroyed() const { return now_ != nullptr && *now_ == nullptr; }
  /// The watch and its owner were moved from.
  [[nodiscard]] bool is_moved_from() const { return now_ == nullptr; }

 private:
  std::shared_ptr<const lifetime*> now_;
  const lifetime* then_;
};

/// Watches an object with lifetime(); others are assumed to exist.
class watched {
 public:
  watched() = default;
  template <class Object>
  explicit watched(const Object& of) {
    if constexpr (requires { { of.lifetime() } -> std::same_as<const lifetime&>; }) life_.emplace(of.lifetime());
  }
  [[nodiscard]] bool is_unmoved() const { return !life_ || life_->is_unmoved(); }
  [[nodiscard]] bool is_destroyed() const { return life_ && life_->is_destroyed(); }
  [[nodiscard]] bool is_moved_from() const { return life_ && life_->is_moved_from(); }

  /// The model of `who`.
  ///   throws  config_error when it moved or ended; error when `who` was moved from
  void require_model(std::string_view who) const {
    if (is_moved_from()) [[unlikely]]
      fail<error>(who, ": must not be used after it was moved from; use the ", who, " that it was moved to");
    if (!is_unmoved()) [[unlikely]]
      fail<config_error>(who, ": its model must stay where it was when the ", who, " was made; the model has been ",
                         is_destroyed() ? "destroyed or assigned to" : "moved", ". Declare the model before the ", who,
                         ", and do not move it; see train/README.md");
  }
  /// Another object that `who` uses.
  ///   throws  config_error when it ended
  void require_there(std::string_view who, std::string_view what) const {
    if (is_destroyed()) [[unlikely]]
      fail<config_error>(who, ": ", what, " must live as long as it is used; it has been destroyed. Declare it before what uses it; see train/README.md");
  }

 private:
  std::optional<lifetime_watch> life_;
};

}  // namespace xtrain::detail
