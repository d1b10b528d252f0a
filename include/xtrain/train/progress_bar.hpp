#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

#include <xtrain/core/header_inline.hpp>
#include <xtrain/core/terminal_line.hpp>
#include <xtrain/train/events.hpp>

namespace xtrain {

/// Loss, learning rate, tokens per second, time left. Writes only to a terminal, at most ten times a second.
class progress_bar final : public observer {
 public:
  explicit progress_bar(std::FILE* to = stderr) : line_(to) {}

  using observer::on;
  XTRAIN_HEADER_INLINE void on(const run_began& run) override;
  XTRAIN_HEADER_INLINE void on(const step_done& done) override;
  XTRAIN_HEADER_INLINE void on(const evaluation_done& done) override;
  XTRAIN_HEADER_INLINE void on(const step_skipped& skipped) override;
  XTRAIN_HEADER_INLINE void on(const run_ended& ended) override;

 private:
  using clock = std::chrono::steady_clock;

  static std::string short_number(double value);
  void write_and_end(const std::string& text);

  terminal_line line_;
  std::size_t first_step_ = 0;
  clock::time_point begin_{};
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/train/progress_bar_impl.hpp>
#endif
