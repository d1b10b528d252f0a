// A Trainer's output: logs, evaluations, checkpoints.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/hugging_face_part.hpp>
#include <xtrain/recipes/run_description.hpp>
#include <xtrain/recipes/split_list.hpp>

namespace xtrain::detail {

class hugging_face_output : hugging_face_part {
 public:
  using hugging_face_part::hugging_face_part;

  void read() {
    output_description& o = run_.output;
    o.folder = flags_.text("output_dir");
    require<config_error>(!o.folder.empty(), "--output_dir: must be given: where the model is saved");
    o.log_style = "hugging_face";
    o.checkpoint_style = "hugging_face";
    const auto strategy = [&](const char* name, const char* other, const std::string& otherwise) {
      return flags_.one_of(flags_.has(name) ? name : other, otherwise, {"no", "steps", "epoch"});
    };
    // a number of steps, or below 1 a fraction of all steps, rounded up; read if the strategy is steps
    struct interval {
      std::size_t steps = 0;
      double ratio = 0.0;
    };
    const auto every = [&](const char* name, double otherwise, const std::string& unit, bool may_be_none = false) -> interval {
      const double value = flags_.number(name, otherwise);
      if (unit != "steps") return {};
      if ((value <= 0.0 && !may_be_none) || value > 1e9) flags_.wrong(name, "a positive number of steps, or a fraction of all steps below 1");
      if (value > 1.0 && value != std::floor(value)) flags_.wrong(name, "a whole number of steps, or a fraction of all steps below 1");
      return value >= 1.0 ? interval{.steps = static_cast<std::size_t>(value)} : interval{.ratio = std::max(value, 0.0)};
    };
    constexpr std::size_t never = static_cast<std::size_t>(1) << 40U;
    const auto in_steps = [&](interval of) {  // where the number of all steps is known
      if (of.ratio > 0.0 && run_.max_steps > 0) return interval{.steps = static_cast<std::size_t>(std::ceil(static_cast<double>(run_.max_steps) * of.ratio))};
      return of;
    };
    const std::string logging = strategy("logging_strategy", "logging_strategy", "steps");
    const double log_steps = flags_.number("logging_steps", 500);  // also used for evaluations, whatever the logging strategy
    const interval lines = in_steps(every("logging_steps", 500, logging));
    o.log_steps = logging == "no" ? never : std::max<std::size_t>(lines.steps, 1);
    o.log_ratio = lines.ratio;
    o.log_epochs = logging == "epoch";
    o.log_first_step = flags_.is_true("logging_first_step");

    const std::string saving = strategy("save_strategy", "save_strategy", "steps");
    const interval checkpoints = in_steps(every("save_steps", 500, saving, true));
    o.save_steps = checkpoints.steps;
    o.save_ratio = checkpoints.ratio;
    if (saving == "steps" && checkpoints.steps == 0 && checkpoints.ratio == 0.0) o.save_steps = never;
    if (saving != "steps" && flags_.has("save_steps")) run_.notes.push_back(concat("--save_steps: is used with --save_strategy steps; it is ", saving));
    o.save_epochs = saving == "epoch";
    o.save_total_limit = flags_.whole<std::size_t>("save_total_limit", 0);
    if (flags_.has("evaluation_strategy") && flags_.has("eval_strategy") && flags_.text("evaluation_strategy") != flags_.text("eval_strategy"))
      flags_.wrong("evaluation_strategy", "left out: it is the older name of --eval_strategy");
    const std::string evaluation = strategy("eval_strategy", "evaluation_strategy", "no");
    const bool from_logging = flags_.number("eval_steps", 0.0) == 0.0;
    const interval evaluations = in_steps(every(from_logging ? "logging_steps" : "eval_steps", log_steps, evaluation));
    o.eval_steps = evaluations.steps;
    o.eval_ratio = evaluations.ratio;
    if (evaluation != "no" && run_.eval_data.empty())
      flags_.wrong(flags_.has("eval_strategy") ? "eval_strategy" : "evaluation_strategy",
                   "no: there is no evaluation data; --eval_data_path names some");
    if (evaluation == "no" && !run_.eval_data.empty()) {
      run_.eval_data.clear();
      run_.notes.emplace_back("--eval_data_path: is used with --eval_strategy steps or epoch");
    }
    if (!run_.eval_data.empty() && run_.objective.settings.contains("label_smoothing"))
      run_.notes.emplace_back("--label_smoothing_factor: is left out of eval_loss, where the Trainer has it");
    if (o.save_total_limit > 0 && saving != "no" && !run_.eval_data.empty() && flags_.text("metric_for_best_model", "None") != "None")
      flags_.wrong("metric_for_best_model", "left out with --save_total_limit: the best checkpoint is not kept longer than others");
    if (evaluation != "steps" && flags_.has("eval_steps")) run_.notes.push_back(concat("--eval_steps: is used with --eval_strategy steps; it is ", evaluation));
    o.eval_epochs = evaluation == "epoch";

    if (flags_.has("resume_from_checkpoint")) {
      const std::string from = flags_.words("resume_from_checkpoint");
      if (from.empty() || from == "True" || from == "true") o.resume = "latest";
      else if (from != "False" && from != "false" && from != "None") o.resume = from;
    }
    constexpr std::array<std::string_view, 13> reporters{"none",   "azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive",
                                                         "flyte", "mlflow",   "neptune", "swanlab",    "trackio",  "wandb"};
    for (const std::string& target : split_list(flags_.words("report_to", "none"), ' ')) {
      if (target == "tensorboard" || target == "all") o.tensorboard = flags_.text("logging_dir", concat(o.folder, "/runs"));
      else if (std::find(reporters.begin(), reporters.end(), target) == reporters.end())
        flags_.wrong("report_to", "tensorboard, none, all, or names of other programs with blanks between them, of which nothing is written");
      else if (target != "none") run_.notes.push_back(concat("--report_to ", target, ": only tensorboard is written"));
    }
    if (o.tensorboard.empty()) flags_.without_effect({"logging_dir"}, "is used with --report_to tensorboard", run_.notes);
    else (void)flags_.has("logging_dir");
    flags_.must_be_off({"load_best_model_at_end", "push_to_hub", "eval_on_start", "batch_eval_metrics", "ignore_data_skip", "eval_delay"},
                       "not supported");
    if (flags_.is_true("overwrite_output_dir")) {
      o.overwrite = o.resume.empty();
      if (!o.overwrite) run_.notes.emplace_back("--overwrite_output_dir: --resume_from_checkpoint is used");
    }
  }
};

}  // namespace xtrain::detail
