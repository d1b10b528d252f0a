// A search's progress as a terminal line; nothing if the output is no terminal.
#pragma once

#include <chrono>
#include <cstdio>

#include <xtrain/core/terminal_line.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/plan/search_progress.hpp>

namespace xtrain {

/// "[====        ] 1168 layouts, 12 planned, fastest 4.60 s, 3 s left". Wiped at the end.
class search_bar final : public search_observer {
 public:
  explicit search_bar(std::FILE* to = stderr) : line_(to) {}

  void on(const search_progress& now) override {
    if (now.done == now.all) return line_.clear();
    if (!line_.is_due()) return;
    const double gone = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    const double left = gone / static_cast<double>(now.done) * static_cast<double>(now.all - now.done);
    line_.write(concat(terminal_line::bar(now.done, now.all), " ", now.layouts, " layouts, ", now.planned, " planned",
                       now.fastest > 0 ? concat(", fastest ", fixed(now.fastest, 2), " s") : std::string(), ", ", terminal_line::duration(left), " left"));
  }

 private:
  terminal_line line_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace xtrain
