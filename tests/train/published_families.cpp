// Families without transformers classes against their published formulas (tests/golden).
#include <doctest/doctest.h>

#include <xtrain/models/aquila.hpp>
#include <xtrain/models/baichuan.hpp>
#include <xtrain/models/chatglm.hpp>
#include <xtrain/models/chatglm1.hpp>
#include <xtrain/models/internlm.hpp>
#include "parity.hpp"

using namespace parity;

TEST_CASE("aquila is as published") { check_all<aquila>("aquila"); }
TEST_CASE("internlm and internlm2 are as published") {
  check_all<internlm>("internlm");
  check_all<internlm2>("internlm2");
}
TEST_CASE("baichuan with rotary positions and with linear biases is as published") {
  check_all<baichuan>("baichuan_rotary");
  check_all<baichuan>("baichuan_alibi");
}
TEST_CASE("baichuan2, whose head is normalized, is as published") {
  check_all<baichuan>("baichuan2");
  check_fifty_steps_in_bf16<baichuan>("baichuan2");
}
TEST_CASE("chatglm2 and chatglm3 are as published") {
  check_all<chatglm>("chatglm2");
  check_all<chatglm>("chatglm3");
}
TEST_CASE("chatglm-6b, whose context is seen in both directions, is as published") {
  check_family<chatglm1>("chatglm1", {7, 33});
  check_fifty_steps<chatglm1>("chatglm1");
  check_saved_again<chatglm1>("chatglm1");
}
