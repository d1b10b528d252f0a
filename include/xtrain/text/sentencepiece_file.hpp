// A SentencePiece model file: protocol buffer ModelProto with pieces and settings. Component 'text'.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>

namespace xtrain::detail {

/// Reads fields of a message. The input is untrusted.
class message_reader {
 public:
  message_reader(std::string_view message, const std::string& who) : left_(message), who_(&who) {}

  /// Next field: number, and `value` (integers, fixed-width bits) or `bytes`.
  ///   throws  file_error if the message is truncated or invalid
  [[nodiscard]] bool next() {
    if (left_.empty()) return false;
    const std::uint64_t tag = varint();
    field = tag >> 3;
    require<file_error>(field > 0 && field < (1U << 29), *who_, ": must be a SentencePiece model; it is no protocol buffer");
    value = 0;
    bytes = {};
    switch (tag & 7U) {
      case 0:
        value = varint();
        return true;
      case 1:
        value = fixed(8);
        return true;
      case 2:
        bytes = take(varint());
        return true;
      case 5:
        value = fixed(4);
        return true;
      default:
        fail<file_error>(*who_, ": must be a SentencePiece model; it has a field of a kind that no protocol buffer has");
    }
  }

  std::uint64_t field = 0, value = 0;
  std::string_view bytes{};

 private:
  std::string_view take(std::uint64_t count) {
    require<file_error>(count <= left_.size(), *who_, ": must be a whole SentencePiece model; a field of ", count, " bytes is cut off after ",
                        left_.size());
    const std::string_view taken = left_.substr(0, static_cast<std::size_t>(count));
    left_.remove_prefix(taken.size());
    return taken;
  }
  std::uint64_t varint() {
    std::uint64_t number = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      number |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if (byte < 0x80) return number;
    }
    fail<file_error>(*who_, ": must be a SentencePiece model; it has a number of more than ten bytes");
  }
  std::uint64_t fixed(unsigned count) {
    std::uint64_t number = 0;
    const std::string_view taken = take(count);
    for (unsigned i = 0; i < count; ++i) number |= static_cast<std::uint64_t>(static_cast<unsigned char>(taken[i])) << 8 * i;
    return number;
  }

  std::string_view left_;
  const std::string* who_;
};

enum class piece_kind : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
enum class piece_model : std::uint8_t { unigram = 1, bpe = 2, word = 3, character = 4 };

struct sentence_piece {
  std::string text{};
  float score = 0.0F;
  piece_kind kind = piece_kind::normal;

  /// Can occur in text. Other pieces have a separate namespace: a text may be in both.
  [[nodiscard]] bool is_text() const {
    return kind == piece_kind::normal || kind == piece_kind::user_defined || kind == piece_kind::unused;
  }
};

/// NormalizerSpec.
struct sentencepiece_normalization {
  std::string charsmap{};
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

struct sentencepiece_file {
  std::vector<sentence_piece> pieces{};
  piece_model model = piece_model::unigram;
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::string unknown_surface = " \xE2\x81\x87 ";  ///< decoded unknown token
  std::string bos_piece = "<s>", eos_piece = "</s>";
  sentencepiece_normalization normalization{}, denormalization{};
  token unknown = -1;
};

[[nodiscard]] inline bool flag_of(const message_reader& from) { return from.value != 0; }

inline void read_normalization(std::string_view bytes, const std::string& who, sentencepiece_normalization& to) {
  for (message_reader from(bytes, who); from.next();) {
    if (from.field == 2) to.charsmap = std::string(from.bytes);
    else if (from.field == 3) to.add_dummy_prefix = flag_of(from);
    else if (from.field == 4) to.remove_extra_whitespaces = flag_of(from);
    else if (from.field == 5) to.escape_whitespaces = flag_of(from);
  }
}

inline void read_training(std::string_view bytes, const std::string& who, sentencepiece_file& to) {
  for (message_reader from(bytes, who); from.next();) {
    if (from.field == 3 && from.value >= 1 && from.value <= 4) to.model = static_cast<piece_model>(from.value);
    else if (from.field == 24) to.whitespace_as_suffix = flag_of(from);
    else if (from.field == 35) to.byte_fallback = flag_of(from);
    else if (from.field == 44) to.unknown_surface = std::string(from.bytes);
    else if (from.field == 46 && !from.bytes.empty()) to.bos_piece = std::string(from.bytes);
    else if (from.field == 47 && !from.bytes.empty()) to.eos_piece = std::string(from.bytes);
  }
}

[[nodiscard]] inline sentence_piece read_piece(std::string_view bytes, const std::string& who) {
  sentence_piece piece;
  for (message_reader from(bytes, who); from.next();) {
    if (from.field == 1) piece.text = std::string(from.bytes);
    else if (from.field == 2) {
      const auto bits = static_cast<std::uint32_t>(from.value);
      std::memcpy(&piece.score, &bits, sizeof bits);
    } else if (from.field == 3 && from.value >= 1 && from.value <= 6) {
      piece.kind = static_cast<piece_kind>(from.value);
    }
  }
  return piece;
}

/// Byte of "<0xNN>"; negative for others.
[[nodiscard]] inline int byte_of_piece(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const std::size_t high = digits.find(text[3]), low = digits.find(text[4]);
  return high == std::string_view::npos || low == std::string_view::npos ? -1 : static_cast<int>(16 * high + low);
}

/// Checks what the format guarantees: pieces have a text and a finite score, one is unknown, byte fallback has all bytes.
///   who     file, for errors
///   throws  file_error
[[nodiscard]] inline sentencepiece_file read_sentencepiece(std::string_view bytes, const std::string& who) {
  sentencepiece_file file;
  for (message_reader from(bytes, who); from.next();) {
    if (from.field == 1) file.pieces.push_back(read_piece(from.bytes, who));
    else if (from.field == 2) read_training(from.bytes, who, file);
    else if (from.field == 3) read_normalization(from.bytes, who, file.normalization);
    else if (from.field == 5) read_normalization(from.bytes, who, file.denormalization);
  }
  require<file_error>(!file.pieces.empty(), who, ": must be a SentencePiece model; it has no pieces");
  require<file_error>(file.pieces.size() < (std::size_t{1} << 24), who, ": must have fewer than 2^24 pieces; it has ", file.pieces.size());
  bool has_byte[256] = {};
  for (std::size_t i = 0; i < file.pieces.size(); ++i) {
    sentence_piece& one = file.pieces[i];
    if (file.byte_fallback && one.text == std::string_view("\0", 1) && one.is_text()) one.kind = piece_kind::unused;  // use the byte piece
    const bool has_zero = one.text.find('\0') != std::string::npos;
    require<file_error>(!has_zero || (one.text.size() == 1 && one.kind == piece_kind::unused), who,
                        ": no piece may hold a zero byte; piece ", i, " does");
    require<file_error>(!one.text.empty(), who, ": every piece must have a text; piece ", i, " has none");
    require<file_error>(std::isfinite(one.score), who, ": every piece must have a finite score; that of piece ", i, " is ", one.score);
    if (one.kind == piece_kind::unknown) {
      require<file_error>(file.unknown < 0, who, ": one piece must be the unknown one; pieces ", file.unknown, " and ", i, " are");
      file.unknown = static_cast<token>(i);
    } else if (one.kind == piece_kind::byte) {
      const int byte = byte_of_piece(one.text);
      require<file_error>(file.byte_fallback && byte >= 0, who, ": pieces of bytes must be written <0xNN>, in a model with byte_fallback; piece ",
                          i, " is '", one.text, "'");
      has_byte[byte] = true;
    }
  }
  require<file_error>(file.unknown >= 0, who, ": one piece must be the unknown one; none is");
  for (int byte = 0; file.byte_fallback && byte < 256; ++byte)
    require<file_error>(has_byte[byte], who, ": byte_fallback needs a piece for every byte; there is none for ", byte);
  return file;
}

}  // namespace xtrain::detail
