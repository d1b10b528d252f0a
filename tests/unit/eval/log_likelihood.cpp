// Log-likelihoods of continuations: against logits, and equal on ranks.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <xtrain/eval/log_likelihood.hpp>
#include <xtrain/eval/logits.hpp>
#include <xtrain/parallel.hpp>
#include <xtrain/train/forward_only.hpp>

#include "ranks.hpp"

namespace {

/// Answers that differ in their last token (ten: more than one sequence), other lengths, and a context that is too long.
std::vector<token_request> requests() {
  std::vector<token_request> all;
  const auto tokens = [](std::size_t n, std::size_t seed) {
    std::vector<token> some;
    for (std::size_t i = 0; i < n; ++i) some.push_back(static_cast<token>((seed * 31 + i * i * 7 + 3 * i) % 97));
    return some;
  };
  for (std::size_t a = 0; a < 10; ++a) all.push_back({.context = tokens(5, 1), .continuation = {3, static_cast<token>(4 * a + 1)}});
  for (std::size_t n = 1; n < 9; ++n) all.push_back({.context = tokens(2 * n, n), .continuation = tokens(1 + n % 4, n + 50)});
  all.push_back({.context = tokens(60, 2), .continuation = tokens(3, 9)});
  all.push_back({.context = tokens(5, 1), .continuation = {4, 9}});
  return all;
}

template <class Parallel>
std::vector<token_score> scores_of(const typename Parallel::config& layout, std::size_t batch_size) {
  using model_type = llama<recipe<Parallel>>;
  const typename model_type::context_type on;
  model_type model(sizes(false), on, {.parallel = layout, .seed = 3});
  forward_only<shared_model<model_type>> passes(model, {.micro_batch_size = batch_size});
  log_likelihood_scorer scorer(passes);
  return scorer.score(requests());
}

void check_equal(const std::vector<token_score>& a, const std::vector<token_score>& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(a[i].log_likelihood - b[i].log_likelihood) < 2e-5);  // fp32 sums in another order
    CHECK(a[i].is_greedy == b[i].is_greedy);
  }
}

}  // namespace

TEST_CASE("log-likelihoods are those of the logits, whatever the batch size") {
  using model_type = llama<recipe<single>>;
  model_type model(sizes(false), model_type::context_type(), {.seed = 3});
  const std::vector<token_request> all = requests();
  const auto found = scores_of<single>({}, 4);
  check_equal(found, scores_of<single>({}, 1));
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<token> whole = all[i].context;
    whole.insert(whole.end(), all[i].continuation.begin(), all[i].continuation.end());
    if (whole.size() > 25) whole.erase(whole.begin(), whole.end() - 25);
    array<token, 2> inputs(shape_of_rank<2>{1, whole.size() - 1});
    std::copy(whole.begin(), whole.end() - 1, inputs.data());
    const auto logits_btv = logits(model, inputs);
    double sum = 0;
    bool is_greedy = true;
    for (std::size_t t = whole.size() - all[i].continuation.size(); t < whole.size(); ++t) {
      double largest = -INFINITY, total = 0;
      for (std::size_t v = 0; v < 97; ++v) largest = std::max(largest, static_cast<double>(logits_btv(0, t - 1, v)));
      for (std::size_t v = 0; v < 97; ++v) total += std::exp(static_cast<double>(logits_btv(0, t - 1, v)) - largest);
      const double target = static_cast<double>(logits_btv(0, t - 1, static_cast<std::size_t>(whole[t])));
      sum += target - largest - std::log(total);
      is_greedy = is_greedy && target >= largest;
    }
    CAPTURE(i);
    CHECK(std::abs(found[i].log_likelihood - sum) < 2e-5);
    CHECK(found[i].is_greedy == is_greedy);
  }
}

TEST_CASE("every rank has all log-likelihoods: tensor parallelism, ZeRO, pipelines") {
  const auto alone = scores_of<single>({}, 4);
  using sharded = parallel<zero<3>, tensor_parallel>;
  std::vector<std::vector<token_score>> found(2);
  for (const std::size_t tensor : {1U, 2U}) {
    run_ranks(2, [&](const std::shared_ptr<transport>& network) {
      found[network->rank()] = scores_of<sharded>({.ranks = network, .tensor_parallel_size = tensor}, 4);
    });
    for (const auto& one : found) check_equal(one, alone);
  }
  run_ranks(2, [&](const std::shared_ptr<transport>& network) { found[network->rank()] = scores_of<pipeline<>>({.ranks = network}, 4); });
  for (const auto& one : found) check_equal(one, alone);
}
