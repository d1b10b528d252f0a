// Adapters from peft for each family: logits with separate adapters, saved again, merged.
#include <doctest/doctest.h>

#include <xtrain/models/families.hpp>

#include "parity.hpp"

using namespace parity;

TEST_CASE("adapters of the families that transformers has give peft's logits") {
  check_beside<mistral>("mistral", "mistral_lora");
  check_beside<qwen3>("qwen3", "qwen3_lora");
  check_beside<gemma>("gemma", "gemma_lora");
  check_beside<gemma2>("gemma2", "gemma2_lora");
  check_beside<phi3>("phi3", "phi3_lora");
  check_beside<mixtral>("mixtral", "mixtral_lora");
}

TEST_CASE("adapters of the families whose formulas are published give peft's logits") {
  check_beside<aquila>("aquila", "aquila_lora");
  check_beside<baichuan>("baichuan_rotary", "baichuan_lora");
  check_beside<internlm>("internlm", "internlm_lora");
  check_beside<internlm2>("internlm2", "internlm2_lora");
  check_beside<chatglm1>("chatglm1", "chatglm1_lora");
  check_beside<chatglm>("chatglm2", "chatglm2_lora");
}
