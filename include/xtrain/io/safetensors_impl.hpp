#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/safetensors.hpp>

namespace xtrain {

XTRAIN_INLINE safetensors_file::safetensors_file(const std::string& path) : file_(path) { read_header(); }

XTRAIN_INLINE const file_tensor* safetensors_file::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[at->second];
}

XTRAIN_INLINE void safetensors_file::read_header() {
  check(!file_.text().starts_with(git_lfs_pointer), "it is a pointer of Git LFS; the file itself comes with 'git lfs pull'");
  check(file_.size() >= 8, "must begin with the header's length; the file has ", file_.size(), " bytes");
  std::uint64_t length = 0;
  std::memcpy(&length, file_.data(), 8);
  check(length <= longest_header, "the header must have at most ", longest_header, " bytes; it claims ", length);
  check(length <= file_.size() - 8, "the header must lie inside the file; it claims ", length, " bytes, ", file_.size() - 8, " are left");
  const std::string_view text = file_.text().substr(8, static_cast<std::size_t>(length));
  check(!text.empty() && text.front() == '{', "the header must be a JSON object");
  const json header = parse_json(text, concat(file_.path(), ", header"));
  const std::span<const std::byte> data(reinterpret_cast<const std::byte*>(file_.data()) + 8 + length,
                                        file_.size() - 8 - static_cast<std::size_t>(length));
  struct place {
    std::size_t begin, end;
  };
  std::vector<place> places;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      check(value.is_object(), "__metadata__ must be an object");
      for (const auto& [key, entry] : value.items()) {
        check(entry.is_string(), "__metadata__ must hold strings; '", key, "' is ", entry.type_name());
        metadata_.emplace(key, entry.get<std::string>());
      }
      continue;
    }
    const file_tensor tensor = read_entry(name, value, data);
    places.push_back({static_cast<std::size_t>(tensor.bytes.data() - data.data()),
                      static_cast<std::size_t>(tensor.bytes.data() - data.data()) + tensor.bytes.size()});
    by_name_.emplace(name, tensors_.size());
    tensors_.push_back(tensor);
  }
  std::sort(places.begin(), places.end(),
            [](const place& a, const place& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::size_t next = 0;
  for (const place& p : places) {
    check(p.begin == next, "tensors must lie one behind the other; one begins at ", p.begin, " where ", next, " is next");
    next = p.end;
  }
  check(next == data.size(), "tensors must fill the file; they end at ", next, " of ", data.size(), " bytes");
}

XTRAIN_INLINE file_tensor safetensors_file::read_entry(const std::string& name, const json& value, std::span<const std::byte> data) const {
  check(value.is_object() && value.contains("dtype") && value.contains("shape") && value.contains("data_offsets"), "tensor '", name,
        "' must have dtype, shape and data_offsets");
  file_tensor tensor{.name = name};
  const json& dtype = value["dtype"];
  check(dtype.is_string(), "tensor '", name, "': dtype must be a string");
  tensor.dtype = dtype.get<std::string>();
  check(bits_of(tensor.dtype) != 0, "tensor '", name, "': dtype '", tensor.dtype, "' is not one of the format's");
  const json& shape = value["shape"];
  check(shape.is_array(), "tensor '", name, "': shape must be a list");
  std::uint64_t bits = bits_of(tensor.dtype);
  for (const json& dim : shape) {
    check(dim.is_number_unsigned(), "tensor '", name, "': shape must hold whole numbers; given ", shape.dump());
    const auto size = dim.get<std::uint64_t>();
    check(!__builtin_mul_overflow(bits, size, &bits), "tensor '", name, "': shape is larger than any file; given ", shape.dump());
    tensor.shape.push_back(static_cast<std::size_t>(size));
  }
  const json& offsets = value["data_offsets"];
  check(offsets.is_array() && offsets.size() == 2 && offsets[0].is_number_unsigned() && offsets[1].is_number_unsigned(), "tensor '", name,
        "': data_offsets must be two whole numbers");
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  check(begin <= end && end <= data.size(), "tensor '", name, "': must lie inside the file; it claims bytes ", begin, " to ", end, " of ",
        data.size(), ". Is the file cut short?");
  check(bits % 8 == 0 && bits / 8 == end - begin, "tensor '", name, "': ", tensor.dtype, " of shape ", shape.dump(), " must have ",
        bits / 8, " bytes; it has ", end - begin);
  tensor.bytes = data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  return tensor;
}

namespace detail {

XTRAIN_INLINE void sort_as_written(std::vector<tensor_to_write>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) {
    const tensor_to_write &a = tensors[i], &b = tensors[j];
    const std::size_t wide_a = bits_of(a.dtype), wide_b = bits_of(b.dtype);
    return wide_a != wide_b ? wide_a > wide_b : a.name < b.name;
  });
  std::vector<tensor_to_write> sorted;
  sorted.reserve(order.size());
  for (const std::size_t i : order) sorted.push_back(std::move(tensors[i]));
  tensors = std::move(sorted);
}

XTRAIN_INLINE void produce_for_another(std::vector<tensor_to_write> tensors) {
  sort_as_written(tensors);
  for (const tensor_to_write& tensor : tensors) tensor.produce([](const void*, std::size_t) {});
}

}  // namespace detail

namespace detail {

XTRAIN_INLINE std::string safetensors_header(const std::string& path, const std::vector<tensor_to_write>& sorted,
                                             const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t next = 0;
  for (const tensor_to_write& tensor : sorted) {
    require<file_error>(tensor.name != "__metadata__", path,
                        ": tensors must not be called '__metadata__', which is the format's own; one is");
    json& entry = header[tensor.name];
    entry["dtype"] = tensor.dtype;
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = std::vector<std::size_t>{next, next + tensor.bytes};
    next += tensor.bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const json::exception&) {
    fail<file_error>(path, ": names of tensors must be UTF-8; one is not");
  }
  while (text.size() % 8 != 0) text.push_back(' ');
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text;
}

XTRAIN_INLINE void write_tensors(atomic_file& file, const std::string& path, const std::vector<tensor_to_write>& sorted) {
  for (const tensor_to_write& tensor : sorted) {
    std::size_t written = 0;
    tensor.produce([&](const void* data, std::size_t size) {
      written += size;
      file.write(data, size);
    });
    require<file_error>(written == tensor.bytes, path, ": tensor '", tensor.name, "' must have ", tensor.bytes, " bytes; ", written,
                        " were produced");
  }
  file.commit();
}

}  // namespace detail

XTRAIN_INLINE void write_safetensors(const std::string& path, std::vector<tensor_to_write> tensors,
                                     const std::map<std::string, std::string>& metadata) {
  detail::sort_as_written(tensors);
  const std::string header = detail::safetensors_header(path, tensors, metadata);
  atomic_file file(path);
  file.write(header);
  detail::write_tensors(file, path, tensors);
}

}  // namespace xtrain
