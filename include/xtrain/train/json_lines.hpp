// The log of a run: one JSON object per event and line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/header_inline.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/train/events.hpp>

namespace xtrain {

/// Appends to a file: a resumed run continues the log, on a new line if the last one was cut off. Non-finite values are null.
class json_lines_record final : public observer {
 public:
  /// `device_peak` in FLOP/s (see measure_peak); 0: no MFU is recorded.
  ///   report  gets the first write error, such as a full disk: the run continues, and so does the record when it can. Empty: file_error ends the run
  ///   throws  file_error when the file cannot be opened for writing
  explicit json_lines_record(const std::string& path, double device_peak = 0, std::function<void(const std::string&)> report = {});

  /// Recorded when the run begins, as an event 'settings'.
  ///   object  a non-empty JSON object in one line: see recorded_run()
  ///   throws  config_error for any other text
  void describe(std::string object);

  using observer::on;
  XTRAIN_HEADER_INLINE void on(const run_began& run) override;
  XTRAIN_HEADER_INLINE void on(const step_done& done) override;
  XTRAIN_HEADER_INLINE void on(const rank_measured& one) override;
  XTRAIN_HEADER_INLINE void on(const step_skipped& skipped) override;
  XTRAIN_HEADER_INLINE void on(const evaluation_done& done) override;
  XTRAIN_HEADER_INLINE void on(const checkpoint_written& done) override;
  XTRAIN_HEADER_INLINE void on(const run_ended& ended) override;

 private:
  void begin(const char* event);
  void put(const char* key, std::size_t value) { write(", \"%s\": %zu", key, value); }
  void put(const char* key, double value);
  void put(const char* key, std::string_view text);
  void put(const char* key, const std::array<std::size_t, memory_roles>& bytes);
  void end();
  void append(std::string_view line);
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
  std::function<void(const std::string&)> report_;
  bool is_cut_ = false, has_reported_ = false;
  std::string description_;  // the line of 'settings', or empty
  std::unique_ptr<std::FILE, closer> file_;
  std::array<char, 4096> line_{};
  std::size_t length_ = 0;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/train/json_lines_impl.hpp>
#endif
