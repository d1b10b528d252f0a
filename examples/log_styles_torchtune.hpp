// A run's output as printed by torchtune's recipes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

#include <xtrain/train/events.hpp>

#include "command_line.hpp"

namespace command_line {

/// The file to which torchtune's DiskLogger, or StdoutLogger, appends; closed if its path is empty.
///   throws  file_error
class torchtune_log_file {
 public:
  explicit torchtune_log_file(const std::string& path) {
    if (path.empty()) return;
    if (path == "/dev/stdout") {  // opening a redirected output again would overwrite earlier lines
      file_ = stdout;
      return;
    }
    std::error_code ignored;  // the error is reported below
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    file_ = std::fopen(path.c_str(), "ae");
    xtrain::require<xtrain::file_error>(file_ != nullptr, path, ": must be writable: the metrics of every step are logged there");
    std::printf("Writing logs to %s\n", path.c_str());
  }
  ~torchtune_log_file() {
    if (file_ != nullptr && file_ != stdout) std::fclose(file_);
  }
  torchtune_log_file(const torchtune_log_file&) = delete;
  torchtune_log_file& operator=(const torchtune_log_file&) = delete;

  [[nodiscard]] std::FILE* get() const { return file_; }

 private:
  std::FILE* file_ = nullptr;
};

/// 'INFO:torchtune.utils._logging:' lines, the bar of an epoch, and the lines of torchtune's DiskLogger in a file:
///   1|20|Loss: 0.2997712790966034: 100%|██████| 2/2 [01:00<00:00, 30.03s/it]
///   Step 20 | loss:0.29977 lr:0.0002 tokens_per_second_per_gpu:812.4 grad_norm:1.02
/// On a terminal the bar is redrawn; elsewhere it is a line for every logged step.
class torchtune_lines final : public xtrain::observer {
 public:
  /// log_file  of the DiskLogger; empty: none
  torchtune_lines(std::size_t log_steps, bool clips, const std::string& log_file)
      : log_steps_(std::max<std::size_t>(log_steps, 1)), clips_(clips), log_file_(log_file) {}
  torchtune_lines(const torchtune_lines&) = delete;
  torchtune_lines& operator=(const torchtune_lines&) = delete;

  static void info(const std::string& text) { std::fprintf(stderr, "INFO:torchtune.utils._logging:%s\n", text.c_str()); }

  /// The weight files that were saved.
  static void saved(const std::string& folder) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      std::array<char, 32> size{};
      std::snprintf(size.data(), size.size(), "%.2f", static_cast<double>(std::filesystem::file_size(file)) / (1024.0 * 1024.0 * 1024.0));
      info(xtrain::concat(file.filename().string().starts_with("adapter") ? "Adapter" : "Model", " checkpoint of size ", size.data(), " GiB saved to ",
                          file.string()));
    }
  }

  using observer::on;
  void on(const xtrain::run_began& began) override { steps_per_epoch_ = std::max<std::size_t>(began.steps_per_epoch, 1); }
  void on(const xtrain::step_done& done) override {
    const std::size_t in_epoch = (done.step - 1) % steps_per_epoch_ + 1, epoch = (done.step - 1) / steps_per_epoch_ + 1;
    seconds_ = in_epoch == 1 ? done.seconds : seconds_ + done.seconds;
    const std::size_t of = std::min(steps_per_epoch_, done.steps - (done.step - in_epoch));
    const bool terminal = ::isatty(2) == 1;
    if (terminal || done.step % log_steps_ == 0 || in_epoch == of) {
      const double each = seconds_ / static_cast<double>(in_epoch);
      std::string bar;
      const std::size_t width = 30, full = width * in_epoch / of;
      for (std::size_t i = 0; i < width; ++i) bar += i < full ? "█" : " ";
      std::fprintf(stderr, "%s%zu|%zu|Loss: %.16g: %3.0f%%|%s| %zu/%zu [%s<%s, %.2f%s]%s", terminal ? "\r" : "", epoch, done.step, done.loss,
                   100.0 * static_cast<double>(in_epoch) / static_cast<double>(of), bar.c_str(), in_epoch, of,  // rounded, as tqdm does
                   clock(seconds_).c_str(), clock(each * static_cast<double>(of - in_epoch)).c_str(),
                   each >= 1.0 ? each : 1.0 / each, each >= 1.0 ? "s/it" : "it/s", terminal && in_epoch != of ? "" : "\n");
    }
    std::FILE* const file = log_file_.get();
    if (file == nullptr || done.step % log_steps_ != 0) return;
    std::fprintf(file, "Step %zu | loss:%.16g lr:%.16g tokens_per_second_per_gpu:%.16g ", done.step, done.loss, done.learning_rate, done.tokens_per_second());
    if (clips_) std::fprintf(file, "grad_norm:%.16g ", done.gradient_norm);
    for (std::size_t i = 0; i < done.statistic_names.size(); ++i)
      std::fprintf(file, "%s:%.16g ", std::string(done.statistic_names[i]).c_str(), done.statistics[i]);
    std::fputc('\n', file);
    std::fflush(file);
  }
  void on(const xtrain::step_skipped& skipped) override { std::fprintf(stderr, "step %zu skipped: %s\n", skipped.step, skipped.reason.c_str()); }

 private:
  [[nodiscard]] static std::string clock(double seconds) {
    const auto whole = static_cast<unsigned long>(seconds);
    std::array<char, 32> text{};
    if (whole >= 3600) std::snprintf(text.data(), text.size(), "%lu:%02lu:%02lu", whole / 3600, whole / 60 % 60, whole % 60);
    else std::snprintf(text.data(), text.size(), "%02lu:%02lu", whole / 60, whole % 60);
    return text.data();
  }

  std::size_t log_steps_, steps_per_epoch_ = 1;
  bool clips_;
  double seconds_ = 0;
  torchtune_log_file log_file_;
};

}  // namespace command_line
