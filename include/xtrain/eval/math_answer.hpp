// Equality of formulas in answers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace xtrain::answer {

/// The formula in an answer, as AGIEval's parse_math_answer: in the last \boxed{...}; else between dollar signs on the last line with two; else after the
/// last "="; else the last number. Of an equation, the right side. None: no formula.
[[nodiscard]] std::optional<std::string> formula_in(std::string_view text);

/// The formulas are equal after normalization of fractions, roots, spaces, units, degrees and percent signs (MATH's math_equivalence), as in
/// lm-evaluation-harness: a formula that cannot be normalized (a \frac without operands) is compared unchanged.
///                                               [Hendrycks et al. 2021; Zhong et al. 2023, "AGIEval"]
[[nodiscard]] bool is_same_formula(std::string_view answer, std::string_view target);

}  // namespace xtrain::answer

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/math_answer_impl.hpp>
#endif
