#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/comm/rank_thread.hpp>
#include <xtrain/core/lifetime.hpp>
#include <xtrain/core/shared_model.hpp>
#include <xtrain/core/thread_use.hpp>
#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/data/sentence_loader.hpp>
#include <xtrain/device/dry/dry.hpp>
#include <xtrain/eval/concepts.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/computation.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/optim/schedule.hpp>
#include <xtrain/parallel/concepts.hpp>
#include <xtrain/train/checked_recipe.hpp>
#include <xtrain/train/concepts.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/events.hpp>
#include <xtrain/train/failed_step.hpp>
#include <xtrain/train/non_finite.hpp>
#include <xtrain/train/rank_stopwatch.hpp>
#include <xtrain/train/recipe.hpp>
#include <xtrain/train/require_room.hpp>
#include <xtrain/train/require_second_model.hpp>
#include <xtrain/train/run_dry.hpp>
#include <xtrain/train/run_settings.hpp>
#include <xtrain/train/shifted_targets.hpp>
#include <xtrain/train/step_guard.hpp>
#include <xtrain/train/training_progress.hpp>
#include <xtrain/train/training_step.hpp>

namespace xtrain {

/// Trains a model. A step allocates nothing: a dry run measures a step, and a run that does not fit is refused before anything is allocated.
template <class Model>
class trainer {
 public:
  using model_type = Model;
  using recipe = typename detail::checked_recipe<Model>::recipe;
  using device = typename recipe::device;
  using precision = typename recipe::precision;
  using optimizer = typename recipe::optimizer;
  using objective = typename recipe::objective;
  static_assert(causal_model<Model> || std::is_same_v<objective, next_token>,
                "xtrain recipe: 'objective' must be next_token for a bidirectional model: others are of models that predict the next token; see "
                "objective/README.md");
  using config = training_config<optimizer, objective>;
  using store = typename Model::store;
  using accumulate = typename Model::accumulate;
  using memory = typename device::memory;

  ///   model   must not be moved or destroyed while the trainer is used: calls then throw a config_error
  ///   throws  config_error when the settings do not suit the model, memory_error, with the sizes, when the run does not fit
  explicit trainer(Model& model, detail::run_config_of<Model> settings = {});

  /// What a run needs, from a dry run of one step. Allocates nothing.
  [[nodiscard]] static dry_run run_dry(const typename Model::config_type& sizes, const typename Model::options& options,
                                       const config& settings, const typename device::properties& properties) {
    return detail::run_dry<Model>(sizes, options, settings, properties);
  }

  /// A destroyed observer is detached; a second attachment has no effect.
  void attach(observer& watcher) {
    if (!is_attached(watcher)) observers_.push_back({&watcher, detail::watched(watcher)});
  }
  /// For an observer that must be attached: fit() refuses to run without it.
  ///   what   its name, for the message
  void expect_attached(observer& watcher, std::string what) { expected_.push_back({{&watcher, detail::watched(watcher)}, std::move(what)}); }
  template <class Event>
  void tell(const Event& event) {
    const observers_at_work mark(telling_);
    for (std::size_t i = 0; i < observers_.size(); ++i)  // an observer may attach another
      if (!observers_[i].life.is_destroyed()) observers_[i].one->on(event);
  }

  /// Trains until the config's steps or epochs are done, or a stop is requested.
  ///   throws  data_error when the data does not fit the model, non_finite_error after too many bad steps in a row, config_error in an observer, and with
  ///           eval_steps without held_out
  void fit(const dataset& data, const dataset* held_out = nullptr, std::stop_token stop = {});
  void fit(loader& rows, const dataset* held_out = nullptr, std::stop_token stop = {});
  /// For an encoder.
  void fit(const sentence_dataset& data, const sentence_dataset* held_out = nullptr, std::stop_token stop = {});

  /// Mean loss and perplexity over the data, in one pass.
  [[nodiscard]] evaluation evaluate(const dataset& data);
  /// For an encoder: mean loss of masked tokens plus mean loss of labels.
  [[nodiscard]] evaluation evaluate(const sentence_dataset& data);

  /// One optimizer step on the given micro-batches (host_batch, or xtensor_batch), for custom training loops; fit() calls it.
  ///   throws  data_error when a token is outside the vocabulary, a position is out of range, or a start is not the start of the token's
  ///           sample; non_finite_error after too many bad steps in a row; config_error in an observer, and while another thread uses the model. On other
  ///           errors: with one rank, the step has no effect; with several, ranks may be in different states, and later calls throw comm_error
  template <class Batch>
  step_done step(std::span<const Batch> batches, double learning_rate) {
    require_no_queued_steps("trainer: step()");
    queue_step(batches, learning_rate);
    return finish_step();
  }
  template <class Batch>
  step_done step(std::span<Batch> batches, double learning_rate) requires(!std::is_const_v<Batch>) {
    return step(std::span<const Batch>(batches), learning_rate);
  }
  template <class Batch>
  step_done step(const std::vector<Batch>& batches, double learning_rate) {
    return step(std::span<const Batch>(batches), learning_rate);
  }
  /// One micro-batch.
  template <class Batch>
  step_done step(const Batch& batch, double learning_rate) requires requires { batch_view(batch); } {
    return step(std::span(&batch, 1), learning_rate);
  }
  /// step() in two parts. At most two steps may be queued: the device works while the host reads a result. Weights, and all that a step's result does not
  /// contain,
  /// are after all queued steps.
  template <class Batch>
  void queue_step(std::span<const Batch> batches, double learning_rate) {
    static_assert(std::constructible_from<batch_view, const Batch&>,
                  "xtrain trainer: a batch must be a host_batch, an xtensor_batch, or a type with all fields of a host_batch; see train/README.md");
    views_.clear();
    for (const Batch& batch : batches) views_.emplace_back(batch);
    queued_data_[(progress_.step + queued_steps() + 1) % queued_data_.size()].sequences = 0;  // known only to fit()
    queue_step_of(views_, learning_rate);
  }
  template <class Batch>
  void queue_step(std::span<Batch> batches, double learning_rate) requires(!std::is_const_v<Batch>) {
    queue_step(std::span<const Batch>(batches), learning_rate);
  }
  template <class Batch>
  void queue_step(const std::vector<Batch>& batches, double learning_rate) {
    queue_step(std::span<const Batch>(batches), learning_rate);
  }
  /// Where the data continues after the last step, rows.state(); stored in checkpoints. For custom loops: fit() does it.
  void set_data_state(const loader_state& after) { progress_.data = after; }
  step_done finish_step();
  [[nodiscard]] std::size_t queued_steps() const { return step_->pending(); }

  /// log p(target) of every token of a batch, 0 without a target; forward pass without dropout. All ranks of the model call it.
  ///   without_adapter   of the base model, if only an adapter is trained
  ///   throws  config_error for context parallelism, and while steps are queued; data_error
  template <class Batch>
  [[nodiscard]] std::vector<float> token_log_probs(const Batch& batch, bool without_adapter = false) {
    require_usable();
    require_no_queued_steps("trainer: token_log_probs()");
    const auto use = use_of_model();
    return together(remains::nothing, [&] { return step_->token_log_probs(batch_view(batch), without_adapter); });
  }

  /// Like token_log_probs: the value of every token with a target, 0 elsewhere; for the objective ppo_value.
  template <class Batch>
  [[nodiscard]] std::vector<float> token_values(const Batch& batch) {
    static_assert(requires(typename objective::template state<model_computation<Model>>& state) { state.predicts(true); },
                  "xtrain trainer::token_values: the recipe's 'objective' must be ppo_value; see rl/README.md");
    require_usable();
    require_no_queued_steps("trainer: token_values()");
    const auto use = use_of_model();
    return together(remains::nothing, [&] { return step_->token_values(batch_view(batch)); });
  }

  [[nodiscard]] const config& settings() const { return config_; }
  /// throws  config_error when the model was moved, assigned to or destroyed
  [[nodiscard]] Model& model() {
    require_model();
    return *model_;
  }
  [[nodiscard]] const Model& model() const {
    require_model();
    return *model_;
  }
  [[nodiscard]] const detail::lifetime& lifetime() const { return lifetime_; }
  /// What the run needs, second models included.
  [[nodiscard]] const dry_run& plan() const { return plan_; }
  [[nodiscard]] const training_progress& progress() const { return progress_; }
  /// Whether any rank requested a stop in the last fit().
  [[nodiscard]] bool is_stopped() const { return stopped_; }
  /// A reference model, as dpo needs: see reference_model. Once it is destroyed, steps and evaluations throw a config_error.
  ///   throws  config_error when it is the trained model, or has another vocabulary
  void use_reference(log_prob_source<device>& source) {
    detail::require_second_model("trainer: the reference model", source, *model_);
    step_->use_reference(&source);
    reference_life_ = detail::watched(source);
    plan_.set_beside("reference model", source.plan());
  }
  /// A teacher for distillation: see teacher_model. Lifetime as for a reference model.
  template <class Teacher>
  void use_teacher(Teacher& source) {
    static_assert(has_hook<objective, hook::uses_teacher>, "xtrain trainer::use_teacher: the recipe's 'objective' must have the hook 'uses_teacher', as "
                                                           "distillation has; see objective/README.md");
    detail::require_second_model("trainer: the teacher", source, *model_);
    step_->use_teacher(&source);
    teacher_life_ = detail::watched(source);
    plan_.set_beside("teacher", detail::plan_of(source));
  }
  /// Restores the state of a saved run, from which fit() continues. Results of queued steps are dropped.
  ///   throws  comm_error after a step that failed on one of several ranks; config_error in an observer
  void restore(const training_progress& saved) {
    require_model();
    require_outside_observers("trainer: restore()");
    const auto use = use_of_model();
    failed_.restore();
    while (queued_steps() > 0) (void)step_->finish();
    progress_ = saved;
    restored_ = true;
    restore_device();
  }
  template <class Visit>
  void visit_optimizer(Visit&& visit) {
    step_->visit_optimizer(visit);
  }
  /// After restoring weights and optimizer state: master weights are as read, not copies of the weights.
  void note_restored_optimizer() { step_->note_restored_optimizer(); }

  /// All ranks of the model call it.
  ///   throws  non_finite_error when a weight of any rank is not finite
  void require_finite_weights();
  /// throws config_error while a step is queued: weights would be after it, progress() before it
  void require_no_queued_steps(std::string_view who) const {
    require<config_error>(queued_steps() == 0, who, " must not be called while steps are queued; call finish_step() for each; queued are ", queued_steps());
  }
  /// throws config_error in an observer: the step or run of its event is not over
  void require_outside_observers(std::string_view who) const {
    require<config_error>(telling_ == 0, who, " must not be called in an observer, whose step or run is not over. Request a stop, and call it after fit(); "
                          "see train/README.md");
  }

  [[nodiscard]] loader_config loader_settings() const {
    require_model();
    return detail::loader_settings_of(*model_, config_);
  }

  /// Writes a Hugging Face folder, or a GGUF file if the name ends in .gguf; an adapter as a PEFT folder. Arguments: save_options, or save_adapter_options
  /// where an adapter freezes weights.
  ///   throws  non_finite_error when a weight is not finite; what save_pretrained throws
  template <class... Arguments>
  void save(const std::string& folder, const Arguments&... arguments) {
    static_assert(
        requires { save_pretrained(std::declval<const Model&>(), folder, arguments...); },
        "xtrain trainer::save: the 'io' component must be included (<xtrain/io.hpp>, xtrain::io), and options must be save_options, or save_adapter_options "
        "where an adapter freezes weights; such an adapter of your own needs a save_pretrained of its own; see io/README.md");
    require_usable();
    require_no_queued_steps("trainer: save()");
    const auto use = use_of_model();
    require_finite_weights();
    save_pretrained(*model_, folder, arguments...);
  }

 private:
  using clock = std::chrono::steady_clock;
  using remains = detail::remains;

  /// throws  config_error when the model was moved or destroyed; what failed_step throws
  void require_usable() const {
    require_model();
    failed_.require_whole_steps();
  }
  void require_model() const { model_life_.require_model("trainer"); }
  /// throws config_error while another thread uses the model
  [[nodiscard]] auto use_of_model() const { return detail::use_of(*model_, "trainer"); }
  void require_second_models() const {
    reference_life_.require_there("trainer", "the reference model");
    teacher_life_.require_there("trainer", "the teacher");
  }

  [[nodiscard]] bool is_attached(const observer& watcher) const {
    return std::any_of(observers_.begin(), observers_.end(),
                       [&](const attached_observer& each) { return each.one == &watcher && !each.life.is_destroyed(); });
  }
  void require_expected_observers() const {
    for (const auto& [each, what] : expected_)
      require<config_error>(each.life.is_destroyed() || is_attached(*each.one), "trainer: ", what,
                            " must be attached before fit(), or it saves nothing; call attach(); see train/README.md");
  }

  // ---- a step ----

  void queue_step_of(std::span<const batch_view> batches, double learning_rate);
  void tell_of_skipped(const detail::step_result& result);
  void restore_device() {
    const dynamic_loss_scale::memory& scale = progress_.loss_scale;
    step_->restore({.loss_scale = precision::scales_loss ? scale.scale : 1.0,
                    .good_steps = static_cast<double>(scale.good),
                    .overflows_left = static_cast<double>(scale.overflows_left),
                    .updates = static_cast<double>(progress_.updates)});
  }
  /// Collective work; `remaining`: what is left behind when it throws on a single rank.
  template <class Work>
  decltype(auto) together(remains remaining, Work&& work) {
    return failed_.together(model_->parallel().world().size(), remaining, work, [&] { step_->forget(); });
  }

  // ---- the loop ----

  template <class Rows, class Data>
  void fit_loader(Rows& rows, const Data* held_out, std::stop_token stop) {
    require_usable();
    require_outside_observers("trainer: fit()");
    require_expected_observers();
    require<config_error>(held_out != nullptr || config_.eval_steps == 0, "trainer: eval_steps must be 0 in a fit() without held-out data; given ",
                          config_.eval_steps, ". Give fit() the data to evaluate as its second argument");
    while (queued_steps() > 0) (void)finish_step();  // an exception ended a fit()
    struct refused_run {
      training_progress* progress;
      training_progress before;
      ~refused_run() {
        if (progress != nullptr) *progress = before;
      }
    } refused{&progress_, progress_};
    if (!restored_) progress_.step = progress_.skipped_sequences = 0;  // a new run
    else rows.restore(progress_.data);
    std::unique_ptr<Rows> held_out_rows;
    if (held_out != nullptr) held_out_rows = std::make_unique<Rows>(*held_out, evaluation_settings());
    const std::size_t steps = detail::steps_of(config_, rows.steps_per_epoch());
    const global_batch_sizes batch_sizes = rows.batch_sizes();
    require<config_error>(!config_.rampup_batch_size || steps <= rows.steps_per_epoch(), "rampup_batch_size: the data must have the samples of all ", steps,
                          " steps, ", batch_sizes.before(steps), "; it has ", rows.rows());
    require<config_error>(rows.config().rampup == config_.rampup_batch_size,
                          "rampup_batch_size: the loader must have that of the trainer's settings; make it with trainer.loader_settings()");
    require<config_error>(!config_.rampup_batch_size || progress_.step >= steps || (rows.state().epoch == 0 && rows.state().step == progress_.step),
                          "rampup_batch_size: the data must be at the step of the run, ", progress_.step, "; its loader is at step ", rows.state().step,
                          " of epoch ", rows.state().epoch, ". Begin a run with a new loader; a run that has used all its samples cannot be continued");
    const auto counted = [&](std::size_t step) {  // the schedule's count before this step
      if (!config_.lr_counts_sequences && !config_.lr_counts_updates) return step;
      const std::size_t sequences = batch_sizes.before(step) - (config_.lr_counts_updates ? progress_.skipped_sequences : 0);
      return config_.lr_counts_sequences ? sequences : sequences / rows.sequences_per_step();
    };
    const learning_rate_schedule rates = detail::lr_schedule_for(config_, config_.lr_counts_sequences ? batch_sizes.before(steps) : steps);
    const auto begin = clock::now();
    tell(run_began{progress_.step, steps, rows.steps_per_epoch(), model_->parameters().count(), model_->parameters().trained_count(),
                   rows.sequences_per_step(), config_.seq_length, plan_.record.operations(), model_->context().memory(), config_.rampup_batch_size,
                   batch_sizes, unused_of(rows)});
    refused.progress = nullptr;  // after all that may refuse the run
    restored_ = false;
    bool ends = false;
    while (progress_.step < steps && !ends) {
      stopwatch_.begin();
      const std::size_t step = progress_.step + queued_steps();
      ends = step >= steps || stopped_anywhere(stop);
      if (!ends) {
        const auto batches = together(remains::nothing, [&] { return rows.next(); });
        queue_step(batches, rates.at(counted(step)));
        queued_data& data = queued_data_[(step + 1) % queued_data_.size()];
        data = {.after = rows.state(), .sequences = batch_sizes.of(step)};
        for (const host_batch& batch : batches) data.tokens += batch.token_count;
      }
      const bool waits = ends || !config_.late_metrics || needs_results_of(step + 1);
      while (queued_steps() > (waits ? 0 : 1)) {
        finish_and_tell(steps, rows);
        if (held_out_rows && config_.eval_steps > 0 && progress_.step % config_.eval_steps == 0) evaluate_and_tell(*held_out_rows);
      }
    }
    // skip the evaluation: a stop request must lead to a checkpoint quickly
    const bool evaluated = config_.eval_steps > 0 && progress_.step % config_.eval_steps == 0;
    if (held_out_rows && !evaluated && !stopped_) evaluate_and_tell(*held_out_rows);
    tell(run_ended{progress_.step, steps, progress_.step < steps, seconds_since(begin), progress_.skipped, model_->context().memory()});
  }
  template <class Rows>
  [[nodiscard]] static unused_samples unused_of([[maybe_unused]] const Rows& rows) {
    if constexpr (std::derived_from<Rows, loader>) return rows.unused();
    else return {};
  }
  template <class Rows>
  void finish_and_tell(std::size_t steps, const Rows& rows) {
    const queued_data& data = queued_data_[(progress_.step + 1) % queued_data_.size()];
    progress_.data = data.after;
    const std::size_t skipped_before = progress_.skipped;
    step_done done = finish_step();
    stopwatch_.end(data.tokens);
    stopwatch_.begin();  // of the next, if queued
    if (progress_.skipped == skipped_before) {
      done.steps = steps;
      done.epoch = static_cast<double>(progress_.step) / static_cast<double>(rows.steps_per_epoch());
      tell(done);
    }
    tell_of_ranks();
  }
  /// Whether the weights after this step are read, so that the next step must wait.
  [[nodiscard]] bool needs_results_of(std::size_t step) const {
    const auto every = [&](std::size_t steps) { return steps > 0 && step % steps == 0; };
    return every(config_.eval_steps) || every(config_.measure_ranks_every) ||
           std::any_of(observers_.begin(), observers_.end(),
                       [&](const attached_observer& each) { return !each.life.is_destroyed() && each.one->reads_weights_after(step); });
  }

  /// throws config_error when samples that the objective compares may be separated
  static void require_groups(const dataset& data) {
    require<config_error>(data.group_size == objective::group_size, objective::name, ": the data's group_size must be ", objective::group_size,
                          ", the number of consecutive samples that it compares; ", data.source(), " has ", data.group_size);
  }
  /// Gathers one small message per rank, every measure_ranks_every steps.
  void tell_of_ranks();
  /// Makes all ranks stop after the same step.
  [[nodiscard]] bool stopped_anywhere(const std::stop_token& stop);
  [[nodiscard]] static double seconds_since(clock::time_point begin) { return std::chrono::duration<double>(clock::now() - begin).count(); }

  // ---- evaluation ----

  [[nodiscard]] loader_config evaluation_settings() const { return detail::for_evaluation(loader_settings()); }
  [[nodiscard]] evaluation evaluate(const loader& rows);
  [[nodiscard]] evaluation evaluate_loader(const loader& rows);
  [[nodiscard]] evaluation evaluate(const sentence_loader& rows);
  [[nodiscard]] evaluation evaluate_loader(const sentence_loader& rows);
  template <class Rows>
  void evaluate_and_tell(const Rows& rows) {
    const auto begin = clock::now();
    const evaluation found = evaluate(rows);
    tell(evaluation_done{progress_.step, found.loss, found.perplexity, found.targets, seconds_since(begin)});
  }

  Model* model_;
  detail::watched model_life_, reference_life_{}, teacher_life_{};
  config config_;
  dry_run plan_{};
  std::optional<detail::training_step<Model>> step_;
  detail::step_guard guard_;
  detail::failed_step failed_{};
  training_progress progress_{};
  detail::rank_stopwatch stopwatch_;
  bool restored_ = false;
  bool stopped_ = false;
  class observers_at_work {
   public:
    explicit observers_at_work(std::size_t& count) : count_(count) { ++count_; }
    ~observers_at_work() { --count_; }
    observers_at_work(const observers_at_work&) = delete;
    observers_at_work& operator=(const observers_at_work&) = delete;

   private:
    std::size_t& count_;
  };
  std::size_t telling_ = 0;  // tell() calls that are not over
  struct attached_observer {
    observer* one;
    detail::watched life;
  };
  std::vector<attached_observer> observers_;
  std::vector<std::pair<attached_observer, std::string>> expected_;
  std::vector<batch_view> views_;
  struct queued_data {
    loader_state after{};    // of the next step
    std::size_t tokens = 0;  // of this rank
    std::size_t sequences = 0;  // of all ranks
  };
  std::array<queued_data, 2> queued_data_{};  // of queued steps, by step
  clock::time_point step_began_{};
  detail::address_lifetime lifetime_;
};

template <class Model>
trainer<Model>::trainer(Model& model, detail::run_config_of<Model> settings)
    : model_(&model), model_life_(model), config_(detail::complete_config(model, std::move(settings))),
      guard_(config_.max_bad_steps) {
  if constexpr (!is_dry<device>) {
    if constexpr (has_hook<typename recipe::parallel, hook::ranks>)
      require<config_error>(model.settings().parallel.ranks != nullptr || detail::ranks_of_thread == 1 || is_dry_run(model.context()),
                            "trainer: a model that is made in run_ranks must be given the ranks, {.parallel = {.ranks = ranks}}: without, each of the ",
                            detail::ranks_of_thread, " ranks would train alone. If it shall, give it one_rank()");
    if (!is_dry_run(model.context())) {
      plan_ = run_dry(model.config(), model.settings(), config_, model.context().properties());
      detail::require_room<device>(plan_, model.context());
    }
  }
  step_.emplace(model, config_, plan_.passes);
  views_.reserve(config_.gradient_accumulation_steps);
  progress_.seed = config_.seed;
  progress_.loss_scale = dynamic_loss_scale::initial(config_.loss_scale);
  restore_device();
}

template <class Model>
void trainer<Model>::queue_step_of(std::span<const batch_view> batches, double learning_rate) {
  require_usable();
  require_outside_observers("trainer: step()");
  require_second_models();
  require<config_error>(queued_steps() < queued_data_.size(), "trainer: at most ", queued_data_.size(),
                        " steps must be queued; finish_step() must be called for the first");
  require<config_error>(learning_rate >= 0.0 && std::isfinite(learning_rate),
                        "trainer: the learning rate of a step must be non-negative; given ", learning_rate);
  const auto use = use_of_model();
  if (queued_steps() == 0) step_began_ = clock::now();
  step_->require_batches(batches);
  if (config_.check_targets && !is_dry_run(model_->context())) detail::require_shifted_targets<Model>(batches);
  step_->take_changes(config_);
  // counted across fit() calls: random numbers must not repeat
  const auto number = static_cast<std::uint32_t>(progress_.updates + progress_.skipped + queued_steps());
  together(remains::nothing, [&] { step_->forward_backward(batches, number); });
  together(remains::half_a_step, [&] { step_->update_weights(learning_rate, number); });
  step_->note_own_change();
}

template <class Model>
auto trainer<Model>::finish_step() -> step_done {
  require_usable();
  require<config_error>(queued_steps() > 0, "trainer: finish_step() must follow queue_step(); no step is queued");
  require_outside_observers("trainer: finish_step()");
  const detail::step_result result = [&] {
    const auto use = use_of_model();
    return together(remains::half_a_step, [&] { return step_->finish(); });
  }();
  ++progress_.step;
  detail::step_guard::count(progress_, result.report);
  if (result.report.is_skipped != 0) progress_.skipped_sequences += queued_data_[progress_.step % queued_data_.size()].sequences;
  const auto now = clock::now();
  step_done done{.step = progress_.step,
                 .steps = config_.max_steps,
                 .loss = result.report.loss,
                 .learning_rate = result.learning_rate,
                 .gradient_norm = result.report.gradient_norm,
                 .tokens = result.tokens,
                 .targets = result.targets,
                 .seconds = std::chrono::duration<double>(now - step_began_).count(),
                 .loss_scale = result.report.loss_scale,
                 .statistics = result.report.statistics,
                 .statistic_names = objective::statistics};
  if constexpr (has_hook<objective, hook::reported>) done.statistics = objective::reported(done.statistics);
  if (result.is_empty) {  // a mean over nothing
    done.loss = std::numeric_limits<double>::quiet_NaN();
    std::fill_n(done.statistics.begin(), objective::statistics.size(), done.loss);
  }
  step_began_ = now;  // of the next, if queued
  done.operations =
      plan_.record.operations() * static_cast<double>(result.num_tokens) / static_cast<double>(std::max<std::size_t>(plan_.num_tokens, 1));
  done.peak_memory = model_->context().memory().total_peak;
  if (result.report.is_skipped != 0) tell_of_skipped(result);
  return done;
}

template <class Model>
void trainer<Model>::tell_of_skipped(const detail::step_result& result) {
  const auto reason = [&] {
    if (result.report.is_overflow != 0) return guard_.overflow_text(result.report.loss_scale);
    if (queued_steps() > 0) return concat("the loss is ", result.report.loss, " and the gradient's norm ", result.report.gradient_norm);
    pinned_pipe<typename Model::device> pipe(model_->context());
    return detail::name_not_finite(pipe, model_->stream(), model_->parameters(), result.report.loss, result.report.gradient_norm);
  };
  const step_skipped skipped{progress_.step, reason(), result.report.is_overflow != 0, progress_.bad_in_a_row};
  tell(skipped);
  guard_.require_good_steps(progress_, skipped.reason);
}

template <class Model>
auto trainer<Model>::evaluate(const dataset& data) -> evaluation {
  require_usable();
  require_groups(data);
  require_tokens_below(data, model_->config().vocab_size);
  loader rows(data, evaluation_settings());
  return evaluate(rows);
}

template <class Model>
auto trainer<Model>::evaluate(const sentence_dataset& data) -> evaluation {
  require_usable();
  require_tokens_below(data, model_->config().vocab_size);
  return evaluate(sentence_loader(data, evaluation_settings()));
}

template <class Model>
auto trainer<Model>::evaluate(const loader& rows) -> evaluation {
  require_usable();
  require_second_models();
  require_no_queued_steps("trainer: evaluate()");  // its batches share their staging memory
  const auto use = use_of_model();
  return together(remains::nothing, [&] { return evaluate_loader(rows); });
}

template <class Model>
auto trainer<Model>::evaluate(const sentence_loader& rows) -> evaluation {
  require_usable();
  require_no_queued_steps("trainer: evaluate()");  // its batches share their staging memory
  const auto use = use_of_model();
  return together(remains::nothing, [&] { return evaluate_loader(rows); });
}

template <class Model>
auto trainer<Model>::evaluate_loader(const loader& rows) -> evaluation {
  return evaluate_batches(
      rows, [&](const host_batch& batch) { return step_->evaluate(batch_view(batch)); },
      [&](std::span<double> sums) {
        step_->all_reduce_losses(sums.first(1));  // every rank knows the number of targets
        model_->parallel().data().all_reduce(sums, reduction::sum);
      },
      [&](const host_batch& batch) { return count_losses<objective>(config_.objective, batch_view(batch)); });
}

template <class Model>
auto trainer<Model>::evaluate_loader(const sentence_loader& rows) -> evaluation {
  return evaluate_sentences(
      rows,
      [&](const host_batch& batch, double label_weight) {
        std::array<double, 1> loss{step_->evaluate(batch_view(batch), label_weight)};
        step_->all_reduce_losses(loss);
        return loss[0];
      },
      [&](std::span<double> sums) { model_->parallel().data().all_reduce(sums, reduction::sum); });
}

template <class Model>
void trainer<Model>::tell_of_ranks() {
  if (config_.measure_ranks_every == 0 || progress_.step % config_.measure_ranks_every != 0) return;
  auto& world = model_->parallel().world();
  const auto own = stopwatch_.take(model_->context().memory().total_peak);
  std::vector<double> all(own.size() * world.size());
  detail::gather_at_first(world, own, std::span<double>(all));
  if (world.rank() != 0) return;
  for (std::size_t rank = 0; rank < world.size(); ++rank) {
    const double* one = all.data() + rank * own.size();
    tell(rank_measured{progress_.step, rank, world.size(), one[0], one[1], one[2], static_cast<std::size_t>(one[3])});
  }
}

template <class Model>
auto trainer<Model>::stopped_anywhere(const std::stop_token& stop) -> bool {
  std::array<double, 1> asked{stop.stop_requested() ? 1.0 : 0.0};
  if (model_->parallel().world().size() > 1) model_->parallel().world().all_reduce(asked, reduction::largest);
  return stopped_ = asked[0] > 0;
}

template <class Model>
void trainer<Model>::require_finite_weights() {
  require_usable();
  const auto use = use_of_model();
  const store& all = model_->parameters();
  std::string problem;  // each rank checks its weights, and all must agree
  try {
    pinned_pipe<typename Model::device> pipe(model_->context());
    detail::require_finite_weights(pipe, model_->stream(), all, [&](const auto& values) { return step_->squares_on_host(values); });
  } catch (const non_finite_error& found) {
    problem = found.what();
  }
  std::array<double, 1> ranks_with_problem{problem.empty() ? 0.0 : 1.0};
  auto& world = model_->parallel().world();
  if (world.size() > 1) world.all_reduce(ranks_with_problem, reduction::largest);
  require<non_finite_error>(problem.empty(), problem);
  require<non_finite_error>(ranks_with_problem[0] == 0.0, "weights must be finite to be saved; those of another rank are not");
}

template <class Model>
void trainer<Model>::fit(const dataset& data, const dataset* held_out, std::stop_token stop) {
  loader rows(data, loader_settings());
  require_tokens_below(data, model_->config().vocab_size);
  if (held_out != nullptr) require_tokens_below(*held_out, model_->config().vocab_size);
  fit(rows, held_out, std::move(stop));
}

template <class Model>
void trainer<Model>::fit(loader& rows, const dataset* held_out, std::stop_token stop) {
  static_assert(
      causal_model<Model>,
      "xtrain trainer::fit: the model must be causal, to train on a dataset; this one is bidirectional; give it a sentence_dataset, or call step() with a "
      "batch from sentence_batch(); see models/README.md");
  require_groups(rows.data());
  if (held_out != nullptr) require_groups(*held_out);
  fit_loader(rows, held_out, std::move(stop));
}

template <class Model>
void trainer<Model>::fit(const sentence_dataset& data, const sentence_dataset* held_out, std::stop_token stop) {
  static_assert(!causal_model<Model>,
                "xtrain trainer::fit: the model must be bidirectional, to train on a sentence_dataset; this one is causal; give it a dataset; see "
                "data/README.md");
  sentence_loader rows(data, loader_settings());
  for (const sentence_dataset* each : {&data, held_out})
    if (each != nullptr) require_tokens_below(*each, model_->config().vocab_size);
  fit_loader(rows, held_out, std::move(stop));
}

/// Trainers of families that are made of the same layers share one type.
template <class Model>
trainer(Model&, training_config<typename Model::recipe::optimizer, typename Model::recipe::objective> = {}) -> trainer<shared_model<Model>>;

}  // namespace xtrain
