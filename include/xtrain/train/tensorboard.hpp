// TensorBoard event files: scalars, written without TensorFlow.
//
// A file is records of u64 length, u32 checksum of the length, data, u32 checksum of the data; data is an Event message in
// protocol-buffer encoding (1 wall_time double, 2 step varint, 3 file_version string, 5 summary of values {1 tag, 2 float}).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/header_inline.hpp>
#include <xtrain/train/events.hpp>

namespace xtrain {

namespace detail {

/// CRC-32C (Castagnoli), reflected polynomial 0x82F63B78.
[[nodiscard]] std::uint32_t crc32c(std::string_view data);

[[nodiscard]] inline std::uint32_t masked_crc32c(std::string_view data) { return std::rotr(crc32c(data), 15) + 0xA282EAD8U; }

template <class T>
void append_bytes(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void append_varint(std::string& to, std::uint64_t value);
void append_text(std::string& to, unsigned field, std::string_view text);

}  // namespace detail

/// Writes "events.out.tfevents.<time>.<host>.<process>.0" into an existing folder.
class tensorboard_record final : public observer {
 public:
  ///   report  gets a write error, such as a full disk: the run continues, the record ends. Empty: file_error ends the run
  ///   throws  file_error when the folder cannot be written to
  explicit tensorboard_record(const std::string& folder, std::function<void(const std::string&)> report = {});

  using observer::on;
  XTRAIN_HEADER_INLINE void on(const step_done& done) override;
  XTRAIN_HEADER_INLINE void on(const evaluation_done& done) override;
  XTRAIN_HEADER_INLINE void on(const run_ended&) override;

  void scalar(std::string_view tag, double value, std::size_t step);

 private:
  static double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }
  void begin_event(std::size_t step);
  void write_event();
  void require_written(bool is);

  struct closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::function<void(const std::string&)> report_;
  std::unique_ptr<std::FILE, closer> file_;  // null after a write error
  std::string event_, value_, summary_, record_;  // members, so that a step allocates nothing
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/train/tensorboard_impl.hpp>
#endif
