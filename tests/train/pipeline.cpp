// Pipelines of every schedule equal one device at the same tokens per step.
#include <doctest/doctest.h>

#include <mutex>

#include <xtrain/models/gpt2.hpp>
#include <xtrain/parallel/pipeline.hpp>
#include "ranks.hpp"

namespace {

template <class Schedule>
struct name_of_schedule;

decoder_config four_layers(bool tied) {
  decoder_config shape = sizes(tied);
  shape.layers = 4;
  return shape;
}

/// All weights by name, from whichever ranks have them: on rank 0. All ranks call it.
template <class Model>
std::vector<double> collected(const Model& model) {
  using number = typename Model::precision::parameter;
  std::vector<double> all;
  for (const auto& entry : model.parameters().entries()) {
    std::vector<number> host(entry.size());
    model.parallel().collect(model.work(), model.parameters(), entry, model.parameters().kept_values(), std::span<number>(host));
    all.insert(all.end(), host.begin(), host.end());
  }
  return all;
}

template <class Model>
outcome run_here(const dataset& data, const decoder_config& shape, const run_config& settings, const typename Model::options& options) {
  const typename Model::context on;
  Model model(shape, on, options);
  trainer trainer(model, settings);
  history seen;
  trainer.attach(seen);
  trainer.fit(data);
  return {{seen.losses().begin(), seen.losses().end()}, collected(model), trainer.evaluate(data).loss};
}

template <class Model>
outcome run_pipeline(std::size_t ranks, const dataset& data, const decoder_config& shape, const run_config& settings, const pipeline_ranks& how = {}) {
  std::vector<outcome> all(ranks);
  run_ranks(ranks, [&](const std::shared_ptr<transport>& wires) {
    typename Model::options options{.parallel = how};
    options.parallel.ranks = wires;
    all[wires->rank()] = run_here<Model>(data, shape, settings, options);
  });
  for (const outcome& one : all) {
    CHECK(one.losses == all[0].losses);
    CHECK(one.held_out == all[0].held_out);
  }
  return all[0];
}

}  // namespace

TEST_CASE("llama on two ranks, one forward, one backward") {
  const dataset data = sentences();
  const run_config settings{.steps = 5, .batch = 2, .accumulate = 4, .learning_rate = 1e-3, .max_gradient_norm = 0};
  const outcome one = run_here<llama<recipe<single>>>(data, four_layers(false), settings, {});
  const outcome two = run_pipeline<llama<recipe<pipeline<>>>>(2, data, four_layers(false), settings);
  CHECK(one.losses == two.losses);
  CHECK(one.weights == two.weights);
  CHECK(one.held_out == two.held_out);
}
