// Files of records to indexed datasets on disk, resumable: preprocess_data of Megatron and AscendSpeed. Component 'io'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <xtrain/data/indexed_dataset.hpp>
#include <xtrain/data/record_handler.hpp>
#include <xtrain/data/record_source.hpp>
#include <xtrain/text/tokenizer.hpp>

namespace xtrain {

/// Progress so far.
struct preprocess_progress {
  std::uint64_t records = 0;
  std::uint64_t bytes = 0;      ///< JSON or text of these records
  std::uint64_t documents = 0;  ///< written, all keys
  std::uint64_t tokens = 0;
  std::uint64_t targets = 0;   ///< for instructions
  std::uint64_t empty = 0;     ///< documents without tokens
  std::uint64_t too_long = 0;  ///< instructions omitted by seq_length
  std::uint64_t resumed = 0;   ///< records of an interrupted run

  friend bool operator==(const preprocess_progress&, const preprocess_progress&) = default;
};

/// Settings of preprocess_data.
struct preprocess_options {
  std::string output_prefix{};
  record_options records{};
  std::vector<record_format> formats = record_formats();
  std::string only_format{};            ///< for all files, whatever their names
  std::size_t seq_length = 0;           ///< longer instructions are omitted; 0: no limit
  std::size_t workers = 1;              ///< tokenizing threads; 0: one per processor
  std::size_t batch_bytes = 256 << 10;  ///< of records per thread and batch
  double sync_seconds = 15;             ///< seconds between records of the position on disk
  /// Further settings that a resumed run must match; the handler's settings and a tokenizer fingerprint are always recorded.
  std::string identity{};
  std::function<void(const preprocess_progress&)> on_batch{};  ///< after each written batch; may throw to stop
};

/// Tokenizes all records in order; writes PREFIX_KEY_document.{bin,idx} per key, or for instructions
/// PREFIX_packed_{input_ids,attention_mask,labels}_document.{bin,idx}. Files do not depend on `workers`. Memory: a few batches per worker, and the largest
/// record.
///
/// Until the end, data is in *.part files, and PREFIX_preprocess.json has the position. A second call with equal files, settings and tokenizer resumes, with
/// the bytes of an uninterrupted run.
///   throws  data_error with the place of the first malformed record; config_error if an interrupted run had other settings; file_error if it had other
///           files, or a file cannot be read or written
preprocess_progress preprocess_data(const std::vector<std::string>& files, const tokenizer& with, const record_handler& handler,
                                    const preprocess_options& options);

/// Checksum of vocabulary, special tokens, and an encoded text in several scripts.
[[nodiscard]] std::string tokenizer_fingerprint(const tokenizer& of);

/// Checksum of the tokenizer files in the folder of `path`; the path if it does not exist ("byte").
[[nodiscard]] std::string tokenizer_identity(const std::string& path);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/preprocess_impl.hpp>
#endif
