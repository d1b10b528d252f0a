// Properties of tensors of any format.
#pragma once

#include <algorithm>
#include <vector>

#include <xtrain/io/rewrite.hpp>
#include <xtrain/io/tensor_source.hpp>

#include "fuzz.hpp"

namespace fuzz {

/// Elements lie inside the tensor's bytes, and these inside a file of `file_size` bytes.
inline void check_tensor(const xtrain::file_tensor& tensor, std::size_t file_size) {
  const std::size_t bits = xtrain::bits_of(tensor.dtype), count = tensor.size();
  must(bits != 0, "a tensor's number type must be known");
  must(count * bits / 8 <= file_size && tensor.bytes.size() <= file_size, "a tensor must not be larger than its file");
  if (!tensor.layout.empty()) {
    std::size_t product = 1, last = 0;
    for (const xtrain::file_dim& dim : tensor.layout) {
      must(dim.size > 0, "a layout must have no empty dims");
      product *= dim.size;
      last += (dim.size - 1) * dim.stride;
    }
    must(product == count, "a layout must run through every number once");
    must((last + 1) * bits / 8 <= tensor.bytes.size(), "numbers must lie inside the tensor's bytes");
  } else {
    must(count * bits / 8 == tensor.bytes.size(), "a tensor's shape must say how many bytes it has");
  }
  std::vector<double> values(count);
  must(reads([&] { xtrain::read_numbers<double>(tensor, 0, values); }) == xtrain::is_floating(tensor.dtype),
       "floating-point tensors must be readable, others must not");
}

/// The tensors are valid, and equal when written as safetensors and read again.
inline void check_tensors(const xtrain::tensor_source& source, std::size_t file_size) {
  std::vector<xtrain::tensor_to_write> tensors;
  for (const auto& [name, tensor] : source.tensors()) {
    must(tensor->name == name && source.find(name) == tensor, "a tensor must be found by its name");
    check_tensor(*tensor, file_size);
    tensors.push_back(rewritten(*tensor, tensor->dtype));
  }
  const std::string path = folder() / "again.safetensors";
  write_safetensors(path, std::move(tensors));
  const xtrain::safetensors_file again(path);
  for (const xtrain::file_tensor& written : again.tensors()) {
    const xtrain::file_tensor& original = *source.find(written.name);
    must(written.shape == original.shape && written.dtype == original.dtype, "a tensor must survive being written");
    std::vector<std::byte> elements(written.bytes.size());
    read_elements(original, 0, elements);
    must(std::equal(elements.begin(), elements.end(), written.bytes.begin()), "a tensor's elements must survive being written");
  }
}

}  // namespace fuzz
