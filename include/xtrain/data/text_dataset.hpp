// Plain text: files and folders.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

namespace detail {

/// Files, and all files below folders, sorted by path, without hidden ones.
///   throws  file_error if a path does not exist
[[nodiscard]] std::vector<std::string> files_of(const std::vector<std::string>& paths);

/// Refuses compressed, columnar and UTF-16 data by its first bytes.
///   throws  data_error
void require_text(const std::string& path, std::string_view text);

/// End of a piece of at most `most` bytes: after a line break followed by text, where tokenizers do not join; else after a character.
[[nodiscard]] std::size_t piece_end(std::string_view text, std::size_t begin, std::size_t most);

}  // namespace detail

/// Appends one sample: bos if texts begin with it, the text in pieces, eos.
void add_document(dataset& to, const tokenizer& with, std::string_view text);

/// `paths`, not texts. Each file is a document; documents are concatenated and cut into sequences; eos ends them.
///   throws  file_error if a path cannot be read, data_error if all files are empty
[[nodiscard]] dataset text_dataset(const std::vector<std::string>& paths, const tokenizer& with);
/// For one file.
[[nodiscard]] dataset text_dataset(const std::string& path, const tokenizer& with);
[[nodiscard]] dataset text_dataset(std::initializer_list<std::string> paths, const tokenizer& with);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/text_dataset_impl.hpp>
#endif
