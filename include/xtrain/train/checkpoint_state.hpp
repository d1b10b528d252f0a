// The state of a run in a checkpoint: trainer_state.json, with checksums of the other files.
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

/// Content of trainer_state.json.
struct checkpoint_state {
  training_progress progress{};
  std::uint64_t seed = 0;
  std::size_t micro_batch_size = 0, gradient_accumulation_steps = 0, ranks = 0, seq_length = 0;
  batch_size_rampup rampup{};
  std::string precision{}, optimizer{}, objective{};
  json_settings settings{};    ///< may change when a run is resumed
  json_settings model{};       ///< the family and its settings, as in config.json; empty: not recorded
  std::string base_weights{};  ///< base_weights_fingerprint() at the start; empty: unknown
};

namespace detail {

/// Removes NAME.PID.part and NAME.PID.TEXT.part of processes that no longer exist.
void remove_unfinished_files(const std::string& folder);

/// Writes trainer_state.json into a folder whose other files are written.
///   throws  file_error
void write_checkpoint_state(const std::string& folder, const checkpoint_state& state);

/// Reads a trainer_state.json, which contains a checksum of its other content.
///   throws  file_error
[[nodiscard]] json_settings read_checkpoint_state(const std::string& path);

/// Checks files against the checksums in their state, if it has any.
///   throws  file_error, config_error
void require_undamaged(const std::string& folder, const json_settings& state);

/// Where a run that resumes from `saved` continues.
///   throws  config_error when the state is malformed, or `now` is a different run
[[nodiscard]] training_progress resumed_progress(const json_settings& saved, const checkpoint_state& now);

/// Refuses a model that differs in family, size or arithmetic. States without a model are accepted.
///   throws  config_error
void require_same_model(const json_settings& saved, const json_settings& now);

/// A fingerprint of a model's weights, from up to 64 blocks of each file. Empty unless `base_model` is a folder with weights, or a weight file.
[[nodiscard]] std::string base_weights_fingerprint(const std::string& base_model);

/// Refuses an adapter checkpoint whose base weights differ from `base_model`.
///   throws  config_error
void require_same_base(const json_settings& saved, const checkpoint_state& now, const std::string& base_model);

[[nodiscard]] std::vector<std::string> changed_settings(const json_settings& saved, const json_settings& now);
/// Also lists settings of the model that require_same_model() lets change.
[[nodiscard]] std::vector<std::string> changed_settings(const json_settings& saved, const checkpoint_state& now);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/train/checkpoint_state_impl.hpp>
#endif
