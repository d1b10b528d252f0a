// Definitions of progress_bar.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/train/events.hpp>
#include <xtrain/train/progress_bar.hpp>

namespace xtrain {

XTRAIN_INLINE void progress_bar::on(const run_began& run) {
  first_step_ = run.first_step;
  begin_ = last_ = clock::now();
}

XTRAIN_INLINE void progress_bar::on(const step_done& done) {
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

XTRAIN_INLINE void progress_bar::on(const evaluation_done& done) {
  if (!shows_) return;
  line(concat("step ", done.step, ": held-out loss ", fixed(done.loss, 4), ", perplexity ", fixed(done.perplexity, 2)));
  end_line();
}

XTRAIN_INLINE void progress_bar::on(const step_skipped& skipped) {
  if (!shows_) return;
  line(concat("step ", skipped.step, " skipped: ", skipped.reason));
  end_line();
}

XTRAIN_INLINE void progress_bar::on(const run_ended& ended) {
  if (!shows_) return;
  if (open_) end_line();
  if (ended.stopped) {
    line(concat("stopped after step ", ended.step, " of ", ended.steps));
    end_line();
  }
}

XTRAIN_INLINE std::string progress_bar::short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2e", value);
  return text;
}

XTRAIN_INLINE std::string progress_bar::time_text(double seconds) {
  const auto whole = static_cast<std::size_t>(std::llround(seconds));
  if (whole >= 3600) return concat(whole / 3600, " h ", whole / 60 % 60, " min");
  return whole >= 60 ? concat(whole / 60, " min ", whole % 60, " s") : concat(whole, " s");
}

XTRAIN_INLINE void progress_bar::line(const std::string& text) {
  std::fprintf(to_, "\r\x1b[K%s", text.c_str());
  std::fflush(to_);
  open_ = true;
}

XTRAIN_INLINE void progress_bar::end_line() {
  std::fputc('\n', to_);
  std::fflush(to_);
  open_ = false;
}

}  // namespace xtrain
