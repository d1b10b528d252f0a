// Writes GGUF files, version 3: metadata in memory, tensors produced one after the other.
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

/// A tensor to be written: its bytes are produced in pieces when they are needed.
struct gguf_tensor_to_write {
  std::string name{};
  std::string type{};                ///< "Q8_0"
  std::vector<std::size_t> shape{};  ///< outermost dim first
  /// Calls sink(data, size) with the bytes, in order.
  std::function<void(const std::function<void(const void*, std::size_t)>& sink)> produce{};
};

/// Collects metadata and tensors, then writes the file. Both are in the order of the calls; tensors begin at multiples of 32 bytes.
///   throws  config_error when a key or tensor is given twice, or cannot be in such a file
class gguf_writer {
 public:
  static constexpr std::size_t alignment = 32;
  static constexpr std::size_t longest_name = 63;  ///< of a tensor, in bytes: llama.cpp refuses longer ones

  explicit gguf_writer(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] const std::string& path() const { return path_; }

  void add_text(std::string_view key, std::string_view value);
  void add_u32(std::string_view key, std::size_t value);
  void add_f32(std::string_view key, double value);
  void add_flag(std::string_view key, bool value);
  void add_texts(std::string_view key, std::span<const std::string> values);
  void add_f32s(std::string_view key, std::span<const float> values);
  void add_i32s(std::string_view key, std::span<const std::int32_t> values);
  /// A value of another file.
  void add(std::string_view key, const gguf_value& value);
  [[nodiscard]] bool has(std::string_view key) const { return keys_.contains(key); }

  void add_tensor(gguf_tensor_to_write tensor);
  [[nodiscard]] const std::vector<gguf_tensor_to_write>& tensors() const { return tensors_; }

  /// Writes the file atomically.
  ///   throws  file_error; what producing a tensor throws: the previous file of that name is then untouched
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
