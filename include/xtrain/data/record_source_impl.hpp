// Definitions of record_source.hpp.
#pragma once

#include <glob.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/plain_json.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/data/json_records.hpp>
#include <xtrain/data/record_source.hpp>
#include <xtrain/data/text_dataset.hpp>

namespace xtrain {

XTRAIN_INLINE std::string source_place::text() const {
  return concat(path == nullptr ? std::string() : *path, in_rows ? ": row " : ": line ", number);
}

XTRAIN_INLINE json source_record::parsed() && {
  json record = fields.is_null() ? detail::parse_record<data_error>(text, *place.path, place.number) : std::move(fields);
  require<data_error>(record.is_object(), place.text(), ": a record must be an object; it is ", record.type_name());
  return record;
}

XTRAIN_INLINE std::string source_record::json_text() const {
  if (fields.is_null()) return text;
  if (in_order.empty()) return fields.dump();
  std::string all = "{";
  for (const auto& [name, value] : fields.items()) {
    const auto ordered = in_order.find(name);
    all += concat(all.size() > 1 ? ", " : "", json(name).dump(), ": ", ordered != in_order.end() ? ordered->second : value.dump());
  }
  return all + "}";
}

namespace detail {

XTRAIN_INLINE const std::string& string_field(const json& record, const std::string& field, const source_place& place) {
  const auto at = record.find(field);
  require<data_error>(at != record.end(), place.text(), ": a record must have '", field, "'; it is missing");
  require<data_error>(at->is_string(), place.text(), ": '", field, "' must be a string; it is ", at->type_name());
  return at->get_ref<const std::string&>();
}

XTRAIN_INLINE void read_json_records(const std::string& path, const record_visitor& visit) {
  for_each_record_text(mapped_file(path), [&](std::string_view text, std::size_t line) {
    visit({.text = std::string(text), .fields = {}, .place = {&path, line, false}});
  });
}

XTRAIN_INLINE void read_json_line_records(const std::string& path, const record_visitor& visit) {
  {
    const mapped_file file(path);
    const std::string_view text = file.text();
    const std::size_t first = skip_space(text, text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
    const std::size_t end = first < text.size() && text[first] == '[' ? value_end(text, first) : text.size(), next = skip_space(text, end);
    if (next < text.size() &&
        text.substr(end, next - end).find('\n') != std::string_view::npos) {  // a list ends on its line, and another line follows
      std::size_t line = 1 + static_cast<std::size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(first), '\n'));
      for (std::size_t begin = first; begin < text.size(); ++line) {
        const std::size_t behind = std::min(text.find('\n', begin), text.size());
        const std::string_view record = text.substr(begin, behind - begin);
        if (skip_space(record, 0) < record.size()) visit({.text = std::string(record), .fields = {}, .place = {&path, line, false}});
        begin = behind + 1;
      }
      return;
    }
  }
  read_json_records(path, visit);
}

XTRAIN_INLINE void read_text_records(const std::string& path, const record_options& options, const record_visitor& visit) {
  const mapped_file file(path);
  require_text(path, file.text());
  std::string_view text = file.text();
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const auto give = [&](std::string_view piece, std::size_t line, bool begins, bool ends) {
    json fields = json::object();
    fields["text"] = std::string(piece);
    visit({.text = {}, .fields = std::move(fields), .place = {&path, line, false}, .begins = begins, .ends = ends});
  };
  if (options.whole_files) {
    constexpr std::size_t most = std::size_t{1} << 20;
    std::size_t line = 1;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = piece_end(text, begin, most);
      const std::string_view piece = text.substr(begin, end - begin);
      give(piece, line, begin == 0, end == text.size());
      line += static_cast<std::size_t>(std::count(piece.begin(), piece.end(), '\n'));
      begin = end;
    }
    return;
  }
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view one = text.substr(begin, end - begin);
    if (one.ends_with('\r')) one.remove_suffix(1);
    ++line;
    if (!one.empty()) give(one, line, true, true);
    begin = end + 1;
  }
}

XTRAIN_INLINE void read_csv_records(const std::string& path, char separator, const record_visitor& visit) {
  const mapped_file file(path);
  const std::string_view text = file.text();
  std::size_t at = text.starts_with("\xEF\xBB\xBF") ? 3 : 0, line = 1;
  std::vector<std::string> names, values;
  const auto is_break = [&](std::size_t i) { return text[i] == '\n' || (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n'); };
  const auto skip_break = [&] {
    at += text[at] == '\r' ? 2 : 1;
    ++line;
  };
  while (at < text.size()) {
    if (is_break(at)) {
      skip_break();
      continue;
    }
    const std::size_t first_line = line;
    values.clear();
    for (bool more = true; more;) {
      std::string value;
      if (at < text.size() && text[at] == '"') {
        const std::size_t opened = line;
        for (++at;;) {
          const std::size_t quote = text.find('"', at);
          require<data_error>(quote != std::string_view::npos, path, ": line ", opened,
                              ": a field begins with a quote that does not end. Is the file cut short?");
          const std::string_view part = text.substr(at, quote - at);
          value += part;
          line += static_cast<std::size_t>(std::count(part.begin(), part.end(), '\n'));
          at = quote + 1;
          if (at >= text.size() || text[at] != '"') break;
          value.push_back('"');
          ++at;
        }
        require<data_error>(at >= text.size() || text[at] == separator || is_break(at), path, ": line ", line,
                            ": after the quote that ends a field the field must end; a quote within a field is written twice");
      } else {
        const std::size_t begin = at;
        while (at < text.size() && text[at] != separator && !is_break(at)) {
          require<data_error>(text[at] != '"', path, ": line ", line,
                              ": a field with a quote must be in quotes, and the quote written twice");
          ++at;
        }
        value = text.substr(begin, at - begin);
      }
      values.push_back(std::move(value));
      more = at < text.size() && text[at] == separator;
      if (more) ++at;
      else if (at < text.size()) skip_break();
    }
    if (names.empty()) {
      names = values;
      const std::set<std::string> all(names.begin(), names.end());
      require<data_error>(all.size() == names.size(), path, ": line ", first_line,
                          ": fields must have different names; one name is given twice");
      continue;
    }
    require<data_error>(values.size() == names.size(), path, ": line ", first_line, ": a record must have the ", names.size(),
                        " fields that line 1 names; it has ", values.size());
    json fields = json::object();
    for (std::size_t i = 0; i < names.size(); ++i) fields[names[i]] = std::move(values[i]);
    visit({.text = {}, .fields = std::move(fields), .place = {&path, first_line, false}});
  }
}

}  // namespace detail

XTRAIN_INLINE std::vector<record_format> record_formats() {
  const auto read_json = [](const std::string& path, const record_options&, const record_visitor& visit) {
    detail::read_json_records(path, visit);
  };
  const auto read_json_lines = [](const std::string& path, const record_options&, const record_visitor& visit) {
    detail::read_json_line_records(path, visit);
  };
  const auto separated_by = [](char separator) {
    return [separator](const std::string& path, const record_options&, const record_visitor& visit) {
      detail::read_csv_records(path, separator, visit);
    };
  };
  return {{"json", {".json"}, read_json},
          {"jsonl", {".jsonl", ".ndjson"}, read_json_lines},
          {"txt", {".txt"}, detail::read_text_records},
          {"csv", {".csv"}, separated_by(',')},
          {"tsv", {".tsv"}, separated_by('\t')}};
}

XTRAIN_INLINE const record_format* find_format(std::span<const record_format> formats, std::string_view path) {
  for (const record_format& format : formats)
    for (const std::string& extension : format.extensions)
      if (path.ends_with(extension)) return &format;
  return nullptr;
}

XTRAIN_INLINE std::vector<std::string> record_files(const std::vector<std::string>& paths, std::span<const record_format> formats,
                                                    std::size_t* left_out, std::vector<std::string>* repeated) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  std::set<std::string> known_files;
  const auto take = [&](const std::string& path) {
    std::error_code problem;
    const fs::path real = fs::canonical(path, problem);
    if (known_files.insert(problem ? path : real.string()).second) files.push_back(path);
    else if (repeated != nullptr) repeated->push_back(path);
  };
  const auto add = [&](const std::string& path) {
    std::error_code problem;
    if (!fs::is_directory(path, problem)) {
      require<file_error>(fs::exists(path, problem), path, ": must be a file, a folder or a pattern of files; there is none of that name");
      take(path);
      return;
    }
    std::size_t known = 0;
    for (const std::string& inside : detail::files_of({path})) {
      if (find_format(formats, inside) != nullptr) {
        take(inside);
        ++known;
      } else if (left_out != nullptr) {
        ++*left_out;
      }
    }
    require<file_error>(known > 0, path, ": must hold files of a known format; it holds none");
  };
  for (const std::string& path : paths) {
    std::error_code problem;
    if (fs::exists(path, problem) || path.find_first_of("*?[") == std::string::npos) {
      add(path);
      continue;
    }
    ::glob_t found{};
    const int status = ::glob(path.c_str(), GLOB_ERR, nullptr, &found);
    std::vector<std::string> matches;
    if (status == 0) matches.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    require<file_error>(!matches.empty(), path, ": must be a pattern that some files match; none does");
    std::sort(matches.begin(), matches.end());
    for (const std::string& match : matches) add(match);
  }
  return files;
}

}  // namespace xtrain
