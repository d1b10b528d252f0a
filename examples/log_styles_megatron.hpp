// A run's output as Megatron-LM prints it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>

#include <xtrain/core/text.hpp>
#include <xtrain/train/events.hpp>

namespace command_line {

/// A line for every `log_interval` iterations, and three for an evaluation:
///   iteration        1/     100 | consumed samples:           64 | elapsed time per iteration (ms): 812.4 | learning rate: 1.000E-05 | global batch size:
///      64 | lm loss: 6.134278E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 | number of nan iterations:   0 |
///    validation loss at iteration 100 | lm loss value: 5.213000E+00 | lm loss PPL: 1.836449E+02 |
/// The loss is the mean over the interval's iterations without the skipped ones; time is the interval's, without evaluations and checkpoints;
/// learning rate, loss scale and norm are those of the last iteration. Departs in the learning rate, which is the one that the iteration used:
/// Megatron prints the next one's.
class megatron_lines final : public xtrain::observer {
 public:
  explicit megatron_lines(std::size_t log_interval, std::FILE* to = stdout)
      : log_interval_(std::max<std::size_t>(log_interval, 1)), to_(to) {}

  using observer::on;
  void on(const xtrain::run_began& began) override {
    steps_ = began.max_steps;
    run_ = began;
    began_ = clock::now();
  }
  void on(const xtrain::step_done& done) override {
    if (!std::isnan(done.loss)) {  // an iteration without targets has none
      loss_ += done.loss;
      ++advanced_;
    }
    learning_rate_ = done.learning_rate;
    loss_scale_ = done.loss_scale;
    norm_ = done.gradient_norm;
    has_norm_ = true;
    iteration(done.step);
  }
  /// Loss scaling skips an iteration whose gradients overflow.
  void on(const xtrain::step_skipped& skipped) override {
    ++(skipped.overflow ? skipped_ : nan_);
    has_norm_ = false;
    iteration(skipped.step);
  }
  void on(const xtrain::evaluation_done& done) override {
    elsewhere_ += done.seconds;
    char text[160];  // NOLINT
    const int length = std::snprintf(text, sizeof text, " validation loss at iteration %zu | lm loss value: %.6E | lm loss PPL: %.6E | ",
                                     done.step, done.loss, std::exp(std::min(20.0, done.loss)));
    const std::string line(static_cast<std::size_t>(std::max(length, 0)) + 1, '-');
    std::fprintf(to_, "%s\n%s\n%s\n", line.c_str(), text, line.c_str());
    std::fflush(to_);
  }
  void on(const xtrain::checkpoint_written& written) override { elsewhere_ += written.seconds; }

 private:
  using clock = std::chrono::steady_clock;

  void iteration(std::size_t step) {
    ++iterations_;
    if (step % log_interval_ != 0) return;
    const auto now = clock::now();
    const double seconds = std::max(0.0, std::chrono::duration<double>(now - began_).count() - elsewhere_);
    const std::size_t consumed = run_.sequences_before(step);
    std::fprintf(
        to_,
        " iteration %8zu/%8zu | consumed samples: %12zu | elapsed time per iteration (ms): %.1f | learning rate: %.3E | global batch size: %5zu |",
        step, steps_, consumed, seconds * 1000.0 / static_cast<double>(iterations_), learning_rate_, consumed - run_.sequences_before(step - 1));
    if (advanced_ > 0) std::fprintf(to_, " lm loss: %.6E |", loss_ / static_cast<double>(advanced_));
    std::fprintf(to_, " loss scale: %.1f |", loss_scale_);
    if (has_norm_) std::fprintf(to_, " grad norm: %.3f |", norm_);
    std::fprintf(to_, " number of skipped iterations: %3zu | number of nan iterations: %3zu |\n", skipped_, nan_);
    std::fflush(to_);
    loss_ = elsewhere_ = 0;
    iterations_ = advanced_ = skipped_ = nan_ = 0;
    began_ = now;
  }

  xtrain::run_began run_{};
  std::size_t log_interval_, steps_ = 0, iterations_ = 0, advanced_ = 0, skipped_ = 0, nan_ = 0;
  double loss_ = 0, learning_rate_ = 0, loss_scale_ = 1, norm_ = 0, elsewhere_ = 0;
  bool has_norm_ = false;
  clock::time_point began_ = clock::now();
  std::FILE* to_;
};

}  // namespace command_line
