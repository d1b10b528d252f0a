// Definitions of dataset.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/spill.hpp>

namespace xtrain {

XTRAIN_INLINE void dataset::add(std::span<const token> tokens) {
  add(tokens, [](std::size_t) { return true; });
}

XTRAIN_INLINE void dataset::extend(std::span<const token> tokens) {
  for (const token t : tokens) {
    require_token(t);
    largest_ = std::max(largest_, t);
    tokens_.push_back(t | target_bit);
  }
  targets_ += tokens.size() - (extended_ || tokens.empty() ? 0 : 1);  // a sample's first token is never a target
  extended_ = extended_ || !tokens.empty();
}

XTRAIN_INLINE void dataset::end_sample() {
  if (!extended_) return;
  begins_.push_back(tokens_.size());
  extended_ = false;
}

XTRAIN_INLINE void dataset::finish() {
  end_sample();
  tokens_.finish();
  begins_.finish();
  require<data_error>(size() > 0 && tokens_.size() > 1, source_, ": must hold text to train on; it is empty");
  require<data_error>(targets_ > 0, source_, ": must hold labels to train on; every token belongs to a prompt");
}

XTRAIN_INLINE std::size_t dataset::longest() const {
  std::size_t most = 0;
  for (std::size_t s = 0; s < size(); ++s) most = std::max(most, length(s));
  return most;
}

XTRAIN_INLINE void dataset::require_token(token t) const {
  require<data_error>(t >= 0 && t < target_bit, source_, ": tokens must lie in [0, 2^30); given ", t);
}

XTRAIN_INLINE void require_tokens_below(const dataset& data, std::size_t vocabulary) {
  require<data_error>(data.largest_token() < 0 || static_cast<std::size_t>(data.largest_token()) < vocabulary, data.source(),
                      ": tokens must be below the model's vocabulary of ", vocabulary, "; token ", data.largest_token(),
                      " occurs. Does the tokenizer belong to this model?");
}

}  // namespace xtrain
