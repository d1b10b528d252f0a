// Types, copies, comparisons and masks.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <xtrain/testing/fake_ascend_operators/operations.hpp>

namespace xtrain::testing::detail {

struct fake_conversions : fake_operations {
  static double converted(double x, npu_type to) {
    if (to == npu_type::boolean) return x != 0 ? 1 : 0;
    return call::is_float(to) ? x : std::trunc(x);
  }
  static void convert(const tensor& from, const tensor& to) {
    values x = load(from, to.dims);
    for (double& value : x) value = converted(value, to.type);
    store(to, x);
  }
  static void cast(call& c, in a_, int type, target out_) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    c.need(type == static_cast<int>(to.type), concat("dtype ", type, " must be the result's: ", to.text()));
    c.need_dims(to, a.dims);
    c.compute([=] { convert(a, to); });
  }
  static void inplace_copy(call& c, in self_, in from_) {
    const tensor &self = c.in_place(self_), &from = c.in(from_);
    c.need(c.broadcast(self.dims, from.dims) == self.dims, "the source cannot be broadcast to the target");
    c.check_aliases(self);
    c.copies();
    c.compute([=] { convert(from, self); });
  }
  static void fill(call& c, const tensor& self, double value) {
    c.compute([=] { store(self, values(self.elements(), converted(value, self.type))); });
  }
  static void inplace_zero(call& c, in self_) {
    const tensor& self = c.in_place(self_);
    fill(c, self, 0);
  }
  static void inplace_fill(call& c, in self_, number value) {
    const tensor& self = c.in_place(self_);
    fill(c, self, c.number(value));
  }
  static void where(call& c, in mask_, in a_, in b_, target out_) {
    const tensor &mask = c.in(mask_), &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    c.need_types(mask, {npu_type::boolean, npu_type::uint8});
    c.need_types(to, {c.promoted(a.type, b.type)});
    c.need_dims(to, c.broadcast(mask.dims, c.broadcast(a.dims, b.dims)));
    c.compute([=] {
      const values holds = load(mask, to.dims), y = load(b, to.dims);
      values x = load(a, to.dims);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (holds[i] == 0) x[i] = y[i];
      store(to, x);
    });
  }
  static void clamp(call& c, in a_, number low_, number high_, target out_) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    c.need_dims(to, a.dims);
    const double low = c.number(low_), high = c.number(high_);
    c.compute([=] {
      values x = load(a);
      for (double& value : x) value = std::fmin(std::fmax(value, low), high);
      store(to, x);
    });
  }
  static void compare(call& c, const tensor& a, const tensor& b, const tensor& to, function_2 f) {
    c.need_types(to, {npu_type::boolean});
    c.need(!(c.is_first_chip() && a.type == npu_type::int64), "comparisons of int64 are wrong on this chip");
    c.need_dims(to, c.broadcast(a.dims, b.dims));
    c.compute([=] {
      values x = load(a, to.dims);
      const values y = load(b, to.dims);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = f(x[i], y[i]);
      store(to, x);
    });
  }
  static void compare(call& c, in a_, number by, target out_, function_2 f) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    c.need_types(to, {npu_type::boolean});
    c.need_dims(to, a.dims);
    const double with = c.number(by);
    c.compute([=] {
      values x = load(a);
      for (double& value : x) value = f(value, with);
      store(to, x);
    });
  }
  static double is_equal(double a, double b) { return a == b; }
  static double is_not_equal(double a, double b) { return a != b; }
  static double is_greater(double a, double b) { return a > b; }
  static double is_at_least(double a, double b) { return a >= b; }
  static double is_less(double a, double b) { return a < b; }
#define XTRAIN_FAKE_COMPARISON(id, f) \
  static void id(call& c, in a_, in b_, target out_) { \
    const tensor &a = c.in(a_), &b = c.in(b_), &to = c.out(out_); \
    compare(c, a, b, to, f); \
  }
  XTRAIN_FAKE_COMPARISON(equal, is_equal)
  XTRAIN_FAKE_COMPARISON(greater, is_greater)
  XTRAIN_FAKE_COMPARISON(at_least, is_at_least)
  XTRAIN_FAKE_COMPARISON(less, is_less)
#undef XTRAIN_FAKE_COMPARISON
  static void not_equal(call& c, in a_, number by, target out_) { compare(c, a_, by, out_, is_not_equal); }
  static void greater_than(call& c, in a_, number by, target out_) { compare(c, a_, by, out_, is_greater); }
  static void at_least_number(call& c, in a_, number by, target out_) { compare(c, a_, by, out_, is_at_least); }
  static void less_than(call& c, in a_, number by, target out_) { compare(c, a_, by, out_, is_less); }
  static void logical_and(call& c, in a_, in b_, target out_) {
    const tensor &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    compare(c, a, b, to, [](double x, double y) { return static_cast<double>(x != 0 && y != 0); });
  }
  static void logical_or(call& c, in a_, in b_, target out_) {
    const tensor &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    compare(c, a, b, to, [](double x, double y) { return static_cast<double>(x != 0 || y != 0); });
  }
  static void logical_not(call& c, in a_, target out_) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    c.need_types(to, {npu_type::boolean});
    c.need_dims(to, a.dims);
    c.compute([=] {
      values x = load(a);
      for (double& value : x) value = value == 0;
      store(to, x);
    });
  }
  static void inplace_masked_fill(call& c, in self_, in mask_, number value_) {
    const tensor &self = c.in_place(self_), &mask = c.in(mask_);
    c.need_types(self, {npu_type::fp32, npu_type::fp16, npu_type::bf16, npu_type::int8, npu_type::int32, npu_type::int64, npu_type::boolean});
    c.need_types(mask, {npu_type::boolean});
    c.need(c.broadcast(self.dims, mask.dims) == self.dims, "the mask cannot be broadcast to the target");
    const double value = c.number(value_);
    c.compute([=] {
      values x = load(self);
      const values holds = load(mask, self.dims);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (holds[i] != 0) x[i] = value;
      store(self, x);
    });
  }
  static void arange(call& c, number first_, number end_, number step_, target out_) {
    const tensor& to = c.out(out_);
    const double first = c.number(first_), end = c.number(end_), step = c.number(step_);
    c.need(step != 0 && (end - first) / step >= 0, "the step must lead from start to end");
    c.need_dims(to, {static_cast<std::int64_t>(std::ceil((end - first) / step))});
    c.compute([=] {
      values all(to.elements());
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = first + step * static_cast<double>(i);
      store(to, all);
    });
  }
};

}  // namespace xtrain::testing::detail
