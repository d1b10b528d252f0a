// GGUF files of llama.cpp: memory-mapped and validated.
//
// Layout, little-endian: "GGUF", u32 version, u64 tensors, u64 metadata entries; entries (key, type, value); tensor table (name, dims, type, offset); padding
// to the alignment; bytes of tensors, each aligned. A string: u64 length, bytes. Versions 2 and 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>

namespace xtrain {

/// Metadata types, numbered as in files.
enum class gguf_value_type : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// Blocks of `numbers` elements in `bytes` bytes.
struct gguf_tensor_type {
  std::uint32_t number;
  std::string_view name;
  std::size_t numbers, bytes;
};

/// A view of a metadata value.
struct gguf_value {
  gguf_value_type type{};      ///< of elements, in an array
  bool is_array = false;
  std::size_t count = 1;       ///< elements
  std::string_view bytes{};    ///< a string without its length; an array's strings with lengths
};

/// A tensor of a GGUF file.
struct gguf_tensor {
  std::string_view name{};
  std::string_view type{};           ///< "Q4_K"
  std::vector<std::size_t> shape{};  ///< outermost first, the reverse of the file
  std::span<const std::byte> bytes{};
};

/// A validated GGUF file. A value of another type is a file_error.
class gguf_file {
 public:
  static constexpr std::size_t most_dims = 4;

  /// First bytes are GGUF's.
  [[nodiscard]] static bool begins_as_one(std::string_view file) { return file.starts_with("GGUF"); }
  /// The file exists and begins so.
  [[nodiscard]] static bool is_one(const std::string& path);

  /// throws file_error when metadata or tensor table are malformed or contradict the file
  explicit gguf_file(const std::string& path);

  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] std::uint32_t version() const { return version_; }
  [[nodiscard]] std::size_t alignment() const { return alignment_; }
  [[nodiscard]] const std::map<std::string_view, gguf_value>& metadata() const { return metadata_; }
  [[nodiscard]] const std::vector<gguf_tensor>& tensors() const { return tensors_; }

  [[nodiscard]] const gguf_value* find(std::string_view key) const;
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
  /// An integer of any type.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  /// A non-negative integer.
  [[nodiscard]] std::optional<std::size_t> size(std::string_view key) const;
  /// An integer or floating-point number.
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<bool> flag(std::string_view key) const;
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  /// Empty when missing.
  [[nodiscard]] std::vector<std::string_view> texts(std::string_view key) const;
  [[nodiscard]] std::vector<double> numbers(std::string_view key) const;
  [[nodiscard]] std::vector<std::int64_t> integers(std::string_view key) const;

 private:
  class reader;

  template <class... Parts>
  void check(bool holds, const Parts&... parts) const {
    require<file_error>(holds, file_.path(), ": not a whole GGUF file: ", parts...);
  }
  /// Required to be a scalar, or an array.
  [[nodiscard]] const gguf_value* expect(std::string_view key, bool is_array) const;
  void read_metadata(reader& from, std::uint64_t entries);
  void read_tensors(reader& from, std::uint64_t tensors);

  mapped_file file_;
  std::uint32_t version_ = 0;
  std::size_t alignment_ = 32;
  std::map<std::string_view, gguf_value> metadata_;
  std::vector<gguf_tensor> tensors_;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/core/gguf_file_impl.hpp>
#endif
