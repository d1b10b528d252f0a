// The answer in a generated text, and its check.
#pragma once

#include <string>
#include <string_view>

namespace xtrain {

/// Extracts an answer, as a regular expression of lm-evaluation-harness does; no match: "[invalid]".
struct answer_filter {
  std::string name = "none";                                ///< results: 'metric,name'
  std::string (*extract)(std::string_view text) = nullptr;  ///< null: the entire text
};

namespace answer {

/// Number after the first "#### ".                                 `#### (\-?[0-9\.\,]+)`, first match
[[nodiscard]] std::string after_hashes(std::string_view text);
/// Number after the first "The answer is ", before a character.    `The answer is (\-?[0-9\.\,]+).`, first match
[[nodiscard]] std::string number_of_sentence(std::string_view text);
/// Last number.                                                    `(-?[$0-9.,]{2,})|(-?[0-9]+)`, last match
[[nodiscard]] std::string last_number(std::string_view text);
/// Line after the first "the answer is ", without its last character.   `(?<=the answer is )(.*)(?=.)`, first match
[[nodiscard]] std::string rest_of_sentence(std::string_view text);

/// For comparing GSM8K's answers: lower case, without commas, dollar signs, everything before "#### ", and a final dot.
[[nodiscard]] std::string as_number(std::string_view text);

}  // namespace answer

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/answer_filter_impl.hpp>
#endif
