// Rows of experts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <xtrain/testing/fake_ascend_operators/operations.hpp>

namespace xtrain::testing::detail {

struct fake_experts : fake_operations {
  static constexpr std::int64_t most_slots = 16777215, most_choices = 512;
  static void check_slots(call& c, const tensor& slot, std::int64_t all, std::int64_t choices) {
    c.need_types(slot, {npu_type::int32});
    c.need_dims(slot, {all});
    c.need(all < most_slots && choices > 0 && choices <= most_choices, "there may be 512 choices of a row, and 16777214 in all");
  }
  static std::size_t slot_at(const values& slots, std::size_t i) {
    if (slots[i] < 0 || slots[i] >= static_cast<double>(slots.size())) throw fake_refusal{507015, "aclnnMoeToken...: a slot is out of range"};
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
      const values from = load(x), expert = load(choice);
      std::vector<std::size_t> order(expert.size());
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return expert[a] < expert[b]; });
      const auto width = static_cast<std::size_t>(x.dims[1]), choices = static_cast<std::size_t>(choice.dims[1]);
      values rows, slots(order.size());
      for (std::size_t s = 0; s < order.size(); ++s) {
        slots[order[s]] = static_cast<double>(s);
        for (std::size_t j = 0; j < width; ++j) rows.push_back(from[order[s] / choices * width + j]);
      }
      store(to, rows);
      store(slot, slots);
    });
  }
  static void combine_rows(const tensor& x, const tensor& slot, const tensor* weight, std::size_t choices, const tensor& to) {
    const values from = load(x), slots = load(slot), factor = weight == nullptr ? values(slots.size(), 1.0) : load(*weight);
    const auto width = static_cast<std::size_t>(x.dims[1]);
    values sums(to.elements());
    for (std::size_t i = 0; i < slots.size(); ++i)
      for (std::size_t j = 0; j < width; ++j) {
        double& sum = sums[i / choices * width + j];
        sum = fp32(fp32(sum) + fp32(factor[i]) * fp32(from[slot_at(slots, i) * width + j]));
      }
    store(to, sums);
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
      const values from = load(x), dy = load(d), slots = load(slot), factor = load(weight);
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
      store(dx, rows);
      store(dweight, dots);
    });
  }
};

}  // namespace xtrain::testing::detail
