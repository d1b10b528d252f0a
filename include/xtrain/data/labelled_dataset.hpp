// JSON records of one text or two, each with a label. Component 'io'.
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
  std::string text = "text";          ///< field of the text
  std::string second{};               ///< field of a second text; empty: none
  std::string label = "label";        ///< field of the label: a string, an integer or a boolean
  std::vector<std::string> labels{};  ///< the labels in order of their ids; empty: those that occur, sorted
  std::size_t seq_length = 0;         ///< in tokens: the longer text is truncated first; 0: no truncation
};

namespace detail {

/// A record's label as a name.
///   throws  data_error with file and line
[[nodiscard]] std::string label_of(const json& record, const std::string& field, const std::string& path, std::size_t line);

/// Sorts by number if all are numbers, else by text; the labels are distinct.
void sort_labels(std::vector<std::string>& labels);

}  // namespace detail

/// The sequences of all records, with the tokenizer's special tokens around one text or two, and their labels.
///   throws  file_error, data_error with the line if a record is malformed or its label is not among those given
[[nodiscard]] sentence_dataset labelled_dataset(const std::string& path, const tokenizer& with, const labelled_options& options = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/labelled_dataset_impl.hpp>
#endif
