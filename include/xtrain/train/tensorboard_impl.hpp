// Definitions of tensorboard.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/train/events.hpp>
#include <xtrain/train/tensorboard.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE std::uint32_t crc32c(std::string_view data) {
  static constexpr auto table = [] {
    std::array<std::uint32_t, 256> all{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
      all[i] = crc;
    }
    return all;
  }();
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char c : data) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xFFU] ^ (crc >> 8);
  return ~crc;
}

XTRAIN_INLINE void append_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80U));
  to.push_back(static_cast<char>(value));
}

XTRAIN_INLINE void append_text(std::string& to, unsigned field, std::string_view text) {
  append_varint(to, field << 3 | 2U);
  append_varint(to, text.size());
  to.append(text);
}

}  // namespace detail

XTRAIN_INLINE tensorboard_record::tensorboard_record(const std::string& folder, std::function<void(const std::string&)> report) : report_(std::move(report)) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  path_ =
      concat(folder, "/events.out.tfevents.", static_cast<std::uint64_t>(now()), ".", std::string_view(host.data()), ".", ::getpid(), ".0");
  file_.reset(std::fopen(path_.c_str(), "we"));
  require<file_error>(file_ != nullptr, path_, ": must be writable");
  event_.clear();
  begin_event(0);
  detail::append_text(event_, 3, "brain.Event:2");
  write_event();
}

XTRAIN_INLINE void tensorboard_record::on(const step_done& done) {
  scalar("train/loss", done.loss, done.step);
  scalar("train/learning_rate", done.learning_rate, done.step);
  scalar("train/grad_norm", done.gradient_norm, done.step);
  scalar("train/tokens_per_second", done.tokens_per_second(), done.step);
  for (std::size_t i = 0; i < done.statistic_names.size(); ++i) scalar(concat("train/", done.statistic_names[i]), done.statistics[i], done.step);
  scalar("memory/peak_bytes", static_cast<double>(done.peak_memory), done.step);
}

XTRAIN_INLINE void tensorboard_record::on(const evaluation_done& done) {
  scalar("evaluation/loss", done.loss, done.step);
  scalar("evaluation/perplexity", done.perplexity, done.step);
}

XTRAIN_INLINE void tensorboard_record::scalar(std::string_view tag, double value, std::size_t step) {
  value_.clear();
  detail::append_text(value_, 1, tag);
  value_.push_back(static_cast<char>(2U << 3 | 5U));
  detail::append_bytes(value_, static_cast<float>(value));
  summary_.clear();
  detail::append_text(summary_, 1, value_);
  begin_event(step);
  detail::append_text(event_, 5, summary_);
  write_event();
}

XTRAIN_INLINE void tensorboard_record::begin_event(std::size_t step) {
  event_.clear();
  event_.push_back(static_cast<char>(1U << 3 | 1U));
  detail::append_bytes(event_, now());
  event_.push_back(static_cast<char>(2U << 3));
  detail::append_varint(event_, step);
}

XTRAIN_INLINE void tensorboard_record::write_event() {
  if (file_ == nullptr) return;
  record_.clear();
  detail::append_bytes(record_, static_cast<std::uint64_t>(event_.size()));
  detail::append_bytes(record_, detail::masked_crc32c(record_));
  record_.append(event_);
  detail::append_bytes(record_, detail::masked_crc32c(event_));
  require_written(std::fwrite(record_.data(), 1, record_.size(), file_.get()) == record_.size());
}

XTRAIN_INLINE void tensorboard_record::on(const run_ended&) {
  if (file_ != nullptr) require_written(std::fflush(file_.get()) == 0);
}

XTRAIN_INLINE void tensorboard_record::require_written(bool is) {
  if (is) return;
  constexpr const char* problem = ": the record must be written; the disk may be full";
  require<file_error>(report_ != nullptr, path_, problem);
  file_.reset();  // readers stop at a partial record
  report_(concat(path_, problem));
}

}  // namespace xtrain
