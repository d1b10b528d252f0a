// BLEU and ROUGE of characters, as Python's nltk and rouge_chinese.
//       [Papineni et al. 2002, "BLEU"; Chen & Cherry 2014, "A systematic comparison of smoothing techniques"; Lin 2004, "ROUGE"]
#pragma once

#include <string_view>

namespace xtrain {

/// BLEU-4 of characters, 0 to 1, with NIST smoothing (zero precisions become 1/2, 1/4, ... of an n-gram):
///   nltk.translate.bleu_score.sentence_bleu([list(reference)], list(text), smoothing_function=SmoothingFunction().method3)
/// A byte that is not UTF-8 is a character.
[[nodiscard]] double character_bleu(std::string_view text, std::string_view reference);

/// F-measures, 0 to 1.
struct rouge_scores {
  double rouge_1 = 0, rouge_2 = 0;  ///< of sets of characters, and of adjacent pairs
  double rouge_l = 0;               ///< of the longest common subsequence
};
/// rouge_chinese.Rouge().get_scores(" ".join(text), " ".join(reference)), of characters without whitespace; empty texts have 0 (rouge_chinese: an error).
[[nodiscard]] rouge_scores character_rouge(std::string_view text, std::string_view reference);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/eval/text_overlap_impl.hpp>
#endif
