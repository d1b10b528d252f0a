// Log-likelihoods of continuations, in padded batches.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/lifetime.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/eval/language_model.hpp>
#include <xtrain/layers/attention_mask.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/tensor_shard.hpp>
#include <xtrain/layers/vocab_parallel_head.hpp>
#include <xtrain/ops/matmul.hpp>
#include <xtrain/ops/split_loss.hpp>
#include <xtrain/parallel/concepts.hpp>

namespace xtrain {

/// Replaces the loss: per token and vocabulary shard the largest logit, the sum of exponentials and the target's logit. A token may have several targets:
/// answers that differ only in the last token share a sequence.
template <class Recipe>
class softmax_statistics final : public pass_objective<Recipe> {
 public:
  using device = typename Recipe::device;
  using memory = typename device::memory;
  using accumulate = accumulate_t<typename pass<Recipe>::compute>;

  /// Batches of up to `num_tokens` tokens with `alternatives` targets each; `shards` of the vocabulary.
  softmax_statistics(const typename device::context& on, std::size_t num_tokens, std::size_t alternatives, std::size_t shards)
      : shards_(shards), targets_(on, (alternatives - 1) * num_tokens * sizeof(token), memory_role::batch),
        parts_(on, alternatives * values * shards * num_tokens * sizeof(accumulate), memory_role::batch),
        others_(on, (alternatives - 1) * num_tokens * sizeof(token)), on_host_(on, alternatives * values * shards * num_tokens * sizeof(accumulate)) {}

  /// Before a pass.
  ///   others_kn   further targets, [at most alternatives − 1, n]
  template <class Stream>
  void begin(Stream& stream, std::span<const token> others_kn, std::size_t n) {
    used_ = 1 + others_kn.size() / n;
    computed_ = false;
    n_ = n;
    if (used_ == 1) return;
    const auto sent = others_.template as<token>().first(others_kn.size());  // fetch() has waited for the previous batch
    std::copy(others_kn.begin(), others_kn.end(), sent.begin());
    copy_to_device(stream, targets_.template as<token>().subspan(0, sent.size()), std::span<const token>(sent));
  }
  void compute(pass<Recipe>& p, const head_pass<Recipe>& head, typename head_pass<Recipe>::sums loss_n) override {
    const auto scope = p.scope();
    const auto x = head.hidden_states(p);
    const std::size_t n = x.shape(0), v = head.weight().shape(0), at_once = head.tokens_at_once(n);
    tensor_shard shard;
    if constexpr (has_tensor_parallel<Recipe>)
      if (v < head.vocab_size()) shard = {.rank = p.internal.parallel.tensor().rank(), .ranks = p.internal.parallel.tensor().size()};
    const std::size_t first = shard.up_to(head.vocab_size()).begin;
    fill_zero(p.stream, loss_n.span());
    for (std::size_t begin = 0; begin < n; begin += at_once) {
      const auto chunk = p.scope();
      const std::size_t rows = std::min(at_once, n - begin);
      const matrix_view<accumulate, memory> logits{p.workspace.template take<accumulate>(rows * v), {rows, v}};
      head.logits(p, x.rows(begin, rows), logits);
      for (std::size_t k = 0; k < used_; ++k) {
        const vector_view<const token, memory> targets = k == 0 ? p.batch.targets_n : others(k, n);
        const std::size_t of_token = values * shards_;
        const matrix_view<accumulate, memory> parts{
            parts_.template as<accumulate>().subspan(of_token * (k * n + begin), of_token * rows), {of_token, rows}};
        const auto own = parts.rows(values * shard.rank, values);
        ops::softmax_part<device, accumulate>(p, logits, targets.rows(begin, rows), first, own);
        if constexpr (has_tensor_parallel<Recipe>)
          if (shard.is_sharded())
            p.internal.parallel.tensor().all_gather(p.stream, device_span<const accumulate, memory>(own.span()), parts.span());
      }
    }
    at_once_ = at_once;
    ranks_ = shard.ranks;
    computed_ = true;
  }

  /// After a pass: copies results to the host and waits.
  ///   returns  whether this rank has them (in a pipeline the last stage)
  template <class Stream>
  [[nodiscard]] bool fetch(Stream& stream) {
    if (computed_)
      copy_to_host(stream, on_host_.template as<accumulate>().first(used_ * values * shards_ * n_),
                   device_span<const accumulate, memory>(parts_.template as<accumulate>().subspan(0, used_ * values * shards_ * n_)));
    stream.synchronize();
    return computed_;
  }
  /// log p(target) of a token, and whether no token is more probable.
  [[nodiscard]] token_score score(std::size_t alternative, std::size_t index) const {
    const std::size_t begin = index / at_once_ * at_once_, rows = std::min(at_once_, n_ - begin);
    const accumulate* parts = on_host_.template as<accumulate>().data() + values * shards_ * (alternative * n_ + begin) + (index - begin);
    double largest = -INFINITY, sum = 0, at_target = 0;
    for (std::size_t r = 0; r < ranks_; ++r) largest = std::max(largest, static_cast<double>(parts[r * values * rows]));
    for (std::size_t r = 0; r < ranks_; ++r) {
      const accumulate* of_rank = parts + r * values * rows;
      sum += static_cast<double>(of_rank[rows]) * std::exp(static_cast<double>(of_rank[0]) - largest);
      at_target += static_cast<double>(of_rank[2 * rows]);
    }
    return {.log_likelihood = at_target - largest - std::log(sum), .is_greedy = at_target >= largest};
  }

 private:
  static constexpr std::size_t values = 3;  // per token, target and shard: kernel::softmax_part

  [[nodiscard]] vector_view<const token, memory> others(std::size_t k, std::size_t n) const {
    return {device_span<const token, memory>(targets_.template as<token>().subspan((k - 1) * n, n)), {n}};
  }

  std::size_t shards_, used_ = 1, n_ = 0, at_once_ = 1, ranks_ = 1;
  bool computed_ = false;
  buffer<device> targets_, parts_;
  pinned_memory<device> others_, on_host_;
};

/// Scores continuations by forward passes (forward_only), in batches sorted by length, with memory measured and allocated once. Requests that differ only in
/// the last token share a sequence. Results do not depend on the order of requests. Ranks of one model score equal requests and get all results.
template <class Forward>
class log_likelihood_scorer {
 public:
  using model_type = std::remove_cvref_t<decltype(std::declval<Forward&>().model())>;
  using computation = model_computation<model_type>;

  /// throws config_error under context parallelism, or when attention is not causal; memory_error
  explicit log_likelihood_scorer(Forward& forward)
      : forward_(&forward), forward_life_(forward), statistics_(forward.model().context(), num_tokens(forward), most_alternatives, shards(forward.model())) {
    require<config_error>(context_shard_of(forward.model().parallel()).ranks == 1,
                          "evaluation: the context parallel size must be 1, because continuations are scored by whole sequences; given ",
                          context_shard_of(forward.model().parallel()).ranks);
    require<config_error>(attention_mask_of(forward.model()).kind == attention_mask::rule::causal,
                          "evaluation: the model's attention must be causal; this one sees its prompt in both directions");
  }

  /// Maximum number of inputs: context + continuation − 1.
  [[nodiscard]] std::size_t max_length() const { return forward_->settings().seq_length; }

  /// In order of requests. A too long context loses its first tokens.
  ///   throws  data_error when a context or a continuation is empty, a continuation is longer than max_length(), or a token is unknown
  [[nodiscard]] std::vector<token_score> score(std::span<const token_request> requests);

 private:
  static constexpr std::size_t most_alternatives = 8;

  /// Model inputs, and the continuations that end there.
  struct sequence {
    std::vector<token> inputs{};
    std::size_t length = 0;               // of the continuations
    std::vector<std::size_t> requests{};  // differ in the last token
  };

  [[nodiscard]] static std::size_t num_tokens(const Forward& forward) { return forward.settings().micro_batch_size * forward.settings().seq_length; }
  [[nodiscard]] static std::size_t shards(model_type& model) {
    if constexpr (has_tensor_parallel<computation>) return model.parallel().tensor().size();
    else return 1;
  }
  [[nodiscard]] std::vector<sequence> sequences_of(std::span<const token_request> requests) const;
  void run(std::span<const sequence> batch, std::span<const token_request> requests, std::vector<double>& scores);

  Forward* forward_;
  detail::watched forward_life_;
  softmax_statistics<computation> statistics_;
  host_batch batch_;
  std::vector<token> others_;
};

template <class Forward>
auto log_likelihood_scorer<Forward>::sequences_of(std::span<const token_request> requests) const -> std::vector<sequence> {
  forward_life_.require_there("log_likelihood_scorer", "its forward_only");
  const std::size_t vocabulary = forward_->model().config().vocab_size, longest = max_length();
  std::vector<sequence> all(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& [context, continuation] = requests[i];
    require<data_error>(!context.empty() && !continuation.empty(), "evaluation: a context and a continuation must have tokens; request ", i + 1, " has ",
                        context.size(), " and ", continuation.size());
    require<data_error>(continuation.size() <= longest, "evaluation: a continuation must have at most ", longest, " tokens; request ", i + 1, " has ",
                        continuation.size());
    for (const auto* tokens : {&context, &continuation})
      for (const token t : *tokens)
        require<data_error>(t >= 0 && static_cast<std::size_t>(t) < vocabulary, "evaluation: tokens must be in the model's vocabulary of ", vocabulary,
                            "; request ", i + 1, " has ", t, ". Does the tokenizer belong to this model?");
    std::vector<token>& inputs = all[i].inputs;
    inputs = context;
    inputs.insert(inputs.end(), continuation.begin(), continuation.end() - 1);
    if (inputs.size() > longest) inputs.erase(inputs.begin(), inputs.end() - static_cast<std::ptrdiff_t>(longest));
    all[i].length = continuation.size();
    all[i].requests = {i};
  }
  // longest first, equal sequences adjacent
  std::sort(all.begin(), all.end(), [](const sequence& a, const sequence& b) {
    if (a.inputs.size() != b.inputs.size()) return a.inputs.size() > b.inputs.size();
    if (a.inputs != b.inputs) return a.inputs < b.inputs;
    if (a.length != b.length) return a.length < b.length;
    return a.requests.front() < b.requests.front();
  });
  std::vector<sequence> different;
  for (sequence& one : all) {
    if (!different.empty() && different.back().inputs == one.inputs && different.back().length == one.length &&
        different.back().requests.size() < most_alternatives)
      different.back().requests.push_back(one.requests.front());
    else different.push_back(std::move(one));
  }
  return different;
}

template <class Forward>
std::vector<token_score> log_likelihood_scorer<Forward>::score(std::span<const token_request> requests) {
  const std::vector<sequence> all = sequences_of(requests);
  std::vector<double> scores(2 * requests.size());  // log-likelihood, greedy
  const std::size_t each = forward_->settings().micro_batch_size;
  for (std::size_t first = 0; first < all.size(); first += each)
    run(std::span(all).subspan(first, std::min(each, all.size() - first)), requests, scores);
  detail::add_up_stages(forward_->model(), scores);
  std::vector<token_score> result(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i)
    require<non_finite_error>(!std::isnan(scores[2 * i]), "evaluation: log-likelihoods must be numbers; that of request ", i + 1, " is NaN");
  for (std::size_t i = 0; i < requests.size(); ++i) result[i] = {.log_likelihood = scores[2 * i], .is_greedy = scores[2 * i + 1] > 0};
  return result;
}

template <class Forward>
void log_likelihood_scorer<Forward>::run(std::span<const sequence> batch, std::span<const token_request> requests, std::vector<double>& scores) {
  const std::size_t b = batch.size(), longest = batch.front().inputs.size(), t = std::min(max_length(), (longest + 7) / 8 * 8), n = b * t;
  std::size_t alternatives = 1;
  for (const sequence& one : batch) alternatives = std::max(alternatives, one.requests.size());
  batch_.b = b;
  batch_.t = t;
  batch_.tokens.assign(n, 0);
  batch_.targets.assign(n, -1);
  batch_.positions.assign(n, 0);
  batch_.starts.assign(n, 0);
  batch_.target_count = batch_.token_count = 0;
  others_.assign((alternatives - 1) * n, -1);
  for (std::size_t r = 0; r < b; ++r) {
    const sequence& one = batch[r];
    const std::size_t end = one.inputs.size(), begin = end - one.length, row = r * t;
    std::copy(one.inputs.begin(), one.inputs.end(), batch_.tokens.begin() + static_cast<std::ptrdiff_t>(row));
    for (std::size_t i = 0; i < t; ++i) batch_.positions[row + i] = static_cast<token>(i);
    for (std::size_t i = end; i < t; ++i) batch_.starts[row + i] = static_cast<token>(end);  // padding attends to padding
    for (std::size_t k = 0; k < one.requests.size(); ++k) {
      const auto& continuation = requests[one.requests[k]].continuation;
      token* const targets = k == 0 ? batch_.targets.data() : others_.data() + (k - 1) * n;
      std::copy(continuation.begin(), continuation.end(), targets + row + begin);
    }
    batch_.target_count += one.length;
    batch_.token_count += end;
  }
  auto& stream = forward_->model().stream();
  statistics_.begin(stream, others_, n);
  forward_->run(batch_view(batch_), 0, statistics_);
  if (!statistics_.fetch(stream)) return;
  for (std::size_t r = 0; r < b; ++r)
    for (std::size_t k = 0; k < batch[r].requests.size(); ++k) {
      const std::size_t request = batch[r].requests[k], end = r * t + batch[r].inputs.size();
      double sum = 0;
      bool is_greedy = true;
      for (std::size_t i = end - batch[r].length; i < end; ++i) {
        const token_score one = statistics_.score(k, i);
        sum += one.log_likelihood;
        is_greedy = is_greedy && one.is_greedy;
      }
      scores[2 * request] = sum;
      scores[2 * request + 1] = is_greedy ? 1 : 0;
    }
}

}  // namespace xtrain
