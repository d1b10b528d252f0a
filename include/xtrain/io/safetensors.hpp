// safetensors files: memory-mapped and validated; written atomically.
//
// Layout: u64 header length, little-endian; header in JSON; tensors' bytes without gaps.
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

/// Bytes are produced in pieces when needed.
struct tensor_to_write {
  std::string name{};
  std::string dtype{};
  std::vector<std::size_t> shape{};
  std::size_t bytes = 0;
  /// sink(data, size), in order.
  std::function<void(const std::function<void(const void*, std::size_t)>& sink)> produce{};
  /// Ranks that write together: sink(first byte, data, size) for this rank's bytes.
  std::function<void(const std::function<void(std::size_t, const void*, std::size_t)>& sink)> produce_own{};
};

namespace detail {

/// Widest dtype first, then by name.
void sort_as_written(std::vector<tensor_to_write>& tensors);

/// While another rank writes: helps gather tensors in order.
void produce_for_another(std::vector<tensor_to_write> tensors);

}  // namespace detail

namespace detail {

/// All before the tensors' bytes.
///   throws  file_error
[[nodiscard]] std::string safetensors_header(const std::string& path, const std::vector<tensor_to_write>& sorted,
                                                    const std::map<std::string, std::string>& metadata);

/// Writes bytes in order, then commits.
void write_tensors(atomic_file& file, const std::string& path, const std::vector<tensor_to_write>& sorted);

}  // namespace detail

/// Writes atomically, in the reference implementation's order: widest dtype first, then by name.
///   throws  file_error; an existing file is then unchanged
void write_safetensors(const std::string& path, std::vector<tensor_to_write> tensors,
                              const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/io/safetensors_impl.hpp>
#endif
