// Products, summed in fp32.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <xtrain/testing/fake_ascend_operators/operations.hpp>

namespace xtrain::testing::detail {

struct fake_products : fake_operations {
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
    const values x = load(a), y = load(b);
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
    c.compute([=] { store(to, products(a, b)); });
  }
  static void batch_matmul(call& c, in a_, in b_, target out_, std::int8_t cube) {
    const tensor &a = c.in(a_), &b = c.in(b_), &to = c.out(out_);
    check_product(c, a, b, to, cube, 3);
    c.need_dims(to, {a.dims[0], a.dims[1], b.dims[2]});
    c.need_dense(to);
    c.compute([=] { store(to, products(a, b)); });
  }
  /// beta · self + alpha · a · b: added in fp32 by some releases, else to a product that is rounded first.
  static void add_product(call& c, const tensor& self, const tensor& a, const tensor& b, double beta, double alpha, const tensor& to) {
    const bool adds_first = !c.is_first_chip() && ((c.version().major == 8 && c.version().minor == 5) || c.version() >= cann_version{9, 1, 0});
    const bool rounds_first = is_16_bits(a.type) && !adds_first;
    c.compute([=] {
      values all = products(a, b);
      const values before = load(self, to.dims);
      tensor rounded = to;
      for (std::size_t i = 0; i < all.size(); ++i) {
        double product = fp32(fp32(alpha) * fp32(all[i]));
        if (rounds_first && to.type == npu_type::bf16) product = bf16(product);
        if (rounds_first && to.type == npu_type::fp16) product = fp16(product);
        all[i] = beta == 0 ? product : static_cast<double>(fp32(fp32(beta) * fp32(before[i])) + fp32(product));
      }
      store(to, all);
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
      if (load(list)[0] != static_cast<double>(x.dims[0])) throw fake_refusal{507015, "aclnnGroupedMatmulAdd: the group must have all rows"};
      tensor transposed = x;
      std::swap(transposed.dims[0], transposed.dims[1]);
      std::swap(transposed.strides[0], transposed.strides[1]);
      values all = products(transposed, weight);
      const values before = load(y);
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = fp32(before[i]) + fp32(all[i]);
      store(y, all);
    });
  }
};

}  // namespace xtrain::testing::detail
