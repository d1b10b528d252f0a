// What each of the fake's operators checks and computes, and the functions of its table. Included by fake_ascend_operators.hpp.
#pragma once

#include <xtrain/testing/fake_ascend_operators.hpp>

namespace xtrain::testing {

/// A function per operator, with its name in the table.
struct fake_ascend_operators::operations {
  using in = npu_op::in;
  using target = npu_op::out;
  using number = npu_op::number;
  using ints = npu_op::ints;
  using text = npu_op::text;
  using dims = std::vector<std::int64_t>;
  using values = detail::fake_values;

  static float fp32(double x) { return static_cast<float>(x); }

  // products
  static void check_product(call& c, const tensor& a, const tensor& b, const tensor& to, std::int8_t cube, std::size_t rank) {
    c.need_rank(a, rank);
    c.need_rank(b, rank);
    for (const tensor* of : {&a, &b, &to}) c.need_number(*of);
    c.need(a.dims.back() == b.dims[rank - 2], concat("inner dims differ: ", a.text(), " and ", b.text()));
    c.need(rank == 2 || a.dims[0] == b.dims[0], concat("batches differ: ", a.text(), " and ", b.text()));
    c.need(cube >= 0 && cube <= 4, "cubeMathType must be 0 to 4");
    const bool is_mixed = a.type != b.type;
    c.need(!is_mixed || !(is_16_bits(a.type) && is_16_bits(b.type)) || !c.is_first_chip(), "types of factors differ");
    if (c.is_first_chip()) c.need(!(a.type == npu_type::fp32 && (cube == 0 || cube == 3)), "cubeMathType 0 and 3 do not take fp32 on this chip");
    if (is_16_bits(a.type) && is_16_bits(b.type) && to.type == npu_type::fp32)
      c.need(!c.is_first_chip() && c.version() >= cann_version{9, 1, 0}, "an fp32 result of 16-bit factors needs CANN 9.1");
  }
  /// Products summed in fp32.
  static values products(const tensor& a, const tensor& b) {
    const std::size_t rank = a.dims.size();
    const auto m = static_cast<std::size_t>(a.dims[rank - 2]), k = static_cast<std::size_t>(a.dims[rank - 1]), n = static_cast<std::size_t>(b.dims[rank - 1]);
    const std::size_t batches = rank == 3 ? static_cast<std::size_t>(a.dims[0]) : 1;
    const values x = detail::load(a), y = detail::load(b);
    std::vector<float> xf(x.size()), yf(y.size()), sum(n);
    std::transform(x.begin(), x.end(), xf.begin(), fp32);
    std::transform(y.begin(), y.end(), yf.begin(), fp32);
    values all;
    all.reserve(batches * m * n);
    for (std::size_t batch = 0; batch < batches; ++batch)
      for (std::size_t i = 0; i < m; ++i) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (std::size_t p = 0; p < k; ++p) {
          const float factor = xf[(batch * m + i) * k + p];
          const float* const row = yf.data() + (batch * k + p) * n;
          for (std::size_t j = 0; j < n; ++j) sum[j] += factor * row[j];
        }
        all.insert(all.end(), sum.begin(), sum.end());
      }
    return all;
  }
  static void mm(call& c, in a_, in b_, target out_, std::int8_t cube) {
    const tensor &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    check_product(c, a, b, to, cube, 2);
    c.need_dims(to, {a.dims[0], b.dims[1]});
    c.need_dense(to);
    c.compute([=] { detail::store(to, products(a, b)); });
  }
  static void batch_matmul(call& c, in a_, in b_, target out_, std::int8_t cube) {
    const tensor &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    check_product(c, a, b, to, cube, 3);
    c.need_dims(to, {a.dims[0], a.dims[1], b.dims[2]});
    c.need_dense(to);
    c.compute([=] { detail::store(to, products(a, b)); });
  }
  /// beta · self + alpha · a · b: added in fp32 by some releases, else to a product that is rounded first.
  static void add_product(call& c, const tensor& self, const tensor& a, const tensor& b, double beta, double alpha, const tensor& to) {
    const bool adds_first = !c.is_first_chip() && ((c.version().major == 8 && c.version().minor == 5) || c.version() >= cann_version{9, 1, 0});
    const bool rounds_first = is_16_bits(a.type) && !adds_first;
    c.compute([=] {
      values all = products(a, b);
      const values before = detail::load(self, to.dims);
      tensor rounded = to;
      for (std::size_t i = 0; i < all.size(); ++i) {
        double product = fp32(fp32(alpha) * fp32(all[i]));
        if (rounds_first && to.type == npu_type::bf16) product = bf16(product);
        if (rounds_first && to.type == npu_type::fp16) product = fp16(product);
        all[i] = beta == 0 ? product : static_cast<double>(fp32(fp32(beta) * fp32(before[i])) + fp32(product));
      }
      detail::store(to, all);
    });
  }
  static void addmm(call& c, in self_, in a_, in b_, number beta, number alpha, target out_, std::int8_t cube) {
    const tensor &self = c.in(self_), &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    check_product(c, a, b, to, cube, 2);
    c.need_number(self);
    c.need_dims(to, {a.dims[0], b.dims[1]});
    c.need(c.broadcast(self.dims, to.dims) == to.dims, "self cannot be broadcast to the result");
    c.need(cube != 4 || self.dims == to.dims, "cubeMathType 4 takes no broadcast self in this release");
    c.need_dense(to);
    add_product(c, self, a, b, c.number(beta), c.number(alpha), to);
  }
  static void inplace_addmm(call& c, in self_, in a_, in b_, number beta, number alpha, std::int8_t cube) {
    const tensor &self = c.in_place(self_), &a = c.in(a_), &b = c.in(b_);
    check_product(c, a, b, self, cube, 2);
    c.need_dims(self, {a.dims[0], b.dims[1]});
    c.check_aliases(self);
    add_product(c, self, a, b, c.number(beta), c.number(alpha), self);
  }
  static void grouped_matmul_add(call& c, in x_, in weight_, in list_, target y_, bool transpose_x, bool transpose_weight, std::int64_t group) {
    c.need_second_chip();
    const tensor &x = c.in(x_), &weight = c.in(weight_), &list = c.in(list_), &y = c.in_place(y_);
    c.need(transpose_x && !transpose_weight && group == 2, "only a transposed x, a weight that is not, and groupType 2 are supported");
    c.need_types(x, {npu_type::fp16, npu_type::bf16});
    c.need_types(weight, {x.type});
    c.need_types(list, {npu_type::int64});
    c.need_types(y, {npu_type::fp32});
    c.need_rank(x, 2);
    c.need_rank(weight, 2);
    c.need_dense(y);
    c.need_dims(list, {1}, npu_operator_status::tiling);
    c.need(x.dims[0] == weight.dims[0], npu_operator_status::tiling, "rows differ");
    c.need_dims(y, {x.dims[1], weight.dims[1]}, npu_operator_status::tiling);
    c.compute([=] {
      if (detail::load(list)[0] != static_cast<double>(x.dims[0])) throw detail::fake_refusal{507015, "aclnnGroupedMatmulAdd: the group must have all rows"};
      tensor transposed = x;
      std::swap(transposed.dims[0], transposed.dims[1]);
      std::swap(transposed.strides[0], transposed.strides[1]);
      values all = products(transposed, weight);
      const values before = detail::load(y);
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = fp32(before[i]) + fp32(all[i]);
      detail::store(y, all);
    });
  }

  // reductions
  /// Calls f(row of the reduced elements, in order) for each result.
  template <class F>
  static values reduced(const tensor& x, const std::set<std::size_t>& over, F&& f) {
    const values all = detail::load(x);
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
  static std::set<std::size_t> over(call& c, const tensor& x, const detail::fake_ints& list) {
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
      detail::store(to, reduced(x, which, [&](const values& row) {
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
      detail::store(to, reduced(x, which, [&](const values& row) { return *at(row); }));
      detail::store(index, reduced(x, which, [&](const values& row) { return static_cast<double>(at(row) - row.begin()); }));
    });
  }
  static void log_sum_exp(call& c, in x_, ints dims_, bool keeps, target out_) {
    const tensor &x = c.in(x_), &to = c.out(out_);
    c.need_number(x);
    c.need_number(to);
    const auto which = over(c, x, c.integers(dims_));
    check_reduced(c, x, which, keeps, to);
    c.compute([=] {
      detail::store(to, reduced(x, which, [&](const values& row) {
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
      values all = detail::load(x);
      const auto row = static_cast<std::size_t>(x.dims.back());
      for (std::size_t first = 0; first < all.size(); first += row) {
        const double largest = *std::max_element(all.begin() + static_cast<std::ptrdiff_t>(first), all.begin() + static_cast<std::ptrdiff_t>(first + row));
        double sum = 0;
        for (std::size_t i = first; i < first + row; ++i) sum += all[i] = std::exp(all[i] - largest);
        for (std::size_t i = first; i < first + row; ++i) all[i] /= sum;
      }
      detail::store(to, all);
    });
  }

  // elementwise
  using function_2 = double (*)(double, double);
  using function_1 = double (*)(double);
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
      values x = detail::load(a, to.dims), y = detail::load(b, to.dims);
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = rounded(type, x[i] + rounded(type, alpha * y[i]));
      }
      detail::store(to, x);
    });
  }
  static void apply(call& c, const tensor& a, const tensor& b, const tensor& to, bool in_place, function_2 f) {
    check_scaled(c, a, b, to, in_place);
    const npu_type type = c.promoted(a.type, b.type);
    c.compute([=] {
      values x = detail::load(a, to.dims);
      const values y = detail::load(b, to.dims);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = rounded(type, f(x[i], y[i]));
      detail::store(to, x);
    });
  }
  static void apply(call& c, const tensor& a, const tensor& to, function_1 f) {
    c.need_number_or_double(a);
    c.need_convertible(a.type, to);
    c.need_dims(to, a.dims);
    c.compute([=] {
      values x = detail::load(a);
      for (double& value : x) value = rounded(a.type, f(value));
      detail::store(to, x);
    });
  }
  static void apply(call& c, const tensor& a, const tensor& to, double by, function_2 f) {
    c.need_number_or_double(a);
    c.need_dims(to, a.dims);
    c.need_convertible(a.type, to);
    const double number = a.type == npu_type::fp64 ? by : static_cast<double>(fp32(by));
    c.compute([=] {
      values x = detail::load(a);
      for (double& value : x) value = rounded(a.type, f(value, number));
      detail::store(to, x);
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
      values x = detail::load(self, to.dims);
      const values y = detail::load(a, to.dims), z = detail::load(b, to.dims);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = rounded(type, x[i] + rounded(type, value * rounded(type, f(y[i], z[i]))));
      detail::store(to, x);
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

  // types, copies, masks
  static double converted(double x, npu_type to) {
    if (to == npu_type::boolean) return x != 0 ? 1 : 0;
    return call::is_float(to) ? x : std::trunc(x);
  }
  static void convert(const tensor& from, const tensor& to) {
    values x = detail::load(from, to.dims);
    for (double& value : x) value = converted(value, to.type);
    detail::store(to, x);
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
    c.compute([=] { detail::store(self, values(self.elements(), converted(value, self.type))); });
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
      const values holds = detail::load(mask, to.dims), y = detail::load(b, to.dims);
      values x = detail::load(a, to.dims);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (holds[i] == 0) x[i] = y[i];
      detail::store(to, x);
    });
  }
  static void clamp(call& c, in a_, number low_, number high_, target out_) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    c.need_dims(to, a.dims);
    const double low = c.number(low_), high = c.number(high_);
    c.compute([=] {
      values x = detail::load(a);
      for (double& value : x) value = std::fmin(std::fmax(value, low), high);
      detail::store(to, x);
    });
  }
  static void compare(call& c, const tensor& a, const tensor& b, const tensor& to, function_2 f) {
    c.need_types(to, {npu_type::boolean});
    c.need(!(c.is_first_chip() && a.type == npu_type::int64), "comparisons of int64 are wrong on this chip");
    c.need_dims(to, c.broadcast(a.dims, b.dims));
    c.compute([=] {
      values x = detail::load(a, to.dims);
      const values y = detail::load(b, to.dims);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = f(x[i], y[i]);
      detail::store(to, x);
    });
  }
  static void compare(call& c, in a_, number by, target out_, function_2 f) {
    const tensor &a = c.in(a_), &to = c.out(out_);
    c.need_types(to, {npu_type::boolean});
    c.need_dims(to, a.dims);
    const double with = c.number(by);
    c.compute([=] {
      values x = detail::load(a);
      for (double& value : x) value = f(value, with);
      detail::store(to, x);
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
      values x = detail::load(a);
      for (double& value : x) value = value == 0;
      detail::store(to, x);
    });
  }
  static void inplace_masked_fill(call& c, in self_, in mask_, number value_) {
    const tensor &self = c.in_place(self_), &mask = c.in(mask_);
    c.need_types(self, {npu_type::fp32, npu_type::fp16, npu_type::bf16, npu_type::int8, npu_type::int32, npu_type::int64, npu_type::boolean});
    c.need_types(mask, {npu_type::boolean});
    c.need(c.broadcast(self.dims, mask.dims) == self.dims, "the mask cannot be broadcast to the target");
    const double value = c.number(value_);
    c.compute([=] {
      values x = detail::load(self);
      const values holds = detail::load(mask, self.dims);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (holds[i] != 0) x[i] = value;
      detail::store(self, x);
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
      detail::store(to, all);
    });
  }

  // rows of tables
  static void embedding(call& c, in table_, in index_, target out_) {
    const tensor &table = c.in(table_), &index = c.in(index_), &to = c.out(out_);
    c.need_rank(table, 2);
    c.need_types(index, {npu_type::int32, npu_type::int64});
    c.need_types(to, {table.type});
    dims expected = index.dims;
    expected.push_back(table.dims[1]);
    c.need_dims(to, expected);
    c.compute([=] {
      const values from = detail::load(table), rows = detail::load(index);
      const auto width = static_cast<std::size_t>(table.dims[1]);
      values all;
      for (const double row : rows) {
        if (row < 0) throw detail::fake_refusal{507015, "aclnnEmbedding: a negative index"};
        for (std::size_t j = 0; j < width; ++j)  // too large: garbage, and no error
          all.push_back(row < static_cast<double>(table.dims[0]) ? from[static_cast<std::size_t>(row) * width + j] : std::numeric_limits<double>::quiet_NaN());
      }
      detail::store(to, all);
    });
  }
  static void embedding_backward(call& c, in d_, in index_, std::uint64_t rows, std::uint64_t padding, bool scales, target out_) {
    const tensor &d = c.in(d_), &index = c.in(index_), &to = c.out(out_);
    c.need_number(d);
    c.need_types(index, {npu_type::int32, npu_type::int64});
    if (c.version() < cann_version{9, 0, 0}) c.need_types(to, {d.type});
    dims expected = index.dims;
    expected.push_back(d.dims.back());
    c.need_dims(d, expected);
    c.need_dims(to, {static_cast<std::int64_t>(rows), d.dims.back()});
    c.need(!scales, "this fake does not scale by frequency");
    c.compute([=, in_order = c.is_deterministic()] {
      const values from = detail::load(d), at = detail::load(index);
      const auto width = static_cast<std::size_t>(d.dims.back());
      std::vector<float> sum(to.elements(), 0.0f);
      for (std::size_t n = 0; n < at.size(); ++n) {
        const std::size_t i = in_order ? n : at.size() - 1 - n;
        if (at[i] < 0 || at[i] >= static_cast<double>(rows)) throw detail::fake_refusal{507015, "aclnnEmbeddingDenseBackward: an index is out of range"};
        if (static_cast<std::uint64_t>(at[i]) == padding) continue;
        for (std::size_t j = 0; j < width; ++j) {
          float& total = sum[static_cast<std::size_t>(at[i]) * width + j];
          total += fp32(from[i * width + j]);
          if (d.type == npu_type::bf16) total = bf16(total);  // not widened first
          if (d.type == npu_type::fp16) total = fp16(total);
        }
      }
      detail::store(to, values(sum.begin(), sum.end()));
    });
  }

  static void cumsum(call& c, in x_, std::int64_t dim_, int type, target out_) {
    const tensor &x = c.in(x_), &to = c.out(out_);
    c.need_number(x);
    c.need(type == static_cast<int>(to.type), concat("dtype ", type, " must be the result's: ", to.text()));
    c.need_dims(to, x.dims);
    const std::size_t dim = c.dim_of(x, dim_);
    c.compute([=] {
      values all = detail::load(x);
      std::size_t inner = 1;
      for (std::size_t i = dim + 1; i < x.dims.size(); ++i) inner *= static_cast<std::size_t>(x.dims[i]);
      const auto count = static_cast<std::size_t>(x.dims[dim]);
      for (std::size_t i = 0; i < all.size(); ++i)
        if (i / inner % count != 0) all[i] = fp32(fp32(all[i - inner]) + fp32(all[i]));
      detail::store(to, all);
    });
  }
  /// Rows of each first index of the target, from its index on.
  static void inplace_scatter_update(call& c, in self_, in index_, in rows_, std::int64_t axis) {
    const tensor &self = c.in_place(self_), &index = c.in(index_), &rows = c.in(rows_);
    c.need_types(self, {npu_type::fp32, npu_type::fp16, npu_type::bf16, npu_type::int8, npu_type::int32});
    c.need_types(index, {npu_type::int32, npu_type::int64});
    c.need_types(rows, {self.type});
    c.need_rank(self, 4);
    c.need(c.dim_of(self, axis) == 2, "this fake takes the axis -2");
    c.need_dims(index, {self.dims[0]});
    c.need_dims(rows, {self.dims[0], self.dims[1], rows.dims.size() == 4 ? rows.dims[2] : 0, self.dims[3]});
    c.need(rows.dims[2] <= self.dims[2], "there are more rows than the target has");
    c.check_aliases(self);
    c.compute([=] {
      const values at = detail::load(index);
      for (std::size_t b = 0; b < at.size(); ++b) {
        if (at[b] < 0 || at[b] + static_cast<double>(rows.dims[2]) > static_cast<double>(self.dims[2]))
          throw detail::fake_refusal{507015, "aclnnInplaceScatterUpdate: an index is out of range"};
        tensor from = rows, to = self;
        from.dims[0] = to.dims[0] = 1;
        from.offset += static_cast<std::int64_t>(b) * rows.strides[0];
        to.offset += static_cast<std::int64_t>(b) * self.strides[0] + static_cast<std::int64_t>(at[b]) * self.strides[2];
        to.dims[2] = rows.dims[2];
        detail::store(to, detail::load(from));
      }
    });
  }

  // experts
  static constexpr std::int64_t most_slots = 16777215, most_choices = 512;
  static void check_slots(call& c, const tensor& slot, std::int64_t all, std::int64_t choices) {
    c.need_types(slot, {npu_type::int32});
    c.need_dims(slot, {all});
    c.need(all < most_slots && choices > 0 && choices <= most_choices, "there may be 512 choices of a row, and 16777214 in all");
  }
  static std::size_t slot_at(const values& slots, std::size_t i) {
    if (slots[i] < 0 || slots[i] >= static_cast<double>(slots.size())) throw detail::fake_refusal{507015, "aclnnMoeToken...: a slot is out of range"};
    return static_cast<std::size_t>(slots[i]);
  }
  static void moe_permute(call& c, in x_, in choice_, std::int64_t kept, bool is_padded, target to_, target slot_) {
    c.need_second_chip();
    const tensor &x = c.in(x_), &choice = c.in(choice_), &to = c.out(to_), &slot = c.out(slot_);
    c.need_number(x);
    c.need_rank(x, 2);
    c.need_types(choice, {npu_type::int32, npu_type::int64});
    c.need_rank(choice, 2);
    c.need(!is_padded && kept == 0, "this fake keeps all rows, without padding");
    const std::int64_t all = x.dims[0] * choice.dims[1];
    c.need_dims(choice, {x.dims[0], choice.dims[1]});
    check_slots(c, slot, all, choice.dims[1]);
    c.need_types(to, {x.type});
    c.need_dims(to, {all, x.dims[1]});
    for (const tensor* of : {&to, &slot}) c.need_dense(*of);
    c.compute([=] {
      const values from = detail::load(x), expert = detail::load(choice);
      std::vector<std::size_t> order(expert.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return expert[a] < expert[b]; });
      const auto width = static_cast<std::size_t>(x.dims[1]), choices = static_cast<std::size_t>(choice.dims[1]);
      values rows, slots(order.size());
      for (std::size_t s = 0; s < order.size(); ++s) {
        slots[order[s]] = static_cast<double>(s);
        for (std::size_t j = 0; j < width; ++j) rows.push_back(from[order[s] / choices * width + j]);
      }
      detail::store(to, rows);
      detail::store(slot, slots);
    });
  }
  static void combine_rows(const tensor& x, const tensor& slot, const tensor* weight, std::size_t choices, const tensor& to) {
    const values from = detail::load(x), slots = detail::load(slot), factor = weight == nullptr ? values(slots.size(), 1.0) : detail::load(*weight);
    const auto width = static_cast<std::size_t>(x.dims[1]);
    values sums(to.elements());
    for (std::size_t i = 0; i < slots.size(); ++i)
      for (std::size_t j = 0; j < width; ++j) {
        double& sum = sums[i / choices * width + j];
        sum = fp32(fp32(sum) + fp32(factor[i]) * fp32(from[slot_at(slots, i) * width + j]));
      }
    detail::store(to, sums);
  }
  static void moe_permute_grad(call& c, in x_, in slot_, std::int64_t choices, bool is_padded, target to_) {
    c.need_second_chip();
    const tensor &x = c.in(x_), &slot = c.in(slot_), &to = c.out(to_);
    c.need_number(x);
    c.need_rank(x, 2);
    c.need(!is_padded, "this fake has no padding");
    check_slots(c, slot, x.dims[0], choices);
    c.need_types(to, {x.type});
    c.need_dims(to, {x.dims[0] / choices, x.dims[1]});
    c.need_dense(to);
    c.compute([=] { combine_rows(x, slot, nullptr, static_cast<std::size_t>(choices), to); });
  }
  static void check_weights(call& c, const tensor& x, const tensor& slot, const tensor& weight) {
    c.need_number(x);
    c.need_rank(x, 2);
    c.need_rank(weight, 2);
    c.need(weight.type == x.type || weight.type == npu_type::fp32, "probs must be of the tokens' type or fp32");
    check_slots(c, slot, x.dims[0], weight.dims[1]);
    c.need(weight.dims[0] * weight.dims[1] == x.dims[0], "probs must have a number for each row");
  }
  static void moe_unpermute(call& c, in x_, in slot_, in weight_, bool is_padded, ints, target to_) {
    c.need_second_chip();
    const tensor &x = c.in(x_), &slot = c.in(slot_), &weight = c.in(weight_), &to = c.out(to_);
    check_weights(c, x, slot, weight);
    c.need(!is_padded, "this fake has no padding");
    c.need_types(to, {x.type});
    c.need_dims(to, {weight.dims[0], x.dims[1]});
    c.need_dense(to);
    c.compute([=] { combine_rows(x, slot, &weight, static_cast<std::size_t>(weight.dims[1]), to); });
  }
  static void moe_unpermute_grad(call& c, in x_, in d_, in slot_, in weight_, bool is_padded, ints, target dx_, target dweight_) {
    c.need_second_chip();
    const tensor &x = c.in(x_), &d = c.in(d_), &slot = c.in(slot_), &weight = c.in(weight_), &dx = c.out(dx_), &dweight = c.out(dweight_);
    check_weights(c, x, slot, weight);
    c.need(!is_padded, "this fake has no padding");
    c.need_types(d, {x.type});
    c.need_dims(d, {weight.dims[0], x.dims[1]});
    c.need_types(dx, {x.type});
    c.need_dims(dx, x.dims);
    c.need_types(dweight, {weight.type});
    c.need_dims(dweight, weight.dims);
    for (const tensor* of : {&dx, &dweight}) c.need_dense(*of);
    c.compute([=] {
      const values from = detail::load(x), dy = detail::load(d), slots = detail::load(slot), factor = detail::load(weight);
      const auto width = static_cast<std::size_t>(x.dims[1]), choices = static_cast<std::size_t>(weight.dims[1]);
      values rows(from.size()), dots;
      for (std::size_t i = 0; i < slots.size(); ++i) {
        float dot = 0;
        for (std::size_t j = 0; j < width; ++j) {
          const float change = fp32(dy[i / choices * width + j]);
          dot += change * fp32(from[slot_at(slots, i) * width + j]);
          rows[slot_at(slots, i) * width + j] = fp32(factor[i]) * change;
        }
        dots.push_back(dot);
      }
      detail::store(dx, rows);
      detail::store(dweight, dots);
    });
  }

  // fused
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
      values all = detail::load(x), roots;
      const values scale = detail::load(weight);
      for (std::size_t first = 0; first < all.size(); first += scale.size()) {
        float sum = 0;
        for (std::size_t i = 0; i < scale.size(); ++i) sum += fp32(all[first + i]) * fp32(all[first + i]);
        const float root = 1.0f / std::sqrt(sum / static_cast<float>(scale.size()) + fp32(epsilon));
        roots.push_back(root);
        for (std::size_t i = 0; i < scale.size(); ++i) all[first + i] = fp32(all[first + i]) * root * fp32(scale[i]);
      }
      detail::store(y, all);
      detail::store(rstd, roots);
    });
  }
  static void layer_norm(call& c, in x_, ints shape_, in weight_, in bias_, double epsilon, target y_, target mean_, target rstd_) {
    const tensor &x = c.in(x_), &weight = c.in(weight_), &bias = c.in(bias_), &y = c.out(y_), &mean = c.out(mean_), &rstd = c.out(rstd_);
    c.need_number(x);
    c.need(c.integers(shape_) == detail::fake_ints{x.dims.back()}, "this fake normalizes the last dim");
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
      values all = detail::load(x), means, roots;
      const values scale = detail::load(weight), shift = detail::load(bias);
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
      detail::store(y, all);
      detail::store(mean, means);
      detail::store(rstd, roots);
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
      const values all = detail::load(x);
      const auto f = static_cast<std::size_t>(y.dims.back());
      values results;
      for (std::size_t row = 0; row < all.size(); row += 2 * f)
        for (std::size_t i = 0; i < f; ++i) results.push_back(all[row + i] / (1 + std::exp(-all[row + i])) * all[row + f + i]);
      detail::store(y, results);
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
    c.need(c.integers(shape_) == detail::fake_ints{x.dims.back()}, "this fake normalizes the last dim");
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
    const values dy = detail::load(d), from = detail::load(x), root = detail::load(rstd), scale = detail::load(weight);
    const values middle = mean != nullptr ? detail::load(*mean) : values(root.size(), 0.0);
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
    detail::store(dx, result);
    if (dweight != nullptr) detail::store(*dweight, columns);
    if (dbias != nullptr) detail::store(*dbias, sums);
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
      const values dy = detail::load(d), from = detail::load(x);
      const auto f = static_cast<std::size_t>(d.dims.back());
      values all(from.size());
      for (std::size_t i = 0; i < dy.size(); ++i) {
        const std::size_t gate = i / f * 2 * f + i % f, up = gate + f;
        const double sigmoid = 1 / (1 + std::exp(-from[gate]));
        all[gate] = dy[i] * from[up] * sigmoid * (1 + from[gate] * (1 - sigmoid));
        all[up] = dy[i] * from[gate] * sigmoid;
      }
      detail::store(to, all);
    });
  }

  /// Fused attention in the layout BSND, with a mask.
  struct attention {
    tensor q, k, v, hidden;
    double scale = 1;
    std::int64_t mode = 1;
    [[nodiscard]] std::size_t b() const { return static_cast<std::size_t>(q.dims[0]); }
    [[nodiscard]] std::size_t rows() const { return static_cast<std::size_t>(q.dims[1]); }
    [[nodiscard]] std::size_t heads() const { return static_cast<std::size_t>(q.dims[2]); }
    [[nodiscard]] std::size_t d() const { return static_cast<std::size_t>(q.dims[3]); }
    [[nodiscard]] std::size_t columns() const { return static_cast<std::size_t>(k.dims[1]); }
    [[nodiscard]] std::size_t key_heads() const { return static_cast<std::size_t>(k.dims[2]); }
    /// Place of an element in dense values.
    [[nodiscard]] std::size_t at(std::size_t sequence, std::size_t i, std::size_t head) const { return ((sequence * rows() + i) * heads() + head) * d(); }
    [[nodiscard]] std::size_t key_at(std::size_t sequence, std::size_t j, std::size_t head) const {
      return ((sequence * columns() + j) * key_heads() + head / (heads() / key_heads())) * d();
    }
    /// A mask of all scores, from one that is broadcast or compressed.
    [[nodiscard]] std::vector<bool> mask() const {
      const std::size_t all = b() * heads() * rows() * columns();
      std::vector<bool> bits(all);
      const values given = mode == 2 ? values{} : detail::load(hidden, {q.dims[0], q.dims[2], q.dims[1], k.dims[1]});
      for (std::size_t i = 0; i < all; ++i) bits[i] = mode == 2 ? i % columns() > i / columns() % rows() : given[i] != 0;
      return bits;
    }
    [[nodiscard]] float rounded(float x) const { return q.type == npu_type::bf16 ? float{bf16(x)} : q.type == npu_type::fp16 ? float{fp16(x)} : x; }
  };
  static attention check_attention(call& c, const tensor& q, const tensor& k, const tensor& v, const tensor* hidden, double scale, double keeps,
                                   std::int64_t heads, text layout, std::int64_t mode) {
    c.need(layout != nullptr, npu_operator_status::null_argument, "inputLayout is null");
    c.need(std::string_view(layout) == "BSND", "this fake takes the layout BSND");
    c.need(keeps > 0 && keeps <= 1, "keepProb must be in (0, 1]");
    for (const tensor* of : {&q, &k, &v}) {
      c.need_number(*of);
      c.need_types(*of, {q.type});
      c.need_rank(*of, 4);
      c.need(of->dims[0] == q.dims[0] && of->dims[3] == q.dims[3], npu_operator_status::tiling, concat("shapes differ: ", q.text(), ", ", of->text()));
    }
    c.need_dims(v, k.dims, npu_operator_status::tiling);
    c.need(q.dims[2] == heads, npu_operator_status::tiling, "headNum must be the queries' heads");
    c.need(q.dims[2] <= 256 && q.dims[2] % k.dims[2] == 0, npu_operator_status::tiling, "heads must be at most 256 and a multiple of the keys' heads");
    c.need(q.dims[3] <= 768, npu_operator_status::tiling, "heads have at most 768 elements");
    c.need(mode >= 0 && mode <= 8, "sparseMode must be 0 to 8");
    c.need(hidden != nullptr, "this fake takes attention with a mask");
    c.need_types(*hidden, {npu_type::boolean, npu_type::uint8});
    const std::int64_t s = q.dims[1], other = k.dims[1];
    if (mode == 2) {
      c.need_dims(*hidden, {2048, 2048}, npu_operator_status::tiling);
    } else {
      c.need(mode == 1, "this fake takes sparseMode 1 and 2");
      const bool is_full = hidden->dims == dims{s, other} || hidden->dims == dims{1, 1, s, other} || hidden->dims == dims{q.dims[0], 1, s, other} ||
                           hidden->dims == dims{q.dims[0], q.dims[2], s, other};
      c.need(is_full, npu_operator_status::tiling, concat("the mask must be of all scores: ", hidden->text()));
    }
    return {q, k, v, *hidden, scale, mode};
  }
  static void flash_attention(call& c, in q_, in k_, in v_, in shift_, in drop_, in padding_, in mask_, ints prefix_, ints, ints, double scale, double keeps,
                              std::int64_t, std::int64_t, std::int64_t heads, text layout, std::int64_t precise, std::int64_t mode, std::int64_t,
                              target max_, target sum_, target, target out_) {
    c.need_second_chip();
    const tensor &q = c.in(q_), &k = c.in(k_), &v = c.in(v_);
    c.need(shift_ == nullptr && drop_ == nullptr && padding_ == nullptr && prefix_ == nullptr, "this fake takes a mask and no other option");
    c.need(precise >= 0 && precise <= 2, "innerPrecise must be 0 to 2");
    const attention of = check_attention(c, q, k, v, c.optional(mask_), scale, keeps, heads, layout, mode);
    const tensor &largest = c.out(max_), &sum = c.out(sum_), &to = c.out(out_);
    c.need_types(to, {q.type});
    c.need_dims(to, q.dims, npu_operator_status::tiling);
    for (const tensor* statistic : {&largest, &sum}) {
      c.need_types(*statistic, {npu_type::fp32});
      c.need_dims(*statistic, {q.dims[0], q.dims[2], q.dims[1], 8}, npu_operator_status::tiling);
    }
    c.compute([=] {
      const values x = detail::load(of.q), y = detail::load(of.k), z = detail::load(of.v);
      const std::vector<bool> hidden = of.mask();
      values results(x.size()), most, total;
      std::vector<float> score(of.columns());
      for (std::size_t b = 0; b < of.b(); ++b)
        for (std::size_t h = 0; h < of.heads(); ++h)
          for (std::size_t i = 0; i < of.rows(); ++i) {
            float top = -std::numeric_limits<float>::infinity(), denominator = 0;
            const std::size_t row = ((b * of.heads() + h) * of.rows() + i) * of.columns();
            for (std::size_t j = 0; j < of.columns(); ++j) {
              float dot = 0;
              for (std::size_t e = 0; e < of.d(); ++e) dot += fp32(x[of.at(b, i, h) + e]) * fp32(y[of.key_at(b, j, h) + e]);
              score[j] = hidden[row + j] ? -std::numeric_limits<float>::infinity() : fp32(of.scale) * dot;
              top = std::max(top, score[j]);
            }
            for (float& one : score) denominator += one = std::exp(one - top);
            for (std::size_t j = 0; j < of.columns(); ++j)
              for (std::size_t e = 0; e < of.d(); ++e) {
                double& o = results[of.at(b, i, h) + e];
                o = fp32(o) + of.rounded(score[j]) * fp32(z[of.key_at(b, j, h) + e]);
              }
            for (std::size_t e = 0; e < of.d(); ++e) results[of.at(b, i, h) + e] /= denominator;
            most.insert(most.end(), 8, top);
            total.insert(total.end(), 8, denominator);
          }
      detail::store(to, results);
      detail::store(largest, most);
      detail::store(sum, total);
    });
  }
  static void flash_attention_grad(call& c, in q_, in k_, in v_, in d_, in shift_, in drop_, in padding_, in mask_, in max_, in sum_, in probabilities_,
                                   in o_, ints prefix_, ints, ints, double scale, double keeps, std::int64_t, std::int64_t, std::int64_t heads, text layout,
                                   std::int64_t precise, std::int64_t mode, std::int64_t, target dq_, target dk_, target dv_, target) {
    c.need_second_chip();
    const tensor &q = c.in(q_), &k = c.in(k_), &v = c.in(v_), &d = c.in(d_);
    c.need(shift_ == nullptr && drop_ == nullptr && padding_ == nullptr && prefix_ == nullptr && probabilities_ == nullptr,
           "this fake takes a mask and no other option");
    c.need(precise >= 0 && precise <= 2, "innerPrecise must be 0 to 2");
    const attention of = check_attention(c, q, k, v, c.optional(mask_), scale, keeps, heads, layout, mode);
    const tensor &largest = c.in(max_), &sum = c.in(sum_), &o = c.in(o_), &dq = c.out(dq_), &dk = c.out(dk_), &dv = c.out(dv_);
    for (const tensor* statistic : {&largest, &sum}) {
      c.need_types(*statistic, {npu_type::fp32});
      c.need_dims(*statistic, {q.dims[0], q.dims[2], q.dims[1], 8}, npu_operator_status::tiling);
    }
    for (const tensor* like : {&d, &o, &dq}) {
      c.need_types(*like, {q.type});
      c.need_dims(*like, q.dims, npu_operator_status::tiling);
    }
    for (const tensor* like : {&dk, &dv}) {
      c.need_types(*like, {q.type});
      c.need_dims(*like, k.dims, npu_operator_status::tiling);
    }
    c.compute([=] {
      const values x = detail::load(of.q), y = detail::load(of.k), z = detail::load(of.v), from = detail::load(d), out = detail::load(o);
      const values top = detail::load(largest), total = detail::load(sum);
      const std::vector<bool> hidden = of.mask();
      values gq(x.size()), gk(y.size()), gv(z.size());
      const auto add = [](double& to, float by) { to = fp32(to) + by; };
      for (std::size_t b = 0; b < of.b(); ++b)
        for (std::size_t h = 0; h < of.heads(); ++h)
          for (std::size_t i = 0; i < of.rows(); ++i) {
            const std::size_t line = (b * of.heads() + h) * of.rows() + i, at = of.at(b, i, h);
            float mean = 0;
            for (std::size_t e = 0; e < of.d(); ++e) mean += fp32(from[at + e]) * fp32(out[at + e]);
            for (std::size_t j = 0; j < of.columns(); ++j) {
              if (hidden[line * of.columns() + j]) continue;
              const std::size_t key = of.key_at(b, j, h);
              float dot = 0, dp = 0;
              for (std::size_t e = 0; e < of.d(); ++e) {
                dot += fp32(x[at + e]) * fp32(y[key + e]);
                dp += fp32(from[at + e]) * fp32(z[key + e]);
              }
              const float p = std::exp(fp32(of.scale) * dot - fp32(top[8 * line])) / fp32(total[8 * line]);
              const float ds = of.rounded(p * (dp - mean)) * fp32(of.scale), of_value = of.rounded(p);
              for (std::size_t e = 0; e < of.d(); ++e) {
                add(gq[at + e], ds * fp32(y[key + e]));
                add(gk[key + e], ds * fp32(x[at + e]));
                add(gv[key + e], of_value * fp32(from[at + e]));
              }
            }
          }
      detail::store(dq, gq);
      detail::store(dk, gk);
      detail::store(dv, gv);
    });
  }
};

inline int fake_ascend_operators::first_phase(std::size_t index, const std::function<void(call&)>& check, std::uint64_t* bytes, aclOpExecutor** out) {
  const std::lock_guard lock(mutex_);
  const std::string name(npu_op::names[index]);
  if (bytes == nullptr || out == nullptr) return say(npu_operator_status::null_argument, concat(name, ": workspaceSize or executor is null"));
  if (failing_call_ != 0 && --failing_call_ == 0) return say(failing_status_, concat(name, ": injected"));
  auto making = std::make_unique<executor>();
  making->index = index;
  making->name = name;
  try {
    call one(*this, *making);
    check(one);
  } catch (const detail::fake_refusal& refusal) {
    return say(refusal.status, refusal.why);
  }
  ++calls_;
  // any size that is a multiple of 32, sometimes none
  making->workspace = calls_ % 3 == 0 ? 0 : calls_ * 2654435761U % settings_.most_workspace / 32 * 32;
  *bytes = making->workspace;
  executor* const made = making.get();
  executors_[made] = std::move(making);
  *out = reinterpret_cast<aclOpExecutor*>(made);
  return npu_operator_status::success;
}

inline int fake_ascend_operators::second_phase(std::size_t index, void* workspace, std::uint64_t bytes, aclOpExecutor* of, void* stream) {
  std::unique_lock lock(mutex_);
  const std::string name(npu_op::names[index]);
  if (of == nullptr) return say(npu_operator_status::null_executor, concat(name, ": the executor is null"));
  const auto found = executors_.find(of);
  const auto violate_and_fail = [&](const std::string& what) {
    violate(concat(name, ": ", what));
    return say(npu_operator_status::internal, concat(name, ": ", what));
  };
  if (found == executors_.end()) return violate_and_fail("an executor ran twice, or was destroyed");
  executor& run = *found->second;
  if (run.index != index) return violate_and_fail(concat("the executor is of ", run.name));
  if (run.runs++ > 0 && run.copies) return violate_and_fail("an operator that copies ran twice");
  if (bytes < run.workspace) return violate_and_fail(concat("the workspace must have ", run.workspace, " bytes; given ", bytes));
  if (run.workspace != 0 && workspace == nullptr) return violate_and_fail("the workspace is null");
  if (reinterpret_cast<std::uintptr_t>(workspace) % 32 != 0) return violate_and_fail("the workspace is not aligned");
  const auto* const first = static_cast<const std::byte*>(workspace);
  std::vector<std::pair<const void*, std::size_t>> ranges;
  for (std::size_t i = 0; i < run.operands.size(); ++i) {
    const tensor& operand = run.operands[i];
    const auto live = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& one) { return one.second.get() == run.handles[i]; });
    if (live == tensors_.end()) return violate_and_fail("a tensor was destroyed between the phases");
    if (operand.elements() == 0) continue;
    if (operand.data == nullptr) return violate_and_fail("a tensor has no address");
    const std::byte *const begin = operand.first(), *const end = begin + operand.extent() * operand.size();
    if (run.workspace != 0 && begin < first + run.workspace && first < end) return violate_and_fail("the workspace shares memory with an operand");
    ranges.emplace_back(begin, static_cast<std::size_t>(end - begin));
  }
  if (run.workspace != 0) ranges.emplace_back(workspace, run.workspace);
  ++launches_;
  ++launches_by_name_[name];
  const std::uint64_t size = run.workspace;
  std::function<void()> compute = [poisoned = workspace, size, f = run.compute] {
    if (size != 0) std::memset(poisoned, 0xCB, size);
    f();
    if (size != 0) std::memset(poisoned, 0xCB, size);
  };
  if (!run.is_repeatable) executors_.erase(found);
  lock.unlock();
  if (enqueue) return enqueue(stream, {name, std::move(ranges), std::move(compute)});
  try {
    compute();
  } catch (const detail::fake_refusal& refusal) {
    return say(refusal.status, refusal.why);
  }
  return npu_operator_status::success;
}

/// Functions that make and destroy arguments.
struct fake_ascend_objects {
  static fake_ascend_operators& fake() { return *fake_ascend_operators::self(); }
  static aclTensor* create_tensor(const std::int64_t* dims, std::uint64_t rank, int type, const std::int64_t* strides, std::int64_t offset, int format,
                                  const std::int64_t* storage, std::uint64_t storage_rank, void* data) {
    const std::lock_guard lock(fake().mutex_);
    auto made = std::make_unique<detail::fake_tensor>();
    made->type = static_cast<npu_type>(type);
    made->dims.assign(dims, dims + rank);
    std::int64_t stride = 1;
    made->strides.assign(rank, 1);
    for (std::size_t i = rank; i-- > 0; stride *= made->dims[i]) made->strides[i] = stride;
    if (strides != nullptr) made->strides.assign(strides, strides + rank);
    made->offset = offset;
    made->storage = 1;
    for (std::uint64_t i = 0; i < storage_rank; ++i) made->storage *= storage[i];
    made->data = static_cast<std::byte*>(data);
    const auto refuse = [&](const std::string& why) {
      fake().message_ = concat("aclCreateTensor: ", why, ": ", made->text());
      return nullptr;
    };
    if (name_of(made->type) == "an unknown type") return refuse("unknown type");
    if (format != 2) return refuse("the format must be ND");
    if (rank > npu_max_rank) return refuse("more than 8 dims");
    if (offset < 0) return refuse("a negative offset");
    for (std::size_t i = 0; i < rank; ++i)
      if (made->strides[i] < 0 || made->dims[i] < 0) return refuse("a negative dim or stride");
    if (made->elements() != 0 && static_cast<std::int64_t>(made->extent()) + offset > made->storage) return refuse("the view is outside its storage");
    if (reinterpret_cast<std::uintptr_t>(data) % npu_tensor_alignment != 0) return refuse("the address is not a multiple of 32");
    const void* const handle = made.get();
    fake().tensors_[handle] = std::move(made);
    return reinterpret_cast<aclTensor*>(const_cast<void*>(handle));
  }
  template <class All>
  static int destroy(All& all, const void* handle, const char* what) {
    const std::lock_guard lock(fake().mutex_);
    if (all.erase(handle) == 1) return 0;
    fake().violate(concat(what, " was destroyed twice, or never made"));
    return npu_operator_status::invalid_argument;
  }
  static int destroy_tensor(const aclTensor* handle) { return destroy(fake().tensors_, handle, "a tensor"); }
  static int destroy_scalar(const aclScalar* handle) { return destroy(fake().scalars_, handle, "a scalar"); }
  static int destroy_ints(const aclIntArray* handle) { return destroy(fake().ints_, handle, "a list of integers"); }
  static int destroy_bools(const aclBoolArray* handle) { return destroy(fake().bools_, handle, "a list of flags"); }
  template <class Object, class All, class Value>
  static Object* keep(All& all, Value value) {
    const std::lock_guard lock(fake().mutex_);
    auto made = std::make_unique<Value>(std::move(value));
    const void* const handle = made.get();
    all[handle] = std::move(made);
    return reinterpret_cast<Object*>(const_cast<void*>(handle));
  }
  static aclScalar* create_scalar(void* value, int type) {
    detail::fake_tensor one{.type = static_cast<npu_type>(type), .data = static_cast<std::byte*>(value)};
    return keep<aclScalar>(fake().scalars_, detail::fake_scalar{detail::load(one)[0], one.type});
  }
  static aclIntArray* create_ints(const std::int64_t* from, std::uint64_t count) {
    return keep<aclIntArray>(fake().ints_, detail::fake_ints(from, from + count));
  }
  static aclBoolArray* create_bools(const bool* from, std::uint64_t count) {
    return keep<aclBoolArray>(fake().bools_, std::vector<bool>(from, from + count));
  }
  static int set_repeatable(aclOpExecutor* of) {
    const std::lock_guard lock(fake().mutex_);
    const auto found = fake().executors_.find(of);
    if (found == fake().executors_.end()) return npu_operator_status::null_executor;
    found->second->is_repeatable = true;
    return 0;
  }
  static int destroy_executor(aclOpExecutor* of) {
    const std::lock_guard lock(fake().mutex_);
    const auto found = fake().executors_.find(of);
    if (found == fake().executors_.end() || !found->second->is_repeatable) {
      fake().violate("an executor was destroyed that is not repeatable");
      return npu_operator_status::null_executor;
    }
    fake().executors_.erase(found);
    return 0;
  }
  static const char* recent_error() {
    const std::lock_guard lock(fake().mutex_);
    fake().told_ = std::exchange(fake().message_, {});
    return fake().told_.empty() ? nullptr : fake().told_.c_str();
  }
};

namespace detail {

template <std::size_t Index, auto F>
struct fake_phases;
template <std::size_t Index, class... Argument, void (*F)(fake_ascend_operators::call&, Argument...)>
struct fake_phases<Index, F> {
  static int size(Argument... argument, std::uint64_t* bytes, aclOpExecutor** out) {
    return fake_ascend_operators::self()->first_phase(
        Index, [&](fake_ascend_operators::call& one) { F(one, argument...); }, bytes, out);
  }
  static int run(void* workspace, std::uint64_t bytes, aclOpExecutor* of, void* stream) {
    return fake_ascend_operators::self()->second_phase(Index, workspace, bytes, of, stream);
  }
  template <class Operator>
  static void put(npu_operators& table, const Operator&) {
    const typename Operator::size_function function = &size;  // the same arguments as in the table
    table.entries[Index] = {reinterpret_cast<void*>(function), &run, "fake"};
  }
};

}  // namespace detail

inline npu_operators fake_ascend_operators::make_table(const fake_ascend_operators_config& settings) {
  npu_operators table;
#define XTRAIN_FAKE_OPERATOR(id, name, ...) \
  detail::fake_phases<static_cast<std::size_t>(npu_op::place::id), &operations::id>::put(table, npu_op::id);
  XTRAIN_NPU_OPERATORS(XTRAIN_FAKE_OPERATOR)
#undef XTRAIN_FAKE_OPERATOR
  for (std::size_t i = 0; i < npu_op::count; ++i)
    if (std::find(settings.missing.begin(), settings.missing.end(), npu_op::names[i]) != settings.missing.end()) table.entries[i] = {};
  using all = fake_ascend_objects;
  table.objects = {&all::create_tensor, &all::destroy_tensor, &all::create_scalar, &all::destroy_scalar, &all::create_ints,     &all::destroy_ints,
                   &all::create_bools,  &all::destroy_bools,  &all::set_repeatable, &all::destroy_executor, &all::recent_error};
  return table;
}
inline fake_ascend_operators::fake_ascend_operators(fake_ascend_operators_config settings)
    : settings_(std::move(settings)), table_(make_table(settings_)) {
  self() = this;
}

}  // namespace xtrain::testing
