// Scores of sequences by a frozen reward model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/device/stream_drain.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/score_head.hpp>
#include <xtrain/layers/sequence_parallel.hpp>
#include <xtrain/train/forward_only.hpp>

namespace xtrain {

/// Needs a model whose recipe has the objective `reward`. Every rank calls it with the same number of sequences: ranks that share sequences (tensor and
/// pipeline parallelism) with the same ones; all get their scores.
template <class Model>
class reward_scorer {
 public:
  using model_type = Model;
  using device = typename Model::device;
  using memory = typename device::memory;
  using computation = model_computation<Model>;
  using config = forward_only_config;

  static_assert(scores_sequences<computation>,
                "xtrain reward_scorer: the model must have a score head: a recipe whose objective is 'reward'; see objective/README.md");

  /// throws config_error for a sequence length that the model does not have, memory_error
  explicit reward_scorer(Model& model, config settings = {})
      : passes_(model, settings, true, "reward_scorer"), last_(model.context(), size() * sizeof(token), memory_role::batch),
        scores_(model.context(), 2 * size() * sizeof(double), memory_role::batch),
        host_(model.context(), size() * (sizeof(double) + sizeof(token))), drain_(model.stream(), detail::watched(model)) {}

  [[nodiscard]] static planned_memory run_dry(const typename Model::config_type& sizes, const typename Model::options& options, const config& settings,
                                              const typename device::properties& properties) {
    return with_scores(forward_only<Model>::run_dry(sizes, options, settings, properties));
  }
  [[nodiscard]] planned_memory plan() const { return with_scores(passes_.needed()); }

  /// The score at each sequence's last token: end-of-text tokens must be included.
  ///   throws  data_error for an empty sequence or a token outside the vocabulary, shape_error for one longer than seq_length
  [[nodiscard]] std::vector<double> operator()(std::span<const std::vector<token>> sequences) {
    std::vector<double> all;
    for (std::size_t first = 0; first < sequences.size(); first += size()) {
      const std::vector<double> some = scores_of(sequences.subspan(first, std::min(size(), sequences.size() - first)));
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }

 private:
  struct collector final : pass_objective<computation> {
    vector_view<const token, memory> last_b{};
    vector_view<double, memory> score_b{}, count_b{};

    void compute(pass<computation>& p, const head_pass<computation>& head, typename head_pass<computation>::sums) override {
      const auto scope = p.scope();
      head.scores(p, head.hidden_states(p, last_b), last_b, score_b, count_b);
    }
  };

  [[nodiscard]] static planned_memory with_scores(const typename forward_only<Model>::needs& needed) {
    planned_memory all = needed.memory;
    all.add(memory_role::batch, needed.settings.micro_batch_size * (sizeof(token) + 2 * sizeof(double)));
    return all;
  }
  [[nodiscard]] std::size_t size() const { return passes_.settings().micro_batch_size; }
  [[nodiscard]] std::vector<double> scores_of(std::span<const std::vector<token>> sequences) {
    const std::size_t b = sequences.size(), ranks = sequence_parallel_ranks(passes_.model().parallel());
    host_batch batch;
    batch.b = b;
    for (std::size_t i = 0; i < b; ++i) {
      require<data_error>(!sequences[i].empty(), "reward_scorer: a sequence must not be empty; sequence ", i, " is");
      batch.t = std::max(batch.t, sequences[i].size());
    }
    batch.t = (batch.t + ranks - 1) / ranks * ranks;
    const std::size_t n = b * batch.t;
    batch.tokens.assign(n, 0);
    batch.targets.assign(n, -1);
    batch.positions.assign(n, 0);
    batch.starts.assign(n, 0);
    const std::span<double> host = host_.template as<double>().first(b);
    const std::span<token> last = host_.template as<token>().last(b);
    for (std::size_t i = 0; i < b; ++i) {
      const std::size_t length = sequences[i].size(), at = i * batch.t;
      std::copy(sequences[i].begin(), sequences[i].end(), batch.tokens.begin() + static_cast<std::ptrdiff_t>(at));
      for (std::size_t t = 0; t < batch.t; ++t) {  // padding is a separate sample
        batch.positions[at + t] = static_cast<token>(t < length ? t : t - length);
        batch.starts[at + t] = static_cast<token>(t < length ? 0 : length);
      }
      last[i] = static_cast<token>(at + length - 1);
      batch.token_count += length;
    }
    auto& stream = passes_.model().stream();
    const detail::stream_drain<typename device::stream> wait(stream);  // queued copies use host_, also when a pass throws
    const auto last_b = last_.template as<token>().subspan(0, b);
    const auto scores = scores_.template as<double>();
    copy_to_device(stream, last_b, std::span<const token>(last));
    fill_zero(stream, scores);  // only the last stage of a pipeline has the head
    collector_.last_b = {last_b, {b}};
    collector_.score_b = {scores.subspan(0, b), {b}};
    collector_.count_b = {scores.subspan(size(), b), {b}};
    passes_.run(batch_view(batch), 0, collector_);
    copy_to_host(stream, host, scores.subspan(0, b));
    stream.synchronize();
    detail::add_up_stages(passes_.model(), host);
    return {host.begin(), host.end()};
  }

  forward_only<Model> passes_;
  buffer<device> last_, scores_;
  pinned_memory<device> host_;  // scores, then last_
  collector collector_{};
  detail::stream_drain<typename device::stream> drain_;  // last: destroyed first, so the host waits before memory in use is released
};

/// For a single call.
template <class Model>
[[nodiscard]] std::vector<double> reward_scores(Model& model, std::span<const std::vector<token>> sequences, const forward_only_config& settings = {}) {
  reward_scorer<Model> scorer(model, settings);
  return scorer(sequences);
}

}  // namespace xtrain
