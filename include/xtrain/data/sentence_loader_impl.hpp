// Definitions of sentence_loader.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/data/sentence_dataset.hpp>
#include <xtrain/data/sentence_loader.hpp>
#include <xtrain/data/word_masking.hpp>

namespace xtrain {

XTRAIN_INLINE sentence_loader::sentence_loader(const sentence_dataset& from, const loader_config& settings)
    : data_(&from), data_life_((from.require_unmoved(), from.lifetime())), rows_(from.size()), config_(settings) {
  require<config_error>(settings.micro_batch_size > 0 && settings.gradient_accumulation_steps > 0 && settings.seq_length > 0 &&
                            settings.pad_to_multiple_of > 0,
                        "sentence_loader: micro_batch_size, gradient_accumulation_steps, seq_length and multiple must be positive; given ",
                        settings.micro_batch_size, ", ", settings.gradient_accumulation_steps, ", ", settings.seq_length, ", ",
                        settings.pad_to_multiple_of);
  for (const std::size_t size : settings.micro_batch_sizes)  // a pipeline gives sizes even if equal
    require<config_error>(size == settings.micro_batch_size, "sentence_loader: micro-batches must have equal numbers of sequences, ",
                          settings.micro_batch_size, "; given one of ", size);
  require<config_error>(!settings.rampup, "sentence_loader: rampup_batch_size must be left out: it is for samples of a whole run (gpt_dataset)");
  require<config_error>(settings.rank < settings.ranks, "sentence_loader: rank must be below the ", settings.ranks, " ranks; given ",
                        settings.rank);
  require<data_error>(from.longest() <= settings.seq_length, from.source(), ": sequences must fit the sequence length of ", settings.seq_length,
                      " tokens; the longest has ", from.longest(), ". Raise the sequence length, or truncate sequences when the data is read");
  require<config_error>(steps_per_epoch() > 0 || rows() == 0, from.source(), ": with drop_last an epoch must fill a step of ", sequences_per_step(),
                        " sequences; it has ", rows());
  current_.resize(settings.gradient_accumulation_steps);
  for (host_batch& batch : current_) clear(batch, settings.seq_length);  // allocate all memory of a step
}

XTRAIN_INLINE void sentence_loader::restore(const loader_state& state) {
  require<config_error>(state.step < steps_per_epoch(), "sentence_loader: the saved position must exist in the data; step ", state.step,
                        " of ", steps_per_epoch(), " in an epoch. Are data, batch size and sequence length those of the interrupted run?");
  state_ = state;
}

XTRAIN_INLINE std::span<const host_batch> sentence_loader::next() {
  fill(state_, current_);
  state_ = state_.step + 1 < steps_per_epoch() ? loader_state{state_.epoch, state_.step + 1} : loader_state{state_.epoch + 1, 0};
  return current_;
}

XTRAIN_INLINE void sentence_loader::fill(const loader_state& at, std::vector<host_batch>& batches) const {
  const auto held = hold_data();
  batches.resize(config_.gradient_accumulation_steps);
  const shuffled_order order(rows(), config_.seed, static_cast<std::uint32_t>(at.epoch));
  const std::size_t first = at.step * sequences_per_step();
  const auto row = [&](std::size_t i) { return config_.shuffle ? order[i] : i; };
  std::size_t t = 1;
  for (std::size_t i = first; i < std::min(rows(), first + sequences_per_step()); ++i) t = std::max(t, data_->length(row(i)));
  t = std::min(config_.seq_length, (t + config_.pad_to_multiple_of - 1) / config_.pad_to_multiple_of * config_.pad_to_multiple_of);
  for (std::size_t m = 0; m < batches.size(); ++m) {
    host_batch& batch = batches[m];
    clear(batch, t);
    batch.first_sequence = (m * config_.ranks + config_.rank) * config_.micro_batch_size;
    for (std::size_t r = 0; r < config_.micro_batch_size; ++r) {
      const std::size_t i = first + batch.first_sequence + r;
      if (i < rows()) put_row(row(i), r, at.epoch, batch);
    }
  }
}

XTRAIN_INLINE void sentence_loader::clear(host_batch& batch, std::size_t t) const {
  const std::size_t n = config_.micro_batch_size * t;
  batch.b = config_.micro_batch_size;
  batch.t = t;
  batch.target_count = batch.token_count = 0;
  batch.tokens.assign(n, config_.pad_token_id);
  batch.targets.assign(n, -1);
  batch.segments.assign(n, 0);
  batch.ends.assign(n, 1);
  batch.labels.assign(data_->has_labels() ? config_.micro_batch_size : 0, -1);
  batch.positions.resize(n);
  for (std::size_t i = 0; i < n; ++i) batch.positions[i] = static_cast<token>(i % t);
}

XTRAIN_INLINE void sentence_loader::put_row(std::size_t row, std::size_t r, std::size_t epoch, host_batch& batch) const {
  const std::size_t begin = data_->begin(row), length = data_->length(row), to = r * batch.t;
  for (std::size_t i = 0; i < length; ++i) {
    batch.tokens[to + i] = data_->at(begin + i);
    batch.segments[to + i] = i < data_->second(row) ? 0 : 1;
  }
  std::fill_n(batch.ends.begin() + static_cast<std::ptrdiff_t>(to), batch.t, static_cast<token>(length));
  if (data_->has_labels()) batch.labels[r] = data_->label(row);
  batch.token_count += length;
  if (data_->masking) mask_row(begin, length, to, detail::masking_draw(*data_->masking, config_.seed, epoch), batch);
}

XTRAIN_INLINE void sentence_loader::mask_row(std::size_t begin, std::size_t length, std::size_t to, const detail::masking_draw& draw,
                                             host_batch& batch) const {
  std::size_t word = begin;  // first token of the current word
  for (std::size_t i = 0; i < length; ++i) {
    const std::size_t place = begin + i;
    const bool goes_on = data_->masking->whole_words && i > 0 && data_->continues(place) && data_->maskable(place - 1);
    if (!goes_on) word = place;
    if (!data_->maskable(place) || !draw.chooses(word)) continue;
    batch.targets[to + i] = batch.tokens[to + i];
    batch.tokens[to + i] = draw.replacement(place, batch.tokens[to + i]);
    ++batch.target_count;
  }
}

}  // namespace xtrain
