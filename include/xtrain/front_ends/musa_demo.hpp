// The command line of Moore Threads' demo of distributed training (main_hf.py), as a run description. Component 'recipes'.
#pragma once

#include <string>
#include <vector>

#include <xtrain/recipes/run_description.hpp>

namespace xtrain {

/// The tokenizer of a folder accepts more than 1024 tokens, or has no limit: the demo then warns, and cuts at 1024.
[[nodiscard]] bool musa_demo_texts_are_long(const std::string& folder);

/// The run, and what the demo prints about override_config.json before reading weights.
struct musa_demo_run {
  run_description run{};
  std::vector<std::string> lines{};
};

/// Translates `torchrun --nproc_per_node=2 main_hf.py --model_name_or_path gpt2 --batch_size 1`, with or without launcher and script. As the demo computes
/// (partly perhaps unintended):
///   learning rate  1e-4 times the ranks; cosine with 100 steps of warm-up from 0, which ends after the first epoch, then rises and falls again
///   gradients      never cleared; clipped to norm 1 before backward() adds a step's gradients
///   decay          0.1, of all parameters
///   loss           the mean of the ranks' means
///   texts          grouped by 1000 within each of 16 parts, cut into blocks of min(model_max_length, 1024) tokens; a group's remainder is dropped
///   evaluation     after every epoch, on the test split
/// Seed 123. The order of samples is this library's; the demo uses one order for all epochs.
///   override_config  the text of override_config.json in the working folder; empty: no file
///   throws           config_error: an unknown flag; files in another format; a value of override_config.json with another type than config.json's (in the demo
///                    a TypeError)
[[nodiscard]] musa_demo_run read_musa_demo(const std::vector<std::string>& words, const std::string& override_config = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/front_ends/musa_demo_impl.hpp>
#endif
