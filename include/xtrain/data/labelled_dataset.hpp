// JSON records of one or two texts with a label. Component 'io'.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/data/json_records.hpp>
#include <xtrain/data/sentence_dataset.hpp>
#include <xtrain/data/sentence_marks.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// How records are read.
struct labelled_options {
  std::string text = "text";          ///< field
  std::string second{};               ///< field; empty: no second text
  std::string label = "label";        ///< field: a string, an integer or a boolean
  std::vector<std::string> labels{};  ///< in order of ids; empty: the labels in the data, sorted
  std::size_t seq_length = 0;         ///< in tokens; truncates the longer text first; 0: none
};

namespace detail {

/// A record's label as text.
///   throws  data_error with file and line
[[nodiscard]] std::string label_of(const json& record, const std::string& field, const std::string& path, std::size_t line);

/// Distinct labels, by number if all are numbers, else by text.
void sort_labels(std::vector<std::string>& labels);

}  // namespace detail

/// Sequences of one or two texts with the tokenizer's special tokens, and labels.
///   throws  file_error, data_error with the line if a record is malformed or its label unknown
[[nodiscard]] sentence_dataset labelled_dataset(const std::string& path, const tokenizer& with, const labelled_options& options = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/labelled_dataset_impl.hpp>
#endif
