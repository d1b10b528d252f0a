// Classification accuracy of an encoder.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/data/sentence_loader.hpp>
#include <xtrain/device/pinned_memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/pass_memory.hpp>

namespace xtrain {

/// Settings of accuracy.
struct accuracy_config {
  std::size_t micro_batch_size = 8;  ///< sequences
  std::size_t seq_length = 0;        ///< 0: the longest in the data
};

/// Accuracy on held-out sequences.
struct label_accuracy {
  std::size_t right = 0;  ///< most likely label = true label
  std::size_t rows = 0;   ///< sequences with a label

  [[nodiscard]] double share() const { return rows > 0 ? static_cast<double>(right) / static_cast<double>(rows) : 0.0; }
};

namespace detail {

/// Device memory for a batch's label logits; also on the dry-run device.
template <class Model>
struct label_memory {
  using accumulate = typename Model::accumulate;

  batch_memory<typename Model::device> batch;
  batch_staging<typename Model::device> staging;
  buffer<typename Model::device> logits;
  pinned_memory<typename Model::device> on_host;

  label_memory(const Model& model, std::size_t rows, std::size_t num_tokens)
      : batch(model.context(), num_tokens, attention_mask_of(model)), staging(model.context(), num_tokens, 1, attention_mask_of(model)),
        logits(model.context(), rows * model.config().labels.size() * sizeof(accumulate), memory_role::batch),
        on_host(model.context(), rows * model.config().labels.size() * sizeof(accumulate)) {}

  [[nodiscard]] std::span<accumulate> host() const { return on_host.template as<accumulate>(); }
  /// Writes logits [batch size, labels] to host().
  void run(Model& model, pass_memory<Model>& passes, const host_batch& rows) {
    const std::size_t labels = model.config().labels.size();
    auto p = passes.new_pass(pass_mode::evaluation);
    p.batch = batch.upload(model.stream(), rows, &staging);
    const auto on_device = logits.template as<accumulate>().subspan(0, rows.b * labels);
    model.label_logits(p, passes.layer_inputs(), {on_device, {rows.b, labels}});
    copy_to_host(model.stream(), host().first(rows.b * labels), on_device);
    model.stream().synchronize();
  }
};

}  // namespace detail

/// Compares most likely with true labels, in one pass over the data. Ranks that shard the model must all call it; each counts all sequences.
///   throws  config_error when sequences exceed the model's maximum, or no pipeline rank has the entire model; data_error when a sequence does not
///           fit the model
template <class Model>
[[nodiscard]] label_accuracy accuracy(Model& model, const sentence_dataset& data, accuracy_config settings = {}) {
  const std::size_t longest = model.config().max_position_embeddings, labels = model.config().labels.size();
  if (settings.seq_length == 0) settings.seq_length = data.longest();
  require<config_error>(settings.seq_length <= longest, "accuracy: sequences must not be longer than the model's ", longest, " tokens; given ",
                        settings.seq_length);
  require_tokens_below(data, model.config().vocab_size);
  const sentence_loader rows(
      data, {.micro_batch_size = settings.micro_batch_size, .seq_length = settings.seq_length, .shuffle = false, .pad_to_multiple_of = 1});
  const std::size_t num_tokens = settings.micro_batch_size * settings.seq_length;
  pass_memory<Model> passes(
      model, measure_pass(model, [&](auto& like, auto& memory) {
        host_batch full{.b = settings.micro_batch_size, .t = settings.seq_length};
        for (auto* values : {&full.tokens, &full.targets, &full.positions, &full.segments}) values->assign(num_tokens, 0);
        full.labels.assign(settings.micro_batch_size, 0);
        full.ends.assign(num_tokens, static_cast<token>(settings.seq_length));
        detail::label_memory<std::remove_cvref_t<decltype(like)>>(like, settings.micro_batch_size, num_tokens).run(like, memory, full);
      }));
  detail::label_memory<Model> memory(model, settings.micro_batch_size, num_tokens);
  label_accuracy found;
  std::vector<host_batch> batches;
  for (std::size_t s = 0; s < rows.steps_per_epoch(); ++s) {
    rows.fill({0, s}, batches);
    for (const host_batch& batch : batches) {
      model.require_batch(batch);
      memory.run(model, passes, batch);
      for (std::size_t r = 0; r < batch.b; ++r) {
        if (batch.labels.empty() || batch.labels[r] < 0) continue;
        const auto first = memory.host().begin() + static_cast<std::ptrdiff_t>(r * labels);
        const auto likeliest = std::max_element(first, first + static_cast<std::ptrdiff_t>(labels)) - first;
        found.right += static_cast<token>(likeliest) == batch.labels[r] ? 1 : 0;
        ++found.rows;
      }
    }
  }
  require<data_error>(found.rows > 0, data.source(), ": sequences must have labels; none has");
  return found;
}

}  // namespace xtrain
