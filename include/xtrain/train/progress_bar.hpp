// A progress line in a terminal; writes nothing if the output is not a terminal.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

#include <xtrain/core/text.hpp>
#include <xtrain/train/events.hpp>

namespace xtrain {

/// Loss, learning rate, tokens per second, time left. Writes only to a terminal, at most ten times a second.
class progress_bar final : public observer {
 public:
  explicit progress_bar(std::FILE* to = stderr) : to_(to), shows_(::isatty(::fileno(to)) == 1) {}

  using observer::on;
  void on(const run_began& run) override {
    first_step_ = run.first_step;
    begin_ = last_ = clock::now();
  }
  void on(const step_done& done) override {
    const auto now = clock::now();
    const bool last = done.step == done.steps;
    if (!shows_ || (!last && now - last_ < std::chrono::milliseconds(100))) return;
    last_ = now;
    constexpr std::size_t width = 24;
    const std::size_t filled = done.steps > 0 ? width * done.step / done.steps : 0;
    std::string bar(filled, '=');
    bar.resize(width, ' ');
    const double gone = std::chrono::duration<double>(now - begin_).count();
    const double per_step = gone / static_cast<double>(std::max<std::size_t>(1, done.step - first_step_));
    line(concat("[", bar, "] ", done.step, "/", done.steps, "  loss ", fixed(done.loss, 4), "  lr ", short_number(done.learning_rate), "  ",
                fixed(done.tokens_per_second(), 0), " tokens/s  ", time_text(per_step * static_cast<double>(done.steps - done.step)),
                " left"));
    if (last) end_line();
  }
  void on(const evaluation_done& done) override {
    if (!shows_) return;
    line(concat("step ", done.step, ": held-out loss ", fixed(done.loss, 4), ", perplexity ", fixed(done.perplexity, 2)));
    end_line();
  }
  void on(const step_skipped& skipped) override {
    if (!shows_) return;
    line(concat("step ", skipped.step, " skipped: ", skipped.reason));
    end_line();
  }
  void on(const run_ended& ended) override {
    if (!shows_) return;
    if (open_) end_line();
    if (ended.stopped) {
      line(concat("stopped after step ", ended.step, " of ", ended.steps));
      end_line();
    }
  }

 private:
  using clock = std::chrono::steady_clock;

  static std::string short_number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2e", value);
    return text;
  }
  static std::string time_text(double seconds) {
    const auto whole = static_cast<std::size_t>(std::llround(seconds));
    if (whole >= 3600) return concat(whole / 3600, " h ", whole / 60 % 60, " min");
    return whole >= 60 ? concat(whole / 60, " min ", whole % 60, " s") : concat(whole, " s");
  }
  void line(const std::string& text) {
    std::fprintf(to_, "\r\x1b[K%s", text.c_str());
    std::fflush(to_);
    open_ = true;
  }
  void end_line() {
    std::fputc('\n', to_);
    std::fflush(to_);
    open_ = false;
  }

  std::FILE* to_;
  bool shows_;
  bool open_ = false;
  std::size_t first_step_ = 0;
  clock::time_point begin_{}, last_{};
};

}  // namespace xtrain
