// The log of a run: one JSON object per event and line, for scripts to read.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/train/events.hpp>

namespace xtrain {

/// Appends to a file: a resumed run continues the same log. Values that are not finite are written as null.
class json_lines_record final : public observer {
 public:
  /// `device_peak` in FLOP/s (see measure_peak); 0: the share of peak is not recorded.
  ///   throws  file_error when the file cannot be written
  explicit json_lines_record(const std::string& path, double device_peak = 0)
      : path_(path), peak_(device_peak), file_(std::fopen(path.c_str(), "ae")) {
    require<file_error>(file_ != nullptr, path, ": must be writable");
  }

  using observer::on;
  void on(const run_began& run) override {
    begin("run");
    put("steps", run.steps);
    put("first_step", run.first_step);
    put("parameters", run.parameters);
    put("trained", run.trained);
    put("rows_per_step", run.rows_per_step);
    put("context", run.context);
    end();
  }
  void on(const step_done& done) override {
    begin("step");
    put("step", done.step);
    put("epoch", done.epoch);
    put("loss", done.loss);
    put("lr", done.learning_rate);
    put("grad_norm", done.gradient_norm);
    put("tokens", done.tokens);
    put("tokens_per_second", done.tokens_per_second());
    put("seconds", done.seconds);
    put("loss_scale", done.loss_scale);
    put("peak_memory", done.peak_memory);
    if (peak_ > 0 && done.seconds > 0) put("share_of_peak", done.operations / done.seconds / peak_);
    end();
  }
  void on(const rank_measured& one) override {
    begin("rank");
    put("step", one.step);
    put("rank", one.rank);
    put("seconds", one.seconds);
    put("waiting", one.waiting);
    put("tokens", one.tokens);
    put("peak_memory", one.peak_memory);
    end();
  }
  void on(const step_skipped& skipped) override {
    begin("skipped");
    put("step", skipped.step);
    put("in_a_row", skipped.in_a_row);
    put("overflow", std::size_t{skipped.overflow});
    put("reason", std::string_view(skipped.reason));
    end();
  }
  void on(const evaluation_done& done) override {
    begin("evaluation");
    put("step", done.step);
    put("loss", done.loss);
    put("perplexity", done.perplexity);
    put("targets", done.targets);
    end();
  }
  void on(const checkpoint_written& done) override {
    begin("checkpoint");
    put("step", done.step);
    put("seconds", done.seconds);
    put("writers", done.writers);
    end();
  }
  void on(const run_ended& ended) override {
    begin("end");
    put("step", ended.step);
    put("stopped", std::size_t{ended.stopped});
    put("seconds", ended.seconds);
    put("skipped", ended.skipped);
    put("peak_memory", ended.memory.total_peak);
    end();
  }

 private:
  // A line is built in preallocated memory: a step allocates nothing.
  void begin(const char* event) {
    length_ = 0;
    write("{\"event\": \"%s\"", event);
  }
  void put(const char* key, std::size_t value) { write(", \"%s\": %zu", key, value); }
  void put(const char* key, double value) {
    if (std::isfinite(value)) write(", \"%s\": %.9g", key, value);
    else write(", \"%s\": null", key);
  }
  void put(const char* key, std::string_view text) {
    write(", \"%s\": \"", key);
    for (const char c : text) {
      if (c == '"' || c == '\\') write("\\%c", c);
      else if (static_cast<unsigned char>(c) < 0x20) write("\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      else write("%c", c);
    }
    write("\"");
  }
  void end() {
    write("}\n");
    const bool written = std::fwrite(line_.data(), 1, length_, file_.get()) == length_ && std::fflush(file_.get()) == 0;
    require<file_error>(written, path_, ": the record must be written; the disk may be full");
  }
  template <class... Values>
  void write(const char* format, Values... values) {
    const std::size_t room = line_.size() - length_;
    const int length = std::snprintf(line_.data() + length_, room, format, values...);
    if (length > 0 && static_cast<std::size_t>(length) < room) length_ += static_cast<std::size_t>(length);
  }
  void write(const char* text) { write("%s", text); }

  struct closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  double peak_;
  std::unique_ptr<std::FILE, closer> file_;
  std::array<char, 4096> line_{};
  std::size_t length_ = 0;
};

}  // namespace xtrain
