// Log-probabilities of a dataset by a reference model or a teacher, in a file beside the data. Component 'io'.
//
// A safetensors file. Its metadata: what it is, the fingerprint of the dataset (tokens, loss mask, samples, groups), the sequence length that samples were
// truncated to, which model computed the values, and a checksum of them.
#pragma once

#include <string>

#include <xtrain/data/dataset.hpp>

namespace xtrain {

/// Which model computed log-probabilities. Without a fingerprint it is not known, and not compared.
struct log_prob_model {
  std::string name{};         ///< its folder
  std::string fingerprint{};  ///< of its config and weights

  friend bool operator==(const log_prob_model&, const log_prob_model&) = default;
};

/// The model in a folder, or in a file. The fingerprint is that of config.json, of names and sizes of the files with weights, and of 256 blocks of 4 KiB of
/// each, evenly spaced: the same for a copy, another for a model that has been trained further, if only one tensor that has 1/255 of a file. Reads little,
/// whatever the size of the model.
///   throws  file_error if there is none
[[nodiscard]] log_prob_model log_prob_model_in(const std::string& path);

/// reference_log_probs [samples] F64. Written atomically.
///   throws  config_error if the dataset has none, file_error
void save_reference_log_probs(const dataset& data, const std::string& path, const log_prob_model& by = {});
/// The dataset gets the values of the file.
///   by       the model that must have computed them; by default any
///   returns  which did, as far as the file says that
///   throws   file_error if the file is damaged or of another kind, data_error if it is of other data, or by another model
log_prob_model load_reference_log_probs(dataset& data, const std::string& path, const log_prob_model& by = {});

/// teacher_tokens [tokens, k] I32, teacher_log_probs [tokens, k] F32. Written atomically.
///   throws  config_error if the dataset has none, file_error
void save_teacher_log_probs(const dataset& data, const std::string& path, const log_prob_model& by = {});
/// The dataset gets the values of the file.
///   by       the model that must have computed them; by default any
///   returns  which did, as far as the file says that
///   throws   file_error if the file is damaged or of another kind, data_error if it is of other data, by another model, or holds what no teacher can say
log_prob_model load_teacher_log_probs(dataset& data, const std::string& path, const log_prob_model& by = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/log_prob_file_impl.hpp>
#endif
