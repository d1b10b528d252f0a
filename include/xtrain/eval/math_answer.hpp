// Whether two answers to a mathematical question are the same formula.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace xtrain::answer {

/// The formula in an answer, as AGIEval's parse_math_answer finds it: in the last \boxed{...}; otherwise between dollar signs on the last line that
/// has two; otherwise what follows the last "="; otherwise the last number. Of an equation, its right side; none: there is no formula.
[[nodiscard]] std::optional<std::string> formula_in(std::string_view text);

/// Whether the formulas in both texts are equal when written alike: fractions, roots, spaces, units, degrees and percent signs, as
/// math_equivalence of the MATH benchmark writes them.                                               [Hendrycks et al. 2021; Zhong et al. 2023, "AGIEval"]
/// Decisions are those of lm-evaluation-harness, where a formula that cannot be written so (a \frac without operands) is compared as it is.
[[nodiscard]] bool is_same_formula(std::string_view answer, std::string_view target);

}  // namespace xtrain::answer

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/math_answer_impl.hpp>
#endif
