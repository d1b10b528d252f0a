// Definitions of sentence_dataset.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/sentence_dataset.hpp>
#include <xtrain/data/spill.hpp>
#include <xtrain/data/word_masking.hpp>

namespace xtrain {

XTRAIN_INLINE void sentence_row::add(token id, bool is_word, bool goes_on) {
  tokens.push_back(id);
  maskable.push_back(is_word);
  continues.push_back(goes_on);
}

XTRAIN_INLINE void sentence_dataset::add(const sentence_row& row) {
  require<data_error>(!row.tokens.empty(), source_, ": a sequence must have tokens; sequence ", size() + 1, " is empty");
  for (const token id : row.tokens)  // before anything is stored
    require<data_error>(id >= 0 && id < continues_bit, source_, ": tokens must lie in [0, 2^29); given ", id);
  for (const std::vector<bool>* flags : {&row.maskable, &row.continues})
    require<data_error>(flags->empty() || flags->size() == row.tokens.size(), source_,
                         ": maskable and continues must be empty or have a value for each of the ", row.tokens.size(), " tokens; given ", flags->size());
  const auto is_set = [](const std::vector<bool>& flags, std::size_t i) { return !flags.empty() && flags[i]; };
  for (std::size_t i = 0; i < row.tokens.size(); ++i) {
    const token id = row.tokens[i];
    largest_ = std::max(largest_, id);
    tokens_.push_back(id | (is_set(row.maskable, i) ? maskable_bit : 0) | (is_set(row.continues, i) ? continues_bit : 0));
  }
  begins_.push_back(tokens_.size());
  seconds_.push_back(static_cast<std::uint32_t>(row.second == 0 ? row.tokens.size() : row.second));
  labels_.push_back(row.label);
  longest_ = std::max(longest_, row.tokens.size());
  has_labels_ = has_labels_ || row.label >= 0;
}

XTRAIN_INLINE void sentence_dataset::finish() {
  tokens_.finish();
  begins_.finish();
  seconds_.finish();
  labels_.finish();
  require<data_error>(size() > 0, source_, ": must hold sequences to train on; it is empty");
  require<data_error>(has_labels_ || masking, source_, ": sequences must have labels or tokens to mask; they have neither");
  if (masking) detail::require_masking(*masking);
}

XTRAIN_INLINE void require_tokens_below(const sentence_dataset& data, std::size_t vocabulary) {
  require<data_error>(static_cast<std::size_t>(data.largest_token() + 1) <= vocabulary, data.source(),
                      ": tokens must be below the model's vocabulary of ", vocabulary, "; token ", data.largest_token(),
                      " occurs. Does the tokenizer belong to this model?");
  require<data_error>(!data.masking || data.masking->vocab_size <= vocabulary, data.source(),
                      ": masked tokens are replaced from a vocabulary of ", data.masking ? data.masking->vocab_size : 0,
                      ", which must not be larger than the model's ", vocabulary);
}

}  // namespace xtrain
