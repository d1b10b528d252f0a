// AscendSpeed's instruction datasets: three corresponding indexed datasets of int32, PREFIX_packed_input_ids_document,
// PREFIX_packed_attention_mask_document, PREFIX_packed_labels_document. ("packed": they belong together; each sequence is one sample.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/data/dataset.hpp>
#include <xtrain/data/gpt_dataset.hpp>
#include <xtrain/data/indexed_dataset.hpp>

namespace xtrain {

/// Label of a token that is no target.
inline constexpr token ignored_label = -100;

/// Writes the three datasets as streams; resumed as an indexed_writer.
class instruction_writer {
 public:
  /// Writes PREFIX_input_ids_document etc.; AscendSpeed expects a prefix ending in "_packed".
  explicit instruction_writer(const std::string& prefix);
  ///   checksums  checksums() at that position; none: not compared
  instruction_writer(const std::string& prefix, const indexed_position& from, const std::optional<std::array<std::uint64_t, 3>>& checksums = {});

  /// Adds a sample to the current document; learned(i): token i is a target.
  ///   throws  data_error if it has no tokens, or 2^31 or more
  template <class Learned>
  void add_sequence(std::span<const token> tokens, Learned&& learned) {
    labels_.resize(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) labels_[i] = learned(i) ? tokens[i] : ignored_label;
    add_labelled(tokens, labels_);
  }
  /// A document has the samples of one record.
  void end_document();
  template <class Learned>
  void add_document(std::span<const token> tokens, Learned&& learned) {
    add_sequence(tokens, learned);
    end_document();
  }

  [[nodiscard]] indexed_position position() const { return files_[0].position(); }
  /// Of attention masks, labels, input ids.
  [[nodiscard]] std::array<std::uint64_t, 3> checksums() const { return {files_[0].checksum(), files_[1].checksum(), files_[2].checksum()}; }
  indexed_position sync();
  /// See indexed_writer::finish; input_ids are last.
  void finish();
  void discard();

 private:
  void add_labelled(std::span<const token> tokens, std::span<const token> labels);

  std::array<indexed_writer, 3> files_;
  std::vector<token> labels_, mask_;
};

/// Settings of indexed_instruction_dataset.
struct indexed_instruction_options {
  bool packed = false;  ///< several samples per sequence: layout `packed`, else `separate`
  overlong when_too_long = overlong::refuse;
  std::optional<data_split> part{};  ///< of samples, by `split`; none: all
  std::string split = "969,30,1";
};

/// Reads such a dataset, with its labels' loss mask. PREFIX as for AscendSpeed, with or without "_packed". Padding (hidden at a sample's end) is omitted.
///   throws  file_error if a file is missing or damaged, or the three do not correspond; data_error with file, document and offset of a token not below
///           2^30, a label that is neither the token nor -100, a hidden target, or a mask with gaps
[[nodiscard]] dataset indexed_instruction_dataset(const std::string& prefix, const indexed_instruction_options& options = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/indexed_instructions_impl.hpp>
#endif
