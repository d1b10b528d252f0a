// Fixtures generated with PyTorch: see tests/golden.
#pragma once

#include <string>
#include <vector>

#include <xtrain/data/loader.hpp>
#include <xtrain/io/safetensors.hpp>

namespace golden {

inline std::string folder(const std::string& name) { return xtrain::concat(XTRAIN_GOLDEN "/", name); }

inline std::vector<double> numbers(const xtrain::safetensors_file& file, const std::string& name) {
  const xtrain::file_tensor* tensor = file.find(name);
  if (tensor == nullptr) throw xtrain::file_error(file.path() + " has no " + name);
  std::vector<double> values(tensor->size());
  xtrain::read_numbers<double>(*tensor, 0, values);
  return values;
}

/// A fixture's sequences as a micro-batch; PyTorch's label -100 becomes an ignored label.
inline xtrain::host_batch batch(const std::vector<double>& inputs, const std::vector<double>& targets, std::size_t first, std::size_t b,
                                std::size_t t) {
  xtrain::host_batch rows{.b = b, .t = t};
  for (std::size_t i = 0; i < b * t; ++i) {
    rows.tokens.push_back(static_cast<xtrain::token>(inputs[first + i]));
    rows.targets.push_back(static_cast<xtrain::token>(targets[first + i]));
    rows.positions.push_back(static_cast<xtrain::token>(i % t));
    rows.starts.push_back(0);
    rows.target_count += rows.targets.back() >= 0 ? 1 : 0;
  }
  rows.token_count = b * t;
  return rows;
}

}  // namespace golden
