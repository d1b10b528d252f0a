// Records of files as a stream: JSON, JSON Lines, text, CSV; further formats plug in (arrow_records.hpp). Component 'io'.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/json.hpp>

namespace xtrain {

/// A record's place for errors: "pages.csv: line 7", "pages.parquet: row 7".
struct source_place {
  const std::string* path = nullptr;
  std::size_t number = 0;  ///< first line, or row; from 1
  bool in_rows = false;

  [[nodiscard]] std::string text() const;
};

/// A record as its file has it.
struct source_record {
  std::string text{};  ///< JSON, not yet parsed (other threads do that); empty if `fields` is set
  json fields{};       ///< object of fields
  /// Fields that are objects or lists, as JSON text in file order; may be empty.
  std::map<std::string, std::string> in_order{};
  source_place place{};
  bool begins = true, ends = true;  ///< false, false within a large document in pieces

  /// Parses `text`.
  ///   throws  data_error with the place unless it is a JSON object
  [[nodiscard]] json parsed() &&;

  ///   throws  json::exception where a string is not UTF-8
  [[nodiscard]] std::string json_text() const;
};

/// Takes a file's records, in order.
using record_visitor = std::function<void(source_record&&)>;

/// Settings of read records.
struct record_options {
  bool whole_files = false;  ///< text: a file is a document instead of a line, in pieces of at most 1 MiB
};

/// A file format of records; memory does not depend on the file's size.
struct record_format {
  std::string name;                     ///< "csv"
  std::vector<std::string> extensions;  ///< ".csv"
  ///   throws  file_error; data_error with the place of malformed data
  std::function<void(const std::string& path, const record_options&, const record_visitor&)> read;
};

/// Built-in formats:
///   json, jsonl  a list of records, a record per line, or a single record; lines of jsonl may be lists of messages
///   txt          a line is a record with the field "text"; empty lines are skipped
///   csv, tsv     RFC 4180; the first record names the fields
[[nodiscard]] std::vector<record_format> record_formats();

/// By extension; null: unknown.
[[nodiscard]] const record_format* find_format(std::span<const record_format> formats, std::string_view path);

/// Files of paths: a file, all files of known formats below a folder (sorted), or matches of a pattern with * ? [] (sorted). Repetitions keep the first.
///   left_out  counts files of unknown format below folders
///   repeated  receives repeated paths
///   throws    file_error if there is no file
[[nodiscard]] std::vector<std::string> record_files(const std::vector<std::string>& paths, std::span<const record_format> formats,
                                                    std::size_t* left_out = nullptr, std::vector<std::string>* repeated = nullptr);

namespace detail {

void read_json_records(const std::string& path, const record_visitor& visit);
/// Lines may be lists: conversations.
void read_json_line_records(const std::string& path, const record_visitor& visit);
void read_text_records(const std::string& path, const record_options& options, const record_visitor& visit);
/// RFC 4180: quoted fields may hold separators, line breaks and doubled quotes. Line breaks: LF or CRLF; empty lines between records are skipped.
void read_csv_records(const std::string& path, char separator, const record_visitor& visit);

///   throws  data_error with the place unless the field is a string
[[nodiscard]] const std::string& string_field(const json& record, const std::string& field, const source_place& place);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/record_source_impl.hpp>
#endif
