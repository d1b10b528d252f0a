// Plain text for encoders: sequences with masked words, and sentence pairs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/data/sentence_dataset.hpp>
#include <xtrain/data/sentence_marks.hpp>
#include <xtrain/data/spill.hpp>
#include <xtrain/data/text_dataset.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Mask token and vocabulary of `masking` come from the tokenizer.
struct masked_text_options {
  std::size_t seq_length = 0;  ///< in tokens, with special tokens
  bool lines = false;          ///< a sequence per line, truncated; else a file's text fills sequences
  word_masking masking{};
  std::uint64_t seed = 42;  ///< for sentence pairs
};

namespace detail {

[[nodiscard]] sentence_dataset empty_masked_dataset(const std::vector<std::string>& paths, const tokenizer& with, const sentence_marks& marks,
                                                    const masked_text_options& options);

/// Calls visit(line) per line, without line end.
template <class Visit>
void for_each_text_line(std::string_view text, Visit&& visit) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(line);
    begin = end + 1;
  }
}
[[nodiscard]] inline bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\f\v") == std::string_view::npos; }

void add_words(sentence_row& row, std::span<const token> tokens, word_parts& parts);

/// Sentences of all documents, and random choices among them.
class sentence_documents {
 public:
  /// A sentence per line; blank lines and file ends separate documents.
  sentence_documents(const std::vector<std::string>& paths, const tokenizer& with, std::uint64_t seed);

  [[nodiscard]] std::size_t documents() const { return documents_.size() - 1; }
  [[nodiscard]] std::size_t begin(std::size_t document) const { return static_cast<std::size_t>(documents_[document]); }
  [[nodiscard]] std::size_t end(std::size_t document) const { return static_cast<std::size_t>(documents_[document + 1]); }
  [[nodiscard]] std::size_t length(std::size_t sentence) const;
  /// Sentences [first, behind).
  [[nodiscard]] std::span<const token> tokens(std::size_t first, std::size_t behind) const;
  [[nodiscard]] std::size_t below(std::size_t n);

 private:
  spilled_array<token> tokens_;
  spilled_array<std::uint64_t> sentences_, documents_;
  std::size_t last_ = 0;
  std::uint64_t seed_, drawn_ = 0;
};

}  // namespace detail

/// Sequences for masked language modeling: [CLS] text [SEP].
///   throws  file_error, data_error if there is no text, config_error if the tokenizer lacks special tokens
[[nodiscard]] sentence_dataset masked_text_dataset(const std::vector<std::string>& paths, const tokenizer& with, const masked_text_options& options);

/// Sentence pairs, [CLS] first [SEP] second [SEP]: the second follows the first in a document or (label 1, half) comes from another document. A sentence per
/// line, blank lines between documents; words are masked too.
///                                                                        [Devlin et al. 2019, section 3.1, "Task #2", appendix A.2]
///   departs from the published program: sequences are as long as possible; pairs are truncated only at the end
///   throws  as masked_text_dataset; data_error if there are fewer than two documents
[[nodiscard]] sentence_dataset sentence_pair_dataset(const std::vector<std::string>& paths, const tokenizer& with,
                                                     const masked_text_options& options);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/masked_text_dataset_impl.hpp>
#endif
