// Small context-parallel runs, against one device.
#pragma once

#include <doctest/doctest.h>

#include <xtrain/parallel/zero.hpp>
#include "ranks.hpp"

namespace {

decoder_config four_heads(bool tied) {
  decoder_config shape = sizes(tied);
  shape.num_heads = 4;
  return shape;
}

/// The same sentences, packed.
dataset packed_sentences() {
  dataset all("packed sentences", sequence_layout::packed);
  for (std::size_t s = 0; s < 64; ++s) {
    std::vector<token> tokens;
    for (std::size_t i = 0; i < 3 + (s * 5) % 9; ++i) tokens.push_back(static_cast<token>((s * 31 + i * i * 5) % 97));
    all.add(tokens, [](std::size_t i) { return i > 1; });
  }
  all.finish();
  return all;
}

struct cut {
  std::size_t ranks = 1, context_parallel_size = 1, tensor_parallel_size = 1;
};

template <class Model>
outcome train_shared(const cut& how, const dataset& data, const decoder_config& shape, const run_config& settings, typename Model::options options = {}) {
  std::vector<outcome> all(how.ranks);
  run_ranks(how.ranks, [&](const std::shared_ptr<transport>& network) {
    typename Model::options own = options;
    own.parallel = {.ranks = network, .tensor_parallel_size = how.tensor_parallel_size, .context_parallel_size = how.context_parallel_size};
    all[network->rank()] = train<Model>(data, shape, settings, own);
  });
  for (const outcome& one : all) {
    CHECK(one.losses == all[0].losses);
    CHECK(one.held_out == all[0].held_out);
    if (how.tensor_parallel_size == 1) CHECK(one.weights == all[0].weights);
  }
  return all[0];
}

/// Eight steps of four sequences give the same result for any sharding of tokens. Not with epsilon 1e-8: AdamW divides by |gradient| + epsilon, so a gradient
/// of pure rounding error would change its weight as much as any other.
template <template <class> class Recipe, template <class> class Family, class Shared = context_parallel>
void equals_one(const decoder_config& shape, const cut& how, const dataset& data = sentences(),
                const typename Family<Recipe<single>>::options& options = {}) {
  const run_config settings{.max_steps = 8, .micro_batch_size = 2, .gradient_accumulation_steps = 2, .learning_rate = 1e-3, .optimizer = {.epsilon = 1e-5}};
  constexpr double bound = 2e-6;
  run_config shared = settings;
  shared.gradient_accumulation_steps = settings.gradient_accumulation_steps * how.context_parallel_size * how.tensor_parallel_size / how.ranks;
  const outcome one = train<Family<Recipe<single>>>(data, shape, settings, options);
  typename Family<Recipe<Shared>>::options shared_options;
  shared_options.adapter = options.adapter;
  const outcome divided = train_shared<Family<Recipe<Shared>>>(how, data, shape, shared, shared_options);
  CHECK(difference(one.losses, divided.losses) < bound);
  CHECK(std::abs(one.held_out - divided.held_out) < bound);
  if (how.tensor_parallel_size == 1) CHECK(difference(one.weights, divided.weights) < bound);
}

}  // namespace
