// Rows of tables, and sums up to each row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <xtrain/testing/fake_ascend_operators/operations.hpp>

namespace xtrain::testing::detail {

struct fake_tables : fake_operations {
  static void embedding(call& c, in table_, in index_, target out_) {
    const tensor &table = c.in(table_), &index = c.in(index_), &to = c.out(out_);
    c.need_rank(table, 2);
    c.need_types(index, {npu_type::int32, npu_type::int64});
    c.need_types(to, {table.type});
    dims expected = index.dims;
    expected.push_back(table.dims[1]);
    c.need_dims(to, expected);
    c.compute([=] {
      const values from = load(table), rows = load(index);
      const auto width = static_cast<std::size_t>(table.dims[1]);
      values all;
      for (const double row : rows) {
        if (row < 0) throw fake_refusal{507015, "aclnnEmbedding: a negative index"};
        for (std::size_t j = 0; j < width; ++j)  // too large: garbage, and no error
          all.push_back(row < static_cast<double>(table.dims[0]) ? from[static_cast<std::size_t>(row) * width + j] : std::numeric_limits<double>::quiet_NaN());
      }
      store(to, all);
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
      const values from = load(d), at = load(index);
      const auto width = static_cast<std::size_t>(d.dims.back());
      std::vector<float> sum(to.elements(), 0.0f);
      for (std::size_t n = 0; n < at.size(); ++n) {
        const std::size_t i = in_order ? n : at.size() - 1 - n;
        if (at[i] < 0 || at[i] >= static_cast<double>(rows)) throw fake_refusal{507015, "aclnnEmbeddingDenseBackward: an index is out of range"};
        if (static_cast<std::uint64_t>(at[i]) == padding) continue;
        for (std::size_t j = 0; j < width; ++j) {
          float& total = sum[static_cast<std::size_t>(at[i]) * width + j];
          total += fp32(from[i * width + j]);
          if (d.type == npu_type::bf16) total = bf16(total);  // not widened first
          if (d.type == npu_type::fp16) total = fp16(total);
        }
      }
      store(to, values(sum.begin(), sum.end()));
    });
  }

  static void cumsum(call& c, in x_, std::int64_t dim_, int type, target out_) {
    const tensor &x = c.in(x_), &to = c.out(out_);
    c.need_number(x);
    c.need(type == static_cast<int>(to.type), concat("dtype ", type, " must be the result's: ", to.text()));
    c.need_dims(to, x.dims);
    const std::size_t dim = c.dim_of(x, dim_);
    c.compute([=] {
      values all = load(x);
      std::size_t inner = 1;
      for (std::size_t i = dim + 1; i < x.dims.size(); ++i) inner *= static_cast<std::size_t>(x.dims[i]);
      const auto count = static_cast<std::size_t>(x.dims[dim]);
      for (std::size_t i = 0; i < all.size(); ++i)
        if (i / inner % count != 0) all[i] = fp32(fp32(all[i - inner]) + fp32(all[i]));
      store(to, all);
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
      const values at = load(index);
      for (std::size_t b = 0; b < at.size(); ++b) {
        if (at[b] < 0 || at[b] + static_cast<double>(rows.dims[2]) > static_cast<double>(self.dims[2]))
          throw fake_refusal{507015, "aclnnInplaceScatterUpdate: an index is out of range"};
        tensor from = rows, to = self;
        from.dims[0] = to.dims[0] = 1;
        from.offset += static_cast<std::int64_t>(b) * rows.strides[0];
        to.offset += static_cast<std::int64_t>(b) * self.strides[0] + static_cast<std::int64_t>(at[b]) * self.strides[2];
        to.dims[2] = rows.dims[2];
        store(to, load(from));
      }
    });
  }
};

}  // namespace xtrain::testing::detail
