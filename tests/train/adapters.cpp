// Adapters from peft: logits with separate and merged adapters; prefix tuning.
#include <doctest/doctest.h>

#include <xtrain/models/bloom.hpp>
#include <xtrain/models/chatglm.hpp>
#include <xtrain/models/qwen2.hpp>

#include "parity.hpp"

using namespace parity;

TEST_CASE("adapters made by peft give peft's logits") {
  check_adapter<gpt2>("gpt2", "gpt2_lora");
  check_adapter<llama>("llama_grouped_untied", "llama_lora");
}

TEST_CASE("DoRA with ranks, scales and layers of its own, and another embedding, gives peft's logits") {
  check_adapter<qwen2>("qwen2", "qwen2_lora_rich");
}

TEST_CASE("an adapter of a module whose rows files hold in another order gives peft's logits") {
  check_adapter<bloom>("bloom", "bloom_lora");
}

TEST_CASE("prefixes made by peft give peft's logits") {
  check_prefix<llama>("llama_grouped_untied", "llama_prefix", "prompt_embeddings");
  check_prefix<bloom>("bloom", "bloom_prefix", "prompt_embeddings");
}

TEST_CASE("a prefix that ChatGLM's P-tuning keeps as a network gives the logits of its formulas") {
  check_prefix<chatglm>("chatglm2", "chatglm2_prefix");
}
