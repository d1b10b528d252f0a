// Definitions of grouped_text_dataset.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/json.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/grouped_text_dataset.hpp>
#include <xtrain/data/record_source.hpp>

namespace xtrain {

namespace detail {

/// Calls visit(text) per text of a file.
template <class Visit>
void for_each_text(const std::string& path, const std::string& field, Visit&& visit) {
  if (path.ends_with(".txt")) {
    const mapped_file file(path);
    std::string_view rest = file.text();
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      std::string_view line = rest.substr(0, end);
      if (line.ends_with('\r')) line.remove_suffix(1);
      visit(line);
      rest.remove_prefix(std::min(rest.size(), end + 1));
    }
    return;
  }
  const std::vector<record_format> formats = record_formats();
  const record_format* const format = find_format(formats, path);
  require<config_error>(format != nullptr, path,
                        ": must be a file of texts (.txt), of JSON records (.json, .jsonl) or of comma-separated values (.csv)");
  format->read(path, {}, [&](source_record&& record) {
    const source_place place = record.place;
    const json fields = std::move(record).parsed();
    visit(std::string_view(string_field(fields, field, place)));
  });
}

}  // namespace detail

XTRAIN_INLINE dataset grouped_text_dataset(const std::vector<std::string>& paths, const tokenizer& with,
                                           const grouped_text_options& options) {
  require<data_error>(!paths.empty(), "grouped_text_dataset: at least one path must be given");
  require<config_error>(options.block_size >= 2, "grouped_text_dataset: block_size must be at least 2; given ", options.block_size);
  require<config_error>(options.group > 0 && options.workers > 0, "grouped_text_dataset: group and workers must be positive; given ",
                        options.group, " and ", options.workers);
  std::size_t count = 0;
  for (const std::string& path : paths) detail::for_each_text(path, options.field, [&](std::string_view) { ++count; });
  require<data_error>(count > 0, paths.front(), ": must have a text");
  const std::size_t workers = std::min(options.workers, count);
  const auto begin_of = [&](std::size_t worker) { return count / workers * worker + std::min(worker, count % workers); };

  dataset all(paths.size() == 1 ? paths.front() : concat(paths.front(), " and ", paths.size() - 1, " more"), sequence_layout::separate);
  const std::vector<token> beginning = with.beginning();
  std::vector<token> tokens;
  const auto finish_group = [&] {
    const std::span<const token> group(tokens);
    if (group.size() < options.block_size) {
      if (group.size() > 1) all.add(group);
    } else {
      for (std::size_t i = 0; i + options.block_size <= group.size(); i += options.block_size)
        all.add(group.subspan(i, options.block_size));
    }
    tokens.clear();
  };
  std::size_t text = 0, worker = 0;
  for (const std::string& path : paths)
    detail::for_each_text(path, options.field, [&](std::string_view one) {
      const std::size_t end = begin_of(worker + 1);
      if (!one.empty() || !beginning.empty()) {
        tokens.insert(tokens.end(), beginning.begin(), beginning.end());
        const auto more = with.encode(one);
        tokens.insert(tokens.end(), more.begin(), more.end());
      }
      ++text;
      if (text == end) {
        finish_group();
        ++worker;
      } else if ((text - begin_of(worker)) % options.group == 0) {
        finish_group();
      }
    });
  all.finish();
  return all;
}

}  // namespace xtrain
