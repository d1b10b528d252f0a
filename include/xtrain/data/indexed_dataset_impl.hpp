// Definitions of indexed_dataset.hpp.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <xtrain/core/checksum.hpp>
#include <xtrain/core/dtype.hpp>
#include <xtrain/core/error.hpp>
#include <xtrain/core/file.hpp>
#include <xtrain/core/library.hpp>
#include <xtrain/core/text.hpp>
#include <xtrain/data/indexed_dataset.hpp>

namespace xtrain {

static_assert(std::endian::native == std::endian::little, "indexed_dataset: files are little-endian, and are mapped");

namespace detail {

inline constexpr std::string_view index_magic{"MMIDIDX\0\0", 9};
inline constexpr std::size_t index_header = 9 + 8 + 1 + 8 + 8;

[[nodiscard]] constexpr std::pair<std::int64_t, std::int64_t> range_of(indexed_dtype dtype) {
  switch (dtype) {
    case indexed_dtype::u8:
      return {0, 255};
    case indexed_dtype::i8:
      return {-128, 127};
    case indexed_dtype::i16:
      return {-32768, 32767};
    case indexed_dtype::u16:
      return {0, 65535};
    case indexed_dtype::i32:
    case indexed_dtype::i64:
      break;
  }
  return {std::numeric_limits<token>::min(), std::numeric_limits<token>::max()};
}

XTRAIN_INLINE void read_all(int fd, void* to, std::size_t bytes, const std::string& path) {
  auto* into = static_cast<char*>(to);
  while (bytes > 0) {
    const ::ssize_t count = ::read(fd, into, bytes);
    if (count < 0 && errno == EINTR) continue;
    require<file_error>(count > 0, path, ": must be readable; ", bytes,
                        " bytes are missing and the system says: ", reason(count < 0 ? errno : EIO));
    into += count;
    bytes -= static_cast<std::size_t>(count);
  }
}

template <class T, class Visit>
void for_each_entry(int fd, std::uint64_t count, const std::string& path, Visit&& visit) {
  require<file_error>(::lseek(fd, 0, SEEK_SET) == 0, path, ": must be readable; the system says: ", reason(errno));
  std::array<T, 16384> piece;
  while (count > 0) {
    const auto some = static_cast<std::size_t>(std::min<std::uint64_t>(count, piece.size()));
    read_all(fd, piece.data(), some * sizeof(T), path);
    for (std::size_t i = 0; i < some; ++i) visit(piece[i]);
    count -= some;
  }
}

template <class Visit>
void for_each_token(int fd, indexed_dtype dtype, std::uint64_t count, const std::string& path, Visit&& visit) {
  const auto as_token = [&](auto value) { visit(static_cast<token>(value)); };
  switch (dtype) {
    case indexed_dtype::u8:
      return for_each_entry<std::uint8_t>(fd, count, path, as_token);
    case indexed_dtype::i8:
      return for_each_entry<std::int8_t>(fd, count, path, as_token);
    case indexed_dtype::i16:
      return for_each_entry<std::int16_t>(fd, count, path, as_token);
    case indexed_dtype::u16:
      return for_each_entry<std::uint16_t>(fd, count, path, as_token);
    case indexed_dtype::i32:
      return for_each_entry<std::int32_t>(fd, count, path, as_token);
    case indexed_dtype::i64:
      return for_each_entry<std::int64_t>(fd, count, path, as_token);
  }
}

/// Writes numbers in large pieces.
template <class T>
class number_stream {
 public:
  explicit number_stream(atomic_file& to) : to_(&to) {}
  void put(T value) {
    piece_[count_++] = value;
    if (count_ == piece_.size()) flush();
  }
  void flush() {
    to_->write(piece_.data(), count_ * sizeof(T));
    count_ = 0;
  }

 private:
  atomic_file* to_;
  std::array<T, 8192> piece_;
  std::size_t count_ = 0;
};

}  // namespace detail

XTRAIN_INLINE indexed_writer::indexed_writer(std::string prefix, indexed_dtype dtype) : prefix_(std::move(prefix)), dtype_(dtype) {
  open(true);
}

XTRAIN_INLINE indexed_writer::indexed_writer(std::string prefix, indexed_dtype dtype, const indexed_position& from,
                                             std::optional<std::uint64_t> checksum)
    : prefix_(std::move(prefix)), dtype_(dtype), at_(from), document_begin_(from.sequences) {
  open(false);
  const std::string bin = prefix_ + ".bin.part", log = prefix_ + ".idx.part";
  const auto holds = [](const detail::descriptor& file, const std::string& path, std::uint64_t count, std::uint64_t bytes_each) {
    struct ::stat status {};
    const bool known = ::fstat(file.get(), &status) == 0;
    require<damaged_part_error>(known && count <= std::uint64_t{1} << 59 && static_cast<std::uint64_t>(status.st_size) >= count * bytes_each, path,
                                ": must hold the ", count * bytes_each, " bytes that an interrupted run recorded; it has ", status.st_size);
  };
  const auto cut = [](const detail::descriptor& file, const std::string& path, std::uint64_t count, std::uint64_t bytes_each) {
    require<file_error>(::ftruncate(file.get(), static_cast<::off_t>(count * bytes_each)) == 0, path,
                        ": must be cut to the recorded position; the system says: ", detail::reason(errno));
  };
  // check the record before cutting
  require<damaged_part_error>(from.sequences <= std::uint64_t{1} << 58 && from.documents <= std::uint64_t{1} << 58, log,
                              ": the recorded position must be one that a writer reached; given ", from.sequences, " sequences, ", from.documents,
                              " documents");
  const std::uint64_t entries = from.sequences + from.documents;
  holds(log_, log, entries, sizeof(std::int32_t));
  holds(bin_, bin, from.tokens, bytes_of(dtype_));
  indexed_position found;
  bool ended = true;
  detail::for_each_entry<std::int32_t>(log_.get(), entries, log, [&](std::int32_t entry) {
    ended = entry == end_of_document;
    require<damaged_part_error>(entry >= end_of_document, log, ": must hold lengths of sequences; given ", entry);
    if (ended) ++found.documents;
    else found.tokens += static_cast<std::uint64_t>(entry), ++found.sequences;
    add_to(entries_sum_, entry);
  });
  require<damaged_part_error>(found == from && ended, log, ": must be the dataset of the recorded position (", from.tokens, " tokens, ",
                              from.sequences, " sequences, ", from.documents, " documents); it has ", found.tokens, ", ", found.sequences, ", ",
                              found.documents);
  detail::for_each_token(bin_.get(), dtype_, from.tokens, bin, [&](token one) { add_to(tokens_sum_, one); });
  require<damaged_part_error>(!checksum || *checksum == this->checksum(), bin, " with ", log,
                              ": must hold what an interrupted run wrote; their checksum is another, they are damaged");
  cut(bin_, bin, from.tokens, bytes_of(dtype_));
  cut(log_, log, entries, sizeof(std::int32_t));
  for (const auto& [file, path] : {std::pair(bin_.get(), bin), std::pair(log_.get(), log)})
    require<file_error>(::lseek(file, 0, SEEK_END) >= 0, path, ": must be writable at its end; the system says: ", detail::reason(errno));
}

XTRAIN_INLINE void indexed_writer::open(bool create) {
  for (const auto& [file, path] : {std::pair(&bin_, prefix_ + ".bin.part"), std::pair(&log_, prefix_ + ".idx.part")}) {
    *file = detail::descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0666));
    if (!file->valid() && !create) fail<damaged_part_error>(path, ": must be there to be continued; the system says: ", detail::reason(errno));
    require<file_error>(file->valid(), path, ": must be writable; the system says: ", detail::reason(errno));
    require<file_error>(::flock(file->get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK, path,
                        ": must be free; another program is writing it");
    // another writer may have finished and renamed this file: it must not be cut
    struct ::stat own {}, named {};
    require<file_error>(::fstat(file->get(), &own) == 0 && ::stat(path.c_str(), &named) == 0 && own.st_dev == named.st_dev && own.st_ino == named.st_ino,
                        path, ": must be free; another program has just finished it");
    require<file_error>(!create || ::ftruncate(file->get(), 0) == 0, path, ": must be writable; the system says: ", detail::reason(errno));
  }
}

XTRAIN_INLINE void indexed_writer::extend(std::span<const token> tokens) {
  constexpr auto longest = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());
  require<data_error>(tokens.size() <= longest - sequence_tokens_, prefix_, ".bin: a sequence must have fewer than 2^31 tokens; given ",
                      sequence_tokens_ + tokens.size());
  const auto [least, most] = detail::range_of(dtype_);
  const std::size_t bytes = bytes_of(dtype_), before = tokens_.size();
  for (std::size_t i = 0; i < tokens.size(); ++i)
    require<data_error>(tokens[i] >= least && tokens[i] <= most, prefix_, ".bin: a token must lie in [", least, ", ", most,
                        "] to be stored in ", bytes, " bytes; document ", at_.documents, " has ", tokens[i]);
  tokens_.resize(before + tokens.size() * bytes);
  std::byte* to = tokens_.data() + before;
  for (std::size_t i = 0; i < tokens.size(); ++i, to += bytes) {
    const std::int64_t wide = tokens[i];
    std::memcpy(to, &wide, bytes);  // little-endian: low bytes first
    add_to(tokens_sum_, tokens[i]);
  }
  sequence_tokens_ += tokens.size();
  if (tokens_.size() >= std::size_t{1} << 20) flush();
}

XTRAIN_INLINE void indexed_writer::end_sequence() {
  log(static_cast<std::int32_t>(sequence_tokens_));
  at_.tokens += std::exchange(sequence_tokens_, 0);
  ++at_.sequences;
}

XTRAIN_INLINE void indexed_writer::add_sequence(std::span<const token> tokens) {
  extend(tokens);
  end_sequence();
}

XTRAIN_INLINE void indexed_writer::end_document() {
  require<config_error>(sequence_tokens_ == 0, prefix_, ".bin: a sequence must be ended before its document");
  log(end_of_document);
  ++at_.documents;
  document_begin_ = at_.sequences;
}

XTRAIN_INLINE void indexed_writer::add_document(std::span<const token> tokens) {
  add_sequence(tokens);
  end_document();
}

XTRAIN_INLINE void indexed_writer::log(std::int32_t entry) {
  entries_.push_back(entry);
  add_to(entries_sum_, entry);
  if (entries_.size() >= std::size_t{1} << 18) flush();
}

XTRAIN_INLINE void indexed_writer::flush() {
  detail::write_all(bin_.get(), tokens_.data(), tokens_.size(), prefix_ + ".bin.part");
  detail::write_all(log_.get(), entries_.data(), entries_.size() * sizeof(std::int32_t), prefix_ + ".idx.part");
  tokens_.clear();
  entries_.clear();
}

XTRAIN_INLINE void indexed_writer::require_between_documents() const {
  require<config_error>(sequence_tokens_ == 0 && document_begin_ == at_.sequences, prefix_, ".bin: the last document must be ended first");
  require<config_error>(bin_.valid(), prefix_, ".bin: is finished; nothing can be added");
}

XTRAIN_INLINE indexed_position indexed_writer::sync() {
  require_between_documents();
  flush();
  for (const auto& [file, path] : {std::pair(bin_.get(), prefix_ + ".bin.part"), std::pair(log_.get(), prefix_ + ".idx.part")})
    require<file_error>(::fdatasync(file) == 0, path, ": must be written whole; the system says: ", detail::reason(errno));
  return at_;
}

XTRAIN_INLINE void indexed_writer::finish() {
  sync();
  const std::string bin = prefix_ + ".bin", idx = prefix_ + ".idx", log = prefix_ + ".idx.part";
  atomic_file index(idx, idx + ".new.part");
  {
    const std::uint64_t counts[] = {at_.sequences, at_.documents + 1}, version = 1;
    index.write(detail::index_magic);
    index.write(&version, sizeof version);
    index.write(&dtype_, 1);
    index.write(counts, sizeof counts);
  }
  const std::uint64_t entries = at_.sequences + at_.documents;
  detail::number_stream<std::int32_t> lengths(index);
  detail::for_each_entry<std::int32_t>(log_.get(), entries, log, [&](std::int32_t entry) {
    if (entry != end_of_document) lengths.put(entry);
  });
  lengths.flush();
  detail::number_stream<std::int64_t> numbers(index);
  std::int64_t offset = 0, sequences = 0;
  detail::for_each_entry<std::int32_t>(log_.get(), entries, log, [&](std::int32_t entry) {
    if (entry == end_of_document) return;
    numbers.put(offset);
    offset += entry * static_cast<std::int64_t>(bytes_of(dtype_));
  });
  numbers.put(0);
  detail::for_each_entry<std::int32_t>(log_.get(), entries, log, [&](std::int32_t entry) {
    if (entry == end_of_document) numbers.put(sequences);
    else ++sequences;
  });
  numbers.flush();
  // an old index belongs to other tokens: remove it first
  require<file_error>(::unlink(idx.c_str()) == 0 || errno == ENOENT, idx, ": must be replaced; the system says: ", detail::reason(errno));
  require<file_error>(::rename((bin + ".part").c_str(), bin.c_str()) == 0, bin,
                      ": must take its name; the system says: ", detail::reason(errno));
  detail::sync_directory(detail::parent_of(bin));
  index.commit();
  ::unlink(log.c_str());
  bin_.close();
  log_.close();
}

XTRAIN_INLINE void indexed_writer::discard() {
  if (!bin_.valid()) return;
  ::unlink((prefix_ + ".bin.part").c_str());
  ::unlink((prefix_ + ".idx.part").c_str());
  bin_.close();
  log_.close();
}

XTRAIN_INLINE indexed_file::indexed_file(const std::string& prefix) : prefix_(prefix), idx_(prefix + ".idx"), bin_(prefix + ".bin") {
  const std::string_view all = idx_.text();
  require<file_error>(
      !all.starts_with("TNTIDX"), idx_.path(),
      ": must be an index of a memory-mapped dataset (MMIDIDX); this is Megatron's older format TNTIDX: write it again with --dataset-impl mmap");
  check(all.size() >= detail::index_header, "it has ", all.size(), " bytes, a header ", detail::index_header);
  check(all.starts_with(detail::index_magic), "it must begin with MMIDIDX");
  const auto version = load<std::uint64_t>(all.data() + 9);
  check(version == 1, "version must be 1; given ", version);
  const auto code = static_cast<unsigned char>(all[17]);
  require<file_error>(code != 6 && code != 7, idx_.path(), ": must index tokens; its numbers are of a floating-point dtype (code ",
                      int{code}, ")");
  check((code >= 1 && code <= 5) || code == 8, "dtype code must be 1, 2, 3, 4, 5 or 8; given ", int{code});
  dtype_ = static_cast<indexed_dtype>(code);
  const auto sequences = load<std::uint64_t>(all.data() + 18), boundaries = load<std::uint64_t>(all.data() + 26);
  const std::uint64_t rest = all.size() - detail::index_header;
  check(sequences <= rest / 12 && boundaries <= rest / 8 && sequences * 12 + boundaries * 8 <= rest, "it has ", rest, " bytes for ",
        sequences, " sequences of 12 bytes and ", boundaries, " document boundaries of 8");
  const std::uint64_t left = rest - sequences * 12 - boundaries * 8;
  require<file_error>(left == 0 || sequences == 0 || left != sequences, idx_.path(),
                      ": must index tokens; it has a mode per sequence, as Megatron's multimodal datasets");
  check(left == 0, left, " bytes follow its end");
  check(boundaries >= 1, "it must have document boundaries; given none");
  sequences_ = static_cast<std::size_t>(sequences);
  boundaries_ = static_cast<std::size_t>(boundaries);
  lengths_ = all.data() + detail::index_header;
  offsets_ = lengths_ + 4 * sequences_;
  documents_ = offsets_ + 8 * sequences_;

  const std::uint64_t bytes = bytes_of(dtype_);
  std::uint64_t end = 0;  // below 2^31 * 8 * sequences; offsets are at most the largest i64: no overflow
  for (std::size_t s = 0; s < sequences_; ++s) {
    const auto length = load<std::int32_t>(lengths_ + 4 * s);
    const auto offset = load<std::int64_t>(offsets_ + 8 * s);
    check(length >= 0, "sequence ", s, " has the length ", length);
    check(offset >= 0 && static_cast<std::uint64_t>(offset) == end, "sequence ", s, " must begin at byte ", end, " of ", bin_.path(),
          ", where the one before ends; given ", offset);
    end += static_cast<std::uint64_t>(length) * bytes;
    require<file_error>(end <= bin_.size(), bin_.path(), ": must hold the ", end, " bytes of sequences 0 to ", s, " of its index; it has ",
                        bin_.size());
  }
  require<file_error>(end == bin_.size(), bin_.path(), ": must end with the last sequence of its index, after ", end, " bytes; it has ",
                      bin_.size());
  tokens_ = static_cast<std::size_t>(end / bytes);
  std::int64_t before = 0;
  for (std::size_t d = 0; d < boundaries_; ++d) {
    const auto boundary = load<std::int64_t>(documents_ + 8 * d);
    check(d > 0 || boundary == 0, "the first document must begin at sequence 0; given ", boundary);
    check(boundary >= before && static_cast<std::uint64_t>(boundary) <= sequences, "document boundary ", d, " must lie in [", before, ", ",
          sequences, "]; given ", boundary);
    before = boundary;
  }
}

XTRAIN_INLINE std::size_t indexed_file::document_of(std::size_t sequence) const {
  std::size_t low = 0, high = boundaries_;  // the last boundary not after the sequence
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    (document_begin(middle) <= sequence ? low : high) = middle;
  }
  return low;
}

XTRAIN_INLINE std::size_t indexed_file::sequence_of(std::size_t i) const {
  std::size_t low = 0, high = sequences_;
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    (begin(middle) <= i ? low : high) = middle;
  }
  return low;
}

XTRAIN_INLINE void indexed_file::read(std::size_t first, std::span<token> into, std::size_t vocabulary) const {
  const auto limit = static_cast<std::uint64_t>(vocabulary);
  will_be_read(std::as_bytes(std::span(bin_.data() + first * bytes_of(dtype_), into.size() * bytes_of(dtype_))));
  std::uint64_t largest = 0;  // negative tokens count as large
  for_each(first, into.size(), [&](std::size_t k, std::int64_t value) {
    largest = std::max(largest, static_cast<std::uint64_t>(value));
    into[k] = static_cast<token>(value);
  });
  if (largest < limit || into.empty()) return;
  for_each(first, into.size(), [&](std::size_t k, std::int64_t value) {
    require<data_error>(static_cast<std::uint64_t>(value) < limit, place_of(first + k), ": tokens must lie in the vocabulary [0, ",
                        vocabulary, "); given ", value, ". Does the tokenizer belong to this model?");
  });
}

XTRAIN_INLINE std::uint64_t indexed_file::fingerprint() const {
  std::vector<std::uint64_t> parts = sampled_checksums(bin_.text());
  parts.push_back(checksum(bin_.text().substr(bin_.size() - std::min<std::size_t>(bin_.size(), 4096))));
  parts.push_back(bin_.size());
  parts.push_back(checksum(idx_.text()));
  return checksum({reinterpret_cast<const char*>(parts.data()), parts.size() * sizeof(parts[0])});
}

XTRAIN_INLINE void indexed_file::expect_random_access() const {
  if (bin_.size() > 0) ::madvise(const_cast<char*>(bin_.data()), bin_.size(), MADV_RANDOM);
}

XTRAIN_INLINE std::string indexed_file::place_of(std::size_t i) const {
  const std::size_t sequence = sequence_of(i);
  return concat(bin_.path(), ": document ", document_of(sequence), ", sequence ", sequence, ", offset ", i - begin(sequence));
}

}  // namespace xtrain
