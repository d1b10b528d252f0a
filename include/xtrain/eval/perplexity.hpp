// Loss and perplexity on a dataset, without a trainer.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/thread_use.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/eval/concepts.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/pass_memory.hpp>

namespace xtrain {

/// Settings of perplexity.
struct perplexity_config {
  std::size_t micro_batch_size = 8;  ///< sequences
  std::size_t seq_length = 0;        ///< in tokens; 0: the model's maximum
};

namespace detail {

/// Device memory for a batch's losses; also on the dry-run device.
template <class Model>
struct loss_memory {
  using accumulate = typename Model::accumulate;

  batch_memory<typename Model::device> batch;
  batch_staging<typename Model::device> staging;
  buffer<typename Model::device> losses;
  pinned_memory<typename Model::device> on_host;

  loss_memory(const Model& model, std::size_t num_tokens)
      : batch(model.context(), num_tokens, attention_mask_of(model)), staging(model.context(), num_tokens, 1, attention_mask_of(model)),
        losses(model.context(), num_tokens * sizeof(accumulate), memory_role::batch), on_host(model.context(), num_tokens * sizeof(accumulate)) {}

  /// Sum over targets, in a fixed order.
  [[nodiscard]] double sum(Model& model, pass_memory<Model>& passes, const host_batch& rows) {
    const std::size_t n = rows.b * rows.t;
    auto p = passes.new_pass(pass_mode::evaluation);
    p.batch = batch.upload(model.stream(), rows, &staging);
    const auto on_device = losses.template as<accumulate>().subspan(0, n);
    model.forward(p, passes.layer_inputs(), {on_device, {n}});
    const auto host = on_host.template as<accumulate>().first(n);
    copy_to_host(model.stream(), host, on_device);
    model.stream().synchronize();
    double total = 0;
    for (std::size_t i = 0; i < n; ++i) total += static_cast<double>(host[i]);
    return total;
  }
};

}  // namespace detail

///   throws  config_error when sequences exceed the model's maximum, data_error when a token is unknown, memory_error
template <class Model>
[[nodiscard]] evaluation perplexity(Model& model, const dataset& data, perplexity_config settings = {}) {
  const std::size_t longest = model.config().max_position_embeddings;
  if (settings.seq_length == 0) settings.seq_length = longest;
  require<config_error>(settings.seq_length <= longest, "perplexity: seq_length must not be longer than the model's ", longest, " tokens; given ",
                        settings.seq_length);
  require_tokens_below(data, model.config().vocab_size);
  const auto use = detail::use_of(model, "perplexity");
  const loader rows(data, {.micro_batch_size = settings.micro_batch_size, .seq_length = settings.seq_length, .shuffle = false});
  const std::size_t num_tokens = settings.micro_batch_size * settings.seq_length;
  pass_memory<Model> passes(model, measure_pass(model, [&](auto& like, auto& memory) {
                              host_batch full{.b = settings.micro_batch_size, .t = settings.seq_length};
                              for (auto* values : {&full.tokens, &full.targets, &full.positions, &full.starts}) values->assign(num_tokens, 0);
                              (void)detail::loss_memory<std::remove_cvref_t<decltype(like)>>(like, num_tokens).sum(like, memory, full);
                            }));
  detail::loss_memory<Model> memory(model, num_tokens);
  return evaluate_batches(rows, [&](const host_batch& batch) { return memory.sum(model, passes, batch); });
}

}  // namespace xtrain
