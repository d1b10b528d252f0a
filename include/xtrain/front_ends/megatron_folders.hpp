// --load and --save of pretraining scripts.
#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/front_ends/megatron_arguments.hpp>
#include <xtrain/front_ends/megatron_part.hpp>
#include <xtrain/recipes/run_description.hpp>

namespace xtrain::detail {

/// Empty without checkpoints.
[[nodiscard]] inline std::string newest_checkpoint(const std::string& folder) {
  std::string newest;
  std::size_t of = 0;
  for (const std::string& name : try_names_in(folder).value_or(std::vector<std::string>{}))
    for (const std::string_view prefix : {"checkpoint-", "iter_"}) {
      if (!name.starts_with(prefix)) continue;
      std::size_t step = 0;
      const auto [end, problem] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
      if (problem != std::errc{} || end != name.data() + name.size() || (!newest.empty() && step <= of)) continue;
      of = step;
      newest = folder + "/" + name;
    }
  return newest;
}

class megatron_folders : megatron_part {
 public:
  using megatron_part::megatron_part;

  void read() {
    output_description& out = run_.output;
    out.folder = flags_.text("save");
    out.save_steps = flags_.size("save-interval", 0);
    if (out.save_steps == 0) out.save_steps = run_.max_steps;  // Megatron also saves at the end
    if (out.folder.empty()) {
      out.folder = std::string(script_.name) + "_output";
      out.save_steps = 0;
      note(concat("--save is not given: the trained model is written to ", out.folder, "; there are no checkpoints"));
    }
    out.log_steps = flags_.positive("log-interval", 100);
    out.log_style = out.checkpoint_style = "megatron";
    out.tensorboard = flags_.text("tensorboard-dir");
    const std::string load = flags_.text("load");
    const bool weights_only = flags_.has_any({"finetune", "no-load-optim"}), has_model = file_exists(load + "/config.json");
    const std::string newest = load.empty() ? "" : newest_checkpoint(load);
    if (load.empty()) {
      // random weights
    } else if (is_same_folder(load, out.folder)) {
      flags_.require_that(!has_model || !newest.empty(), "save",
                          "must not be the folder of --load, whose model would be overwritten: ", out.folder);
      flags_.require_that(!weights_only || newest.empty(), flags_.has("finetune") ? "finetune" : "no-load-optim",
                          "needs a model's folder (config.json) as --load, not that of --save; ", load,
                          " has checkpoints of a run, which is resumed with all that it has");
      out.resume = "latest";
    } else if (file_exists(load + "/trainer_state.json") && !weights_only) {
      out.resume = load;
    } else if (has_model) {
      flags_.require_that(newest.empty() || weights_only, "load", load,
                          " holds a model and checkpoints of its run; give --finetune for the model, or the folder of a checkpoint, ",
                          newest);
      run_.model.folder = load;
    } else {
      flags_.require_that(
          !newest.empty(), "load",
          "must be a model's folder (config.json, as convert_weights_from_huggingface writes it), hold checkpoints, or be --save; ", load,
          is_directory(load) ? " has neither" : " does not exist");
      flags_.require_that(!weights_only, "load", "must be a model's folder (config.json) with --finetune or --no-load-optim; ", load,
                          " has checkpoints of a run");
      out.resume = newest;
    }
    // settings without flags (epsilon, a tied head, an unpadded vocabulary) are the resumed run's
    const std::string checkpoint = out.resume == "latest" ? newest : out.resume;
    if (!checkpoint.empty() && file_exists(checkpoint + "/config.json")) run_.model.folder = checkpoint;
    if (flags_.has("exit-on-missing-checkpoint"))
      flags_.require_that(load.empty() || !newest.empty() || out.resume != "latest", "exit-on-missing-checkpoint", "there is no checkpoint in --load, ", load);
    flags_.ignore({"finetune", "no-load-optim", "no-load-rng", "no-load-lr-state"},
                  "--load of a model's folder reads weights alone; a resumed run reads all");
    if (out.resume.empty())
      flags_.ignore({"use-checkpoint-lr-scheduler", "use-checkpoint-opt-param-scheduler"}, "no checkpoint is resumed");
    else
      for (const char* flag : {"use-checkpoint-lr-scheduler", "use-checkpoint-opt-param-scheduler"})
        flags_.require_that(!flags_.has(flag), flag, "is not supported: settings of a resumed run are those of the command line");
    if (run_.model.folder.empty())
      flags_.require_that(!flags_.has("use-checkpoint-args"), "use-checkpoint-args", "needs a model's folder as --load");
    else flags_.ignore({"use-checkpoint-args"}, "sizes that are not given are always those of the model's folder");
  }
};

}  // namespace xtrain::detail
