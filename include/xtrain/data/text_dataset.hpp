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

/// Expands folders into all files below them (hidden ones left out), sorted by path; files stay as given.
///   throws  file_error if a path does not exist
[[nodiscard]] std::vector<std::string> files_of(const std::vector<std::string>& paths);

/// Refuses what is compressed, in columns, or in UTF-16, by its first bytes: all of it would be tokens, but nothing that was written.
///   throws  data_error
void require_text(const std::string& path, std::string_view text);

/// The end of a piece of at most `most` bytes: after a line break that is followed by text, where tokenizers do not join
/// across; otherwise at least after a whole character.
[[nodiscard]] std::size_t piece_end(std::string_view text, std::size_t begin, std::size_t most);

}  // namespace detail

/// Appends a text as one sample: bos if texts begin with it, the text in pieces, eos.
void add_document(dataset& to, const tokenizer& with, std::string_view text);

/// Of paths, not of texts. Each file is one document. All documents are concatenated and cut into sequences; eos marks their ends.
///   throws  file_error if a path cannot be read, data_error if all files are empty
[[nodiscard]] dataset text_dataset(const std::vector<std::string>& paths, const tokenizer& with);
/// The same for one file.
[[nodiscard]] dataset text_dataset(const std::string& path, const tokenizer& with);
[[nodiscard]] dataset text_dataset(std::initializer_list<std::string> paths, const tokenizer& with);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/text_dataset_impl.hpp>
#endif
