// Definitions of loader.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/loader.hpp>

namespace xtrain {

XTRAIN_INLINE loader::loader(const dataset& from, const loader_config& settings)
    : data_(&from), data_life_((from.require_finished(), from.lifetime())), config_(settings) {
  require<config_error>(settings.micro_batch_size > 0 && settings.gradient_accumulation_steps > 0 && settings.seq_length > 0,
                        "loader: micro_batch_size, gradient_accumulation_steps and seq_length must be positive; given ", settings.micro_batch_size, ", ",
                        settings.gradient_accumulation_steps, ", ", settings.seq_length);
  const std::size_t all = settings.micro_batch_size * settings.gradient_accumulation_steps;
  require<config_error>(settings.micro_batch_sizes.empty() || (settings.micro_batch_sizes.size() == settings.gradient_accumulation_steps &&
                                                               rows_before(settings.gradient_accumulation_steps) == all),
                        "loader: micro-batch sizes must be given for ", settings.gradient_accumulation_steps, " micro-batches and be ", all,
                        " together; given ", settings.micro_batch_sizes.size(), " with ", rows_before(settings.micro_batch_sizes.size()));
  require<config_error>(settings.pad_to_multiple_of > 0, "loader: sequences must be padded to a multiple of at least 1; given ", settings.pad_to_multiple_of);
  const std::size_t group = from.group_size;
  require<config_error>(group > 0 && (group == 1 || from.layout() == sequence_layout::separate), from.source(),
                        ": samples that stay together (group_size ", group, ") must be sequences of their own; choose sequence_layout::separate");
  for (std::size_t m = 0; m < settings.gradient_accumulation_steps; ++m)
    require<config_error>(micro_batch_size(m) % group == 0, "loader: a micro-batch must have whole groups of ", group, " samples (", from.source(),
                          "); given micro_batch_size ", micro_batch_size(m));
  require<config_error>(from.layout() == sequence_layout::separate || (from.labels().empty() && from.reference_log_probs().empty()), from.source(),
                        ": samples with labels or reference log-probabilities must be sequences of their own; choose sequence_layout::separate, "
                        "without packing");
  require<config_error>(settings.rank < settings.ranks, "loader: rank must be below the ", settings.ranks, " ranks; given ", settings.rank);
  require<config_error>(!settings.rampup || from.samples() != nullptr, from.source(),
                        ": rampup_batch_size needs samples of a whole run (gpt_dataset), in ",
                        "whose order epochs do not begin anew; this data has epochs");
  require<config_error>(!settings.rampup || settings.micro_batch_sizes.empty() ||
                            std::all_of(settings.micro_batch_sizes.begin(), settings.micro_batch_sizes.end(),
                                        [&](std::size_t size) { return size == settings.micro_batch_size; }),
                        "loader: rampup_batch_size needs micro-batches of one size, ", settings.micro_batch_size);
  batch_sizes_ = settings.batch_sizes();
  lay_out_sequences();
  steps_per_epoch_ = settings.steps_per_epoch(rows_);
  require<config_error>(steps_per_epoch() > 0, from.source(), ": with drop_last an epoch must fill a step of ", sequences_per_step(), " sequences; it has ",
                        rows_);
  for (std::vector<host_batch>* batches : {&current_, &prepared_, &scratch_}) {  // allocate all memory of a step
    batches->resize(settings.gradient_accumulation_steps);
    for (std::size_t m = 0; m < batches->size(); ++m) clear((*batches)[m], micro_batch_size(m), settings.seq_length);
  }
}

XTRAIN_INLINE loader::~loader() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

XTRAIN_INLINE void loader::restore(const loader_state& state) {
  require<config_error>(state.step < steps_per_epoch(), "loader: the saved position must exist in the data; step ", state.step, " of ",
                        steps_per_epoch(), " in an epoch. Are data, batch size, sequence length and max_steps_per_epoch those of the interrupted run?");
  const std::lock_guard lock(mutex_);
  state_ = state;
  prepared_valid_ = false;
  ++generation_;
}

XTRAIN_INLINE std::span<const host_batch> loader::next() {
  (void)hold_data();
  std::unique_lock lock(mutex_);
  if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  wanted_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return prepared_valid_ || problem_; });
  if (problem_) std::rethrow_exception(std::exchange(problem_, nullptr));
  std::swap(current_, prepared_);
  prepared_valid_ = false;
  state_ = after(state_);
  changed_.notify_all();
  return current_;
}

XTRAIN_INLINE void loader::fill(const loader_state& at, std::vector<host_batch>& batches) const {
  const auto held = hold_data();
  const std::size_t sequences = batch_sizes_.of(at.step), first = batch_sizes_.before(at.step);  // a ramp-up has one epoch
  batches.resize(sequences / (config_.micro_batch_size * config_.ranks));
  const std::size_t group = data_->group_size;
  const shuffled_order order(rows_ / group, config_.seed, static_cast<std::uint32_t>(at.epoch));
  const bool shuffled = config_.shuffle && data_->samples() == nullptr;
  const auto row = [&](std::size_t i) { return shuffled ? order[i / group] * group + i % group : i; };
  std::size_t t = config_.seq_length;
  if (data_->layout() == sequence_layout::separate) {  // pad to the longest sequence of the step
    t = 1;
    for (std::size_t i = first; i < std::min(rows_, first + sequences); ++i) t = std::max(t, row_length(row(i)));
    t = std::min(config_.seq_length, (t + config_.pad_to_multiple_of - 1) / config_.pad_to_multiple_of * config_.pad_to_multiple_of);
  }
  for (std::size_t m = 0; m < batches.size(); ++m) {
    host_batch& batch = batches[m];
    clear(batch, micro_batch_size(m), t);
    batch.first_sequence = rows_before(m) * config_.ranks + config_.rank * batch.b;
    for (std::size_t r = 0; r < batch.b; ++r) {
      const std::size_t i = first + batch.first_sequence + r;
      if (i < rows_) put_row(row(i), r, batch);
    }
  }
}

XTRAIN_INLINE void loader::lay_out_sequences() {
  const std::size_t context = config_.seq_length;
  if (const sample_source* const given = data_->samples()) {
    require<config_error>(given->seq_length() == context, data_->source(), ": the sequence length must be that of the data's samples, ", given->seq_length(),
                          "; given ", context);
    rows_ = given->size();
    return;
  }
  if (data_->layout() == sequence_layout::stream) {
    rows_ = (data_->tokens() - 1 + context - 1) / context;
    require<data_error>(data_->top_k() == 0 || data_->teacher_seq_length() == 0 || data_->teacher_seq_length() == context, data_->source(),
                        ": the teacher's log-probabilities of a stream are those of sequences of ", data_->teacher_seq_length(),
                        " tokens; the sequence length must be the same; given ", context);
    return;
  }
  std::size_t room = 0;
  const std::size_t group = data_->group_size;
  require<data_error>(data_->size() % group == 0, data_->source(), ": must hold whole groups of ", group, " samples; given ", data_->size());
  for (std::size_t s = 0; s < data_->size(); ++s) {
    const std::size_t length = data_->length(s);
    if (group > 1) {
      if (s % group == 0 && !keeps_group(s)) {
        s += group - 1;
        continue;
      }
    } else if (length < 2) {
      continue;
    }
    if (length - 1 > context) {
      if (data_->when_too_long == overlong::leave_out) continue;
      require<data_error>(data_->when_too_long == overlong::truncate, data_->source(), ": samples must fit the sequence length of ", context,
                          " tokens; sample ", s + 1, " has ", length,
                          ". Raise the sequence length, or set the data's when_too_long to overlong::truncate or overlong::leave_out");
    }
    const std::size_t inputs = limited(length - 1);
    if (data_->layout() == sequence_layout::separate || inputs > room) {
      row_begins_.push_back(samples_.size());
      room = context;
    }
    room -= inputs;
    bool learns = false;
    for (std::size_t i = 1; i <= inputs && !learns; ++i) learns = data_->is_target(data_->begin(s) + i);
    unused_.without_targets += learns ? 0 : 1;
    require_values_of(s);
    samples_.push_back(s);
  }
  rows_ = row_begins_.size();
  unused_.all = data_->size();
  unused_.left_out = data_->size() - samples_.size();
  row_begins_.push_back(samples_.size());
  samples_.finish();
  row_begins_.finish();
  require<data_error>(rows_ > 0, data_->source(), ": must hold samples that fit the sequence length of ", context, " tokens; none does");
  require<data_error>(unused_.without_targets < samples_.size(), data_->source(), ": must hold labels within the sequence length of ", context,
                      " tokens; every token that is read belongs to a prompt. Raise the sequence length");
}

XTRAIN_INLINE bool loader::keeps_group(std::size_t first) const {
  bool keeps = true;
  for (std::size_t s = first; s < first + data_->group_size; ++s) {
    require<data_error>(data_->length(s) > 1, data_->source(), ": samples that stay together must have at least 2 tokens each; sample ", s + 1, " has ",
                        data_->length(s));
    if (data_->length(s) - 1 <= config_.seq_length) continue;
    if (data_->when_too_long == overlong::leave_out) keeps = false;
    if (data_->when_too_long != overlong::truncate) continue;
    bool learns = false;
    for (std::size_t i = 1; i <= config_.seq_length && !learns; ++i) learns = data_->is_target(data_->begin(s) + i);
    keeps = keeps && learns;
  }
  return keeps;
}

XTRAIN_INLINE void loader::require_values_of(std::size_t sample) const {
  const std::size_t whole = inputs_of(sample), here = limited(whole);
  const auto computed = [&](std::size_t seq_length) { return seq_length == 0 ? whole : std::min(whole, seq_length); };
  if (!data_->reference_log_probs().empty()) {
    const std::size_t there = computed(data_->reference_seq_length());
    require<data_error>(std::isfinite(data_->reference_log_probs()[sample]), data_->source(), ": sample ", sample + 1,
                        " must have a reference log-probability that is a finite number. Was it left out, as too long, when they were computed?");
    require<data_error>(here == there, data_->source(), ": reference log-probabilities must be of samples as they are read; that of sample ", sample + 1,
                        " is of ", there, " tokens, and the sequence length leaves ", here);
  }
  if (data_->top_k() > 0) {
    const std::size_t there = computed(data_->teacher_seq_length());
    const bool exist = !std::isnan(data_->teacher_log_probs()[data_->begin(sample) * data_->top_k()]);
    require<data_error>(exist && here <= there, data_->source(), ": the teacher's log-probabilities must be there for every token that is read; sample ",
                        sample + 1, " has them for ", exist ? there : 0, " tokens, and the sequence length leaves ", here);
  }
}

XTRAIN_INLINE std::size_t loader::row_length(std::size_t row) const {
  std::size_t length = 0;
  for (std::size_t i = row_begins_[row]; i < row_begins_[row + 1]; ++i) length += limited(inputs_of(samples_[i]));
  return length;
}

XTRAIN_INLINE std::size_t loader::rows_before(std::size_t m) const {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < m; ++i) sum += micro_batch_size(i);
  return sum;
}

XTRAIN_INLINE void loader::clear(host_batch& batch, std::size_t b, std::size_t t) const {
  const std::size_t n = b * t;
  batch.b = b;
  batch.t = t;
  batch.target_count = batch.token_count = 0;
  batch.tokens.assign(n, config_.pad_token_id);
  batch.targets.assign(n, padding_target);
  batch.positions.resize(n);
  batch.starts.assign(n, 0);
  for (std::size_t i = 0; i < n; ++i) batch.positions[i] = static_cast<token>(i % t);
  clear_values(batch);
}

XTRAIN_INLINE void loader::clear_values(host_batch& batch) const {
  const std::size_t n = batch.b * batch.t, k = data_->top_k();
  if (!data_->labels().empty()) batch.labels.assign(batch.b, -1);
  if (!data_->reference_log_probs().empty()) batch.reference_log_probs.assign(batch.b, 0.0);
  if (!data_->token_weights().empty()) batch.token_weights.assign(n, 0.0F);
  if (k == 0) return;
  batch.teacher_tokens.resize(n * k);
  for (std::size_t i = 0; i < n * k; ++i) batch.teacher_tokens[i] = static_cast<token>(i % k);  // padding: k different tokens
  batch.teacher_log_probs.assign(n * k, 0.0F);
}

XTRAIN_INLINE void loader::put_sample(std::size_t sample, std::size_t r, host_batch& batch) const {
  const std::size_t t = batch.t, first = r * t;
  const std::span<token> tokens = std::span(batch.tokens).subspan(first, t), targets = std::span(batch.targets).subspan(first, t);
  data_->samples()->read(sample, 0, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  data_->samples()->read(sample, t, targets.last(1));
  batch.target_count += t;
  batch.token_count += t;
}

XTRAIN_INLINE void loader::put_row(std::size_t row, std::size_t r, host_batch& batch) const {
  if (data_->samples() != nullptr) {
    put_sample(row, r, batch);
    return;
  }
  if (data_->layout() == sequence_layout::stream) {
    const std::size_t first = row * config_.seq_length;
    put(first, std::min(config_.seq_length, data_->tokens() - 1 - first), r * batch.t, 0, batch);
    return;
  }
  std::size_t at = 0;
  for (std::size_t i = row_begins_[row]; i < row_begins_[row + 1]; ++i) {
    const std::size_t sample = samples_[i];
    const std::size_t inputs = limited(inputs_of(sample));
    put(data_->begin(sample), inputs, r * batch.t + at, at, batch);
    if (!data_->labels().empty()) batch.labels[r] = data_->labels()[sample];
    if (!data_->reference_log_probs().empty()) batch.reference_log_probs[r] = data_->reference_log_probs()[sample];
    at += inputs;
  }
  // padding forms a sample: attention stays inside and outside
  for (std::size_t i = at; i < batch.t; ++i) {
    batch.starts[r * batch.t + i] = static_cast<token>(at);
    batch.positions[r * batch.t + i] = static_cast<token>(i - at);
  }
}

XTRAIN_INLINE void loader::put(std::size_t first, std::size_t inputs, std::size_t to, std::size_t start, host_batch& batch) const {
  for (std::size_t i = 0; i < inputs; ++i) {
    batch.tokens[to + i] = data_->at(first + i);
    batch.positions[to + i] = static_cast<token>(i);
    batch.starts[to + i] = static_cast<token>(start);
    const bool is_target = data_->is_target(first + i + 1);
    batch.targets[to + i] = is_target ? data_->at(first + i + 1) : -1;
    if (is_target) ++batch.target_count;
  }
  batch.token_count += inputs;
  put_token_values(first, inputs, to, batch);
}

XTRAIN_INLINE void loader::put_token_values(std::size_t first, std::size_t inputs, std::size_t to, host_batch& batch) const {
  const auto copy = [&](const auto& from, std::size_t begin, auto& values, std::size_t k) {
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(begin * k), inputs * k, values.begin() + static_cast<std::ptrdiff_t>(to * k));
  };
  if (!data_->token_weights().empty()) copy(data_->token_weights(), first + 1, batch.token_weights, 1);  // the weight of the token to predict
  if (data_->top_k() == 0) return;
  copy(data_->teacher_tokens(), first, batch.teacher_tokens, data_->top_k());  // values for the next token
  copy(data_->teacher_log_probs(), first, batch.teacher_log_probs, data_->top_k());
}

XTRAIN_INLINE loader_state loader::after(const loader_state& state) const {
  return state.step + 1 < steps_per_epoch() ? loader_state{state.epoch, state.step + 1} : loader_state{state.epoch + 1, 0};
}

XTRAIN_INLINE void loader::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || (wanted_ && !prepared_valid_ && !problem_); });
    if (stopping_) return;
    const loader_state at = state_;
    const std::size_t generation = generation_;
    lock.unlock();
    std::exception_ptr problem;
    try {
      fill(at, scratch_);
    } catch (...) {
      problem = std::current_exception();
    }
    lock.lock();
    if (generation != generation_) continue;  // restored meanwhile: discard
    problem_ = problem;
    if (!problem) {
      std::swap(prepared_, scratch_);
      prepared_valid_ = true;
    }
    changed_.notify_all();
  }
}

}  // namespace xtrain
