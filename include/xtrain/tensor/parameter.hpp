// What a layer declares of a parameter, and the handle it gets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <xtrain/core/number.hpp>
#include <xtrain/core/random.hpp>

namespace xtrain {

/// What a parameter is before training.
struct initial_values {
  enum class kind : std::uint8_t { constant, normal, uniform };
  kind distribution = kind::constant;
  double value = 0;  // the constant, the standard deviation around zero, or the largest magnitude
  std::size_t zeros_begin = 0, zeros_end = 0;  // elements that are zero whatever the others are

  [[nodiscard]] static constexpr initial_values constant(double value) { return {.distribution = kind::constant, .value = value}; }
  [[nodiscard]] static constexpr initial_values normal(double deviation) { return {.distribution = kind::normal, .value = deviation}; }
  [[nodiscard]] static constexpr initial_values uniform(double largest) { return {.distribution = kind::uniform, .value = largest}; }
  /// The same, but for elements begin … end − 1, which are zero.
  [[nodiscard]] constexpr initial_values with_zeros(std::size_t begin, std::size_t end) const {
    return {.distribution = distribution, .value = value, .zeros_begin = begin, .zeros_end = end};
  }

  /// Elements 4·quad … 4·quad + 3, a function of the site.
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

/// The order in which files hold a parameter's rows: our row i is the file's row (*order)[i]. None: as they are.
using file_order = std::shared_ptr<const std::vector<std::uint32_t>>;

/// Rows of a parameter that are next to one another.
struct row_range {
  std::size_t begin = 0, count = 0;
};

/// Which part of a whole parameter a rank has, where ranks divide layers: some ranges of its rows, some columns.
struct parameter_cut {
  std::vector<std::size_t> whole{};  // shape; none: the parameter is not divided
  std::vector<row_range> rows{};     // in the order in which they lie here; none: all
  std::size_t first_column = 0;

  [[nodiscard]] bool exists() const { return !whole.empty(); }
};

/// One named parameter.
struct parameter_spec {
  std::string name{};                // as files name it, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::size_t> shape{};  // one or two dims; matrices are [out, in]; of what this rank has
  initial_values initial{};
  bool trainable = true;
  bool transposed_in_files = false;  // files hold [in, out]
  file_order rows_in_files{};
  bool quantised = false;  // kept in four bits; not trained
  parameter_cut cut{};
  /// Where ranks divide layers: how many neighbouring ranks have the same numbers (0: all of them), and whether the gradients that
  /// they make must be added up.
  std::size_t copies = 0;
  bool gradients_are_parts = false;
  /// Where ranks hold different experts: the one that has it; none: all of them, and each makes a part of its gradients.
  std::optional<std::size_t> holder{};

  /// The shape that files know.
  [[nodiscard]] const std::vector<std::size_t>& whole_shape() const { return cut.exists() ? cut.whole : shape; }
  /// Calls visit(first element here, first element of the whole, count) for ranges that are next to one another in both.
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

/// A handle: one parameter, or several that lie side by side and are used as one matrix (queries, keys and values).
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
