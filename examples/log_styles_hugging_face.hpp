// A run's output as printed by Hugging Face's Trainer, and by the MUSA demo main_hf.py.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <xtrain/core/text.hpp>
#include <xtrain/train/events.hpp>

namespace command_line {

/// A number as Python prints it: the shortest text that reads as the same number; 1.0 for 1, 2e-05.
[[nodiscard]] inline std::string python_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  const double size = std::fabs(value);
  const bool fixed = size == 0.0 || (size >= 1e-4 && size < 1e16);
  std::array<char, 64> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, fixed ? std::chars_format::fixed : std::chars_format::scientific).ptr;
  std::string result(text.data(), end);
  if (fixed && result.find('.') == std::string::npos) result += ".0";
  return result;
}
/// As Python's round(): to the nearest decimal number.
[[nodiscard]] inline double rounded_to(double value, int digits) {
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return std::strtod(text.data(), nullptr);
}

/// A line for every `log_steps` steps or every epoch, for the first step if asked for, and one at the end, as transformers 4 prints them:
///   {'loss': 1.2345, 'grad_norm': 0.51, 'learning_rate': 2e-05, 'epoch': 0.12}
///   {'train_runtime': 12.3456, 'train_samples_per_second': 1.2, 'train_steps_per_second': 0.6, 'train_loss': 1.3, 'epoch': 3.0}
/// The loss is the mean over these steps, without those that have no target; the learning rate and the norm are those of the last of them.
/// The epoch is counted in micro-batches, of which the last step of an epoch may have fewer.
class hugging_face_lines final : public xtrain::observer {
 public:
  /// batches  micro-batches of an epoch, of one rank, `accumulation` of which make a step; 0: epochs are counted in steps
  /// epochs   a line after every epoch, and after the last step, in place of every `log_steps` steps
  explicit hugging_face_lines(std::size_t log_steps, std::FILE* to = stdout, std::size_t batches = 0, std::size_t accumulation = 1, bool first_step = false,
                              bool epochs = false)
      : log_steps_(std::max<std::size_t>(log_steps, 1)),
        to_(to),
        batches_(batches),
        accumulation_(accumulation),
        logs_first_step_(first_step),
        logs_epochs_(epochs) {}

  using observer::on;
  void on(const xtrain::run_began& began) override {
    first_ = began.first_step;
    sequences_ = began.sequences_per_step;
    steps_per_epoch_ = std::max<std::size_t>(began.steps_per_epoch, 1);
  }
  void on(const xtrain::step_done& done) override {
    if (!std::isnan(done.loss)) {
      sum_ += done.loss;
      all_ += done.loss;
      ++steps_;
    } else ++without_targets_;
    const std::size_t whole = (done.step - 1) / steps_per_epoch_, read = std::min(((done.step - 1) % steps_per_epoch_ + 1) * accumulation_, batches_);
    epoch_ = batches_ > 0 ? static_cast<double>(whole) + static_cast<double>(read) / static_cast<double>(batches_) : done.epoch;
    const bool due = logs_epochs_ ? done.step % steps_per_epoch_ == 0 || done.step == done.steps : done.step % log_steps_ == 0;
    if (!due && !(logs_first_step_ && done.step == 1)) return;
    print("{'loss': ", python_number(rounded_to(sum_ / static_cast<double>(steps_), 4)),
          ", 'grad_norm': ", python_number(done.gradient_norm), ", 'learning_rate': ", python_number(done.learning_rate),
          ", 'epoch': ", epoch(), "}");
    sum_ = 0;
    steps_ = 0;
  }
  void on(const xtrain::evaluation_done& done) override {
    print("{'eval_loss': ", python_number(done.loss), ", 'eval_runtime': ", python_number(rounded_to(done.seconds, 4)),
          ", 'epoch': ", epoch(), "}");
  }
  void on(const xtrain::step_skipped& skipped) override {
    std::fprintf(stderr, "step %zu skipped: %s\n", skipped.step, skipped.reason.c_str());
  }
  void on(const xtrain::run_ended& ended) override {
    const auto done = static_cast<double>(ended.step - first_), with_loss = done - static_cast<double>(without_targets_);
    const double seconds = std::max(ended.seconds, 1e-9);
    print("{'train_runtime': ", python_number(rounded_to(ended.seconds, 4)),
          ", 'train_samples_per_second': ", python_number(rounded_to(done * static_cast<double>(sequences_) / seconds, 3)),
          ", 'train_steps_per_second': ", python_number(rounded_to(done / seconds, 3)),
          ", 'train_loss': ", python_number(done > 0 ? all_ / with_loss : 0.0), ", 'epoch': ", epoch(), "}");
  }

 private:
  template <class... Parts>
  void print(const Parts&... parts) {
    std::fprintf(to_, "%s\n", xtrain::concat(parts...).c_str());
    std::fflush(to_);
  }
  [[nodiscard]] std::string epoch() const { return python_number(rounded_to(epoch_, 2)); }

  std::size_t log_steps_;
  std::FILE* to_;
  std::size_t batches_, accumulation_;
  bool logs_first_step_, logs_epochs_;
  std::size_t first_ = 0, sequences_ = 0, steps_per_epoch_ = 1, steps_ = 0, without_targets_ = 0;
  double sum_ = 0, all_ = 0, epoch_ = 0;
};

/// The lines of the MUSA demo (main_hf.py):
///   seq_len = 1024
///   epoch[0/99], step[10/1799]: train_loss: 9.1, train_tokens_throughput: 812.4 tokens/s
///   validation in train epoch 0: eval_loss: 5.1, val_perplexity: 1.2e+30
/// train_loss is the mean over the epoch so far, summed in fp32; a line for every tenth step. The throughput counts the model's longest sequence, whatever the
/// samples' length is. val_perplexity is e to the sum of the losses of all batches, as there, not to their mean. Departs in that losses are those of all ranks,
/// where the demo prints the first rank's.
class musa_demo_lines final : public xtrain::observer {
 public:
  struct config {
    std::size_t epochs = 1;
    std::size_t batch_size = 1;  ///< of a rank
    std::size_t ranks = 1;
    std::size_t seq_len = 0;  ///< max_position_embeddings
    std::size_t warnings = 0;  ///< datasets with the demo's warning: its tokenizer accepts more than 1024 tokens
  };
  explicit musa_demo_lines(const config& settings, std::FILE* to = stdout) : settings_(settings), to_(to) {}

  using observer::on;
  void on(const xtrain::run_began& began) override {
    steps_per_epoch_ = std::max<std::size_t>(began.steps_per_epoch, 1);
    sample_ = std::max<std::size_t>(began.seq_length, 1);
    for (std::size_t i = 0; i < settings_.warnings; ++i)
      print("WARNING: The chosen tokenizer supports a `model_max_length` that is longer than the default `block_size` value of 1024. If you would like "
            "to use a longer `block_size` up to `tokenizer.model_max_length` you can override this with `--block_size xxx`.");
    print("seq_len = ", settings_.seq_len);
  }
  void on(const xtrain::step_done& done) override {
    const std::size_t index = (done.step - 1) % steps_per_epoch_;
    if (index == 0) {
      sum_ = 0;
      summed_ = 0;
    }
    if (!std::isnan(done.loss)) {  // a step without targets has none
      sum_ += static_cast<float>(done.loss);
      ++summed_;
    }
    if (index % 10 != 0) return;
    const auto tokens = static_cast<double>(settings_.batch_size * settings_.seq_len * settings_.ranks);
    print("epoch[", (done.step - 1) / steps_per_epoch_, "/", settings_.epochs - 1, "], step[", index, "/", steps_per_epoch_ - 1,
          "]: train_loss: ", python_number(static_cast<double>(sum_) / static_cast<double>(summed_)),
          ", train_tokens_throughput: ", python_number(done.seconds > 0 ? tokens / done.seconds : 0.0), " tokens/s");
  }
  void on(const xtrain::evaluation_done& done) override {
    const std::size_t samples = (done.targets + sample_ - 1) / sample_, batch = settings_.batch_size * settings_.ranks;
    const auto batches = static_cast<double>((samples + batch - 1) / batch);
    const std::size_t epoch = done.step == 0 ? 0 : (done.step - 1) / steps_per_epoch_;
    print("validation in train epoch ", epoch, ": eval_loss: ", python_number(done.loss),
          ", val_perplexity: ", python_number(std::exp(done.loss * batches)));
  }
  void on(const xtrain::step_skipped& skipped) override {
    std::fprintf(stderr, "step %zu skipped: %s\n", skipped.step, skipped.reason.c_str());
  }

 private:
  template <class... Parts>
  void print(const Parts&... parts) {
    std::fprintf(to_, "%s\n", xtrain::concat(parts...).c_str());
    std::fflush(to_);
  }

  config settings_;
  std::FILE* to_;
  std::size_t steps_per_epoch_ = 1, sample_ = 1, summed_ = 0;
  float sum_ = 0;
};

}  // namespace command_line
