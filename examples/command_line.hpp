// What the trainers' command lines share: flags of a training run, and errors that name the flag and the value.
#pragma once

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <xtrain/text.hpp>

namespace command_line {

/// Runs `program`, and turns whatever goes wrong into one line and an exit status: 1, or 2 for a wrong command line.
inline int run(CLI::App& app, int argc, char** argv, const std::function<void()>& program) {
  const std::string name = app.get_name();
  try {
    app.parse(argc, argv);
    program();
    return 0;
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) known.push_back("--" + option->get_single_name());
    for (const std::string& extra : app.remaining()) {
      const std::string flag = extra.substr(0, extra.find('='));
      const std::string near = xtrain::nearest_name(flag, known);
      std::fprintf(stderr, "%s: unknown %s '%s'%s%s\n", name.c_str(), flag.starts_with("-") ? "flag" : "argument", flag.c_str(),
                   near.empty() ? "" : "; did you mean ", near.empty() ? "; --help lists all flags" : ("'" + near + "'?").c_str());
    }
    return 2;
  } catch (const CLI::ParseError& problem) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), problem.what());
    return 2;
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), problem.what());
    return 1;
  }
}

/// Does what a flag asks for; errors begin with the flag and its value.
template <class Work>
auto for_flag(const char* flag, const std::string& value, Work&& work) {
  try {
    return work();
  } catch (const xtrain::error& problem) {
    throw xtrain::error(xtrain::concat(flag, value.empty() ? "" : " ", value, ": ", problem.what()));
  }
}

/// "512M", "8G" or a number of bytes.
inline std::size_t bytes_of(const std::string& text) {
  std::size_t used = 0;
  double number = 0;
  try {
    number = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string unit = text.substr(used);
  double factor = 0;
  for (const auto& [name, value] : {std::pair{"", 1.0}, {"K", 1024.0}, {"M", 1048576.0}, {"G", 1073741824.0}})
    if (unit == name) factor = value;
  xtrain::require<xtrain::config_error>(used > 0 && factor > 0 && number >= 1, "must be a number of bytes, with K, M or G behind it if you like");
  return static_cast<std::size_t>(number * factor);
}

/// The device, as flags ask for it.
struct device_flags {
  std::size_t threads = 0;
  std::string memory{};

  void add(CLI::App& app) {
    app.add_option("--threads", threads, "threads to use; 0: all")->type_name("N");
    app.add_option("--memory", memory, "most memory the device may use, e.g. 8G; a run that needs more is refused")->type_name("SIZE");
  }
  template <class Device>
  [[nodiscard]] typename Device::context open() const {
    typename Device::config settings;
    settings.threads = threads;
    if (!memory.empty()) settings.memory_limit = for_flag("--memory", memory, [&] { return bytes_of(memory); });
    return typename Device::context(settings);
  }
};

/// Flags of a training run: all trainers have them.
struct training_flags {
  std::size_t steps = 0, epochs = 1, batch = 8, accumulate = 1, context = 0;
  double learning_rate = 1e-3, warmup_ratio = 0.0, floor = 0.0, weight_decay = 0.01, max_gradient_norm = 1.0;
  std::size_t warmup_steps = 0;
  std::string schedule = "cosine";
  std::string output{}, eval_data{}, metrics{}, tensorboard{};
  std::size_t eval_every = 0, save_every = 0, save_total_limit = 0;
  std::uint64_t seed = 42;
  bool resume = false, plan = false;
  device_flags device{};

  void add(CLI::App& app) {
    app.add_option("--batch", batch, "rows of a micro-batch")->check(CLI::PositiveNumber)->type_name("N")->capture_default_str();
    app.add_option("--accumulate", accumulate, "micro-batches of a step")->check(CLI::PositiveNumber)->type_name("N")->capture_default_str();
    app.add_option("--learning-rate", learning_rate, "the highest learning rate")->check(CLI::NonNegativeNumber)->type_name("X")->capture_default_str();
    app.add_option("--warmup-ratio", warmup_ratio, "share of the steps in which the rate rises")->check(CLI::Range(0.0, 1.0))->type_name("X");
    app.add_option("--warmup-steps", warmup_steps, "the same as a number of steps")->type_name("N");
    app.add_option("--schedule", schedule, "of the rate after that: constant, linear or cosine")->check(CLI::IsMember({"constant", "linear", "cosine"}))->capture_default_str();
    app.add_option("--floor", floor, "lowest rate, as a share of the highest")->check(CLI::Range(0.0, 1.0))->type_name("X");
    app.add_option("--weight-decay", weight_decay, "of matrices")->check(CLI::NonNegativeNumber)->type_name("X")->capture_default_str();
    app.add_option("--max-grad-norm", max_gradient_norm, "longer gradients are shortened to this; 0: never")->check(CLI::NonNegativeNumber)->type_name("X")->capture_default_str();
    app.add_option("--output", output, "folder for the model and its checkpoints")->type_name("DIR");
    app.add_flag("--resume", resume, "go on from the newest checkpoint in --output");
    app.add_option("--eval-data", eval_data, "held-out data")->type_name("PATH");
    app.add_option("--eval-every", eval_every, "steps between evaluations; 0: at the end only")->type_name("N");
    app.add_option("--save-every", save_every, "steps between checkpoints; 0: when stopped only")->type_name("N");
    app.add_option("--save-total-limit", save_total_limit, "newest checkpoints to keep; 0: all")->type_name("N");
    app.add_option("--metrics", metrics, "record of the run, a JSON object per line")->type_name("FILE");
    app.add_option("--tensorboard", tensorboard, "folder for TensorBoard's event files")->type_name("DIR");
    app.add_option("--seed", seed, "of everything that is random")->type_name("N")->capture_default_str();
    app.add_flag("--plan", plan, "print what the run would need, and stop");
    device.add(app);
  }

  template <class Optimizer>
  [[nodiscard]] xtrain::training_config<Optimizer> config() const {
    xtrain::training_config<Optimizer> c;
    c.steps = steps;
    c.epochs = epochs;
    c.batch = batch;
    c.accumulate = accumulate;
    c.context = context;
    c.learning_rate = learning_rate;
    c.warmup_ratio = warmup_ratio;
    c.warmup_steps = warmup_steps;
    c.shape = xtrain::schedule_named(schedule);
    c.floor = floor;
    if constexpr (requires { c.optimizer.weight_decay; }) c.optimizer.weight_decay = weight_decay;
    c.max_gradient_norm = max_gradient_norm;
    c.evaluate_every = eval_every;
    c.seed = seed;
    return c;
  }

  /// The folder must be named, and must not hold an earlier run unless that is to go on.
  void check_output() const {
    xtrain::require<xtrain::config_error>(!output.empty(), "--output: must be given: where the model is to be saved");
    const auto earlier = xtrain::checkpoints_in(output);
    xtrain::require<xtrain::config_error>(earlier.empty() || resume, "--output ", output, ": holds checkpoints of an earlier run, the newest of step ",
                                          earlier.empty() ? 0 : earlier.back().first, "; pass --resume to go on, or choose another folder");
  }
};

/// Where there is no terminal for a progress bar: a line for every tenth of the run.
class log_lines final : public xtrain::observer {
 public:
  using observer::on;
  void on(const xtrain::step_done& done) override {
    const std::size_t tenth = std::max<std::size_t>(1, done.steps / 10);
    if (::isatty(2) == 1 || (done.step % tenth != 0 && done.step != 1 && done.step != done.steps)) return;
    std::fprintf(stderr, "step %zu/%zu  loss %.4f  lr %.3g  %.0f tokens/s\n", done.step, done.steps, done.loss, done.learning_rate, done.tokens_per_second());
  }
  void on(const xtrain::evaluation_done& done) override {
    if (::isatty(2) != 1) std::fprintf(stderr, "step %zu  held-out loss %.4f  perplexity %.3f\n", done.step, done.loss, done.perplexity);
  }
  void on(const xtrain::step_skipped& skipped) override {
    if (::isatty(2) != 1) std::fprintf(stderr, "step %zu skipped: %s\n", skipped.step, skipped.reason.c_str());
  }
};

/// Trains, watched by everything the flags ask for; the model is saved when the run ends. A run that is stopped by Ctrl-C
/// leaves a checkpoint to resume from.
template <class Model>
void train(Model& model, const training_flags& flags, const xtrain::dataset& data, const xtrain::dataset* held_out, const xtrain::checkpoint_options& files) {
  using recipe = typename Model::recipe;
  xtrain::trainer trainer(model, flags.config<typename recipe::optimizer>());
  xtrain::checkpoint_folder checkpoints(trainer, flags.output, files);
  if (flags.resume) {
    const bool found = for_flag("--resume", "", [&] { return checkpoints.resume(); });
    std::fprintf(stderr, found ? "going on after step %zu\n" : "no checkpoint yet: starting at step %zu\n", trainer.progress().step);
  }
  xtrain::progress_bar bar;
  log_lines lines;
  trainer.attach(checkpoints);
  trainer.attach(bar);
  trainer.attach(lines);
  std::optional<xtrain::json_lines_record> record;
  if (!flags.metrics.empty()) {
    for_flag("--metrics", flags.metrics, [&] { record.emplace(flags.metrics, xtrain::measure_peak(model.on())); });
    trainer.attach(*record);
  }
  std::optional<xtrain::tensorboard_record> tensorboard;
  if (!flags.tensorboard.empty()) {
    for_flag("--tensorboard", flags.tensorboard, [&] {
      xtrain::make_folder(flags.tensorboard);
      tensorboard.emplace(flags.tensorboard);
    });
    trainer.attach(*tensorboard);
  }
  const xtrain::stop_on_interrupt interrupt;
  trainer.fit(data, held_out, interrupt.token());
  std::fprintf(stderr, "peak memory: %s (planned: %s)\n", xtrain::bytes_text(model.on().memory().total_peak).c_str(), xtrain::bytes_text(trainer.plan().total()).c_str());
  if (interrupt.requested()) {
    std::fprintf(stderr, "stopped after step %zu; go on with --resume\n", trainer.progress().step);
    return;
  }
  if constexpr (recipe::adapter::freezes_weights)
    trainer.save(flags.output, xtrain::save_adapter_options{.base_model = files.base_model, .tokenizer_from = files.tokenizer_from});
  else
    trainer.save(flags.output, xtrain::save_options{.tokenizer_from = files.tokenizer_from});
  std::fprintf(stderr, "saved to %s\n", flags.output.c_str());
}

/// Prints what a run would need.
///   throws  memory_error when it does not fit the device
template <class Model>
void show_plan(const typename Model::config& sizes, const typename Model::options& options, const training_flags& flags, const typename Model::context& on,
               bool print) {
  const auto plan = xtrain::plan<xtrain::trainer<Model>>(sizes, options, flags.config<typename Model::recipe::optimizer>(), on.properties());
  if (print) std::printf("%s%s", xtrain::describe<typename Model::recipe>().c_str(), plan_text(plan).c_str());
  xtrain::require_fit(plan, on.memory_limit());
}

/// Calls use(tag) with the family that a folder's config.json names: tag.type is xtrain::gpt2<Recipe> or xtrain::llama<Recipe>.
template <class Model>
struct model_tag {
  using type = Model;
};
template <class Recipe, class Use>
void with_family(const std::string& type, const std::string& who, Use&& use) {
  if (type == xtrain::gpt2_family::name) return use(model_tag<xtrain::gpt2<Recipe>>{});
  if (type == xtrain::llama_family::name) return use(model_tag<xtrain::llama<Recipe>>{});
  xtrain::fail<xtrain::config_error>(who, ": must be a gpt2 or llama model; it is '", type, "'");
}

}  // namespace command_line
