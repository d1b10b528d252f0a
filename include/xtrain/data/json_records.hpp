// Records of JSON and JSON Lines files. Component 'io'.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/plain_json.hpp>

namespace xtrain {

namespace detail {

/// End of the JSON value at `at`, by brackets and strings; not validated.
[[nodiscard]] inline std::size_t value_end(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    else if (c == '{' || c == '[') ++depth;
    else if (c == '}' || c == ']') {
      if (depth == 0) return i;
      if (--depth == 0) return i + 1;
    } else if (c == ',' && depth == 0) return i;
  }
  return text.size();
}

[[nodiscard]] inline std::size_t skip_space(std::string_view text, std::size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r')) ++at;
  return at;
}

/// Calls visit(text, line) per record, not validated: elements of a JSON list, lines of JSON Lines, or a single object. Holds one record at a time.
///   throws  data_error with file and line if the list is malformed
template <class Visit>
void for_each_record_text(const mapped_file& file, Visit&& visit) {
  const std::string_view text = file.text();
  std::size_t at = skip_space(text, text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  std::size_t line = 1, counted = 0;
  const auto line_at = [&](std::size_t place) {  // positions only grow: one pass counts lines
    line += static_cast<std::size_t>(
        std::count(text.begin() + static_cast<std::ptrdiff_t>(counted), text.begin() + static_cast<std::ptrdiff_t>(place), '\n'));
    counted = place;
    return line;
  };
  if (at < text.size() && text[at] == '[') {
    at = skip_space(text, at + 1);
    bool first = true;
    while (at < text.size() && text[at] != ']') {
      if (!first) {
        if (text[at] != ',')
          fail<data_error>(file.path(), ": must be a JSON list; line ", line_at(at), ": records must be separated by commas");
        at = skip_space(text, at + 1);
      }
      first = false;
      const std::size_t end = value_end(text, at);
      const std::size_t where = line_at(at);
      visit(text.substr(at, end - at), where);
      at = skip_space(text, end);
    }
    if (at >= text.size())
      fail<data_error>(file.path(), ": must be a JSON list; line ", line_at(text.size()),
                       ": the list does not end. Is the file cut short?");
    const std::size_t behind = skip_space(text, at + 1);
    if (behind < text.size())
      fail<data_error>(file.path(), ": must be one JSON list; line ", line_at(behind), ": something follows it");
    return;
  }
  if (at < text.size() && text[at] == '{') {  // a single record may span lines
    const std::size_t end = value_end(text, at);
    if (text[end - 1] == '}' && skip_space(text, end) == text.size()) {
      visit(text.substr(at, end - at), line_at(at));
      return;
    }
  }
  for (std::size_t begin = at; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view record = text.substr(begin, end - begin);
    if (skip_space(record, 0) < record.size()) visit(record, line_at(begin));
    begin = end + 1;
  }
}

/// Calls visit(record, line) per parsed record.
///   throws  data_error with file and line if a record is not JSON
template <class Visit>
void for_each_record(const mapped_file& file, Visit&& visit) {
  for_each_record_text(file,
                       [&](std::string_view text, std::size_t line) { visit(parse_record<data_error>(text, file.path(), line), line); });
}

///   throws  data_error with file and line unless the field is a string
[[nodiscard]] inline std::string text_field(const json& record, const std::string& field, const std::string& path, std::size_t line) {
  require<data_error>(record.is_object(), path, ": line ", line, ": a record must be an object; it is ", record.type_name());
  const auto at = record.find(field);
  if (at == record.end()) {
    std::string others;
    std::size_t named = 0;
    for (const auto& one : record.items())
      if (++named <= 8) others += concat(others.empty() ? "; the record has '" : ", '", one.key(), "'");
    fail<data_error>(path, ": line ", line, ": a record must have '", field, "'; it is missing", others);
  }
  require<data_error>(at->is_string(), path, ": line ", line, ": '", field, "' must be a string; it is ", at->type_name());
  return at->get<std::string>();
}

}  // namespace detail

/// A file's first record, to inspect its fields. Null: empty file or unreadable record.
[[nodiscard]] inline json first_record(const std::string& path) {
  const mapped_file file(path);
  const std::string_view text = file.text();
  std::size_t at = detail::skip_space(text, text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
  if (at < text.size() && text[at] == '[') at = detail::skip_space(text, at + 1);
  try {
    return detail::parse_record<data_error>(text.substr(at, detail::value_end(text, at) - at), path, 1);
  } catch (const data_error&) {  // the actual reader reports it
    return {};
  }
}

}  // namespace xtrain
