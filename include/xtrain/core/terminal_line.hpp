#pragma once

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

#include <xtrain/core/text.hpp>

namespace xtrain {

/// A rewritten progress line; nothing if the output is no terminal.
class terminal_line {
 public:
  explicit terminal_line(std::FILE* to) : to_(to), shows_(::isatty(::fileno(to)) == 1) {}

  /// At most ten times a second.
  [[nodiscard]] bool is_due() {
    const auto now = std::chrono::steady_clock::now();
    if (!shows_ || now - last_ < std::chrono::milliseconds(100)) return false;
    last_ = now;
    return true;
  }
  void write(const std::string& text) {
    if (!shows_) return;
    std::fprintf(to_, "\r\x1b[K%s", text.c_str());
    std::fflush(to_);
    is_open_ = true;
  }
  /// Starts a new line if this is not empty.
  void end() {
    if (!is_open_) return;
    std::fputc('\n', to_);
    std::fflush(to_);
    is_open_ = false;
  }
  void clear() {
    if (!is_open_) return;
    std::fputs("\r\x1b[K", to_);
    std::fflush(to_);
    is_open_ = false;
  }

  /// "[====        ]"
  [[nodiscard]] static std::string bar(std::size_t done, std::size_t all) {
    constexpr std::size_t width = 24;
    std::string text(all > 0 ? width * done / all : 0, '=');
    text.resize(width, ' ');
    return concat("[", text, "]");
  }
  /// "2 min 5 s"
  [[nodiscard]] static std::string duration(double seconds) {
    const auto whole = static_cast<std::size_t>(std::llround(seconds));
    if (whole >= 3600) return concat(whole / 3600, " h ", whole / 60 % 60, " min");
    return whole >= 60 ? concat(whole / 60, " min ", whole % 60, " s") : concat(whole, " s");
  }

 private:
  std::FILE* to_;
  bool shows_, is_open_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace xtrain
