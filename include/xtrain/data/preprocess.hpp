// Files of records as indexed datasets on disk: what Megatron's and AscendSpeed's preprocess_data do, resumed where an interrupted run was. Component 'io'.
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

/// How far it is, or was when it ended.
struct preprocess_progress {
  std::uint64_t records = 0;    ///< read
  std::uint64_t bytes = 0;      ///< of JSON or text of these records
  std::uint64_t documents = 0;  ///< written, of all keys
  std::uint64_t tokens = 0;
  std::uint64_t targets = 0;   ///< tokens that are targets, of instructions
  std::uint64_t empty = 0;     ///< documents without a sequence: texts without tokens
  std::uint64_t too_long = 0;  ///< instructions longer than seq_length, which are left out
  std::uint64_t resumed = 0;   ///< records that an interrupted run had read

  friend bool operator==(const preprocess_progress&, const preprocess_progress&) = default;
};

/// Settings of preprocess_data.
struct preprocess_options {
  std::string output_prefix{};
  record_options records{};
  std::vector<record_format> formats = record_formats();
  std::string only_format{};            ///< every file is of this format, whatever its name
  std::size_t seq_length = 0;           ///< instructions with more tokens are left out; 0: none
  std::size_t workers = 1;              ///< threads that tokenize; 0: one per processor
  std::size_t batch_bytes = 256 << 10;  ///< of records that a thread takes at a time
  double sync_seconds = 15;             ///< how often the position is put on disk
  /// Of settings that are not seen here: an interrupted run goes on only with the same. What the handler says of itself, and a fingerprint of the tokenizer,
  /// are recorded anyway.
  std::string identity{};
  std::function<void(const preprocess_progress&)> on_batch{};  ///< after each batch that is written; may throw to stop
};

/// Tokenizes the records of all files, in order, and writes PREFIX_KEY_document.{bin,idx} for each key, or of instructions
/// PREFIX_packed_{input_ids,attention_mask,labels}_document.{bin,idx}. The files do not depend on the number of workers. Memory is bounded: at most
/// a few batches per worker are held, plus the largest record.
///
/// Until it ends, everything is in *.part files, and PREFIX_preprocess.json says how far they are. A second call with the same files,
/// settings and tokenizer goes on there, and gives the same bytes as a run that was not interrupted.
///   throws  data_error with the place of the first malformed record; config_error if an interrupted run had other settings;
///           file_error if it had other files, or a file cannot be read or written
preprocess_progress preprocess_data(const std::vector<std::string>& files, const tokenizer& with, const record_handler& handler,
                                    const preprocess_options& options);

/// A checksum of a tokenizer's vocabulary, its special tokens, and what it makes of a text in several scripts.
[[nodiscard]] std::string tokenizer_fingerprint(const tokenizer& of);

/// A checksum of the files that a tokenizer is loaded from: of a folder, those that tokenizers are made of.
[[nodiscard]] std::string tokenizer_identity(const std::string& path);

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/preprocess_impl.hpp>
#endif
