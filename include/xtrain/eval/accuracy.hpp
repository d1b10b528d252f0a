// Classification accuracy of an encoder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/data/sentence_loader.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/pass_memory.hpp>

namespace xtrain {

struct accuracy_config {
  std::size_t batch = 8;    ///< sequences per batch
  std::size_t context = 0;  ///< maximum sequence length; 0: the longest in the data
};

/// Accuracy on held-out sequences.
struct label_accuracy {
  std::size_t right = 0;  ///< sequences whose most likely label is the true one
  std::size_t rows = 0;   ///< sequences that have a label

  [[nodiscard]] double share() const { return rows > 0 ? static_cast<double>(right) / static_cast<double>(rows) : 0.0; }
};

namespace detail {

/// Device memory for the label logits of one batch, for any model, including one on the dry-run device.
template <class Model>
struct label_memory {
  using accumulate = typename Model::accumulate;

  batch_memory<typename Model::device> batch;
  buffer<typename Model::device> logits;
  std::vector<accumulate> host;

  label_memory(const Model& model, std::size_t rows, std::size_t places)
      : batch(model.on(), places, sight_of(model)),
        logits(model.on(), rows * model.sizes().labels.size() * sizeof(accumulate), memory_role::batch),
        host(rows * model.sizes().labels.size()) {}

  /// Writes the logits [batch size, labels] to `host`.
  void run(Model& model, pass_memory<Model>& passes, const host_batch& rows) {
    const std::size_t labels = model.sizes().labels.size();
    auto p = passes.new_pass(pass_mode::evaluation);
    p.batch = batch.upload(model.work(), rows);
    const auto on_device = logits.template as<accumulate>().subspan(0, rows.b * labels);
    model.label_logits(p, passes.boundaries(), {on_device, {rows.b, labels}});
    copy_to_host(model.work(), std::span<accumulate>(host.data(), rows.b * labels), on_device);
    model.work().synchronize();
  }
};

}  // namespace detail

/// Runs all sequences through the model once and compares the most likely labels with the true ones. If ranks shard the model, all of
/// them must call it, and each counts all sequences.
///   throws  config_error when sequences exceed the model's sequence length, data_error when a sequence does not fit the model
template <class Model>
[[nodiscard]] label_accuracy accuracy(Model& model, const sentence_dataset& data, accuracy_config settings = {}) {
  const std::size_t longest = model.sizes().context, labels = model.sizes().labels.size();
  if (settings.context == 0) settings.context = data.longest();
  require<config_error>(settings.context <= longest, "accuracy: rows must not be longer than the model's ", longest, " tokens; given ",
                        settings.context);
  require_tokens_below(data, model.sizes().vocabulary);
  const sentence_loader rows(data, {.batch = settings.batch, .context = settings.context, .shuffle = false, .multiple = 1});
  const std::size_t places = settings.batch * settings.context;
  pass_memory<Model> passes(
      model, measure_pass(model, [&](auto& like, auto& memory) {
        host_batch full{.b = settings.batch, .t = settings.context};
        for (auto* values : {&full.tokens, &full.targets, &full.positions, &full.segments}) values->assign(places, 0);
        full.labels.assign(settings.batch, 0);
        full.ends.assign(places, static_cast<token>(settings.context));
        detail::label_memory<std::remove_cvref_t<decltype(like)>>(like, settings.batch, places).run(like, memory, full);
      }));
  detail::label_memory<Model> memory(model, settings.batch, places);
  label_accuracy found;
  std::vector<host_batch> batches;
  for (std::size_t s = 0; s < rows.steps_per_epoch(); ++s) {
    rows.fill({0, s}, batches);
    for (const host_batch& batch : batches) {
      model.require_rows(batch);
      memory.run(model, passes, batch);
      for (std::size_t r = 0; r < batch.b; ++r) {
        if (batch.labels.empty() || batch.labels[r] < 0) continue;
        const auto first = memory.host.begin() + static_cast<std::ptrdiff_t>(r * labels);
        const auto likeliest = std::max_element(first, first + static_cast<std::ptrdiff_t>(labels)) - first;
        found.right += static_cast<token>(likeliest) == batch.labels[r] ? 1 : 0;
        ++found.rows;
      }
    }
  }
  require<data_error>(found.rows > 0, data.source(), ": rows must have labels to be judged by; none has");
  return found;
}

}  // namespace xtrain
