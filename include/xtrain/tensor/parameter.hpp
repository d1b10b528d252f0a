// A parameter's declaration, and its handle.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/device/kernel/blocks.hpp>

namespace xtrain {

/// How a parameter is initialized.
struct initial_values {
  enum class kind : std::uint8_t { constant, normal, uniform };
  kind distribution = kind::constant;
  double value = 0;  ///< the constant, the standard deviation (mean 0), or the bound of [-value, value]
  std::size_t zeros_begin = 0, zeros_end = 0;  ///< elements that are zero in every distribution

  [[nodiscard]] static constexpr initial_values constant(double value) { return {.distribution = kind::constant, .value = value}; }
  [[nodiscard]] static constexpr initial_values normal(double deviation) { return {.distribution = kind::normal, .value = deviation}; }
  [[nodiscard]] static constexpr initial_values uniform(double largest) { return {.distribution = kind::uniform, .value = largest}; }
  /// Sets elements begin … end − 1 to zero.
  [[nodiscard]] constexpr initial_values with_zeros(std::size_t begin, std::size_t end) const {
    return {.distribution = distribution, .value = value, .zeros_begin = begin, .zeros_end = end};
  }

  /// Elements 4·index … 4·index + 3, a function of the site.
  [[nodiscard]] std::array<double, 4> quad(const random_site& site, std::uint64_t index) const {
    std::array<double, 4> values{value, value, value, value};
    if (distribution == kind::normal) {
      const auto drawn = normal_quad(site, index);
      for (std::size_t i = 0; i < 4; ++i) values[i] *= static_cast<double>(drawn[i]);
    } else if (distribution == kind::uniform) {
      const auto drawn = random_quad(site, index);
      for (std::size_t i = 0; i < 4; ++i) values[i] *= 2.0 * static_cast<double>(uniform_open(drawn[i])) - 1.0;
    }
    return values;
  }

  /// Elements from `first` on.
  template <class T>
  void draw(const random_site& site, std::size_t first, std::span<T> to) const {
    for (std::size_t i = first; i < first + to.size();) {
      const auto values = quad(site, i / 4);
      for (std::size_t j = i % 4; j < 4 && i < first + to.size(); ++j, ++i)
        to[i - first] = static_cast<T>(i >= zeros_begin && i < zeros_end ? 0.0 : values[j]);
    }
  }
};

/// Row order in files: row i in memory is row (*order)[i]. Null: the same.
using file_order = std::shared_ptr<const std::vector<std::uint32_t>>;

/// Consecutive rows of a parameter.
struct row_range {
  std::size_t begin = 0, count = 0;
};

/// Blocks of a wider matrix that is zero elsewhere: memory holds the blocks' rows in sequence; in files block i has rows `blocks[i]` and the i-th group
/// of columns.
struct blocks_of_file {
  std::size_t rows = 0;  ///< of the matrix in files
  std::vector<row_range> blocks{};
};

/// A tensor-parallel rank's shard of a parameter: row ranges, columns.
struct parameter_cut {
  std::vector<std::size_t> whole{};  ///< unsharded shape; empty: not sharded
  std::vector<row_range> rows{};     ///< in memory order; empty: all rows
  std::size_t first_column = 0;

  [[nodiscard]] bool exists() const { return !whole.empty(); }
};

/// A named parameter.
struct parameter_spec {
  std::string name{};                ///< in files, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::size_t> shape{};  ///< of this rank's shard: one or two dims; matrices are [out, in]
  initial_values initial{};
  bool trainable = true;
  bool transposed_in_files = false;  ///< files hold [in, out]
  file_order rows_in_files{};
  std::shared_ptr<const blocks_of_file> blocks_in_files{};  ///< null: files hold the matrix
  bool quantized = false;        ///< stored in NF4, integers or blocks; not trained
  std::size_t integer_bits = 0;  ///< 4 or 8: integers with a scale per row; 0: NF4
  std::optional<block_format> blocks{};  ///< for GGUF blocks
  parameter_cut cut{};
  /// Tensor parallelism: how many adjacent ranks have the same values (0: all), and whether their gradients are partial sums.
  std::size_t copies = 0;
  bool gradients_are_parts = false;
  /// Expert parallelism: the owner rank; nullopt: every rank has the parameter, with a partial gradient.
  std::optional<std::size_t> owner{};

  /// Over all ranks.
  [[nodiscard]] const std::vector<std::size_t>& whole_shape() const { return cut.exists() ? cut.whole : shape; }
  [[nodiscard]] std::vector<std::size_t> file_shape() const {
    std::vector<std::size_t> result = whole_shape();
    if (transposed_in_files) std::swap(result[0], result[1]);
    if (blocks_in_files != nullptr) result = {blocks_in_files->rows, result[1] * blocks_in_files->blocks.size()};
    return result;
  }
  /// Calls visit(first element in the shard, first element unsharded, count) for ranges contiguous in both.
  template <class Visit>
  void for_each_range(Visit&& visit) const {
    const std::size_t columns = shape.size() > 1 ? shape[1] : 1, whole_columns = whole_shape().size() > 1 ? whole_shape()[1] : 1;
    std::vector<row_range> rows = cut.rows;
    if (rows.empty()) rows.push_back({0, shape[0]});
    std::size_t here = 0;
    for (const row_range& range : rows) {
      if (columns == whole_columns) {
        visit(here * columns, range.begin * columns, range.count * columns);
      } else {
        for (std::size_t i = 0; i < range.count; ++i)
          visit((here + i) * columns, (range.begin + i) * whole_columns + cut.first_column, columns);
      }
      here += range.count;
    }
  }
};

/// A handle to one parameter, or to adjacent parameters used as one matrix (queries, keys, values).
class parameter {
 public:
  constexpr parameter() = default;
  constexpr parameter(std::uint32_t first, std::uint32_t count) : first_(first), count_(count) {}
  [[nodiscard]] constexpr std::uint32_t first() const { return first_; }
  [[nodiscard]] constexpr std::uint32_t count() const { return count_; }
  [[nodiscard]] constexpr bool exists() const { return count_ != 0; }

 private:
  std::uint32_t first_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace xtrain
