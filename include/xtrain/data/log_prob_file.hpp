// A file with log-probabilities of a dataset by a reference model or a teacher. Component 'io'.
//
// A safetensors file; metadata: kind, fingerprint of the dataset (tokens, loss mask, samples, groups), sequence length of truncation, model, checksum.
#pragma once

#include <string>

#include <xtrain/data/dataset.hpp>

namespace xtrain {

/// The model that computed log-probabilities; not compared without a fingerprint.
struct log_prob_model {
  std::string name{};         ///< folder
  std::string fingerprint{};  ///< of config and weights

  friend bool operator==(const log_prob_model&, const log_prob_model&) = default;
};

/// The model in a folder or file. Fingerprint: config.json, names and sizes of weight files, and 256 evenly spaced blocks of 4 KiB of each. Equal for copies,
/// different after further training, even of a single tensor with 1/255 of a file. Reads little for any model size.
///   throws  file_error if there is none
[[nodiscard]] log_prob_model log_prob_model_in(const std::string& path);

/// reference_log_probs [samples] F64, written atomically.
///   throws  config_error if the dataset has none, file_error
void save_reference_log_probs(const dataset& data, const std::string& path, const log_prob_model& by = {});
///   by       required model; default: any
///   returns  the model recorded in the file
///   throws   file_error if the file is damaged or of another kind, data_error if it belongs to other data or another model
log_prob_model load_reference_log_probs(dataset& data, const std::string& path, const log_prob_model& by = {});

/// teacher_tokens [tokens, k] I32, teacher_log_probs [tokens, k] F32, written atomically.
///   throws  config_error if the dataset has none, file_error
void save_teacher_log_probs(const dataset& data, const std::string& path, const log_prob_model& by = {});
///   by       required model; default: any
///   returns  the model recorded in the file
///   throws   file_error if the file is damaged or of another kind, data_error if it belongs to other data or another model, or has invalid values
log_prob_model load_teacher_log_probs(dataset& data, const std::string& path, const log_prob_model& by = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/log_prob_file_impl.hpp>
#endif
