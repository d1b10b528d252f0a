// Sums, largest elements and softmax over dims.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <xtrain/testing/fake_ascend_operators/operations.hpp>

namespace xtrain::testing::detail {

struct fake_reductions : fake_operations {
  /// Calls f(row of the reduced elements, in order) for each result.
  template <class F>
  static values reduced(const tensor& x, const std::set<std::size_t>& over, F&& f) {
    const values all = load(x);
    dims kept = x.dims;
    for (const std::size_t dim : over) kept[dim] = 1;
    std::size_t count = 1;
    for (const std::int64_t dim : kept) count *= static_cast<std::size_t>(dim);
    std::vector<values> rows(count);
    tensor place = x;
    place.dims = kept;
    place.strides.assign(kept.size(), 0);
    std::int64_t stride = 1;
    for (std::size_t i = kept.size(); i-- > 0; stride *= kept[i]) place.strides[i] = stride;
    std::size_t next = 0;
    place.for_each(x.dims, [&](std::int64_t at) { rows[static_cast<std::size_t>(at)].push_back(all[next++]); });
    values results;
    for (const values& row : rows) results.push_back(f(row));
    return results;
  }
  static std::set<std::size_t> over(call& c, const tensor& x, const fake_ints& list) {
    std::set<std::size_t> all;
    for (const std::int64_t dim : list) c.need(all.insert(c.dim_of(x, dim)).second, "a dim is named twice");
    return all;
  }
  static void check_reduced(call& c, const tensor& x, const std::set<std::size_t>& over, bool keeps, const tensor& to) {
    dims expected;
    for (std::size_t i = 0; i < x.dims.size(); ++i)
      if (!over.contains(i)) expected.push_back(x.dims[i]);
      else if (keeps) expected.push_back(1);
    c.need_dims(to, expected);
  }
  static void reduce_sum(call& c, in x_, ints dims_, bool keeps, int type, target out_) {
    const tensor &x = c.in(x_), &to = c.out(out_);
    c.need_number_or_double(x);
    c.need(type == static_cast<int>(to.type), concat("dtype ", type, " must be the result's: ", to.text()));
    const auto which = over(c, x, c.integers(dims_));
    check_reduced(c, x, which, keeps, to);
    const bool is_double = to.type == npu_type::fp64;
    c.compute([=] {
      store(to, reduced(x, which, [&](const values& row) {
        double sum = 0;
        for (const double value : row) sum = is_double ? sum + value : static_cast<double>(fp32(sum) + fp32(value));
        return sum;
      }));
    });
  }
  static void max_dim(call& c, in x_, std::int64_t dim, bool keeps, target out_, target index_) {
    const tensor &x = c.in(x_), &to = c.out(out_), &index = c.out(index_);
    c.need_number(x);
    c.need_types(to, {x.type});
    c.need_types(index, {npu_type::int32, npu_type::int64});
    const std::set<std::size_t> which{c.dim_of(x, dim)};
    check_reduced(c, x, which, keeps, to);
    check_reduced(c, x, which, keeps, index);
    c.compute([=] {
      const auto at = [](const values& row) { return std::max_element(row.begin(), row.end()); };
      store(to, reduced(x, which, [&](const values& row) { return *at(row); }));
      store(index, reduced(x, which, [&](const values& row) { return static_cast<double>(at(row) - row.begin()); }));
    });
  }
  static void log_sum_exp(call& c, in x_, ints dims_, bool keeps, target out_) {
    const tensor &x = c.in(x_), &to = c.out(out_);
    c.need_number(x);
    c.need_number(to);
    const auto which = over(c, x, c.integers(dims_));
    check_reduced(c, x, which, keeps, to);
    c.compute([=] {
      store(to, reduced(x, which, [&](const values& row) {
        const float largest = fp32(*std::max_element(row.begin(), row.end()));
        float sum = 0;
        for (const double value : row) sum += std::exp(fp32(value) - largest);
        return static_cast<double>(largest + std::log(sum));
      }));
    });
  }
  static void softmax(call& c, in x_, std::int64_t dim, target out_) {
    const tensor &x = c.in(x_), &to = c.out(out_);
    c.need_number(x);
    c.need_number(to);
    c.need_dims(to, x.dims);
    c.need(c.dim_of(x, dim) + 1 == x.dims.size(), "this fake takes the last dim");
    c.compute([=] {
      values all = load(x);
      const auto row = static_cast<std::size_t>(x.dims.back());
      for (std::size_t first = 0; first < all.size(); first += row) {
        const double largest = *std::max_element(all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(first + row));
        double sum = 0;
        for (std::size_t i = first; i < first + row; ++i) sum += all[i] = std::exp(all[i] - largest);
        for (std::size_t i = first; i < first + row; ++i) all[i] /= sum;
      }
      store(to, all);
    });
  }
};

}  // namespace xtrain::testing::detail
