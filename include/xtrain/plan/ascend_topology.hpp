// How the NPUs of a node are connected, from the output of `npu-smi info -t topo`.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/error.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/plan/machine.hpp>

namespace xtrain {

/// Row i, column j: how NPU i reaches NPU j.
struct ascend_topology {
  std::vector<std::vector<std::string>> links{};  ///< X (itself), HCCS, PIX, PXB, PHB, SYS, NA
  std::vector<std::string> processors{};          ///< of each NPU's neighbourhood: "144-167"

  [[nodiscard]] std::size_t devices() const { return links.size(); }
  [[nodiscard]] std::size_t count(std::string_view kind) const {
    std::size_t all = 0;
    for (const auto& row : links) all += static_cast<std::size_t>(std::count(row.begin(), row.end(), kind));
    return all;
  }
  /// Whether HCCS connects each with each.
  [[nodiscard]] bool is_full_mesh() const { return devices() > 1 && count("HCCS") == devices() * (devices() - 1); }

  friend bool operator==(const ascend_topology&, const ascend_topology&) = default;
};

/// Bytes per second in one direction: a link of an Atlas 900 A2's module, 56 GB/s in both directions.
inline constexpr double hccs_link_bandwidth = 28e9;
/// Assumed for all else: PCIe 4.0 x16.
inline constexpr double pcie_link_bandwidth = 32e9;

///   who     names the text in errors
///   throws  data_error, with the line
[[nodiscard]] inline ascend_topology parse_ascend_topology(std::string_view text, const std::string& who) {
  ascend_topology found;
  std::size_t columns = 0, number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::vector<std::string> words;
    for (std::size_t i = at; i < end;) {
      const auto is_space = [&](std::size_t k) { return text[k] == ' ' || text[k] == '\t' || text[k] == '\r'; };
      while (i < end && is_space(i)) ++i;
      const std::size_t begin = i;
      while (i < end && !is_space(i)) ++i;
      if (i > begin) words.emplace_back(text.substr(begin, i - begin));
    }
    at = end + 1;
    ++number;
    if (words.empty()) continue;
    if (words[0].starts_with("Legend")) break;
    if (!words[0].starts_with("NPU")) continue;
    if (columns == 0) {
      columns = static_cast<std::size_t>(std::count_if(words.begin(), words.end(), [](const std::string& word) { return word.starts_with("NPU"); }));
      continue;
    }
    const std::size_t row = found.links.size();
    require<data_error>(words[0] == concat("NPU", row) && words.size() > columns && words[row + 1] == "X", who, ": line ", number,
                        ": must be the row of NPU", row, ", with X in its own column; it begins with ", words[0]);
    for (std::size_t column = 0; column < columns; ++column) {
      const std::string& kind = words[column + 1];
      require<data_error>((kind == "X") == (column == row) && (kind == "X" || kind == "HCCS" || kind == "HCCS_SW" || kind == "SIO" || kind == "PIX" ||
                                                               kind == "PXB" || kind == "PHB" || kind == "SYS" || kind == "NA"),
                          who, ": line ", number, ": links must be HCCS, HCCS_SW, SIO, PIX, PXB, PHB, SYS or NA; given ", kind);
    }
    found.links.emplace_back(words.begin() + 1, words.begin() + 1 + static_cast<std::ptrdiff_t>(columns));
    found.processors.push_back(words.size() > columns + 1 ? words[columns + 1] : "");
    if (found.links.size() == columns) break;
  }
  require<data_error>(columns > 0 && found.links.size() == columns, who, ": must be the output of npu-smi info -t topo, with a row for each of its ", columns,
                      " NPUs; it has ", found.links.size());
  for (std::size_t i = 0; i < columns; ++i)
    for (std::size_t j = 0; j < i; ++j)
      require<data_error>(found.links[i][j] == found.links[j][i], who, ": NPU", i, " and NPU", j, " must be connected alike both ways; given ",
                          found.links[i][j], " and ", found.links[j][i]);
  return found;
}

/// The machine with nodes like that: in a full mesh, a device has a link to each other one; otherwise the slowest connection counts.
[[nodiscard]] inline machine with_topology(machine of, const ascend_topology& topology) {
  of.devices_per_node = topology.devices();
  if (topology.devices() > 1)
    of.inside.bandwidth = topology.is_full_mesh() ? hccs_link_bandwidth * static_cast<double>(topology.devices() - 1) : pcie_link_bandwidth;
  return of;
}

}  // namespace xtrain
