// Log-probabilities of a dataset by a frozen model, computed once and stored in the dataset: of a reference model (preference objectives) or a teacher
// (distillation). data/log_prob_file.hpp stores them in a file.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/data/spill.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/train/checked_recipe.hpp>
#include <xtrain/train/forward_only.hpp>
#include <xtrain/train/reference_model.hpp>
#include <xtrain/train/run_settings.hpp>

namespace xtrain {

/// Settings of add_reference_log_probs.
struct reference_log_prob_options {
  std::size_t micro_batch_size = 8;  ///< sequences
  std::size_t seq_length = 0;        ///< of the training run; 0: the model's. Longer samples: dataset::when_too_long
};
/// Settings of add_teacher_log_probs.
struct teacher_log_prob_options {
  std::size_t top_k = 0;             ///< candidates stored per token
  std::size_t micro_batch_size = 8;  ///< sequences
  std::size_t seq_length = 0;        ///< as above; streams are cut to this length
};

namespace detail {

/// Consecutive tokens in one sequence, as the loader reads them without packing.
struct token_run {
  std::size_t first = 0, inputs = 0;  // inputs == 0: unused
  std::size_t tokens = 0;             // of the dataset, non-inputs included
};

class token_runs {
 public:
  ///   throws  data_error when a sample is too long and when_too_long is refuse
  token_runs(const dataset& data, std::size_t seq_length) : data_(&data), seq_length_(seq_length) {
    if (is_stream()) return;
    for (std::size_t s = 0; s < data.size(); ++s)
      require<data_error>(data.length(s) <= seq_length + 1 || data.when_too_long != overlong::refuse, data.source(),
                          ": samples must fit the sequence length of ", seq_length, " tokens; sample ", s + 1, " has ", data.length(s),
                          ". Raise the sequence length, or set the data's when_too_long to overlong::truncate or overlong::leave_out");
  }
  [[nodiscard]] std::size_t size() const { return is_stream() ? (data_->tokens() - 1 + seq_length_ - 1) / seq_length_ : data_->size(); }
  [[nodiscard]] token_run operator[](std::size_t i) const {
    if (is_stream()) {
      const std::size_t first = i * seq_length_, inputs = std::min(seq_length_, data_->tokens() - 1 - first);
      return {first, inputs, inputs + (i + 1 == size() ? 1 : 0)};
    }
    const std::size_t length = data_->length(i);
    return {data_->begin(i), is_left_out(i) || length < 2 ? 0 : std::min(length - 1, seq_length_), length};
  }

 private:
  [[nodiscard]] bool is_stream() const { return data_->layout() == sequence_layout::stream; }
  [[nodiscard]] bool is_left_out(std::size_t sample) const {
    if (data_->when_too_long != overlong::leave_out) return false;
    const std::size_t first = sample / data_->group_size * data_->group_size;  // groups are left out whole
    bool too_long = false;
    for (std::size_t s = first; s < std::min(first + data_->group_size, data_->size()); ++s) too_long = too_long || data_->length(s) > seq_length_ + 1;
    return too_long;
  }

  const dataset* data_;
  std::size_t seq_length_;
};

inline void fill_batch(const dataset& data, std::span<const token_run> runs, std::size_t b, std::size_t t, host_batch& batch) {
  batch.b = b;
  batch.t = t;
  batch.tokens.assign(b * t, 0);
  batch.targets.assign(b * t, -1);
  batch.positions.resize(b * t);
  batch.starts.resize(b * t);
  batch.target_count = batch.token_count = 0;
  for (std::size_t r = 0; r < b; ++r) {
    const token_run run = r < runs.size() ? runs[r] : token_run{};
    for (std::size_t i = 0; i < t; ++i) {
      const std::size_t at = r * t + i;
      const bool is_input = i < run.inputs;
      batch.positions[at] = static_cast<token>(is_input ? i : i - run.inputs);  // padding is a separate sample
      batch.starts[at] = static_cast<token>(is_input ? 0 : run.inputs);
      if (!is_input) continue;
      batch.tokens[at] = data.at(run.first + i);
      ++batch.token_count;
      if (!data.is_target(run.first + i + 1)) continue;
      batch.targets[at] = data.at(run.first + i + 1);
      ++batch.target_count;
    }
  }
}

/// Reads a dataset once, in order: data-parallel ranks share the work; every rank gets all results.
template <class Model>
class dataset_pass {
 public:
  dataset_pass(Model& model, const dataset& data, std::size_t micro_batch_size, std::size_t seq_length, const char* who)
      : model_(&model), data_(&data), seq_length_(seq_length > 0 ? seq_length : model.config().max_position_embeddings), runs_(data, seq_length_),
        micro_batch_size_(micro_batch_size) {
    data.require_own_tokens(who);
    require<config_error>(micro_batch_size > 0, who, ": micro_batch_size must be positive; given ", micro_batch_size);
    require<config_error>(seq_length_ <= model.config().max_position_embeddings, who, ": seq_length must not be longer than the model's ",
                          model.config().max_position_embeddings, " tokens; given ", seq_length_);
    require_tokens_below(data, model.config().vocab_size);
  }
  [[nodiscard]] std::size_t seq_length() const { return seq_length_; }
  [[nodiscard]] forward_only_config sizes() const {
    std::size_t longest = 1;
    for (std::size_t i = 0; i < runs_.size(); ++i) longest = std::max(longest, runs_[i].inputs);
    return {.micro_batch_size = micro_batch_size_, .seq_length = padded(longest)};
  }
  /// compute(batch, values) writes `each(t)` values per sequence of this rank, initially 0; take(run, values) gets every run in order.
  template <class Each, class Compute, class Take>
  void run(Each&& each, Compute&& compute, Take&& take) {
    auto& ranks = model_->parallel().data();
    const std::size_t at_once = micro_batch_size_ * ranks.size();
    std::vector<double> values;
    std::vector<token_run> runs;
    host_batch batch;
    for (std::size_t first = 0; first < runs_.size(); first += at_once) {
      runs.clear();
      std::size_t t = 1;
      for (std::size_t i = first; i < std::min(first + at_once, runs_.size()); ++i) {
        runs.push_back(runs_[i]);
        t = std::max(t, runs_[i].inputs);
      }
      t = padded(t);
      const std::size_t own = std::min(ranks.rank() * micro_batch_size_, runs.size()), width = each(t);
      fill_batch(*data_, std::span(runs).subspan(own, std::min(micro_batch_size_, runs.size() - own)), micro_batch_size_, t, batch);
      batch.first_sequence = first + ranks.rank() * micro_batch_size_;
      values.assign(at_once * width, 0.0);
      const auto of_own = std::span(values).subspan(ranks.rank() * micro_batch_size_ * width, micro_batch_size_ * width);
      compute(batch_view(batch), of_own);
      add_up_stages(*model_, of_own);
      if (ranks.size() > 1) ranks.all_reduce(std::span<double>(values), reduction::sum);
      for (std::size_t i = 0; i < runs.size(); ++i) take(runs[i], std::span<const double>(values).subspan(i * width, width));
    }
  }

 private:
  [[nodiscard]] std::size_t padded(std::size_t t) const {
    const std::size_t multiple = std::lcm(std::size_t{8}, seq_length_divisor(model_->parallel()));
    return std::min(model_->config().max_position_embeddings, (t + multiple - 1) / multiple * multiple);
  }

  Model* model_;
  const dataset* data_;
  std::size_t seq_length_;
  token_runs runs_;
  std::size_t micro_batch_size_;
};

/// Writes the k most probable next tokens of every token to the host.
template <class Recipe>
class top_k_collector final : public pass_objective<Recipe> {
 public:
  using accumulate = typename head_pass<Recipe>::accumulate;
  using memory = typename head_pass<Recipe>::memory;

  top_k_collector(const typename Recipe::device::context& device, std::size_t k) : device_(device), k_(k) {}
  /// Destination of the next batch: k pairs (token, log-probability) per token.
  void write_to(std::span<double> values) { values_ = values; }

  void compute(pass<Recipe>& p, const head_pass<Recipe>& head, typename head_pass<Recipe>::sums) override {
    require<config_error>(head.has_own_weight(p), "add_teacher_log_probs: a head with normalized weights or an adapter must not be the teacher's");
    const std::size_t v = head.weight().shape(0), vocabulary = head.vocab_size();
    require<config_error>(v >= vocabulary, "add_teacher_log_probs: the whole vocabulary of ", vocabulary,
                          " must be on one rank; tensor parallelism shards it, this rank has ", v);
    const auto scope = p.scope();
    const auto x = head.hidden_states(p);
    const std::size_t n = x.shape(0), at_once = head.tokens_at_once(n);
    const matrix_view<accumulate, memory> logits_nv{p.workspace.template take<accumulate>(at_once * v), {at_once, v}};
    if (const std::size_t bytes = at_once * v * sizeof(accumulate); !host_ || host_->bytes() < bytes) {
      host_.reset();
      host_.emplace(device_, bytes);
    }
    const std::span<accumulate> host = host_->template as<accumulate>();
    std::vector<token> order(vocabulary);
    for (std::size_t first = 0; first < n; first += at_once) {
      const std::size_t count = std::min(at_once, n - first);
      const auto some = logits_nv.rows(0, count);
      head.logits(p, x.rows(first, count), some);
      copy_to_host(p.stream, host.first(count * v), some.span());
      p.stream.synchronize();
      for (std::size_t i = 0; i < count; ++i) keep(std::span<const accumulate>(host).subspan(i * v, vocabulary), first + i, order);
    }
  }

 private:
  void keep(std::span<const accumulate> logits, std::size_t at, std::vector<token>& order) const {
    std::iota(order.begin(), order.end(), 0);
    const auto logit = [&](token id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]); };
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k_), order.end(),
                      [&](token a, token b) { return logit(a) > logit(b) || (logit(a) == logit(b) && a < b); });
    const double most = logit(order.front());
    double sum = 0;
    for (const accumulate one : logits) sum += std::exp(static_cast<double>(one) - most);
    const double log_sum = most + std::log(sum);
    for (std::size_t j = 0; j < k_; ++j) {
      values_[(at * k_ + j) * 2] = static_cast<double>(order[j]);
      values_[(at * k_ + j) * 2 + 1] = logit(order[j]) - log_sum;
    }
  }

  typename Recipe::device::context device_;
  std::size_t k_;
  std::optional<pinned_memory<typename Recipe::device>> host_{};
  std::span<double> values_{};
};

}

/// Runs a model over a dataset once and replaces the dataset's log-probabilities. All ranks of the model call it with the same data; each gets all values.
///   throws  config_error unless samples are separate sequences; data_error when samples do not fit the model
template <class Model>
void add_reference_log_probs(Model& model, dataset& data, const reference_log_prob_options& options = {}) {
  require<config_error>(data.layout() == sequence_layout::separate,
                        "add_reference_log_probs: samples must be sequences of their own (sequence_layout::separate), in ", data.source());
  detail::dataset_pass<Model> over(model, data, options.micro_batch_size, options.seq_length, "add_reference_log_probs");
  reference_model<Model> source(model, over.sizes());
  using device = typename Model::device;
  const buffer<device> memory(model.context(), options.micro_batch_size * sizeof(double), memory_role::batch);
  const auto values = memory.template as<double>();
  const pinned_memory<device> host(model.context(), values.bytes());
  spilled_array<double> all;
  over.run([](std::size_t) { return std::size_t{1}; },
           [&](const batch_view& batch, std::span<double> to) {
             fill_zero(model.stream(), values);
             source.compute(model.stream(), batch, 0, {values, {batch.b}});
             const auto here = host.template as<double>();
             copy_to_host(model.stream(), here, values);
             model.stream().synchronize();
             std::copy(here.begin(), here.end(), to.begin());
           },
           [&](const detail::token_run& run, std::span<const double> value) {
             all.push_back(run.inputs > 0 ? value[0] : std::numeric_limits<double>::quiet_NaN());
           });
  data.set_reference_log_probs(std::move(all), over.seq_length());
}

/// Runs a teacher over a dataset once and stores, for every token, its top_k most probable next tokens: 8 · top_k bytes per token, which spill
/// to a file. Packed samples are processed one by one.
///   throws  config_error for a top_k of 0 or beyond the vocabulary, tensor or context parallelism, a head with normalized weights; data_error as above
template <class Model>
void add_teacher_log_probs(Model& model, dataset& data, const teacher_log_prob_options& options) {
  using computation = model_computation<Model>;
  if constexpr (has_context_parallel<computation>)
    require<config_error>(model.parallel().context().size() == 1, "add_teacher_log_probs: sequences must be whole; context parallelism shards them");
  const std::size_t k = options.top_k;
  require<config_error>(k > 0 && k <= model.config().vocab_size, "add_teacher_log_probs: top_k must be positive and at most the vocabulary's ",
                        model.config().vocab_size, "; given ", k);
  detail::dataset_pass<Model> over(model, data, options.micro_batch_size, options.seq_length, "add_teacher_log_probs");
  forward_only<Model> passes(model, over.sizes(), false);
  detail::top_k_collector<computation> collector(model.context(), k);
  spilled_array<token> tokens;
  spilled_array<float> log_probs;
  over.run([&](std::size_t t) { return t * k * 2; },
           [&](const batch_view& batch, std::span<double> to) {
             collector.write_to(to);
             passes.run(batch, 0, collector);
             model.stream().synchronize();
           },
           [&](const detail::token_run& run, std::span<const double> values) {
             for (std::size_t i = 0; i < run.tokens * k; ++i) {
               const bool is_there = i < run.inputs * k;  // a sample's last token has no next token
               tokens.push_back(is_there ? static_cast<token>(values[2 * i]) : static_cast<token>(i % k));
               log_probs.push_back(is_there ? static_cast<float>(values[2 * i + 1]) : std::numeric_limits<float>::quiet_NaN());
             }
           });
  data.set_teacher_log_probs(std::move(tokens), std::move(log_probs), k, over.seq_length());
}

}  // namespace xtrain
