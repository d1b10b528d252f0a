// One optimizer step: forward and backward passes of its micro-batches, which add up their gradients; the gradient norm; clipping; and the
// optimizer. Evaluation uses the same memory for forward passes alone.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/stream_drain.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/require_batch.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/objective/log_prob_source.hpp>
#include <xtrain/objective/sequence_log_probs.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/step_scalars.hpp>
#include <xtrain/optim/concepts.hpp>
#include <xtrain/optim/loss_scale.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/train/checked_recipe.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/run_settings.hpp>
#include <xtrain/train/step_memory.hpp>

namespace xtrain::detail {

/// What the host learns of a step.
struct step_result {
  kernel::step_report report{};
  std::size_t targets = 0, tokens = 0, num_tokens = 0;
  double losses = 0;  // the mean's denominator: targets, the sum of their weights, or what an objective counts
  double learning_rate = 0;
};

/// How many losses, tokens and labels of sequences the batches have.
template <class Objective>
[[nodiscard]] std::array<double, 3> count_losses(std::span<const batch_view> batches) {
  std::array<double, 3> counts{};
  for (const batch_view& batch : batches) {
    for (const token label : batch.labels) counts[2] += label >= 0 ? 1 : 0;
    counts[0] += Objective::count_losses(batch);
    counts[1] += static_cast<double>(batch.token_count);
  }
  return counts;
}

/// The model without its adapter is the base model: nothing else is trained.
template <class Model>
[[nodiscard]] bool adapter_can_be_switched_off(const Model& model) {
  using adapter = typename Model::recipe::adapter;
  if constexpr (requires { adapter::can_be_switched_off; }) {
    for (const auto& entry : model.parameters().entries())
      if (entry.spec.trainable && !adapter::is_own(entry.spec.name)) return false;
    return adapter::can_be_switched_off;
  } else {
    return false;
  }
}

/// A step of a model, with its memory and the optimizer's state.
template <class Model>
class training_step {
 public:
  using recipe = typename checked_recipe<Model>::recipe;
  using device = typename recipe::device;
  using precision = typename recipe::precision;
  using optimizer = typename recipe::optimizer;
  using objective = typename recipe::objective;
  using accumulate = typename Model::accumulate;
  using memory = typename device::memory;

  /// settings: completed for the model; sizes: of a pass, as a dry run has measured them (in a dry run they are ignored)
  ///   throws  memory_error
  training_step(Model& model, const training_config<optimizer, objective>& settings, const pass_sizes& sizes);

  [[nodiscard]] pass_sizes high_water() const { return memory_->high_water(); }
  [[nodiscard]] std::size_t stash_bytes(const pass_sizes& each) const { return memory_->stash_bytes(each); }
  /// Where an objective gets the log-probabilities of a reference model; null: from batches, or with the adapter switched off.
  void use_reference(log_prob_source<device>* source) { reference_ = source; }
  template <class Teacher>
  void use_teacher(Teacher& source) {
    objective_->use_teacher(&source);
  }
  [[nodiscard]] static constexpr std::size_t statistics() { return objective::statistics.size(); }

  /// Resets after a pass that threw, on one rank.
  void forget() { memory_->forget(); }
  /// Pinned host memory for batches.
  [[nodiscard]] std::size_t staging_bytes() const { return memory_->staging.bytes(); }
  /// Calls visit(name, span) for every array of the optimizer's state.
  template <class Visit>
  void visit_optimizer(Visit&& visit) {
    optimizer_->visit(visit);
  }

  /// Checks the batches of a step, before it begins.
  ///   throws  data_error, shape_error; config_error for a number of micro-batches that a pipeline was not made for
  void require_batches(std::span<const batch_view> batches) const;

  /// Queues the gradients of the mean loss of all ranks' batches, times the loss scale, and sums of the loss and of the gradients' squares.
  ///   step_number   for random numbers: no two steps of a run have the same
  void forward_backward(std::span<const batch_view> batches, std::uint32_t step_number);

  /// Queues the optimizer's part: gradients are clipped to the maximum norm, and weights change, unless the loss or the norm is not finite.
  void change_weights(double learning_rate, std::uint32_t step_number);

  /// How many steps have been queued and not been finished; at most 2.
  [[nodiscard]] std::size_t pending() const { return pending_; }
  /// The result of the oldest of them. The host waits for this step, not for later ones.
  [[nodiscard]] step_result finish();

  /// What the device keeps from step to step, as it will be after all steps that are queued.
  void restore(const kernel::step_state& state);

  /// The sum of a batch's losses, from a forward pass alone; this rank's part of it.
  ///   label_weight   weight of a sequence's label, in targets
  [[nodiscard]] double evaluate(const batch_view& batch, double label_weight = 1.0);
  /// Sums losses over the ranks that share the sequences: over the stages of a pipeline, and over context-parallel ranks.
  void all_reduce_losses(std::span<double> losses) {
    if constexpr (strategy_runs<Model>) model_->parallel().add_up(losses);
    if constexpr (has_context_parallel<recipe>) model_->parallel().context().all_reduce(losses, reduction::sum);
  }

  /// The sum of squares, on the host.
  template <class T>
  [[nodiscard]] double squares_on_host(device_span<T, memory> values) {
    squares_of(std::span<const device_span<T, memory>>(&values, 1), memory_->squares_1());
    return on_host(memory_->squares_1());
  }

 private:
  /// Queues the sum over several spans, in order.
  template <class T>
  void squares_of(std::span<const device_span<T, memory>> all, device_span<double, memory> sum_1) {
    auto on = memory_->passes.execution_on();
    if (all.size() == 1) return ops::sum_of_squares(on, all[0], sum_1);
    fill_zero(on.stream, sum_1);
    if (all.empty()) return;
    const typename arena<device>::scope scope(on.workspace);
    const auto sums = on.workspace.template take<double>(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) ops::sum_of_squares(on, all[i], sums.subspan(i, 1));
    ops::sum(on, sums, sum_1);
  }
  /// Queues the reference log-probabilities of a micro-batch, if the objective needs them.
  void refer(const batch_view& batch, std::size_t micro_batch);
  /// Before every pass that the objective sees.
  void prepare(pass<recipe>& p, std::size_t micro_batch) {
    if constexpr (statistics() > 0) p.internal.statistics = memory_->losses_and_statistics(statistics()).subspan(1, statistics());
    objective_->prepare(p, micro_batch);
  }
  void zero_losses() { fill_zero(model_->stream(), memory_->losses_and_statistics(statistics())); }
  /// Queues the sum of a micro-batch's losses, added to those before.
  void add_losses(std::size_t n) {
    auto on = memory_->passes.execution_on();
    ops::sum(on, memory_->losses_of(n).span(), memory_->loss_1());
  }
  [[nodiscard]] double on_host(device_span<double, memory> value) {
    std::array<double, 1> host{};
    copy_to_host(model_->stream(), std::span<double>(host), value);
    model_->stream().synchronize();
    return host[0];
  }

  void require_batch(std::span<const batch_view> batches) const;
  void require_reference([[maybe_unused]] const batch_view& batch) const {
    if constexpr (has_teacher())
      require<config_error>(objective_->has_teacher(), objective::name, ": a teacher must be given: a model (trainer.use_teacher), or its top-k "
                            "log-probabilities in every batch (top_k of the objective's config)");
    if constexpr (refers())
      require<config_error>(objective::reference(objective_settings_) == reference_use::none || !batch.reference_log_probs.empty() ||
                                reference_ != nullptr || adapter_can_be_switched_off(*model_),
                            objective::name, ": a reference model must be given: log-probabilities in every batch (reference_log_probs), a second model "
                            "(trainer.use_reference), or an adapter that is all that is trained (lora); or the objective must be reference-free");
  }
  /// The load-balancing loss is one per target.
  void require_plain_balance([[maybe_unused]] const batch_view& batch) const {
    if constexpr (requires { model_->balances_load(); })
      require<config_error>(!model_->balances_load() || (objective::group_size == 1 && batch.token_weights.empty()), objective::name,
                            ": a load-balancing loss of experts must not be combined with losses of pairs or weights per token; set balances_experts to false");
  }
  /// Whether the objective has a teacher.
  static constexpr bool has_teacher() {
    return requires(typename objective::template state<recipe>& state) { state.use_teacher(nullptr); };
  }
  /// Whether the objective may need a reference model.
  static constexpr bool refers() {
    return requires(typename objective::template state<recipe>& state) { state.reference_b(std::size_t{}, std::size_t{}); };
  }
  template <class Config>
  [[nodiscard]] static std::size_t largest_micro_batch(const Model& model, const Config& settings) {
    const std::vector<std::size_t> sizes = unequal_micro_batches(model, settings);
    return sizes.empty() ? settings.micro_batch_size : *std::max_element(sizes.begin(), sizes.end());
  }

  using event = decltype(std::declval<typename device::stream&>().record());

  Model* model_;
  double max_grad_norm_;
  std::uint64_t seed_;
  kernel::loss_scale_rule rule_;
  step_result current_{};                      // of the step that is being queued
  std::array<step_result, 2> results_{};       // of the steps that are pending
  std::array<std::optional<event>, 2> done_{};
  std::size_t begun_ = 0, pending_ = 0;
  typename objective::config objective_settings_;
  std::optional<step_memory<Model>> memory_;
  std::optional<typename objective::template state<recipe>> objective_;
  log_prob_source<device>* reference_ = nullptr;
  log_prob_collector<recipe> collector_{};
  buffer<device> reference_counts_;            // targets of the sequences of a batch
  pinned_memory<device> reference_staging_;    // log-probabilities from the data: of two steps
  std::size_t sequences_, micro_batches_, staged_ = 0;
  std::optional<typename optimizer::template state<device, precision>> optimizer_;
  std::optional<stream_drain<typename device::stream>> drain_;  // last: the host waits before memory that queued work uses is released
};

template <class Model>
training_step<Model>::training_step(Model& model, const training_config<optimizer, objective>& settings, const pass_sizes& sizes)
    : model_(&model), max_grad_norm_(settings.max_grad_norm), seed_(settings.seed),
      rule_(dynamic_loss_scale::rule(settings.loss_scale, precision::scales_loss)),
      objective_settings_(settings.objective),
      reference_counts_(model.context(), refers() ? largest_micro_batch(model, settings) * sizeof(double) : 0, memory_role::batch),
      reference_staging_(model.context(), refers() ? 2 * settings.gradient_accumulation_steps * largest_micro_batch(model, settings) * sizeof(double) : 0),
      sequences_(largest_micro_batch(model, settings)), micro_batches_(settings.gradient_accumulation_steps) {
  model.parameters().allocate_gradients();
  memory_.emplace(model, settings, sizes);
  objective_.emplace(settings.objective, model.context(),
                     objective_sizes{memory_->local_tokens_of(model), sequences_, micro_batches_});
  auto on = memory_->passes.execution_on();
  optimizer_.emplace(settings.optimizer, on, model.parameters());
  model.stream().synchronize();
  drain_.emplace(model.stream());
}

template <class Model>
void training_step<Model>::require_batches(std::span<const batch_view> batches) const {
  if (!is_dry_run(model_->context())) {
    require_batch(batches);
    for (const batch_view& batch : batches) {
      objective::require_batch(objective_settings_, batch);
      require_reference(batch);
      require_plain_balance(batch);
    }
  }
  if constexpr (strategy_runs<Model>) memory_->runner.require_batches(batches);
}

template <class Model>
void training_step<Model>::forward_backward(std::span<const batch_view> batches, std::uint32_t step_number) {
  current_ = {};
  for (const batch_view& batch : batches) current_.num_tokens += batch.b * batch.t;
  std::array<double, 3> counts = count_losses<objective>(batches);
  model_->parallel().data().all_reduce(std::span<double>(counts), reduction::sum);
  const double labels = counts[2], targets = counts[0] > 0 ? counts[0] : labels;  // there may be sequence labels only
  current_.losses = targets;
  current_.targets = static_cast<std::size_t>(std::llround(targets));
  current_.tokens = static_cast<std::size_t>(counts[1]);
  auto& stream = model_->stream();
  fill_zero(stream, model_->parameters().gradients());
  zero_losses();
  for (std::size_t m = 0; m < batches.size(); ++m) refer(batches[m], m);
  const auto prepare_pass = [&](pass<recipe>& p, std::size_t micro_batch) {
    prepare(p, micro_batch);
    p.random = {.seed = seed_, .step = step_number};
    p.gradient_scale = targets > 0 ? 1.0 / targets : 0.0;
    if constexpr (precision::scales_loss) p.gradient_scale.factor_1 = memory_->loss_scale_1();
    p.label_weight = labels > 0 ? targets / labels : 0.0;  // the mean over labels is added to the mean over targets
  };
  const auto losses = [&](std::size_t n) { return memory_->losses_of(n); };
  const auto sum = [&](std::size_t n) { add_losses(n); };
  if constexpr (strategy_runs<Model>) {
    memory_->runner.run(memory_->passes.execution_on(), batches, memory_->staging, prepare_pass, losses, sum);
  } else {
    for (std::size_t m = 0; m < batches.size(); ++m) {
      pass<recipe> p = memory_->passes.new_pass(pass_mode::training);
      p.batch = memory_->batch.upload(stream, batches[m], &memory_->staging);
      prepare_pass(p, m);
      model_->forward(p, memory_->passes.layer_inputs(), losses(p.batch.n()));
      model_->backward(p, memory_->passes.layer_inputs(), m + 1 == batches.size());
      sum(p.batch.n());
    }
  }
  model_->parallel().reduce_losses(stream, memory_->losses_and_statistics(statistics()));
  model_->parallel().gradient_squares(stream, model_->parameters(), [&](auto gradients, auto sum_1) { squares_of(gradients, sum_1); },
                                      memory_->squares_1());
}

template <class Model>
void training_step<Model>::change_weights(double learning_rate, std::uint32_t step_number) {
  auto on = memory_->passes.execution_on();
  ops::update_step_scalars(on, kernel::update_step_scalars<memory>{.learning_rate = learning_rate,
                                                                   .targets = current_.losses,
                                                                   .max_grad_norm = max_grad_norm_,
                                                                   .rule = rule_,
                                                                   .loss_1 = memory_->loss_1(),
                                                                   .squares_1 = memory_->squares_1(),
                                                                   .statistics_s = memory_->losses_and_statistics(statistics()).subspan(1, statistics()),
                                                                   .state_1 = memory_->state_1(),
                                                                   .scalars_1 = memory_->scalars_1(),
                                                                   .report_1 = memory_->report_1()});
  const optimizer_step<device> how{.scalars = memory_->scalars_1(), .number = step_number + 1, .seed = seed_};
  if constexpr (requires { optimizer_->step(on, model_->parameters(), how, model_->parallel()); })
    optimizer_->step(on, model_->parameters(), how, model_->parallel());
  else optimizer_->step(on, model_->parameters(), how);
  model_->parallel().weights_changed(model_->stream(), model_->parameters());
  const std::size_t slot = begun_++ % results_.size();
  current_.learning_rate = learning_rate;
  results_[slot] = current_;
  copy_to_host(model_->stream(), memory_->reports.template as<kernel::step_report>().subspan(slot, 1), memory_->report_1());
  done_[slot] = model_->stream().record();
  ++pending_;
}

template <class Model>
auto training_step<Model>::finish() -> step_result {
  const std::size_t slot = (begun_ - pending_) % results_.size();
  --pending_;
  done_[slot]->synchronize();
  results_[slot].report = memory_->reports.template as<kernel::step_report>()[slot];
  return results_[slot];
}

template <class Model>
void training_step<Model>::restore(const kernel::step_state& state) {
  copy_to_device(model_->stream(), memory_->state_1(), std::span(&state, 1));
  model_->stream().synchronize();
}

template <class Model>
void training_step<Model>::refer(const batch_view& batch, std::size_t micro_batch) {
  if constexpr (has_teacher()) objective_->teach(model_->stream(), batch, micro_batch);
  if constexpr (refers()) {
    if (objective::reference(objective_settings_) == reference_use::none) return;
    auto& stream = model_->stream();
    const auto logp_b = objective_->reference_b(micro_batch, batch.b);
    if (!batch.reference_log_probs.empty()) {
      const auto staged = reference_staging_.template as<double>().subspan(staged_++ % (2 * micro_batches_) * sequences_, batch.b);
      std::copy(batch.reference_log_probs.begin(), batch.reference_log_probs.end(), staged.begin());
      return copy_to_device(stream, logp_b.span(), staged);
    }
    if (reference_ != nullptr) return reference_->compute(stream, batch, micro_batch, logp_b);
    collector_.write_to(logp_b, {reference_counts_.template as<double>().subspan(0, batch.b), {batch.b}});
    const auto prepare_pass = [&](pass<recipe>& p) {
      p.internal.objective = &collector_;
      p.internal.without_adapter = true;
    };
    const auto losses = [&](std::size_t n) { return memory_->losses_of(n); };
    if constexpr (strategy_runs<Model>) {
      memory_->runner.evaluate(memory_->passes.execution_on(), batch, prepare_pass, losses, [](std::size_t) {}, &memory_->staging);
    } else {
      pass<recipe> p = memory_->passes.new_pass(pass_mode::evaluation);
      p.batch = memory_->batch.upload(stream, batch, &memory_->staging);
      prepare_pass(p);
      model_->forward(p, memory_->passes.layer_inputs(), losses(p.batch.n()));
    }
  }
}

template <class Model>
auto training_step<Model>::evaluate(const batch_view& batch, double label_weight) -> double {
  const auto losses = [&](std::size_t n) { return memory_->losses_of(n); };
  const auto sum = [&](std::size_t n) { add_losses(n); };
  const auto prepare_pass = [&](pass<recipe>& p) {
    prepare(p, 0);
    p.label_weight = label_weight;
  };
  objective::require_batch(objective_settings_, batch);
  require_reference(batch);
  require_plain_balance(batch);
  zero_losses();
  refer(batch, 0);
  if constexpr (strategy_runs<Model>) {
    memory_->runner.evaluate(memory_->passes.execution_on(), batch, prepare_pass, losses, sum);
  } else {
    pass<recipe> p = memory_->passes.new_pass(pass_mode::evaluation);
    p.batch = memory_->batch.upload(model_->stream(), batch);
    prepare_pass(p);
    model_->forward(p, memory_->passes.layer_inputs(), losses(p.batch.n()));
    sum(p.batch.n());
  }
  return on_host(memory_->loss_1());
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
