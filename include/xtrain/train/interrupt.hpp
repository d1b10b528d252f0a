// Ctrl-C as a request to stop: the trainer finishes its step, saves, and returns. Opt-in.
#pragma once

#include <atomic>
#include <chrono>
#include <csignal>
#include <stop_token>
#include <thread>

namespace xtrain {

/// While an object exists, SIGINT, SIGTERM and SIGHUP request a stop; a second SIGINT or SIGTERM has its default effect. An ignored SIGHUP (nohup) stays
/// ignored.
class stop_on_interrupt {
 public:
  stop_on_interrupt() {
    asked_.store(0);
    previous_interrupt_ = std::signal(SIGINT, &handle);
    previous_terminate_ = std::signal(SIGTERM, &handle);
    previous_hangup_ = std::signal(SIGHUP, SIG_IGN);
    if (previous_hangup_ != SIG_IGN) std::signal(SIGHUP, &handle);
    // a signal handler may do almost nothing: a thread reads the flag
    watcher_ = std::jthread([this](std::stop_token done) {
      while (!done.stop_requested() && asked_.load() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (asked_.load() != 0) source_.request_stop();
    });
  }
  ~stop_on_interrupt() {
    std::signal(SIGINT, previous_interrupt_);
    std::signal(SIGTERM, previous_terminate_);
    std::signal(SIGHUP, previous_hangup_);
  }
  stop_on_interrupt(const stop_on_interrupt&) = delete;
  stop_on_interrupt& operator=(const stop_on_interrupt&) = delete;

  [[nodiscard]] std::stop_token token() const { return source_.get_token(); }
  /// The first signal received; 0: none. A program that exits because of it returns 128 + signal, as shells and schedulers expect.
  [[nodiscard]] int signal() const { return asked_.load(); }

 private:
  static void handle(int signal) {
    if (signal == SIGHUP) {  // a closed terminal may send several
      int none = 0;
      asked_.compare_exchange_strong(none, signal);
      return;
    }
    if (asked_.exchange(signal) != 0) {
      std::signal(signal, SIG_DFL);
      std::raise(signal);
    }
  }

  inline static std::atomic<int> asked_{0};
  std::stop_source source_;
  void (*previous_interrupt_)(int) = SIG_DFL;
  void (*previous_terminate_)(int) = SIG_DFL;
  void (*previous_hangup_)(int) = SIG_DFL;
  std::jthread watcher_;
};

}  // namespace xtrain
