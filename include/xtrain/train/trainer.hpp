// The training loop.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/comm/concepts.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/shared_model.hpp>
#include <xtrain/data/loader.hpp>
#include <xtrain/data/sentence_loader.hpp>
#include <xtrain/device/dry/dry.hpp>
#include <xtrain/device/offload.hpp>
#include <xtrain/eval/concepts.hpp>
#include <xtrain/layers/batch.hpp>
#include <xtrain/layers/pass.hpp>
#include <xtrain/models/concepts.hpp>
#include <xtrain/models/pass_memory.hpp>
#include <xtrain/models/require_rows.hpp>
#include <xtrain/ops/elementwise.hpp>
#include <xtrain/optim/concepts.hpp>
#include <xtrain/optim/loss_scale.hpp>
#include <xtrain/optim/schedule.hpp>
#include <xtrain/parallel/concepts.hpp>
#include <xtrain/parallel/traffic.hpp>
#include <xtrain/train/concepts.hpp>
#include <xtrain/train/config.hpp>
#include <xtrain/train/events.hpp>
#include <xtrain/train/rank_stopwatch.hpp>
#include <xtrain/train/recipe.hpp>
#include <xtrain/train/training_progress.hpp>

namespace xtrain {

/// Trains a model. A step allocates nothing: a dry run of one step measures what it needs, and a run that does not fit
/// is refused before anything is allocated.
template <class Model>
class trainer {
 public:
  using model_type = Model;
  using recipe = typename Model::recipe;
  using device = typename recipe::device;
  using precision = typename recipe::precision;
  using optimizer = typename recipe::optimizer;
  using config = training_config<optimizer>;
  using store = typename Model::store;
  using accumulate = typename Model::accumulate;
  using memory = typename device::memory;

  static_assert(
      clause::recipe_names_every_axis<recipe>,
      "xtrain recipe: must name every axis (device, precision, parallel, optimizer, recompute, offload, adapter); inherit xtrain::defaults; see "
      "train/README.md");
  static_assert(xtrain::optimizer<optimizer>,
                "xtrain recipe: 'optimizer' must be an optimizer policy: a name, a config, a state; see optim/README.md");
  static_assert(
      optimizer_for<optimizer, device, precision>,
      "xtrain recipe: the optimizer's state must open on a parameter store of this device and precision, step, and show its arrays; see "
      "optim/README.md");
  static_assert(
      parallel_strategy_for<typename recipe::parallel, device, store>,
      "xtrain recipe: 'parallel' must be a parallel strategy for this device: communicators, and hooks around blocks; see parallel/README.md");
  static_assert(offload_policy<typename recipe::offload>, "xtrain recipe: 'offload' must be an offload policy; see device/README.md");

  /// throws  config_error when the settings do not suit the model, memory_error when the run does not fit: with the sizes
  explicit trainer(Model& model, training_config<typename Model::recipe::optimizer> settings = {})
      : model_(&model), config_(complete(model, std::move(settings))), scale_(config_.loss_scale) {
    if constexpr (!is_dry<device>) {
      if (!is_dry_run(model.context())) {
        plan_ = run_dry(model.config(), model.settings(), config_, model.context().properties());
        require_room();
      }
    }
    model.parameters().allocate_gradients();
    memory_.emplace(model, config_, plan_.passes);
    views_.reserve(config_.gradient_accumulation_steps);
    auto on = memory_->passes.execution_on();
    optimizer_.emplace(config_.optimizer, on, model.parameters());
    model.stream().synchronize();
    progress_.seed = config_.seed;
    progress_.loss_scale = scale_.save();
  }

  /// Dry run of one step with this trainer: what a run would need. Allocates nothing.
  [[nodiscard]] static dry_run run_dry(const typename Model::config_type& sizes, const typename Model::options& options,
                                          const config& settings, const typename device::properties& properties) {
    auto model = make_dry_model<Model>(sizes, options, properties);
    using dry_trainer = trainer<dry_model<Model>>;
    // every micro-batch is like the one before, so the difference that the last one makes is extrapolated; in a pipeline, the last `depth` ones
    const config all = dry_trainer::complete(model, settings);
    std::size_t few = 8, together = 1;
    if constexpr (strategy_runs && requires { model.parallel().depth(); options.parallel.micro_batch_sizes; }) {
      together = model.parallel().depth();
      few = options.parallel.micro_batch_sizes.empty() ? 8 * together + all.gradient_accumulation_steps % together : all.gradient_accumulation_steps;
    } else if constexpr (strategy_runs) {
      few = all.gradient_accumulation_steps;
    }
    if (all.gradient_accumulation_steps <= few) return dry_trainer(model, settings).run_dry_step();
    config fewer = all;
    fewer.gradient_accumulation_steps = few - together;
    const dry_run without = dry_trainer(model, fewer).run_dry_step();
    auto again = make_dry_model<Model>(sizes, options, properties);
    fewer.gradient_accumulation_steps = few;
    return dry_trainer(again, fewer).run_dry_step().with_more_micro_batches(without, (all.gradient_accumulation_steps - few) / together);
  }

  void attach(observer& watcher) { observers_.push_back(&watcher); }
  /// Reports an event to all observers; an observer may call it, too.
  template <class Event>
  void tell(const Event& event) {
    for (observer* watcher : observers_) watcher->on(event);
  }

  /// Trains on the data until the config's steps or epochs are done, or a stop is requested.
  ///   throws  data_error when the data does not fit the model, non_finite_error after too many bad steps in a row
  void fit(const dataset& data, const dataset* held_out = nullptr, std::stop_token stop = {}) {
    loader rows(data, loader_settings());
    require_tokens_below(data, model_->config().vocab_size);
    if (held_out != nullptr) require_tokens_below(*held_out, model_->config().vocab_size);
    fit(rows, held_out, std::move(stop));
  }
  void fit(loader& rows, const dataset* held_out = nullptr, std::stop_token stop = {}) {
    static_assert(
        causal_model<Model>,
        "xtrain trainer::fit: the model must be causal, to train on a dataset; this one is bidirectional; give it a sentence_dataset, or call step() with a "
        "batch from sentence_batch(); see models/README.md");
    fit_rows(rows, held_out, std::move(stop));
  }
  /// The same for an encoder.
  void fit(const sentence_dataset& data, const sentence_dataset* held_out = nullptr, std::stop_token stop = {}) {
    static_assert(!causal_model<Model>,
                  "xtrain trainer::fit: the model must be bidirectional, to train on a sentence_dataset; this one is causal; give it a dataset; see "
                  "data/README.md");
    sentence_loader rows(data, loader_settings());
    for (const sentence_dataset* each : {&data, held_out})
      if (each != nullptr) require_tokens_below(*each, model_->config().vocab_size);
    fit_rows(rows, held_out, std::move(stop));
  }

  /// Mean loss and perplexity over the data, in one pass.
  [[nodiscard]] evaluation evaluate(const dataset& data) {
    require_tokens_below(data, model_->config().vocab_size);
    loader rows(data, evaluation_settings());
    return evaluate(rows);
  }
  /// The same for an encoder: the mean loss of masked tokens plus the mean loss of labels.
  [[nodiscard]] evaluation evaluate(const sentence_dataset& data) {
    require_tokens_below(data, model_->config().vocab_size);
    return evaluate(sentence_loader(data, evaluation_settings()));
  }

  /// One optimizer step on the given micro-batches (host_batch, or xtensor_batch). fit() calls it in a loop; public for custom
  /// training loops.
  ///   throws  data_error when a token is not in the vocabulary, a position is out of range, or a start is not the start of the token's
  ///           sample; non_finite_error after too many bad steps in a row. On other errors: with one rank, the step has no effect; with
  ///           several, ranks may be in different states, and later calls throw comm_error
  template <class Batch>
  step_done step(std::span<const Batch> batches, double learning_rate) {
    views_.clear();
    for (const Batch& batch : batches) views_.emplace_back(batch);
    return step_of(views_, learning_rate);
  }

  [[nodiscard]] const config& settings() const { return config_; }
  [[nodiscard]] Model& model() { return *model_; }
  [[nodiscard]] const Model& model() const { return *model_; }
  [[nodiscard]] const dry_run& plan() const { return plan_; }
  [[nodiscard]] const training_progress& progress() const { return progress_; }
  /// Whether the last fit() ended because a stop was requested, on any rank.
  [[nodiscard]] bool is_stopped() const { return stopped_; }
  /// Restores the state of a saved run: fit() then continues from there.
  ///   throws  comm_error after a step that failed on one of several ranks
  void restore(const training_progress& saved) {
    require_ranks_together();
    left_ = remains::nothing;
    progress_ = saved;
    restored_ = true;
    scale_.restore(saved.loss_scale);
  }
  /// Calls visit(name, span) for every array of the optimizer's state.
  template <class Visit>
  void visit_optimizer(Visit&& visit) {
    optimizer_->visit(visit);
  }

  /// throws non_finite_error when a weight is not finite
  void require_finite_weights() {
    require_whole_steps();
    const store& all = model_->parameters();
    for (const auto& entry : all.entries()) {
      if (entry.spec.quantised) continue;  // quantized weights are frozen
      const auto own = all.piece_of(entry);
      const auto values = all.sharding().values ? all.stored_values().subspan(own.kept, own.count) : all.value(entry);
      if (values.empty() || std::isfinite(squares_of(values))) continue;
      require<non_finite_error>(not_finite_in(values) == 0, "training: weights must be finite to be saved; ", entry.spec.name,
                                " is not (block ", entry.block, ")");
    }
  }

  /// How this trainer reads a dataset.
  [[nodiscard]] loader_config loader_settings() const {
    return {.micro_batch_size = config_.micro_batch_size,
            .gradient_accumulation_steps = config_.gradient_accumulation_steps,
            .seq_length = config_.seq_length,
            .shuffle = config_.shuffle,
            .seed = config_.seed,
            .ranks = model_->parallel().data().size(),
            .rank = model_->parallel().data().rank(),
            .pad_to_multiple_of = std::lcm(std::size_t{8}, dividing_rows(*model_)),
            .micro_batch_sizes = unequal_rows()};
  }

  /// Writes the model as a Hugging Face folder; see io/pretrained.hpp.
  template <class... Arguments>
  void save(const std::string& folder, const Arguments&... arguments) const {
    static_assert(
        requires { save_pretrained(std::declval<const Model&>(), folder, arguments...); },
        "xtrain trainer::save: the 'io' component must be included, and an adapter of your own that freezes weights must have a "
        "save_pretrained of its own; include <xtrain/io.hpp> and link xtrain::io; see io/README.md");
    require_whole_steps();
    save_pretrained(*model_, folder, arguments...);
  }

 private:
  template <class>
  friend class trainer;
  using clock = std::chrono::steady_clock;

  /// A pipeline strategy runs a step's micro-batches in an order of its own.
  static constexpr bool strategy_runs = clause::strategy_runs_steps<typename recipe::parallel, Model>;
  struct no_runner {
    std::size_t max_num_tokens;
    no_runner(Model&, std::size_t batch, std::size_t, std::size_t context, const pass_sizes&) : max_num_tokens(batch * context) {}
    [[nodiscard]] std::size_t num_tokens() const { return max_num_tokens; }
  };
  template <class Strategy, bool Runs>
  struct runner_of {
    using type = no_runner;
  };
  template <class Strategy>
  struct runner_of<Strategy, true> {
    using type = typename Strategy::template runner<Model>;
  };

  /// Device memory of a step.
  struct step_memory {
    typename runner_of<typename recipe::parallel, strategy_runs>::type runner;
    pass_memory<Model> passes;
    batch_memory<device> batch;
    buffer<device> losses, norm;
    std::vector<accumulate> host_losses;

    step_memory(Model& of, const config& c, const pass_sizes& sizes)
        : runner(of, c.micro_batch_size, c.gradient_accumulation_steps, c.seq_length, sizes),
          passes(of, strategy_runs ? pass_sizes{.workspace = sizes.workspace} : sizes),  // the runner has its own stashes
          batch(of.context(), strategy_runs ? 0 : runner.num_tokens(), attention_mask_of(of), context_shard_of(of.parallel())),
          losses(of.context(), local_tokens_of(of) * sizeof(accumulate), memory_role::batch), norm(of.context(), sizeof(double), memory_role::batch),
          host_losses(local_tokens_of(of)) {}

    [[nodiscard]] std::size_t local_tokens_of(const Model& of) const { return runner.num_tokens() / context_shard_of(of.parallel()).ranks; }
    [[nodiscard]] vector_view<accumulate, memory> losses_of(std::size_t n) const { return {losses.template as<accumulate>().subspan(0, n), {n}}; }
    [[nodiscard]] pass_sizes high_water() const {
      pass_sizes most = passes.high_water();
      if constexpr (strategy_runs) {
        const std::size_t workspace = most.workspace;
        most = runner.high_water();
        most.workspace = workspace;
      }
      return most;
    }
    /// Resets after a pass that threw, on one rank.
    void forget() {
      passes.forget();
      if constexpr (strategy_runs) runner.forget();
    }
    /// Size of all stashes, given the sizes of one pass.
    [[nodiscard]] std::size_t stash_bytes(const pass_sizes& each) const {
      if constexpr (strategy_runs) return runner.stash_bytes(each);
      else return each.stash();
    }
  };

  /// Results of the forward and backward passes of a whole step.
  struct step_sums {
    double loss = 0;  // mean over targets
    double gradient_norm = 0;
    std::size_t targets = 0, tokens = 0, num_tokens = 0;
  };

  step_done step_of(std::span<const batch_view> batches, double learning_rate) {
    const auto begin = clock::now();
    require_whole_steps();
    if (!is_dry_run(model_->context())) require_rows(batches);
    if constexpr (strategy_runs) memory_->runner.require_batches(batches);
    const step_sums sums = together(remains::nothing, [&] { return forward_backward(batches); });
    step_done done{.step = progress_.step + 1,
                   .steps = config_.max_steps,
                   .loss = sums.loss,
                   .learning_rate = learning_rate,
                   .gradient_norm = sums.gradient_norm,
                   .tokens = sums.tokens,
                   .targets = sums.targets,
                   .loss_scale = loss_scale()};
    if (std::isfinite(sums.loss) && std::isfinite(sums.gradient_norm)) {
      together(remains::half_a_step, [&] { change_weights(sums.gradient_norm, learning_rate); });
      if (precision::scales_loss) scale_.fitted();
      ++progress_.updates;
      progress_.bad_in_a_row = 0;
      last_skip_.reset();
    } else {
      skip(sums);
    }
    ++progress_.step;
    progress_.loss_scale = scale_.save();
    done.seconds = seconds_since(begin);
    done.operations =
        plan_.record.operations() * static_cast<double>(sums.num_tokens) / static_cast<double>(std::max<std::size_t>(plan_.num_tokens, 1));
    done.peak_memory = model_->context().memory().total_peak;
    return done;
  }

  template <class Rows, class Data>
  void fit_rows(Rows& rows, const Data* held_out, std::stop_token stop) {
    require_whole_steps();
    if (!std::exchange(restored_, false)) progress_.step = 0;  // a new run
    else rows.restore(progress_.data);
    std::unique_ptr<Rows> held_out_rows;
    if (held_out != nullptr) held_out_rows = std::make_unique<Rows>(*held_out, evaluation_settings());
    const std::size_t steps = steps_of(rows);
    const learning_rate_schedule rates = schedule_for(steps);
    const auto begin = clock::now();
    tell(run_began{progress_.step, steps, rows.steps_per_epoch(), model_->parameters().count(), model_->parameters().trained_count(),
                   rows.sequences_per_step(), config_.seq_length, plan_.record.operations(), model_->context().memory()});
    while (progress_.step < steps) {
      stopwatch_.begin();
      if (stopped_anywhere(stop)) break;
      const auto batches = together(remains::nothing, [&] { return rows.next(); });
      step_and_tell(batches, rates.at(progress_.step), steps, rows);
      tell_of_ranks();
      if (held_out_rows && config_.eval_steps > 0 && progress_.step % config_.eval_steps == 0) evaluate_and_tell(*held_out_rows);
    }
    // a stop request should lead to a checkpoint quickly, so skip the evaluation
    const bool evaluated = config_.eval_steps > 0 && progress_.step % config_.eval_steps == 0;
    if (held_out_rows && !evaluated && !stopped_) evaluate_and_tell(*held_out_rows);
    tell(run_ended{progress_.step, steps, progress_.step < steps, seconds_since(begin), progress_.skipped, model_->context().memory()});
  }

  static config complete(const Model& model, config c) {
    const std::size_t longest = model.config().max_position_embeddings;
    if (c.seq_length == 0) c.seq_length = longest;
    require<config_error>(c.seq_length <= longest, "seq_length: must not be longer than the model's ", longest, " tokens; given ", c.seq_length);
    const std::size_t sharing = ranks_sharing_rows(model), dividing = dividing_rows(model);
    require<config_error>(c.seq_length % dividing == 0, "seq_length: must be divisible by ", dividing > sharing ? "twice the " : "the ", sharing,
                          " ranks that shard sequences; given ", c.seq_length, " tokens");
    require<config_error>(c.micro_batch_size > 0 && c.gradient_accumulation_steps > 0,
                          "micro_batch_size and gradient_accumulation_steps: must be positive; given ", c.micro_batch_size, " and ",
                          c.gradient_accumulation_steps);
    require<config_error>(c.max_steps > 0 || c.epochs > 0, "max_steps and epochs: one of them must be positive");
    require<config_error>(c.warmup_ratio >= 0.0 && c.warmup_ratio <= 1.0, "warmup_ratio: must be in [0, 1]; given ", c.warmup_ratio);
    require<config_error>(std::isfinite(c.learning_rate) && c.learning_rate >= 0.0,
                          "learning_rate: must be a number that is not negative; given ", c.learning_rate);
    require<config_error>(c.max_grad_norm >= 0.0, "max_grad_norm: must not be negative; given ", c.max_grad_norm);
    require_host_room(c);
    return c;
  }
  /// Host memory holds the sequences of one step, and those of the next, which are prefetched.
  [[nodiscard]] static double bytes_of_rows(const config& c) {
    const double micro_batches = static_cast<double>(c.gradient_accumulation_steps),
                 num_tokens = static_cast<double>(c.micro_batch_size) * static_cast<double>(c.seq_length);
    return 2.0 * micro_batches * (4.0 * static_cast<double>(sizeof(token)) * num_tokens + static_cast<double>(sizeof(host_batch) + sizeof(batch_view)));
  }
  /// These alone must fit, or nothing can be planned; require_room() adds everything else.
  static void require_host_room(const config& c) {
    const double bytes = bytes_of_rows(c);
    constexpr double never_much = 1 << 26;
    if (bytes < never_much) return;
    const std::size_t available = detail::host_memory_available();
    require<memory_error>(bytes <= static_cast<double>(available), "memory: the global batch must fit the host's ", bytes_text(available),
                          "; micro_batch_size ", c.micro_batch_size, " x gradient_accumulation_steps ", c.gradient_accumulation_steps,
                          " sequences of ", c.seq_length, " tokens need ", count_text(bytes), "B");
  }

  /// The number of ranks that shard a sequence: context-parallel times sequence-parallel ranks.
  [[nodiscard]] static std::size_t ranks_sharing_rows(const Model& model) {
    return context_shard_of(model.parallel()).ranks * sequence_parallel_ranks(model.parallel());
  }
  /// What sequence lengths must be divisible by: that number of ranks, and the number of chunks of a sequence.
  [[nodiscard]] static std::size_t dividing_rows(const Model& model) {
    return std::lcm(ranks_sharing_rows(model), context_shard_of(model.parallel()).chunks());
  }

  template <class Rows>
  [[nodiscard]] std::size_t steps_of(const Rows& rows) const {
    return config_.max_steps > 0 ? config_.max_steps : config_.epochs * rows.steps_per_epoch();
  }
  [[nodiscard]] learning_rate_schedule schedule_for(std::size_t steps) const {
    const auto warmup = config_.warmup_steps > 0 ? config_.warmup_steps
                                                 : static_cast<std::size_t>(std::ceil(config_.warmup_ratio * static_cast<double>(steps)));
    return {config_.lr_schedule, config_.learning_rate, warmup, steps, config_.min_lr_ratio};
  }
  [[nodiscard]] loader_config evaluation_settings() const {
    loader_config settings = loader_settings();
    settings.gradient_accumulation_steps = 1;
    settings.micro_batch_sizes.clear();
    settings.shuffle = false;
    return settings;
  }
  /// Sequences per micro-batch, if the strategy is configured with unequal ones.
  [[nodiscard]] std::vector<std::size_t> unequal_rows() const {
    if constexpr (strategy_runs) return model_->parallel().rows_of(config_.micro_batch_size, config_.gradient_accumulation_steps);
    else return {};
  }
  [[nodiscard]] double loss_scale() const { return precision::scales_loss ? scale_.scale() : 1.0; }
  [[nodiscard]] static double seconds_since(clock::time_point begin) { return std::chrono::duration<double>(clock::now() - begin).count(); }
  /// Makes all ranks stop after the same step.
  [[nodiscard]] bool stopped_anywhere(const std::stop_token& stop) {
    std::array<double, 1> asked{stop.stop_requested() ? 1.0 : 0.0};
    if (model_->parallel().everyone().size() > 1) model_->parallel().everyone().all_reduce(asked, reduction::largest);
    return stopped_ = asked[0] > 0;
  }
  /// Checks that the whole run fits, before anything is allocated.
  void require_room() const {
    const std::size_t limit = model_->context().memory_limit();
    const std::size_t used = model_->context().memory().total_now;
    const std::size_t there = plan_.in_files.has(memory_role::weights) ? 0 : plan_.of(memory_role::weights);
    const std::size_t more = plan_.total() - there;
    if (used <= limit && more <= limit - used) {
      // of an ulimit, what was left when the device was opened: part of it has been taken since
      const std::size_t here = clause::memory_is_host_addressable<memory> ? limit : 0;
      return require_host_fit<device>(plan_, used > there ? used - there : 0, std::max(detail::host_memory_available(), here));
    }
    std::string roles;
    for (std::size_t r = 0; r < memory_roles; ++r)
      if (plan_.bytes[r] > 0 && !plan_.in_files.has(static_cast<memory_role>(r)))
        roles += concat(roles.empty() ? "" : ", ", name_of(static_cast<memory_role>(r)), " ", bytes_text(plan_.bytes[r]));
    fail<memory_error>("memory: the run must fit ", bytes_text(limit), "; it needs ", bytes_text(plan_.total()), " (", roles, "), and ",
                       bytes_text(used),
                       " are in use now. Lower micro_batch_size or seq_length, or choose another precision, recompute or adapter policy");
  }

  /// One step on full sequences. Dry run only.
  [[nodiscard]] dry_run run_dry_step() {
    std::vector<batch_view> batches(config_.gradient_accumulation_steps);
    const std::vector<std::size_t> rows = unequal_rows();
    const std::size_t most = rows.empty() ? config_.micro_batch_size : *std::max_element(rows.begin(), rows.end());
    const std::vector<token> zeros(most * config_.seq_length);  // shared by all micro-batches: there may be thousands
    for (std::size_t m = 0; m < batches.size(); ++m) {
      batch_view& batch = batches[m];
      batch.b = rows.empty() ? config_.micro_batch_size : rows[m];
      batch.t = config_.seq_length;
      batch.target_count = batch.token_count = batch.b * batch.t;
      batch.tokens = batch.targets = batch.positions = batch.starts = std::span(zeros).first(batch.token_count);
      batch.first_sequence = m * config_.micro_batch_size;
    }
    model_->context().record() = {};  // constructing the model is not part of a step
    const step_traffic before = traffic_of(model_->parallel());
    (void)step_of(batches, 0.0);
    dry_run found;
    found.sent = traffic_of(model_->parallel()).since(before);
    found.record = model_->context().record();
    found.passes = memory_->high_water();
    found.parameters = model_->parameters().count();
    found.trained = model_->parameters().trained_count();
    found.num_tokens = config_.micro_batch_size * config_.gradient_accumulation_steps * config_.seq_length;
    const memory_count counted = model_->context().memory();
    found.in_files = recipe::offload::roles;
    found.host = static_cast<std::size_t>(bytes_of_rows(config_)) + found.sent.total().scratch;
    if (model_->parallel().everyone().size() > 1) {  // a whole parameter, and the part of one rank
      std::size_t largest = 0;
      for (const auto& entry : model_->parameters().entries()) largest = std::max(largest, entry.size());
      found.host += 2 * largest * sizeof(float);
    }
    for (std::size_t r = 0; r < memory_roles; ++r) found.bytes[r] = counted.now[r];
    found.bytes[static_cast<std::size_t>(memory_role::stash)] += memory_->stash_bytes(found.passes);
    found.bytes[static_cast<std::size_t>(memory_role::workspace)] += found.passes.workspace;
    return found;
  }

  /// Sums losses over context-parallel ranks.
  void add_up_places(std::span<double> losses) {
    if constexpr (has_context_parallel<recipe>) model_->parallel().context().all_reduce(losses, reduction::sum);
  }
  /// Sum of a micro-batch's losses, in a fixed order.
  [[nodiscard]] double sum_losses(std::size_t n) {
    const std::span<accumulate> host(memory_->host_losses.data(), n);
    copy_to_host(model_->stream(), host, memory_->losses.template as<accumulate>().subspan(0, n));
    model_->stream().synchronize();
    double sum = 0;
    for (const accumulate loss : host) sum += static_cast<double>(loss);
    return sum;
  }

  /// What a failed step has left behind.
  enum class remains : std::uint8_t { nothing, half_a_step, ranks_apart };
  void require_ranks_together() const {
    require<comm_error>(left_ != remains::ranks_apart, "training: all ranks must finish every step together; one failed halfway, and others may be "
                        "elsewhere in it. Create new ranks, and load the last checkpoint");
  }
  void require_whole_steps() const {
    require_ranks_together();
    require<error>(left_ != remains::half_a_step, "training: weights must be those of whole steps; the last failed while the optimizer changed "
                   "them. Load the last checkpoint");
  }
  /// Runs work that all ranks do together. If it throws on one of several ranks, the others' state is unknown; with a single rank, state is
  /// reset except for `remaining`.
  template <class Work>
  decltype(auto) together(remains remaining, Work&& work) {
    try {
      return work();
    } catch (...) {
      left_ = model_->parallel().everyone().size() > 1 ? remains::ranks_apart : remaining;
      if (left_ != remains::ranks_apart) memory_->forget();
      throw;
    }
  }

  void change_weights(double gradient_norm, double learning_rate) {
    const double clip = config_.max_grad_norm > 0 ? std::min(1.0, config_.max_grad_norm / (gradient_norm + 1e-6)) : 1.0;
    auto on = memory_->passes.execution_on();
    optimizer_->step(
        on, model_->parameters(),
        {.learning_rate = learning_rate, .gradient_scale = clip / loss_scale(), .step = progress_.updates + 1, .seed = config_.seed});
    model_->parallel().weights_changed(model_->stream(), model_->parameters());
    model_->stream().synchronize();
  }

  [[nodiscard]] step_sums forward_backward(std::span<const batch_view> batches) {
    step_sums sums;
    std::array<double, 3> counts{};
    for (const batch_view& batch : batches) {
      for (const token label : batch.labels) counts[2] += label >= 0 ? 1 : 0;
      counts[0] += static_cast<double>(batch.target_count);
      counts[1] += static_cast<double>(batch.token_count);
      sums.num_tokens += batch.b * batch.t;
    }
    model_->parallel().data().all_reduce(counts, reduction::sum);
    const double labels = counts[2], targets = counts[0] > 0 ? counts[0] : labels;  // there may be sequence labels only
    sums.targets = static_cast<std::size_t>(targets);
    sums.tokens = static_cast<std::size_t>(counts[1]);
    fill_zero(model_->stream(), model_->parameters().gradients());
    std::array<double, 1> loss{};
    const auto prepare = [&](pass<recipe>& p) {
      // counted across fit() calls, so that random numbers are not repeated
      p.random = {.seed = config_.seed, .step = static_cast<std::uint32_t>(progress_.updates + progress_.skipped)};
      p.gradient_scale = targets > 0 ? loss_scale() / targets : 0.0;
      p.label_weight = labels > 0 ? targets / labels : 0.0;  // the mean over labels is added to the mean over targets
    };
    const auto losses = [&](std::size_t n) { return memory_->losses_of(n); };
    const auto sum = [&](std::size_t n) { return sum_losses(n); };
    if constexpr (strategy_runs) {
      loss[0] = memory_->runner.run(memory_->passes.execution_on(), batches, prepare, losses, sum);
      model_->parallel().add_up(loss);
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
    add_up_places(loss);
    model_->parallel().data().all_reduce(loss, reduction::sum);
    sums.loss = targets > 0 ? loss[0] / targets : 0.0;
    const double squares = model_->parallel().gradient_squares(model_->parameters(), [&](auto gradients) { return squares_of(gradients); });
    sums.gradient_norm = std::sqrt(squares) / loss_scale();
    return sums;
  }

  void require_rows(std::span<const batch_view> batches) const {
    const std::size_t vocabulary = model_->config().vocab_size;
    for (const batch_view& batch : batches) {
      detail::require_rows(*model_, batch, "trainer");
      for (const token t : batch.targets)  // negative: ignored
        require<data_error>(t < 0 || static_cast<std::size_t>(t) < vocabulary, "trainer: targets must be in the model's vocabulary of ", vocabulary,
                            "; given ", t);
    }
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

  /// A step whose loss or gradients are not finite changes no weights.
  void skip(const step_sums& sums) {
    const bool overflow = precision::scales_loss && std::isfinite(sums.loss) && !scale_.at_floor();
    if (overflow) scale_.overflowed();
    else ++progress_.bad_in_a_row;
    ++progress_.skipped;
    last_skip_ = step_skipped{progress_.step + 1, overflow ? concat("gradients overflow at loss scale ", loss_scale()) : culprit(sums),
                              overflow, progress_.bad_in_a_row};
    tell(*last_skip_);
    require<non_finite_error>(progress_.bad_in_a_row < config_.max_bad_steps, "training: loss and gradients must be finite; ",
                              progress_.bad_in_a_row, " steps in a row were not, the last is step ", progress_.step + 1, ": ",
                              last_skip_->reason, ". The weights are as they were before; the last checkpoint is whole");
  }

  /// Which tensor is not finite: weights are checked first, since they affect everything else.
  [[nodiscard]] std::string culprit(const step_sums& sums) {
    const auto& all = model_->parameters();
    const auto told = [](std::size_t count, const char* what, const auto& entry) {
      return concat(what, entry.spec.name, " holds ", count, count == 1 ? " value that is" : " values that are", " not finite (block ",
                    entry.block, ")");
    };
    for (const auto& entry : all.entries())
      if (const std::size_t count = not_finite_in(all.value(entry)); count > 0) return told(count, "weight ", entry);
    for (const auto& entry : all.entries())
      if (const std::size_t count = not_finite_in(all.gradient(entry)); count > 0) return told(count, "gradient of ", entry);
    return concat("weights and gradients are finite, but the loss is ", sums.loss, " and the gradient's norm ", sums.gradient_norm);
  }

  /// Checks values on the host: slow, only used after an error.
  template <class T>
  [[nodiscard]] std::size_t not_finite_in(device_span<T, memory> values) {
    std::vector<T> host(values.size());
    copy_to_host(model_->stream(), std::span<T>(host), values);
    model_->stream().synchronize();
    return static_cast<std::size_t>(
        std::count_if(host.begin(), host.end(), [](T x) { return !std::isfinite(static_cast<accumulate_t<T>>(x)); }));
  }

  template <class Rows>
  void step_and_tell(std::span<const host_batch> batches, double learning_rate, std::size_t steps, const Rows& rows) {
    progress_.data = rows.state();  // the state from which the next step continues
    const std::size_t skipped_before = progress_.skipped;
    step_done done = step(batches, learning_rate);
    std::size_t own_tokens = 0;
    for (const host_batch& batch : batches) own_tokens += batch.token_count;
    stopwatch_.end(own_tokens);
    if (progress_.skipped != skipped_before) return;
    done.steps = steps;
    done.epoch = static_cast<double>(progress_.step) / static_cast<double>(rows.steps_per_epoch());
    tell(done);
  }

  /// Gathers one small message per rank, every measure_ranks_every steps.
  void tell_of_ranks() {
    if (config_.measure_ranks_every == 0 || progress_.step % config_.measure_ranks_every != 0) return;
    auto& everyone = model_->parallel().everyone();
    const auto own = stopwatch_.take(model_->context().memory().total_peak);
    std::vector<double> all(own.size() * everyone.size());
    detail::gather_at_first(everyone, own, std::span<double>(all));
    if (everyone.rank() != 0) return;
    for (std::size_t rank = 0; rank < everyone.size(); ++rank) {
      const double* one = all.data() + rank * own.size();
      tell(rank_measured{progress_.step, rank, everyone.size(), one[0], one[1], one[2], static_cast<std::size_t>(one[3])});
    }
  }

  [[nodiscard]] evaluation evaluate(const loader& rows) {
    require_whole_steps();
    return together(remains::nothing, [&] { return evaluate_loader(rows); });
  }
  [[nodiscard]] evaluation evaluate_loader(const loader& rows) {
    return evaluate_rows(
        rows,
        [&](const host_batch& batch) {
          const auto losses = [&](std::size_t n) { return memory_->losses_of(n); };
          const auto sum = [&](std::size_t n) { return sum_losses(n); };
          if constexpr (strategy_runs) {
            return memory_->runner.evaluate(memory_->passes.execution_on(), batch_view(batch), losses, sum);
          } else {
            pass<recipe> p = memory_->passes.new_pass(pass_mode::evaluation);
            p.batch = memory_->batch.upload(model_->stream(), batch_view(batch));
            model_->forward(p, memory_->passes.layer_inputs(), losses(p.batch.n()));
            return sum(p.batch.n());
          }
        },
        [&](std::span<double> sums) {
          if constexpr (strategy_runs) model_->parallel().add_up(sums.first(1));  // every stage knows the number of targets
          add_up_places(sums.first(1));
          model_->parallel().data().all_reduce(sums, reduction::sum);
        });
  }
  [[nodiscard]] evaluation evaluate(const sentence_loader& rows) {
    require_whole_steps();
    return together(remains::nothing, [&] { return evaluate_loader(rows); });
  }
  [[nodiscard]] evaluation evaluate_loader(const sentence_loader& rows) {
    return evaluate_sentences(
        rows,
        [&](const host_batch& batch, double label_weight) {
          pass<recipe> p = memory_->passes.new_pass(pass_mode::evaluation);
          p.batch = memory_->batch.upload(model_->stream(), batch_view(batch));
          p.label_weight = label_weight;
          model_->forward(p, memory_->passes.layer_inputs(), memory_->losses_of(p.batch.n()));
          return sum_losses(p.batch.n());
        },
        [&](std::span<double> sums) { model_->parallel().data().all_reduce(sums, reduction::sum); });
  }
  template <class Rows>
  void evaluate_and_tell(const Rows& rows) {
    const auto begin = clock::now();
    const evaluation found = evaluate(rows);
    tell(evaluation_done{progress_.step, found.loss, found.perplexity, found.targets, seconds_since(begin)});
  }

  Model* model_;
  config config_;
  dry_run plan_{};
  std::optional<step_memory> memory_;
  std::optional<typename optimizer::template state<device, precision>> optimizer_;
  dynamic_loss_scale scale_;
  training_progress progress_{};
  std::optional<step_skipped> last_skip_;
  detail::rank_stopwatch stopwatch_;
  remains left_ = remains::nothing;
  bool restored_ = false;
  bool stopped_ = false;
  std::vector<observer*> observers_;
  std::vector<batch_view> views_;  // of the current step
};

/// Trainers of families that are made of the same layers share one type.
template <class Model>
trainer(Model&, training_config<typename Model::recipe::optimizer> = {}) -> trainer<shared_model<Model>>;

}  // namespace xtrain
