// Masked language modeling: choice and replacement of tokens.               [Devlin et al. 2019, section 3.1, "Task #1"]
#pragma once

#include <cstddef>
#include <cstdint>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/random.hpp>

namespace xtrain {

/// A chosen token is a target, replaced by the mask token, a random token, or nothing.
struct word_masking {
  token mask = -1;             ///< negative: none
  std::size_t vocab_size = 0;  ///< random tokens are below it
  double share = 0.15;         ///< probability of being chosen, independently
  double as_mask = 0.8;        ///< fraction replaced by the mask token
  double as_any = 0.1;         ///< fraction replaced by a random token; the rest stays
  bool whole_words = false;    ///< chooses entire words
};

namespace detail {

/// throws config_error if there is no mask token or a fraction is invalid
inline void require_masking(const word_masking& how) {
  require<config_error>(how.mask >= 0 && static_cast<std::size_t>(how.mask) < how.vocab_size,
                        "word_masking: the mask must be a token of the vocabulary of ", how.vocab_size, "; given ", how.mask);
  require<config_error>(how.share > 0.0 && how.share <= 1.0, "word_masking: share must be in (0, 1]; given ", how.share);
  require<config_error>(how.as_mask >= 0.0 && how.as_any >= 0.0 && how.as_mask + how.as_any <= 1.0,
                        "word_masking: as_mask and as_any must be shares, together at most 1; given ", how.as_mask, " and ", how.as_any);
}

/// A function of (seed, epoch, index in the dataset), independent of step and rank.
class masking_draw {
 public:
  masking_draw(const word_masking& how, std::uint64_t seed, std::size_t epoch)
      : how_(how), at_{seed, static_cast<std::uint32_t>(epoch), site_of_name("word_masking"), 0},
        chosen_below_(dropout_threshold(how.share)) {}

  /// For the token at that index, or the word that begins there.
  [[nodiscard]] bool chooses(std::size_t place) const { return how_.share >= 1.0 || random_quad(at_, place)[0] < chosen_below_; }
  [[nodiscard]] token replacement(std::size_t place, token was) const {
    const auto words = random_quad(at_, place);
    const double which = static_cast<double>(words[1]) * 0x1p-32;
    if (which < how_.as_mask) return how_.mask;
    if (which >= how_.as_mask + how_.as_any) return was;
    return static_cast<token>(std::uint64_t{words[2]} * how_.vocab_size >> 32);
  }

 private:
  word_masking how_;
  random_site at_;
  std::uint32_t chosen_below_;
};

}  // namespace detail

}  // namespace xtrain
