// Definitions of text_dataset.hpp: included by it, or compiled once by xtrain_add_library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <initializer_list>
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
    std::error_code ignored;
    const auto readable = [&] { require<file_error>(!problem, path, ": must be a readable folder; the system says: ", problem.message()); };
    for (auto at = fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied, problem);
         readable(), at != fs::recursive_directory_iterator(); at.increment(problem)) {
      const std::string name = at->path().filename().string();
      if (!name.empty() && name.front() == '.') {
        if (at->is_directory(ignored)) at.disable_recursion_pending();
        continue;
      }
      if (at->is_regular_file(ignored)) inside.push_back(at->path().string());
    }
    std::sort(inside.begin(), inside.end());
    require<data_error>(!inside.empty(), path, ": must hold files to train on; the folder is empty");
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
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

XTRAIN_INLINE void add_document(dataset& to, const tokenizer& with, std::string_view text) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  const special_tokens& special = with.special();
  if (const std::vector<token> beginning = with.beginning(); !beginning.empty()) to.extend(beginning);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = piece_end(text, begin, piece);
    to.extend(with.encode(text.substr(begin, end - begin)));
    begin = end;
  }
  if (special.eos >= 0) to.extend(std::vector<token>{special.eos});
  to.end_sample();
}

}  // namespace detail

XTRAIN_INLINE dataset text_dataset(const std::vector<std::string>& paths, const tokenizer& with) {
  require<data_error>(!paths.empty(), "text_dataset: at least one path must be given");
  dataset all(paths.size() == 1 ? paths.front() : concat(paths.front(), " and ", paths.size() - 1, " more"), sequence_layout::stream);
  std::size_t bytes = 0;
  for (const std::string& path : detail::files_of(paths)) {
    const mapped_file file(path);
    bytes += file.size();
    if (file.size() > 0) detail::add_document(all, with, file.text());
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
