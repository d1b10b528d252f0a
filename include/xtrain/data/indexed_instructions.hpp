// AscendSpeed's instruction datasets: three indexed datasets of int32 whose sequences correspond, PREFIX_packed_input_ids_document,
// PREFIX_packed_attention_mask_document and PREFIX_packed_labels_document. ("packed" says that they belong together; each sequence is one sample.)
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

/// The label of a token that is no target.
inline constexpr token ignored_label = -100;

/// Writes the three datasets as streams; interrupted, it is continued as an indexed_writer is.
class instruction_writer {
 public:
  /// Writes PREFIX_input_ids_document and so on; AscendSpeed looks for a prefix that ends with "_packed".
  explicit instruction_writer(const std::string& prefix);
  ///   checksums  what checksums() was there; none: is not compared
  instruction_writer(const std::string& prefix, const indexed_position& from, const std::optional<std::array<std::uint64_t, 3>>& checksums = {});

  /// Adds a sample to the current document. `learned(i)` says whether token i is a target (the loss mask).
  ///   throws  data_error if it has no tokens, or 2^31 or more
  template <class Learned>
  void add_sequence(std::span<const token> tokens, Learned&& learned) {
    labels_.resize(tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) labels_[i] = learned(i) ? tokens[i] : ignored_label;
    add_labelled(tokens, labels_);
  }
  /// Ends the current document: the samples of one record.
  void end_document();
  /// A document of one sample.
  template <class Learned>
  void add_document(std::span<const token> tokens, Learned&& learned) {
    add_sequence(tokens, learned);
    end_document();
  }

  [[nodiscard]] indexed_position position() const { return files_[0].position(); }
  /// Of attention masks, labels, input ids: as indexed_writer::checksum.
  [[nodiscard]] std::array<std::uint64_t, 3> checksums() const { return {files_[0].checksum(), files_[1].checksum(), files_[2].checksum()}; }
  /// As indexed_writer::sync.
  indexed_position sync();
  /// As indexed_writer::finish, for each of the three; the input_ids are last.
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
  std::optional<data_split> part{};  ///< of the samples, by `split`; none: all samples
  std::string split = "969,30,1";
};

/// Reads such a dataset, with the loss mask of its labels. PREFIX is as given to AscendSpeed, without "_packed", or with it. Tokens that the attention mask
/// hides at the end of a sample, padding, are left out.
///   throws  file_error if a file is missing or damaged, or the three do not correspond; data_error with file, document and offset of a token that is
///           not below 2^30, a label that is neither the token nor -100, a target that the attention mask hides, or a mask with gaps
[[nodiscard]] dataset indexed_instruction_dataset(const std::string& prefix, const indexed_instruction_options& options = {});

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/indexed_instructions_impl.hpp>
#endif
