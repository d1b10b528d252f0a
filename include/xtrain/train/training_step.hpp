// One optimizer step: forward and backward passes of micro-batches, gradient norm, clipping, optimizer. Evaluation uses the same memory.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/device/capture.hpp>
#include <xtrain/device/concepts.hpp>
#include <xtrain/device/dry_run.hpp>
#include <xtrain/device/kernel/step_scalars.hpp>
#include <xtrain/device/memory.hpp>
#include <xtrain/device/pinned_pipe.hpp>
#include <xtrain/device/stream_drain.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/layers/context_shard.hpp>
#include <xtrain/layers/neftune.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/layers/score_head.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/models/require_batch.hpp>
#include <xtrain/objective/concepts.hpp>
#include <xtrain/objective/log_prob_source.hpp>
#include <xtrain/objective/teacher_source.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/ops/step_scalars.hpp>
#include <xtrain/optim/concepts.hpp>
#include <xtrain/optim/loss_scale.hpp>
#include <xtrain/tensor/arena.hpp>
#include <xtrain/tensor/view.hpp>
#include <xtrain/train/captured_steps.hpp>
#include <xtrain/train/checked_recipe.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/loss_counts.hpp>
#include <xtrain/train/reference_and_teacher.hpp>
#include <xtrain/train/run_settings.hpp>
#include <xtrain/train/step_memory.hpp>

namespace xtrain::detail {

struct step_result {
  kernel::step_report report{};
  std::size_t targets = 0, tokens = 0, num_tokens = 0;
  double losses = 0;  // denominator of the mean: targets, their weights, or an objective's count
  double learning_rate = 0;
  bool is_empty = false;  // no token has a loss, on any rank
};

/// The optimizer's step takes the strategy.
template <class Model, class Recipe = typename Model::recipe>
concept optimizer_combines = has_hook<typename Recipe::optimizer, hook::steps_with_strategy> &&
    clause::optimizer_state_steps_with<typename Recipe::optimizer::template state<typename Recipe::device, typename Recipe::precision>,
                                       typename Recipe::device, typename Model::store, typename Recipe::parallel::template state<typename Recipe::device>>;

/// With its memory and optimizer state.
template <class Model>
class training_step {
 public:
  using recipe = typename checked_recipe<Model>::recipe;
  using computation = model_computation<Model>;
  using device = typename recipe::device;
  using precision = typename recipe::precision;
  using optimizer = typename recipe::optimizer;
  using objective = typename recipe::objective;
  using accumulate = typename Model::accumulate;
  using memory = typename device::memory;

  /// settings: completed for the model; sizes: of a pass, from a dry run (ignored in a dry run)
  ///   throws  memory_error
  training_step(Model& model, const training_config<optimizer, objective>& settings, const pass_sizes& sizes);

  [[nodiscard]] pass_sizes high_water() const { return memory_->high_water(); }
  [[nodiscard]] std::size_t stash_bytes(const pass_sizes& each) const { return memory_->stash_bytes(each); }
  /// Source of reference log-probabilities; null: from batches, or with the adapter switched off.
  void use_reference(log_prob_source<device>* source) { second_models_.reference = source; }
  void use_teacher(teacher_source<device, accumulate>* source) { second_models_.teacher = source; }
  [[nodiscard]] static constexpr std::size_t statistics() { return objective::statistics.size(); }

  /// Resets after a pass that threw, on one rank. Kept gradients of earlier steps are lost.
  void forget() {
    memory_->forget();
    has_kept_gradients_ = false;
  }
  [[nodiscard]] std::size_t staging_bytes() const { return memory_->staging.bytes(); }
  template <class Visit>
  void visit_optimizer(Visit&& visit) {
    optimizer_->visit(visit);
  }

  /// Before a step: master weights are copied again if weights were loaded, merged, set or trained by another trainer; settings of parameters become this
  /// trainer's again.
  ///   throws  config_error when another trainer has taken the gradients that capture_steps or keep_gradients rely on
  void take_changes(const training_config<optimizer, objective>& settings);
  /// After a step: records that its optimizer made the change.
  void note_own_change() {
    model_->parameters().note_change();
    note_restored_optimizer();
  }
  void note_restored_optimizer() { changes_ = model_->parameters().changes(); }

  /// Checks the batches of a step, before it begins.
  ///   throws  data_error, shape_error; config_error for a number of micro-batches that a pipeline was not made for
  void require_batches(std::span<const batch_view> batches) const;

  /// Queues gradients of the mean loss of all ranks' batches, times the loss scale, and sums of the loss and of the gradients' squares. If steps are captured,
  /// update_weights queues all of it.
  ///   step_number   for random numbers: unique in a run
  ///   throws  config_error when gradients are kept and a step is pending (their clipping is not known yet), or the step cannot be captured
  void forward_backward(std::span<const batch_view> batches, std::uint32_t step_number);

  /// Queues the optimizer's part: clips gradients to the maximum norm and changes weights, unless loss or norm is not finite.
  void update_weights(double learning_rate, std::uint32_t step_number);

  /// Queued, unfinished steps; at most 2.
  [[nodiscard]] std::size_t pending() const { return pending_; }
  /// The result of the oldest pending step. The host does not wait for later steps.
  [[nodiscard]] step_result finish();

  /// The device's state after all queued steps.
  void restore(const kernel::step_state& state);

  /// This rank's part.
  ///   label_weight   weight of a sequence's label, in targets
  [[nodiscard]] double evaluate(const batch_view& batch, double label_weight = 1.0);
  /// log p(target) of every token of a batch, 0 without a target; forward pass without dropout. All stages of a pipeline get it.
  ///   without_adapter   of the base model
  ///   throws  config_error for context parallelism, where this rank does not have all tokens; data_error
  [[nodiscard]] std::vector<float> token_log_probs(const batch_view& batch, bool without_adapter);
  /// Like token_log_probs: the value of every token with a target, 0 elsewhere; of an objective that predicts values.
  template <class Batch>  // a template: compiled only for objectives with values
  [[nodiscard]] std::vector<float> token_values(const Batch& batch);
  /// Sums losses over pipeline stages and context-parallel ranks, which share the sequences.
  void all_reduce_losses(std::span<double> losses) {
    add_up_stages(*model_, losses);
    if constexpr (has_context_parallel<recipe>) model_->parallel().context().all_reduce(losses, reduction::sum);
  }

  /// The sum of squares of each span, on the host, which waits once. Allocates.
  template <class Span>
  [[nodiscard]] std::vector<double> squares_on_host(const std::vector<Span>& values) {
    std::vector<double> squares(values.size());
    const buffer<device> on_device(model_->context(), values.size() * sizeof(double), memory_role::other);
    const auto sums = on_device.template as<double>();
    auto on = memory_->passes.execution_on();
    for (std::size_t i = 0; i < values.size(); ++i) ops::sum_of_squares(on, values[i], sums.subspan(i, 1));
    copy_in_pieces<device>(model_->context(), model_->stream(), std::span<double>(squares), sums);
    return squares;
  }

 private:
  /// The denominators of one micro-batch.
  [[nodiscard]] mean_over mean_of_micro_batch(const batch_view& batch) const {
    return mean_of(count_all<objective>(objective_settings_, std::span(&batch, 1)));
  }
  /// Factor of the load-balancing loss per target of a micro-batch: loss and gradient of a target are divided by the targets of `over`. 0 for
  /// average_balance none.
  [[nodiscard]] double balance_factor_of([[maybe_unused]] const batch_view& batch, [[maybe_unused]] const mean_over& over) const {
    if (average_balance_ == balance_average::none) return 0.0;
    if (average_balance_ == balance_average::targets || averages_micro_batches_) return 1.0;
    const double own = mean_of_micro_batch(batch).targets;
    return own > 0 ? over.targets / own : 1.0;
  }
  void begin_gradients();
  void queue_gradients(std::span<const batch_view> batches, std::uint32_t step_number, const mean_over& counts);
  void queue_update(double learning_rate, std::uint32_t step_number, std::size_t slot);
  /// The strategy refuses to report traffic while steps are queued.
  void set_pending(std::size_t steps) {
    pending_ = steps;
    if constexpr (has_hook<typename recipe::parallel, hook::steps_are_queued>)
      if (!is_dry_run(model_->context())) model_->parallel().steps_are_queued(steps);
  }
  [[nodiscard]] bool captures() const { return captures_ && !is_dry_run(model_->context()); }
  /// The first step, on one rank, with full micro-batches. Other steps have too many sizes, and several ranks choose alike only without timing.
  [[nodiscard]] bool prepares_uncaptured(std::span<const batch_view> batches) const {
    const auto is_full = [&](const batch_view& batch) { return batch.t == seq_length_ && batch.b == sequences_; };
    return !has_prepared_ && !keeps_gradients_ && !is_dry_run(model_->context()) && model_->parallel().world().size() == 1 &&
           std::all_of(batches.begin(), batches.end(), is_full);
  }
  [[nodiscard]] std::size_t slot() const { return begun_ % results_.size(); }

  /// In order.
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
  /// An objective's values for every token of a batch, from a forward pass without dropout, on every rank that shares the batch.
  template <class Prepare>
  [[nodiscard]] std::vector<float> token_outputs(std::string_view who, const batch_view& batch, Prepare&& prepare);
  /// Gives the objective a micro-batch's data.
  void upload([[maybe_unused]] const batch_view& batch, [[maybe_unused]] std::size_t micro_batch) {
    if constexpr (has_hook<objective, hook::upload>) second_models_.upload(*objective_, *memory_, batch, micro_batch);
  }
  /// Before every pass that the objective sees.
  void prepare(pass<computation>& p, std::size_t micro_batch) {
    if constexpr (statistics() > 0) p.internal.statistics = memory_->losses_and_statistics(statistics()).subspan(1, statistics());
    p.internal.without_fake_quantization = !fake_quantizes_;
    p.internal.most_tokens = memory_->local_tokens_of(*model_);
    objective_->prepare(p, micro_batch);
    if constexpr (!predicts_next_token())
      require<config_error>(p.internal.objective != nullptr, objective::name,
                            ": prepare(pass, micro_batch) of the objective's state must set pass.internal.objective; it has not, and the pass would train "
                            "the cross-entropy of the next token; see objective/README.md");
  }
  void add_scaled_losses(std::size_t n, double factor) {
    auto on = memory_->passes.execution_on();
    const typename arena<device>::scope scope(on.workspace);
    const vector_view<accumulate, memory> scaled_n{on.workspace.template take<accumulate>(n), {n}};
    fill_zero(on.stream, scaled_n.span());
    ops::add(on, memory_->losses_of(n), scaled_n, factor);
    ops::sum(on, scaled_n.span(), memory_->loss_1());
  }
  void zero_losses() { fill_zero(model_->stream(), memory_->losses_and_statistics(statistics())); }
  void add_losses(std::size_t n) {
    auto on = memory_->passes.execution_on();
    ops::sum(on, memory_->losses_of(n).span(), memory_->loss_1());
  }
  [[nodiscard]] double on_host(device_span<double, memory> value) {
    const auto host = number_staging_.template as<double>();
    copy_to_host(model_->stream(), host, value);
    model_->stream().synchronize();
    return host[0];
  }

  void require_batch(std::span<const batch_view> batches) const;
  /// The load-balancing loss is one per target.
  static void require_balanced_objective([[maybe_unused]] const Model& model) {
    if constexpr (!goes_with_balanced_experts<objective>())
      require<config_error>(!balances_load(model), objective::name, ": a load-balancing loss of experts, which is one per target, must not be combined with "
                            "losses of sequences, or with advantages; set balances_experts to false");
  }
  /// All stages of a pipeline must refuse it: only the last has the head, and the others would wait.
  static void require_temperature([[maybe_unused]] const Model& model, [[maybe_unused]] const typename objective::config& settings) {
    if constexpr (has_hook<objective, hook::log_prob_temperature>) {
      const double bound = logit_bound_of(model.config());
      require<config_error>(objective::log_prob_temperature(settings) == 1.0 || bound == 0.0, objective::name,
                            ": temperature: must be 1 for a model whose logits are bounded (final_logit_softcapping ", bound, "); given ",
                            objective::log_prob_temperature(settings));
    }
  }
  void require_plain_balance([[maybe_unused]] const batch_view& batch) const {
    require<config_error>(
        !balances_load(*model_) || (batch.token_weights.empty() && batch.advantages.empty() && batch.returns.empty()), objective::name,
        ": a load-balancing loss of experts must not be combined with weights per token, or with advantages; set balances_experts to false");
  }
  /// The head's cross-entropy: nothing to install.
  static constexpr bool predicts_next_token() { return has_hook<objective, hook::is_cross_entropy>; }
  template <class Config>
  [[nodiscard]] static std::size_t largest_micro_batch(const Model& model, const Config& settings) {
    const std::vector<std::size_t> sizes = unequal_micro_batches(model, settings);
    return sizes.empty() ? settings.micro_batch_size : *std::max_element(sizes.begin(), sizes.end());
  }

  using event = decltype(std::declval<typename device::stream&>().record());

  Model* model_;
  double max_grad_norm_;
  bool averages_micro_batches_;  // mean of the means of micro-batches
  balance_average average_balance_;
  bool keeps_gradients_;
  bool has_kept_gradients_ = false;  // of an earlier step
  double kept_norm_ = 0;
  std::uint64_t seed_;
  double neftune_noise_alpha_;
  std::size_t fake_quantizes_from_ = 0;  // first step with fake quantization
  bool fake_quantizes_ = true;           // in the last step, and in evaluations after it
  kernel::loss_scale_rule rule_;
  bool captures_;
  bool has_prepared_ = false;  // kernels of uncaptured steps
  [[no_unique_address]] typename captured_steps_of<device>::type captured_{};
  step_result current_{};
  std::array<step_result, 2> results_{};
  std::array<std::optional<event>, 2> done_{};
  std::size_t begun_ = 0, pending_ = 0;
  typename objective::config objective_settings_;
  std::optional<step_memory<Model>> memory_;
  std::optional<typename objective::template state<computation>> objective_;
  second_models<Model> second_models_;
  pinned_memory<device> number_staging_;       // a number that the host waits for
  std::size_t sequences_, micro_batches_, seq_length_;
  std::size_t changes_ = 0, gradient_users_ = 0;  // of the parameters, known to this trainer
  std::optional<typename optimizer::template state<device, precision>> optimizer_;
  std::optional<stream_drain<typename device::stream>> drain_;  // last: destroyed first, so the host waits before memory in use is released
};

template <class Model>
training_step<Model>::training_step(Model& model, const training_config<optimizer, objective>& settings, const pass_sizes& sizes)
    : model_(&model), max_grad_norm_(settings.max_grad_norm), averages_micro_batches_(settings.average_loss == loss_average::micro_batch),
      average_balance_(settings.average_balance),
      keeps_gradients_(settings.keep_gradients), seed_(settings.seed), neftune_noise_alpha_(settings.neftune_noise_alpha),
      rule_(dynamic_loss_scale::rule(settings.loss_scale, precision::scales_loss)), captures_(settings.capture_steps),
      objective_settings_(settings.objective),
      second_models_(model, settings.objective, largest_micro_batch(model, settings), settings.gradient_accumulation_steps),
      number_staging_(model.context(), sizeof(double)),
      sequences_(largest_micro_batch(model, settings)), micro_batches_(settings.gradient_accumulation_steps),
      seq_length_(settings.seq_length) {
  if (captures_) require_captures(model);
  if (keeps_gradients_) {
    const std::string_view parallel = recipe::parallel::name;
    require<config_error>(parallel == "single" || parallel == "data", "keep_gradients: the strategy must be single or data_parallel; it is ", parallel);
    require<config_error>(!precision::scales_loss, "keep_gradients: the precision must not scale the loss; it is ", precision::name);
    require<config_error>(!captures_ && !settings.late_metrics, "keep_gradients: must not be combined with capture_steps or late_metrics: ",
                          "how gradients are clipped is known when the step before is done");
  }
  require<config_error>(!captures_ || neftune_noise_alpha_ == 0.0,
                        "capture_steps: kernels must not depend on how long sequences are, as NEFTune's noise does; ", "neftune_noise_alpha is ",
                        neftune_noise_alpha_);
  if constexpr (has_hook<typename recipe::adapter, hook::fake_quant_after_n_steps>) {
    fake_quantizes_from_ = model.settings().adapter.fake_quant_after_n_steps;
    fake_quantizes_ = fake_quantizes_from_ == 0;
    require<config_error>(!captures_ || fake_quantizes_, "capture_steps: all steps must do the same; fake_quant_after_n_steps is ", fake_quantizes_from_);
  }
  if constexpr (!causal_model<Model>)
    require<config_error>(neftune_noise_alpha_ == 0.0, "neftune_noise_alpha: must be 0 for an encoder; given ", neftune_noise_alpha_);
  if constexpr (has_hook<objective, hook::require_model>) objective::require_model(model);
  require_balanced_objective(model);
  require<config_error>(!captures_ || !balances_load(model) || average_balance_ != balance_average::micro_batches,
                        "average_balance: must be targets or none with capture_steps: how many targets a micro-batch has is not in device memory");
  require_temperature(model, settings.objective);
  set_parameter_settings(model.parameters(), settings);
  model.parameters().allocate_gradients();
  memory_.emplace(model, settings, sizes);
  objective_.emplace(settings.objective, model.context(),
                     objective_sizes{memory_->local_tokens_of(model), sequences_, micro_batches_});
  auto on = memory_->passes.execution_on();
  optimizer_.emplace(settings.optimizer, on, model.parameters());
  gradient_users_ = model.parameters().gradient_users();
  changes_ = model.parameters().changes();
  model.stream().synchronize();
  drain_.emplace(model.stream(), watched(model));
}

template <class Model>
void training_step<Model>::take_changes(const training_config<optimizer, objective>& settings) {
  auto& parameters = model_->parameters();
  if (parameters.gradient_users() != gradient_users_) {
    require<config_error>(!captures_ && !keeps_gradients_, "trainer: with capture_steps or keep_gradients a model must have one trainer; another has been made "
                          "for it, or has trained it, since");
    set_parameter_settings(parameters, settings);
    parameters.take_gradients();
    gradient_users_ = parameters.gradient_users();
  }
  if (parameters.changes() == changes_) return;
  changes_ = parameters.changes();
  if constexpr (has_master_copy<precision>) {
    auto on = memory_->passes.execution_on();
    optimizer_->visit([&](std::string_view name, const auto& array, const auto&...) {
      if constexpr (std::is_same_v<typename std::remove_cvref_t<decltype(array)>::element_type, typename precision::master>)
        if (name == "master")
          for (const parameter_slice& run : parameters.parameter_slices()) ops::cast(on, parameters.values_of(run), array.subspan(run.kept, run.size()));
    });
  }
}

template <class Model>
void training_step<Model>::require_batches(std::span<const batch_view> batches) const {
  require<data_error>(!batches.empty(), "trainer: a step must have at least one micro-batch; given 0");
  if (!is_dry_run(model_->context())) {
    require_batch(batches);
    for (const batch_view& batch : batches) {
      objective::require_batch(objective_settings_, batch);
      second_models_.require_for(batch);
      require_plain_balance(batch);
      require<config_error>(neftune_noise_alpha_ == 0.0 || !has_packed_sequences(batch),
                            "neftune_noise_alpha: sequences must be single samples, on whose length the noise depends; a batch has packed ones");
    }
  }
  memory_->runner.require_batches(batches);
}

template <class Model>
void training_step<Model>::forward_backward(std::span<const batch_view> batches, std::uint32_t step_number) {
  require<config_error>(!keeps_gradients_ || pending_ == 0, "keep_gradients: a step must be finished before the next one is queued; pending are ", pending_);
  current_ = {};
  for (const batch_view& batch : batches) current_.num_tokens += batch.b * batch.t;
  std::array<double, 3> counts = count_all<objective>(objective_settings_, batches);
  model_->parallel().data().all_reduce(std::span<double>(counts), reduction::sum);
  const mean_over all = mean_of(counts);
  current_.losses = all.targets;
  current_.is_empty = !(all.targets > 0);
  if (averages_micro_batches_) {  // sums of means: divide by their number
    std::array<double, 1> means{static_cast<double>(batches.size())};
    model_->parallel().data().all_reduce(std::span<double>(means), reduction::sum);
    current_.losses = means[0];
  }
  current_.targets = static_cast<std::size_t>(std::llround(all.targets));
  current_.tokens = static_cast<std::size_t>(counts[1]);
  if constexpr (clause::device_captures_work<device> && !strategy_runs<Model>) {
    if (captures()) {
      require<config_error>(all.labels == 0, "capture_steps: steps with labels of sequences cannot be captured");
      memory_->inputs_of(slot()).targets = all.targets;
      memory_->inputs_of(slot()).number = static_cast<double>(step_number);
      return captured_.prepare(model_->stream(), memory_->runner.rows(), memory_->staging, slot(), batches, step_number, [&](auto of, std::uint32_t number) {
        queue_gradients(of, number, all);
        queue_update(0.0, number, slot());
      });
    }
  }
  if constexpr (clause::device_captures_work<device> && clause::device_prepares_kernels<device> && !strategy_runs<Model> && can_be_captured<objective>) {
    if (prepares_uncaptured(batches) && all.labels == 0) {
      has_prepared_ = true;
      // without the update: an optimizer may count its steps
      captured_.prepare_uncaptured(model_->stream(), memory_->staging, [&] { queue_gradients(batches, step_number, all); });
    }
  }
  queue_gradients(batches, step_number, all);
}

template <class Model>
void training_step<Model>::queue_gradients(std::span<const batch_view> batches, std::uint32_t step_number, const mean_over& counts) {
  auto& stream = model_->stream();
  if (captures_) {
    if (captures()) copy_to_device(stream, memory_->inputs_1(), std::span<const kernel::step_inputs>(&memory_->inputs_of(slot()), 1));
    auto on = memory_->passes.execution_on();
    ops::step_gradient_scale(on, kernel::step_gradient_scale<memory>{
                                     .inputs_1 = memory_->inputs_1(), .state_1 = memory_->state_1(), .gradient_scale_1 = memory_->gradient_scale_1()});
  }
  fake_quantizes_ = step_number >= fake_quantizes_from_;
  begin_gradients();
  zero_losses();
  for (std::size_t m = 0; m < batches.size(); ++m) upload(batches[m], m);
  double loss_factor = 1.0;
  const auto prepare_pass = [&](pass<computation>& p, std::size_t micro_batch) {
    prepare(p, micro_batch);
    p.random = {.seed = seed_, .step = captures_ ? 0 : step_number};
    if (captures_) p.inputs_1 = memory_->inputs_1();
    p.internal.neftune_noise_alpha = neftune_noise_alpha_;
    const mean_over of = averages_micro_batches_ ? mean_of_micro_batch(batches[micro_batch]) : counts;
    p.gradient_scale = of.targets > 0 ? 1.0 / of.targets : 0.0;
    p.internal.balance_factor = balance_factor_of(batches[micro_batch], of);
    if (averages_micro_batches_) {
      loss_factor = p.gradient_scale.value;
      p.gradient_scale = loss_factor / current_.losses;
    }
    if constexpr (precision::scales_loss) p.gradient_scale.factor_1 = memory_->loss_scale_1();
    if (captures_) p.gradient_scale = {1.0, memory_->gradient_scale_1()};
    p.label_weight = of.labels > 0 ? of.targets / of.labels : 0.0;  // mean over labels + mean over targets
  };
  const auto losses = [&](std::size_t n) { return memory_->losses_of(n); };
  const auto sum = [&](std::size_t n) {  // of the last prepared micro-batch
    if (averages_micro_batches_) add_scaled_losses(n, loss_factor);
    else add_losses(n);
  };
  memory_->runner.run(memory_->passes.execution_on(), batches, memory_->staging, prepare_pass, losses, sum);
  model_->parallel().reduce_losses(stream, memory_->losses_and_statistics(statistics()));
  model_->parallel().gradient_squares(stream, model_->parameters(), [&](auto gradients, auto sum_1) { squares_of(gradients, sum_1); },
                                      memory_->squares_1());
}

template <class Model>
void training_step<Model>::begin_gradients() {
  auto on = memory_->passes.execution_on();
  const auto gradients = model_->parameters().gradients();
  const bool is_dry = is_dry_run(model_->context());
  if (!keeps_gradients_ || (!has_kept_gradients_ && !is_dry)) return fill_zero(on.stream, gradients);
  // every rank has the sum of all ranks, which is summed again at the end of this step
  const double clip = max_grad_norm_ > 0 ? std::fmin(1.0, max_grad_norm_ / (kept_norm_ + 1e-6)) : 1.0;
  const double factor = clip / static_cast<double>(model_->parallel().data().size());
  using gradient = typename precision::gradient;
  constexpr std::size_t chunk = std::size_t{1} << 20;
  const std::size_t n = gradients.size();
  const typename arena<device>::scope scope(on.workspace);
  const auto copy = on.workspace.template take<gradient>(std::min(n, chunk));
  for (std::size_t begin = 0; begin < n; begin += chunk) {
    const std::size_t size = std::min(chunk, n - begin);
    const auto part = gradients.subspan(begin, size), saved = copy.subspan(0, size);
    copy_within(on.stream, saved, device_span<const gradient, memory>(part));
    fill_zero(on.stream, part);
    ops::add(on, vector_view<const gradient, memory>{saved, {size}}, vector_view<gradient, memory>{part, {size}}, factor);
  }
}

template <class Model>
void training_step<Model>::update_weights(double learning_rate, std::uint32_t step_number) {
  const std::size_t slot = this->slot();
  bool queued = false;
  if constexpr (clause::device_captures_work<device>) {
    if (captures()) {
      memory_->inputs_of(slot).learning_rate = learning_rate;
      captured_.replay(model_->stream(), slot);
      queued = true;
    }
  }
  if (!queued) queue_update(learning_rate, step_number, slot);
  ++begun_;
  has_kept_gradients_ = true;
  current_.learning_rate = learning_rate;
  results_[slot] = current_;
  done_[slot] = model_->stream().record();
  set_pending(pending_ + 1);
}

template <class Model>
void training_step<Model>::queue_update(double learning_rate, std::uint32_t step_number, std::size_t slot) {
  auto on = memory_->passes.execution_on();
  kernel::update_step_scalars<memory> scalars{.learning_rate = learning_rate,
                                              .targets = current_.losses,
                                              .max_grad_norm = keeps_gradients_ ? 0.0 : max_grad_norm_,
                                              .rule = rule_,
                                              .loss_1 = memory_->loss_1(),
                                              .squares_1 = memory_->squares_1(),
                                              .statistics_s = memory_->losses_and_statistics(statistics()).subspan(1, statistics()),
                                              .state_1 = memory_->state_1(),
                                              .scalars_1 = memory_->scalars_1(),
                                              .report_1 = memory_->report_1()};
  if (captures_) {
    scalars.learning_rate = scalars.targets = 0;
    scalars.inputs_1 = memory_->inputs_1();
  }
  if constexpr (step_memory<Model>::marks_failures) {
    if (!is_dry_run(model_->context()))
      copy_to_device(model_->stream(), memory_->host_failure_1(), std::span<const double>(model_->stream().host_failure(), 1));
    scalars.host_failure_1 = memory_->host_failure_1();
  }
  ops::update_step_scalars(on, scalars);
  // in captured steps, kernels add the step's number from device memory
  const std::uint32_t number = precision::update == rounding::stochastic ? (captures_ ? 0 : step_number) + 1 : 0;
  const optimizer_step<device> step{.scalars = memory_->scalars_1(), .number = number, .seed = seed_};
  if constexpr (optimizer_combines<Model>)
    optimizer_->step(on, model_->parameters(), step, model_->parallel());
  else optimizer_->step(on, model_->parameters(), step);
  model_->parallel().weights_changed(model_->stream(), model_->parameters());
  copy_to_host(model_->stream(), memory_->reports.template as<kernel::step_report>().subspan(slot, 1), memory_->report_1());
}

template <class Model>
auto training_step<Model>::finish() -> step_result {
  const std::size_t slot = (begun_ - pending_) % results_.size();
  try {
    done_[slot]->synchronize();
  } catch (...) {
    set_pending(pending_ - 1);
    throw;
  }
  set_pending(pending_ - 1);
  results_[slot].report = memory_->reports.template as<kernel::step_report>()[slot];
  kept_norm_ = results_[slot].report.gradient_norm;
  return results_[slot];
}

template <class Model>
void training_step<Model>::restore(const kernel::step_state& state) {
  has_kept_gradients_ = false;
  fake_quantizes_ = fake_quantizes_from_ == 0 || state.updates > static_cast<double>(fake_quantizes_from_);
  copy_to_device(model_->stream(), memory_->state_1(), std::span(&state, 1));
  model_->stream().synchronize();
}

template <class Model>
auto training_step<Model>::evaluate(const batch_view& batch, double label_weight) -> double {
  const auto losses = [&](std::size_t n) { return memory_->losses_of(n); };
  const auto sum = [&](std::size_t n) { add_losses(n); };
  const auto prepare_pass = [&](pass<computation>& p) {
    prepare(p, 0);
    p.label_weight = label_weight;
  };
  objective::require_batch(objective_settings_, batch);
  second_models_.require_for(batch);
  require_plain_balance(batch);
  zero_losses();
  upload(batch, 0);
  memory_->runner.evaluate(memory_->passes.execution_on(), batch, prepare_pass, losses, sum, &memory_->staging);
  return on_host(memory_->loss_1());
}

template <class Model>
auto training_step<Model>::token_log_probs(const batch_view& batch, bool without_adapter) -> std::vector<float> {
  require<config_error>(!without_adapter || adapter_can_be_switched_off(*model_),
                        "token_log_probs: the base model is there only if an adapter (lora) is all that is trained");
  token_loss_collector<computation> only_losses([&] {
    if constexpr (has_hook<objective, hook::log_prob_temperature>) return objective::log_prob_temperature(objective_settings_);
    else return 1.0;
  }());
  std::vector<float> values = token_outputs("token_log_probs", batch, [&](pass<computation>& p) {
    p.internal.objective = &only_losses;
    p.internal.without_adapter = without_adapter;
  });
  for (float& value : values) value = -value;
  return values;
}

template <class Model>
template <class Batch>
auto training_step<Model>::token_values(const Batch& batch) -> std::vector<float> {
  upload(batch, 0);
  struct predicting {  // also when the pass throws
    typename objective::template state<computation>& of;
    explicit predicting(typename objective::template state<computation>& state) : of(state) { of.predicts(true); }
    ~predicting() { of.predicts(false); }
    predicting(const predicting&) = delete;
    predicting& operator=(const predicting&) = delete;
  } const only_values(*objective_);
  return token_outputs("token_values", batch, [&](pass<computation>& p) { objective_->prepare(p, 0); });
}

template <class Model>
template <class Prepare>
auto training_step<Model>::token_outputs(std::string_view who, const batch_view& batch, Prepare&& prepare) -> std::vector<float> {
  require<config_error>(!has_context_parallel<recipe>, who, ": must not be used with context parallelism, where a rank does not have all tokens");
  require_batch(std::span<const batch_view>(&batch, 1));
  auto& stream = model_->stream();
  const std::size_t n = batch.b * batch.t;
  const auto losses = [&](std::size_t size) { return memory_->losses_of(size); };
  const auto prepare_pass = [&](pass<computation>& p) {
    prepare(p);
    p.internal.without_fake_quantization = !fake_quantizes_;
  };
  fill_zero(stream, losses(n).span());  // in a pipeline only the last stage writes them
  memory_->runner.evaluate(memory_->passes.execution_on(), batch, prepare_pass, losses, [](std::size_t) {}, &memory_->staging);
  std::vector<accumulate> host(n);
  copy_in_pieces<device>(model_->context(), stream, std::span<accumulate>(host), losses(n).span());
  std::vector<double> sums(host.begin(), host.end());
  add_up_stages(*model_, sums);
  return {sums.begin(), sums.end()};
}

template <class Model>
void training_step<Model>::require_batch(std::span<const batch_view> batches) const {
  const std::size_t vocabulary = model_->config().vocab_size;
  for (const batch_view& batch : batches) {
    detail::require_batch(*model_, batch, "trainer");
    require<shape_error>(batch.t <= seq_length_, "trainer: sequences must not be longer than the trainer's seq_length of ", seq_length_, " tokens; given ",
                         batch.t);
    require<shape_error>(batch.b * batch.t <= memory_->runner.num_tokens(), "trainer: a micro-batch must have at most micro_batch_size times seq_length ",
                         "tokens, ", memory_->runner.num_tokens(), "; given ", batch.b, " sequences of ", batch.t);
    if constexpr (!predicts_next_token() && !has_hook<objective, hook::uses_teacher>)  // the objective's state has a limited size
      require<shape_error>(batch.b <= sequences_, objective::name, ": a micro-batch must have at most micro_batch_size sequences, ", sequences_, "; given ",
                           batch.b);
    if constexpr (causal_model<Model> && !scores_sequences<recipe>)  // checked by all stages of a pipeline
      require<shape_error>(batch.targets.size() == batch.b * batch.t, "trainer: targets must be ", batch.b * batch.t, ", one for each token; given ",
                           batch.targets.size());
    for (const token t : batch.targets)  // negative: ignored
      require<data_error>(t < 0 || static_cast<std::size_t>(t) < vocabulary, "trainer: targets must be in the model's vocabulary of ", vocabulary,
                          "; given ", t);
  }
}

}  // namespace xtrain::detail
