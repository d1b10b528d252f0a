// Megatron's indexed datasets: PREFIX.bin, tokens back to back, and PREFIX.idx, positions of sequences and documents. Read by memory mapping, written as a
// stream, byte for byte as Megatron-LM, AscendSpeed and GPT-NeoX (MMIDIDX, version 1).
//
// PREFIX.idx, little-endian, nothing aligned: "MMIDIDX\0\0"; u64 version 1; u8 dtype code; u64 number of sequences S; u64 number of document
// boundaries D; S x i32 lengths in tokens; S x i64 offsets into PREFIX.bin in bytes; D x i64 document boundaries, the first 0: document d is
// the sequences [boundary d, boundary d + 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>

namespace xtrain {

/// Token dtypes by code in the file (6 and 7 are floating-point).
enum class indexed_dtype : std::uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, u16 = 8 };

/// Per token.
[[nodiscard]] constexpr std::size_t bytes_of(indexed_dtype dtype) {
  switch (dtype) {
    case indexed_dtype::u8:
    case indexed_dtype::i8:
      return 1;
    case indexed_dtype::i16:
    case indexed_dtype::u16:
      return 2;
    case indexed_dtype::i32:
      return 4;
    case indexed_dtype::i64:
      break;
  }
  return 8;
}

/// Megatron's choice: u16 below 65500, else i32. (Instruction datasets are i32: labels are -100.)
[[nodiscard]] constexpr indexed_dtype indexed_dtype_for(std::size_t vocabulary) {
  return vocabulary < 65500 ? indexed_dtype::u16 : indexed_dtype::i32;
}

/// What an indexed_writer has written, for resuming.
struct indexed_position {
  std::uint64_t tokens = 0, sequences = 0, documents = 0;

  friend bool operator==(const indexed_position&, const indexed_position&) = default;
};

/// An interrupted writer's parts do not match its record.
class damaged_part_error : public file_error {
  using file_error::file_error;
};

/// Writes PREFIX.bin and PREFIX.idx as a stream, in bounded memory. Until finish() data is in PREFIX.bin.part and PREFIX.idx.part (lengths of sequences),
/// which stay when the program ends early: files under final names are complete.
///
/// For resuming, record the result of sync(), checksum(), and the input position; construct a writer from them: it cuts off what was written later.
class indexed_writer {
 public:
  /// Overwrites an interrupted writer's parts.
  ///   throws  file_error if the files cannot be created, or another writer has them
  indexed_writer(std::string prefix, indexed_dtype dtype);
  /// Continues from a position of sync(); reads the parts.
  ///   checksum  checksum() at that position; none: not compared
  ///   throws  damaged_part_error if the parts are missing, too short, or do not match position or checksum; file_error
  indexed_writer(std::string prefix, indexed_dtype dtype, const indexed_position& from, std::optional<std::uint64_t> checksum = {});
  indexed_writer(indexed_writer&&) = default;
  indexed_writer& operator=(indexed_writer&&) = delete;

  /// Adds tokens to the current sequence, for texts larger than memory.
  ///   throws  data_error if a token does not fit the dtype, or a sequence has 2^31 tokens or more
  void extend(std::span<const token> tokens);
  /// The sequence may be empty.
  void end_sequence();
  void add_sequence(std::span<const token> tokens);
  /// Ends the current document, which may have no sequence.
  ///   throws  config_error within a sequence
  void end_document();
  /// A document of one sequence.
  void add_document(std::span<const token> tokens);

  [[nodiscard]] indexed_position position() const { return at_; }
  /// Of all tokens and lengths so far.
  [[nodiscard]] std::uint64_t checksum() const { return tokens_sum_ ^ (entries_sum_ << 1U | entries_sum_ >> 63U); }
  /// Puts everything on disk; call between documents.
  ///   throws  config_error within a document, file_error if the disk is full
  indexed_position sync();

  /// Writes PREFIX.idx and renames both files, PREFIX.idx last; replaces an existing pair. Call once.
  ///   throws  config_error within a document, file_error if the disk is full
  void finish();
  void discard();

  [[nodiscard]] const std::string& prefix() const { return prefix_; }

 private:
  static constexpr std::int32_t end_of_document = -1;  // in PREFIX.idx.part

  void open(bool create);
  void log(std::int32_t entry);
  void flush();
  void require_between_documents() const;
  /// FNV-1a of numbers: a single change always changes the sum, which can be continued.
  static void add_to(std::uint64_t& sum, std::int32_t number) { sum = (sum ^ static_cast<std::uint32_t>(number)) * 0x100000001B3U; }

  std::string prefix_;
  indexed_dtype dtype_;
  indexed_position at_;
  std::uint64_t sequence_tokens_ = 0;  // in the current sequence
  std::uint64_t document_begin_ = 0;   // sequences before the current document
  std::uint64_t tokens_sum_ = 0xCBF29CE484222325U, entries_sum_ = tokens_sum_;
  detail::descriptor bin_, log_;
  std::vector<std::byte> tokens_;
  std::vector<std::int32_t> entries_;
};

/// A mapped, validated indexed dataset; only pages read take memory.
class indexed_file {
 public:
  /// throws  file_error if a file is missing, malformed or inconsistent; older formats (TNTIDX), floating-point dtypes and multimodal indices are
  ///         refused by name
  explicit indexed_file(const std::string& prefix);

  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  [[nodiscard]] indexed_dtype dtype() const { return dtype_; }
  [[nodiscard]] std::size_t sequences() const { return sequences_; }
  [[nodiscard]] std::size_t documents() const { return boundaries_ - 1; }
  [[nodiscard]] std::size_t tokens() const { return tokens_; }
  /// Length and first token of a sequence, in tokens.
  [[nodiscard]] std::size_t length(std::size_t sequence) const {
    return static_cast<std::size_t>(load<std::int32_t>(lengths_ + 4 * sequence));
  }
  [[nodiscard]] std::size_t begin(std::size_t sequence) const {
    return static_cast<std::size_t>(load<std::int64_t>(offsets_ + 8 * sequence)) / bytes_of(dtype_);
  }
  /// First sequence of a document; document_begin(documents()): the end of the last.
  [[nodiscard]] std::size_t document_begin(std::size_t document) const {
    return static_cast<std::size_t>(load<std::int64_t>(documents_ + 8 * document));
  }
  [[nodiscard]] std::size_t document_of(std::size_t sequence) const;
  [[nodiscard]] std::size_t sequence_of(std::size_t i) const;

  /// Calls visit(k, value of the file's token first + k as std::int64_t) for `count` tokens, with one switch over the dtype.
  template <class Visit>
  void for_each(std::size_t first, std::size_t count, Visit&& visit) const {
    switch (dtype_) {
      case indexed_dtype::u8:
        return walk<std::uint8_t>(first, count, visit);
      case indexed_dtype::i8:
        return walk<std::int8_t>(first, count, visit);
      case indexed_dtype::i16:
        return walk<std::int16_t>(first, count, visit);
      case indexed_dtype::u16:
        return walk<std::uint16_t>(first, count, visit);
      case indexed_dtype::i32:
        return walk<std::int32_t>(first, count, visit);
      case indexed_dtype::i64:
        return walk<std::int64_t>(first, count, visit);
    }
  }
  /// Reads tokens from `first` on.
  ///   throws  data_error with file, document and offset of a token that is negative or not below `vocabulary`
  void read(std::size_t first, std::span<token> into, std::size_t vocabulary) const;
  /// Checksum of the index and of some token blocks.
  [[nodiscard]] std::uint64_t fingerprint() const;
  /// Advises the system of random access: no read-ahead.
  void expect_random_access() const;
  /// "PREFIX.bin: document 3, sequence 5, offset 17" for the file's token i; from 0.
  [[nodiscard]] std::string place_of(std::size_t i) const;

 private:
  template <class T>
  [[nodiscard]] static T load(const char* from) {  // nothing is aligned
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  template <class T, class Visit>
  void walk(std::size_t first, std::size_t count, Visit& visit) const {
    const char* const from = bin_.data() + first * sizeof(T);
    for (std::size_t k = 0; k < count; ++k) visit(k, static_cast<std::int64_t>(load<T>(from + k * sizeof(T))));
  }
  template <class... Parts>
  void check(bool holds, const Parts&... parts) const {
    require<file_error>(holds, idx_.path(), ": not a whole index of a Megatron dataset: ", parts...);
  }

  std::string prefix_;
  mapped_file idx_, bin_;
  indexed_dtype dtype_ = indexed_dtype::i32;
  std::size_t sequences_ = 0, boundaries_ = 0, tokens_ = 0;
  const char* lengths_ = nullptr;
  const char* offsets_ = nullptr;
  const char* documents_ = nullptr;
};

}  // namespace xtrain

#ifndef XTRAIN_LIBRARY
#include <xtrain/data/indexed_dataset_impl.hpp>
#endif
