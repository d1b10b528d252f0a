// What the fake's operators have in common.
#pragma once

#include <cstdint>
#include <vector>

#include <xtrain/testing/fake_ascend_operators/call.hpp>

namespace xtrain::testing::detail {

/// Names of arguments, as in the table.
struct fake_operations {
  using call = fake_ascend_operators::call;
  using tensor = fake_ascend_operators::tensor;
  using in = npu_op::in;
  using target = npu_op::out;
  using number = npu_op::number;
  using ints = npu_op::ints;
  using text = npu_op::text;
  using dims = std::vector<std::int64_t>;
  using values = fake_values;
  using function_2 = double (*)(double, double);
  using function_1 = double (*)(double);

  static float fp32(double x) { return static_cast<float>(x); }
};

}  // namespace xtrain::testing::detail
