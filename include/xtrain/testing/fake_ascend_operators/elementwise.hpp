// Arithmetic and functions of each element.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <xtrain/testing/fake_ascend_operators/operations.hpp>

namespace xtrain::testing::detail {

struct fake_elementwise : fake_operations {
  static void check_scaled(call& c, const tensor& a, const tensor& b, const tensor& to, bool in_place) {
    const npu_type type = c.promoted(a.type, b.type);
    c.need_convertible(type, to);
    const dims all = c.broadcast(a.dims, b.dims);
    c.need_dims(to, all);
    if (in_place) c.check_aliases(to);
  }
  /// A result is formed in the type to which operands are promoted, and then converted: two factors of 16 bits have no product of 32.
  static double rounded(npu_type type, double x) {
    switch (type) {
      case npu_type::bf16: return bf16(x);
      case npu_type::fp16: return fp16(x);
      case npu_type::fp32: return fp32(x);
      default: return x;
    }
  }
  /// Operands of 16 bits both: alpha · b may be rounded before the sum.
  static void sum(call& c, const tensor& a, const tensor& b, double alpha, const tensor& to, bool in_place) {
    check_scaled(c, a, b, to, in_place);
    c.need(call::is_float(c.promoted(a.type, b.type)) || alpha == std::floor(alpha), "alpha must be an integer for integers");
    const npu_type type = c.promoted(a.type, b.type);
    c.compute([=] {
      values x = load(a, to.dims), y = load(b, to.dims);
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = rounded(type, x[i] + rounded(type, alpha * y[i]));
      }
      store(to, x);
    });
  }
  static void apply(call& c, const tensor& a, const tensor& b, const tensor& to, bool in_place, function_2 f) {
    check_scaled(c, a, b, to, in_place);
    const npu_type type = c.promoted(a.type, b.type);
    c.compute([=] {
      values x = load(a, to.dims);
      const values y = load(b, to.dims);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = rounded(type, f(x[i], y[i]));
      store(to, x);
    });
  }
  static void apply(call& c, const tensor& a, const tensor& to, function_1 f) {
    c.need_number_or_double(a);
    c.need_convertible(a.type, to);
    c.need_dims(to, a.dims);
    c.compute([=] {
      values x = load(a);
      for (double& value : x) value = rounded(a.type, f(value));
      store(to, x);
    });
  }
  static void apply(call& c, const tensor& a, const tensor& to, double by, function_2 f) {
    c.need_number_or_double(a);
    c.need_dims(to, a.dims);
    c.need_convertible(a.type, to);
    const double number = a.type == npu_type::fp64 ? by : static_cast<double>(fp32(by));
    c.compute([=] {
      values x = load(a);
      for (double& value : x) value = rounded(a.type, f(value, number));
      store(to, x);
    });
  }
  static double plus(double a, double b) { return a + b; }
  static double times(double a, double b) { return a * b; }
  static double over(double a, double b) { return a / b; }
  static void add(call& c, in a_, in b_, number alpha, target out_) {
    const tensor &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    sum(c, a, b, c.number(alpha), to, false);
  }
  static void inplace_add(call& c, in a_, in b_, number alpha) {
    const tensor &a = c.in_place(a_), &b = c.in(b_);
    sum(c, a, b, c.number(alpha), a, true);
  }
  static void sub(call& c, in a_, in b_, number alpha, target out_) {
    const tensor &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    sum(c, a, b, -c.number(alpha), to, false);
  }
  static void inplace_sub(call& c, in a_, in b_, number alpha) {
    const tensor &a = c.in_place(a_), &b = c.in(b_);
    sum(c, a, b, -c.number(alpha), a, true);
  }
  static void mul(call& c, in a_, in b_, target out_) {
    const tensor &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    apply(c, a, b, to, false, times);
  }
  static void inplace_mul(call& c, in a_, in b_) {
    const tensor &a = c.in_place(a_), &b = c.in(b_);
    apply(c, a, b, a, true, times);
  }
  static void muls(call& c, in a_, number by, target out_) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    apply(c, a, to, c.number(by), times);
  }
  static void inplace_muls(call& c, in a_, number by) {
    const tensor& a = c.in_place(a_);
    apply(c, a, a, c.number(by), times);
  }
  static void adds(call& c, in a_, number by, number alpha, target out_) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    apply(c, a, to, c.number(by) * c.number(alpha), plus);
  }
  static void inplace_adds(call& c, in a_, number by, number alpha) {
    const tensor& a = c.in_place(a_);
    apply(c, a, a, c.number(by) * c.number(alpha), plus);
  }
  static void div(call& c, in a_, in b_, target out_) {
    const tensor &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    apply(c, a, b, to, false, over);
  }
  static void inplace_div(call& c, in a_, in b_) {
    const tensor &a = c.in_place(a_), &b = c.in(b_);
    apply(c, a, b, a, true, over);
  }
  static void minimum(call& c, in a_, in b_, target out_) {
    const tensor &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    apply(c, a, b, to, false, [](double x, double y) { return std::fmin(x, y); });
  }
  /// self + value · f(a, b)
  static void combine(call& c, const tensor& self, const tensor& a, const tensor& b, double value, const tensor& to, bool in_place, function_2 f) {
    c.need(call::is_float(self.type), "only floating-point types");
    const npu_type type = c.promoted(c.promoted(self.type, a.type), b.type);
    c.need_convertible(type, to);
    c.need_dims(to, c.broadcast(self.dims, c.broadcast(a.dims, b.dims)));
    if (in_place) c.check_aliases(to);
    c.compute([=] {
      values x = load(self, to.dims);
      const values y = load(a, to.dims), z = load(b, to.dims);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = rounded(type, x[i] + rounded(type, value * rounded(type, f(y[i], z[i]))));
      store(to, x);
    });
  }
  static void addcmul(call& c, in self_, in a_, in b_, number value, target out_) {
    const tensor &self = c.in(self_), &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    combine(c, self, a, b, c.number(value), to, false, times);
  }
  static void inplace_addcmul(call& c, in self_, in a_, in b_, number value) {
    const tensor &self = c.in_place(self_), &a = c.in(a_), &b = c.in(b_);
    combine(c, self, a, b, c.number(value), self, true, times);
  }
  static void inplace_addcdiv(call& c, in self_, in a_, in b_, number value) {
    const tensor &self = c.in_place(self_), &a = c.in(a_), &b = c.in(b_);
    combine(c, self, a, b, c.number(value), self, true, over);
  }
  static void inplace_sqrt(call& c, in a_) {
    const tensor& a = c.in_place(a_);
    apply(c, a, a, [](double x) { return std::sqrt(x); });
  }
  static void inplace_rsqrt(call& c, in a_) {
    const tensor& a = c.in_place(a_);
    apply(c, a, a, [](double x) { return 1.0 / std::sqrt(x); });
  }
  static void exp(call& c, in a_, target out_) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    c.need(!c.is_first_chip(), npu_operator_status::no_kernel, "this chip has no such operator");
    apply(c, a, to, [](double x) { return std::exp(x); });
  }
  static void log(call& c, in a_, target out_) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    c.need(!c.is_first_chip(), npu_operator_status::no_kernel, "this chip has no such operator");
    c.need_dense(to);
    apply(c, a, to, [](double x) { return std::log(x); });
  }
  static void tanh(call& c, in a_, target out_) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    apply(c, a, to, [](double x) { return std::tanh(x); });
  }
  static void inplace_tanh(call& c, in a_) {
    const tensor& a = c.in_place(a_);
    apply(c, a, a, [](double x) { return std::tanh(x); });
  }
  static void tanh_backward(call& c, in d_, in y_, target out_) {
    const tensor &d = c.in(d_), &y = c.in(y_), &to = c.out(out_);
    c.need_number(d);
    c.need_dims(y, d.dims);
    apply(c, d, y, to, false, [](double dy, double x) { return dy * (1 - x * x); });
  }
  static void sigmoid(call& c, in a_, target out_) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    c.need_number(a);
    apply(c, a, to, [](double x) { return 1 / (1 + std::exp(-x)); });
  }
  static constexpr double slope = 0.79788456080286535588, cubic = 0.044715;
  static void gelu(call& c, in a_, std::int64_t form, target out_) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    c.need_number(a);
    c.need(form == 0 || form == 1, "approximate must be 0 or 1");
    c.need_types(to, {a.type});
    if (form == 1) apply(c, a, to, [](double x) { return 0.5 * x * (1 + std::tanh(slope * (x + cubic * x * x * x))); });
    else apply(c, a, to, [](double x) { return 0.5 * x * (1 + std::erf(x * 0.70710678118654752440)); });
  }
  static void gelu_backward(call& c, in d_, in a_, text form, target out_) {
    const tensor &d = c.in(d_), &a = c.in(a_), &to = c.out(out_);
    c.need(form != nullptr, npu_operator_status::null_argument, "approximate is null");
    const std::string_view which(form);
    c.need(which == "tanh" || which == "none", "approximate must be tanh or none");
    c.need_number(d);
    c.need_types(to, {c.promoted(d.type, a.type)});
    if (which == "tanh")
      apply(c, d, a, to, false, [](double dy, double x) {
        const double th = std::tanh(slope * (x + cubic * x * x * x));
        return dy * (0.5 * (1 + th) + 0.5 * x * (1 - th * th) * slope * (1 + 3 * cubic * x * x));
      });
    else
      apply(c, d, a, to, false, [](double dy, double x) {
        return dy * (0.5 * (1 + std::erf(x * 0.70710678118654752440)) + x * 0.39894228040143267794 * std::exp(-0.5 * x * x));
      });
  }
};

}  // namespace xtrain::testing::detail
