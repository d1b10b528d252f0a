// Texts as samples of equal length, grouped as in transformers' language-modeling examples. Component 'io'.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/data/dataset.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Settings of grouped_text_dataset.
struct grouped_text_options {
  std::string field = "text";     ///< in records
  std::size_t block_size = 1024;  ///< tokens per sample
  std::size_t group = 1000;       ///< texts per concatenation: datasets.map's batch_size
  std::size_t workers = 1;        ///< datasets.map's num_proc: groups lie within contiguous parts of the texts
};

/// Result of run_clm.py's tokenize_function and group_texts on files (.txt: a text per line, even empty; .json, .jsonl, .csv: a field per record). Each text
/// is tokenized with the tokenizer's begin token; a group is concatenated and cut into samples of block_size tokens; its rest is dropped unless it is all.
/// Every token but a sample's first is a target. Layout `separate`. Files are read twice: first to count texts.
///   throws  file_error; data_error with file and line; config_error when block_size is below 2, or group or workers 0
[[nodiscard]] dataset grouped_text_dataset(const std::vector<std::string>& paths, const tokenizer& with,
                                           const grouped_text_options& options = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/grouped_text_dataset_impl.hpp>
#endif
