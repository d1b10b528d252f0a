// What a layer declares about a parameter, and the handle that it gets.
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
  double value = 0;  ///< the constant, the standard deviation (mean zero), or the bound of [-value, value]
  std::size_t zeros_begin = 0, zeros_end = 0;  ///< elements in this range are zero regardless of the distribution

  [[nodiscard]] static constexpr initial_values constant(double value) { return {.distribution = kind::constant, .value = value}; }
  [[nodiscard]] static constexpr initial_values normal(double deviation) { return {.distribution = kind::normal, .value = deviation}; }
  [[nodiscard]] static constexpr initial_values uniform(double largest) { return {.distribution = kind::uniform, .value = largest}; }
  /// The same, with elements begin … end − 1 set to zero.
  [[nodiscard]] constexpr initial_values with_zeros(std::size_t begin, std::size_t end) const {
    return {.distribution = distribution, .value = value, .zeros_begin = begin, .zeros_end = end};
  }

  /// Initial values of elements 4·quad … 4·quad + 3, a function of the site.
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

  /// Initial values of the elements from `first` on.
  template <class T>
  void draw(const random_site& site, std::size_t first, std::span<T> to) const {
    for (std::size_t i = first; i < first + to.size();) {
      const auto values = quad(site, i / 4);
      for (std::size_t j = i % 4; j < 4 && i < first + to.size(); ++j, ++i)
        to[i - first] = static_cast<T>(i >= zeros_begin && i < zeros_end ? 0.0 : values[j]);
    }
  }
};

/// The order of a parameter's rows in files: row i in memory is row (*order)[i] of the file. Null: the same order.
using file_order = std::shared_ptr<const std::vector<std::uint32_t>>;

/// Consecutive rows of a parameter.
struct row_range {
  std::size_t begin = 0, count = 0;
};

/// A matrix that is blocks of a wider one in files, zero elsewhere: rows in memory are those of the blocks, one after the other; in files block i has the
/// rows `blocks[i]` and the i-th group of columns.
struct blocks_of_file {
  std::size_t rows = 0;  ///< of the matrix in files
  std::vector<row_range> blocks{};
};

/// The shard of a whole parameter that a tensor-parallel rank has: some row ranges, some columns.
struct parameter_cut {
  std::vector<std::size_t> whole{};  ///< shape of the whole parameter; empty: not sharded
  std::vector<row_range> rows{};     ///< in memory order; empty: all rows
  std::size_t first_column = 0;

  [[nodiscard]] bool exists() const { return !whole.empty(); }
};

/// One named parameter.
struct parameter_spec {
  std::string name{};                ///< name in files, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::size_t> shape{};  ///< of this rank's shard: one or two dims; matrices are [out, in]
  initial_values initial{};
  bool trainable = true;
  bool transposed_in_files = false;  ///< files store [in, out]
  file_order rows_in_files{};
  std::shared_ptr<const blocks_of_file> blocks_in_files{};  ///< null: files store the matrix as it is
  bool quantized = false;        ///< stored in four bits (NF4), as integers, or in blocks; not trained
  std::size_t integer_bits = 0;  ///< of a quantized matrix: integers of 4 or 8 bits with a scale per row; 0: NF4
  std::optional<block_format> blocks{};  ///< of a quantized matrix in blocks of GGUF
  parameter_cut cut{};
  /// With tensor parallelism: how many adjacent ranks have the same values (0: all of them), and whether their
  /// gradients are partial and must be summed.
  std::size_t copies = 0;
  bool gradients_are_parts = false;
  /// With expert parallelism: the owner rank; nullopt: every rank has it, and each computes a partial gradient.
  std::optional<std::size_t> owner{};

  /// The shape over all ranks.
  [[nodiscard]] const std::vector<std::size_t>& whole_shape() const { return cut.exists() ? cut.whole : shape; }
  /// The shape in files.
  [[nodiscard]] std::vector<std::size_t> file_shape() const {
    std::vector<std::size_t> result = whole_shape();
    if (transposed_in_files) std::swap(result[0], result[1]);
    if (blocks_in_files != nullptr) result = {blocks_in_files->rows, result[1] * blocks_in_files->blocks.size()};
    return result;
  }
  /// Calls visit(first element in the shard, first element in the whole, count) for ranges that are contiguous in both.
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

/// A handle to one parameter, or to several adjacent ones that are used as one matrix (queries, keys and values).
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
