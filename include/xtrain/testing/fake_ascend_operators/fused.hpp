// Fused norms and activations.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <xtrain/testing/fake_ascend_operators/operations.hpp>

namespace xtrain::testing::detail {

struct fake_fused : fake_operations {
  static void rms_norm(call& c, in x_, in weight_, double epsilon, target y_, target rstd_) {
    c.need_second_chip();
    const tensor &x = c.in(x_), &weight = c.in(weight_), &y = c.out(y_), &rstd = c.out(rstd_);
    c.need_number(x);
    c.need(weight.type == x.type || weight.type == npu_type::fp32, "gamma must be of x's type or fp32");
    c.need_types(y, {x.type});
    c.need_types(rstd, {npu_type::fp32});
    c.need_dims(weight, {x.dims.back()}, npu_operator_status::tiling);
    c.need_dims(y, x.dims, npu_operator_status::tiling);
    dims expected = x.dims;
    expected.back() = 1;
    c.need_dims(rstd, expected, npu_operator_status::tiling);
    c.compute([=] {
      values all = load(x), roots;
      const values scale = load(weight);
      for (std::size_t first = 0; first < all.size(); first += scale.size()) {
        float sum = 0;
        for (std::size_t i = 0; i < scale.size(); ++i) sum += fp32(all[first + i]) * fp32(all[first + i]);
        const float root = 1.0f / std::sqrt(sum / static_cast<float>(scale.size()) + fp32(epsilon));
        roots.push_back(root);
        for (std::size_t i = 0; i < scale.size(); ++i) all[first + i] = fp32(all[first + i]) * root * fp32(scale[i]);
      }
      store(y, all);
      store(rstd, roots);
    });
  }
  static void layer_norm(call& c, in x_, ints shape_, in weight_, in bias_, double epsilon, target y_, target mean_, target rstd_) {
    const tensor &x = c.in(x_), &weight = c.in(weight_), &bias = c.in(bias_), &y = c.out(y_), &mean = c.out(mean_), &rstd = c.out(rstd_);
    c.need_number(x);
    c.need(c.integers(shape_) == fake_ints{x.dims.back()}, "this fake normalizes the last dim");
    c.need_types(y, {x.type});
    for (const tensor* of : {&mean, &rstd}) c.need(of->type == x.type || of->type == npu_type::fp32, "mean and rstd must be of the input's type or fp32");
    c.need_dims(weight, {x.dims.back()});
    c.need_dims(bias, {x.dims.back()});
    c.need_dims(y, x.dims);
    dims expected = x.dims;
    expected.back() = 1;
    c.need_dims(mean, expected);
    c.need_dims(rstd, expected);
    c.compute([=] {
      values all = load(x), means, roots;
      const values scale = load(weight), shift = load(bias);
      const auto n = static_cast<float>(scale.size());
      for (std::size_t first = 0; first < all.size(); first += scale.size()) {
        float sum = 0, squares = 0;
        for (std::size_t i = 0; i < scale.size(); ++i) sum += fp32(all[first + i]);
        const float middle = sum / n;
        for (std::size_t i = 0; i < scale.size(); ++i) squares += (fp32(all[first + i]) - middle) * (fp32(all[first + i]) - middle);
        const float root = 1.0f / std::sqrt(squares / n + fp32(epsilon));
        means.push_back(middle);
        roots.push_back(root);
        for (std::size_t i = 0; i < scale.size(); ++i) all[first + i] = (fp32(all[first + i]) - middle) * root * fp32(scale[i]) + fp32(shift[i]);
      }
      store(y, all);
      store(mean, means);
      store(rstd, roots);
    });
  }
  static void swi_glu(call& c, in x_, std::int64_t dim, target y_) {
    c.need_second_chip();
    const tensor &x = c.in(x_), &y = c.out(y_);
    c.need_number(x);
    c.need_types(y, {x.type});
    c.need(x.is_dense(), "x must be contiguous");
    c.need_dense(y);
    c.need(c.dim_of(x, dim) + 1 == x.dims.size(), "this fake takes the last dim");
    c.need(x.dims.back() % 2 == 0, "the dim must be even");
    dims expected = x.dims;
    expected.back() /= 2;
    c.need_dims(y, expected, npu_operator_status::tiling);
    c.compute([=] {
      const values all = load(x);
      const auto f = static_cast<std::size_t>(y.dims.back());
      values results;
      for (std::size_t row = 0; row < all.size(); row += 2 * f)
        for (std::size_t i = 0; i < f; ++i) results.push_back(all[row + i] / (1 + std::exp(-all[row + i])) * all[row + f + i]);
      store(y, results);
    });
  }
  static void rms_norm_grad(call& c, in d_, in x_, in rstd_, in weight_, target dx_, target dweight_) {
    c.need_second_chip();
    const tensor &d = c.in(d_), &x = c.in(x_), &rstd = c.in(rstd_), &weight = c.in(weight_), &dx = c.out(dx_), &dweight = c.out(dweight_);
    c.need_number(x);
    c.need_types(d, {x.type});
    c.need_types(dx, {x.type});
    c.need_types(rstd, {npu_type::fp32});
    c.need_types(dweight, {npu_type::fp32});
    c.need(weight.type == x.type || weight.type == npu_type::fp32, "gamma must be of x's type or fp32");
    c.need_dims(d, x.dims, npu_operator_status::tiling);
    c.need_dims(dx, x.dims, npu_operator_status::tiling);
    c.need_dims(rstd, dims(x.dims.begin(), x.dims.end() - 1), npu_operator_status::tiling);
    c.need_dims(weight, {x.dims.back()}, npu_operator_status::tiling);
    c.need_dims(dweight, {x.dims.back()}, npu_operator_status::tiling);
    c.compute([=, in_order = c.is_deterministic()] { norm_gradients(d, x, nullptr, rstd, weight, dx, &dweight, nullptr, in_order); });
  }
  static void layer_norm_backward(call& c, in d_, in x_, ints shape_, in mean_, in rstd_, in weight_, in bias_, npu_op::bools wanted_, target dx_,
                                  target dweight_, target dbias_) {
    const tensor &d = c.in(d_), &x = c.in(x_), &mean = c.in(mean_), &rstd = c.in(rstd_), &weight = c.in(weight_);
    const tensor* const bias = c.optional(bias_);
    const tensor &dx = c.out(dx_), &dweight = c.out(dweight_), &dbias = c.out(dbias_);
    c.need(c.flags(wanted_) == std::vector<bool>(3, true), "this fake computes all three results");
    c.need(c.integers(shape_) == fake_ints{x.dims.back()}, "this fake normalizes the last dim");
    for (const tensor* of : {&d, &x, &mean, &rstd, &weight, &dx, &dweight, &dbias}) {
      c.need_number(*of);
      c.need_elements(*of);
    }
    for (const tensor* of : {&mean, &rstd}) {
      c.need(of->type == x.type || of->type == npu_type::fp32, "mean and rstd must be at least as wide as the input");
      dims expected = x.dims;
      expected.back() = 1;
      c.need_dims(*of, expected);
    }
    for (const tensor* of : {&weight, &dweight, &dbias}) c.need_dims(*of, {x.dims.back()});
    if (bias != nullptr) c.need_dims(*bias, {x.dims.back()});
    c.need_dims(d, x.dims);
    c.need_dims(dx, x.dims);
    c.compute([=] { norm_gradients(d, x, &mean, rstd, weight, dx, &dweight, &dbias, true); });
  }
  static void norm_gradients(const tensor& d, const tensor& x, const tensor* mean, const tensor& rstd, const tensor& weight, const tensor& dx,
                             const tensor* dweight, const tensor* dbias, bool in_order) {
    const values dy = load(d), from = load(x), root = load(rstd), scale = load(weight);
    const values middle = mean != nullptr ? load(*mean) : values(root.size(), 0.0);
    const std::size_t c = scale.size(), n = root.size();
    values result(n * c), columns(c), sums(c);
    for (std::size_t step = 0; step < n; ++step) {
      const std::size_t i = in_order ? step : n - 1 - step;
      float mean_g = 0, mean_gx = 0;
      const auto xhat = [&](std::size_t j) { return (fp32(from[i * c + j]) - fp32(middle[i])) * fp32(root[i]); };
      for (std::size_t j = 0; j < c; ++j) {
        const float g = fp32(dy[i * c + j]) * fp32(scale[j]);
        mean_g += g;
        mean_gx += g * xhat(j);
        columns[j] = fp32(columns[j]) + fp32(dy[i * c + j]) * xhat(j);
        sums[j] = fp32(sums[j]) + fp32(dy[i * c + j]);
      }
      mean_g = mean != nullptr ? mean_g / static_cast<float>(c) : 0.0f;
      mean_gx /= static_cast<float>(c);
      for (std::size_t j = 0; j < c; ++j) result[i * c + j] = fp32(root[i]) * (fp32(dy[i * c + j]) * fp32(scale[j]) - mean_g - xhat(j) * mean_gx);
    }
    store(dx, result);
    if (dweight != nullptr) store(*dweight, columns);
    if (dbias != nullptr) store(*dbias, sums);
  }
  static void swi_glu_grad(call& c, in d_, in x_, std::int64_t dim, target out_) {
    c.need_second_chip();
    const tensor &d = c.in(d_), &x = c.in(x_), &to = c.out(out_);
    c.need_number(x);
    c.need_types(d, {x.type});
    c.need_types(to, {x.type});
    c.need_elements(x);
    c.need_dense(to);
    c.need(c.dim_of(x, dim) + 1 == x.dims.size(), "this fake takes the last dim");
    c.need(x.dims.back() % 2 == 0, "the dim must be even");
    c.need(static_cast<std::size_t>(x.dims.back() / 2) * x.size() % 64 == 0, "rows must be multiples of 64 bytes");
    dims expected = x.dims;
    c.need_dims(to, expected, npu_operator_status::tiling);
    expected.back() /= 2;
    c.need_dims(d, expected, npu_operator_status::tiling);
    c.compute([=] {
      const values dy = load(d), from = load(x);
      const auto f = static_cast<std::size_t>(d.dims.back());
      values all(from.size());
      for (std::size_t i = 0; i < dy.size(); ++i) {
        const std::size_t gate = i / f * 2 * f + i % f, up = gate + f;
        const double sigmoid = 1 / (1 + std::exp(-from[gate]));
        all[gate] = dy[i] * from[up] * sigmoid * (1 + from[gate] * (1 - sigmoid));
        all[up] = dy[i] * from[gate] * sigmoid;
      }
      store(to, all);
    });
  }
};

}  // namespace xtrain::testing::detail
