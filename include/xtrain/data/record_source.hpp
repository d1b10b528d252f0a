// Records of files in several formats, as a stream: JSON, JSON Lines, text, CSV; further formats plug in (arrow_records.hpp). Component 'io'.
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

/// Where a record is: "pages.csv: line 7", "pages.parquet: row 7", for errors.
struct source_place {
  const std::string* path = nullptr;
  std::size_t number = 0;  ///< of its first line, or its row; counted from 1
  bool in_rows = false;

  [[nodiscard]] std::string text() const;
};

/// One record, as its file gives it.
struct source_record {
  std::string text{};  ///< a record of JSON, not parsed yet: that costs time, which other threads have; empty if `fields` is given
  json fields{};       ///< an object: its fields by name
  /// Of fields that are objects or lists: the same as JSON text whose members are in the order of the file. May be empty.
  std::map<std::string, std::string> in_order{};
  source_place place{};
  bool begins = true, ends = true;  ///< a text that is one large document arrives in pieces

  /// The record as an object. Parses `text`.
  ///   throws  data_error with the place if it is not JSON, or not an object
  [[nodiscard]] json parsed() &&;

  /// The record as JSON text.
  ///   throws  json::exception where a string is not UTF-8
  [[nodiscard]] std::string json_text() const;
};

/// Takes the records of a file, in order.
using record_visitor = std::function<void(source_record&&)>;

/// Settings of read records.
struct record_options {
  bool whole_files = false;  ///< of text: a file is a document, not a line; it arrives in pieces of at most 1 MiB
};

/// A format of files of records. Reading takes memory for some records, whatever the size of the file.
struct record_format {
  std::string name;                     ///< "csv"
  std::vector<std::string> extensions;  ///< ".csv"
  ///   throws  file_error; data_error with the place where the file is malformed
  std::function<void(const std::string& path, const record_options&, const record_visitor&)> read;
};

/// What is always there:
///   json, jsonl  a list of records, one record per line, or a single record; lines of jsonl may be lists of messages
///   txt          a line is a record with the field "text"; empty lines are left out
///   csv, tsv     RFC 4180; the first record names the fields
[[nodiscard]] std::vector<record_format> record_formats();

/// The format of a file by its name; null if none has its extension.
[[nodiscard]] const record_format* find_format(std::span<const record_format> formats, std::string_view path);

/// The files that paths stand for: a file, the files of known formats below a folder (sorted), or those that match a pattern with * ? [] (sorted).
/// A file that several paths stand for is there once, where it is first.
///   left_out  counts files below folders that are of no known format
///   repeated  gets the paths of files that were there already
///   throws    file_error if there is none
[[nodiscard]] std::vector<std::string> record_files(const std::vector<std::string>& paths, std::span<const record_format> formats,
                                                    std::size_t* left_out = nullptr, std::vector<std::string>* repeated = nullptr);

namespace detail {

void read_json_records(const std::string& path, const record_visitor& visit);
/// The same, where lines may be lists: conversations.
void read_json_line_records(const std::string& path, const record_visitor& visit);
void read_text_records(const std::string& path, const record_options& options, const record_visitor& visit);
/// RFC 4180: fields in quotes may hold separators, line breaks and doubled quotes. Line breaks are LF or CRLF; empty lines between records are left out.
void read_csv_records(const std::string& path, char separator, const record_visitor& visit);

/// A string of a record.
///   throws  data_error with the place if it is missing or not a string
[[nodiscard]] const std::string& string_field(const json& record, const std::string& field, const source_place& place);

}  // namespace detail

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/record_source_impl.hpp>
#endif
