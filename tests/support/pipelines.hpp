// Small pipeline-parallel runs.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <xtrain/parallel/pipeline.hpp>
#include "ranks.hpp"

namespace {

using make_schedule = pipeline_schedule (*)(std::size_t, std::size_t, std::vector<std::size_t>);
make_schedule chosen_schedule = one_forward_one_backward::make;

/// A schedule set at run time: one compiled trainer for all schedules.
struct chosen {
  static constexpr std::string_view name = "chosen";
  static pipeline_schedule make(std::size_t ranks, std::size_t chunks, std::vector<std::size_t> rows) {
    return chosen_schedule(ranks, chunks, std::move(rows));
  }
};

/// All weights by name, gathered on rank 0. Collective.
template <class Model>
std::vector<double> collected(const Model& model) {
  using dtype = typename Model::precision::parameter;
  std::vector<double> all;
  for (const auto& entry : model.parameters().entries()) {
    if (entry.spec.quantized) continue;  // quantized weights are frozen
    std::vector<dtype> host(entry.whole_size());
    model.parallel().collect(model.stream(), model.parameters(), entry, model.parameters().stored_values(), std::span<dtype>(host));
    all.insert(all.end(), host.begin(), host.end());
  }
  return all;
}

struct piped_outcome : outcome {
  std::vector<double> norms;
};

template <class Model>
piped_outcome run_here(const dataset& data, const decoder_config& shape, const run_config& settings, const typename Model::options& options) {
  const typename Model::context_type on;
  Model model(shape, on, options);
  trainer trainer(model, settings);
  history seen;
  trainer.attach(seen);
  trainer.fit(data);
  return {{{seen.losses().begin(), seen.losses().end()}, collected(model), trainer.evaluate(data).loss},
          {seen.gradient_norms().begin(), seen.gradient_norms().end()}};
}

/// Runs on several ranks, which must agree.
template <class Model>
piped_outcome run_pipeline(std::size_t ranks, const dataset& data, const decoder_config& shape, const run_config& settings,
                           typename Model::options options = {}) {
  std::vector<piped_outcome> all(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& network) {
    typename Model::options own = options;
    own.parallel.ranks = network;
    all[network->rank()] = run_here<Model>(data, shape, settings, own);
  });
  for (const piped_outcome& one : all) {
    CHECK(one.losses == all[0].losses);
    CHECK(one.norms == all[0].norms);
    CHECK(one.held_out == all[0].held_out);
  }
  return all[0];
}

[[maybe_unused]] decoder_config layers(std::size_t count, bool tied) {
  decoder_config shape = sizes(tied);
  shape.num_layers = count;
  shape.hidden_size = 16;
  shape.intermediate_size = 24;
  shape.embedding_dropout = 0.1;
  return shape;
}

}  // namespace
