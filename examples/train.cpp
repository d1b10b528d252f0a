// Does the training run that a run description (JSON) says: the program behind the front ends for other systems' configs and flags.
//
//   train run.json
//
// The description must ask for the policies that this program is built with: see xtrain_add_trainer, and --print-recipe of the front ends.
#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <utility>

#include <xtrain/front_ends/musa_demo.hpp>
#include <xtrain/recipes/recipe_type.hpp>

#include "described_data.hpp"
#include "described_files.hpp"
#include "described_ppo.hpp"
#include "described_settings.hpp"
#include "frozen_model.hpp"
#include "log_styles_hugging_face.hpp"
#include "log_styles_megatron.hpp"
#include "log_styles_torchtune.hpp"
#include "objective_flags.hpp"
#include "recipe.hpp"
#include "training_run.hpp"

namespace {

using xtrain::run_description;
using command_line::usage_error;
using optimizer = recipe::optimizer;
using objective = recipe::objective;

struct train_flags {
  std::string run{};
  bool plan = false, remove_run = false, launches_kernels = false;
  double timeout = 600.0;
  command_line::device_flags device{};

  void add_all(CLI::App& app) {
    app.add_option("run", run, "run description, as the front ends print it with --print-run")->required()->type_name("FILE");
    app.add_flag("--plan", plan, "print the memory and operations that the run needs, and exit");
    app.add_flag("--remove-run", remove_run, "remove the file once it is read: a front end made it for this run");
    app.add_flag("--no-capture-steps", launches_kernels, "launch each kernel of a step by itself on a GPU, which can replay a captured step instead");
    app.add_option("--timeout", timeout, "seconds that a rank waits for another one; then the run fails and names it")
        ->check(command_line::number_from<double>(0.1, 1e9, "a number of seconds from 0.1 to 1e9"))
        ->type_name("SECONDS")
        ->capture_default_str();
    device.add(app);
  }
};

[[nodiscard]] command_line::rank_flags ranks_of(const run_description& run, double timeout) {
  command_line::rank_flags ranks;
  ranks.timeout = timeout;
  ranks.ranks = run.parallel.ranks;
  ranks.tensor_parallel_size = run.parallel.tensor;
  ranks.context_parallel_size = run.parallel.context;
  ranks.expert_parallel_size = run.parallel.expert;
  ranks.data_parallel_size = run.parallel.ranks / (run.parallel.tensor * run.parallel.pipeline * run.parallel.context);
  ranks.chunks = run.parallel.virtual_stages;
  ranks.shards = run.parallel.shards;
  ranks.stage_layers = run.parallel.stage_layers;
  ranks.micro_batch_sizes = run.parallel.micro_batch_sizes;
  return ranks;
}

/// Saves the model after every epoch, as folders epoch_0, epoch_1, ...
template <class Trainer, class Save>
class epoch_folders final : public xtrain::observer {
 public:
  epoch_folders(Trainer& trainer, const Save& save) : trainer_(&trainer), save_(save) {}
  using observer::on;
  void on(const xtrain::run_began& began) override {
    steps_ = began.max_steps;
    per_epoch_ = std::max<std::size_t>(began.steps_per_epoch, 1);
  }
  [[nodiscard]] bool reads_weights_after(std::size_t step) const override { return step % per_epoch_ == 0 && step < steps_; }
  /// The epoch that the run ends in, from 0.
  [[nodiscard]] std::size_t last() const { return (std::max<std::size_t>(steps_, 1) - 1) / per_epoch_; }
  void on(const xtrain::step_done& done) override {
    if (reads_weights_after(done.step)) save_(*trainer_, done.step / per_epoch_ - 1);
  }

 private:
  Trainer* trainer_;
  const Save& save_;
  std::size_t per_epoch_ = 1, steps_ = 0;
};

/// Refuses a folder whose config.json has other sizes than the description names.
///   all  the sizes of the model, with those that the file leaves out
void require_agreement(const xtrain::json& named, const xtrain::json_settings& config, const xtrain::json_settings& all, const std::string& folder) {
  for (const auto& [key, value] : named.items()) {
    const auto own = config.object().find(key);
    const xtrain::json& there = own != config.object().end() && !own->is_null() ? config.object() : all.object();
    const auto at = there.find(key);
    if (at == there.end()) continue;
    const bool same = at->is_number() && value.is_number() ? at->get<double>() == value.get<double>() : *at == value;
    xtrain::require<usage_error>(same, "model: ", key, " must be that of ", folder, ", ", at->dump(), "; the run's config names ", value.dump());
  }
}

/// A reference model or a teacher is not trained.
struct frozen_recipe : recipe {
  using adapter = xtrain::no_adapter;
};
/// The value model and the reward model beside a policy that is trained by ppo.
struct value_recipe : recipe {
  using objective = xtrain::ppo_value;
};
constexpr bool has_teacher = command_line::has_teacher_model<objective>, has_reference = command_line::has_reference_model<objective>;

/// Where the reference model or the teacher is.
template <class Sizes>
struct second_model_place {
  std::string folder{};
  Sizes sizes{};
  bool is_own = false;  ///< it is the trained model as it is before training
};
/// Nothing: the run needs none.
///   own  the trained model's sizes
template <class Frozen>
[[nodiscard]] auto find_second_model(const run_description& run, const typename objective::config& settings, const typename Frozen::config_type& own)
    -> std::optional<second_model_place<typename Frozen::config_type>> {
  const std::string& folder = run.objective.second_model;
  const bool is_own = folder.empty();
  if constexpr (has_reference) {
    if (objective::reference(settings) == xtrain::reference_use::none) {
      xtrain::require<usage_error>(is_own, "objective.second_model ", folder, ": must be left out: these objective.settings need no reference model");
      return std::nullopt;
    }
    if (is_own && recipe::adapter::freezes_weights && run.adapter.modules_to_save.empty()) {
      xtrain::require<usage_error>(run.model.adapter.empty(), "objective.second_model: must be given with model.adapter: without it the reference is the model "
                                   "without an adapter, not with that of ", run.model.adapter);
      return std::nullopt;  // the trained model without its adapter
    }
    xtrain::require<usage_error>(!is_own || (!run.model.folder.empty() && !run.model.random_weights && run.model.adapter.empty()),
                                 "objective.second_model: must be given: the trained model as it is before training is not in a folder");
  } else {
    xtrain::require<usage_error>(!is_own, "objective.second_model: must be given: the teacher's folder");
  }
  if (is_own) return second_model_place<typename Frozen::config_type>{run.model.folder, own, true};
  return command_line::for_flag("objective.second_model", folder, [&] {
    return second_model_place<typename Frozen::config_type>{folder, command_line::frozen_model<Frozen, objective>::sizes_in(folder, own.vocab_size)};
  });
}

/// Refuses what no part of this program does, and says what is done otherwise.
void require_supported(const run_description& run, bool says) {
  if (!run.tokenizer.merges.empty()) {
    const auto folder = std::filesystem::path(run.tokenizer.path).parent_path(), beside = std::filesystem::path(run.tokenizer.merges).parent_path();
    xtrain::require<usage_error>(folder == beside, "tokenizer.merges ", run.tokenizer.merges, ": must be beside ", run.tokenizer.path);
  }
  xtrain::require<usage_error>(run.model.adapter.empty() || recipe::adapter::freezes_weights, "model.adapter ", run.model.adapter,
                               ": needs an adapter that is trained on; adapter.kind is ", run.adapter.kind);
  xtrain::require<usage_error>(!run.adapter.kind.starts_with("qat") || run.objective.kind == "next_token", "adapter.kind ", run.adapter.kind,
                               ": needs the objective next_token; given ", run.objective.kind);
  if (!says) return;
  if (!run.output.adapter_only && recipe::adapter::freezes_weights)
    std::fprintf(stderr, "note: the adapter alone is saved; generate and evaluate take it with --adapter\n");
  if (run.output.checkpoint_style == "megatron")
    std::fprintf(stderr, "note: checkpoints are folders checkpoint-N, which every number of ranks can load\n");
}

/// What the ranks of a process share.
struct shared_things {
  command_line::made_once<xtrain::tokenizer> tokenizer{};
  command_line::made_once<std::shared_ptr<const xtrain::gpt_samples>> samples{}, held_out{};
  command_line::interruption interrupt{};
};

/// Settings of the model: a folder's, with what is replaced; or the description's own.
template <class Info>
[[nodiscard]] xtrain::json_settings settings_of(const run_description& run, const xtrain::json_settings& config, const Info& family, bool says) {
  if (run.model.override_config.empty()) return config;
  const auto result = xtrain::override_settings(config, xtrain::json_settings(run.model.override_config, "override_config"), family);
  const bool musa = run.output.log_style == "musa_demo";
  for (const auto& [key, before, after] : result.changes) {
    if (!says) continue;
    if (musa) std::printf("modify %s: %s -> %s\n", key.c_str(), before.c_str(), after.c_str());
    else std::fprintf(stderr, "config     %s: %s, was %s\n", key.c_str(), after.c_str(), before.empty() ? "not set" : before.c_str());
  }
  for (const std::string& key : result.unknown) {
    if (!says) continue;
    // a setting that transformers has and this library does not need: GPT2Config has one that files leave out
    const auto theirs = config.object().find(key);
    const std::string old = theirs != config.object().end()                          ? theirs->dump()
                            : key == "summary_first_dropout" && family.name == "gpt2" ? "0.1"
                                                                                      : std::string();
    if (musa && !old.empty()) std::printf("modify %s: %s -> %s\n", key.c_str(), old.c_str(), run.model.override_config.at(key).dump().c_str());
    else if (musa) std::printf("WARNING: Invalid config key: %s and skip override it\n", key.c_str());
    else std::fprintf(stderr, "warning: override_config: '%s' is not a setting of this model; ignored\n", key.c_str());
  }
  return result.settings;
}

/// Samples of a part of Megatron's indexed data, in Megatron's order.
///   samples  0: those of the run's epochs, rounded down to whole steps
[[nodiscard, maybe_unused]] std::shared_ptr<const xtrain::gpt_samples> indexed_samples(const run_description& run, xtrain::data_split part,
                                                                                       std::size_t samples, std::size_t batch, std::size_t seq_length,
                                                                                       std::size_t vocab_size) {
  std::vector<std::string> paths;
  for (const xtrain::data_description& one : run.data)
    for (const std::string& file : one.files) {
      if (one.weight > 0.0) paths.push_back(xtrain::concat(one.weight));
      paths.push_back(file);
    }
  return command_line::for_flag("data", "", [&] {
    const auto [sources, blended] = xtrain::parse_data_path(paths);
    xtrain::require<usage_error>(!blended || samples > 0, "several datasets, or one with a weight, need max_steps");
    return std::make_shared<const xtrain::gpt_samples>(sources, blended,
                                                       xtrain::gpt_options{.seq_length = seq_length,
                                                                           .vocab_size = vocab_size,
                                                                           .samples = samples,
                                                                           .epochs = run.epochs,
                                                                           .samples_multiple_of = batch,
                                                                           .seed = run.seed,
                                                                           .split = run.split.empty() ? "969,30,1" : run.split,
                                                                           .part = part});
  });
}

template <class Options>
void set_adapter(Options& options, [[maybe_unused]] const xtrain::adapter_description& adapter) {
  using type = recipe::adapter;
  if constexpr (std::derived_from<type, xtrain::lora>) static_cast<xtrain::lora_config&>(options.adapter) = command_line::lora_of(adapter);
  if constexpr (std::derived_from<typename type::config, xtrain::qat::config>)
    command_line::set_described(static_cast<xtrain::qat::config&>(options.adapter), adapter.settings, "adapter.settings");
  if constexpr (std::is_same_v<type, xtrain::prefix_tuning>) command_line::set_described(options.adapter, adapter.settings, "adapter.settings");
}

/// What the model of a folder was trained from: of a checkpoint of the run what its model card says, which may be nothing; otherwise the folder itself.
[[nodiscard, maybe_unused]] std::string base_model_of(const std::string& folder) {
  if (folder.empty() || !xtrain::file_exists(folder + "/trainer_state.json") || !xtrain::file_exists(folder + "/README.md")) return folder;
  const xtrain::mapped_file card(folder + "/README.md");
  constexpr std::string_view key = "\nbase_model: ";
  const std::size_t at = card.text().find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = card.text().substr(at + key.size());
  const xtrain::json name = xtrain::json::parse(rest.substr(0, rest.find('\n')), nullptr, false);
  return name.is_string() ? name.get<std::string>() : std::string();
}

/// Of an earlier run, which would otherwise be taken for this one's.
[[maybe_unused]] void remove_checkpoints(const std::string& folder) {
  for (const auto& one : xtrain::checkpoints_in(folder)) {
    const std::string hidden = xtrain::concat(folder, "/.removed-", one.first, ".", ::getpid(), ".part");  // one that is partly removed is none any more
    std::error_code problem, ignored;
    std::filesystem::rename(one.second, hidden, problem);
    xtrain::require<xtrain::file_error>(!problem, "output.overwrite: ", one.second, ": must be removable; the system says: ", problem.message());
    std::filesystem::remove_all(hidden, ignored);
    std::fprintf(stderr, "removed %s, a checkpoint of an earlier run\n", one.second.c_str());
  }
}

/// Replaces members of the tokenizer_config.json of a folder.
[[maybe_unused]] void replace_tokenizer_settings(const std::string& folder, const xtrain::json& with) {
  const std::string path = folder + "/tokenizer_config.json";
  if (with.empty() || !described_files::has_tokenizer(folder)) return;
  xtrain::json settings = xtrain::file_exists(path) ? xtrain::read_json(path) : xtrain::json::object();
  settings.update(with);
  xtrain::write_file(path, settings.dump(2) + "\n");
}

/// The steps of a run whose numbers are fractions: of epochs, or of all steps.
///   per_epoch  steps
void resolve_fractions(run_description& run, std::size_t per_epoch) {
  const auto rounded_up = [](double steps) { return std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(steps))); };
  if (run.partial_epochs > 0.0) {
    run.max_steps = rounded_up(run.partial_epochs * static_cast<double>(per_epoch));
    run.partial_epochs = 0.0;
  }
  const auto all = static_cast<double>(run.max_steps > 0 ? run.max_steps : run.epochs * per_epoch);
  for (const auto& [ratio, steps] : {std::pair{&run.output.save_ratio, &run.output.save_steps},
                                     {&run.output.eval_ratio, &run.output.eval_steps},
                                     {&run.output.log_ratio, &run.output.log_steps}})
    if (*ratio > 0.0) {
      *steps = rounded_up(all * *ratio);
      *ratio = 0.0;
    }
}

/// Runs the trainer, with the observers that the description asks for, and saves what it trained.
///   captures  whether steps are captured where that can be
///   given     the description as it is saved
///   returns   0, or 128 + the signal that stopped the run
template <class Model>
int fit(Model& model, bool captures, const run_description& run, const run_description& given, const xtrain::dataset& data, const xtrain::dataset* held_out,
        const std::string& tokenizer_from, command_line::chat_flags& chat, bool first_rank, shared_things& shared, const auto& prepare) {
  auto settings = command_line::described_config<optimizer, objective>(run);
  settings.capture_steps = captures && xtrain::has_few_layouts(data) && xtrain::can_capture_steps(model, settings);
  xtrain::trainer trainer(model, settings);
  prepare(trainer);
  const xtrain::output_description& output = run.output;
  const xtrain::checkpoint_options files{.save_steps = output.save_steps,
                                         .save_total_limit = output.save_total_limit,
                                         // as transformers' Trainer, which goes on from an earlier checkpoint of a folder
                                         .later = output.checkpoint_style == "hugging_face" && !output.resume.empty() ? xtrain::later_checkpoints::kept
                                                                                                                      : xtrain::later_checkpoints::refused,
                                         .tokenizer_from = tokenizer_from,
                                         .base_model = output.resume.empty() || recipe::adapter::freezes_weights ? run.model.folder
                                                                                                                : base_model_of(run.model.folder),
                                         .data = data.identity(),
                                         .write_more = [&](const std::string& to) {
                                           chat.save(to);
                                           replace_tokenizer_settings(to, run.tokenizer.saved_settings);
                                         }};
  xtrain::checkpoint_folder checkpoints(trainer, output.folder, files);
  if (!output.resume.empty()) {
    const bool found = command_line::for_flag("output.resume", "", [&] {
      if (output.resume == "latest") return checkpoints.resume();
      checkpoints.resume_from(output.resume);
      return true;
    });
    if (first_rank)
      std::fprintf(stderr, found ? "resuming after step %zu\n" : "no checkpoint yet: starting at step %zu\n", trainer.progress().step);
    for (const std::string& change : checkpoints.changes())
      if (first_rank) std::fprintf(stderr, "warning: settings differ from those of the checkpoint: %s\n", change.c_str());
  }
  const std::size_t begun = trainer.progress().step;
  trainer.attach(checkpoints);

  const bool torchtune = output.log_style == "torchtune";
  const auto save_to = [&](auto& of, const std::string& folder) {
    if constexpr (recipe::adapter::freezes_weights)
      of.save(folder, xtrain::save_adapter_options{.base_model = files.base_model, .tokenizer_from = files.tokenizer_from});
    else of.save(folder, xtrain::save_options{.tokenizer_from = files.tokenizer_from, .base_model = files.base_model});
    if (!first_rank) return;
    command_line::for_flag("output.folder", folder, [&] {
      files.write_more(folder);
      given.save(folder + "/run.json");
    });
    if (torchtune) command_line::torchtune_lines::saved(folder);
    else std::fprintf(stderr, "saved to %s\n", folder.c_str());
    if (!recipe::adapter::freezes_weights) command_line::warn_of_other_weights(folder);
  };
  const auto save_epoch = [&](auto& of, std::size_t epoch) { save_to(of, xtrain::concat(output.folder, "/epoch_", epoch)); };
  std::optional<epoch_folders<decltype(trainer), decltype(save_epoch)>> epochs;
  if (output.save_epochs) {
    epochs.emplace(trainer, save_epoch);
    trainer.attach(*epochs);
  }

  std::optional<command_line::torchtune_lines> torchtune_log;
  std::optional<command_line::megatron_lines> megatron_log;
  std::optional<command_line::hugging_face_lines> hugging_face_log;
  std::optional<command_line::musa_demo_lines> musa_log;
  xtrain::progress_bar bar;
  command_line::log_lines lines;
  command_line::data_warnings warnings;
  std::optional<xtrain::json_lines_record> record;
  std::optional<xtrain::tensorboard_record> tensorboard;
  if (first_rank) {
    trainer.attach(warnings);
    if (torchtune) {
      torchtune_log.emplace(output.log_steps, run.optimizer.max_grad_norm > 0.0, output.log_file);
      trainer.attach(*torchtune_log);
    } else if (output.log_style == "megatron") {
      megatron_log.emplace(output.log_steps);
      trainer.attach(*megatron_log);
    } else if (output.log_style == "hugging_face") {
      const std::size_t rows = xtrain::loader(data, {.micro_batch_size = data.group_size, .seq_length = run.seq_length}).rows();
      const std::size_t together = run.micro_batch_size * model.parallel().data().size();
      const bool drops_batch = run.drop_last && run.gradient_accumulation_steps == 1;  // --dataloader_drop_last
      hugging_face_log.emplace(output.log_steps, stdout, drops_batch ? rows / together : (rows + together - 1) / together,
                               run.gradient_accumulation_steps, output.log_first_step, output.log_epochs);
      trainer.attach(*hugging_face_log);
    } else if (output.log_style == "musa_demo") {
      musa_log.emplace(command_line::musa_demo_lines::config{.epochs = run.epochs,
                                                             .batch_size = run.micro_batch_size,
                                                             .ranks = model.parallel().data().size(),
                                                             .seq_len = model.config().max_position_embeddings,
                                                             .warnings = xtrain::musa_demo_texts_are_long(run.model.folder) ? 1 + run.eval_data.size() : 0});
      trainer.attach(*musa_log);
    } else {
      trainer.attach(bar);
      trainer.attach(lines);
    }
    if (!output.metrics.empty()) {
      command_line::for_flag("output.metrics", output.metrics, [&] {
        record.emplace(output.metrics, command_line::peak_of(model.context()), command_line::warn_of_log);
      });
      record->describe(xtrain::recorded_run(trainer));
      trainer.attach(*record);
    }
    if (!output.tensorboard.empty()) {
      command_line::for_flag("output.tensorboard", output.tensorboard, [&] {
        xtrain::make_folder(output.tensorboard);
        tensorboard.emplace(output.tensorboard, command_line::warn_of_log);
      });
      trainer.attach(*tensorboard);
    }
    given.save(output.folder + "/run.json");
  }
  trainer.fit(data, held_out, shared.interrupt.begin_training());
  if (first_rank && !torchtune)
    std::fprintf(stderr, "peak memory: %s (planned: %s)\n", xtrain::bytes_text(model.context().memory().total_peak).c_str(),
                 xtrain::bytes_text(trainer.plan().total()).c_str());
  if (trainer.is_stopped()) {
    if (first_rank) std::fprintf(stderr, "stopped after step %zu; no model is saved yet: resume the run\n", trainer.progress().step);
    auto& world = model.parallel().world();
    std::array<double, 1> signal{static_cast<double>(shared.interrupt.signal())};
    if (world.size() > 1) world.all_reduce(signal, xtrain::reduction::largest);
    return 128 + static_cast<int>(signal[0]);
  }
  command_line::tell_if_nothing_is_left(first_rank, begun, trainer.progress().step);
  trainer.require_finite_weights();
  // as Megatron and transformers' Trainer (from 4.42 on), which save at the end whatever the interval is: a longer run goes on from there
  const bool saves_last = output.checkpoint_style == "megatron" || output.checkpoint_style == "hugging_face";
  const bool has_last = output.resume == "latest" && trainer.progress().step == begun;
  if (saves_last && !has_last && output.save_steps > 0 && trainer.progress().step % output.save_steps != 0) {
    checkpoints.save();
    checkpoints.finish();
  }
  if (output.save_epochs) {
    save_epoch(trainer, epochs->last());
    if (torchtune && first_rank) {
      command_line::torchtune_lines::info("Saving final epoch checkpoint.");
      command_line::torchtune_lines::info(
          recipe::adapter::freezes_weights
              ? "Please note that you have set adapter_only=True, so only adapter weights will be saved.You need to merge the adapter weights into your base "
                "model for further use. See FullModelHFCheckpointer.save_checkpoint for more details."
              : "The full model checkpoint, including all weights and configurations, has been saved successfully.You can now use this checkpoint for further "
                "training or inference.");
    }
  } else save_to(trainer, output.folder);
  return 0;
}

/// returns the exit status
template <class Model>
int train(run_description run, const train_flags& flags, const command_line::rank_flags& ranks, typename Model::recipe::parallel::config layout,
          bool first_rank, shared_things& shared, command_line::chat_flags& chat) {
  const run_description given = run;  // what is saved: `run` gets numbers that depend on the data
  const bool torchtune = run.output.log_style == "torchtune";
  const auto info = [&](const std::string& text) {
    if (torchtune && first_rank) command_line::torchtune_lines::info(text);
  };
  std::string tokenizer_from = run.tokenizer.path.empty() ? run.model.folder : run.tokenizer.path;
  command_line::vocabulary_flags vocabulary;
  vocabulary.multiple = run.model.folder.empty() ? 1 : run.model.vocab_multiple;
  for (const std::string& text : run.tokenizer.add_tokens) vocabulary.add_tokens += (vocabulary.add_tokens.empty() ? "" : ",") + text;
  std::optional<xtrain::folder_lock> lock;
  const auto lock_output = [&] {
    if (lock || !first_rank) return;
    command_line::for_flag("output.folder", run.output.folder, [&] {
      xtrain::make_folder(run.output.folder);
      lock.emplace(run.output.folder, "another run writes there");
    });
  };
  if (!flags.plan && !run.tokenizer.add_tokens.empty()) {  // all ranks read this tokenizer, so it is written first
    command_line::on_first_rank(layout, [&] {
      lock_output();
      (void)vocabulary.extended_tokenizer(tokenizer_from, run.output.folder);
      command_line::for_flag("tokenizer.special_tokens", run.output.folder,
                             [&] { xtrain::name_special_tokens(run.output.folder, run.tokenizer.special_tokens); });
    });
    tokenizer_from = run.output.folder;
  }
  const auto& tokenizer =
      shared.tokenizer.get([&] { return command_line::tokenizer_of("tokenizer.path", tokenizer_from); });
  if (first_rank) command_line::warn_of_tokenizer(tokenizer);

  xtrain::json_settings config;
  if (run.model.folder.empty()) {
    config = xtrain::json_settings(run.model.config, "model.config");
    if (!run.model.family.empty()) config.set("model_type", run.model.family);
    if (!config.has({"vocab_size"})) {
      const std::size_t multiple = run.model.vocab_multiple;
      config.set("vocab_size", (tokenizer.vocab_size() + multiple - 1) / multiple * multiple);
    }
  } else {
    config = command_line::for_flag("model.folder", run.model.folder, [&] { return xtrain::read_config(run.model.folder); });
    if (!run.model.family.empty())
      xtrain::require<usage_error>(config.text_or("", {"model_type"}) == run.model.family, "model: ", run.model.folder, " must hold a model of the family ",
                                   run.model.family, "; its model_type is ", config.text_or("", {"model_type"}));
  }
  const auto& family = command_line::for_flag("model", run.model.folder, [&]() -> const auto& { return Model::family_of(config); });
  if (!run.model.folder.empty()) {
    xtrain::json_settings all;
    command_line::for_flag("model", run.model.folder, [&] {
      auto own = xtrain::sizes_of(config, family);
      family.complete(own);
      xtrain::detail::complete_decoder(own, family.name);  // num_key_value_heads and head_dim that the file leaves out
      family.write(own, all);
    });
    require_agreement(run.model.config, config, all, run.model.folder);
  }
  config = command_line::for_flag("model.override_config", "", [&] { return settings_of(run, config, family, first_rank); });
  auto sizes = command_line::for_flag("model", run.model.folder, [&] { return xtrain::sizes_of(config, family); });
  sizes.vocab_size = vocabulary.size(sizes.vocab_size, tokenizer);
  command_line::for_flag("model", run.model.folder, [&] { command_line::require_kept(sizes, family); });

  const bool indexed = !run.data.empty() && run.data.front().kind == "indexed";
  xtrain::require<usage_error>(!run.data.empty(), "data: must be given: what to train on");
  std::optional<xtrain::dataset> data, held_out;
  if (!indexed) {
    const auto read = [&](const std::vector<xtrain::data_description>& from) {
      return command_line::read_once(layout, ranks, [&] {
        return command_line::described_data(from, tokenizer, chat, command_line::reads_labels<objective>, run.tokenizer.max_length);
      });
    };
    data.emplace(read(run.data));
    command_line::for_flag("data", data->source(), [&] { require_tokens_below(*data, sizes.vocab_size); });
    if (!run.eval_data.empty()) {
      held_out.emplace(read(run.eval_data));
      command_line::for_flag("eval_data", held_out->source(), [&] { require_tokens_below(*held_out, sizes.vocab_size); });
    }
  }
  if (run.seq_length == 0) {
    run.seq_length = sizes.max_position_embeddings;
    if (data && data->layout() == xtrain::sequence_layout::separate) run.seq_length = std::min(sizes.max_position_embeddings, (data->longest() + 6) / 8 * 8);
  }
  if (run.tokenizer.max_length > 0) {
    std::size_t longest = run.tokenizer.max_length;  // in tokens, of which the last one is no input
    if (!run.data.front().packed && !indexed && data->layout() == xtrain::sequence_layout::separate) {
      longest = 2;
      for (const xtrain::data_description& one : run.data) longest = std::max(longest, command_line::longest_sample(one, run.tokenizer.max_length));
      --longest;
    }
    run.seq_length = std::min(run.seq_length, longest);
  }

  const auto on = command_line::open_device<typename Model::device>(flags.device, ranks, layout, first_rank, flags.plan);
  typename Model::options options{.parallel = layout, .seed = run.seed};
  set_adapter(options, run.adapter);
  if constexpr (requires { options.offload.folder; }) options.offload.folder = run.offload_folder;
  auto settings = command_line::described_config<optimizer, objective>(run);
  settings.capture_steps = !flags.launches_kernels && (!data || has_few_layouts(*data)) && xtrain::can_capture_steps<Model>(sizes, options, settings);
  using second_model = model_of<std::conditional_t<recipe::adapter::freezes_weights, frozen_recipe, recipe>>;
  using frozen_model = command_line::frozen_model<second_model, objective>;
  const auto second_batches = frozen_model::batches(run.micro_batch_size, run.parallel.micro_batch_sizes, run.gradient_accumulation_steps, run.seq_length);
  std::optional<second_model_place<typename second_model::config_type>> second;
  if constexpr (has_teacher || has_reference) second = find_second_model<second_model>(run, settings.objective, sizes);
  command_line::for_plan([&] {
    auto plan = xtrain::plan<xtrain::trainer<xtrain::shared_model<Model>>>(sizes, options, settings, on.properties());
    if constexpr (has_teacher || has_reference) {
      const bool stays = [](const auto& of) {  // a teacher whose log-probabilities are computed before is gone then
        if constexpr (requires { of.top_k; }) return of.top_k == 0;
        else return true;
      }(settings.objective);
      if (second && stays) frozen_model::add_to(plan, second->sizes, on, layout, second_batches);
    }
    if (flags.plan && first_rank) std::printf("%s%s", xtrain::describe<recipe>().c_str(), plan_text(plan).c_str());
    xtrain::require_fit(plan, flags.device.limit(on, flags.plan && first_rank));
    if (!flags.plan) xtrain::require_host_fit<typename Model::device>(plan);
  });
  if (flags.plan) return 0;

  const bool random = run.model.folder.empty() || run.model.random_weights;
  Model model = command_line::for_flag("model", run.model.folder, [&] {
    return random ? Model(sizes, on, options)
                  : xtrain::load_as<Model>(run.model.folder, sizes, on, options,
                                           {.resize_vocabulary = vocabulary.resizes(), .fewer_layers = !run.model.override_config.empty()});
  });
  if (!run.model.adapter.empty()) {
    if constexpr (recipe::adapter::freezes_weights)
      command_line::for_flag("model.adapter", run.model.adapter, [&] { load_adapter(model, run.model.adapter); });
  }
  info(xtrain::concat("Model is initialized with precision torch.",
                      run.precision == "fp32"         ? "float32"
                      : run.precision == "fp16_mixed" ? "float16"
                                                      : "bfloat16",
                      "."));
  if (run.device != "cpu") {  // as torchtune, which has no numbers for the cpu
    std::array<char, 32> size{};
    std::snprintf(size.data(), size.size(), "%.2f GiB", static_cast<double>(model.context().memory().total_peak) / (1024.0 * 1024.0 * 1024.0));
    std::string name = run.device, lines = "Memory stats after model init:";
    for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    for (const char* what : {"allocation", "reserved", "active"}) lines += xtrain::concat("\n\t", name, " peak memory ", what, ": ", size.data());
    info(lines);
  }
  info("Tokenizer is initialized from file.");
  info("Optimizer is initialized.");
  info("Loss is initialized.");
  info(run.schedule.kind == "constant" ? "No learning rate scheduler configured. Using constant learning rate." : "Learning rate scheduler is initialized.");

  if (indexed) {
    const std::size_t batch = run.micro_batch_size * run.gradient_accumulation_steps * model.parallel().data().size();
    const xtrain::global_batch_sizes batches(batch, command_line::rampup_of(run), run.micro_batch_size * model.parallel().data().size());
    const std::size_t samples = run.samples > 0 ? run.samples : batches.before(run.max_steps);
    data.emplace(xtrain::gpt_dataset(
        shared.samples.get([&] { return indexed_samples(run, xtrain::data_split::train, samples, batch, run.seq_length, sizes.vocab_size); })));
    if (run.eval_iters > 0)
      held_out.emplace(xtrain::gpt_dataset(shared.held_out.get(
          [&] { return indexed_samples(run, xtrain::data_split::validation, run.eval_iters * batch, batch, run.seq_length, sizes.vocab_size); })));
    run.epochs = 1;  // the samples are those of all epochs
  }
  const bool has_fractions = run.partial_epochs > 0.0 || run.output.save_ratio > 0.0 || run.output.eval_ratio > 0.0 || run.output.log_ratio > 0.0;
  if (run.output.eval_epochs || run.output.save_epochs || has_fractions) {
    const xtrain::loader_config steps{.micro_batch_size = run.micro_batch_size,
                                      .gradient_accumulation_steps = run.gradient_accumulation_steps,
                                      .ranks = model.parallel().data().size(),
                                      .drop_last = run.drop_last,
                                      .max_steps_per_epoch = run.max_steps_per_epoch};
    const std::size_t rows = xtrain::loader(*data, {.micro_batch_size = data->group_size, .seq_length = run.seq_length}).rows();
    const std::size_t per_epoch = std::max<std::size_t>(steps.steps_per_epoch(rows), 1);
    if (has_fractions) resolve_fractions(run, per_epoch);
    if (run.output.eval_epochs) run.output.eval_steps = per_epoch;
    if (run.output.save_epochs) {  // checkpoints to resume from
      run.output.save_steps = per_epoch;
      run.output.save_epochs = run.output.checkpoint_style == "torchtune";  // which has the model of every epoch beside them
      if (run.output.save_epochs) run.output.save_total_limit = 1;          // as its recipe_state is overwritten
    }
  }
  if (first_rank)
    std::fprintf(stderr, "%s%s parameters, %s of them trainable; %zu samples\n", xtrain::describe<recipe>().c_str(),
                 xtrain::count_text(static_cast<double>(model.parameters().count())).c_str(),
                 xtrain::count_text(static_cast<double>(model.parameters().trained_count())).c_str(), data->size());
  lock_output();
  if (first_rank && run.output.overwrite) remove_checkpoints(run.output.folder);
  std::string files = tokenizer_from;
  if (files == "byte") {  // it has no files yet
    if (first_rank) command_line::for_flag("output.folder", run.output.folder, [&] { tokenizer.save(run.output.folder); });
    files = run.output.folder;
  }
  const xtrain::dataset* const evaluated = held_out ? &*held_out : nullptr;
  if constexpr (has_teacher || has_reference) {
    frozen_model frozen;
    if (second)
      command_line::for_flag("objective.second_model", second->folder, [&] {
        [[maybe_unused]] auto& loaded = frozen.load(second->folder, second->sizes, on, layout, second->is_own && vocabulary.resizes());
        if constexpr (has_teacher) {  // its largest log-probabilities are computed once, and it is not needed any more
          const std::size_t top_k = [](const auto& of) { return of.top_k; }(settings.objective);  // of a teacher's objective
          if (top_k == 0) return;
          for (xtrain::dataset* one : {&*data, held_out ? &*held_out : nullptr})
            if (one != nullptr)
              xtrain::add_teacher_log_probs<xtrain::shared_model<second_model>>(
                  loaded, *one, {.top_k = top_k, .micro_batch_size = run.micro_batch_size, .seq_length = run.seq_length});
          frozen.reset();
        }
      });
    return fit(model, !flags.launches_kernels, run, given, *data, evaluated, files, chat, first_rank, shared,
               [&](auto& trainer) { frozen.use(trainer, second_batches); });
  } else return fit(model, !flags.launches_kernels, run, given, *data, evaluated, files, chat, first_rank, shared, [](auto&) {});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Runs the training that a run description describes.", "train");
  train_flags flags;
  flags.add_all(app);
  return command_line::run(app, argc, argv, [&] {
    const run_description run = command_line::for_flag("", flags.run, [&] {
      auto read = run_description::load(flags.run);
      if (flags.remove_run) {
        std::error_code ignored;
        std::filesystem::remove(flags.run, ignored);
      }
      read.check();
      return read;
    });
    const std::string asked = xtrain::recipe_of(run).key();
#ifdef XTRAIN_RECIPE_KEY
    xtrain::require<usage_error>(asked == XTRAIN_RECIPE_KEY, flags.run, ": asks for the recipe ", asked, "; this program has ", XTRAIN_RECIPE_KEY);
#endif
    xtrain::require<usage_error>(flags.plan || !run.output.folder.empty(), "output.folder: must be given: where the model is to be saved");
    command_line::chat_flags chat{.given = run.tokenizer.chat_template};
    const auto has_kind = [&](const char* kind) {
      const auto is = [&](const xtrain::data_description& one) { return one.kind == kind; };
      return std::any_of(run.data.begin(), run.data.end(), is) || std::any_of(run.eval_data.begin(), run.eval_data.end(), is);
    };
    const auto needs_template = [](const xtrain::data_description& one) {
      return one.kind == "chat" && !std::all_of(one.files.begin(), one.files.end(), [](const std::string& path) {
        return xtrain::file_exists(path) && !xtrain::is_directory(path) && xtrain::holds_text_completions(path);
      });
    };
    const bool chats = std::any_of(run.data.begin(), run.data.end(), needs_template) || std::any_of(run.eval_data.begin(), run.eval_data.end(), needs_template);
    const bool may_chat = has_kind("preference") || has_kind("chat");
    bool found = chats || !chat.given.empty();
    for (const std::string& folder : {run.tokenizer.path, run.model.folder})
      found = found || (may_chat && !folder.empty() && xtrain::chat_template::is_in(folder));
    if (found) chat.find({run.tokenizer.path, run.model.folder});

    require_supported(run, xtrain::launched().rank == 0);
    if (!flags.plan) command_line::for_flags([&] { described_files::require(run); });
    if (flags.device.memory.empty()) flags.device.memory = run.memory_limit;
    const command_line::rank_flags ranks = ranks_of(run, flags.timeout);
    shared_things shared;
    std::atomic<int> status = 0;
    command_line::on_ranks<recipe::parallel, processes>(ranks, [&](const auto& layout, bool first_rank) {
      const int one = [&] {
        if constexpr (!std::is_same_v<objective, xtrain::ppo>) return train<model_of<recipe>>(run, flags, ranks, layout, first_rank, shared, chat);
        else
          return described_ppo::train<model_of<recipe>, model_of<value_recipe>>(run, flags.device.open<typename model_of<recipe>::device>(flags.plan), layout,
                                                                                flags.plan, chat, shared.interrupt, require_agreement);
      }();
      if (one != 0) status = one;
    });
    return status.load();
  });
}
