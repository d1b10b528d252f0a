// Small runs on ranks that are threads.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <xtrain/comm/threads.hpp>
#include <xtrain/io.hpp>

namespace {

using namespace xtrain;

template <class Parallel>
struct recipe : defaults {
  using parallel = Parallel;
};
template <class Parallel>
struct bf16_recipe : recipe<Parallel> {
  using precision = bf16_mixed;
};
template <class Parallel>
struct lora_recipe : recipe<Parallel> {
  using adapter = lora;
};
template <class Parallel>
struct recomputing_recipe : recipe<Parallel> {
  using recompute = recompute_full;
};

[[maybe_unused]] decoder_config sizes(bool tied) {
  return {.vocab_size = 97,
          .hidden_size = 24,
          .num_layers = 3,
          .num_heads = 2,
          .intermediate_size = 40,
          .max_position_embeddings = 24,
          .tie_word_embeddings = tied,
          .attention_dropout = 0.1,
          .residual_dropout = 0.2,
          .pad_token_id = 31};
}

[[maybe_unused]] dataset sentences() {
  dataset all("sentences", sequence_layout::separate);
  for (std::size_t s = 0; s < 64; ++s) {
    std::vector<token> tokens;
    for (std::size_t i = 0; i < 5 + (s * 7) % 18; ++i) tokens.push_back(static_cast<token>((s * 31 + i * i * 5) % 97));
    all.add(tokens, [](std::size_t i) { return i > 1; });
  }
  all.finish();
  return all;
}

struct outcome {
  std::vector<double> losses;
  std::vector<double> weights;
  double held_out = 0;
};

/// Unsharded weights by name, gathered from their owner ranks; of a pipeline, this stage's. Collective.
template <class Model>
std::vector<double> all_weights(const Model& model) {
  using dtype = typename Model::precision::parameter;
  std::vector<double> all;
  for (const auto& entry : model.parameters().entries()) {
    if (!entry.is_here) continue;
    model.parallel().block_begins(model.stream(), model.parameters(), entry.block, block_visit::evaluation);
    std::vector<dtype> host(entry.size());
    copy_to_host(model.stream(), std::span<dtype>(host), model.parameters().value(entry));
    model.stream().synchronize();
    model.parallel().block_ends(model.stream(), model.parameters(), entry.block, block_visit::evaluation);
    all.insert(all.end(), host.begin(), host.end());
  }
  return all;
}

template <class Model, class Config>
outcome train(const dataset& data, const decoder_config& shape, const Config& settings, const typename Model::options& options) {
  const typename Model::context_type on;
  Model model(shape, on, options);
  trainer trainer(model, settings);
  history seen;
  trainer.attach(seen);
  trainer.fit(data);
  return {{seen.losses().begin(), seen.losses().end()}, all_weights(model), trainer.evaluate(data).loss};
}

/// Runs on several ranks, which must agree.
template <class Model, class Config>
outcome train_on_ranks(std::size_t ranks, const dataset& data, const decoder_config& shape, const Config& settings, std::size_t shards = 0) {
  std::vector<outcome> all(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    all[network->rank()] = train<Model>(data, shape, settings, {.parallel = {.ranks = network, .shards = shards}});
  });
  for (const outcome& one : all) {
    CHECK(one.losses == all[0].losses);
    CHECK(one.weights == all[0].weights);
    CHECK(one.held_out == all[0].held_out);
  }
  return all[0];
}

[[maybe_unused]] double difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

using run_config = training_config<adamw>;


}  // namespace
