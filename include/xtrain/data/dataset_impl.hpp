// Definitions of dataset.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/checksum.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/spill.hpp>

namespace xtrain {

XTRAIN_INLINE dataset::dataset(std::string source, std::shared_ptr<const sample_source> samples)
    : source_(std::move(source)), layout_(sequence_layout::stream), samples_(std::move(samples)) {
  begins_.push_back(0);
  finished_ = true;
  require<data_error>(samples_->size() > 0, source_, ": must hold samples to train on; it has none");
}

XTRAIN_INLINE void dataset::add(std::span<const token> tokens) {
  add(tokens, [](std::size_t) { return true; });
}

XTRAIN_INLINE dataset::addition::addition(dataset& to)
    : to_(to), tokens_(to.tokens_.size()), begins_(to.begins_.size()), labels_(to.labels_.size()), reference_log_probs_(to.reference_log_probs_.size()),
      token_weights_(to.token_weights_.size()), teacher_tokens_(to.teacher_tokens_.size()), teacher_log_probs_(to.teacher_log_probs_.size()),
      top_k_(to.top_k_), targets_(to.targets_), largest_(to.largest_) {}

XTRAIN_INLINE dataset::addition::~addition() {
  if (is_whole) return;
  to_.tokens_.cut(tokens_);
  to_.begins_.cut(begins_);
  to_.labels_.cut(labels_);
  to_.reference_log_probs_.cut(reference_log_probs_);
  to_.token_weights_.cut(token_weights_);
  to_.teacher_tokens_.cut(teacher_tokens_);
  to_.teacher_log_probs_.cut(teacher_log_probs_);
  to_.top_k_ = top_k_;
  to_.targets_ = targets_;
  to_.largest_ = largest_;
}

XTRAIN_INLINE void dataset::extend(std::span<const token> tokens) {
  require_unfinished("extend()");
  addition adding(*this);
  for (const token t : tokens) {
    require_token(t);
    largest_ = std::max(largest_, t);
    tokens_.push_back(t | target_bit);
  }
  adding.is_whole = true;
  targets_ += tokens.size() - (extended_ || tokens.empty() ? 0 : 1);  // a sample's first token is no target
  extended_ = extended_ || !tokens.empty();
}

XTRAIN_INLINE void dataset::end_sample() {
  if (!extended_) return;
  begins_.push_back(tokens_.size());
  extended_ = false;
}

XTRAIN_INLINE void dataset::finish() {
  require_own_tokens("finish()");
  end_sample();
  tokens_.finish();
  begins_.finish();
  labels_.finish();
  reference_log_probs_.finish();
  token_weights_.finish();
  teacher_tokens_.finish();
  teacher_log_probs_.finish();
  require<data_error>(size() > 0 && tokens_.size() > 1, source_, ": must hold text to train on; it is empty");
  require<data_error>(targets_ > 0, source_, ": must hold labels to train on; every token belongs to a prompt");
  require_values_of_all();
  if (top_k_ > 0) require_teacher_values(teacher_tokens(), teacher_log_probs(), top_k_, 0);
  finished_ = true;
}

XTRAIN_INLINE void dataset::append_values(std::size_t tokens, const sample_values& values) {
  if (values.label) labels_.push_back(*values.label);
  if (values.reference_log_prob) reference_log_probs_.push_back(*values.reference_log_prob);
  require<data_error>(values.token_weights.empty() || values.token_weights.size() == tokens, source_, ": a sample must have a weight for each of its ", tokens,
                      " tokens, or none; given ", values.token_weights.size());
  for (const float weight : values.token_weights) token_weights_.push_back(weight);
  if (values.teacher_tokens.empty() && values.teacher_log_probs.empty()) return;
  const std::size_t k = top_k_ > 0 || tokens == 0 ? top_k_ : values.teacher_tokens.size() / tokens;
  require<data_error>(k > 0 && values.teacher_tokens.size() == k * tokens && values.teacher_log_probs.size() == k * tokens, source_,
                      ": a sample must have k tokens of a teacher and their log-probabilities for each of its ", tokens,
                      " tokens, k the same for all samples; given ", values.teacher_tokens.size(), " and ", values.teacher_log_probs.size());
  top_k_ = k;
  for (const token t : values.teacher_tokens) {
    require_token(t);
    largest_ = std::max(largest_, t);
    teacher_tokens_.push_back(t);
  }
  for (const float log_prob : values.teacher_log_probs) teacher_log_probs_.push_back(log_prob);
}

XTRAIN_INLINE void dataset::require_values_of_all() const {
  const auto all_or_none = [&](std::size_t given, std::size_t all, const char* what) {
    require<data_error>(given == 0 || given == all, source_, ": every sample must have ", what, ", or none; given ", given, " for ", all);
  };
  all_or_none(labels_.size(), size(), "a label");
  all_or_none(reference_log_probs_.size(), size(), "a reference log-probability");
  all_or_none(token_weights_.size(), tokens(), "weights of its tokens");
  all_or_none(teacher_tokens_.size(), tokens() * top_k_, "a teacher's tokens");
}

XTRAIN_INLINE void dataset::require_teacher_values(std::span<const token> all_tokens, std::span<const float> all_log_probs, std::size_t k,
                                                   std::size_t seq_length) const {
  constexpr float most = 1e-3F;  // a teacher's rounding
  std::vector<token> sorted(k);
  for (std::size_t s = 0; s < size(); ++s) {
    const std::size_t length = this->length(s), first = begin(s);
    // nothing follows the last token; truncated samples may have less
    const bool is_stream = layout_ == sequence_layout::stream;
    const std::size_t inputs = (is_stream && first + length < tokens()) || length == 0 ? length : length - 1;
    const std::size_t used = is_stream || seq_length == 0 ? inputs : std::min(inputs, seq_length);
    std::size_t there = 0;
    for (std::size_t i = 0; i < length; ++i) {
      const auto ids = all_tokens.subspan((first + i) * k, k);
      const auto log_probs = all_log_probs.subspan((first + i) * k, k);
      const auto place = [&] { return concat(source_, ": sample ", s + 1, ": token ", i + 1, ": "); };
      std::copy(ids.begin(), ids.end(), sorted.begin());
      std::sort(sorted.begin(), sorted.end());
      const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
      require<data_error>(twice == sorted.end(), place(), "a teacher's tokens must be different; ", twice == sorted.end() ? 0 : *twice, " is there twice");
      const auto missing = static_cast<std::size_t>(std::count_if(log_probs.begin(), log_probs.end(), [](float value) { return std::isnan(value); }));
      require<data_error>(missing == 0 || missing == k, place(), "a teacher's log-probabilities must be numbers; ", missing, " of ", k, " are NaN");
      if (missing > 0) continue;
      require<data_error>(there == i, place(), "a teacher's log-probabilities must be there for all tokens before; those of token ", there + 1, " are NaN");
      ++there;
      const float largest = *std::max_element(log_probs.begin(), log_probs.end());
      require<data_error>(largest <= most && largest > -std::numeric_limits<float>::infinity(), place(),
                          "a teacher's log-probabilities must be at most 0, and not all -inf; the largest is ", largest);
    }
    require<data_error>(there >= used || (there == 0 && !is_stream), source_, ": sample ", s + 1,
                        ": a teacher's log-probabilities must be there for all ", used, " tokens that another one follows, or for none; they are for ", there);
  }
}

XTRAIN_INLINE std::string dataset::identity() const {
  if (samples_) {
    const std::string given = samples_->identity();
    return given.empty() ? concat(source_, ": ", size(), " samples of ", samples_->seq_length(), " tokens") : given;
  }
  std::vector<std::uint64_t> parts{group_size, static_cast<std::uint64_t>(layout_), static_cast<std::uint64_t>(when_too_long), targets_};
  const std::span<const token> all = tokens_.values();
  for (const std::uint64_t part : sampled_checksums({reinterpret_cast<const char*>(all.data()), all.size_bytes()}, sizeof(token))) parts.push_back(part);
  return concat(source_, ": ", size(), " samples, ", tokens(), " tokens, checksum ",
                checksum_text({reinterpret_cast<const char*>(parts.data()), parts.size() * sizeof(parts[0])}));
}

XTRAIN_INLINE void dataset::set_reference_log_probs(spilled_array<double> values, std::size_t seq_length) {
  require_own_tokens("set_reference_log_probs()");
  values.finish();
  require<data_error>(values.size() == size(), source_, ": a reference log-probability must be given for each of ", size(), " samples; given ", values.size());
  reference_log_probs_ = std::move(values);
  reference_seq_length_ = seq_length;
}

XTRAIN_INLINE void dataset::set_teacher_log_probs(spilled_array<token> tokens, spilled_array<float> log_probs, std::size_t k, std::size_t seq_length) {
  require_own_tokens("set_teacher_log_probs()");
  tokens.finish();
  log_probs.finish();
  require<data_error>(k > 0 && tokens.size() == k * this->tokens() && log_probs.size() == tokens.size(), source_, ": a teacher's ", k,
                      " tokens and log-probabilities must be given for each of ", this->tokens(), " tokens; given ", tokens.size(), " and ", log_probs.size());
  token largest = largest_;
  for (const token t : tokens.values()) {
    require_token(t);
    largest = std::max(largest, t);
  }
  require_teacher_values(tokens.values(), log_probs.values(), k, seq_length);
  largest_ = largest;
  teacher_tokens_ = std::move(tokens);
  teacher_log_probs_ = std::move(log_probs);
  top_k_ = k;
  teacher_seq_length_ = seq_length;
}

XTRAIN_INLINE std::uint64_t dataset::fingerprint() const {
  require_own_tokens("fingerprint()");
  std::vector<std::uint64_t> parts{size(), tokens(), group_size}, block;
  const auto add = [&](std::size_t count, auto&& value) {  // checksum of checksums, in bounded memory
    for (std::size_t first = 0; first < count; first += std::size_t{1} << 16) {
      block.clear();
      for (std::size_t i = first; i < std::min(count, first + (std::size_t{1} << 16)); ++i) block.push_back(value(i));
      parts.push_back(checksum({reinterpret_cast<const char*>(block.data()), block.size() * sizeof(block[0])}));
    }
  };
  add(size(), [&](std::size_t s) { return static_cast<std::uint64_t>(begin(s)); });
  add(tokens(), [&](std::size_t i) { return static_cast<std::uint64_t>(at(i)) << 1 | (is_target(i) ? 1U : 0U); });
  return checksum({reinterpret_cast<const char*>(parts.data()), parts.size() * sizeof(parts[0])});
}

XTRAIN_INLINE std::size_t dataset::longest() const {
  std::size_t most = 0;
  for (std::size_t s = 0; s < size(); ++s) most = std::max(most, length(s));
  return most;
}

XTRAIN_INLINE void dataset::refuse_sample_source(const char* who) const {
  fail<config_error>(source_, ": ", who, " needs a dataset that holds its tokens; this one reads samples from files in a given order");
}

XTRAIN_INLINE void dataset::require_token(token t) const {
  require<data_error>(t >= 0 && t < target_bit, source_, ": tokens must lie in [0, 2^30); given ", t);
}

XTRAIN_INLINE void require_tokens_below(const dataset& data, std::size_t vocabulary) {
  if (data.samples() != nullptr) {  // its tokens are checked when read
    require<config_error>(data.samples()->vocab_size() <= vocabulary, data.source(),
                          ": the vocab_size that tokens are checked against must be at most the model's ", vocabulary, "; given ",
                          data.samples()->vocab_size());
    return;
  }
  const auto is_outside = [&](token t) { return t >= 0 && static_cast<std::size_t>(t) >= vocabulary; };
  if (is_outside(data.largest_token())) {
    const std::span<const token> teacher = data.teacher_tokens();
    if (const auto found = std::find_if(teacher.begin(), teacher.end(), is_outside); found != teacher.end()) {
      const std::size_t at = static_cast<std::size_t>(found - teacher.begin()) / data.top_k();
      std::size_t sample = 0;
      while (sample + 1 < data.size() && data.begin(sample + 1) <= at) ++sample;
      fail<data_error>(data.source(), ": sample ", sample + 1, ": token ", at - data.begin(sample) + 1,
                       ": a teacher's tokens must be below the model's vocabulary of ", vocabulary, "; given ", *found);
    }
    fail<data_error>(data.source(), ": tokens must be below the model's vocabulary of ", vocabulary, "; token ", data.largest_token(),
                     " occurs. Does the tokenizer belong to this model?");
  }
  // padding, too, has k different tokens
  require<data_error>(data.top_k() <= vocabulary, data.source(), ": a teacher's tokens of each token must be at most the model's vocabulary of ", vocabulary,
                      "; given ", data.top_k());
}

}  // namespace xtrain
