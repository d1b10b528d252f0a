// A process's anonymous memory (RssAnon) while it runs, without pages of mapped files.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

/// Anonymous bytes now; 0 when the process has ended.
inline std::size_t anonymous_bytes(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::strtoull(line.c_str() + 8, nullptr, 10) * 1024;
  return 0;
}

/// The maximum over time, sampled a thousand times a second.
class memory_watch {
 public:
  explicit memory_watch(pid_t process) : before_(anonymous_bytes(process)) {
    thread_ = std::jthread([this, process](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        most_ = std::max(most_.load(), anonymous_bytes(process));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  [[nodiscard]] double max_mebibytes() const { return static_cast<double>(most_) / 1048576.0; }
  /// Maximum minus the value when the watch began.
  [[nodiscard]] double taken_mebibytes() const { return static_cast<double>(most_ - std::min(most_.load(), before_)) / 1048576.0; }

 private:
  std::size_t before_;
  std::atomic<std::size_t> most_{0};
  std::jthread thread_;
};
