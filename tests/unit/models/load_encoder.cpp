// An encoder of whichever kind a folder holds.
#include <doctest/doctest.h>

#include <string>

#include <xtrain/io.hpp>
#include <xtrain/models/encoder_families.hpp>
#include "golden.hpp"
#include "scratch.hpp"

using namespace xtrain;

TEST_CASE("a folder says itself which encoder it holds") {
  for (const auto& one : {std::pair{"bert_pretraining", "BertForPreTraining"}, {"bert_classification", "BertForSequenceClassification"}}) {
    std::string visited;
    load_encoder<defaults>(golden::folder(one.first),
                           [&](auto& model) { visited = std::remove_cvref_t<decltype(model)>::family::architecture; });
    CHECK(visited == one.second);
  }
}

TEST_CASE("an encoder without heads is none that can be made, and is named") {
  const scratch_folder folder;
  put_file(folder / "config.json", R"({"model_type": "bert", "architectures": ["BertModel"]})");
  CHECK_THROWS_WITH_AS(load_encoder<defaults>(folder.path(), [](auto&) {}), doctest::Contains("given 'BertModel'"), config_error);
  put_file(folder / "config.json", R"({"model_type": "bert", "architectures": "BertModel"})");
  CHECK_THROWS_WITH_AS(load_encoder<defaults>(folder.path(), [](auto&) {}), doctest::Contains("must be a list of strings"), config_error);
}
