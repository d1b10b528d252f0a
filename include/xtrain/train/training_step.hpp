// One optimizer step: forward and backward passes of its micro-batches, which add up their gradients; the gradient norm; clipping; and the
// optimizer. Evaluation uses the same memory for forward passes alone.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/require_batch.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/train/checked_recipe.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/step_memory.hpp>

namespace xtrain::detail {

/// Results of the forward and backward passes of a whole step.
struct step_sums {
  double loss = 0;  // mean over targets
  double gradient_norm = 0;
  std::size_t targets = 0, tokens = 0, num_tokens = 0;

  [[nodiscard]] bool are_finite() const { return std::isfinite(loss) && std::isfinite(gradient_norm); }
};

/// How many targets, tokens and labels of sequences the batches have.
[[nodiscard]] inline std::array<double, 3> count_targets(std::span<const batch_view> batches) {
  std::array<double, 3> counts{};
  for (const batch_view& batch : batches) {
    for (const token label : batch.labels) counts[2] += label >= 0 ? 1 : 0;
    counts[0] += static_cast<double>(batch.target_count);
    counts[1] += static_cast<double>(batch.token_count);
  }
  return counts;
}

/// A step of a model, with its memory and the optimizer's state.
template <class Model>
class training_step {
 public:
  using recipe = typename checked_recipe<Model>::recipe;
  using device = typename recipe::device;
  using precision = typename recipe::precision;
  using optimizer = typename recipe::optimizer;
  using accumulate = typename Model::accumulate;
  using memory = typename device::memory;

  /// settings: completed for the model; sizes: of a pass, as a dry run has measured them (in a dry run they are ignored)
  ///   throws  memory_error
  training_step(Model& model, const training_config<optimizer>& settings, const pass_sizes& sizes);

  [[nodiscard]] pass_sizes high_water() const { return memory_->high_water(); }
  [[nodiscard]] std::size_t stash_bytes(const pass_sizes& each) const { return memory_->stash_bytes(each); }
  /// Resets after a pass that threw, on one rank.
  void forget() { memory_->forget(); }
  /// Calls visit(name, span) for every array of the optimizer's state.
  template <class Visit>
  void visit_optimizer(Visit&& visit) {
    optimizer_->visit(visit);
  }

  /// Checks the batches of a step, before it begins.
  ///   throws  data_error, shape_error; config_error for a number of micro-batches that a pipeline was not made for
  void require_batches(std::span<const batch_view> batches) const;

  /// Gradients of the mean loss of all ranks' batches, times loss_scale.
  ///   step_number   for random numbers: no two steps of a run have the same
  [[nodiscard]] step_sums forward_backward(std::span<const batch_view> batches, double loss_scale, std::uint32_t step_number);

  /// The optimizer's part: gradients are clipped to the maximum norm, weights change.
  ///   update   counted from 1, in this run and all before
  void change_weights(double gradient_norm, double learning_rate, double loss_scale, std::size_t update);

  /// The sum of a batch's losses, from a forward pass alone; this rank's part of it.
  ///   label_weight   weight of a sequence's label, in targets
  [[nodiscard]] double evaluate(const batch_view& batch, double label_weight = 1.0);
  /// Sums losses over the ranks that share the sequences: over the stages of a pipeline, and over context-parallel ranks.
  void all_reduce_losses(std::span<double> losses) {
    if constexpr (strategy_runs<Model>) model_->parallel().add_up(losses);
    if constexpr (has_context_parallel<recipe>) model_->parallel().context().all_reduce(losses, reduction::sum);
  }

  template <class T>
  [[nodiscard]] double squares_of(device_span<T, memory> values) {
    auto on = memory_->passes.execution_on();
    const auto sum = memory_->norm.template as<double>();
    ops::sum_of_squares(on, values, sum);
    std::array<double, 1> host{};
    copy_to_host(model_->stream(), std::span<double>(host), sum);
    model_->stream().synchronize();
    return host[0];
  }
  /// The sum over several spans, in order, with a single host synchronization.
  template <class T>
  [[nodiscard]] double squares_of(std::span<const device_span<T, memory>> all) {
    auto on = memory_->passes.execution_on();
    const typename arena<device>::scope scope(on.workspace);
    const auto sums = on.workspace.template take<double>(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) ops::sum_of_squares(on, all[i], sums.subspan(i, 1));
    std::vector<double> host(all.size());
    copy_to_host(model_->stream(), std::span<double>(host), sums);
    model_->stream().synchronize();
    return std::accumulate(host.begin(), host.end(), 0.0);
  }

 private:
  /// Sum of a micro-batch's losses, in a fixed order.
  [[nodiscard]] double sum_losses(std::size_t n);

  void require_batch(std::span<const batch_view> batches) const;

  Model* model_;
  double max_grad_norm_;
  std::uint64_t seed_;
  std::optional<step_memory<Model>> memory_;
  std::optional<typename optimizer::template state<device, precision>> optimizer_;
};

template <class Model>
training_step<Model>::training_step(Model& model, const training_config<optimizer>& settings, const pass_sizes& sizes)
    : model_(&model), max_grad_norm_(settings.max_grad_norm), seed_(settings.seed) {
  model.parameters().allocate_gradients();
  memory_.emplace(model, settings, sizes);
  auto on = memory_->passes.execution_on();
  optimizer_.emplace(settings.optimizer, on, model.parameters());
  model.stream().synchronize();
}

template <class Model>
void training_step<Model>::require_batches(std::span<const batch_view> batches) const {
  if (!is_dry_run(model_->context())) require_batch(batches);
  if constexpr (strategy_runs<Model>) memory_->runner.require_batches(batches);
}

template <class Model>
auto training_step<Model>::forward_backward(std::span<const batch_view> batches, double loss_scale, std::uint32_t step_number) -> step_sums {
  step_sums sums;
  for (const batch_view& batch : batches) sums.num_tokens += batch.b * batch.t;
  std::array<double, 3> counts = count_targets(batches);
  model_->parallel().data().all_reduce(counts, reduction::sum);
  const double labels = counts[2], targets = counts[0] > 0 ? counts[0] : labels;  // there may be sequence labels only
  sums.targets = static_cast<std::size_t>(targets);
  sums.tokens = static_cast<std::size_t>(counts[1]);
  fill_zero(model_->stream(), model_->parameters().gradients());
  std::array<double, 1> loss{};
  const auto prepare = [&](pass<recipe>& p) {
    p.random = {.seed = seed_, .step = step_number};
    p.gradient_scale = targets > 0 ? loss_scale / targets : 0.0;
    p.label_weight = labels > 0 ? targets / labels : 0.0;  // the mean over labels is added to the mean over targets
  };
  const auto losses = [&](std::size_t n) { return memory_->losses_of(n); };
  const auto sum = [&](std::size_t n) { return sum_losses(n); };
  if constexpr (strategy_runs<Model>) {
    loss[0] = memory_->runner.run(memory_->passes.execution_on(), batches, prepare, losses, sum);
  } else {
    for (std::size_t m = 0; m < batches.size(); ++m) {
      pass<recipe> p = memory_->passes.new_pass(pass_mode::training);
      p.batch = memory_->batch.upload(model_->stream(), batches[m]);
      prepare(p);
      model_->forward(p, memory_->passes.layer_inputs(), losses(p.batch.n()));
      model_->backward(p, memory_->passes.layer_inputs(), m + 1 == batches.size());
      loss[0] += sum(p.batch.n());
    }
  }
  all_reduce_losses(loss);
  model_->parallel().data().all_reduce(loss, reduction::sum);
  sums.loss = targets > 0 ? loss[0] / targets : 0.0;
  const double squares = model_->parallel().gradient_squares(model_->parameters(), [&](auto gradients) { return squares_of(gradients); });
  sums.gradient_norm = std::sqrt(squares) / loss_scale;
  return sums;
}

template <class Model>
void training_step<Model>::change_weights(double gradient_norm, double learning_rate, double loss_scale, std::size_t update) {
  const double clip = max_grad_norm_ > 0 ? std::min(1.0, max_grad_norm_ / (gradient_norm + 1e-6)) : 1.0;
  auto on = memory_->passes.execution_on();
  optimizer_->step(on, model_->parameters(),
                   {.learning_rate = learning_rate, .gradient_scale = clip / loss_scale, .step = update, .seed = seed_});
  model_->parallel().weights_changed(model_->stream(), model_->parameters());
  model_->stream().synchronize();
}

template <class Model>
auto training_step<Model>::evaluate(const batch_view& batch, double label_weight) -> double {
  const auto losses = [&](std::size_t n) { return memory_->losses_of(n); };
  const auto sum = [&](std::size_t n) { return sum_losses(n); };
  if constexpr (strategy_runs<Model>) {
    return memory_->runner.evaluate(memory_->passes.execution_on(), batch, [&](pass<recipe>& p) { p.label_weight = label_weight; }, losses, sum);
  } else {
    pass<recipe> p = memory_->passes.new_pass(pass_mode::evaluation);
    p.batch = memory_->batch.upload(model_->stream(), batch);
    p.label_weight = label_weight;
    model_->forward(p, memory_->passes.layer_inputs(), losses(p.batch.n()));
    return sum(p.batch.n());
  }
}

template <class Model>
auto training_step<Model>::sum_losses(std::size_t n) -> double {
  const std::span<accumulate> host(memory_->host_losses.data(), n);
  copy_to_host(model_->stream(), host, memory_->losses.template as<accumulate>().subspan(0, n));
  model_->stream().synchronize();
  double sum = 0;
  for (const accumulate loss : host) sum += static_cast<double>(loss);
  return sum;
}

template <class Model>
void training_step<Model>::require_batch(std::span<const batch_view> batches) const {
  const std::size_t vocabulary = model_->config().vocab_size;
  for (const batch_view& batch : batches) {
    detail::require_batch(*model_, batch, "trainer");
    for (const token t : batch.targets)  // negative: ignored
      require<data_error>(t < 0 || static_cast<std::size_t>(t) < vocabulary, "trainer: targets must be in the model's vocabulary of ", vocabulary,
                          "; given ", t);
  }
}

}  // namespace xtrain::detail
