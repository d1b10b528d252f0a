// The device memory of a generator, and one pass through the model with the KV cache.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/layers/attention_mask.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/kv_cache.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/pass_memory.hpp>
#include <xtrain/parallel/pipeline/stage_message.hpp>
#include <xtrain/tensor/shard_spec.hpp>
#include <xtrain/tensor/tensor.hpp>

namespace xtrain::detail {

/// The model's layers are on several ranks, in stages.
template <class Model>
inline constexpr bool model_has_stages = requires(Model& model) {
  model.parallel().blocks_of(std::size_t{0});
  model.parallel().between();
};

/// Which layers this rank has.
struct own_layers {
  std::vector<std::size_t> indices{};  // in the cache, of every layer of the model; empty: all of them, in order
  std::size_t count = 0;
};

template <class Model>
[[nodiscard]] own_layers own_layers_of(const Model& model) {
  const std::size_t layers = model.config().num_layers;
  if constexpr (model_has_stages<Model>) {
    own_layers own;
    own.indices.assign(layers, 0);
    auto& stages = model.parallel();
    for (std::size_t chunk = 0; chunk < stages.chunks(); ++chunk)
      for (std::size_t layer = 0; layer < layers; ++layer)
        if (stages.blocks_of(chunk).has(layer + 1)) own.indices[layer] = own.count++;
    return own;
  } else {
    return {{}, layers};
  }
}

/// Device memory for `slots` sequences of up to `capacity` tokens, for any model, including one on the dry-run device.
template <class Model>
class decoding_memory {
 public:
  using device = typename Model::device;
  using memory = typename Model::memory;
  using compute = typename Model::compute;
  using accumulate = typename Model::accumulate;

  decoding_memory(const Model& model, std::size_t slots, std::size_t capacity, std::size_t piece)
      : slots_(slots), capacity_(capacity), layers_(own_layers_of(model)), batch_(model.context(), slots * piece, attention_mask_of(model)),
        keys_(model.context(), model.cache_shape(layers_.count, slots, capacity), memory_role::cache),
        values_(model.context(), model.cache_shape(layers_.count, slots, capacity), memory_role::cache),
        lengths_(model.context(), {slots}, memory_role::cache), chosen_(model.context(), {slots}, memory_role::batch),
        logits_(model.context(), {slots, model.config().vocab_size}, memory_role::batch), host_logits_(slots * model.config().vocab_size) {}

  /// b sequences with t new tokens each, after the cached lengths; row r of the logits is for position chosen[r].
  struct decode_batch {
    std::size_t b = 0, t = 0;
    std::size_t first_slot = 0;  // of the cache
    std::vector<token> tokens{}, targets{}, positions{}, starts{}, withins{}, ends{};
    std::size_t first_sequence = 0;
    std::vector<token> lengths{};
    std::vector<token> chosen{};
    bool cache_is_empty = false;
  };
  /// returns  logits [chosen, vocabulary]; of a pipeline, and of tensor-parallel ranks, on every rank
  std::span<const accumulate> run(Model& model, pass_memory<Model>& passes, const decode_batch& rows) {
    auto& stream = model.stream();
    const std::size_t chosen = rows.chosen.size(), vocab_size = model.config().vocab_size;
    const auto lengths_b = lengths_.view().rows(0, rows.b);
    const auto chosen_r = chosen_.view().rows(0, chosen);
    const auto logits_rv = logits_.view().rows(0, chosen);
    copy_to_device(stream, lengths_b.span(), rows.lengths);
    copy_to_device(stream, chosen_r.span(), rows.chosen);
    const auto batch = batch_.upload(stream, rows);
    const cache_view<device, compute> cache{.capacity = capacity_,
                                            .slots = slots_,
                                            .first_slot = rows.first_slot,
                                            .lengths_b = lengths_b,
                                            .keys = keys_.view(),
                                            .values = values_.view(),
                                            .is_empty = rows.cache_is_empty,
                                            .layers = layers_.indices};
    const auto new_pass = [&] {
      auto p = passes.new_pass(pass_mode::evaluation);
      p.batch = batch;
      p.internal.cache = &cache;
      return p;
    };
    if constexpr (model_has_stages<Model>) {
      run_stages(model, passes, new_pass, chosen_r, logits_rv);
    } else {
      auto p = new_pass();
      model.logits(p, passes.layer_inputs(), chosen_r, logits_rv);
    }
    const std::span<accumulate> host = std::span(host_logits_).first(chosen * vocab_size);
    copy_to_host(stream, host, logits_rv.span());
    stream.synchronize();
    return host;
  }

  /// Of this rank.
  [[nodiscard]] std::size_t layers() const { return layers_.count; }

  /// Copies the first `tokens` cached tokens of a slot to another one.
  void copy_slot(Model& model, std::size_t from, std::size_t to, std::size_t tokens) {
    const std::size_t k = model.kv_heads(), n = tokens * model.config().head_dim;
    for (std::size_t layer = 0; layer < layers_.count; ++layer)
      for (std::size_t head = 0; head < k; ++head)
        for (auto* cache : {&keys_, &values_}) {
          const auto row = [&](std::size_t slot) { return cache->view().rows((layer * slots_ + slot) * k + head, 1).span().subspan(0, n); };
          copy_within(model.stream(), row(to), device_span<const compute, memory>(row(from)));
        }
  }

 private:
  /// Hidden states go from stage to stage; the last one has the logits, and sends them to all.
  template <class NewPass, class Chosen, class Logits>
  void run_stages(Model& model, pass_memory<Model>& passes, NewPass&& new_pass, const Chosen& chosen_r, const Logits& logits_rv) {
    auto& stages = model.parallel();
    auto& stream = model.stream();
    const std::size_t ranks = stages.depth(), own = stages.position(), layers = model.config().num_layers;
    for (std::size_t chunk = 0; chunk < stages.chunks(); ++chunk) {
      const bool first = stages.is_first(chunk), last = stages.is_last(chunk);
      auto p = new_pass();
      const std::size_t n = p.batch.n(), c = model.config().hidden_size;
      const matrix_view<compute, memory> x{passes.layer_inputs().template push<compute>(n * c), {n, c}};
      if (!first) {
        message_.receive(stream, stages.between(), (own + ranks - 1) % ranks, x.span());
        message_.wait(stream);
      }
      const block_range& blocks = stages.blocks_of(chunk);
      const auto y = model.forward_blocks(p, passes.layer_inputs(), {blocks.first, last ? layers + 1 : blocks.last}, x, {});
      if (last) {
        model.logits_of(p, y, chosen_r, logits_rv);
      } else {
        message_.send(stream, stages.between(), (own + 1) % ranks, device_span<const compute, memory>(y.span()));
        message_.wait(stream);
      }
      passes.forget();
    }
    if (ranks > 1) stages.between().broadcast(stream, logits_rv.span(), ranks - 1);
  }

  std::size_t slots_, capacity_;
  own_layers layers_;
  batch_memory<device> batch_;
  tensor<compute, 2, device> keys_, values_;
  tensor<token, 1, device> lengths_, chosen_;
  tensor<accumulate, 2, device> logits_;
  std::vector<accumulate> host_logits_;
  stage_message<device, compute> message_;
};

}  // namespace xtrain::detail
