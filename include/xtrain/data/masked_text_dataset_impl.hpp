// Definitions of masked_text_dataset.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/random.hpp>
#include <xtrain/data/masked_text_dataset.hpp>
#include <xtrain/data/sentence_dataset.hpp>
#include <xtrain/data/sentence_marks.hpp>
#include <xtrain/data/spill.hpp>
#include <xtrain/data/text_dataset.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

namespace detail {

XTRAIN_INLINE sentence_dataset empty_masked_dataset(const std::vector<std::string>& paths, const tokenizer& with,
                                                    const sentence_marks& marks, const masked_text_options& options) {
  require<data_error>(!paths.empty(), "masked_text_dataset: at least one path must be given");
  require<config_error>(options.seq_length > 3, "masked_text_dataset: seq_length must be given, and more than 3 tokens; given ", options.seq_length);
  sentence_dataset all(paths.size() == 1 ? paths.front() : concat(paths.front(), " and ", paths.size() - 1, " more"));
  all.masking = options.masking;
  all.masking->mask = marks.mask;
  all.masking->vocab_size = with.vocab_size();
  return all;
}

XTRAIN_INLINE void add_words(sentence_row& row, std::span<const token> tokens, word_parts& parts) {
  for (const token id : tokens) row.add(id, true, parts.continues(id));
}

XTRAIN_INLINE sentence_documents::sentence_documents(const std::vector<std::string>& paths, const tokenizer& with, std::uint64_t seed)
    : seed_(seed) {
  sentences_.push_back(0);
  documents_.push_back(0);
  const auto end_document = [&] {
    if (sentences_.size() - 1 > last_) documents_.push_back(last_ = sentences_.size() - 1);
  };
  for (const std::string& path : files_of(paths)) {
    const mapped_file file(path);
    require_text(path, file.text());
    for_each_text_line(file.text(), [&](std::string_view line) {
      if (is_blank(line)) return end_document();
      const std::vector<token> tokens = with.encode(line);
      for (const token id : tokens) tokens_.push_back(id);
      if (!tokens.empty()) sentences_.push_back(tokens_.size());
    });
    end_document();
  }
  tokens_.finish();
  sentences_.finish();
  documents_.finish();
}

XTRAIN_INLINE std::size_t sentence_documents::length(std::size_t sentence) const {
  return static_cast<std::size_t>(sentences_[sentence + 1] - sentences_[sentence]);
}

XTRAIN_INLINE std::span<const token> sentence_documents::tokens(std::size_t first, std::size_t behind) const {
  const auto from = static_cast<std::size_t>(sentences_[first]), to = static_cast<std::size_t>(sentences_[behind]);
  return tokens_.values().subspan(from, to - from);
}

XTRAIN_INLINE std::size_t sentence_documents::below(std::size_t n) {
  const auto words = random_quad({.seed = seed_, .step = 0, .site = site_of_name("sentence_pairs")}, drawn_++);
  return static_cast<std::size_t>(((std::uint64_t{words[0]} << 32) | words[1]) % n);
}

}  // namespace detail

XTRAIN_INLINE sentence_dataset masked_text_dataset(const std::vector<std::string>& paths, const tokenizer& with,
                                                   const masked_text_options& options) {
  const detail::sentence_marks marks(with);
  sentence_dataset all = detail::empty_masked_dataset(paths, with, marks, options);
  detail::word_parts parts(with);
  const std::size_t room = options.seq_length - 2;
  const auto add = [&](std::span<const token> words) {
    if (words.empty()) return;
    sentence_row row;
    row.add(marks.begin, false);
    detail::add_words(row, words, parts);
    row.add(marks.separator, false);
    all.add(row);
  };
  for (const std::string& path : detail::files_of(paths)) {
    const mapped_file file(path);
    detail::require_text(path, file.text());
    if (options.lines) {
      detail::for_each_text_line(file.text(), [&](std::string_view line) {
        const std::vector<token> words = with.encode(line);
        add(std::span(words).first(std::min(room, words.size())));
      });
      continue;
    }
    constexpr std::size_t piece = std::size_t{1} << 20;
    std::vector<token> waiting;
    for (std::size_t begin = 0; begin < file.size();) {
      const std::size_t end = detail::piece_end(file.text(), begin, piece);
      const std::vector<token> more = with.encode(file.text().substr(begin, end - begin));
      waiting.insert(waiting.end(), more.begin(), more.end());
      std::size_t used = 0;
      for (; waiting.size() - used >= room; used += room) add(std::span(waiting).subspan(used, room));
      waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(used));
      begin = end;
    }
    add(waiting);
  }
  all.finish();
  return all;
}

XTRAIN_INLINE sentence_dataset sentence_pair_dataset(const std::vector<std::string>& paths, const tokenizer& with,
                                                     const masked_text_options& options) {
  const detail::sentence_marks marks(with);
  sentence_dataset all = detail::empty_masked_dataset(paths, with, marks, options);
  all.labels = {"follows", "does not follow"};
  detail::word_parts parts(with);
  detail::sentence_documents from(paths, with, options.seed);
  require<data_error>(
      from.documents() > 1, all.source(),
      ": must hold two documents at least, with a blank line between them, so that sentences can come from another; it holds ",
      from.documents());
  const std::size_t room = options.seq_length - 3;
  const auto add = [&](std::span<const token> first, std::span<const token> second, token label) {
    while (first.size() + second.size() > room) {
      std::span<const token>& longer = first.size() > second.size() ? first : second;
      longer = longer.first(longer.size() - 1);
    }
    sentence_row row;
    row.add(marks.begin, false);
    detail::add_words(row, first, parts);
    row.add(marks.separator, false);
    row.second = row.tokens.size();
    detail::add_words(row, second, parts);
    row.add(marks.separator, false);
    row.label = label;
    all.add(row);
  };
  /// End of the sentences from `first` on with at least `tokens` tokens.
  const auto behind = [&](std::size_t first, std::size_t end, std::size_t tokens) {
    std::size_t sum = 0;
    while (first < end && sum < tokens) sum += from.length(first++);
    return first;
  };
  for (std::size_t document = 0; document < from.documents(); ++document)
    for (std::size_t at = from.begin(document), end = from.end(document); at < end;) {
      const std::size_t chunk = behind(at, end, room);
      const std::size_t middle = chunk - at > 1 ? at + 1 + from.below(chunk - at - 1) : chunk;
      if (middle < chunk && from.below(2) == 0) {
        add(from.tokens(at, middle), from.tokens(middle, chunk), 0);
        at = chunk;
        continue;
      }
      const std::size_t other = (document + 1 + from.below(from.documents() - 1)) % from.documents();
      const std::size_t start = from.begin(other) + from.below(from.end(other) - from.begin(other));
      const std::size_t taken = std::min(room - 1, from.tokens(at, middle).size());
      add(from.tokens(at, middle), from.tokens(start, behind(start, from.end(other), room - taken)), 1);
      at = middle;  // replaced sentences are used next
    }
  all.finish();
  return all;
}

}  // namespace xtrain
