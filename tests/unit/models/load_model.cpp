#include <doctest/doctest.h>

#include <string>

#include <xtrain/io.hpp>
#include <xtrain/models/families.hpp>
#include "golden.hpp"
#include "parity.hpp"
#include "scratch.hpp"

using namespace xtrain;

TEST_CASE("a folder says itself which family it holds") {
  const std::pair<const char*, const char*> folders[] = {{"gpt2", "gpt2"},         {"llama_tied", "llama"},    {"mistral", "mistral"},
                                                         {"qwen2", "qwen2"},       {"bloom", "bloom"},         {"baichuan2", "baichuan"},
                                                         {"internlm", "internlm"}, {"internlm2", "internlm2"}, {"aquila", "aquila"},
                                                         {"chatglm2", "chatglm"},  {"chatglm1", "chatglm1"},   {"mixtral", "mixtral"},
                                                         {"qwen3", "qwen3"},       {"gemma", "gemma"},         {"phi3", "phi3"},
                                                         {"gemma2", "gemma2"}};
  for (const auto& one : folders) {
    const std::string folder = one.first;
    CAPTURE(folder);
    CHECK(std::string_view(load_model<defaults>(golden::folder(folder)).family_info().name) == one.second);
  }
}

TEST_CASE("a model whose layers are chosen at run time has the logits, loss and every gradient of its family") {
  for (const char* name :
       {"gpt2",  "llama_tied",      "llama_grouped_untied", "llama3_scaled", "mistral",  "mixtral",   "qwen2",  "qwen3",    "gemma",    "gemma2",  "phi3",
        "bloom", "baichuan_rotary", "baichuan_alibi",       "baichuan2",     "internlm", "internlm2", "aquila", "chatglm1", "chatglm2", "chatglm3"}) {
    CAPTURE(std::string(name));
    parity::check_family<any_decoder>(name, {7, 33});
  }
}

TEST_CASE("a family that the program was not compiled with is named, with those that it was") {
  using few = family_list<gpt2_family, llama_family>;
  const auto load = [](const std::string& folder) { (void)load_model<defaults, few>(golden::folder(folder)); };
  CHECK_THROWS_WITH_AS(load("bloom"), doctest::Contains("(gpt2, llama); it is 'bloom'"), config_error);
}
