// A data-parallel encoder equals one device.
#include <doctest/doctest.h>

#include <xtrain/data/sentence_batch.hpp>
#include <xtrain/models/bert.hpp>
#include <xtrain/parallel/zero.hpp>
#include "ranks.hpp"

namespace {

encoder_config small() {
  return {.vocab_size = 61, .hidden_size = 24, .num_layers = 3, .num_heads = 2, .intermediate_size = 40, .max_position_embeddings = 16, .labels = {"a", "b"}};
}

/// Sequences [first, first + count) of a batch: masked tokens, and a label for each sequence.
host_batch some_rows(std::size_t first, std::size_t count) {
  constexpr std::size_t t = 9;
  std::vector<token> tokens, segments, mask, targets, labels;
  for (std::size_t r = first; r < first + count; ++r) {
    labels.push_back(static_cast<token>(r % 2));
    for (std::size_t i = 0; i < t; ++i) {
      const bool there = i < t - r % 3;
      tokens.push_back(there ? static_cast<token>((r * 13 + i * 7) % 61) : 0);
      segments.push_back(i > 4 ? 1 : 0);
      mask.push_back(there ? 1 : 0);
      targets.push_back(there && i % 4 == 1 ? static_cast<token>((r + i) % 61) : -1);
    }
  }
  host_batch rows = sentence_batch({.b = count, .t = t, .tokens = tokens, .segments = segments, .mask = mask, .targets = targets, .labels = labels});
  rows.first_sequence = first;
  return rows;
}

template <class Parallel>
std::vector<double> weights_after(std::size_t ranks) {
  std::vector<double> weights;
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    using model_type = bert_pretraining<recipe<Parallel>>;
    typename model_type::options options;
    if constexpr (!std::is_same_v<Parallel, single>) options.parallel.ranks = network;
    model_type model(small(), {}, options);
    const std::size_t each = 4 / ranks;
    trainer trainer(model, training_config<adamw>{.max_steps = 5, .micro_batch_size = each, .seq_length = 9});
    for (int step = 0; step < 5; ++step) {
      const host_batch rows = some_rows(network->rank() * each, each);
      (void)trainer.step(std::span<const host_batch>(&rows, 1), 1e-3);
    }
    const std::vector<double> mine = all_weights(model);
    if (network->rank() == 0) weights = mine;
  });
  return weights;
}

}  // namespace

TEST_CASE("words and labels, on two and four ranks") {
  const std::vector<double> one = weights_after<single>(1);
  CHECK(difference(one, weights_after<data_parallel>(2)) < 2e-5);
  CHECK(difference(one, weights_after<zero<3>>(2)) < 2e-5);
  CHECK(difference(one, weights_after<zero<2>>(4)) < 2e-5);
}
