// The answer in a generated text, and whether it is right.
#pragma once

#include <string>
#include <string_view>

namespace xtrain {

/// Takes the answer out of a generated text. Each does what a regular expression of lm-evaluation-harness does; without a match the result is
/// "[invalid]".
struct answer_filter {
  std::string name = "none";                                ///< results are 'metric,name'
  std::string (*extract)(std::string_view text) = nullptr;  ///< none: the whole text
};

namespace answer {

/// The number after the first "#### ".                                 `#### (\-?[0-9\.\,]+)`, the first match
[[nodiscard]] std::string after_hashes(std::string_view text);
/// The number after the first "The answer is ", before a character.    `The answer is (\-?[0-9\.\,]+).`, the first match
[[nodiscard]] std::string number_of_sentence(std::string_view text);
/// The last number.                                                    `(-?[$0-9.,]{2,})|(-?[0-9]+)`, the last match
[[nodiscard]] std::string last_number(std::string_view text);
/// The line after the first "the answer is ", without its last character.   `(?<=the answer is )(.*)(?=.)`, the first match
[[nodiscard]] std::string rest_of_sentence(std::string_view text);

/// A text as GSM8K's answers are compared: without commas and dollar signs, what comes before "#### ", and a dot at the end; lower case.
[[nodiscard]] std::string as_number(std::string_view text);

}  // namespace answer

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/answer_filter_impl.hpp>
#endif
