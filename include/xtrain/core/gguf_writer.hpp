// Writes GGUF version 3: metadata in memory, tensors one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/gguf_file.hpp>

namespace xtrain {

/// Bytes are produced in pieces when needed.
struct gguf_tensor_to_write {
  std::string name{};
  std::string type{};                ///< "Q8_0"
  std::vector<std::size_t> shape{};  ///< outermost first
  /// sink(data, size), in order.
  std::function<void(const std::function<void(const void*, std::size_t)>& sink)> produce{};
};

/// Writes metadata and tensors in the order of calls; tensors are aligned to 32 bytes.
///   throws  config_error for a duplicate or invalid key or tensor
class gguf_writer {
 public:
  static constexpr std::size_t alignment = 32;
  static constexpr std::size_t longest_name = 63;  ///< of tensors, in bytes: llama.cpp's limit

  explicit gguf_writer(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] const std::string& path() const { return path_; }

  void add_text(std::string_view key, std::string_view value);
  void add_u32(std::string_view key, std::size_t value);
  void add_f32(std::string_view key, double value);
  void add_flag(std::string_view key, bool value);
  void add_texts(std::string_view key, std::span<const std::string> values);
  void add_f32s(std::string_view key, std::span<const float> values);
  void add_i32s(std::string_view key, std::span<const std::int32_t> values);
  /// Of another file.
  void add(std::string_view key, const gguf_value& value);
  [[nodiscard]] bool has(std::string_view key) const { return keys_.contains(key); }

  void add_tensor(gguf_tensor_to_write tensor);
  [[nodiscard]] const std::vector<gguf_tensor_to_write>& tensors() const { return tensors_; }

  /// Writes atomically.
  ///   throws  file_error, errors of producing; an existing file is then unchanged
  void write() const;

 private:
  /// Begins an entry.
  void begin(std::string_view key, gguf_value_type type);
  void begin_array(std::string_view key, gguf_value_type type, std::size_t count);
  void put_text(std::string_view text);

  std::string path_;
  std::string metadata_;
  std::set<std::string, std::less<>> keys_;
  std::vector<gguf_tensor_to_write> tensors_;
  std::vector<std::size_t> bytes_;  // of the tensors
  std::set<std::string, std::less<>> names_;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/core/gguf_writer_impl.hpp>
#endif
