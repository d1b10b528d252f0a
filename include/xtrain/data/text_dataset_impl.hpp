// Definitions of text_dataset.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/text_dataset.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

namespace detail {

/// Adds files below a folder, without hidden ones. Links are followed; each folder is read once; unreadable paths are refused.
///   seen  real paths of folders read
inline void add_files_below(const std::filesystem::path& folder, std::set<std::filesystem::path>& seen, std::vector<std::string>& files) {
  namespace fs = std::filesystem;
  std::error_code problem, ignored;
  const auto readable = [&] {
    require<file_error>(!problem, folder.string(), ": must be a readable folder; the system says: ", problem.message());
  };
  const fs::path real = fs::canonical(folder, problem);
  readable();
  if (!seen.insert(real).second) return;
  std::vector<fs::path> folders, links;  // a folder is read under its real name if present here, in any directory order
  for (auto at = fs::directory_iterator(folder, problem); readable(), at != fs::directory_iterator(); at.increment(problem)) {
    const std::string name = at->path().filename().string();
    if (name.empty() || name.front() == '.') continue;
    if (at->is_directory(ignored)) (at->is_symlink(ignored) ? links : folders).push_back(at->path());
    else files.push_back(at->path().string());  // broken links and pipes fail when opened
  }
  for (std::vector<fs::path>* some : {&folders, &links}) {
    std::sort(some->begin(), some->end());
    for (const fs::path& one : *some) add_files_below(one, seen, files);
  }
}

XTRAIN_INLINE std::vector<std::string> files_of(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code problem;
    const auto status = fs::status(path, problem);
    require<file_error>(!problem && fs::exists(status), path, ": must be a file or a folder; no such file or folder");
    if (!fs::is_directory(status)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    std::set<fs::path> seen;
    add_files_below(path, seen, inside);
    std::sort(inside.begin(), inside.end());
    require<data_error>(!inside.empty(), path, ": must hold files to train on; the folder is empty");
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

XTRAIN_INLINE void require_text(const std::string& path, std::string_view text) {
  using namespace std::string_view_literals;
  struct beginning {
    std::string_view bytes;
    const char* what;
  };
  constexpr const char* compressed = "is compressed: decompress it first";
  constexpr const char* columns = "has records in columns: preprocess_data reads them";
  constexpr const char* wide = "is in UTF-16: convert it to UTF-8";
  static constexpr std::array<beginning, 12> known{{{"\x1F\x8B"sv, compressed},  // gzip
                                                    {"\x28\xB5\x2F\xFD"sv, compressed},  // zstd
                                                    {"\xFD" "7zXZ\0"sv, compressed},
                                                    {"BZh91AY&SY"sv, compressed},  // bzip2 -9
                                                    {"\x04\x22\x4D\x18"sv, compressed},  // lz4
                                                    {"7z\xBC\xAF\x27\x1C"sv, compressed},
                                                    {"PK\x03\x04"sv, compressed},  // zip
                                                    {"PAR1"sv, columns},
                                                    {"ARROW1\0\0"sv, columns},
                                                    {"FEA1"sv, columns},
                                                    {"\xFF\xFE"sv, wide},
                                                    {"\xFE\xFF"sv, wide}}};
  for (const beginning& one : known) require<data_error>(!text.starts_with(one.bytes), path, ": must be text in UTF-8; by its first bytes it ", one.what);
}

XTRAIN_INLINE std::size_t piece_end(std::string_view text, std::size_t begin, std::size_t most) {
  if (text.size() - begin <= most) return text.size();
  const std::size_t end = begin + most;
  for (std::size_t i = end; i > begin + most / 2; --i)
    if (text[i - 1] == '\n' && text[i] != '\n' && text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return i;
  for (std::size_t i = end; i > begin + 1; --i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) return i;
  return end;
}

}  // namespace detail

XTRAIN_INLINE void add_document(dataset& to, const tokenizer& with, std::string_view text) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  const special_tokens& special = with.special();
  if (const std::vector<token> beginning = with.beginning(); !beginning.empty()) to.extend(beginning);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = detail::piece_end(text, begin, piece);
    to.extend(with.encode(text.substr(begin, end - begin)));
    begin = end;
  }
  if (special.eos >= 0) to.extend(std::vector<token>{special.eos});
  to.end_sample();
}

XTRAIN_INLINE dataset text_dataset(const std::vector<std::string>& paths, const tokenizer& with) {
  require<data_error>(!paths.empty(), "text_dataset: at least one path must be given");
  dataset all(paths.size() == 1 ? paths.front() : concat(paths.front(), " and ", paths.size() - 1, " more"), sequence_layout::stream);
  std::size_t bytes = 0;
  for (const std::string& path : detail::files_of(paths)) {
    const mapped_file file(path);
    bytes += file.size();
    detail::require_text(path, file.text());
    if (file.size() > 0) add_document(all, with, file.text());
  }
  require<data_error>(bytes > 0, all.source(), ": must hold text to train on; it is empty");
  all.finish();
  return all;
}

XTRAIN_INLINE dataset text_dataset(const std::string& path, const tokenizer& with) {
  return text_dataset(std::vector<std::string>{path}, with);
}

XTRAIN_INLINE dataset text_dataset(std::initializer_list<std::string> paths, const tokenizer& with) {  // for {"a", "b"}
  return text_dataset(std::vector<std::string>(paths), with);
}

}  // namespace xtrain
