// Definitions of indexed_instructions.hpp.
#pragma once

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/gpt_dataset.hpp>
#include <xtrain/data/indexed_dataset.hpp>
#include <xtrain/data/indexed_instructions.hpp>

namespace xtrain {

namespace detail {

/// In order of finishing: input_ids last.
[[nodiscard]] inline std::string attention_mask_prefix(const std::string& prefix) { return prefix + "_attention_mask_document"; }
[[nodiscard]] inline std::string labels_prefix(const std::string& prefix) { return prefix + "_labels_document"; }
[[nodiscard]] inline std::string input_ids_prefix(const std::string& prefix) { return prefix + "_input_ids_document"; }

[[nodiscard]] inline std::optional<std::uint64_t> one_of(const std::optional<std::array<std::uint64_t, 3>>& checksums, std::size_t i) {
  return checksums ? std::optional((*checksums)[i]) : std::nullopt;
}

/// The files' prefix, with or without "_packed".
[[nodiscard]] inline std::string instruction_prefix(const std::string& prefix) {
  const std::string packed = prefix + "_packed";
  const bool is_packed = file_exists(input_ids_prefix(packed) + ".idx"), is_plain = file_exists(input_ids_prefix(prefix) + ".idx");
  require<file_error>(is_packed || is_plain, prefix, ": must have an instruction dataset; neither ", input_ids_prefix(packed), ".idx nor ",
                      input_ids_prefix(prefix), ".idx exists");
  require<file_error>(!is_packed || !is_plain, prefix, ": must have one instruction dataset; there are ", input_ids_prefix(packed),
                      ".idx and ", input_ids_prefix(prefix), ".idx");
  return is_packed ? packed : prefix;
}

}  // namespace detail

XTRAIN_INLINE instruction_writer::instruction_writer(const std::string& prefix)
    : files_{indexed_writer(detail::attention_mask_prefix(prefix), indexed_dtype::i32),
             indexed_writer(detail::labels_prefix(prefix), indexed_dtype::i32),
             indexed_writer(detail::input_ids_prefix(prefix), indexed_dtype::i32)} {}

XTRAIN_INLINE instruction_writer::instruction_writer(const std::string& prefix, const indexed_position& from,
                                                     const std::optional<std::array<std::uint64_t, 3>>& checksums)
    : files_{indexed_writer(detail::attention_mask_prefix(prefix), indexed_dtype::i32, from, detail::one_of(checksums, 0)),
             indexed_writer(detail::labels_prefix(prefix), indexed_dtype::i32, from, detail::one_of(checksums, 1)),
             indexed_writer(detail::input_ids_prefix(prefix), indexed_dtype::i32, from, detail::one_of(checksums, 2))} {}

XTRAIN_INLINE void instruction_writer::add_labelled(std::span<const token> tokens, std::span<const token> labels) {
  require<data_error>(!tokens.empty(), files_[2].prefix(), ": a sample must have tokens; document ", position().documents,
                      " has one without");
  for (const token t : tokens)
    require<data_error>(t >= 0, files_[2].prefix(), ": a token must not be negative; document ", position().documents, " has ", t);
  mask_.assign(tokens.size(), 1);
  files_[0].add_sequence(mask_);
  files_[1].add_sequence(labels);
  files_[2].add_sequence(tokens);
}

XTRAIN_INLINE void instruction_writer::end_document() {
  for (indexed_writer& one : files_) one.end_document();
}

XTRAIN_INLINE indexed_position instruction_writer::sync() {
  for (indexed_writer& one : files_) (void)one.sync();
  return position();
}

XTRAIN_INLINE void instruction_writer::finish() {
  (void)sync();
  // no part of an old dataset may remain
  for (const indexed_writer& one : files_) {
    const std::string idx = one.prefix() + ".idx";
    require<file_error>(::unlink(idx.c_str()) == 0 || errno == ENOENT, idx, ": must be replaced; the system says: ", detail::reason(errno));
  }
  for (indexed_writer& one : files_) one.finish();
}

XTRAIN_INLINE void instruction_writer::discard() {
  for (indexed_writer& one : files_) one.discard();
}

XTRAIN_INLINE dataset indexed_instruction_dataset(const std::string& prefix, const indexed_instruction_options& options) {
  const std::string found = detail::instruction_prefix(prefix);
  const indexed_file ids(detail::input_ids_prefix(found)), mask(detail::attention_mask_prefix(found)), labels(detail::labels_prefix(found));
  const auto same = [&](const indexed_file& other) {
    require<file_error>(other.sequences() == ids.sequences(), other.prefix(), ".idx: must have the ", ids.sequences(), " sequences of ",
                        ids.prefix(), ".idx; it has ", other.sequences());
    for (std::size_t s = 0; s < ids.sequences(); ++s)
      require<file_error>(other.length(s) == ids.length(s), other.prefix(), ".idx: sequence ", s, " must have the ", ids.length(s),
                          " tokens that it has in ", ids.prefix(), ".idx; it has ", other.length(s));
  };
  same(mask);
  same(labels);
  std::size_t first = 0, last = ids.sequences();
  if (options.part) {
    const auto ranges = split_documents(options.split, ids.sequences());
    first = ranges[static_cast<std::size_t>(*options.part)];
    last = ranges[static_cast<std::size_t>(*options.part) + 1];
    require<data_error>(last > first, found, ": the ", name_of(*options.part), " part of the split ", options.split, " must have samples; of ",
                        ids.sequences(), " it has none");
  }
  dataset all(found, options.packed ? sequence_layout::packed : sequence_layout::separate);
  all.when_too_long = options.when_too_long;
  std::vector<token> tokens;
  std::vector<std::int64_t> seen, targets;
  const auto load = [](const indexed_file& from, std::size_t sequence, std::vector<std::int64_t>& to) {
    to.resize(from.length(sequence));
    from.for_each(from.begin(sequence), to.size(), [&](std::size_t i, std::int64_t value) { to[i] = value; });
  };
  for (std::size_t s = first; s < last; ++s) {
    const std::size_t begin = ids.begin(s);  // equal in all three: one dtype, or offsets in tokens
    tokens.resize(ids.length(s));
    ids.read(begin, tokens, std::size_t{1} << 30);
    load(mask, s, seen);
    load(labels, s, targets);
    std::size_t length = tokens.size();
    while (length > 0 && seen[length - 1] == 0) --length;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      require<data_error>(seen[i] == (i < length ? 1 : 0), mask.place_of(begin + i),
                          ": an attention mask must be 1, and 0 only in padding at the end; given ", seen[i]);
      require<data_error>(targets[i] == ignored_label || targets[i] == tokens[i], labels.place_of(begin + i),
                          ": a label must be the token, ", tokens[i], ", or -100; given ", targets[i]);
      require<data_error>(i < length || targets[i] == ignored_label, labels.place_of(begin + i),
                          ": padding must have the label -100; given ", targets[i]);
    }
    all.add(std::span<const token>(tokens).first(length), [&](std::size_t i) { return targets[i] != ignored_label; });
  }
  all.finish();
  return all;
}

}  // namespace xtrain
