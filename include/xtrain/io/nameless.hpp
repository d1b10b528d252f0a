// Files without tensor names: a header with sizes, elements in fixed order. Reader and writer traverse one list.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/tensor_source.hpp>

namespace xtrain {

/// A tensor's layout relative to Hugging Face's.
enum class arrangement {
  same,
  transposed,   ///< [columns, rows]
  interleaved,  ///< rows 0, 1, 2, … of a head are 0, d/2, 1, d/2 + 1, …: pairs that rotate together
};

/// A tensor in file order.
struct nameless_tensor {
  std::string name{};                ///< Hugging Face's; empty: no tensor
  std::vector<std::size_t> shape{};  ///< Hugging Face's
  arrangement how = arrangement::same;
  std::size_t heads = 0;    ///< if interleaved
  std::size_t padding = 0;  ///< unused elements after it

  [[nodiscard]] std::size_t size() const {
    std::size_t product = name.empty() ? 0 : 1;
    for (const std::size_t dim : shape) product *= dim;
    return product;
  }
};

namespace detail {

/// Layout of the file's elements, in Hugging Face's order.
[[nodiscard]] inline std::vector<file_dim> layout_in_file(const nameless_tensor& tensor) {
  if (tensor.how == arrangement::same) return {};
  const std::size_t rows = tensor.shape[0], columns = tensor.shape[1];
  if (tensor.how == arrangement::transposed) return {{rows, 1}, {columns, rows}};
  const std::size_t d = rows / tensor.heads;
  return {{tensor.heads, d * columns}, {2, columns}, {d / 2, 2 * columns}, {columns, 1}};
}
/// Inverse: layout of Hugging Face's elements, in file order.
[[nodiscard]] inline std::vector<file_dim> layout_for_file(const nameless_tensor& tensor) {
  if (tensor.how == arrangement::same) return {};
  const std::size_t rows = tensor.shape[0], columns = tensor.shape[1];
  if (tensor.how == arrangement::transposed) return {{columns, 1}, {rows, columns}};
  const std::size_t d = rows / tensor.heads;
  return {{tensor.heads, d * columns}, {d / 2, columns}, {2, d / 2 * columns}, {columns, 1}};
}

/// Elements of all tensors.
///   throws  file_error for an impossible size; `who`: file
[[nodiscard]] inline std::size_t numbers_in(std::span<const nameless_tensor> tensors, const std::string& who) {
  std::size_t all = 0;
  for (const nameless_tensor& tensor : tensors) {
    std::size_t here = tensor.name.empty() ? 0 : 1;
    bool beyond = false;
    for (const std::size_t dim : tensor.shape) beyond = beyond || __builtin_mul_overflow(here, dim, &here);
    beyond = beyond || __builtin_add_overflow(all, here, &all) || __builtin_add_overflow(all, tensor.padding, &all);
    require<file_error>(!beyond && all <= (std::size_t{1} << 60), who, ": sizes must be a file's; '", tensor.name,
                        "' would lie beyond the end of any");
  }
  return all;
}

/// Tensors with name, bytes and layout.
///   throws  file_error unless the bytes are exactly the tensors'
[[nodiscard]] inline std::vector<file_tensor> named(std::span<const nameless_tensor> tensors, std::span<const std::byte> bytes,
                                                    std::string_view dtype, const std::string& who) {
  const std::size_t width = bits_of(dtype) / 8, all = numbers_in(tensors, who);
  require<file_error>(bytes.size() == all * width, who, ": must have ", all, " numbers of ", width,
                      " bytes behind its header, which says so; it has ", bytes.size(), " bytes. ",
                      bytes.size() < all * width ? "Is the file cut short?" : "Is it another kind of file?");
  std::vector<file_tensor> result;
  std::size_t next = 0;
  for (const nameless_tensor& tensor : tensors) {
    if (!tensor.name.empty())
      result.push_back({.name = tensor.name,
                        .dtype = std::string(dtype),
                        .shape = tensor.shape,
                        .bytes = bytes.subspan(next * width, tensor.size() * width),
                        .layout = layout_in_file(tensor)});
    next += tensor.size() + tensor.padding;
  }
  return result;
}

/// Tensors that the format does not store, allowed if may_be(name).
///   throws  config_error for other tensors, or when one of the format is missing
template <class MayBe>
[[nodiscard]] std::vector<std::string> left_out(const tensor_source& from, std::span<const nameless_tensor> places, const std::string& who,
                                                const MayBe& may_be) {
  std::vector<std::string_view> names;
  for (const nameless_tensor& place : places) {
    require<config_error>(place.name.empty() || from.find(place.name) != nullptr, who, ": '", place.name,
                          "' must be there, because the sizes ask for it; it is missing");
    names.push_back(place.name);
  }
  std::sort(names.begin(), names.end());
  std::vector<std::string> others;
  for (const auto& [name, tensor] : from.tensors()) {
    if (std::binary_search(names.begin(), names.end(), std::string_view(name))) continue;
    require<config_error>(may_be(name), who, ": '", name, "' must have a place in the file that is to be written; it has none");
    others.push_back(name);
  }
  return others;
}

/// Writes a tensor in file order, with zeros as padding. Another layout needs memory for the tensor.
///   throws  config_error for another shape, file_error
template <dtype T>
void write_nameless(atomic_file& file, const nameless_tensor& to, const file_tensor& from, const std::string& who) {
  require<config_error>(from.shape == to.shape, who, ": '", from.name, "' must have shape ", std::span<const std::size_t>(to.shape),
                        " as the sizes say; it has ", std::span<const std::size_t>(from.shape));
  constexpr std::size_t at_once = std::size_t{1} << 16;
  std::vector<T> whole, piece(std::min(at_once, std::max(to.size(), to.padding)));
  file_tensor arranged = from;
  if (to.how != arrangement::same) {
    whole.resize(to.size());
    read_numbers<T>(from, 0, whole);
    arranged.dtype = safetensors_dtype_of<T>();
    arranged.bytes = std::as_bytes(std::span(whole));
    arranged.layout = layout_for_file(to);
  }
  for (std::size_t first = 0; first < to.size(); first += piece.size()) {
    const std::span<T> some(piece.data(), std::min(piece.size(), to.size() - first));
    read_numbers<T>(arranged, first, some);
    file.write(some.data(), some.size_bytes());
  }
  std::fill(piece.begin(), piece.end(), T{});
  for (std::size_t left = to.padding; left > 0; left -= std::min(left, piece.size()))
    file.write(piece.data(), std::min(left, piece.size()) * sizeof(T));
}

}  // namespace detail

}  // namespace xtrain
