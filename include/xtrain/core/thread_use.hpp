// Detects use of an object by two threads at once.
#pragma once

#include <atomic>
#include <concepts>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <xtrain/core/error.hpp>

namespace xtrain::detail {

/// Member of an object that one thread at a time may use. Does not move: a moved object has a new one.
class thread_use {
 public:
  thread_use() = default;
  thread_use(thread_use&&) noexcept {}
  thread_use& operator=(thread_use&&) noexcept { return *this; }
  ~thread_use() = default;

  /// A use, until its end. Uses of one thread nest.
  class scope {
   public:
    explicit scope(const thread_use* of) : of_(of) {}
    scope(scope&& from) noexcept : of_(std::exchange(from.of_, nullptr)) {}
    scope& operator=(scope&&) = delete;
    ~scope() {
      if (of_ != nullptr) of_->user_.store(std::thread::id(), std::memory_order_release);
    }

   private:
    const thread_use* of_;  // null: nested
  };
  /// throws  config_error when another thread uses the object
  [[nodiscard]] scope begin(std::string_view who) const {
    std::thread::id user{};
    const std::thread::id self = std::this_thread::get_id();
    if (user_.compare_exchange_strong(user, self, std::memory_order_acquire)) return scope(this);
    require<config_error>(user == self, who, ": a model must be used by one thread at a time; another thread trains, evaluates, generates with or saves it "
                          "now. Let the threads take turns, or give each a model; see train/README.md");
    return scope(nullptr);
  }

 private:
  mutable std::atomic<std::thread::id> user_{};
};

/// Whether a call is running, to refuse a call within it.
class running_call {
 public:
  /// throws  config_error in a callback of a running call
  running_call(bool& runs, std::string_view who, std::string_view callbacks) : runs_(&runs) {
    require<config_error>(!runs, who, ": must not be called in its own ", callbacks);
    runs = true;
  }
  ~running_call() { *runs_ = false; }
  running_call(const running_call&) = delete;
  running_call& operator=(const running_call&) = delete;

 private:
  bool* runs_;
};

/// Of a model that has a thread_use; other models are not watched.
template <class Model>
[[nodiscard]] std::optional<thread_use::scope> use_of(const Model& model, std::string_view who) {
  if constexpr (requires { { model.use() } -> std::same_as<const thread_use&>; }) return model.use().begin(who);
  else return std::nullopt;
}

}  // namespace xtrain::detail
