#pragma once

#include <cstddef>
#include <span>

#include <xtrain/device/memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/pass_sizes.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/tensor/arena.hpp>

namespace xtrain {

/// Runs micro-batches one after another. Same members as pipeline_runner.
template <class Model>
class whole_model_runner {
 public:
  using computation = model_computation<Model>;
  using device = typename computation::device;

  /// Batches have up to `batch` sequences of `context` tokens; `sizes`: memory of a pass, from a dry run.
  ///   throws  memory_error
  whole_model_runner(Model& model, std::size_t batch, std::size_t, std::size_t context, const pass_sizes& sizes)
      : model_(&model), layer_inputs_(model.context(), sizes.layer_inputs), saved_(model.context(), sizes.saved),
        rows_(model.context(), batch * context, attention_mask_of(model), context_shard_of(model.parallel())) {
    layer_inputs_.reserve(sizes.layer_input_entries);
    saved_.reserve(sizes.saved_entries);
  }

  [[nodiscard]] std::size_t num_tokens() const { return rows_.num_tokens(); }
  [[nodiscard]] static std::size_t chunks() { return 1; }
  [[nodiscard]] const batch_memory<device>& rows() const { return rows_; }
  static void require_batches(std::span<const batch_view>) {}
  void forget() {
    layer_inputs_.drop(0);
    saved_.drop(0);
  }
  [[nodiscard]] pass_sizes high_water() const {
    return {.layer_inputs = layer_inputs_.high_water(), .saved = saved_.high_water(), .layer_input_entries = layer_inputs_.reserved(),
            .saved_entries = saved_.reserved()};
  }
  [[nodiscard]] static std::size_t stash_bytes(const pass_sizes& each) { return each.stash(); }

  template <class Prepare, class Losses, class Sum>
  void run(const execution<device>& on, std::span<const batch_view> batches, batch_staging<device>& staging, Prepare&& prepare, Losses&& losses, Sum&& sum) {
    for (std::size_t m = 0; m < batches.size(); ++m) {
      pass<computation> p = begin(on, batches[m], pass_mode::training, &staging);
      prepare(p, m);
      model_->forward(p, layer_inputs_, losses(p.batch.n()));
      model_->backward(p, layer_inputs_, m + 1 == batches.size());
      sum(p.batch.n());
    }
  }
  template <class Prepare, class Losses, class Sum>
  void evaluate(const execution<device>& on, const batch_view& batch, Prepare&& prepare, Losses&& losses, Sum&& sum,
                batch_staging<device>* staging = nullptr) {
    pass<computation> p = begin(on, batch, pass_mode::evaluation, staging);
    prepare(p);
    model_->forward(p, layer_inputs_, losses(p.batch.n()));
    sum(p.batch.n());
  }

 private:
  [[nodiscard]] pass<computation> begin(const execution<device>& on, const batch_view& batch, pass_mode mode, batch_staging<device>* staging) {
    pass<computation> p(on, model_->parameters(), saved_, layer_parallel_of(*model_));
    p.mode = mode;
    p.batch = rows_.upload(on.stream, batch, staging);
    return p;
  }

  Model* model_;
  stash<device> layer_inputs_, saved_;
  batch_memory<device> rows_;
};

}  // namespace xtrain
