// GPT-2 and LLaMA against PyTorch and transformers.
#include <doctest/doctest.h>

#include "parity.hpp"

using namespace parity;

TEST_CASE("logits, loss and every gradient of gpt2 are PyTorch's") { check_family<gpt2>("gpt2", {1, 7, 33}); }
TEST_CASE("logits, loss and every gradient of llama are PyTorch's, grouped and untied") {
  check_family<llama>("llama_grouped_untied", {1, 7, 33});
}
TEST_CASE("logits, loss and every gradient of llama are PyTorch's, tied") { check_family<llama>("llama_tied", {1, 7, 33}); }

TEST_CASE("fifty AdamW steps have PyTorch's losses") {
  for (const char* name : {"llama_grouped_untied", "llama_tied"}) {
    check_fifty_steps<llama>(name);
    check_fifty_steps_in_bf16<llama>(name);
  }
  check_fifty_steps<gpt2>("gpt2");
  check_fifty_steps_in_bf16<gpt2>("gpt2");
}

TEST_CASE("what is loaded and saved again is the same") {
  check_saved_again<gpt2>("gpt2");
  check_saved_again<llama>("llama_grouped_untied");
  check_saved_again<llama>("llama_tied");
}
