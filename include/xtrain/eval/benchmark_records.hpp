// Records of benchmark files: JSON, JSON Lines, CSV, two text formats. Component 'io'.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/plain_json.hpp>
#include <xtrain/data/json_records.hpp>
#include <xtrain/eval/record_place.hpp>

namespace xtrain::detail {

/// A CSV row (RFC 4180): quoted fields may hold line breaks and doubled quotes.
///   at, line   advanced
///   throws     data_error with file and line for an unfinished quote, or text after a quote
[[nodiscard]] inline std::vector<std::string> csv_row(const mapped_file& file, std::size_t& at, std::size_t& line) {
  const std::string_view text = file.text();
  const std::size_t first_line = line;
  std::vector<std::string> row(1);
  while (at < text.size()) {
    if (text[at] == '"' && row.back().empty()) {
      ++at;
      for (;; ++at) {
        require<data_error>(at < text.size(), file.path(), ": line ", first_line, ": a quoted field must end; this one does not");
        if (text[at] == '\n') ++line;
        if (text[at] != '"') row.back() += text[at];
        else if (at + 1 < text.size() && text[at + 1] == '"') row.back() += text[++at];
        else break;
      }
      ++at;
      require<data_error>(at >= text.size() || text[at] == ',' || text[at] == '\n' || text[at] == '\r', file.path(), ": line ", line,
                          ": a quoted field must end at a comma or the end of the line; '", at < text.size() ? text.substr(at, 1) : "",
                          "' follows it");
      if (at >= text.size()) break;
    }
    const char c = text[at++];
    if (c == ',') row.emplace_back();
    else if (c == '\n') {
      ++line;
      break;
    } else if (c != '\r') row.back() += c;
  }
  return row;
}

/// Calls visit(record, line) per CSV row, an object of strings.
///   columns   names; empty: in the first row
template <class Visit>
void for_each_csv_record(const mapped_file& file, std::vector<std::string> columns, Visit&& visit) {
  std::size_t at = file.text().starts_with("\xEF\xBB\xBF") ? 3 : 0, line = 1;
  if (columns.empty()) columns = csv_row(file, at, line);
  while (at < file.size()) {
    const std::size_t first_line = line;
    const std::vector<std::string> row = csv_row(file, at, line);
    if (row.size() == 1 && row.front().empty()) continue;
    require<data_error>(row.size() == columns.size(), file.path(), ": line ", first_line, ": a row must have ", columns.size(), " fields; it has ",
                        row.size());
    json record = json::object();
    for (std::size_t i = 0; i < row.size(); ++i) record[columns[i]] = row[i];
    visit(record, first_line);
  }
}

/// Calls visit(record, place) per document of a benchmark file.
template <class Visit>
void for_each_benchmark_record(const std::string& path, const std::vector<std::string>& columns, Visit&& visit) {
  require<data_error>(!path.ends_with(".gz"), path, ": must not be compressed; unpack it with gunzip");
  const mapped_file file(path);
  if (path.ends_with(".csv"))
    return for_each_csv_record(file, columns, [&](const json& record, std::size_t line) { visit(record, record_place{path, line, {}}); });
  for_each_record_text(file, [&](std::string_view text, std::size_t line) {
    const json record = parse_record<data_error>(text, path, line);
    const auto examples = record.is_object() ? record.find("examples") : record.end();
    if (examples == record.end()) return visit(record, record_place{path, line, text});
    require<data_error>(examples->is_array(), path, ": line ", line, ": 'examples' must be a list; it is ", examples->type_name());
    for (const json& one : *examples) visit(one, record_place{path, line, {}});
  });
}

/// Names in an object member in file order: json sorts them.
class member_order : public strict_json_builder {
 public:
  member_order(json& record, std::string_view member) : strict_json_builder(record), member_(member) {}

  bool start_object(std::size_t size) {
    ++depth_;
    return strict_json_builder::start_object(size);
  }
  bool end_object() {
    --depth_;
    return strict_json_builder::end_object();
  }
  bool key(string_t& name) {
    if (depth_ == 1) is_inside_ = name == member_;
    else if (depth_ == 2 && is_inside_) names_.push_back(name);
    return strict_json_builder::key(name);
  }
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  std::string member_;
  std::vector<std::string> names_{};
  std::size_t depth_ = 0;
  bool is_inside_ = false;
};
[[nodiscard]] inline std::vector<std::string> names_in_order(const char* member, const record_place& at) {
  json record;
  member_order builder(record, member);
  parse_json_with<data_error>(builder, at.text, at.path, at.line);
  return builder.names();
}

/// A required field, of a type that `is` accepts.
template <class Is>
[[nodiscard]] const json& field_of(const json& record, const char* name, const char* what, const record_place& at, Is&& is) {
  require<data_error>(record.is_object(), at.path, ": line ", at.line, ": a record must be an object; it is ", record.type_name());
  const auto found = record.find(name);
  require<data_error>(found != record.end(), at.path, ": line ", at.line, ": a record must have '", name, "'; it is missing");
  require<data_error>(is(*found), at.path, ": line ", at.line, ": '", name, "' must be ", what, "; it is ", found->type_name());
  return *found;
}
[[nodiscard]] inline std::string text_in(const json& record, const char* name, const record_place& at) {
  return field_of(record, name, "a string", at, [](const json& v) { return v.is_string(); }).get<std::string>();
}
[[nodiscard]] inline std::vector<std::string> texts_in(const json& record, const char* name, const record_place& at) {
  const json& list = field_of(record, name, "a list of strings", at, [](const json& v) {
    bool good = v.is_array() && !v.empty();
    for (std::size_t i = 0; good && i < v.size(); ++i) good = v[i].is_string();
    return good;
  });
  return list.get<std::vector<std::string>>();
}
/// A number below `count`, or such a string.
[[nodiscard]] inline std::size_t index_in(const json& record, const char* name, std::size_t count, const record_place& at) {
  const json& value =
      field_of(record, name, "a number", at, [](const json& v) { return v.is_number_unsigned() || v.is_string() || v.is_number_integer(); });
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const bool is_number = !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
  const std::size_t index = is_number ? std::stoul(text) : count;
  require<data_error>(index < count, at.path, ": line ", at.line, ": '", name, "' must be a number below ", count, "; given ", value.dump());
  return index;
}
/// The index of a letter from A on.
[[nodiscard]] inline std::size_t letter_index(std::string_view letter, std::size_t count, const char* name, const record_place& at) {
  const bool is_letter = letter.size() == 1 && letter[0] >= 'A' && static_cast<std::size_t>(letter[0] - 'A') < count;
  require<data_error>(is_letter, at.path, ": line ", at.line, ": '", name, "' must be a letter from A to ",
                      static_cast<char>('A' + static_cast<char>(count) - 1), "; given '", letter, "'");
  return static_cast<std::size_t>(letter[0] - 'A');
}

}  // namespace xtrain::detail
