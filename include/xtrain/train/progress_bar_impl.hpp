// Definitions of progress_bar.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

#include <xtrain/core/library.hpp>
#include <xtrain/core/terminal_line.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/train/events.hpp>
#include <xtrain/train/progress_bar.hpp>

namespace xtrain {

XTRAIN_INLINE void progress_bar::on(const run_began& run) {
  first_step_ = run.first_step;
  begin_ = clock::now();
}

XTRAIN_INLINE void progress_bar::on(const step_done& done) {
  const bool last = done.step == done.steps;
  if (!line_.is_due() && !last) return;
  const double gone = std::chrono::duration<double>(clock::now() - begin_).count();
  const double per_step = gone / static_cast<double>(std::max<std::size_t>(1, done.step - first_step_));
  line_.write(concat(terminal_line::bar(done.step, done.steps), " ", done.step, "/", done.steps, "  loss ", fixed(done.loss, 4), "  lr ",
                     short_number(done.learning_rate), "  ", fixed(done.tokens_per_second(), 0), " tokens/s  ",
                     terminal_line::duration(per_step * static_cast<double>(done.steps - done.step)), " left"));
  if (last) line_.end();
}

XTRAIN_INLINE void progress_bar::on(const evaluation_done& done) {
  write_and_end(concat("step ", done.step, ": held-out loss ", fixed(done.loss, 4), ", perplexity ", fixed(done.perplexity, 2)));
}

XTRAIN_INLINE void progress_bar::on(const step_skipped& skipped) { write_and_end(concat("step ", skipped.step, " skipped: ", skipped.reason)); }

XTRAIN_INLINE void progress_bar::on(const run_ended& ended) {
  line_.end();
  if (ended.stopped) write_and_end(concat("stopped after step ", ended.step, " of ", ended.steps));
}

XTRAIN_INLINE std::string progress_bar::short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2e", value);
  return text;
}

XTRAIN_INLINE void progress_bar::write_and_end(const std::string& text) {
  line_.write(text);
  line_.end();
}

}  // namespace xtrain
