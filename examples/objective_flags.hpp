// Flags of an objective: its settings, and a second model that it needs, as a model or as log-probabilities in files. A program has those of the objective
// that it is built with.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/comm/launch.hpp>
#include <xtrain/comm/part.hpp>
#include <xtrain/core/checksum.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/setting_list.hpp>
#include <xtrain/data/log_prob_file.hpp>
#include <xtrain/text.hpp>

#include "command_line.hpp"
#include "ranks.hpp"
#include "training_run.hpp"

namespace command_line {

[[nodiscard]] inline CLI::Validator numbers_in(xtrain::setting_range range) {
  switch (range) {
    case xtrain::setting_range::non_negative: return not_negative();
    case xtrain::setting_range::positive: return positive();
    case xtrain::setting_range::share: return share();
    case xtrain::setting_range::share_below_one: return share_below_one();
    default: return number_from<double>(std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max(), "a number");
  }
}

/// Adds the flag of a setting: its full name, with dashes. Settings of other types than numbers, booleans and names have none.
inline void add_setting_flag(CLI::App& app, const xtrain::setting_entry& one) {
  if (!one.about.is_flag || one.is_list) return;
  std::string flag = "--" + std::string(one.full_name()), help(one.about.help);
  std::replace(flag.begin(), flag.end(), '_', '-');
  if (!one.about.unit.empty()) help += xtrain::concat(", in ", one.about.unit);
  switch (one.type()) {
    case xtrain::setting_type::flag:
      app.add_flag_function(flag, [one](std::int64_t count) { (void)one.set({.flag = count > 0}); }, help);  // --flag=false: -1
      break;
    case xtrain::setting_type::whole:
      app.add_option_function<std::size_t>(flag, [one](std::size_t value) { (void)one.set({.whole = value}); }, help)
          ->check(one.about.range == xtrain::setting_range::positive ? positive_whole_number() : whole_number())
          ->type_name("N")
          ->default_str(xtrain::concat(one.get().whole));
      break;
    case xtrain::setting_type::number:
      app.add_option_function<double>(flag, [one](double value) { (void)one.set({.number = value}); }, help)
          ->check(numbers_in(one.about.range))
          ->type_name("X")
          ->default_str(xtrain::concat(one.get().number));
      break;
    case xtrain::setting_type::named: {
      std::vector<std::string> names;
      for (std::size_t i = 0; !one.access.name(i).empty(); ++i) {
        names.emplace_back(one.access.name(i));
        help += (i == 0 ? ": " : ", ") + names.back();
      }
      app.add_option_function<std::string>(flag, [one](const std::string& name) { (void)one.set({.text = name}); }, help)
          ->check(one_of(names))
          ->default_str(std::string(one.get().text));
      break;
    }
    default: break;
  }
}

/// Adds a flag for every setting of a config, which keeps what is given.
template <class Config>
void add_setting_flags(CLI::App& app, Config& to) {
  for (const xtrain::setting_entry& one : xtrain::list_settings(to)) add_setting_flag(app, one);
}

/// Whether an objective may have a reference model, or a teacher.
template <class Objective>
concept has_reference_model = xtrain::has_hook<Objective, xtrain::hook::uses_reference>;
template <class Objective>
concept has_teacher_model = xtrain::has_hook<Objective, xtrain::hook::uses_teacher>;
/// Whether it reads labels of samples.
template <class Objective>
concept reads_labels = xtrain::has_hook<Objective, xtrain::hook::reads_labels>;

/// Flags of a training run with an objective.
template <class Objective>
struct objective_training_flags : training_flags {
  typename Objective::config objective_settings{};

  void add(CLI::App& app) {
    training_flags::add(app);
    add_setting_flags(app, objective_settings);
  }
  template <class Optimizer>
  [[nodiscard]] xtrain::training_config<Optimizer, Objective> run_config() const {
    auto c = training_flags::run_config<Optimizer, Objective>();
    c.objective = objective_settings;
    return c;
  }
  /// The batches have a teacher's log-probabilities.
  void use_top_k([[maybe_unused]] std::size_t k) {
    if constexpr (requires { objective_settings.top_k; }) objective_settings.top_k = k;
  }
  /// Whether the run needs no reference model, though the objective may.
  [[nodiscard]] bool is_reference_free() const { return Objective::reference(objective_settings) != xtrain::reference_use::sequence_log_probs; }
};

/// A second model beside the trained one, or its log-probabilities in a file beside the data.
template <class Objective>
struct second_model_flags {
  static constexpr bool is_reference = has_reference_model<Objective>, is_teacher = has_teacher_model<Objective>, exists = is_reference || is_teacher;

  std::string model{}, file{}, eval_file{};
  std::size_t top_k = 0;
  bool has_file = false, has_eval_file = false;  ///< whether they exist: see find_files()

  void add(CLI::App& app) {
    if constexpr (is_reference) {
      app.add_option("--reference-model", model, "folder of the reference model; default: --model as it is before training")->type_name("DIR");
      app.add_option("--reference-log-probs", file,
                     "its log-probabilities of --data: computed once and saved here; if the file exists, it is read and the model is not needed")
          ->type_name("FILE");
      app.add_option("--eval-reference-log-probs", eval_file, "the same for --eval-data")->type_name("FILE");
    }
    if constexpr (is_teacher) {
      app.add_option("--teacher-model", model, "folder of the teacher, a model with the same vocabulary")->type_name("DIR");
      app.add_option(
             "--teacher-log-probs", file,
             "its --top-k log-probabilities per token of --data: computed once and saved here; if the file exists, it is read and the model is not needed")
          ->type_name("FILE");
      app.add_option("--eval-teacher-log-probs", eval_file, "the same for --eval-data")->type_name("FILE");
      app.add_option("--top-k", top_k, "log-probabilities per token in --teacher-log-probs")->check(positive_whole_number())->type_name("N");
    }
  }
  [[nodiscard]] static const char* model_flag() { return is_teacher ? "--teacher-model" : "--reference-model"; }
  [[nodiscard]] static const char* file_flag(bool eval) {
    if (is_teacher) return eval ? "--eval-teacher-log-probs" : "--teacher-log-probs";
    return eval ? "--eval-reference-log-probs" : "--reference-log-probs";
  }
  [[nodiscard]] const std::string& file_of(bool eval) const { return eval ? eval_file : file; }

  ///   is_free   the run needs no reference model
  void check(bool has_eval_data, bool is_free) const {
    xtrain::require<usage_error>(!is_reference || !is_free || (model.empty() && file.empty() && eval_file.empty()),
                                 "--reference-free: there is no reference model; leave ", !model.empty() ? model_flag() : file_flag(file.empty()), " out");
    xtrain::require<usage_error>(file.empty() == eval_file.empty() || !has_eval_data, file_flag(file.empty() ? false : true),
                                 ": must be given, too, because ", file_flag(!file.empty() ? false : true), " is: for --eval-data and for --data");
    xtrain::require<usage_error>(eval_file.empty() || has_eval_data, file_flag(true), " ", eval_file, ": needs --eval-data");
    xtrain::require<usage_error>(eval_file.empty() || eval_file != file, file_flag(true), " ", eval_file, ": must be another file than ", file_flag(false));
    if constexpr (is_teacher) {
      // the host of the first rank is that which must have the files, or not
      const bool computes = xtrain::launched().rank == 0 &&
                            ((!file.empty() && !xtrain::file_exists(file)) || (!eval_file.empty() && !xtrain::file_exists(eval_file)));
      xtrain::require<usage_error>(!model.empty() || (!file.empty() && !computes), "--teacher-model: must be given: a folder",
                                   file.empty() ? "; or --teacher-log-probs, a file that exists" : ", to compute what is missing in --teacher-log-probs");
      xtrain::require<usage_error>(!computes || top_k > 0, "--top-k: must be given: how many log-probabilities per token --teacher-log-probs shall have");
    }
  }
  /// Whether a dataset needs the model: it has not got its log-probabilities from the file.
  [[nodiscard]] static bool lacks_values(const xtrain::dataset& data) { return is_teacher ? data.top_k() == 0 : data.reference_log_probs().empty(); }
  /// Whether the files exist, and the values need not be computed: the first rank says that to all, since hosts may not share a file system. It checks that
  /// files which are to be computed can be written. All ranks call it.
  template <class Layout>
  void find_files(const Layout& layout, bool computes) {
    const auto is_there = [&](bool eval) {
      const std::string& path = file_of(eval);
      if (path.empty()) return false;
      if (xtrain::file_exists(path)) return true;
      if (computes) for_flag(file_flag(eval), path, [&] { const xtrain::atomic_file probe(path); });
      return false;
    };
    const std::uint8_t answer =
        answer_of_first_rank(layout, [&] { return static_cast<std::uint8_t>((is_there(false) ? 1U : 0U) | (is_there(true) ? 2U : 0U)); });
    has_file = (answer & 1U) != 0;
    has_eval_file = (answer & 2U) != 0;
  }
  /// Which model computes, or has computed, the files.
  ///   own      folder of the trained model, which is the reference if no other is given
  ///   changes  what the run changes in it: settings of its config, its vocabulary
  [[nodiscard]] xtrain::log_prob_model computing_model(const std::string& own, const std::string& changes) const {
    const bool is_own = model.empty();
    return for_flag(is_own ? "--model" : model_flag(), is_own ? own : model, [&] {
      auto all = xtrain::log_prob_model_in(is_own ? own : model);
      if (is_own && !changes.empty()) all.fingerprint = xtrain::checksum_text(xtrain::concat(all.fingerprint, changes));
      return all;
    });
  }
  /// Reads the file, if the first rank has said that it exists; once per host. Refused if a model is given that has not computed it; a warning if none is
  /// given, and the reference would be another one.
  void read_file(xtrain::dataset& data, bool eval, const std::string& own, const std::string& changes) const {
    const std::string& from = file_of(eval);
    if (!(eval ? has_eval_file : has_file)) return;
    for_flag(file_flag(eval), from, [&] {
      xtrain::require<xtrain::file_error>(xtrain::file_exists(from), "must be there on all hosts: the first rank has it, this host has not. Copy it here");
      const xtrain::log_prob_model given = model.empty() ? xtrain::log_prob_model{} : computing_model(own, changes);
      const xtrain::log_prob_model by = is_teacher ? load_teacher_log_probs(data, from, given) : load_reference_log_probs(data, from, given);
      if constexpr (is_teacher)
        xtrain::require<xtrain::config_error>(top_k == 0 || top_k == data.top_k(), "has ", data.top_k(), " log-probabilities per token; --top-k is ", top_k);
      if (by.fingerprint.empty()) {
        if (!model.empty())
          std::fprintf(stderr, "warning: %s %s: does not say which model computed it; %s %s is not compared with it\n", file_flag(eval), from.c_str(),
                       model_flag(), model.c_str());
      } else if (is_reference && model.empty() && by.fingerprint != computing_model(own, changes).fingerprint) {
        std::fprintf(stderr, "warning: %s %s: was computed by %s, not by --model %s as it is\n", file_flag(eval), from.c_str(), by.name.c_str(), own.c_str());
      } else {
        std::fprintf(stderr, "%s %s: computed by %s\n", file_flag(eval), from.c_str(), by.name.c_str());
      }
    });
  }
  /// Runs the model over a dataset; the first rank saves the file.
  template <class Model, class Layout>
  void compute(Model& with, xtrain::dataset& data, bool eval, std::size_t micro_batch_size, std::size_t seq_length, const Layout& layout, bool says,
               const std::string& own, const std::string& changes) const {
    for_flag(file_flag(eval), file_of(eval), [&] {
      if (says) std::fprintf(stderr, "%s %s: computed\n", file_flag(eval), file_of(eval).c_str());
      if constexpr (is_teacher)
        xtrain::add_teacher_log_probs<xtrain::shared_model<Model>>(with, data,
                                                                   {.top_k = top_k, .micro_batch_size = micro_batch_size, .seq_length = seq_length});
      else xtrain::add_reference_log_probs<xtrain::shared_model<Model>>(with, data, {.micro_batch_size = micro_batch_size, .seq_length = seq_length});
      on_first_rank(layout, [&] {
        const xtrain::log_prob_model by = computing_model(own, changes);
        if (is_teacher) save_teacher_log_probs(data, file_of(eval), by);
        else save_reference_log_probs(data, file_of(eval), by);
      });
    });
  }
};

/// The trained model's strategy, on channels of its own.
template <class Config>
[[nodiscard]] Config beside(Config layout) {
  if constexpr (requires { layout.ranks; })
    if (layout.ranks) layout.ranks = xtrain::separate_channels(layout.ranks);
  return layout;
}

}  // namespace command_line
