// A model of whichever family a folder holds.
#include <doctest/doctest.h>

#include <string>

#include <xtrain/io.hpp>
#include <xtrain/models/families.hpp>
#include "golden.hpp"
#include "scratch.hpp"

using namespace xtrain;

TEST_CASE("a folder says itself which family it holds") {
  const std::pair<const char*, const char*> folders[] = {{"gpt2", "gpt2"},         {"llama_tied", "llama"},    {"mistral", "mistral"},
                                                         {"qwen2", "qwen2"},       {"bloom", "bloom"},         {"baichuan2", "baichuan"},
                                                         {"internlm", "internlm"}, {"internlm2", "internlm2"}, {"aquila", "aquila"},
                                                         {"chatglm2", "chatglm"},  {"chatglm1", "chatglm1"},   {"mixtral", "mixtral"}};
  for (const auto& one : folders) {
    const std::string folder = one.first;
    CAPTURE(folder);
    std::string_view visited;
    load_model<defaults>(golden::folder(folder), [&](auto& model) { visited = std::remove_cvref_t<decltype(model)>::family::name; });
    CHECK(visited == one.second);
  }
}

TEST_CASE("a family that the program was not compiled with is named, with those that it was") {
  using few = family_list<gpt2_family, llama_family>;
  const auto load = [](const std::string& folder) { load_model<defaults, few>(golden::folder(folder), [](auto&) {}); };
  CHECK_THROWS_WITH_AS(load("bloom"), doctest::Contains("(gpt2, llama); it is 'bloom'"), config_error);
}
