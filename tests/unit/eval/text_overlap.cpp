// BLEU and ROUGE of characters, against nltk and rouge_chinese.
#include <doctest/doctest.h>

#include <string>

#include <xtrain/core/json.hpp>
#include <xtrain/eval/text_overlap.hpp>

#include "golden.hpp"

using namespace xtrain;

TEST_CASE("scores of texts are those that nltk and rouge_chinese give them") {
  const json cases = read_json(golden::folder("text_overlap") + "/expected.json");
  REQUIRE(cases.size() > 200);
  for (const json& one : cases) {
    const auto text = one.at("text").get<std::string>(), reference = one.at("reference").get<std::string>();
    CAPTURE(text);
    CAPTURE(reference);
    const rouge_scores rouge = character_rouge(text, reference);
    // one rounding in a sum, logarithm or exponential
    CHECK(character_bleu(text, reference) == doctest::Approx(one.at("bleu").get<double>()).epsilon(1e-14));
    CHECK(rouge.rouge_1 == one.at("rouge").at(0).get<double>());
    CHECK(rouge.rouge_2 == one.at("rouge").at(1).get<double>());
    CHECK(rouge.rouge_l == one.at("rouge").at(2).get<double>());
  }
}

TEST_CASE("bytes that are not UTF-8 are characters of their own") {
  CHECK(character_bleu("\xff\xfe\xfd\xfc", "\xff\xfe\xfd\xfc") == 1.0);
  CHECK(character_bleu("\xff\xff\xff\xff", "\xfe\xfe\xfe\xfe") == 0.0);
  CHECK(character_rouge("\xff", "a").rouge_1 == 0.0);
}
