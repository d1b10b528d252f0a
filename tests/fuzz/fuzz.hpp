// Shared by fuzz targets: bytes as files, and findings.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/error.hpp>
#include "scratch.hpp"

/// Runs one input. Returns 0; a finding ends the program.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fuzz {

/// The replay's target by name of its source; null: unknown.
using target = int (*)(const std::uint8_t* data, std::size_t size);
target target_of(std::string_view source);

/// The last input was accepted: the replay compares this with the corpus file's name.
inline bool accepted = false;

/// A property of every accepted input.
inline void must(bool holds, const char* sentence) {
  if (holds) return;
  std::fprintf(stderr, "finding: %s\n", sentence);
  std::abort();
}

/// Whether `read` ends without an error. Rejections are the library's errors; any other exception ends the program.
template <class Read>
[[nodiscard]] bool reads(Read&& read) {
  try {
    read();
  } catch (const xtrain::error& problem) {
    must(std::string_view(problem.what()).find(": ") != std::string_view::npos, "every error must say who speaks");
    return false;
  }
  return true;
}

/// The folder of inputs, for the program's lifetime.
inline const scratch_folder& folder() {
  static const scratch_folder one;
  return one;
}

inline std::string text_of(const std::uint8_t* data, std::size_t size) { return {reinterpret_cast<const char*>(data), size}; }

/// JSON, not a safetensors file, whose first eight bytes are a length: the length's last byte is zero for any file size.
inline bool begins_as_json(std::string_view input) { return input.starts_with('{') && (input.size() < 8 || input[7] != '\0'); }

/// Several files in one input, each after a line "%% <name>". Text before the first such line is ignored.
inline std::vector<std::pair<std::string, std::string>> files_of(std::string_view input) {
  constexpr std::string_view mark = "%% ";
  std::vector<std::pair<std::string, std::string>> files;
  bool inside = false;
  for (std::size_t begin = 0; begin < input.size();) {
    const std::size_t end = std::min(input.find('\n', begin), input.size());
    const std::string_view line = input.substr(begin, end - begin);
    if (line.starts_with(mark)) {
      if (inside && !files.back().second.empty()) files.back().second.pop_back();  // the line break before a mark belongs to the mark
      files.emplace_back(line.substr(mark.size()), "");
      inside = true;
    } else if (inside) {
      files.back().second += line;
      if (end < input.size()) files.back().second += '\n';
    }
    begin = end + 1;
  }
  return files;
}

}  // namespace fuzz
