// Definitions of json_lines.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/train/events.hpp>
#include <xtrain/train/json_lines.hpp>

namespace xtrain {

XTRAIN_INLINE json_lines_record::json_lines_record(const std::string& path, double device_peak, std::function<void(const std::string&)> report)
    : path_(path), peak_(device_peak), report_(std::move(report)), file_(std::fopen(path.c_str(), "ae")) {
  require<file_error>(file_ != nullptr, path, ": must be writable");
  std::setvbuf(file_.get(), nullptr, _IONBF, 0);  // unbuffered: a write error appears at once
  if (path.starts_with("/dev/") || path.starts_with("/proc/")) return;  // a stream, or arbitrary content
  const std::unique_ptr<std::FILE, closer> before(std::fopen(path.c_str(), "re"));
  if (before == nullptr || std::fseek(before.get(), -1, SEEK_END) != 0) return;  // a new file, or a device
  // a killed run may have left half a line: begin a new one
  const bool ends_within_a_line = std::fgetc(before.get()) != '\n';
  constexpr std::string_view beginning = "{\"event\"";
  std::array<char, beginning.size()> first{};
  std::rewind(before.get());
  const std::size_t length = std::fread(first.data(), 1, first.size(), before.get());
  require<file_error>(beginning.starts_with(std::string_view(first.data(), length)), path,
                      ": must be a new file or the log of a run, to which lines are added; it holds something else");
  if (ends_within_a_line) append("\n");
}

XTRAIN_INLINE void json_lines_record::describe(std::string object) {
  require<config_error>(object.size() > 2 && object.front() == '{' && object.back() == '}' && object.find('\n') == std::string::npos,
                        "json_lines_record: what describes a run must be a JSON object in one line; given '", object, "'");
  description_ = concat("{\"event\": \"settings\", ", object.substr(1), "\n");
}

XTRAIN_INLINE void json_lines_record::on(const run_began& run) {
  begin("run");
  put("max_steps", run.max_steps);
  put("first_step", run.first_step);
  put("parameters", run.parameters);
  put("trainable_parameters", run.trained);
  put("global_batch_size", run.sequences_per_step);
  put("seq_length", run.seq_length);
  put("unix_time", static_cast<std::size_t>(std::time(nullptr)));
  put("memory", run.memory.now);
  end();
  if (!description_.empty()) append(description_);
}

XTRAIN_INLINE void json_lines_record::on(const step_done& done) {
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
  for (std::size_t i = 0; i < done.statistic_names.size(); ++i) put(std::string(done.statistic_names[i]).c_str(), done.statistics[i]);
  if (peak_ > 0 && done.seconds > 0) put("mfu", done.operations / done.seconds / peak_);
  end();
}

XTRAIN_INLINE void json_lines_record::on(const rank_measured& one) {
  begin("rank");
  put("step", one.step);
  put("rank", one.rank);
  put("seconds", one.seconds);
  put("waiting", one.waiting);
  put("tokens", one.tokens);
  put("peak_memory", one.peak_memory);
  end();
}

XTRAIN_INLINE void json_lines_record::on(const step_skipped& skipped) {
  begin("skipped");
  put("step", skipped.step);
  put("in_a_row", skipped.in_a_row);
  put("overflow", std::size_t{skipped.overflow});
  put("reason", std::string_view(skipped.reason));
  end();
}

XTRAIN_INLINE void json_lines_record::on(const evaluation_done& done) {
  begin("evaluation");
  put("step", done.step);
  put("loss", done.loss);
  put("perplexity", done.perplexity);
  put("targets", done.targets);
  put("seconds", done.seconds);
  end();
}

XTRAIN_INLINE void json_lines_record::on(const checkpoint_written& done) {
  begin("checkpoint");
  put("step", done.step);
  put("seconds", done.seconds);
  put("writers", done.writers);
  end();
}

XTRAIN_INLINE void json_lines_record::on(const run_ended& ended) {
  begin("end");
  put("step", ended.step);
  put("stopped", std::size_t{ended.stopped});
  put("seconds", ended.seconds);
  put("skipped", ended.skipped);
  put("peak_memory", ended.memory.total_peak);
  put("memory", ended.memory.peak);
  end();
}

XTRAIN_INLINE void json_lines_record::begin(const char* event) {
  length_ = 0;
  write("{\"event\": \"%s\"", event);
}

XTRAIN_INLINE void json_lines_record::put(const char* key, double value) {
  if (std::isfinite(value)) write(", \"%s\": %.9g", key, value);
  else write(", \"%s\": null", key);
}

XTRAIN_INLINE void json_lines_record::put(const char* key, std::string_view text) {
  write(", \"%s\": \"", key);
  for (const char c : text) {
    if (line_.size() - length_ < 256) break;  // room to end the line
    if (c == '"' || c == '\\') write("\\%c", c);
    else if (static_cast<unsigned char>(c) < 0x20) write("\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    else write("%c", c);
  }
  write("\"");
}

XTRAIN_INLINE void json_lines_record::put(const char* key, const std::array<std::size_t, memory_roles>& bytes) {
  write(", \"%s\": {", key);
  const char* between = "";
  for (std::size_t r = 0; r < memory_roles; ++r) {
    if (bytes[r] == 0) continue;
    const std::string_view name = name_of(static_cast<memory_role>(r));
    write("%s\"%.*s\": %zu", between, static_cast<int>(name.size()), name.data(), bytes[r]);
    between = ", ";
  }
  write("}");
}

XTRAIN_INLINE void json_lines_record::end() {
  write("}\n");
  append({line_.data(), length_});
}

XTRAIN_INLINE void json_lines_record::append(std::string_view line) {
  const auto written = [&](std::string_view text) { return std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size(); };
  if ((!is_cut_ || written("\n")) && written(line)) {
    is_cut_ = false;
    return;
  }
  constexpr const char* problem = ": the record must be written; the disk may be full";
  require<file_error>(report_ != nullptr, path_, problem);
  std::clearerr(file_.get());
  is_cut_ = true;  // part of the line may be written
  if (!std::exchange(has_reported_, true)) report_(concat(path_, problem));
}

}  // namespace xtrain
