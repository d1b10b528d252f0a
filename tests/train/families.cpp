// Parity of the other families with transformers.
#include <doctest/doctest.h>

#include <xtrain/models/aquila.hpp>
#include <xtrain/models/bloom.hpp>
#include <xtrain/models/gemma.hpp>
#include <xtrain/models/gemma2.hpp>
#include <xtrain/models/internlm.hpp>
#include <xtrain/models/mistral.hpp>
#include <xtrain/models/phi3.hpp>
#include <xtrain/models/qwen2.hpp>
#include <xtrain/models/qwen3.hpp>
#include "parity.hpp"

using namespace parity;

TEST_CASE("llama with scaled rotary positions, and with biases, is transformers'") {
  check_all<llama>("llama3_scaled");
  check_all<llama>("llama_linear_scaled");
}
TEST_CASE("mistral is transformers'") { check_all<mistral>("mistral"); }
TEST_CASE("qwen2 is transformers'") { check_all<qwen2>("qwen2"); }
TEST_CASE("qwen3 is transformers'") { check_all<qwen3>("qwen3"); }
TEST_CASE("gemma is transformers'") { check_all<gemma>("gemma"); }
TEST_CASE("gemma2 is transformers'") { check_all<gemma2>("gemma2"); }
TEST_CASE("phi3 is transformers'") { check_all<phi3>("phi3"); }
TEST_CASE("bloom is transformers'") { check_all<bloom>("bloom"); }
