// Fused attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <xtrain/testing/fake_ascend_operators/operations.hpp>

namespace xtrain::testing::detail {

struct fake_attention : fake_operations {
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
      const values given = mode == 2 ? values{} : load(hidden, {q.dims[0], q.dims[2], q.dims[1], k.dims[1]});
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
      const values x = load(of.q), y = load(of.k), z = load(of.v);
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
      store(to, results);
      store(largest, most);
      store(sum, total);
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
      const values x = load(of.q), y = load(of.k), z = load(of.v), from = load(d), out = load(o);
      const values top = load(largest), total = load(sum);
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
      store(dq, gq);
      store(dk, gk);
      store(dv, gv);
    });
  }
};

}  // namespace xtrain::testing::detail
