// Loss and perplexity of a model on a dataset, without a trainer.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/eval/concepts.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/pass_memory.hpp>

namespace xtrain {

struct perplexity_config {
  std::size_t batch = 8;    ///< sequences per batch
  std::size_t context = 0;  ///< maximum sequence length in tokens; 0: the model's
};

namespace detail {

/// Device memory for the losses of one batch, for any model, including one on the dry-run device.
template <class Model>
struct loss_memory {
  using accumulate = typename Model::accumulate;

  batch_memory<typename Model::device> batch;
  buffer<typename Model::device> losses;
  std::vector<accumulate> host;

  loss_memory(const Model& model, std::size_t places)
      : batch(model.on(), places, sight_of(model)), losses(model.on(), places * sizeof(accumulate), memory_role::batch), host(places) {}

  /// The sum over a batch's targets, in a fixed order.
  [[nodiscard]] double sum(Model& model, pass_memory<Model>& passes, const host_batch& rows) {
    const std::size_t n = rows.b * rows.t;
    auto p = passes.new_pass(pass_mode::evaluation);
    p.batch = batch.upload(model.work(), rows);
    const auto on_device = losses.template as<accumulate>().subspan(0, n);
    model.forward(p, passes.boundaries(), {on_device, {n}});
    copy_to_host(model.work(), std::span<accumulate>(host.data(), n), on_device);
    model.work().synchronize();
    double total = 0;
    for (std::size_t i = 0; i < n; ++i) total += static_cast<double>(host[i]);
    return total;
  }
};

}  // namespace detail

/// Runs all sequences of the data through the model once.
///   throws  config_error when sequences exceed the model's sequence length, data_error when a token is not in the vocabulary,
///           memory_error when the pass does not fit
template <class Model>
[[nodiscard]] evaluation perplexity(Model& model, const dataset& data, perplexity_config settings = {}) {
  const std::size_t longest = model.sizes().context;
  if (settings.context == 0) settings.context = longest;
  require<config_error>(settings.context <= longest, "perplexity: context must not be longer than the model's ", longest, " tokens; given ",
                        settings.context);
  require_tokens_below(data, model.sizes().vocabulary);
  const loader rows(data, {.batch = settings.batch, .context = settings.context, .shuffle = false});
  const std::size_t places = settings.batch * settings.context;
  pass_memory<Model> passes(model, measure_pass(model, [&](auto& like, auto& memory) {
                              host_batch full{.b = settings.batch, .t = settings.context};
                              for (auto* values : {&full.tokens, &full.targets, &full.positions, &full.starts}) values->assign(places, 0);
                              (void)detail::loss_memory<std::remove_cvref_t<decltype(like)>>(like, places).sum(like, memory, full);
                            }));
  detail::loss_memory<Model> memory(model, places);
  return evaluate_rows(rows, [&](const host_batch& batch) { return memory.sum(model, passes, batch); });
}

}  // namespace xtrain
