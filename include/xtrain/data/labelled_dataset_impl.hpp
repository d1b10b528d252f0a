// Definitions of labelled_dataset.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/json_records.hpp>
#include <xtrain/data/labelled_dataset.hpp>
#include <xtrain/data/sentence_dataset.hpp>
#include <xtrain/data/sentence_marks.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE std::string label_of(const json& record, const std::string& field, const std::string& path, std::size_t line) {
  const auto at = record.find(field);
  require<data_error>(at != record.end(), path, ": line ", line, ": a record must have '", field, "'; it is missing");
  require<data_error>(at->is_string() || at->is_number_integer() || at->is_boolean(), path, ": line ", line, ": '", field,
                      "' must be a string, a whole number, or true or false; it is ", at->dump());
  return at->is_string() ? at->get<std::string>() : at->dump();
}

XTRAIN_INLINE void sort_labels(std::vector<std::string>& labels) {
  const bool numbers = std::all_of(labels.begin(), labels.end(), [](const std::string& label) {
    return !label.empty() && label.size() < 10 && label.find_first_not_of("0123456789") == std::string::npos;
  });
  std::sort(labels.begin(), labels.end(),
            [&](const std::string& a, const std::string& b) { return numbers && a.size() != b.size() ? a.size() < b.size() : a < b; });
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
}

}  // namespace detail

XTRAIN_INLINE sentence_dataset labelled_dataset(const std::string& path, const tokenizer& with, const labelled_options& options) {
  const mapped_file file(path);
  std::vector<std::string> labels = options.labels;
  if (labels.empty()) {
    detail::for_each_record(file, [&](const json& record, std::size_t line) {
      (void)detail::text_field(record, options.text, path, line);  // must be an object
      const std::string name = detail::label_of(record, options.label, path, line);
      if (std::find(labels.begin(), labels.end(), name) == labels.end()) labels.push_back(name);
      require<data_error>(labels.size() <= 4096, path, ": line ", line, ": there must be at most 4096 labels; is '", options.label,
                          "' the field of a label?");
    });
    detail::sort_labels(labels);
  }
  sentence_dataset all(path);
  detail::word_parts parts(with);
  detail::for_each_record(file, [&](const json& record, std::size_t line) {
    const std::string text = detail::text_field(record, options.text, path, line),
                      name = detail::label_of(record, options.label, path, line);
    const auto label = std::find(labels.begin(), labels.end(), name);
    require<data_error>(label != labels.end(), path, ": line ", line, ": '", options.label, "' must be one of the ", labels.size(),
                        " labels that are known, the first of them '", labels.front(), "'; given '", name, "'");
    const encoding whole =
        options.second.empty() ? with.encode_whole(text) : with.encode_whole(text, detail::text_field(record, options.second, path, line));
    require<data_error>(!whole.tokens.empty(), path, ": line ", line, ": a sequence must have tokens; '", options.text, "' is empty");
    sentence_row row = detail::row_of(whole, options.seq_length, parts);
    row.label = static_cast<token>(label - labels.begin());
    all.add(row);
  });
  all.labels = std::move(labels);
  all.finish();
  return all;
}

}  // namespace xtrain
