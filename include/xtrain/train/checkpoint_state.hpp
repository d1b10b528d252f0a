// The state of a run in a checkpoint: trainer_state.json, with checksums of what lies beside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/data/global_batch_sizes.hpp>
#include <xtrain/io/settings.hpp>
#include <xtrain/train/training_progress.hpp>

namespace xtrain {

/// The complete checkpoints in a folder, "checkpoint-<step>", oldest first.
[[nodiscard]] std::vector<std::pair<std::size_t, std::string>> checkpoints_in(const std::string& folder);

/// What trainer_state.json says of a run.
struct checkpoint_state {
  training_progress progress{};
  std::uint64_t seed = 0;
  std::size_t micro_batch_size = 0, gradient_accumulation_steps = 0, ranks = 0, seq_length = 0;
  batch_size_rampup rampup{};
  std::string precision{}, optimizer{}, objective{};
  json_settings settings{};    ///< those that may change when a run is resumed
  json_settings model{};       ///< the family and its settings, as in a config.json; empty: not recorded
  std::string base_weights{};  ///< base_weights_fingerprint() of what the run began with; empty: not known
};

namespace detail {

/// Removes what killed processes left of single files, NAME.PID.part and NAME.PID.TEXT.part: those whose process does not exist.
void remove_unfinished_files(const std::string& folder);

/// Writes trainer_state.json into a folder whose other files are written.
///   throws  file_error
void write_checkpoint_state(const std::string& folder, const checkpoint_state& state);

/// Reads a trainer_state.json. The file contains its own checksum, over everything else in it.
///   throws  file_error
[[nodiscard]] json_settings read_checkpoint_state(const std::string& path);

/// Compares the files of a folder with their checksums in its state. Checkpoints written before checksums existed are not checked.
///   throws  file_error, config_error
void require_undamaged(const std::string& folder, const json_settings& state);

/// Where a run that resumes from `saved` goes on.
///   throws  config_error when the state is malformed, or `now` is another run
[[nodiscard]] training_progress resumed_progress(const json_settings& saved, const checkpoint_state& now);

/// Refuses a checkpoint of another model: the family, a size or a setting of its arithmetic differs. Checkpoints of earlier versions say nothing of it.
///   throws  config_error
void require_same_model(const json_settings& saved, const json_settings& now);

/// A cheap mark of a model's weights: of up to 64 blocks of each file. Empty unless `base_model` is a folder with weights, or such a file.
[[nodiscard]] std::string base_weights_fingerprint(const std::string& base_model);

/// Refuses the checkpoint of an adapter of other weights than those in `base_model`.
///   throws  config_error
void require_same_base(const json_settings& saved, const checkpoint_state& now, const std::string& base_model);

/// Settings that differ from those saved, as sentences.
[[nodiscard]] std::vector<std::string> changed_settings(const json_settings& saved, const json_settings& now);
/// The same, and of the model's settings those that require_same_model() lets change.
[[nodiscard]] std::vector<std::string> changed_settings(const json_settings& saved, const checkpoint_state& now);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/train/checkpoint_state_impl.hpp>
#endif
