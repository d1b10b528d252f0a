// Texts as samples of equal length, grouped as transformers' examples for language modeling do. Component 'io'.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/data/dataset.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Settings of grouped_text_dataset.
struct grouped_text_options {
  std::string field = "text";     ///< of records
  std::size_t block_size = 1024;  ///< tokens of a sample
  std::size_t group = 1000;       ///< texts that are concatenated: datasets.map's batch_size
  std::size_t workers = 1;        ///< datasets.map's num_proc: each has a contiguous part of the texts, within which groups are counted
};

/// What run_clm.py's tokenize_function and group_texts make of files (.txt: a line is a text, empty ones too; .json, .jsonl, .csv: a field of a
/// record): each text is tokenized with the begin token that the tokenizer adds, the tokens of a group are concatenated and cut into samples of
/// block_size tokens, and what is left of a group is dropped, unless it is all that the group has. Every token but a sample's first is a target.
/// Layout `separate`. Files are read twice, first to count texts.
///   throws  file_error; data_error with file and line; config_error when block_size is below 2, or group or workers 0
[[nodiscard]] dataset grouped_text_dataset(const std::vector<std::string>& paths, const tokenizer& with,
                                           const grouped_text_options& options = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/grouped_text_dataset_impl.hpp>
#endif
