#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/io/file_tensor.hpp>
#include <xtrain/io/parallel_read.hpp>

namespace xtrain {

/// A vocabulary size rounded up to a multiple.
///   throws  config_error when the multiple is 0 or the result overflows
[[nodiscard]] inline std::size_t padded_vocabulary(std::size_t words, std::size_t multiple) {
  require<config_error>(multiple > 0 && words + multiple > words,
                        "padded_vocabulary: the multiple must be positive and not beyond all numbers; given ", multiple);
  return (words + multiple - 1) / multiple * multiple;
}

namespace detail {

/// Elements for `rows` rows; new rows are the mean: a new token is as likely as an average one, other logits stay.
/// [Hewitt 2021, "Initializing new word embeddings for pretrained language models"]
template <dtype T>
class resized_rows {
 public:
  /// throws file_error without a row
  resized_rows(const file_tensor& from, std::size_t rows) : from_(&from) {
    if (from.shape.empty() || rows <= from.shape[0]) return;
    require<file_error>(from.size() > 0, "tensor '", from.name, "': must have rows, so that new ones can be made; it is empty");
    const std::size_t columns = from.size() / from.shape[0];
    std::vector<double> sum(columns);
    std::vector<double> row(columns);
    for (std::size_t r = 0; r < from.shape[0]; ++r) {
      read_numbers<double>(from, r * columns, row);
      for (std::size_t i = 0; i < columns; ++i) sum[i] += row[i];
    }
    for (const double all : sum) mean_.push_back(static_cast<T>(static_cast<accumulate_t<T>>(all / static_cast<double>(from.shape[0]))));
  }

  /// Elements first … first + to.size() − 1 of the parameter.
  void read(std::size_t first, std::span<T> to) const {
    const std::size_t in_file = from_->size(), there = first < in_file ? std::min(to.size(), in_file - first) : 0;
    read_in_parallel<T>(*from_, first, to.first(there));
    for (std::size_t i = there; i < to.size(); ++i) to[i] = mean_[(first + i) % mean_.size()];
  }

 private:
  const file_tensor* from_;
  std::vector<T> mean_;
};

}  // namespace detail

}  // namespace xtrain
