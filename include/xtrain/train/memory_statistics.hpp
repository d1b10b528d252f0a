#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

#include <xtrain/core/text.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/train/events.hpp>

namespace xtrain {

/// One line per role that uses memory: "  weights    902.50 KiB".
[[nodiscard]] inline std::string memory_text(const memory_count& count) {
  std::string text;
  for (std::size_t r = 0; r < memory_roles; ++r) {
    if (count.peak[r] == 0) continue;
    std::string name(name_of(static_cast<memory_role>(r)));
    name.resize(11, ' ');
    text += concat("  ", name, bytes_text(count.peak[r]), "\n");
  }
  return concat(text, "  peak       ", bytes_text(count.total_peak), "\n");
}

/// An observer that reports a run's memory by role.
class memory_statistics final : public observer {
 public:
  /// `device`: name in the report, e.g. "CPU".
  explicit memory_statistics(std::string device, std::FILE* to = stderr) : device_(std::move(device)), to_(to) {}

  using observer::on;
  void on(const run_began& run) override { show("allocated", run.memory); }
  void on(const run_ended& run) override { show("peak", run.memory); }

 private:
  void show(const char* what, const memory_count& count) const {
    std::fprintf(to_, "%s memory, %s:\n%s", device_.c_str(), what, memory_text(count).c_str());
  }

  std::string device_;
  std::FILE* to_;
};

}  // namespace xtrain
