// safetensors files: memory-mapped for reading, the header fully validated; written atomically.
//
// Layout: u64 length of the header, little-endian; the header, JSON; then the tensors' bytes, without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json_fwd.hpp>
#include <xtrain/io/file_tensor.hpp>

namespace xtrain {

/// A validated safetensors file.
class safetensors_file {
 public:
  static constexpr std::uint64_t longest_header = 100'000'000;

  /// throws file_error when the header is malformed or contradicts the file
  explicit safetensors_file(const std::string& path);

  [[nodiscard]] const std::vector<file_tensor>& tensors() const { return tensors_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Null when there is no tensor of that name.
  [[nodiscard]] const file_tensor* find(std::string_view name) const;
  [[nodiscard]] const std::string& path() const { return file_.path(); }

 private:
  template <class... Parts>
  void check(bool holds, const Parts&... parts) const {
    require<file_error>(holds, file_.path(), ": not a whole safetensors file: ", parts...);
  }

  void read_header();

  [[nodiscard]] file_tensor read_entry(const std::string& name, const json& value, std::span<const std::byte> data) const;

  mapped_file file_;
  std::vector<file_tensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to be written: its bytes are produced in pieces when they are needed.
struct tensor_to_write {
  std::string name{};
  std::string dtype{};
  std::vector<std::size_t> shape{};
  std::size_t bytes = 0;
  /// Calls sink(data, size) with the bytes, in order.
  std::function<void(const std::function<void(const void*, std::size_t)>& sink)> produce{};
  /// For ranks that write a file together: calls sink(first byte, data, size) with the bytes of the tensor that this rank writes.
  std::function<void(const std::function<void(std::size_t, const void*, std::size_t)>& sink)> produce_own{};
};

namespace detail {

/// Widest dtype first, then by name.
void sort_as_written(std::vector<tensor_to_write>& tensors);

/// Runs on a rank while another writes the file: takes part in gathering the tensors, one after the other.
void produce_for_another(std::vector<tensor_to_write> tensors);

}  // namespace detail

namespace detail {

/// Everything before the tensors' bytes.
///   throws  file_error
[[nodiscard]] std::string safetensors_header(const std::string& path, const std::vector<tensor_to_write>& sorted,
                                                    const std::map<std::string, std::string>& metadata);

/// Writes the tensors' bytes in order, then commits the file.
void write_tensors(atomic_file& file, const std::string& path, const std::vector<tensor_to_write>& sorted);

}  // namespace detail

/// Writes a file atomically. Tensors are ordered as by the format's reference implementation: widest dtype first, then by
/// name.
///   throws  file_error; the previous file of that name is then untouched
void write_safetensors(const std::string& path, std::vector<tensor_to_write> tensors,
                              const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/safetensors_impl.hpp>
#endif
