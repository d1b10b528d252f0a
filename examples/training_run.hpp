// Shared by the trainers' command lines: flags of a training run, its plan, and the run itself.
#pragma once

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/text.hpp>
#include <xtrain/train/recorded_run.hpp>

#include "command_line.hpp"
#include "ranks.hpp"
#include "restarts.hpp"

namespace command_line {

/// Larger learning rates are rejected: weights would be finite but useless after one step.
inline constexpr double max_learning_rate = 1000.0;

/// Flags of a training run, common to all trainers.
struct training_flags {
  std::size_t max_steps = 0, epochs = 1, micro_batch_size = 8, gradient_accumulation_steps = 1, seq_length = 0;
  double learning_rate = 1e-3, warmup_ratio = 0.0, min_lr_ratio = 0.0, weight_decay = 0.01, max_grad_norm = 1.0;
  std::size_t warmup_steps = 0, lr_decay_steps = 0;
  std::string lr_schedule = "cosine";
  std::string output{}, eval_data{}, metrics{}, tensorboard{};
  std::size_t eval_steps = 0, save_steps = 0, save_total_limit = 0, restarts = 0;
  std::uint64_t seed = 42;
  bool resume = false, save_asynchronously = false, late_metrics = false, launches_kernels = false, plan = false;
  device_flags device{};
  rank_flags parallel{};

  void add(CLI::App& app) {
    app.add_option("--micro-batch-size", micro_batch_size, "sequences of a micro-batch, on each data-parallel rank")
        ->check(positive_whole_number())
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--gradient-accumulation-steps", gradient_accumulation_steps, "micro-batches of an optimizer step")
        ->check(positive_whole_number())
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--learning-rate", learning_rate, "peak learning rate")
        ->check(number_from<double>(0.0, max_learning_rate, "a non-negative number, at most 1000"))
        ->type_name("X")
        ->capture_default_str();
    app.add_option("--warmup-ratio", warmup_ratio, "ratio of steps with linear warmup of the learning rate")->check(share())->type_name("X");
    app.add_option("--warmup-steps", warmup_steps, "number of warmup steps, instead of --warmup-ratio")->check(whole_number())->type_name("N");
    app.add_option("--lr-scheduler-type", lr_schedule,
                   "learning rate schedule after the warmup: constant, linear, cosine, cosine_with_restarts, polynomial, inverse_sqrt (of transformers) or "
                   "inverse_square_root (of Megatron)")
        ->check(one_of({"constant", "linear", "cosine", "cosine_with_restarts", "polynomial", "inverse_sqrt", "inverse_square_root"}))
        ->capture_default_str();
    app.add_option("--lr-decay-steps", lr_decay_steps, "steps until the end of the decay, warmup included; 0: all steps")
        ->check(whole_number())
        ->type_name("N");
    app.add_option("--min-lr-ratio", min_lr_ratio, "minimum learning rate, as a ratio of the peak")->check(share())->type_name("X");
    app.add_option("--weight-decay", weight_decay, "weight decay of matrices")->check(not_negative())->type_name("X")->capture_default_str();
    app.add_option("--max-grad-norm", max_grad_norm, "gradients are clipped to this norm; 0: no clipping")
        ->check(not_negative())
        ->type_name("X")
        ->capture_default_str();
    app.add_option("--output-dir", output, "output folder for the model and its checkpoints")->type_name("DIR");
    app.add_flag("--resume", resume, "resume from the newest checkpoint in --output-dir");
    app.add_option("--max-restarts", restarts, "maximum number of restarts of a failed run, from its newest checkpoint")->check(whole_number())->type_name("N");
    app.add_option("--eval-data", eval_data, "evaluation data")->type_name("PATH");
    app.add_option("--eval-steps", eval_steps, "steps between evaluations; 0: at the end only")->check(whole_number())->type_name("N");
    app.add_option("--save-steps", save_steps, "steps between checkpoints; 0: when stopped only")->check(whole_number())->type_name("N");
    app.add_option("--save-total-limit", save_total_limit, "maximum number of checkpoints to keep, the newest; 0: all")->check(whole_number())->type_name("N");
    app.add_flag("--async-save", save_asynchronously, "continue training while a checkpoint is written to disk");
    app.add_flag("--late-metrics", late_metrics, "report a step after the next one has been queued: the device never waits for the host");
    app.add_flag("--no-capture-steps", launches_kernels, "launch each kernel of a step by itself on a GPU, which can replay a captured step instead");
    app.add_option("--metrics", metrics, "log of the run's metrics, a JSON object per line")->type_name("FILE");
    app.add_option("--tensorboard-dir", tensorboard, "folder for TensorBoard's event files")->type_name("DIR");
    app.add_option("--seed", seed, "random seed")->check(whole_number())->type_name("N")->capture_default_str();
    app.add_flag("--plan", plan, "print the memory and operations that the run needs, and exit");
    device.add(app);
  }

  template <class Optimizer, class Objective = xtrain::next_token>
  [[nodiscard]] xtrain::training_config<Optimizer, Objective> run_config() const {
    xtrain::training_config<Optimizer, Objective> c;
    c.max_steps = max_steps;
    c.epochs = epochs;
    c.micro_batch_size = micro_batch_size;
    c.gradient_accumulation_steps = gradient_accumulation_steps;
    c.seq_length = seq_length;
    c.learning_rate = learning_rate;
    c.warmup_ratio = warmup_ratio;
    c.warmup_steps = warmup_steps;
    c.lr_schedule = xtrain::lr_schedule_named(lr_schedule);
    c.lr_decay_steps = lr_decay_steps;
    c.min_lr_ratio = min_lr_ratio;
    if constexpr (requires { c.optimizer.weight_decay; }) c.optimizer.weight_decay = weight_decay;
    c.max_grad_norm = max_grad_norm;
    c.eval_steps = eval_steps;
    c.late_metrics = late_metrics;
    c.measure_ranks_every = metrics.empty() ? 0 : parallel.ranks_every;
    c.seed = seed;
    return c;
  }

  /// Refuses flags that need another flag, or exclude one.
  ///   evaluates  there is evaluation data, named by the flag `data`
  void check_uses(const CLI::App& app, bool evaluates, const char* data = "--eval-data") const {
    const auto given = [&](const char* flag) { return app.count(flag) > 0; };
    xtrain::require<usage_error>(eval_steps == 0 || evaluates, "--eval-steps ", eval_steps, ": needs data to evaluate; give ", data);
    xtrain::require<usage_error>(!save_asynchronously || save_steps > 0, "--async-save: needs --save-steps: the checkpoint of a stopped run is waited for");
    xtrain::require<usage_error>(!given("--warmup-ratio") || !given("--warmup-steps"), "--warmup-ratio ", warmup_ratio,
                                 ": must be left out with --warmup-steps, which is used instead");
    const bool has_end = lr_schedule != "constant" && lr_schedule != "inverse_sqrt";
    for (const auto& [flag, used] : {std::pair{"--min-lr-ratio", min_lr_ratio > 0.0}, {"--lr-decay-steps", lr_decay_steps > 0}})
      xtrain::require<usage_error>(has_end || !used, flag, ": needs a learning rate that falls to a minimum; --lr-scheduler-type is ", lr_schedule);
    if (given("--max-steps") && given("--num-train-epochs") && xtrain::launched().rank == 0)
      std::fprintf(stderr, "note: --num-train-epochs: --max-steps is used\n");
  }

  /// With --max-restarts this process only supervises a child, which trains, and exits with the child's status.
  void watch_over(const std::string& name, int argc, char** argv) const {
    if (restarts > 0 && !plan) std::exit(run_with_restarts(name, argc, argv, restarts, save_steps, output));
  }

  /// Refuses a missing folder, the input folder (`model`), and a folder with an earlier run unless it is resumed.
  void check_output(const std::string& model = {}) const {
    xtrain::require<usage_error>(!output.empty(), "--output-dir: must be given: where the model is to be saved");
    std::error_code ignored;
    xtrain::require<usage_error>(model.empty() || !std::filesystem::equivalent(output, model, ignored), "--output-dir ", output,
                                          ": must not be the folder of --model, which would be overwritten");
    const auto earlier = xtrain::checkpoints_in(output);
    xtrain::require<usage_error>(earlier.empty() || resume, "--output-dir ", output,
                                          ": holds checkpoints of an earlier run, the newest of step ",
                                          earlier.empty() ? 0 : earlier.back().first, "; pass --resume to continue, or choose another folder");
  }
  /// The lock excludes other runs from the folder. Warns if the file system has no locks.
  ///   throws  file_error when another run has it
  [[nodiscard]] xtrain::folder_lock lock_output(bool first_rank) const {
    if (!first_rank) return {};
    return for_flag("--output-dir", output, [&] {
      xtrain::make_folder(output);
      xtrain::folder_lock lock(output, "another run writes there");
      if (!lock.keeps_others_out())
        std::fprintf(stderr, "warning: --output-dir %s: its file system has no locks; nothing keeps a second run from writing there\n", output.c_str());
      return lock;
    });
  }
};

/// Ctrl-C, SIGTERM and SIGHUP. Before the training begins they end the program at once, as by default; from then on they request a checkpoint and the end
/// of the run.
class interruption {
 public:
  /// All ranks call it; ranks of one process share a request.
  [[nodiscard]] std::stop_token begin_training() {
    std::call_once(begun_, [&] { asked_.emplace(); });
    return asked_->token();
  }
  /// Called after begin_training(). 0: no signal has come.
  [[nodiscard]] int signal() const { return asked_->signal(); }

 private:
  std::once_flag begun_;
  std::optional<xtrain::stop_on_interrupt> asked_;
};

/// For --metrics and --tensorboard-dir: a full disk ends the log, not the run.
inline void warn_of_log(const std::string& what) { std::fprintf(stderr, "warning: %s; training goes on without it\n", xtrain::printable(what).c_str()); }

/// Reports data that is not trained on, and steps without a loss.
class data_warnings final : public xtrain::observer {
 public:
  using observer::on;
  void on(const xtrain::run_began& began) override {
    const xtrain::unused_samples& unused = began.unused;
    if (unused.left_out > 0)
      std::fprintf(stderr, "warning: %zu of %zu samples are left out: too long for the sequence length of %zu tokens, or without a token to learn\n",
                   unused.left_out, unused.all, began.seq_length);
    if (unused.without_targets > 0)
      std::fprintf(stderr, "warning: %zu of %zu samples have no target within the sequence length of %zu tokens: nothing is learned from them\n",
                   unused.without_targets, unused.all, began.seq_length);
  }
  void on(const xtrain::step_done& done) override {
    ++steps_;
    without_targets_ += done.targets == 0 && std::isnan(done.loss) ? 1 : 0;
  }
  void on(const xtrain::run_ended&) override {
    if (without_targets_ > 0)
      std::fprintf(stderr, "warning: %zu of %zu steps had no target: %s no loss (nan), and gradients of 0\n", without_targets_, steps_,
                   without_targets_ == 1 ? "it has" : "they have");
  }

 private:
  std::size_t steps_ = 0, without_targets_ = 0;
};

/// If the output is not a terminal: a log line for every tenth of the run.
class log_lines final : public xtrain::observer {
 public:
  using observer::on;
  void on(const xtrain::step_done& done) override {
    const std::size_t tenth = std::max<std::size_t>(1, done.steps / 10);
    if (::isatty(2) == 1 || (done.step % tenth != 0 && done.step != 1 && done.step != done.steps)) return;
    std::string statistics;
    for (std::size_t i = 0; i < done.statistic_names.size(); ++i) {
      std::array<char, 32> number{};
      std::snprintf(number.data(), number.size(), "%.4f", done.statistics[i]);
      statistics += "  " + std::string(done.statistic_names[i]) + " " + number.data();
    }
    std::fprintf(stderr, "step %zu/%zu  loss %.4f%s  lr %.3g  %.0f tokens/s\n", done.step, done.steps, done.loss, statistics.c_str(), done.learning_rate,
                 done.tokens_per_second());
  }
  void on(const xtrain::evaluation_done& done) override {
    if (::isatty(2) != 1) std::fprintf(stderr, "step %zu  held-out loss %.4f  perplexity %.3f\n", done.step, done.loss, done.perplexity);
  }
  void on(const xtrain::step_skipped& skipped) override {
    if (::isatty(2) != 1) std::fprintf(stderr, "step %zu skipped: %s\n", skipped.step, skipped.reason.c_str());
  }
};

/// Reports a resumed run that was already complete.
///   begun  the checkpoint's step; 0: no checkpoint
inline void tell_if_nothing_is_left(bool first_rank, std::size_t begun, std::size_t ended) {
  if (first_rank && begun > 0 && begun == ended) std::fprintf(stderr, "no step is left after the checkpoint's step %zu: nothing was trained\n", begun);
}

/// Of a run of this model: steps are captured where that can be.
template <class Model, class Flags>
[[nodiscard]] auto settings_of(const Flags& flags, const typename Model::config_type& sizes, const typename Model::options& options) {
  auto settings = flags.template run_config<typename Model::recipe::optimizer>();
  settings.capture_steps = !flags.launches_kernels && xtrain::can_capture_steps<Model>(sizes, options, settings);
  return settings;
}

/// Trains, with the observers that the flags request, and saves the model when the run ends. A run that is stopped leaves a checkpoint
/// to resume from. All ranks call it; the first one prints.
///   flags    of any trainer: run_config<Optimizer>() gives the settings of the run
///   prepare  called with the trainer before it trains: gives it a second model
///   returns  0, or the exit status of a run that was stopped: on every rank 128 + the signal that one of them got
///   throws   non_finite_error when the trained weights are not finite: nothing is saved then
template <class Model, class Flags, class Data, class Prepare>
int train(Model& model, const Flags& flags, const Data& data, const Data* held_out,
          xtrain::checkpoint_options files, bool first_rank, interruption& interrupt, Prepare&& prepare) {
  using recipe = typename Model::recipe;
  auto settings = settings_of<Model>(flags, model.config(), model.settings());
  settings.capture_steps = settings.capture_steps && xtrain::can_capture_steps(model, settings);
  xtrain::trainer trainer(model, settings);
  prepare(trainer);
  if constexpr (requires { files.data = data.identity(); }) files.data = data.identity();
  xtrain::checkpoint_folder checkpoints(trainer, flags.output, files);
  if (flags.resume) {
    const bool found = for_flag("--resume", "", [&] { return checkpoints.resume(); });
    if (first_rank)
      std::fprintf(stderr, found ? "resuming after step %zu\n" : "no checkpoint yet: starting at step %zu\n", trainer.progress().step);
    for (const std::string& change : checkpoints.changes())
      if (first_rank) std::fprintf(stderr, "warning: settings differ from those of the checkpoint: %s\n", change.c_str());
  }
  const std::size_t begun = trainer.progress().step;
  xtrain::progress_bar bar;
  log_lines lines;
  data_warnings warnings;
  trainer.attach(checkpoints);
  if (first_rank) {
    trainer.attach(warnings);
    trainer.attach(bar);
    trainer.attach(lines);
  }
  std::optional<xtrain::json_lines_record> record;
  if (first_rank && !flags.metrics.empty()) {
    for_flag("--metrics", flags.metrics, [&] { record.emplace(flags.metrics, peak_of(model.context()), warn_of_log); });
    record->describe(xtrain::recorded_run(trainer));
    trainer.attach(*record);
  }
  std::optional<xtrain::tensorboard_record> tensorboard;
  if (first_rank && !flags.tensorboard.empty()) {
    for_flag("--tensorboard-dir", flags.tensorboard, [&] {
      xtrain::make_folder(flags.tensorboard);
      tensorboard.emplace(flags.tensorboard, warn_of_log);
    });
    trainer.attach(*tensorboard);
  }
  trainer.fit(data, held_out, interrupt.begin_training());
  if (first_rank)
    std::fprintf(stderr, "peak memory: %s (planned: %s)\n", xtrain::bytes_text(model.context().memory().total_peak).c_str(),
                 xtrain::bytes_text(trainer.plan().total()).c_str());
  if (trainer.is_stopped()) {
    if (first_rank) std::fprintf(stderr, "stopped after step %zu; no model is saved yet: resume it with --resume\n", trainer.progress().step);
    auto& world = model.parallel().world();
    std::array<double, 1> signal{static_cast<double>(interrupt.signal())};
    if (world.size() > 1) world.all_reduce(signal, xtrain::reduction::largest);
    return 128 + static_cast<int>(signal[0]);
  }
  tell_if_nothing_is_left(first_rank, begun, trainer.progress().step);
  trainer.require_finite_weights();
  if constexpr (recipe::adapter::freezes_weights)
    trainer.save(flags.output, xtrain::save_adapter_options{.base_model = files.base_model, .tokenizer_from = files.tokenizer_from});
  else trainer.save(flags.output, xtrain::save_options{.tokenizer_from = files.tokenizer_from, .base_model = files.base_model});
  if (first_rank) std::fprintf(stderr, "saved to %s\n", flags.output.c_str());
  if (first_rank && !recipe::adapter::freezes_weights) warn_of_other_weights(flags.output);
  return 0;
}
template <class Model, class Flags, class Data>
int train(Model& model, const Flags& flags, const Data& data, const Data* held_out, const xtrain::checkpoint_options& files, bool first_rank,
          interruption& interrupt) {
  return train(model, flags, data, held_out, files, first_rank, interrupt, [](auto&) {});
}

/// Prints the number of tokens and the time of tokenization; called by the rank that tokenized.
template <class Data>
Data tokenised(const char* flag, const std::string& path, Data data, std::chrono::steady_clock::time_point began) {
  std::fprintf(stderr, "%s %s: %s tokens in %.1f s\n", flag, path.c_str(), xtrain::count_text(static_cast<double>(data.tokens())).c_str(),
               std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  return data;
}

/// Refuses sizes that the family's config.json cannot express: the saved model would be read as another.
template <class Config, class Info>
void require_kept(Config sizes, const Info& family) {
  const auto complete = [&](Config& of) {
    family.complete(of);
    xtrain::detail::complete_decoder(of, family.name);
  };
  complete(sizes);
  xtrain::json_settings saved;
  family.write(sizes, saved);
  Config read = family.read(saved);
  complete(read);
  const auto same = [&](const char* name, auto given, auto kept) {  // except for rounding: some families save ratios
    const auto a = static_cast<double>(given), b = static_cast<double>(kept);
    xtrain::require<usage_error>(std::abs(a - b) <= 1e-9 * std::abs(a), family.name, ": ", name, " must be ", kept,
                                 ": config.json of this family has no such setting; given ", given);
  };
  same("num_key_value_heads", sizes.num_kv_heads, read.num_kv_heads);
  same("head_dim", sizes.head_dim, read.head_dim);
  if (!sizes.alibi) same("rope_theta", sizes.rope_theta, read.rope_theta);
}

/// Prints a run's requirements (dry run).
///   complete  called with the plan: adds a second model
///   throws    usage_error when the layout of ranks is impossible, or the run does not fit the device
template <class Model, class Flags, class Complete>
void show_plan(const typename Model::config_type& sizes, const typename Model::options& options, const Flags& flags,
               const typename Model::context_type& on, bool print, Complete&& complete) {
  for_plan([&] {
    auto plan = xtrain::plan<xtrain::trainer<xtrain::shared_model<Model>>>(sizes, options, settings_of<Model>(flags, sizes, options), on.properties());
    complete(plan);
    if (print) std::printf("%s%s", xtrain::describe<typename Model::recipe>().c_str(), plan_text(plan).c_str());
    xtrain::require_fit(plan, flags.device.limit(on, print));
    if (!flags.plan) xtrain::require_host_fit<typename Model::device>(plan);  // a plan may be for another machine
  });
}
template <class Model, class Flags>
void show_plan(const typename Model::config_type& sizes, const typename Model::options& options, const Flags& flags,
               const typename Model::context_type& on, bool print) {
  show_plan<Model>(sizes, options, flags, on, print, [](xtrain::dry_run&) {});
}

}  // namespace command_line
