// A page as data: rows of its tables, and flags that it names.
#pragma once

#include <cstddef>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

struct page_row {
  std::string section;  ///< the heading above it, without '#'
  std::vector<std::string> cells;
};

/// Every row of every table, with column headings.
inline std::vector<page_row> rows_of_page(const std::string& file) {
  std::ifstream page(file);
  if (!page) throw std::runtime_error("no page " + file);
  std::vector<page_row> rows;
  std::string line, section;
  while (std::getline(page, line)) {
    if (line.starts_with("#")) section = line.substr(line.find_first_not_of("# "));
    if (!line.starts_with("| ")) continue;
    page_row row{section, {}};
    std::string cell;
    for (std::size_t i = 2; i < line.size(); ++i) {
      if (line[i] == '\\' && i + 1 < line.size() && line[i + 1] == '|') cell += line[++i];
      else if (line[i] != '|') cell += line[i];
      else {
        while (cell.ends_with(' ')) cell.pop_back();
        row.cells.push_back(cell.substr(cell.starts_with(' ') ? 1 : 0));
        cell.clear();
      }
    }
    rows.push_back(row);
  }
  return rows;
}

/// Flags that are code in a line or cell: `--seed`, and the first word of `--seed 1`. Without leading dashes, '-' replaces '_'.
inline std::vector<std::string> flags_in(const std::string& text) {
  std::vector<std::string> flags;
  for (std::size_t at = text.find("`--"); at != std::string::npos; at = text.find("`--", at + 1)) {
    std::string name = text.substr(at + 3, text.find_first_of("` =", at + 3) - at - 3);
    for (char& c : name) c = c == '_' ? '-' : c;
    flags.push_back(name);
  }
  return flags;
}

/// Flags that a page names outside code blocks.
inline std::set<std::string> flags_of_page(const std::string& file) {
  std::ifstream page(file);
  std::set<std::string> all;
  std::string line;
  for (bool in_code = false; std::getline(page, line);) {
    if (line.starts_with("```")) in_code = !in_code;
    if (!in_code)
      for (const std::string& flag : flags_in(line)) all.insert(flag);
  }
  return all;
}
